//! Events on the wire. A frame is a small head per user (its id) and a tail that is the same for everybody and encoded once.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::message::Message;
use super::openapi_examples::{conversation, message};
use super::timestamp::Timestamp;
use crate::domain::event::{EventType, Pointer};
use crate::domain::quote::ShownMessage;

/// The version of the event envelope.
pub const EVENT_VERSION: u32 = 1;

/// An event as clients see it, in a stream's `data:` and in polls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Opaque position in the user's log; absent for live-only types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What happened, e.g. `message.created`.
    pub r#type: String,
    /// Of this envelope; 1.
    pub version: u32,
    /// When it happened.
    pub occurred_at: Timestamp,
    /// Where.
    pub conversation_id: String,
    /// The conversation's rev of the change.
    pub rev: u64,
    /// The facts, by type.
    #[schema(value_type = Object)]
    pub data: Value,
}

/// The part of an event that is the same for every user: everything after the id, closing brace included.
/// `data_json` is one JSON object.
#[must_use]
pub fn event_tail(pointer: &Pointer, data_json: &str) -> String {
    // Neither an event type nor a conversation id holds a character that JSON would escape.
    format!(
        r#","type":"{}","version":{EVENT_VERSION},"occurred_at":"{}","conversation_id":"{}","rev":{},"data":{data_json}}}"#,
        pointer.kind.as_str(),
        Timestamp(pointer.at),
        pointer.conversation,
        pointer.rev
    )
}

/// A whole event from its id (which holds only `[0-9a-z.-]`) and [`event_tail`].
#[must_use]
pub fn event_json(id: &str, tail: &str) -> String {
    let mut json = String::with_capacity(8 + id.len() + tail.len());
    json.push_str(r#"{"id":""#);
    json.push_str(id);
    json.push('"');
    json.push_str(tail);
    json
}

/// A whole event of a type that bears no id.
#[must_use]
pub fn event_json_without_id(tail: &str) -> String {
    format!("{{{}", tail.strip_prefix(',').unwrap_or(tail))
}

/// The `data` of message events: `{"message":{…}}`.
#[must_use]
pub fn message_data(message: &ShownMessage) -> String {
    // A struct of strings and numbers always serialises.
    serde_json::to_string(&MessageData { message: message.into() }).unwrap_or_default()
}

/// `data` of `message.created`, `message.edited` and `message.deleted`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MessageData {
    /// The message as it is when the event is sent.
    pub message: Message,
}

/// `data` of `member.joined`, `member.left` and `member.removed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemberData {
    /// Whose membership changed.
    pub user_id: String,
    /// Who did it.
    pub by: String,
    /// The seq of the timeline message.
    pub seq: u64,
}

/// `data` of `read.advanced`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReadData {
    /// Who read.
    pub user_id: String,
    /// Up to where.
    pub read_seq: u64,
    /// When.
    pub read_at: Timestamp,
    /// Only in an event without an id, as the others in a large conversation get it: where those stand who moved since the last one, the
    /// one above among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub positions: Vec<ReadPlace>,
}

/// Where one member stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReadPlace {
    /// Who read.
    pub user_id: String,
    /// Up to where.
    pub read_seq: u64,
    /// When.
    pub read_at: Timestamp,
}

/// `data` of `preferences.changed`, which one's own devices get: all of them, changed or not. What ends by itself makes no such event:
/// the next seq of a conversation ends `hidden`, one's own `message.created` or a `read.advanced` that moves ends `marked_unread`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PreferencesData {
    /// No notifications.
    pub muted: bool,
    /// Kept on top.
    pub pinned: bool,
    /// Out of the list.
    pub hidden: bool,
    /// Marked by hand.
    pub marked_unread: bool,
    /// Messages up to this seq are not there any more: a client forgets what it holds of them.
    pub cleared_to: u64,
    /// Only when the other one of a single conversation was blocked or is not blocked any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<bool>,
}

/// An example of an event's `data`; with `null` for types that a stream says about itself and that have none.
#[must_use]
pub fn example_data(kind: EventType) -> Value {
    match kind {
        EventType::ConversationCreated => json!({"conversation":conversation()}),
        EventType::ConversationImported => json!({"imported":1200,"first_seq":8,"last_seq":1207,"head_seq":1207}),
        EventType::ConversationRenamed => json!({"title":"Lunch","by":"ann","seq":8}),
        EventType::ConversationDissolved => json!({"by":"ann","seq":9}),
        EventType::MemberJoined | EventType::MemberLeft | EventType::MemberRemoved => json!({"user_id":"bob","by":"ann","seq":8}),
        EventType::OwnerChanged => json!({"owner":"bob","by":"ann","seq":9}),
        EventType::MessageCreated | EventType::MessageEdited | EventType::MessageDeleted => json!({"message":message()}),
        EventType::MessageResequenced => json!({"old_seq":5,"message":message()}),
        EventType::ReactionChanged => json!({"seq":7,"reactions":[{"emoji":"\u{1F44D}","count":2}]}),
        EventType::ReadAdvanced => json!({"user_id":"bob","read_seq":7,"read_at":"2026-11-30T15:54:01.000Z"}),
        EventType::PreferencesChanged => {
            json!({"muted":true,"pinned":false,"hidden":false,"marked_unread":false,"cleared_to":0})
        }
        EventType::Resync => json!({"reason":"trimmed","head":"4k2f.1764500000000-3","spread_ms":5000}),
        EventType::Hello => {
            json!({"device":"phone","resumed_from":null,"head":"4k2f.1764500000000-3","server_time":"2026-11-30T15:54:00.000Z"})
        }
        EventType::TypingUpdated => json!({"user_id":"bob","typing":true}),
        EventType::Unavailable => json!({"code":"unavailable"}),
        EventType::TokenExpired | EventType::Goodbye => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::ConversationId;

    #[test]
    fn head_and_tail_make_one_event() -> Result<(), Box<dyn std::error::Error>> {
        let pointer = Pointer {
            kind: EventType::ReadAdvanced,
            conversation: ConversationId::of_system("order:1").map_err(|e| e.fault)?,
            rev: 12,
            seq: 7,
            at: 1_764_500_000_007,
            data: None,
        };
        let tail = event_tail(&pointer, r#"{"user_id":"a\"b","read_seq":7,"read_at":"2025-11-30T10:53:20.007Z"}"#);
        let event: Event = serde_json::from_str(&event_json("4k2f.1764500000000-3", &tail))?;
        assert_eq!(event.id.as_deref(), Some("4k2f.1764500000000-3"));
        assert_eq!((event.r#type.as_str(), event.version, event.rev), ("read.advanced", 1, 12));
        assert_eq!(event.conversation_id, "system:order:1");
        assert_eq!(event.data["user_id"], "a\"b");
        let live: Event = serde_json::from_str(&event_json_without_id(&tail))?;
        assert_eq!(live, Event { id: None, ..event });
        Ok(())
    }
}
