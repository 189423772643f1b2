//! Events as they are posted to the host application: the same JSON that clients get, with an `id` that is the event's own.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use super::outside_call::{Answer, CallFault, Place};
use crate::contract::event::{event_json, event_tail, message_data};
use crate::contract::message as contract;
use crate::domain::event::{EventType, Pointer};
use crate::domain::ids::{ConversationId, Millis, Rev, Seq};
use crate::domain::message::Message;
use crate::domain::quote::{Quote, ShownMessage};
use crate::settings::{SettingFault, Settings};

/// Where events are posted, and which.
#[derive(Debug)]
pub struct Webhooks {
    place: Place,
    types: BTreeSet<EventType>,
    limit: Duration,
    queued: Notify,
}

impl Webhooks {
    pub(super) fn of(settings: &Settings) -> Result<Option<Self>, SettingFault> {
        let Some(url) = &settings.webhook_url else { return Ok(None) };
        let place = Place::new(url, settings.webhook_keys()?)
            .map_err(|error| SettingFault::new("SEQLINE_WEBHOOK_URL", format!("cannot be used: {error}")))?;
        let limit = Duration::from_millis(settings.webhook_timeout_ms);
        Ok(Some(Self { place, types: settings.webhook_types()?, limit, queued: Notify::new() }))
    }

    /// Whether events of this type are posted.
    #[must_use]
    pub fn wants(&self, kind: EventType) -> bool {
        self.types.contains(&kind)
    }

    /// Says in this process that events were queued. A hint: who posts them also looks by itself.
    pub fn tell_queued(&self) {
        self.queued.notify_one();
    }

    /// Waits for [`Webhooks::tell_queued`].
    pub async fn queued(&self) {
        self.queued.notified().await;
    }

    /// Posts one event.
    ///
    /// # Errors
    /// When there is no answer; any status is one.
    pub async fn post(&self, event_id: &str, now: Millis, body: String) -> Result<Answer, CallFault> {
        self.place.post(event_id, now, body, self.limit).await
    }
}

/// The id of an event: the same however often it is queued or posted, another one for every other event. Without a dot, which separates
/// it from the timestamp where it is signed.
#[must_use]
pub fn event_id(conversation: &ConversationId, rev: Rev, kind: EventType) -> String {
    let mut hash = Sha256::new();
    hash.update(conversation.as_str().as_bytes());
    hash.update([0]);
    hash.update(rev.to_be_bytes());
    hash.update(kind.as_str().as_bytes());
    format!("evt_{}", hex::encode(&hash.finalize()[..16]))
}

/// An event as JSON: its own facts, and the message it shows. What that answers is looked up when the event is sent.
#[must_use]
pub fn event_body(pointer: &Pointer, facts: Map<String, Value>, message: Option<&Message>) -> String {
    let mut data = facts;
    if let Some(message) = message {
        let quote = message.reply_to.map(|seq| Quote::Hidden { seq });
        data.extend(shown(message, quote));
    }
    let id = event_id(&pointer.conversation, pointer.rev, pointer.kind);
    event_json(&id, &event_tail(pointer, &Value::Object(data).to_string()))
}

fn shown(message: &Message, quote: Option<Quote>) -> Map<String, Value> {
    let shown = ShownMessage { message: message.clone(), quote, shared: None, reader: None };
    // What is written by one serialiser is read by the other.
    serde_json::from_str(&message_data(&shown)).unwrap_or_default()
}

/// An event that was queued, to be sent with what is known by then.
#[derive(Debug)]
pub struct QueuedEvent(Map<String, Value>);

impl QueuedEvent {
    /// Reads what [`event_body`] wrote.
    #[must_use]
    pub fn read(body: &str) -> Option<Self> {
        serde_json::from_str(body).ok().map(Self)
    }

    /// The number of the message that the event's message answers.
    #[must_use]
    pub fn reply_to(&self) -> Option<Seq> {
        self.0.get("data")?.get("message")?.get("reply_to")?.get("seq")?.as_u64()
    }

    /// Says what the message answers.
    pub fn put_quote(&mut self, quoted: &Message) {
        let quote = serde_json::to_value(contract::Quote::from(&Quote::of(quoted))).unwrap_or_default();
        if let Some(Value::Object(message)) = self.0.get_mut("data").and_then(|data| data.get_mut("message")) {
            message.insert("reply_to".to_owned(), quote);
        }
    }

    /// Shows the message as it is now.
    pub fn put_message(&mut self, message: &Message) {
        if let Some(Value::Object(data)) = self.0.get_mut("data") {
            data.extend(shown(message, message.reply_to.map(|seq| Quote::Hidden { seq })));
        }
    }

    /// The event as JSON.
    #[must_use]
    pub fn into_body(self) -> String {
        Value::Object(self.0).to_string()
    }
}

/// The counts of a message's reactions, as events show them.
#[must_use]
pub fn reaction_counts(message: &Message) -> Value {
    serde_json::to_value(contract::reactions(message, None)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_one_id_and_no_other_has_it() {
        let group = ConversationId::of_system("order.1").map_err(|e| e.fault).unwrap();
        let other = ConversationId::of_system("order.12").map_err(|e| e.fault).unwrap();
        let id = event_id(&group, 7, EventType::MessageCreated);
        assert_eq!(id, event_id(&group, 7, EventType::MessageCreated));
        assert!(id.len() == 36 && id.starts_with("evt_") && !id.contains('.'));
        for another in [
            event_id(&group, 8, EventType::MessageCreated),
            event_id(&group, 7, EventType::MessageEdited),
            event_id(&other, 7, EventType::MessageCreated),
        ] {
            assert_ne!(id, another);
        }
    }
}
