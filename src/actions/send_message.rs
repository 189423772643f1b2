//! Sends a message: one intent, one message, however often it is tried and through however many gateways.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout_at;
use uuid::Uuid;

use super::Stores;
use super::ask_hook::{is_asked, may_send};
use super::claim_media::claim_media;
use super::clear_obstacle::{Obstacle, Tries};
use super::limit_rate::{give_back, rate_of, take_from_user};
use super::read_conversation::{archived_facts, told_to_strangers};
use super::read_messages::{Visible, messages_for};
use super::warm_conversation::extend_lease;
use crate::domain::event::EventType;
use crate::domain::ids::{ClientKey, ConversationId, Kind, Millis, UserId};
use crate::domain::membership::Reader;
use crate::domain::message::{Draft, Message, MessageKind};
use crate::domain::message_change::BLOCKED;
use crate::domain::permission::{Act, Standing, may};
use crate::domain::rate_limit::{LimitState, Limited, Rate};
use crate::domain::refusal::{FieldError, Refusal};
use crate::postgres::ClaimFor;
use crate::redis::conversation_head::pair_json;
use crate::redis::keys;
use crate::redis::send_message::{Pair, Send, Sent};
use crate::redis::stored_form::{Audience, Change, StoredConversation, StoredEvent, StoredMember, StoredMessage};
use crate::redis::touch_index::touch_index;

/// First and longest pause between two looks at the archive while a send waits for its commit, in ms.
const ARCHIVE_LOOK_MS: (u64, u64) = (5, 100);

/// Pause after which a message that is awaited is looked for above its number too, in ms: most need no such look.
const MOVED_LOOK_MS: u64 = 20;

/// How far a message must get, or got, before the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ack {
    /// In Redis.
    Accepted,
    /// On every connected replica of that Redis, at least one.
    Replicated,
    /// Committed in Postgres.
    Archived,
}

/// What a client wants sent.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// Who sends.
    pub sender: UserId,
    /// Whether the host application's server sends, under its own name or another one.
    pub service: bool,
    /// Where to.
    pub conversation: ConversationId,
    /// The other one of a single conversation that may have to be made.
    pub peer: Option<UserId>,
    /// The idempotency key.
    pub client_id: ClientKey,
    /// The content, or why it cannot be sent: that is told only to members, and only if the key is new.
    pub content: Result<Draft, Refusal>,
    /// How far it must get.
    pub ack: Ack,
}

/// A message that stands.
#[derive(Clone, Debug, PartialEq)]
pub struct SendOutcome {
    /// As it is now.
    pub message: Message,
    /// Whether an earlier try of the same intent had already stored it.
    pub replayed: bool,
    /// How far it got.
    pub reached: Ack,
    /// Where the sender and the conversation stand with their limits; empty when a replay cost nothing.
    pub limits: Vec<LimitState>,
}

/// Sends a message. What is no new message costs no token of the sender's limit.
///
/// # Errors
/// In the contract's order: a known key with other content, no member, invalid content, no right, too fast, store away.
pub async fn send_message(stores: &Arc<Stores>, request: SendRequest) -> Result<SendOutcome, Refusal> {
    let sender = request.sender.clone();
    // Asked first and told last: a known key is answered whatever the limit says, and so is what cannot be sent at all.
    let taken = if request.service || refusal_of(&request).is_some() {
        Ok(None)
    } else {
        take_from_user(stores, &sender, Limited::UserSends).await
    };
    let (taken, limited) = match taken {
        Ok(taken) => (taken, None),
        Err(limited) => (None, Some(limited)),
    };
    let outcome = send(stores, request, limited).await;
    match outcome {
        Ok(outcome) if outcome.replayed => {
            give_back(stores, &sender, taken).await;
            Ok(outcome)
        }
        Ok(mut outcome) => {
            outcome.limits.splice(0..0, taken);
            Ok(outcome)
        }
        Err(refusal) => {
            // Somebody who sends what is refused time after time is slowed down like everybody else.
            if matches!(refusal, Refusal::RateLimited(_) | Refusal::Unavailable(_) | Refusal::Overloaded) {
                give_back(stores, &sender, taken).await;
            }
            Err(refusal)
        }
    }
}

