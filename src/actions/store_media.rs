//! Takes in a picture: its bytes are proven first; then the row, the object, the row again, so that nothing is ever stored that no row names.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::Stores;
use crate::domain::ids::{Millis, UserId};
use crate::domain::media::{Media, MediaType};
use crate::domain::refusal::{FieldError, Refusal};
use crate::media::{NoRoom, PictureFault, Received};
use crate::metrics;

/// An upload under way.
#[derive(Debug)]
pub struct Upload {
    stores: Arc<Stores>,
    owner: UserId,
    declared: MediaType,
    received: Received,
}

/// Begins an upload of what its sender says is of this kind.
///
/// # Errors
/// [`Refusal::Unavailable`] when there is no place for pictures.
pub fn begin_upload(stores: &Arc<Stores>, owner: &UserId, declared: MediaType) -> Result<Upload, Refusal> {
    let received = stores.media()?.receive();
    Ok(Upload { stores: Arc::clone(stores), owner: owner.clone(), declared, received })
}

impl Upload {
    /// Takes in more bytes.
    ///
    /// # Errors
    /// [`Refusal::TooLarge`]; [`Refusal::Overloaded`] when all uploads together are.
    pub fn push(&mut self, more: &[u8]) -> Result<(), Refusal> {
        self.received.push(more).map_err(|no| match no {
            NoRoom::TooLarge => Refusal::TooLarge(self.stores.settings.media_bytes_max as u64),
            NoRoom::Full => Refusal::Overloaded,
        })
    }

    /// Proves and stores what has come in.
    ///
    /// # Errors
    /// [`Refusal::UnsupportedMedia`], [`Refusal::Invalid`] for what is no sound picture within the limits or not what its sender said;
    /// [`Refusal::Unavailable`] when a store is away or it took too long.
    pub async fn finish(self) -> Result<Media, Refusal> {
        let within = Duration::from_millis(self.stores.settings.request_deadline_ms);
        // What is cut off here is found by its row and swept.
        tokio::time::timeout(within, self.store()).await.unwrap_or(Err(Refusal::Unavailable("the picture could not be stored in time")))
    }

    async fn store(self) -> Result<Media, Refusal> {
        let stores = self.stores;
        let room = stores.media()?;
        let (bytes, _held) = self.received.finish();
        let bytes = Bytes::from(bytes);
        if bytes.is_empty() {
            return Err(FieldError::new("body", "must not be empty").into());
        }
        let picture = room.inspector.inspect(bytes.clone()).await.map_err(refusal_of)?;
        if picture.kind != self.declared {
            let fault = format!("says {}, but the bytes are {}", self.declared.as_str(), picture.kind.as_str());
            return Err(FieldError::new("Content-Type", fault).into());
        }
        let media = Media { id: Uuid::now_v7(), owner: self.owner, picture, size: bytes.len() as u64 };
        let now = stores.clock.now();
        stores.archive.begin_media(&media, now, now.saturating_add(unused_age_ms(&stores))).await?;
        room.objects.write(media.id, bytes).await?;
        if !stores.archive.finish_media(media.id).await? {
            return Err(Refusal::Unavailable("the picture took too long and was swept"));
        }
        Ok(media)
    }
}

fn refusal_of(fault: PictureFault) -> Refusal {
    let body = |fault: String| Refusal::Invalid(FieldError::new("body", fault));
    match fault {
        PictureFault::UnknownKind => Refusal::UnsupportedMedia,
        PictureFault::SideTooLong(max) => body(format!("is a picture with a side of more than {max} pixels")),
        PictureFault::TooManyPixels(max) => body(format!("is a picture of more than {max} pixels")),
        PictureFault::TooMuchAnimation => body("is an animation of too many pixels".to_owned()),
        PictureFault::Broken => body("is a picture that is cut off or broken".to_owned()),
    }
}

/// How long a picture that no message shows is kept, in milliseconds.
pub(super) fn unused_age_ms(stores: &Stores) -> Millis {
    Millis::try_from(stores.settings.media_unused_age.saturating_mul(1_000)).unwrap_or(Millis::MAX)
}

/// Counts an upload by what became of it.
pub fn count_upload(outcome: &Result<Media, Refusal>) {
    let label = match outcome {
        Ok(media) => {
            metrics::UPLOAD_BYTES.add(&[], media.size);
            "stored"
        }
        Err(Refusal::Overloaded) => "full",
        Err(Refusal::Unavailable(_)) => "unavailable",
        Err(_) => "refused",
    };
    metrics::UPLOADS.add(&[label], 1);
}
