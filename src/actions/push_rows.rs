//! What an outbox entry may wake browsers for.

use crate::domain::event::EventType;
use crate::domain::message::{Message, MessageKind};
use crate::postgres::PushRow;
use crate::redis::outbox::OutboxEntry;

/// The message of an entry, if that is when it was said, or when it came to the archive under a new number after it had found its own taken:
/// an edit or a reaction wakes nobody, and nor does the timeline.
#[must_use]
pub fn push_row(entry: &OutboxEntry, message: &Message) -> Option<PushRow> {
    let events = &entry.change.events;
    let news = [EventType::MessageCreated.code(), EventType::MessageResequenced.code()];
    let made = events.is_empty() || events.iter().any(|event| news.contains(&event.t.as_str()));
    let said = made && message.kind != MessageKind::System && message.deleted_at.is_none();
    said.then(|| PushRow { conv: entry.conversation.clone(), seq: message.seq, message: message.id })
}
