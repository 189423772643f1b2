//! Asks the host application whether a user's message may be sent, and takes no longer than it may.
//!
//! Every way of not answering is the same to who asks ([`Verdict::Away`]); a setting says what follows from it. So that a host that hangs
//! costs the senders little, only so many questions are under way at a time, and after a few in a row without an answer none is asked
//! for a moment: then one goes ahead and finds out for all.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::outside_call::{CallFault, Place};
use crate::contract::timestamp::Timestamp;
use crate::domain::ids::{ConversationId, Millis, UserId};
use crate::domain::message::{Draft, Message};
use crate::metrics;
use crate::settings::{SettingFault, Settings};

/// Questions under way at the same time; more wait, within their own deadline.
const QUESTIONS_MAX: usize = 128;
/// Questions in a row without an answer after which none is asked for a moment.
const SILENCES_MAX: u32 = 5;
/// That moment.
const REST: Duration = Duration::from_secs(2);
/// Longest reason that is passed on, in Unicode scalar values.
const REASON_CHARS_MAX: usize = 300;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Question {
    r#type: &'static str,
    conversation_id: String,
    kind: &'static str,
    sender: String,
    message: Value,
}

impl Question {
    /// Whether this may be sent.
    #[must_use]
    pub fn about_send(conversation: &ConversationId, sender: &UserId, draft: &Draft) -> Self {
        let message = json!({
            "client_id": draft.client_id.as_str(),
            "kind": draft.kind.as_str(),
            "body": draft.body,
            "media": draft.media,
            "reply_to": draft.reply_to,
            "share": draft.share.as_ref().map(|share| json!({"type": share.kind, "id": share.id})),
            "mentions": draft.mentions.iter().map(UserId::as_str).collect::<Vec<_>>(),
            "client_sent_at": draft.client_sent_at.map(Timestamp),
        });
        Self::new("message.send", conversation, sender, message)
    }

    /// Whether a message may say this instead of what it said.
    #[must_use]
    pub fn about_edit(edited: &Message) -> Self {
        let message = json!({
            "seq": edited.seq,
            "id": edited.id,
            "kind": edited.kind.as_str(),
            "body": edited.body,
            "media": edited.media.iter().map(|item| item.id).collect::<Vec<_>>(),
        });
        Self::new("message.edit", &edited.conversation, &edited.sender, message)
    }

    fn new(what: &'static str, conversation: &ConversationId, sender: &UserId, message: Value) -> Self {
        let kind = conversation.kind().as_str();
        Self { r#type: what, conversation_id: conversation.to_string(), kind, sender: sender.to_string(), message }
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be sent.
    Allowed,
    /// It may not; a sentence for the sender.
    Refused(String),
    /// Nobody said.
    Away,
}

#[derive(Deserialize)]
struct Said {
    allow: bool,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Debug, Default)]
struct Circuit {
    silences: u32,
    rests_until: Option<Instant>,
}

/// The hook.
#[derive(Debug)]
pub struct PreSend {
    place: Place,
    deadline: Duration,
    /// Whether a message is taken when nobody says whether it may be.
    pub allow_when_away: bool,
    under_way: Semaphore,
    circuit: Mutex<Circuit>,
}

impl PreSend {
    pub(super) fn of(settings: &Settings) -> Result<Option<Self>, SettingFault> {
        let Some(url) = &settings.pre_send_hook_url else { return Ok(None) };
        let place = Place::new(url, settings.webhook_keys()?)
            .map_err(|error| SettingFault::new("SEQLINE_PRE_SEND_HOOK_URL", format!("cannot be used: {error}")))?;
        Ok(Some(Self {
            place,
            deadline: Duration::from_millis(settings.pre_send_hook_deadline_ms),
            allow_when_away: settings.pre_send_hook_away != "refuse",
            under_way: Semaphore::new(QUESTIONS_MAX),
            circuit: Mutex::default(),
        }))
    }

    /// Asks under an id of its own, within the hook's deadline and before `until`.
    pub async fn ask(&self, id: &str, now: Millis, question: &Question, until: Instant) -> Verdict {
        if !self.may_ask() {
            metrics::PRE_SEND_HOOKS.add(&["resting"], 1);
            return Verdict::Away;
        }
        let begun = Instant::now();
        let limit = self.deadline.min(until.saturating_duration_since(begun));
        let outcome = timeout(limit, self.put(id, now, question, limit)).await.unwrap_or(Err("timeout"));
        metrics::PRE_SEND_HOOK_SECONDS.since(&[], begun);
        self.learn(outcome.is_ok());
        let (verdict, label) = match outcome {
            Ok(said) if said.allow => (Verdict::Allowed, "allowed"),
            Ok(said) => (Verdict::Refused(reason_of(said.reason.as_deref().unwrap_or_default())), "refused"),
            Err(label) => (Verdict::Away, label),
        };
        metrics::PRE_SEND_HOOKS.add(&[label], 1);
        verdict
    }

    async fn put(&self, id: &str, now: Millis, question: &Question, limit: Duration) -> Result<Said, &'static str> {
        let _turn = self.under_way.acquire().await.map_err(|_| "failed")?;
        // A tree of strings and numbers always serialises.
        let body = serde_json::to_string(question).unwrap_or_default();
        let mut answer = self.place.post(id, now, body.clone(), limit).await;
        if answer == Err(CallFault::Unreachable) {
            // A kept connection may have been closed by the other side in this very moment; who has an open door answers now.
            answer = self.place.post(id, now, body, limit).await;
        }
        match answer {
            Ok(answer) if answer.status == 200 => serde_json::from_slice(&answer.body).map_err(|_| "failed"),
            Ok(_) | Err(CallFault::Unreachable) => Err("failed"),
            Err(CallFault::Timeout) => Err("timeout"),
        }
    }

    /// Whether it is worth asking. While the hook rests it is not; the first to come after that asks, and moves the rest on for the others.
    fn may_ask(&self) -> bool {
        let mut circuit = self.circuit.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match circuit.rests_until {
            Some(until) if until > now => false,
            Some(_) => {
                circuit.rests_until = Some(now + REST);
                true
            }
            None => true,
        }
    }

    fn learn(&self, answered: bool) {
        let mut circuit = self.circuit.lock().unwrap_or_else(PoisonError::into_inner);
        if answered {
            if circuit.rests_until.is_some() {
                tracing::info!("the pre-send hook answers again");
            }
            *circuit = Circuit::default();
            return;
        }
        circuit.silences = circuit.silences.saturating_add(1);
        if circuit.silences >= SILENCES_MAX {
            if circuit.rests_until.is_none() {
                tracing::warn!(allow_when_away = self.allow_when_away, "the pre-send hook does not answer; it is left alone for a moment");
            }
            circuit.rests_until = Some(Instant::now() + REST);
        }
    }
}

/// A reason as it may be shown: one line, without control characters, of bounded length.
fn reason_of(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).filter(|c| !c.is_control()).collect();
    let clean: String = clean.trim().chars().take(REASON_CHARS_MAX).collect();
    if clean.is_empty() { "The application does not allow this message.".to_owned() } else { clean }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_clean_line() {
        for (given, shown) in [
            ("No links, please.", "No links, please."),
            (" a\r\nb\u{1b}[31m\0c ", "a  b[31mc"),
            ("", "The application does not allow this message."),
            ("\n\u{7}", "The application does not allow this message."),
        ] {
            assert_eq!(reason_of(given), shown);
        }
        assert_eq!(reason_of(&"é".repeat(1_000)).chars().count(), REASON_CHARS_MAX);
    }
}
