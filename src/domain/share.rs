//! What messages may share, and what the host application told about it.

use super::message::{Share, is_visible};
use super::profile::parse_web_address;
use super::refusal::{FieldError, FieldFault};

/// Longest title of what is shared, in characters after trimming.
pub const SHARE_TITLE_CHARS_MAX: usize = 200;
/// Longest type of what is shared, in characters.
const TYPE_CHARS_MAX: usize = 64;
/// Longest id of what is shared, in characters.
const ID_CHARS_MAX: usize = 200;

/// What the host application told about something that messages share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareFacts {
    /// It is there.
    Told(ShareCard),
    /// It is gone.
    Gone,
}

/// How something shared is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareCard {
    /// What it is called.
    pub title: String,
    /// Where it is, an http or https URL.
    pub url: String,
    /// Its picture, an http or https URL.
    pub image_url: Option<String>,
}

impl Share {
    /// Proves a reference.
    ///
    /// # Errors
    /// Names the part that cannot be accepted, `type` or `id`.
    pub fn parse(kind: &str, id: &str) -> Result<Self, FieldError> {
        check_word(kind, TYPE_CHARS_MAX).map_err(|fault| fault.of("type"))?;
        check_word(id, ID_CHARS_MAX).map_err(|fault| fault.of("id"))?;
        Ok(Self { kind: kind.to_owned(), id: id.to_owned() })
    }
}

/// Both parts stand in paths, where `.` and `..` would lead elsewhere.
fn check_word(text: &str, chars_max: usize) -> Result<(), FieldFault> {
    let fits = (1..=chars_max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b));
    if fits && !matches!(text, "." | "..") {
        Ok(())
    } else {
        Err(FieldFault::new(format!("must be 1 to {chars_max} characters of A-Z a-z 0-9 . _ : -")))
    }
}

impl ShareCard {
    /// Proves what the host application tells.
    ///
    /// # Errors
    /// Names the first field that cannot be accepted.
    pub fn prove(title: &str, url: &str, image_url: Option<&str>) -> Result<Self, FieldError> {
        let title = title.trim();
        let fault = |fault: &'static str| Err(FieldError::new("title", fault));
        if !(1..=SHARE_TITLE_CHARS_MAX).contains(&title.chars().count()) {
            return fault("must be 1 to 200 characters after trimming");
        }
        if title.chars().any(char::is_control) || !title.chars().any(is_visible) {
            return fault("must hold at least one visible character and no control character");
        }
        let url = parse_web_address(url).map_err(|fault| fault.of("url"))?;
        let image_url = image_url.map(parse_web_address).transpose().map_err(|fault| fault.of("image_url"))?;
        Ok(Self { title: title.to_owned(), url, image_url })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_plain_words() {
        let of = |kind: &str, id: &str| Share::parse(kind, id).map(|_| String::new()).unwrap_or_else(|error| error.field.into_owned());
        assert_eq!(of("article", "2024-06.v1:x_Y"), "");
        assert_eq!(of(&"t".repeat(64), &"i".repeat(200)), "");
        for (kind, id, field) in
            [("", "1", "type"), ("a/b", "1", "type"), ("a", "..", "id"), ("a", "", "id"), ("a", "é", "id"), ("a", " 1", "id")]
        {
            assert_eq!(of(kind, id), field, "{kind} {id}");
        }
        assert_eq!(of(&"t".repeat(65), "1"), "type");
        assert_eq!(of("t", &"i".repeat(201)), "id");
    }
}
