//! Reactions: who put which emoji on a message.

use unicode_segmentation::UnicodeSegmentation;

use super::ids::UserId;
use super::message::{Message, is_visible};
use super::refusal::{FieldError, FieldFault, Refusal};

/// Most different emoji on one message.
pub const EMOJI_KINDS_MAX: usize = 20;
/// Longest emoji in bytes of UTF-8.
pub const EMOJI_BYTES_MAX: usize = 64;
/// Asks for the picture form of a character; two spellings that differ only in it are one emoji.
const VARIATION: char = '\u{FE0F}';

/// One grapheme cluster of at most 64 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Emoji(String);

impl Emoji {
    /// Proves an emoji.
    ///
    /// # Errors
    /// A sentence part that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, FieldFault> {
        if text.is_empty() || text.len() > EMOJI_BYTES_MAX {
            return Err(FieldFault::new(format!("must be 1 to {EMOJI_BYTES_MAX} bytes long")));
        }
        if text.graphemes(true).count() != 1 {
            return Err(FieldFault::new("must be a single emoji"));
        }
        if text.chars().any(char::is_control) || !text.chars().any(is_visible) {
            return Err(FieldFault::new("must be a visible emoji"));
        }
        Ok(Self(text.to_owned()))
    }

    /// As it was spelled.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether both are the same emoji, U+FE0F not told apart.
    #[must_use]
    pub fn is(&self, other: &str) -> bool {
        self.0.chars().filter(|c| *c != VARIATION).eq(other.chars().filter(|c| *c != VARIATION))
    }
}

/// One emoji on a message and who put it there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reaction {
    /// As it was first spelled.
    pub emoji: String,
    /// Who, in the order in which they did; never empty.
    pub users: Vec<UserId>,
}

/// Puts an emoji on a message, or takes it back: the reactions afterwards, `None` when everything was so already.
///
/// # Errors
/// [`Refusal::Deleted`] for a deleted message, [`Refusal::Invalid`] naming `emoji` when there are twenty others.
pub fn react(message: &Message, user: &UserId, emoji: &Emoji, put: bool) -> Result<Option<Vec<Reaction>>, Refusal> {
    if message.deleted_at.is_some() {
        return Err(Refusal::Deleted);
    }
    let mut reactions = message.reactions.clone();
    let place = reactions.iter().position(|r| emoji.is(&r.emoji));
    match (place, put) {
        (Some(place), true) => {
            if reactions[place].users.contains(user) {
                return Ok(None);
            }
            reactions[place].users.push(user.clone());
        }
        (None, true) => {
            if reactions.len() >= EMOJI_KINDS_MAX {
                return Err(FieldError::new("emoji", format!("cannot be added: the message has {EMOJI_KINDS_MAX} different ones")).into());
            }
            reactions.push(Reaction { emoji: emoji.as_str().to_owned(), users: vec![user.clone()] });
        }
        (Some(place), false) => {
            let users = &mut reactions[place].users;
            let before = users.len();
            users.retain(|u| u != user);
            if users.len() == before {
                return Ok(None);
            }
            if users.is_empty() {
                reactions.remove(place);
            }
        }
        (None, false) => return Ok(None),
    }
    Ok(Some(reactions))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emoji_is_one_visible_cluster_of_at_most_64_bytes() {
        for good in [
            "\u{1F44D}",
            "\u{1F44D}\u{1F3FD}",
            "\u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467}",
            "\u{1F1E9}\u{1F1EA}",
            "\u{2764}\u{FE0F}",
            "!",
        ] {
            assert!(Emoji::parse(good).is_ok(), "{good}");
        }
        let long = format!("a{}", "\u{0301}".repeat(32));
        assert_eq!(long.len(), 65);
        for bad in ["", "\u{1F44D}\u{1F44D}", "ab", "\u{200B}", " ", "\n", long.as_str()] {
            assert!(Emoji::parse(bad).is_err(), "{bad:?}");
        }
        assert!(Emoji::parse("\u{2764}\u{FE0F}").unwrap().is("\u{2764}"));
        assert!(!Emoji::parse("\u{1F44D}\u{1F3FD}").unwrap().is("\u{1F44D}"));
    }
}
