//! Walks through a picture's bytes from its first to its last, without decoding: is it all there, how many pixels do all its frames have
//! together, how often does it ask to be gone over?
//!
//! What a decoder forgives (a JPEG cut off in the middle is shown half grey) is not stored here, and what costs its reader a thousand times
//! its size is not passed on: an animation of many large frames, a JPEG of thousands of passes.

use crate::domain::media::MediaType;

/// Most passes over a JPEG; an ordinary progressive one has about ten.
const SCANS_MAX: u32 = 100;

/// What the walk found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// Pixels of all frames of an animation together; 0 when there are none beside the picture itself.
    pub frame_pixels: u64,
}

/// Walks through a picture of this kind; `None` when it ends before its end, or is built as none should be.
#[must_use]
pub fn walk(kind: MediaType, bytes: &[u8]) -> Option<Walk> {
    let mut bytes = Bytes(bytes);
    match kind {
        MediaType::Png => walk_png(&mut bytes),
        MediaType::Jpeg => walk_jpeg(&mut bytes),
        MediaType::Gif => walk_gif(&mut bytes),
        MediaType::Webp => walk_webp(&mut bytes),
    }
}

/// What is left to walk.
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
}

fn area(width: u32, height: u32) -> u64 {
    u64::from(width) * u64::from(height)
}

/// Chunks: length, name, data, check sum; the last is `IEND`. Frames of an animation are announced by `fcTL`.
fn walk_png(bytes: &mut Bytes<'_>) -> Option<Walk> {
    bytes.take(8)?;
    let mut walk = Walk::default();
    loop {
        let length = usize::try_from(u32::from_be_bytes(bytes.array()?)).ok()?;
        let name: [u8; 4] = bytes.array()?;
        let mut data = Bytes(bytes.take(length)?);
        bytes.take(4)?;
        match &name {
            b"IEND" => return Some(walk),
            b"fcTL" => {
                data.take(4)?;
                let (width, height) = (u32::from_be_bytes(data.array()?), u32::from_be_bytes(data.array()?));
                walk.frame_pixels = walk.frame_pixels.saturating_add(area(width, height));
            }
            _ => {}
        }
    }
}

/// Segments that name their length, and after each start of a scan coded data up to the next marker; the last is the end of the image.
fn walk_jpeg(bytes: &mut Bytes<'_>) -> Option<Walk> {
    bytes.take(2)?;
    let mut scans = 0;
    loop {
        if bytes.byte()? != 0xFF {
            return None;
        }
        let mut marker = bytes.byte()?;
        while marker == 0xFF {
            marker = bytes.byte()?;
        }
        match marker {
            0xD9 => return (scans > 0).then(Walk::default),
            // Without a length.
            0x01 | 0xD0..=0xD7 => continue,
            _ => {}
        }
        let length = usize::from(u16::from_be_bytes(bytes.array()?));
        bytes.take(length.checked_sub(2)?)?;
        if marker == 0xDA {
            scans += 1;
            if scans > SCANS_MAX {
                return None;
            }
            // In coded data FF is followed by 00 or the number of a restart; anything else is a marker.
            loop {
                let at = bytes.0.iter().position(|b| *b == 0xFF)?;
                bytes.take(at)?;
                match bytes.0.get(1)? {
                    0x00 | 0xD0..=0xD7 => bytes.take(2)?,
                    _ => break,
                };
            }
        }
    }
}

/// A screen, then blocks; the last is the trailer.
fn walk_gif(bytes: &mut Bytes<'_>) -> Option<Walk> {
    let screen: [u8; 13] = bytes.array()?;
    skip_colours(bytes, screen[10])?;
    let mut walk = Walk::default();
    let mut frames = 0_u32;
    loop {
        match bytes.byte()? {
            0x3B => return (frames > 0).then_some(walk),
            0x21 => {
                bytes.byte()?;
            }
            0x2C => {
                let frame: [u8; 9] = bytes.array()?;
                let side = |at: usize| u32::from(u16::from_le_bytes([frame[at], frame[at + 1]]));
                walk.frame_pixels = walk.frame_pixels.saturating_add(area(side(4), side(6)));
                frames = frames.saturating_add(1);
                skip_colours(bytes, frame[8])?;
                bytes.byte()?;
            }
            _ => return None,
        }
        // Every block's data comes in parts of up to 255 bytes; an empty one is the last.
        loop {
            let length = usize::from(bytes.byte()?);
            if length == 0 {
                break;
            }
            bytes.take(length)?;
        }
    }
}

fn skip_colours(bytes: &mut Bytes<'_>, flags: u8) -> Option<()> {
    if flags & 0x80 != 0 {
        bytes.take(3 << ((flags & 7) + 1))?;
    }
    Some(())
}

/// One chunk that holds all others and names their length.
fn walk_webp(bytes: &mut Bytes<'_>) -> Option<Walk> {
    let head: [u8; 12] = bytes.array()?;
    let length = usize::try_from(u32::from_le_bytes([head[4], head[5], head[6], head[7]])).ok()?;
    let mut inside = Bytes(bytes.take(length.checked_sub(4)?)?);
    let mut walk = Walk::default();
    let mut pictures = 0_u32;
    while !inside.0.is_empty() {
        let name: [u8; 4] = inside.array()?;
        let length = usize::try_from(u32::from_le_bytes(inside.array()?)).ok()?;
        let data = inside.take(length)?;
        // Chunks begin at even places; the last one's filling is left out now and then.
        if length % 2 == 1 && !inside.0.is_empty() {
            inside.take(1)?;
        }
        match &name {
            b"VP8 " | b"VP8L" => pictures = pictures.saturating_add(1),
            b"ANMF" => {
                let side = |at: usize| Some(u32::from_le_bytes([*data.get(at)?, *data.get(at + 1)?, *data.get(at + 2)?, 0]) + 1);
                walk.frame_pixels = walk.frame_pixels.saturating_add(area(side(6)?, side(9)?));
                pictures = pictures.saturating_add(1);
            }
            _ => {}
        }
    }
    (pictures > 0).then_some(walk)
}
