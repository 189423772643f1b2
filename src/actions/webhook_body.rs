//! What a webhook says when it is sent: what it said when it was queued, but for words that were taken back since.

use super::Stores;
use crate::domain::ids::ConversationId;
use crate::domain::message::Message;
use crate::domain::refusal::Refusal;
use crate::hooks::webhook::with_message;
use crate::postgres::webhooks::WaitingWebhook;
use crate::redis::peek_message::peek_message;

/// The body of a queued event as it may be sent now. Redis is looked at as well: a deletion stands from the moment in which it was
/// accepted, not only when the archive has it.
///
/// # Errors
/// When a store does not answer: then it cannot be told whether the words still stand, and nothing is sent.
pub async fn webhook_body(stores: &Stores, conversation: &ConversationId, event: &WaitingWebhook) -> Result<String, Refusal> {
    if event.seq == 0 {
        return Ok(event.body.clone());
    }
    let gone = |message: &Message| message.rev > event.rev && (message.deleted_at.is_some() || message.body.is_empty());
    let hot = peek_message(&stores.link, &stores.keys, conversation, event.seq).await?.filter(gone);
    let shown = match hot {
        Some(message) => message,
        None if event.words_gone => {
            stores.archive.messages_at(conversation, &[event.seq]).await?.pop().ok_or(Refusal::Unavailable("the message is being moved"))?
        }
        None => return Ok(event.body.clone()),
    };
    with_message(&event.body, &shown).ok_or(Refusal::Unavailable("the queued event cannot be read"))
}