/// Sends a message, unless the sender is `limited`: then it says what stands under the key already, if anything does.
async fn send(stores: &Arc<Stores>, request: SendRequest, limited: Option<Refusal>) -> Result<SendOutcome, Refusal> {
    let mut tries = Tries::new(stores);
    let until = tries.until();
    let now = stores.clock.now();
    let mut fresh = fresh_message(&request, now);
    let mut refused = refusal_of(&request);
    // What has to be looked up or asked before the message may stand comes between two steps: the first finds out that nothing else stands
    // against the message, and writes nothing.
    let links = request.content.as_ref().is_ok_and(|draft| draft.reply_to.is_some() || !draft.media.is_empty());
    let mut unchecked = refused.is_none() && (links || (limited.is_none() && is_asked(stores, request.service)));
    refused = refused.or(limited);
    let mut send = Send {
        conversation: request.conversation.clone(),
        sender: request.sender.clone(),
        client_id: request.client_id.clone(),
        fingerprint: fresh.fingerprint.clone().unwrap_or_default(),
        archive_asked: false,
        message_json: StoredMessage::of(&fresh).to_json(),
        pair: request.peer.as_ref().map(|peer| pair(&request.sender, peer, now)).transpose()?,
        open: is_open(&request),
        refuse: refused.is_some() || unchecked,
        mentions: request.content.as_ref().map(|draft| draft.mentions.clone()).unwrap_or_default(),
    };
    let (id, user) = (&request.conversation, &request.sender);
    loop {
        let obstacle = match stores.lanes.send(send.clone()).await {
            Ok(Sent::Sent { seq, rev, left, replid, made, tokens }) => {
                if made {
                    list_for_maker(stores, user, id, now).await;
                }
                if left < stores.settings.lease_block / 2 {
                    fetch_numbers(stores, id);
                }
                let message = Message { seq, rev, ..fresh };
                let (message, reached) = wait_for(stores, message, request.ack, until, Some(&replid)).await;
                let limits =
                    conversation_limit(stores).map(|rate| rate.with_left(Limited::ConversationSends, tokens)).into_iter().collect();
                return Ok(SendOutcome { message, replayed: false, reached, limits });
            }
            Ok(Sent::Replayed { seq, message }) => {
                let message = match message {
                    Some(message) => *message,
                    // What has left the window is archived.
                    None => {
                        stores.archive.messages_at(id, &[seq]).await?.pop().ok_or(Refusal::Unavailable("the message is being moved"))?
                    }
                };
                // An earlier try of this very request whose answer was lost is no replay for the client.
                let replayed = message.id != fresh.id;
                let (message, reached) = wait_for(stores, message, request.ack, until, None).await;
                return Ok(SendOutcome { message, replayed, reached, limits: Vec::new() });
            }
            Ok(Sent::Conflict) => return Err(Refusal::IdempotencyConflict),
            Ok(Sent::NotMember | Sent::Unmade) => return Err(Refusal::NotFound),
            Ok(Sent::Dissolved) => return Err(Refusal::Dissolved),
            Ok(Sent::StrangerNamed) => return Err(FieldError::new("mentions", "must name members of the conversation").into()),
            Ok(Sent::Blocked) => return Err(Refusal::Forbidden(BLOCKED)),
            Ok(Sent::Refused { blocked }) => {
                if !std::mem::take(&mut unchecked) {
                    let why = refused.take().unwrap_or(Refusal::Unavailable("the message cannot be sent"));
                    // What may not be sent comes before how fast, and after what cannot be sent at all.
                    return Err(if blocked && matches!(why, Refusal::RateLimited(_)) { Refusal::Forbidden(BLOCKED) } else { why });
                }
                check_links(stores, &request).await?;
                if let Some(draft) = request.content.as_ref().ok().filter(|draft| !draft.media.is_empty()) {
                    // Who is held back or blocked keeps nothing from being swept.
                    let claim = ClaimFor { conversation: id.clone(), message: fresh.id, seq: None };
                    fresh.media = claim_media(stores, user, &draft.media, (refused.is_none() && !blocked).then_some(claim)).await?;
                    send.message_json = StoredMessage::of(&fresh).to_json();
                }
                if blocked {
                    return Err(Refusal::Forbidden(BLOCKED));
                }
                if let Some(limited) = refused.take() {
                    return Err(limited);
                }
                if let Ok(draft) = &request.content
                    && is_asked(stores, request.service)
                {
                    may_send(stores, user, id, draft, until).await?;
                }
                send.refuse = false;
                continue;
            }
            Ok(Sent::Overloaded) => return Err(Refusal::Overloaded),
            Ok(Sent::Limited { wait_ms }) => {
                let state = conversation_limit(stores).map(|rate| rate.empty(Limited::ConversationSends, wait_ms));
                return Err(state.map_or(Refusal::Unavailable("the conversation is busy"), Refusal::RateLimited));
            }
            Ok(Sent::AskArchive) => {
                if let Some(outcome) = known_to_archive(stores, &request).await? {
                    return outcome;
                }
                send.archive_asked = true;
                continue;
            }
            Ok(Sent::Cold) => {
                if let Some(outcome) = known_to_archive(stores, &request).await? {
                    return outcome;
                }
                // A stranger must not be able to load conversations.
                if send.pair.is_none() && archived_facts(stores, reader_of(&request), id).await?.is_none() {
                    return told_to_strangers(stores, reader_of(&request), id, Err(Refusal::NotFound)).await;
                }
                // Nor somebody who is held back: the archive has said that the key is new.
                if !unchecked && let Some(limited @ Refusal::RateLimited(_)) = refused {
                    return Err(limited);
                }
                Obstacle::Cold
            }
            Ok(Sent::Closed) => Obstacle::Closed,
            Ok(Sent::LeaseUsedUp) => Obstacle::LeaseUsedUp,
            Ok(Sent::StaleEpoch) => Obstacle::StaleEpoch,
            Err(error) => Obstacle::Redis(error),
        };
        let make = send.pair.is_some() && refused.is_none();
        tries.clear(stores, id, user, obstacle, make).await?;
    }
}

