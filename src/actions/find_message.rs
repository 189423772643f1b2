//! What became of a send, by its idempotency key.

use super::Stores;
use super::open_epoch::open_shard;
use super::read_conversation::view;
use crate::domain::ids::{ClientKey, ConversationId};
use crate::domain::membership::Reader;
use crate::domain::message::Message;
use crate::domain::refusal::Refusal;
use crate::redis::find_message::{KeyFound, find_message as find_in_redis};

/// How far a message got.
#[derive(Clone, Debug, PartialEq)]
pub enum SendState {
    /// In Redis.
    Accepted(Box<Message>),
    /// In Postgres.
    Archived(Box<Message>),
    /// No message has this key.
    Unknown,
}

/// Looks up one's own message.
///
/// # Errors
/// [`Refusal::NotFound`] for who is no member and has no such message; [`Refusal::Unavailable`] when a store that must be asked is away.
pub async fn find_message<'a>(
    stores: &Stores,
    reader: impl Into<Reader<'a>>,
    id: &ConversationId,
    key: &ClientKey,
) -> Result<SendState, Refusal> {
    let reader = reader.into();
    let user = reader.user;
    let mut found = find_in_redis(&stores.link, &stores.keys, id, user, key).await?;
    if found == KeyFound::StaleEpoch {
        open_shard(stores, stores.keys.shard_of(id)).await?;
        found = find_in_redis(&stores.link, &stores.keys, id, user, key).await?;
    }
    match found {
        KeyFound::Found { message: Some(message), .. } => {
            // Postgres away is no reason to hide that the message stands.
            let archived = stores.archive.is_archived(id, message.seq, message.id).await.unwrap_or(false);
            return Ok(if archived { SendState::Archived(message) } else { SendState::Accepted(message) });
        }
        KeyFound::Unknown { for_sure: true } => {}
        KeyFound::StaleEpoch => return Err(Refusal::Unavailable("the live store is changing")),
        KeyFound::Found { message: None, .. } | KeyFound::Unknown { for_sure: false } | KeyFound::Cold => {
            if let Some(message) = stores.archive.find_by_key(id, user, key).await? {
                return Ok(SendState::Archived(Box::new(message)));
            }
        }
    }
    view(stores, reader, id).await.map(|_| SendState::Unknown)
}
