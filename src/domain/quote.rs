//! Quotes: what a message shows of the one it answers. Built when read, so that an edit shows and a deletion shows.

use unicode_segmentation::UnicodeSegmentation;
use uuid::Uuid;

use super::ids::{Seq, UserId};
use super::message::{Message, MessageKind};
use super::share::ShareFacts;

/// Longest preview in Unicode scalar values.
pub const PREVIEW_CHARS_MAX: usize = 120;

/// A quoted message as one reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quote {
    /// The reader may see it.
    Seen {
        /// Its number.
        seq: Seq,
        /// Its id.
        id: Uuid,
        /// Who said it.
        sender: UserId,
        /// What kind of thing it is.
        kind: MessageKind,
        /// The beginning of its words; empty when deleted.
        preview: String,
        /// Whether it was deleted.
        deleted: bool,
    },
    /// It lies before the reader's joining.
    Hidden {
        /// Its number.
        seq: Seq,
    },
}

impl Quote {
    /// The quote of a message.
    #[must_use]
    pub fn of(message: &Message) -> Self {
        let deleted = message.deleted_at.is_some();
        Self::Seen {
            seq: message.seq,
            id: message.id,
            sender: message.sender.clone(),
            kind: message.kind,
            preview: if deleted { String::new() } else { preview(&without_placeholders(message)) },
            deleted,
        }
    }
}

/// A message to be shown to somebody, with what is looked up for them when it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownMessage {
    /// The message.
    pub message: Message,
    /// What it answers.
    pub quote: Option<Quote>,
    /// What the host application told about what it shares; `None` when that is not known.
    pub shared: Option<ShareFacts>,
    /// Whose own reactions are marked; `None` in events.
    pub reader: Option<UserId>,
}

impl ShownMessage {
    /// A message of which nothing is looked up, for nobody in particular.
    #[must_use]
    pub fn plain(message: Message) -> Self {
        Self { message, quote: None, shared: None, reader: None }
    }
}

/// The words of a message without the places of its pictures.
pub(crate) fn without_placeholders(message: &Message) -> String {
    if message.kind != MessageKind::Image {
        return message.body.clone();
    }
    let mut words = message.body.clone();
    for item in &message.media {
        words = words.replace(&format!("![img:{}]", item.id), " ");
    }
    words.trim().to_owned()
}

/// The beginning of a text, cut between grapheme clusters: half a family is another picture.
fn preview(text: &str) -> String {
    let mut chars = 0;
    let mut end = 0;
    for (at, cluster) in text.grapheme_indices(true) {
        chars += cluster.chars().count();
        if chars > PREVIEW_CHARS_MAX {
            break;
        }
        end = at + cluster.len();
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_is_cut_between_clusters() {
        let family = "\u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467}";
        let cases = [
            ("short".to_owned(), "short".to_owned()),
            ("x".repeat(121), "x".repeat(120)),
            (format!("{}{family}", "x".repeat(118)), "x".repeat(118)),
            (format!("{}{family}tail", "x".repeat(115)), format!("{}{family}", "x".repeat(115))),
            ("中".repeat(200), "中".repeat(120)),
        ];
        for (text, expected) in cases {
            assert_eq!(preview(&text), expected);
        }
    }
}
