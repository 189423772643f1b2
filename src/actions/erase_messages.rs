//! Erases what a user left in one conversation: out of it, words blanked, reactions taken back; numbers and places stay.
//!
//! Every message is blanked where it is numbered, as an edit would be: one step with its event, decided on what stands there. So pages,
//! quotes, streams and the archive follow as they follow any change, and doing it twice changes nothing. What stands beside the words in the
//! archive is forgotten when the change has arrived there.

use std::time::Duration;

use super::Stores;
use super::block_user::unblock_user;
use super::change_conversation::{Actor, change_conversation};
use super::clear_obstacle::{Obstacle, Tries};
use super::erase_user::pass;
use super::set_preferences::set_preferences;
use crate::domain::change::Command;
use crate::domain::erasure::{Erasure, erase};
use crate::domain::event::EventType;
use crate::domain::ids::{ConversationId, INTEGER_MAX, Kind, Seq};
use crate::domain::message::Message;
use crate::domain::message_change::Turn;
use crate::domain::preferences::PreferencesWish;
use crate::domain::refusal::Refusal;
use crate::hooks::webhook::QueuedEvent;
use crate::postgres::erased_words::QueuedWords;
use crate::redis::change_message::{MessageChange, MessageChanged, change_message as commit};
use crate::redis::read_aside::{AsideEntry, read_aside, take_aside};
use crate::redis::read_messages::{MessagesRead, Which, read_messages};
use crate::redis::read_shard::read_shard;
use crate::redis::stored_form::{Audience, Change, StoredEvent, parse_message_json};

/// Messages looked at in one step.
const LOOK_ROWS: u64 = 2_000;
/// Messages changed before their way to the archive is waited for: so few of them stand in a shard's line at a time.
const PART: usize = 100;
/// How long that is waited for.
const PASS_WITHIN: Duration = Duration::from_secs(5);
/// Entries that stand aside, looked at in one step.
const ASIDE_PAGE: u64 = 100;
/// Messages of a conversation of which readers are told one by one; of older ones they learn when they read again.
pub const TOLD_MAX: u64 = 200;

/// What readers are told of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tell {
    /// What happened.
    Event,
    /// Nothing for now.
    Nothing,
    /// To read everything again.
    Resync,
}

/// How far a conversation has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Messages from here up are done.
    pub below: Seq,
    /// Messages of which readers were told one by one.
    pub told: u64,
    /// One of the others.
    pub untold: Option<Seq>,
    /// Messages that were blanked by this step.
    pub blanked: u64,
}

