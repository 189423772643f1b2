//! Asks the host application whether what a user writes may be said, when it wants to be asked.

use std::time::Instant;

use uuid::Uuid;

use super::Stores;
use crate::domain::ids::{ConversationId, UserId};
use crate::domain::message::{Draft, Message};
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
    ask(stores, &Question::about_send(conversation, sender, draft), until).await
}

/// Asks about an edit that nothing else stands against; `edited` is the message as it would be.
///
/// # Errors
/// As [`may_send`].
pub async fn may_edit(stores: &Stores, edited: &Message, until: Instant) -> Result<(), Refusal> {
    ask(stores, &Question::about_edit(edited), until).await
}

async fn ask(stores: &Stores, question: &Question, until: Instant) -> Result<(), Refusal> {
    let Some(hook) = &stores.hooks.pre_send else { return Ok(()) };
    let id = format!("ask_{}", Uuid::now_v7().simple());
    match hook.ask(&id, stores.clock.now(), question, until).await {
        Verdict::Allowed => Ok(()),
        Verdict::Refused(reason) => Err(Refusal::RefusedByHost(reason)),
        Verdict::Away if hook.allow_when_away => Ok(()),
        Verdict::Away => Err(Refusal::Unavailable("the host application does not say whether this may be said")),
    }
}
