//! Pictures and the place where their bytes lie: a local folder or an S3-compatible bucket. The only room that knows `object_store` and
//! `image`. Who may do what with a picture is decided elsewhere; which pictures there are stands in Postgres.
//!
//! An upload is hostile until proven: its bytes say what it is (never its name or header), its measures are read before anything is
//! decoded, and decoding happens outside the async threads, a few at a time, within a budget of memory.

pub mod inspect;
pub mod objects;
pub mod whole;

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::settings::{SettingFault, Settings};

pub use inspect::{Inspector, PictureFault};
pub use objects::{ObjectError, ObjectRead, Objects};

/// Whole uploads, of the largest size, whose bytes one process holds at a time.
const WHOLE_UPLOADS_AT_ONCE: usize = 16;
/// Bytes of uploads are counted in steps of this size.
const STEP_BYTES: usize = 16 * 1024;

/// Everything about pictures that a process holds.
#[derive(Debug)]
pub struct MediaRoom {
    /// Where their bytes lie.
    pub objects: Objects,
    /// Looks at uploads.
    pub inspector: Inspector,
    room: Arc<Semaphore>,
    bytes_max: usize,
}

impl MediaRoom {
    /// As the settings say; `None` when they name no place.
    ///
    /// # Errors
    /// Names the setting that cannot be used.
    pub fn open(settings: &Settings) -> Result<Option<Self>, SettingFault> {
        let Some(objects) = Objects::open(settings)? else { return Ok(None) };
        let steps = WHOLE_UPLOADS_AT_ONCE * settings.media_bytes_max.div_ceil(STEP_BYTES).max(1);
        Ok(Some(Self {
            objects,
            inspector: Inspector::new(settings.media_pixels_max, settings.media_side_max),
            room: Arc::new(Semaphore::new(steps.min(Semaphore::MAX_PERMITS))),
            bytes_max: settings.media_bytes_max,
        }))
    }

    /// A place for the bytes of one upload.
    #[must_use]
    pub fn receive(&self) -> Received {
        Received { bytes: Vec::new(), held: None, room: Arc::clone(&self.room), bytes_max: self.bytes_max }
    }
}

/// Why more bytes are not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The upload is over the limit.
    TooLarge,
    /// All uploads together are; a later try may find room.
    Full,
}

/// The bytes of an upload as they come in, counted against what a process may hold.
#[derive(Debug)]
pub struct Received {
    bytes: Vec<u8>,
    held: Option<OwnedSemaphorePermit>,
    room: Arc<Semaphore>,
    bytes_max: usize,
}

impl Received {
    /// Takes in more bytes.
    ///
    /// # Errors
    /// See [`NoRoom`]. It never waits: uploads that wait for each other's end would wait for ever.
    pub fn push(&mut self, more: &[u8]) -> Result<(), NoRoom> {
        let length = self.bytes.len().saturating_add(more.len());
        if length > self.bytes_max {
            return Err(NoRoom::TooLarge);
        }
        let held = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = u32::try_from(length.div_ceil(STEP_BYTES).saturating_sub(held)).map_err(|_| NoRoom::Full)?;
        if missing > 0 {
            let permit = Arc::clone(&self.room).try_acquire_many_owned(missing).map_err(|_| NoRoom::Full)?;
            match &mut self.held {
                Some(held) => held.merge(permit),
                none => *none = Some(permit),
            }
            // Exactly what is counted: a vector left to itself would take up to twice as much.
            self.bytes.reserve_exact((length.div_ceil(STEP_BYTES) * STEP_BYTES).min(self.bytes_max) - self.bytes.len());
        }
        self.bytes.extend_from_slice(more);
        Ok(())
    }

    /// The bytes, and what counts them: to be dropped when they are.
    #[must_use]
    pub fn finish(self) -> (Vec<u8>, Option<OwnedSemaphorePermit>) {
        (self.bytes, self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_taken_up_to_both_limits() {
        let room = Arc::new(Semaphore::new(3));
        let receive = || Received { bytes: Vec::new(), held: None, room: Arc::clone(&room), bytes_max: 2 * STEP_BYTES };
        let (mut one, mut two) = (receive(), receive());
        one.push(&[1; STEP_BYTES]).unwrap();
        one.push(&[1]).unwrap();
        two.push(&[2; STEP_BYTES]).unwrap();
        assert_eq!(two.push(&[2]), Err(NoRoom::Full));
        assert_eq!(one.push(&[1; STEP_BYTES]), Err(NoRoom::TooLarge));
        let (bytes, held) = one.finish();
        assert_eq!(bytes.len(), STEP_BYTES + 1);
        drop(held);
        two.push(&[2]).unwrap();
        drop(two);
        assert_eq!(room.available_permits(), 3);
    }
}
