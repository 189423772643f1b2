//! Events as they are posted to the host application: the same JSON that clients get, with an `id` that is the event's own.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use super::outside_call::{Answer, CallFault, Place};
use crate::contract::event::{event_json, event_tail, message_data};
use crate::domain::event::{EventType, Pointer};
use crate::domain::ids::{ConversationId, Millis, Rev};
use crate::domain::message::Message;
use crate::domain::quote::ShownMessage;
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

/// An event as JSON: its own facts, and the message it shows.
#[must_use]
pub fn event_body(pointer: &Pointer, facts: Map<String, Value>, message: Option<&Message>) -> String {
    let mut data = facts;
    // What is written by one serialiser is read by the other.
    if let Some(Ok(Value::Object(shown))) =
        message.map(|message| serde_json::from_str(&message_data(&ShownMessage::plain(message.clone()))))
    {
        data.extend(shown);
    }
    let id = event_id(&pointer.conversation, pointer.rev, pointer.kind);
    event_json(&id, &event_tail(pointer, &Value::Object(data).to_string()))
}

/// An event that was queued as `body`, showing its message as it is now.
#[must_use]
pub fn with_message(body: &str, message: &Message) -> Option<String> {
    let mut event: Map<String, Value> = serde_json::from_str(body).ok()?;
    let shown: Map<String, Value> = serde_json::from_str(&message_data(&ShownMessage::plain(message.clone()))).ok()?;
    event.get_mut("data")?.as_object_mut()?.extend(shown);
    Some(Value::Object(event).to_string())
}
