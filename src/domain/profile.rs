//! How a user is shown to others, and which names and addresses may be shown.

use url::Url;

use super::ids::Millis;
use super::message::is_visible;
use super::refusal::{FieldError, FieldFault};

/// Longest name in characters after trimming.
pub const NAME_CHARS_MAX: usize = 80;
/// Longest web address in bytes.
pub const WEB_ADDRESS_BYTES_MAX: usize = 2_048;

/// How a user is shown to others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// A name; whatever direction it writes in, it is shown as told and isolated by whoever shows it.
    pub name: Option<String>,
    /// A picture, an http or https URL.
    pub avatar_url: Option<String>,
}

/// What the host application's service says about a user: a field that it does not name stays as it is, `Some(None)` clears it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileChange {
    /// The name.
    pub name: Option<Option<String>>,
    /// The picture.
    pub avatar_url: Option<Option<String>>,
}

/// What a user's token said, and when it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Name and picture; a claim that could not be shown counts as absent.
    pub profile: Profile,
    /// When the token was seen, ms.
    pub seen_at: Millis,
}

/// Proves a name: 1 to 80 characters after trimming, at least one visible, no control characters.
///
/// # Errors
/// Names the field `name`.
pub fn parse_name(text: &str) -> Result<String, FieldError> {
    let trimmed = text.trim();
    let fault = |fault: &'static str| Err(FieldError::new("name", fault));
    if !(1..=NAME_CHARS_MAX).contains(&trimmed.chars().count()) {
        return fault("must be 1 to 80 characters after trimming");
    }
    if !trimmed.chars().any(is_visible) {
        return fault("must hold at least one visible character");
    }
    if trimmed.chars().any(char::is_control) {
        return fault("must hold no control character");
    }
    Ok(trimmed.to_owned())
}

/// Proves an http or https address, which comes back as it was given. What a browser would run (`javascript:`) or read as something else
/// is none.
///
/// # Errors
/// A fault whose field the caller names.
pub fn parse_web_address(text: &str) -> Result<String, FieldFault> {
    if text.len() > WEB_ADDRESS_BYTES_MAX {
        return Err(FieldFault::new("must be at most 2048 bytes"));
    }
    // The parser would leave out spaces and line breaks where others do not.
    let plain = !text.chars().any(|c| c.is_control() || c.is_whitespace());
    let is_web = Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if plain && is_web { Ok(text.to_owned()) } else { Err(FieldFault::new("must be an http or https URL")) }
}

/// Text as it is compared when somebody searches for a name.
#[must_use]
pub fn fold(text: &str) -> String {
    text.to_lowercase()
}

impl Claimed {
    /// From a token's claims. `None` when it makes none: such a token says nothing about the profile.
    #[must_use]
    pub fn of(name: Option<&str>, picture: Option<&str>, seen_at: Millis) -> Option<Self> {
        if name.is_none() && picture.is_none() {
            return None;
        }
        let name = name.and_then(|name| parse_name(name).ok());
        let avatar_url = picture.and_then(|picture| parse_web_address(picture).ok());
        Some(Self { profile: Profile { name, avatar_url }, seen_at })
    }
}

/// Joins what a conversation without a title is called after: the names of its members, without the one who looks at it.
#[must_use]
pub fn name_from_members<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let names: Vec<&str> = names.into_iter().collect();
    (!names.is_empty()).then(|| names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_told() {
        let of = |text: &str| parse_name(text).map_err(|error| error.field);
        assert_eq!(of(" Eve\u{202e} "), Ok("Eve\u{202e}".to_owned()));
        assert_eq!(of(&"中".repeat(80)), Ok("中".repeat(80)));
        for refused in [String::new(), "  ".into(), "中".repeat(81), "a\nb".into(), "\u{200b}".into(), "\u{202e}".into(), "a\u{7f}".into()]
        {
            assert_eq!(of(&refused), Err("name".into()), "{refused:?}");
        }
    }

    #[test]
    fn only_web_addresses_are_addresses() {
        for good in ["https://a.example/x?y=%20#z", "http://127.0.0.1:8080/", "HTTPS://A.example", "https://例え.jp/絵.png"] {
            assert_eq!(parse_web_address(good).as_deref(), Ok(good));
        }
        let long = format!("https://a.example/{}", "x".repeat(2_048));
        for bad in [
            "",
            "javascript:alert(1)",
            "data:image/png;base64,AA",
            "//a.example",
            "ftp://a.example",
            "https://",
            " https://a.example",
            "https://a\n.example",
            &long,
        ] {
            assert!(parse_web_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_claim_that_cannot_be_shown_is_none() {
        assert_eq!(Claimed::of(None, None, 1), None);
        let claimed = Claimed::of(Some("A\u{0}"), Some("https://a.example/p"), 1).map(|c| c.profile);
        assert_eq!(claimed, Some(Profile { name: None, avatar_url: Some("https://a.example/p".into()) }));
    }
}
