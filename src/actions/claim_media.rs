//! Makes sure that the pictures of a message are its sender's and ready, and keeps them for it, before it gets its number.
//!
//! A receiver asks for a picture milliseconds after the message, long before the archive has its row; and a picture must not be swept between
//! the check and the row. So the check leaves a claim, which the archive's row replaces; after a send that failed it ends by itself.

use uuid::Uuid;

use super::Stores;
use super::store_media::unused_age_ms;
use crate::domain::ids::UserId;
use crate::domain::media::not_yours;
use crate::domain::message::MediaItem;
use crate::domain::refusal::Refusal;
use crate::postgres::ClaimFor;

/// Checks, and claims if there is something to claim for, all or none; gives the pictures in the order of `ids`.
///
/// # Errors
/// [`Refusal::Invalid`] naming the first `media[i]` that is not there, not the sender's or not ready; [`Refusal::Unavailable`] when the archive
/// is away.
pub async fn claim_media(stores: &Stores, sender: &UserId, ids: &[Uuid], claim: Option<ClaimFor>) -> Result<Vec<MediaItem>, Refusal> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let now = stores.clock.now();
    let found = stores.archive.claim_media(sender, ids, claim, now, now.saturating_add(unused_age_ms(stores))).await?;
    let item = |(index, id): (usize, &Uuid)| {
        let media = found.iter().find(|media| media.id == *id).ok_or_else(|| not_yours(index))?;
        Ok(MediaItem {
            id: media.id,
            mime_type: media.picture.kind.as_str().to_owned(),
            size: media.size,
            width: media.picture.width,
            height: media.picture.height,
        })
    };
    ids.iter().enumerate().map(item).collect()
}