fn conversation_limit(stores: &Stores) -> Option<Rate> {
    rate_of(stores, Limited::ConversationSends)
}

/// The message as it will be stored, without its place.
fn fresh_message(request: &SendRequest, now: Millis) -> Message {
    let draft = request.content.as_ref().ok();
    Message {
        client_id: Some(request.client_id.clone()),
        body: draft.map(|d| d.body.clone()).unwrap_or_default(),
        reply_to: draft.and_then(|d| d.reply_to),
        share: draft.and_then(|d| d.share.clone()),
        mentions: draft.map(|d| d.mentions.clone()).unwrap_or_default(),
        client_sent_at: draft.and_then(|d| d.client_sent_at),
        fingerprint: draft.map(Draft::fingerprint),
        ..Message::unplaced(
            Uuid::now_v7(),
            request.conversation.clone(),
            request.sender.clone(),
            draft.map_or(MessageKind::Text, |d| d.kind),
            now,
        )
    }
}

/// What a member is told whose key is new.
fn refusal_of(request: &SendRequest) -> Option<Refusal> {
    match &request.content {
        Err(refusal @ Refusal::Invalid(_)) => Some(refusal.clone()),
        _ if request.conversation.kind() == Kind::System && !request.service => Some(Refusal::ReadOnly),
        content => content.as_ref().err().cloned(),
    }
}

/// Whether the sender needs no membership: the host application's server, in its own conversations.
fn is_open(request: &SendRequest) -> bool {
    request.service && may(Act::Send, request.conversation.kind(), Standing::Service)
}

fn reader_of(request: &SendRequest) -> Reader<'_> {
    Reader::caller(&request.sender, request.service)
}

/// Proves what a message points to.
async fn check_links(stores: &Stores, request: &SendRequest) -> Result<(), Refusal> {
    let Some(seq) = request.content.as_ref().ok().and_then(|draft| draft.reply_to) else { return Ok(()) };
    let answered = match messages_for(stores, reader_of(request), &request.conversation, &[seq]).await? {
        Visible::Messages(found) => found.into_iter().next(),
        Visible::NotMember => return Err(Refusal::NotFound),
    };
    match answered {
        Some(message) if message.deleted_at.is_none() && message.kind != MessageKind::System => Ok(()),
        _ => Err(FieldError::new("reply_to", "must be the seq of a message that can be answered: not deleted, not of the timeline").into()),
    }
}

/// What is stored when this send is the first of its pair.
fn pair(sender: &UserId, peer: &UserId, now: Millis) -> Result<Pair, Refusal> {
    if sender == peer {
        return Err(FieldError::new("peer", "must be another user than oneself").into());
    }
    let (low, high) = if sender.as_str().as_bytes() < peer.as_str().as_bytes() { (sender, peer) } else { (peer, sender) };
    let founder = |user: &UserId| StoredMember { u: user.to_string(), role: "member".into(), at: now, seq: 0, rev: 0, left: None };
    let change = Change {
        events: vec![
            StoredEvent::new(EventType::ConversationCreated, Audience::All, None),
            StoredEvent::new(EventType::MessageCreated, Audience::All, None),
        ],
        conversation: Some(StoredConversation {
            title: None,
            owner: None,
            pair: Some((low.to_string(), high.to_string())),
            history: "all".into(),
            at: now,
            dissolved: false,
        }),
        members: vec![founder(low), founder(high)],
        ..Change::default()
    };
    Ok(Pair {
        low: low.clone(),
        high: high.clone(),
        json: pair_json(low, high),
        // A tree of strings and numbers always serialises.
        change_json: serde_json::to_string(&change).unwrap_or_default(),
    })
}

