//! Looks at an upload: what it is, how large it is shown, and whether it can be shown at all.
//!
//! 1. The kind, by the first bytes. 2. The measures, out of the head: nothing is decoded before they are known to be small enough.
//! 3. A walk to the last byte (see [`whole`](super::whole)). 4. The first frame is decoded, to see that it can be.
//!
//! Decoding takes up to `BYTES_PER_PIXEL` bytes a pixel (a progressive JPEG keeps all its coefficients). One budget serves the whole process:
//! the largest picture that is taken fits into it once, small ones fit several times, and no more than `DECODES_AT_ONCE` are under way.

use std::io::Cursor;
use std::sync::Arc;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use tokio::sync::Semaphore;

use super::whole::walk;
use crate::domain::media::{MediaType, Picture};

/// Most memory for decoding, in bytes a pixel.
const BYTES_PER_PIXEL: u64 = 10;
/// Most pictures that are decoded at the same time.
const DECODES_AT_ONCE: u32 = 2;
/// All frames of an animation may have so many times the pixels that one picture may have.
const FRAMES_FACTOR: u64 = 25;
const MIB: u64 = 1 << 20;

/// Why an upload is not a picture that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureFault {
    /// It is of none of the kinds that are taken.
    UnknownKind,
    /// A side is longer than the limit, in pixels.
    SideTooLong(u32),
    /// It has more pixels than the limit.
    TooManyPixels(u64),
    /// It is an animation of more pixels than its reader should be made to draw.
    TooMuchAnimation,
    /// It is cut off, broken, or written in a way that is not understood here.
    Broken,
}

/// Looks at uploads, a few at a time.
#[derive(Clone, Debug)]
pub struct Inspector {
    pixels_max: u64,
    side_max: u32,
    /// Mebibytes for decoding that nobody uses.
    budget: Arc<Semaphore>,
    budget_mib: u32,
}

impl Inspector {
    /// With these limits, in pixels.
    #[must_use]
    pub fn new(pixels_max: u64, side_max: u32) -> Self {
        let budget_mib = u32::try_from(pixels_max.saturating_mul(BYTES_PER_PIXEL).div_ceil(MIB).max(16)).unwrap_or(u32::MAX >> 4);
        Self { pixels_max, side_max, budget: Arc::new(Semaphore::new(usize::try_from(budget_mib).unwrap_or(usize::MAX >> 4))), budget_mib }
    }

    /// Looks at an upload. Waits its turn; the caller sets a time limit.
    ///
    /// # Errors
    /// See [`PictureFault`].
    pub async fn inspect(&self, bytes: bytes::Bytes) -> Result<Picture, PictureFault> {
        let head = self.read_head(&bytes)?;
        let pixels = u64::from(head.width) * u64::from(head.height);
        let need = u32::try_from(pixels.saturating_mul(BYTES_PER_PIXEL).div_ceil(MIB)).unwrap_or(u32::MAX);
        let turn = need.clamp(self.budget_mib.div_ceil(DECODES_AT_ONCE), self.budget_mib);
        // Never closed.
        let permit = Arc::clone(&self.budget).acquire_many_owned(turn).await.map_err(|_| PictureFault::Broken)?;
        let alloc_max = u64::from(self.budget_mib) * MIB;
        let looked = tokio::task::spawn_blocking(move || {
            // Given back by the thread itself: it goes on when nobody waits for it any more.
            let _permit = permit;
            decode(&bytes, head.kind, alloc_max)
        })
        .await;
        match looked {
            Ok(Some(turned)) => Ok(if turned { Picture { width: head.height, height: head.width, ..head } } else { head }),
            Ok(None) => Err(PictureFault::Broken),
            Err(error) => {
                tracing::error!(error = %error, "a picture's decoder gave up");
                Err(PictureFault::Broken)
            }
        }
    }

    /// What stands in the head, and what a walk without decoding tells.
    fn read_head(&self, bytes: &[u8]) -> Result<Picture, PictureFault> {
        let kind = kind_of(bytes).ok_or(PictureFault::UnknownKind)?;
        let mut reader = ImageReader::with_format(Cursor::new(bytes), format_of(kind));
        reader.no_limits();
        let (width, height) = reader.into_dimensions().map_err(|_| PictureFault::Broken)?;
        if width == 0 || height == 0 {
            return Err(PictureFault::Broken);
        }
        if width.max(height) > self.side_max {
            return Err(PictureFault::SideTooLong(self.side_max));
        }
        if u64::from(width) * u64::from(height) > self.pixels_max {
            return Err(PictureFault::TooManyPixels(self.pixels_max));
        }
        let walk = walk(kind, bytes).ok_or(PictureFault::Broken)?;
        if walk.frame_pixels > self.pixels_max.saturating_mul(FRAMES_FACTOR) {
            return Err(PictureFault::TooMuchAnimation);
        }
        Ok(Picture { kind, width, height })
    }
}

/// The kind, by the bytes alone.
fn kind_of(bytes: &[u8]) -> Option<MediaType> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => Some(MediaType::Png),
        [0xFF, 0xD8, 0xFF, ..] => Some(MediaType::Jpeg),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(MediaType::Gif),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(MediaType::Webp),
        _ => None,
    }
}

