//! What an outbox entry tells the host application.

use serde_json::{Map, Value, json};

use crate::domain::event::{EventType, Pointer};
use crate::domain::message::Message;
use crate::hooks::Webhooks;
use crate::hooks::webhook::{event_body, reaction_counts};
use crate::postgres::WebhookRow;
use crate::redis::outbox::OutboxEntry;
use crate::redis::stored_form::{Audience, StoredEvent};

/// The events of an entry that the host application wants, each once, however many audiences it has among the members. `message` is the
/// one that came with the entry.
#[must_use]
pub fn webhook_rows(webhooks: &Webhooks, entry: &OutboxEntry, message: Option<&Message>) -> Vec<WebhookRow> {
    let implied = [StoredEvent::new(EventType::MessageCreated, Audience::All, None)];
    let events = match (&entry.change.events[..], message) {
        ([], Some(_)) => &implied[..],
        (events, _) => events,
    };
    let mut rows: Vec<WebhookRow> = Vec::new();
    for (place, event) in (0..).zip(events) {
        // What this build does not know, dispatch says.
        let Some(kind) = EventType::of_code(&event.t).filter(|kind| webhooks.wants(*kind)) else { continue };
        if rows.iter().any(|row| row.kind == kind) {
            continue;
        }
        let shown = message.filter(|_| shows_message(kind));
        let seq = message.map_or(0, |message| message.seq);
        let pointer = Pointer { kind, conversation: entry.conversation.clone(), rev: entry.rev, seq, at: entry.at, data: None };
        rows.push(WebhookRow {
            conv: entry.conversation.clone(),
            rev: entry.rev,
            place,
            kind,
            seq: shown.map_or(0, |message| message.seq),
            message: message.map(|message| message.id),
            body: event_body(&pointer, facts(entry, kind, event, message), shown),
        });
    }
    rows
}

fn shows_message(kind: EventType) -> bool {
    matches!(kind, EventType::MessageCreated | EventType::MessageEdited | EventType::MessageDeleted | EventType::MessageResequenced)
}

/// The event's own facts; of a conversation that was made, what its members would see of it before anything was said.
fn facts(entry: &OutboxEntry, kind: EventType, event: &StoredEvent, message: Option<&Message>) -> Map<String, Value> {
    let mut facts = match &event.d {
        Some(Value::Object(facts)) => facts.clone(),
        _ => Map::new(),
    };
    // Members whose view may differ look at the message; the host application sees all of it.
    if let (EventType::ReactionChanged, Some(message)) = (kind, message) {
        facts.insert("reactions".to_owned(), reaction_counts(message));
    }
    // Only the script knew the number of the timeline message that goes with the event.
    if let (false, Some(message)) = (facts.is_empty() || kind == EventType::MessageResequenced, message) {
        facts.insert("seq".to_owned(), message.seq.into());
    }
    if let (EventType::ConversationCreated, Some(made)) = (kind, &entry.change.conversation) {
        let members: Vec<&str> = entry.change.members.iter().map(|member| member.u.as_str()).collect();
        let conversation = json!({
            "id": entry.conversation.as_str(),
            "kind": entry.conversation.kind().as_str(),
            "title": made.title,
            "owner": made.owner,
            "members": members,
        });
        facts.insert("conversation".to_owned(), conversation);
    }
    facts
}
