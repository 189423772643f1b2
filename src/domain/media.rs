//! Pictures: of which kinds they may be, and how a message may use them.

use uuid::Uuid;

use super::ids::UserId;
use super::message_change::MEDIA_MAX;
use super::refusal::FieldError;

/// The kinds of pictures that are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MediaType {
    /// PNG.
    Png,
    /// JPEG.
    Jpeg,
    /// GIF.
    Gif,
    /// WebP.
    Webp,
}

impl MediaType {
    /// Every kind.
    pub const ALL: &'static [Self] = &[Self::Png, Self::Jpeg, Self::Gif, Self::Webp];

    /// The media type as HTTP names it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
        }
    }

    /// The inverse of [`MediaType::as_str`], in any case.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str().eq_ignore_ascii_case(name))
    }
}

/// What is known of a picture's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Its kind, by its bytes.
    pub kind: MediaType,
    /// Pixels across, as it is shown.
    pub width: u32,
    /// Pixels down, as it is shown.
    pub height: u32,
}

/// A picture that somebody uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// Its id.
    pub id: Uuid,
    /// Who uploaded it.
    pub owner: UserId,
    /// What it shows.
    pub picture: Picture,
    /// Its bytes.
    pub size: u64,
}

/// Reads the ids of the pictures that a message shows: at most 9, each once.
///
/// # Errors
/// Names `media`, or the first `media[i]` that cannot be accepted.
pub fn read_picture_ids(texts: &[&str]) -> Result<Vec<Uuid>, FieldError> {
    if texts.len() > MEDIA_MAX {
        return Err(FieldError::new("media", format!("must hold 1 to {MEDIA_MAX} ids of pictures")));
    }
    let mut ids = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate() {
        // Only as it was given out: what is compared and stored is one spelling.
        let id = Uuid::try_parse(text).ok().filter(|id| id.to_string() == *text).ok_or_else(|| not_yours(index))?;
        if ids.contains(&id) {
            return Err(FieldError::new(format!("media[{index}]"), "stands twice"));
        }
        ids.push(id);
    }
    Ok(ids)
}

/// The error of a picture that is not there, not the sender's, or not ready: the three are not told apart.
#[must_use]
pub fn not_yours(index: usize) -> FieldError {
    FieldError::new(format!("media[{index}]"), "is no picture that you uploaded")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "01940b5e-7d3f-7000-8000-00000000000a";
    const TWO: &str = "01940b5e-7d3f-7000-8000-00000000000b";

    #[test]
    fn ids_are_read_whole_or_not_at_all() {
        let read = |texts: &[&str]| read_picture_ids(texts).map(|ids| ids.len()).map_err(|error| error.field.into_owned());
        assert_eq!(read(&[ONE]), Ok(1));
        assert_eq!(read(&[ONE, TWO]), Ok(2));
        assert_eq!(read(&[]), Ok(0));
        assert_eq!(read(&[ONE; 10]), Err("media".into()));
        assert_eq!(read(&[ONE, ONE]), Err("media[1]".into()));
        assert_eq!(read(&[ONE, "x"]), Err("media[1]".into()));
        assert_eq!(read(&[&ONE.to_uppercase()]), Err("media[0]".into()));
        assert_eq!(read(&[&ONE.replace('-', "")]), Err("media[0]".into()));
    }
}