fn format_of(kind: MediaType) -> ImageFormat {
    match kind {
        MediaType::Png => ImageFormat::Png,
        MediaType::Jpeg => ImageFormat::Jpeg,
        MediaType::Gif => ImageFormat::Gif,
        MediaType::Webp => ImageFormat::WebP,
    }
}

/// Decodes the first frame and throws it away; tells whether the picture is shown lying on its side, `None` when it cannot be shown.
fn decode(bytes: &[u8], kind: MediaType, alloc_max: u64) -> Option<bool> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format_of(kind));
    let mut limits = Limits::default();
    limits.max_alloc = Some(alloc_max);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().ok()?;
    // Cameras lie on their sides; clients that turn the picture need its measures as it is shown.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    DynamicImage::from_decoder(decoder).ok()?;
    Some(matches!(orientation, Orientation::Rotate90 | Orientation::Rotate270 | Orientation::Rotate90FlipH | Orientation::Rotate270FlipH))
}

#[cfg(test)]
mod tests {
    use image::{ImageEncoder, RgbImage};

    use super::*;

    fn encoded(kind: MediaType, width: u32, height: u32) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        let picture = RgbImage::from_fn(width, height, |x, y| image::Rgb([(x * 7) as u8, (y * 11) as u8, (x * y) as u8]));
        DynamicImage::ImageRgb8(picture).write_to(&mut bytes, format_of(kind)).unwrap();
        bytes.into_inner()
    }

    async fn inspect(bytes: Vec<u8>) -> Result<Picture, PictureFault> {
        Inspector::new(1_000_000, 2_000).inspect(bytes.into()).await
    }

    #[tokio::test]
    async fn every_kind_is_known_by_its_bytes_and_measured() {
        for kind in MediaType::ALL {
            assert_eq!(inspect(encoded(*kind, 30, 20)).await, Ok(Picture { kind: *kind, width: 30, height: 20 }));
        }
        for other in [&b""[..], b"<svg/>", b"GIF88a", b"BM\0\0\0\0\0\0\0\0\0\0", b"RIFF\0\0\0\0WAVE"] {
            assert_eq!(inspect(other.to_vec()).await, Err(PictureFault::UnknownKind));
        }
    }

    #[tokio::test]
    async fn what_is_cut_off_anywhere_is_no_picture() {
        for kind in MediaType::ALL {
            let whole = encoded(*kind, 30, 20);
            for end in 1..whole.len() {
                let cut = inspect(whole[..end].to_vec()).await;
                assert!(
                    matches!(cut, Err(PictureFault::Broken | PictureFault::UnknownKind)),
                    "{kind:?} cut at {end} of {}: {cut:?}",
                    whole.len()
                );
            }
        }
    }

    #[tokio::test]
    async fn measures_are_refused_before_anything_is_decoded() {
        assert_eq!(inspect(encoded(MediaType::Png, 2_001, 1)).await, Err(PictureFault::SideTooLong(2_000)));
        assert_eq!(inspect(encoded(MediaType::Jpeg, 1_999, 1_000)).await, Err(PictureFault::TooManyPixels(1_000_000)));
        // A head that claims what its data does not hold: nothing of that size is ever taken.
        let mut bomb = encoded(MediaType::Png, 1, 1);
        bomb[16..24].copy_from_slice(&[0x7F, 0xFF, 0xFF, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF]);
        assert!(inspect(bomb).await.is_err());
    }

    #[tokio::test]
    async fn an_animation_of_too_many_pixels_is_refused() {
        let still = encoded(MediaType::Gif, 100, 100);
        // The first frame's descriptor begins after header, screen and colours; its frame is said again until the limit is passed.
        let (head, frame) = still.split_at(still.windows(10).position(|w| w[0] == 0x2C && w[5..9] == [100, 0, 100, 0]).unwrap());
        let frame = &frame[..frame.len() - 1];
        let animation = |frames: usize| [head, &frame.repeat(frames), &[0x3B]].concat();
        let inspector = Inspector::new(10_000, 100);
        assert!(inspector.inspect(animation(25).into()).await.is_ok());
        assert_eq!(inspector.inspect(animation(26).into()).await, Err(PictureFault::TooMuchAnimation));
    }

    #[tokio::test]
    async fn a_jpeg_of_thousands_of_passes_is_refused() {
        let one = encoded(MediaType::Jpeg, 16, 16);
        let start = one.windows(2).position(|w| w == [0xFF, 0xDA]).unwrap();
        let (head, scan) = one.split_at(start);
        let scan = &scan[..scan.len() - 2];
        let bomb = [head, &scan.repeat(101), &[0xFF, 0xD9]].concat();
        assert_eq!(inspect(bomb).await, Err(PictureFault::Broken));
    }

    #[tokio::test]
    async fn a_picture_lying_on_its_side_is_measured_as_it_is_shown() {
        let mut bytes = Vec::new();
        let mut encoder = image::codecs::jpeg::JpegEncoder::new(&mut bytes);
        // TIFF, big endian, one entry: orientation (0x0112), a short, 6 = turned right.
        let exif = b"MM\0\x2A\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
        encoder.set_exif_metadata(exif.to_vec()).unwrap();
        encoder.write_image(&[9; 30 * 20 * 3], 30, 20, image::ExtendedColorType::Rgb8).unwrap();
        assert_eq!(inspect(bytes).await, Ok(Picture { kind: MediaType::Jpeg, width: 20, height: 30 }));
    }
}
