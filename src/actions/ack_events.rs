//! Keeps how far a device has got.

use super::Stores;
use crate::domain::ids::UserId;
use crate::domain::position::Position;
use crate::domain::refusal::Refusal;
use crate::redis::ack_cursor::{Acked, ack_cursor};

/// Moves the stored cursor of a device, forward only: an older place changes nothing.
///
/// # Errors
/// [`Refusal::InvalidCursor`] for a place that the log does not have yet, or of another log.
pub async fn ack_events(stores: &Stores, user: &UserId, device: &str, place: &Position) -> Result<(), Refusal> {
    match ack_cursor(&stores.link, &stores.keys, user, device, place, stores.clock.now()).await? {
        Acked::Moved | Acked::Kept => Ok(()),
        Acked::Future | Acked::Lost => Err(Refusal::InvalidCursor),
    }
}
