//! Asks the host application whether a user's message may be sent, when it wants to be asked.

use std::time::Instant;

use serde_json::{Value, json};
use uuid::Uuid;

use super::Stores;
use crate::domain::ids::{ConversationId, UserId};
use crate::domain::message::Draft;
use crate::domain::refusal::Refusal;
use crate::hooks::pre_send::{Question, Verdict};

/// Whether anybody wants to be asked about what users write. Nobody is asked about what the host application's own servers post.
#[must_use]
pub fn is_asked(stores: &Stores, service: bool) -> bool {
    stores.hooks.pre_send.is_some() && !service
}

/// Asks about a new message. To be called when nothing else stands against it: who is no member, and a key that is known, are not the
/// host's to judge.
///
/// # Errors
/// [`Refusal::RefusedByHost`], or [`Refusal::Unavailable`] when nobody answers and the setting says that nothing goes through then.
pub async fn may_send(
    stores: &Stores,
    sender: &UserId,
    conversation: &ConversationId,
    draft: &Draft,
    until: Instant,
) -> Result<(), Refusal> {
    let message = json!({
        "client_id": draft.client_id.as_str(),
        "kind": draft.kind.as_str(),
        "body": draft.body,
    });
    ask(stores, "message.send", sender, conversation, message, until).await
}

async fn ask(
    stores: &Stores,
    what: &'static str,
    sender: &UserId,
    conversation: &ConversationId,
    message: Value,
    until: Instant,
) -> Result<(), Refusal> {
    let Some(hook) = &stores.hooks.pre_send else { return Ok(()) };
    let question = Question {
        r#type: what,
        conversation_id: conversation.to_string(),
        kind: conversation.kind().as_str(),
        sender: sender.to_string(),
        message,
    };
    let id = format!("ask_{}", Uuid::now_v7().simple());
    match hook.ask(&id, stores.clock.now(), &question, until).await {
        Verdict::Allowed => Ok(()),
        Verdict::Refused(reason) => Err(Refusal::RefusedByHost(reason)),
        Verdict::Away if hook.allow_when_away => Ok(()),
        Verdict::Away => Err(Refusal::Unavailable("the host application does not say whether the message may be sent")),
    }
}
