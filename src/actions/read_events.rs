//! Turns pointers of a user's log into what they point to, as it is now: what was edited shows as edited, what was deleted as deleted,
//! and what the user may no longer see is passed over.

use std::collections::{BTreeMap, HashMap};

use super::Stores;
use super::name_conversations::name_conversation;
use super::read_conversation::view;
use super::read_messages::{Visible, messages_for};
use super::show_messages::{quote_in, quotes};
use super::show_shares::show_shares;
use crate::domain::conversation::ConversationView;
use crate::domain::event::{EventType, Pointer};
use crate::domain::ids::{ConversationId, Rev, Seq, UserId};
use crate::domain::message::Message;
use crate::domain::position::EntryId;
use crate::domain::quote::ShownMessage;
use crate::domain::refusal::Refusal;
use crate::redis::event_log::LogEntry;

/// An entry of the log with what belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadEvent {
    /// Its place.
    pub id: EntryId,
    /// The pointer.
    pub pointer: Pointer,
    /// What it points to.
    pub body: Body,
}

/// What a pointer points to.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Nothing that the user may see (any more); the place moves on.
    Passed,
    /// A message as it is now.
    Message(Box<ShownMessage>),
    /// The reactions of a message as it is now.
    Reactions(Box<Message>),
    /// A conversation as the user sees it now.
    Conversation(Box<ConversationView>),
    /// The pointer's own facts, one JSON object.
    Facts(String),
    /// Everything has to be read again.
    Resync,
}

/// What has to be known about one conversation to show its events.
enum Seen {
    NotMember,
    Member(HashMap<Seq, ShownMessage>),
}

/// Reads what these entries point to. Unreadable entries are left out.
///
/// # Errors
/// [`Refusal::Unavailable`] when a store that is needed is away: then nothing may be passed over.
pub async fn read_events(stores: &Stores, user: &UserId, entries: Vec<LogEntry>) -> Result<Vec<ReadEvent>, Refusal> {
    let mut wanted: BTreeMap<ConversationId, Vec<Seq>> = BTreeMap::new();
    let pointers: Vec<(EntryId, Pointer)> =
        entries.into_iter().filter_map(|entry| entry.pointer.map(|pointer| (entry.id, pointer))).collect();
    for (_, pointer) in pointers.iter().filter(|(_, pointer)| !needs_no_look(user, pointer)) {
        let seqs = wanted.entry(pointer.conversation.clone()).or_default();
        if looks_at_message(pointer) && !seqs.contains(&pointer.seq) {
            seqs.push(pointer.seq);
        }
    }
    let mut seen: HashMap<ConversationId, Seen> = HashMap::with_capacity(wanted.len());
    for (conversation, seqs) in wanted {
        let what = see(stores, user, &conversation, &seqs).await?;
        seen.insert(conversation, what);
    }
    let moved: Vec<(ConversationId, Seq, Rev)> =
        pointers.iter().filter_map(|(_, pointer)| Some((pointer.conversation.clone(), pointer.moved_from()?, pointer.rev))).collect();
    // What was said on a number that the message has left since would show the one that came in its place, which follows anyway.
    let is_moved = |p: &Pointer| {
        p.moved_from().is_none()
            && moved.iter().any(|(conversation, old, rev)| *conversation == p.conversation && *old == p.seq && *rev > p.rev)
    };
    let mut events = Vec::with_capacity(pointers.len());
    for (id, pointer) in pointers {
        let body =
            if looks_at_message(&pointer) && is_moved(&pointer) { Body::Passed } else { body_of(stores, user, &pointer, &seen).await? };
        events.push(ReadEvent { id, pointer, body });
    }
    Ok(events)
}

async fn see(stores: &Stores, user: &UserId, conversation: &ConversationId, seqs: &[Seq]) -> Result<Seen, Refusal> {
    // Membership is asked of a message that cannot be when there is none to read.
    let asked: &[Seq] = if seqs.is_empty() { &[0] } else { seqs };
    Ok(match messages_for(stores, user, conversation, asked).await {
        Ok(Visible::Messages(messages)) => {
            let quotes = quotes(stores, user, conversation, &messages).await?;
            let mut shown: HashMap<Seq, ShownMessage> = messages
                .into_iter()
                .map(|message| (message.seq, ShownMessage { quote: quote_in(&quotes, &message), ..ShownMessage::plain(message) }))
                .collect();
            show_shares(stores, shown.values_mut()).await;
            Seen::Member(shown)
        }
        Ok(Visible::NotMember) | Err(Refusal::NotFound | Refusal::Dissolved) => Seen::NotMember,
        Err(refusal) => return Err(refusal),
    })
}

async fn body_of(stores: &Stores, user: &UserId, pointer: &Pointer, seen: &HashMap<ConversationId, Seen>) -> Result<Body, Refusal> {
    let facts = || Body::Facts(pointer.data.clone().unwrap_or_else(|| "{}".to_owned()));
    if pointer.kind == EventType::Resync {
        return Ok(Body::Resync);
    }
    if needs_no_look(user, pointer) {
        return Ok(facts());
    }
    let Some(Seen::Member(messages)) = seen.get(&pointer.conversation) else { return Ok(Body::Passed) };
    if pointer.kind == EventType::ReactionChanged {
        return Ok(match messages.get(&pointer.seq) {
            Some(_) if pointer.data.is_some() => facts(),
            Some(shown) => Body::Reactions(Box::new(shown.message.clone())),
            None => Body::Passed,
        });
    }
    if looks_at_message(pointer) {
        // None on this seq: a void, or before one's joining.
        return Ok(messages.get(&pointer.seq).map_or(Body::Passed, |message| Body::Message(Box::new(message.clone()))));
    }
    if pointer.kind == EventType::ConversationCreated {
        return Ok(match view(stores, user, &pointer.conversation).await {
            Ok(view) => Body::Conversation(Box::new(name_conversation(stores, view).await)),
            Err(Refusal::NotFound | Refusal::Dissolved) => Body::Passed,
            Err(refusal) => return Err(refusal),
        });
    }
    Ok(facts())
}

fn looks_at_message(pointer: &Pointer) -> bool {
    matches!(
        pointer.kind,
        EventType::MessageCreated
            | EventType::MessageEdited
            | EventType::MessageDeleted
            | EventType::MessageResequenced
            | EventType::ReactionChanged
    )
}

/// Whether an event is shown whatever has become of the membership: one's own leaving, which is the last that one sees; a resync; and
/// what one's own devices tell each other is shown to members only.
fn needs_no_look(user: &UserId, pointer: &Pointer) -> bool {
    pointer.kind == EventType::Resync || pointer.ends_membership_of(user)
}
