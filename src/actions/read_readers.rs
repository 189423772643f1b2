//! Who has read a message: told to its sender alone, from watermarks.

use super::Stores;
use super::open_epoch::open_shard;
use super::read_messages;
use crate::domain::ids::{ConversationId, Millis, Seq, UserId};
use crate::domain::refusal::Refusal;
use crate::redis::read_readers::{ReadersRead, read_readers as read};

/// Reads who of the current members, without its sender, has read the message, the latest first. Beside each: when that user's watermark
/// last moved, which may be long after the message was read.
///
/// # Errors
/// [`Refusal::NotFound`] for who is no member or may not see it, [`Refusal::Forbidden`] for all but its sender.
pub async fn read_readers(stores: &Stores, user: &UserId, id: &ConversationId, seq: Seq) -> Result<Vec<(UserId, Millis)>, Refusal> {
    let message = read_messages::message(stores, user, id, seq).await?;
    if message.sender != *user {
        return Err(Refusal::Forbidden("only its sender learns who has read a message"));
    }
    let mut readers = None;
    for _ in 0..2 {
        match read(&stores.link, &stores.keys, id, seq).await? {
            ReadersRead::Here(found) => readers = Some(found),
            ReadersRead::Cold => readers = Some(stores.archive.readers_of(id, seq).await?),
            ReadersRead::StaleEpoch => {
                open_shard(stores, stores.keys.shard_of(id)).await?;
                continue;
            }
        }
        break;
    }
    let mut readers = readers.ok_or(Refusal::Unavailable("the live store is changing"))?;
    readers.retain(|(reader, _)| reader != user);
    readers.sort_by(|(a, at_a), (b, at_b)| at_b.cmp(at_a).then_with(|| a.cmp(b)));
    Ok(readers)
}