/// Takes the user out of a conversation by its own rules: out of groups they go, handing over or dissolving; out of the service's
/// conversations the service removes them; of a pair nobody can leave. Nothing happens where they do not belong.
///
/// # Errors
/// [`Refusal::Unavailable`] when a store is away.
pub async fn leave(stores: &Stores, erasure: &Erasure, id: &ConversationId) -> Result<(), Refusal> {
    let actor = match id.kind() {
        Kind::Single => return Ok(()),
        Kind::Group => Actor { user: &erasure.user, service: false },
        Kind::System => Actor { user: &erasure.asked_by, service: true },
    };
    match change_conversation(stores, actor, id, &Command::Remove(erasure.user.clone())).await {
        Ok(_) | Err(Refusal::NotFound | Refusal::Dissolved) => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

/// Erases a part of what stands below `from`, the newest first; `None` when nothing is left below it.
///
/// # Errors
/// [`Refusal::Unavailable`] when a store is away or the archive is behind; then the same part is done again.
pub async fn erase_part(stores: &Stores, erasure: &Erasure, id: &ConversationId, from: &Progress) -> Result<Option<Progress>, Refusal> {
    let mut done = Progress { blanked: 0, ..from.clone() };
    // The live state first: there also stands what the archive could not take.
    let is_first = from.below >= INTEGER_MAX;
    let mut seqs = if is_first { hot_seqs(stores, erasure, id).await? } else { Vec::new() };
    let looked = stores.archive.look_for_user(id, &erasure.user, from.below, LOOK_ROWS).await?;
    let lowest = looked.lowest.or(seqs.iter().min().copied());
    done.below = if looked.found.len() > PART { looked.found[PART - 1] } else { lowest.unwrap_or(0) };
    seqs.extend(looked.found.into_iter().take(PART));
    seqs.sort_unstable_by(|a, b| b.cmp(a));
    seqs.dedup();
    for seq in &seqs {
        let tell = if done.told < TOLD_MAX { Tell::Event } else { Tell::Nothing };
        let Some(turn) = erase_one(stores, erasure, id, *seq, tell).await? else { continue };
        done.blanked += u64::from(turn == Turn::Deleted);
        match tell {
            Tell::Event => done.told += 1,
            _ => done.untold = Some(*seq),
        }
    }
    if !seqs.is_empty() {
        if !pass(stores, &[stores.keys.shard_of(id)], PASS_WITHIN).await? {
            return Err(Refusal::Unavailable("the archive is behind"));
        }
        forget_beside(stores, erasure, id, &seqs).await?;
    }
    if is_first && stands_aside(stores, erasure, id).await? {
        // It may yet be given a number above everything that is looked through, so this begins anew until it has its place.
        return Err(Refusal::Unavailable("a message of the user waits for its place in the archive"));
    }
    Ok(lowest.is_some().then_some(done))
}

/// Ends a conversation that was gone through: readers are told once of what they were not told one by one, and of a pair the user's own
/// settings and blocks go. Who comes back sees nothing of before.
///
/// # Errors
/// [`Refusal::Unavailable`] when a store is away.
pub async fn end(stores: &Stores, erasure: &Erasure, id: &ConversationId, untold: Option<Seq>) -> Result<(), Refusal> {
    if let Some(seq) = untold {
        erase_one(stores, erasure, id, seq, Tell::Resync).await?;
    }
    if id.kind() != Kind::Single {
        return Ok(());
    }
    if let Some((conversation, _)) = stores.archive.membership(id, &erasure.user).await?
        && let Some(peer) = conversation.peer_of(&erasure.user)
    {
        unblock_user(stores, &erasure.user, peer).await?;
    }
    let no = Some(false);
    let wish = PreferencesWish { muted: no, pinned: no, hidden: Some(true), marked_unread: no, cleared_to: Some(INTEGER_MAX) };
    match set_preferences(stores, &erasure.user, id, &wish).await {
        Ok(()) | Err(Refusal::NotFound) => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

/// What the user wrote or reacted to among the recent messages.
async fn hot_seqs(stores: &Stores, erasure: &Erasure, id: &ConversationId) -> Result<Vec<Seq>, Refusal> {
    let (mut seqs, mut from) = (Vec::new(), INTEGER_MAX);
    loop {
        let hot = match read_messages(&stores.link, &stores.keys, id, None, &Which::Down(from), 200).await? {
            MessagesRead::Here(hot) => hot,
            // What is not in Redis is in the archive.
            MessagesRead::Cold => return Ok(seqs),
            MessagesRead::StaleEpoch => return Err(Refusal::Unavailable("the live store is changing")),
        };
        let touched = |message: &&Message| erase(message, &erasure.user, &erasure.asked_by, 0).is_some();
        seqs.extend(hot.messages.iter().filter(touched).map(|message| message.seq));
        match hot.messages.iter().map(|message| message.seq).min() {
            Some(lowest) if lowest > 1 => from = lowest - 1,
            _ => return Ok(seqs),
        }
    }
}

/// Whether a message of the user's stands aside there, because Postgres refused it or another one has its number. What was refused and is in
/// the archive by now, blanked, has nothing left to say and goes.
async fn stands_aside(stores: &Stores, erasure: &Erasure, id: &ConversationId) -> Result<bool, Refusal> {
    let shard = stores.keys.shard_of(id);
    if read_shard(&stores.link, shard).await?.aside == 0 {
        return Ok(false);
    }
    let (mut stands, mut from) = (false, "0".to_owned());
    loop {
        let Some(page) = read_aside(&stores.link, shard, &from, ASIDE_PAGE).await? else {
            return Err(Refusal::Unavailable("the live store is changing"));
        };
        for kept in &page.entries {
            let Some(message) = message_in(kept, id).filter(|message| message.sender == erasure.user) else { continue };
            let archived = stores.archive.messages_at(id, &[message.seq]).await?.pop();
            if archived.is_some_and(|archived| archived.id == message.id && archived.rev > message.rev && archived.deleted_at.is_some()) {
                take_aside(&stores.link, shard, kept.entry.id).await?;
            } else {
                stands = true;
            }
        }
        if page.next == "0" {
            return Ok(stands);
        }
        from = page.next;
    }
}

/// The message of an entry that stands aside, if it is of this conversation.
fn message_in(kept: &AsideEntry, id: &ConversationId) -> Option<Message> {
    let entry = kept.entry.parse().ok().filter(|entry| entry.conversation == *id)?;
    let (seq, json) = entry.message?;
    parse_message_json(id, seq, entry.rev, &json).ok()
}

/// Erases one message; `None` when there was nothing to do.
async fn erase_one(stores: &Stores, erasure: &Erasure, id: &ConversationId, seq: Seq, tell: Tell) -> Result<Option<Turn>, Refusal> {
    let mut tries = Tries::new(stores);
    loop {
        let obstacle = match read_messages(&stores.link, &stores.keys, id, None, &Which::At(vec![seq]), 1).await {
            Ok(MessagesRead::Here(mut hot)) => {
                let message = match hot.messages.pop() {
                    Some(message) => message,
                    // What has left the window is archived.
                    None => match stores.archive.messages_at(id, &[seq]).await?.pop() {
                        Some(message) => message,
                        None => return Ok(None),
                    },
                };
                let now = stores.clock.now();
                let (turn, changed) = match erase(&message, &erasure.user, &erasure.asked_by, now) {
                    Some((turn, changed)) => (Some(turn), changed),
                    // Written once more as it is: that bears the word to read again.
                    None if tell == Tell::Resync => (None, message.clone()),
                    None => return Ok(None),
                };
                let wanted = MessageChange {
                    member: None,
                    message: &changed,
                    read_at: hot.head.conversation.rev,
                    blocked: hot.head.conversation.blocks.any(),
                    cleared_max: hot.head.cleared_max,
                    unnamed: if turn == Some(Turn::Deleted) { &message.mentions } else { &[] },
                    // Without a version of what it said.
                    change: Change { events: vec![event(turn, tell)], ..Change::default() },
                };
                match commit(&stores.link, &stores.keys, now, stores.settings.outbox_max_entries, &wanted).await {
                    Ok(MessageChanged::Done { .. }) => return Ok(turn),
                    Ok(MessageChanged::NotMember) => return Ok(None),
                    Ok(MessageChanged::Overloaded) => return Err(Refusal::Overloaded),
                    Ok(MessageChanged::Changed) => Obstacle::Changed,
                    Ok(MessageChanged::Cold) => Obstacle::Cold,
                    Ok(MessageChanged::Closed) => Obstacle::Closed,
                    Ok(MessageChanged::StaleEpoch) => Obstacle::StaleEpoch,
                    Err(error) => Obstacle::Redis(error),
                }
            }
            Ok(MessagesRead::Cold) => Obstacle::Cold,
            Ok(MessagesRead::StaleEpoch) => Obstacle::StaleEpoch,
            Err(error) => Obstacle::Redis(error),
        };
        match tries.clear(stores, id, &erasure.user, obstacle, false).await {
            Err(Refusal::NotFound) => return Ok(None),
            cleared => cleared?,
        }
    }
}

/// What stands in the line for readers. An entry without events would be told as a new message.
fn event(turn: Option<Turn>, tell: Tell) -> StoredEvent {
    let kind = match (tell, turn) {
        (Tell::Resync, _) => EventType::Resync,
        (_, Some(Turn::Reacted)) => EventType::ReactionChanged,
        _ => EventType::MessageDeleted,
    };
    let to = if tell == Tell::Nothing { Audience::Only(Vec::new()) } else { Audience::All };
    StoredEvent::new(kind, to, None)
}

/// Forgets what stands beside the words of archived messages, and blanks what waits for the host application.
async fn forget_beside(stores: &Stores, erasure: &Erasure, id: &ConversationId, seqs: &[Seq]) -> Result<(), Refusal> {
    stores.archive.forget_words(id, &erasure.user, seqs).await?;
    let waiting = stores.archive.queued_words(id, seqs).await?;
    if waiting.is_empty() {
        return Ok(());
    }
    let messages = stores.archive.messages_at(id, seqs).await?;
    for (seq, words) in waiting {
        let Some(message) = messages.iter().find(|m| m.seq == seq && m.sender == erasure.user && m.deleted_at.is_some()) else { continue };
        let Some(mut body) = QueuedEvent::read(&words.body) else { continue };
        body.put_message(message);
        stores.archive.put_queued_words(id, &QueuedWords { body: body.into_body(), ..words }).await?;
    }
    Ok(())
}
