//! What a webhook says when it is sent: what it said when it was queued, but for words that were taken back since, and with what its
//! message answers as that is now.

use super::Stores;
use crate::domain::ids::{ConversationId, Seq};
use crate::domain::message::Message;
use crate::domain::refusal::Refusal;
use crate::hooks::webhook::QueuedEvent;
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
    let mut now = peek_message(&stores.link, &stores.keys, conversation, event.seq).await?.filter(gone);
    if now.is_none() && event.words_gone {
        now = stores.archive.messages_at(conversation, &[event.seq]).await?.pop();
    }
    let mut body = QueuedEvent::read(&event.body).ok_or(Refusal::Unavailable("a queued event cannot be read"))?;
    if let Some(message) = now {
        body.put_message(&message);
    }
    if let Some(seq) = body.reply_to()
        && let Some(quoted) = find(stores, conversation, seq).await?
    {
        body.put_quote(&quoted);
    }
    Ok(body.into_body())
}

async fn find(stores: &Stores, conversation: &ConversationId, seq: Seq) -> Result<Option<Message>, Refusal> {
    match peek_message(&stores.link, &stores.keys, conversation, seq).await? {
        Some(message) => Ok(Some(message)),
        None => Ok(stores.archive.messages_at(conversation, &[seq]).await?.pop()),
    }
}
