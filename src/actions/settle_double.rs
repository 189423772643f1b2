//! What becomes of a message whose key names another message in the archive: it was accepted by a Redis that had forgotten the key.
//!
//! Its number was given out and told, so the number keeps a message; the key names the first one, as it always will. Where both say the same
//! they are one intent, and the words of the second are taken back, so that they do not stand there twice. Where they say different
//! things, both are kept, the second without a key: nothing that was accepted is lost, and a repetition is told that its key is taken.

use super::Stores;
use super::archive_outbox::ArchiveStop;
use super::resequence_message::Placed;
use crate::domain::ids::{Millis, UserId};
use crate::domain::message::Message;
use crate::redis::peek_message::peek_message;
use crate::redis::settle_double::{Double, DoubleSettled, settle_double as settle};

/// Tries against changes of the message meanwhile.
const ROUNDS_MAX: u32 = 5;

/// Settles a double that stands in Redis. `Placed::Waits` when it does not stand there, or the conversation takes no writes. Safe to repeat.
///
/// # Errors
/// When a store does not answer.
pub async fn settle_double(stores: &Stores, double: &Message) -> Result<Placed, ArchiveStop> {
    let Some(key) = &double.client_id else { return Ok(Placed::Waits) };
    let id = &double.conversation;
    let Some(first) = stores.archive.find_by_key(id, &double.sender, key).await? else { return Ok(Placed::Waits) };
    if first.id == double.id {
        return Ok(Placed::Stands(first.seq));
    }
    for _ in 0..ROUNDS_MAX {
        let Some(standing) = peek_message(&stores.link, &stores.keys, id, double.seq).await?.filter(|m| m.id == double.id) else {
            return Ok(Placed::Waits);
        };
        if standing.client_id.is_none() {
            return Ok(Placed::Stands(double.seq));
        }
        let now = stores.clock.now();
        let message = without_key(&standing, &first, now);
        let gone = message.deleted_at.is_some();
        let unnamed: &[UserId] = if gone { &standing.mentions } else { &[] };
        match settle(&stores.link, &stores.keys, now, &Double { message: &message, key, first: &first, unnamed }).await? {
            DoubleSettled::Done => return Ok(Placed::Moved(double.seq)),
            DoubleSettled::Changed => {}
            DoubleSettled::Cold | DoubleSettled::Closed | DoubleSettled::StaleEpoch => return Ok(Placed::Waits),
        }
    }
    Ok(Placed::Waits)
}

/// The double as it is to stand: without its key, and without its words where the first one has the same.
#[must_use]
pub fn without_key(double: &Message, first: &Message, now: Millis) -> Message {
    let kept = Message { client_id: None, ..double.clone() };
    if double.fingerprint.is_none() || double.fingerprint != first.fingerprint || double.deleted_at.is_some() {
        return kept;
    }
    kept.taken_back(&double.sender, now)
}
