//! The words of a stream: every byte that is written to one is made here.
//!
//! A frame's values are ids of `[0-9a-z.-]`, names of event types, and compact JSON; none of them holds a line break, and `one_line` makes
//! sure of it, because a line break in a value would begin a field of its own.

use std::borrow::Cow;
use std::fmt::Write as _;

use bytes::Bytes;
use rand::Rng as _;

use crate::actions::read_events::{Body, ReadEvent};
use crate::contract::conversation::Conversation;
use crate::contract::event::{event_json, event_json_without_id, event_tail, message_data};
use crate::contract::problem::Code;
use crate::contract::stream::{Hello, Resync, StreamUnavailable};
use crate::domain::event::{EventType, Pointer};
use crate::domain::position::Position;

/// Milliseconds between which a client is told to wait before it connects again, so that thousands do not come back in one moment.
const RETRY_MS: std::ops::RangeInclusive<u64> = 1_000..=5_000;

/// A heartbeat.
pub const HEARTBEAT: &[u8] = b":\n\n";
/// Said while Redis is away.
pub const REDIS_AWAY: &[u8] = b": redis is away, the stream goes on when it is back\n\n";
/// Said while what comes next cannot be read.
pub const STORE_AWAY: &[u8] = b": waiting for a store, the stream goes on when it is back\n\n";

/// JSON without line breaks. Outside of strings they are white space, and inside of strings JSON has none.
fn one_line(json: &str) -> Cow<'_, str> {
    if json.contains(['\n', '\r']) { Cow::Owned(json.replace(['\n', '\r'], " ")) } else { Cow::Borrowed(json) }
}

fn retry_line() -> String {
    format!("retry: {}\n", rand::rng().random_range(RETRY_MS))
}

fn json_of(value: &impl serde::Serialize) -> String {
    // Structs of strings and numbers always serialise.
    serde_json::to_string(value).unwrap_or_default()
}

/// In one allocation of just this size: what is formatted piece by piece keeps up to twice of it for as long as it waits for its reader.
fn exactly(pieces: &[&str]) -> Bytes {
    Bytes::from(pieces.concat())
}

fn plain(kind: EventType, data: &str) -> String {
    format!("event: {}\ndata: {data}\n\n", kind.as_str())
}

/// What opens a stream: the jittered `retry:` and the place it starts from; before a `resync`, the one that was asked for.
#[must_use]
pub fn priming(place: &Position) -> Bytes {
    Bytes::from(format!("{}id: {place}\n\n", retry_line()))
}

/// The first event.
#[must_use]
pub fn hello(hello: &Hello) -> Bytes {
    Bytes::from(plain(EventType::Hello, &json_of(hello)))
}

/// Tells the client to read everything again, and moves its position to the head.
#[must_use]
pub fn resync(resync: &Resync) -> Bytes {
    Bytes::from(format!("id: {}\n{}", resync.head, plain(EventType::Resync, &json_of(resync))))
}

/// The place up to which a connection was served.
#[must_use]
pub fn place(place: &Position) -> Bytes {
    Bytes::from(format!("id: {place}\n\n"))
}

/// The last words of a stream that was told to end.
#[must_use]
pub fn farewell(kind: EventType) -> Bytes {
    Bytes::from(format!("{}{}", retry_line(), plain(kind, "{}")))
}

/// The whole body of a stream that cannot be had for the moment: a status other than 200 would end a browser's reconnecting for good.
#[must_use]
pub fn unavailable(code: Code) -> Bytes {
    Bytes::from(format!("{}{}", retry_line(), plain(EventType::Unavailable, &json_of(&StreamUnavailable { code }))))
}

/// The part of an event's frame that differs from user to user; [`event_end`] follows.
#[must_use]
pub fn event_begin(kind: EventType, id: &Position) -> Bytes {
    let mut head = String::with_capacity(128);
    let _ = write!(head, "id: {id}\nevent: {}\ndata: {{\"id\":\"{id}\"", kind.as_str());
    Bytes::from(head)
}

/// The part of an event's frame that is the same for everybody, from its tail.
#[must_use]
pub fn event_end(tail: &str) -> Bytes {
    exactly(&[&one_line(tail), "\n\n"])
}