/// Whether Postgres knows the key, and what that means for this request.
async fn known_to_archive(stores: &Stores, request: &SendRequest) -> Result<Option<Result<SendOutcome, Refusal>>, Refusal> {
    let Some(message) = stores.archive.find_by_key(&request.conversation, &request.sender, &request.client_id).await? else {
        return Ok(None);
    };
    let same = request.content.as_ref().is_ok_and(|draft| Some(draft.fingerprint()) == message.fingerprint);
    Ok(Some(if same {
        Ok(SendOutcome { message, replayed: true, reached: Ack::Archived, limits: Vec::new() })
    } else {
        Err(Refusal::IdempotencyConflict)
    }))
}

/// The maker's list holds the conversation before the answer. If it cannot be written the message stands all the same, and dispatch writes it.
async fn list_for_maker(stores: &Stores, user: &UserId, id: &ConversationId, now: Millis) {
    if let Err(error) = touch_index(&stores.link, &stores.keys, user, &[(id.clone(), now)], false).await {
        tracing::warn!(error = %error, "a new conversation is not in its maker's list yet");
    }
}

/// Fetches the next numbers while there are still some, so that no send ever waits for Postgres.
fn fetch_numbers(stores: &Arc<Stores>, id: &ConversationId) {
    if !stores.lanes.begin_fetch(id) {
        return;
    }
    let (stores, id) = (Arc::clone(stores), id.clone());
    tokio::spawn(async move {
        if let Err(error) = extend_lease(&stores, &id).await {
            tracing::warn!(error = %error, "numbers could not be fetched ahead; tried again with the next send");
        }
        stores.lanes.end_fetch(&id);
    });
}

/// Looks whether the archive has this very message: `Some(None)` under its number, `Some(Some(…))` as it is under another one.
async fn archived_as(stores: &Stores, message: &Message, may_have_moved: bool) -> Option<Option<Message>> {
    let archive = &stores.archive;
    if archive.is_archived(&message.conversation, message.seq, message.id).await.unwrap_or(false) {
        return Some(None);
    }
    if !may_have_moved {
        return None;
    }
    let seq = archive.seq_of(&message.conversation, message.id, message.seq).await.ok()??;
    archive.messages_at(&message.conversation, &[seq]).await.ok()?.pop().map(Some)
}

/// Waits until the message has got as far as asked, or the deadline comes; the level that was reached is never an error. One that was
/// numbered anew on its way to the archive comes back with its final number.
async fn wait_for(stores: &Stores, message: Message, asked: Ack, until: Instant, replid: Option<&str>) -> (Message, Ack) {
    match asked {
        Ack::Accepted => (message, Ack::Accepted),
        Ack::Replicated => {
            let key = keys::shard_info(stores.keys.shard_of(&message.conversation));
            let left_ms = u64::try_from(until.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(0);
            // Bounded here too: it may have to wait for the rounds of others first.
            match timeout_at(until.into(), stores.link.wait_replicas(&key, left_ms)).await {
                Ok(Ok(r)) if r.connected > 0 && r.confirmed >= r.connected && replid.is_none_or(|id| id == r.replid) => {
                    (message, Ack::Replicated)
                }
                _ => (message, Ack::Accepted),
            }
        }
        Ack::Archived => {
            let mut pause_ms = ARCHIVE_LOOK_MS.0;
            loop {
                // A look that Postgres lets wait says no more than that it was not reached in time.
                let looked = timeout_at(until.into(), archived_as(stores, &message, pause_ms > MOVED_LOOK_MS)).await;
                if let Ok(Some(archived)) = looked {
                    return (archived.unwrap_or(message), Ack::Archived);
                }
                if Instant::now() + Duration::from_millis(pause_ms) >= until {
                    return (message, Ack::Accepted);
                }
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                pause_ms = (pause_ms * 2).min(ARCHIVE_LOOK_MS.1);
            }
        }
    }
}
