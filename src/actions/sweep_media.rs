//! Removes pictures that no message shows.
//!
//! Safe to run twice, also at once: what is removed was marked first, where no send can claim it any more, and what a run leaves half done is
//! found again by its mark.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use uuid::Uuid;

use super::Stores;
use super::store_media::unused_age_ms;
use crate::domain::ids::UserId;
use crate::domain::refusal::Refusal;
use crate::media::{MediaRoom, ObjectError};
use crate::metrics;

/// Pictures looked at in one transaction.
const BATCH: u64 = 200;
/// Objects removed at the same time.
const AT_ONCE: usize = 8;
/// Between the two times that a picture is found unused lies this part of the time for which unused ones are kept: an hour of a day. An
/// archive that was away for longer than claims last has so much time to write what messages show.
const GRACE_PART: i64 = 24;

/// What one look found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Pictures removed.
    pub removed: u64,
    /// Whether there are more to look at.
    pub more: bool,
}

/// Looks at some of the pictures whose time has come, and removes the unused ones.
///
/// # Errors
/// [`Refusal::Unavailable`] when a store is away; what is marked is removed by a later run.
pub async fn sweep_media(stores: &Arc<Stores>) -> Result<Swept, Refusal> {
    let Some(room) = &stores.media else { return Ok(Swept::default()) };
    let now = stores.clock.now();
    let again_at = now.saturating_add(unused_age_ms(stores) / GRACE_PART);
    let checked = stores.archive.check_media(now, again_at, BATCH).await?;
    let (removed, failed) = remove(stores, room, &checked.sweeping).await?;
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(Swept { removed, more: checked.checked as u64 == BATCH }),
    }
}

/// Removes some of the pictures of a user that were marked when the user was erased; whether there may be more.
///
/// # Errors
/// [`Refusal::Unavailable`] when a store is away.
pub async fn sweep_media_of(stores: &Stores, user: &UserId) -> Result<bool, Refusal> {
    let Some(room) = &stores.media else { return Ok(false) };
    let marked = stores.archive.sweeping_media_of(user, BATCH).await?;
    match remove(stores, room, &marked).await? {
        (_, Some(error)) => Err(error.into()),
        _ => Ok(marked.len() as u64 == BATCH),
    }
}

/// Removes the bytes of marked pictures, then the rows of those whose bytes are gone; how many, and why the others are not.
async fn remove(stores: &Stores, room: &MediaRoom, marked: &[Uuid]) -> Result<(u64, Option<ObjectError>), Refusal> {
    let removals = marked.iter().map(|id| async move { (*id, room.objects.remove(*id).await) });
    let done: Vec<_> = stream::iter(removals.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).collect().await;
    let mut gone: Vec<Uuid> = Vec::with_capacity(done.len());
    let mut failed = None;
    for (id, removed) in done {
        match removed {
            Ok(()) => gone.push(id),
            Err(error) => failed = Some(error),
        }
    }
    let removed = if gone.is_empty() { 0 } else { stores.archive.forget_media(&gone).await? };
    metrics::MEDIA_SWEPT.add(&[], removed);
    Ok((removed, failed))
}