/// A whole event's frame.
#[must_use]
pub fn event(kind: EventType, id: &Position, tail: &str) -> Bytes {
    let id = id.to_string();
    exactly(&["id: ", &id, "\nevent: ", kind.as_str(), "\ndata: ", &one_line(&event_json(&id, tail)), "\n\n"])
}

/// A whole event's frame of what leaves no log entry: without an id in either place, so that nobody's position moves by it.
#[must_use]
pub fn live_event(event: &Pointer) -> Bytes {
    let json = event_json_without_id(&event_tail(event, event.data.as_deref().unwrap_or("{}")));
    Bytes::from(plain(event.kind, &one_line(&json)))
}

/// The tail of an event that was read from the log; `None` when there is nothing to show.
#[must_use]
pub fn tail_of(event: &ReadEvent) -> Option<String> {
    let data = match &event.body {
        Body::Passed | Body::Resync => return None,
        Body::Facts(facts) => facts.clone(),
        Body::Message(message) => match event.pointer.data.as_deref() {
            Some(facts) => join(facts, "message", &json_of(&crate::contract::message::Message::from(message.as_ref()))),
            None => message_data(message),
        },
        Body::Reactions(message) => {
            let reactions = crate::contract::message::reactions(message, None);
            join(&format!("{{\"seq\":{}}}", message.seq), "reactions", &json_of(&reactions))
        }
        Body::Conversation(view) => {
            join(event.pointer.data.as_deref().unwrap_or("{}"), "conversation", &json_of(&Conversation::from(view.as_ref())))
        }
    };
    Some(event_tail(&event.pointer, &data))
}

/// The tail of an event whose facts came with the wake-up.
#[must_use]
pub fn tail_of_facts(pointer: &Pointer, facts: &str) -> String {
    event_tail(pointer, facts)
}

/// Adds a field to a JSON object.
fn join(object: &str, field: &str, value: &str) -> String {
    match object.trim_end().strip_suffix('}').map(str::trim_end) {
        Some("{") | None => format!("{{\"{field}\":{value}}}"),
        Some(open) => format!("{open},\"{field}\":{value}}}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::ConversationId;

    #[test]
    fn head_and_tail_are_one_frame() {
        let pointer = Pointer {
            kind: EventType::ReadAdvanced,
            conversation: ConversationId::parse("system:x").unwrap(),
            rev: 1,
            seq: 2,
            at: 0,
            data: None,
        };
        let id = Position::parse("abc.12-3").unwrap();
        let tail = event_tail(&pointer, "{\n\"a\": 1}");
        let split = [event_begin(pointer.kind, &id), event_end(&tail)].concat();
        assert_eq!(split, event(pointer.kind, &id, &tail));
        let text = String::from_utf8(split).unwrap();
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.starts_with("id: abc.12-3\nevent: read.advanced\ndata: {\"id\":\"abc.12-3\",\"type\":\"read.advanced\""), "{text}");
        assert!(text.ends_with("}\n\n"));
    }

    #[test]
    fn what_waits_is_no_larger_than_it_is_long() {
        let id = Position::parse("abc.12-3").unwrap();
        let tail = format!(",\"data\":{{\"body\":\"{}\"}}}}", "a".repeat(12_000));
        for frame in [event(EventType::MessageCreated, &id, &tail), event_end(&tail)] {
            let length = frame.len();
            assert_eq!(frame.try_into_mut().unwrap().capacity(), length);
        }
    }

    #[test]
    fn what_leaves_no_entry_has_no_id() {
        let event = Pointer {
            kind: EventType::TypingUpdated,
            conversation: ConversationId::parse("system:x").unwrap(),
            rev: 4,
            seq: 0,
            at: 0,
            data: Some("{\n\"typing\":true}".to_owned()),
        };
        let text = String::from_utf8(live_event(&event).to_vec()).unwrap();
        assert!(text.starts_with("event: typing.updated\ndata: {\"type\":\"typing.updated\",\"version\":1,"), "{text}");
        assert!(text.ends_with("\"rev\":4,\"data\":{ \"typing\":true}}\n\n") && text.lines().count() == 3, "{text}");
    }

    #[test]
    fn fields_join_an_object() {
        assert_eq!(join("{}", "m", "1"), "{\"m\":1}");
        assert_eq!(join("{\"a\":{}}", "m", "[]"), "{\"a\":{},\"m\":[]}");
        assert_eq!(join("", "m", "1"), "{\"m\":1}");
    }
}
