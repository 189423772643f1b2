//! What a message is, and which drafts may become one.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::ids::{ClientKey, ConversationId, Millis, Rev, Seq, UserId};
use super::refusal::FieldError;

/// Longest body in Unicode scalar values.
pub const BODY_CHARS_MAX: usize = 4_000;

/// What kind of thing a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// Words.
    Text,
    /// Pictures, with or without words.
    Image,
    /// A reference into the host application.
    Share,
    /// The timeline: joins, leaves, renames.
    System,
}

impl MessageKind {
    /// The word used in JSON, Redis and Postgres.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Image => "image",
            Self::Share => "share",
            Self::System => "system",
        }
    }

    /// The inverse of [`MessageKind::as_str`].
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "text" => Some(Self::Text),
            "image" => Some(Self::Image),
            "share" => Some(Self::Share),
            "system" => Some(Self::System),
            _ => None,
        }
    }
}

/// What a client wants to say, proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The idempotency key.
    pub client_id: ClientKey,
    /// What kind of message.
    pub kind: MessageKind,
    /// The words, exactly as sent.
    pub body: String,
    /// The client's own clock, kept but never used for order.
    pub client_sent_at: Option<Millis>,
}

impl Draft {
    /// What is compared when a key comes again: everything first sent but `client_sent_at`.
    /// 16 bytes of SHA-256 in lower-case hex over length-prefixed parts, so that no two contents run together.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        for part in [self.kind.as_str(), self.body.as_str()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        hex::encode(&hash.finalize()[..16])
    }
}

/// Proves a text body: at most 4,000 characters, at least one visible, no U+0000.
///
/// # Errors
/// Names the field `body`.
pub fn check_text_body(body: &str) -> Result<(), FieldError> {
    if body.contains('\0') {
        return Err(FieldError::new("body", "must not hold U+0000"));
    }
    if body.chars().count() > BODY_CHARS_MAX {
        return Err(FieldError::new("body", "must be at most 4000 characters"));
    }
    if !body.chars().any(is_visible) {
        return Err(FieldError::new("body", "must hold at least one visible character"));
    }
    Ok(())
}

/// Whether a character shows anything: neither white space, nor a control, nor a format character.
/// The ranges are the default-ignorable and Cf code points of Unicode 16 that occur outside of private use.
#[must_use]
pub fn is_visible(c: char) -> bool {
    if c.is_whitespace() || c.is_control() {
        return false;
    }
    !matches!(c,
        '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}' | '\u{3164}' | '\u{FFA0}'
        | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}'
        | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}' | '\u{1BCA0}'..='\u{1BCA3}'
        | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}' | '\u{0600}'..='\u{0605}' | '\u{06DD}' | '\u{070F}' | '\u{08E2}')
}

/// A message as the stores hold it and clients see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Made by the gateway, UUIDv7.
    pub id: Uuid,
    /// Where it stands.
    pub conversation: ConversationId,
    /// Its number.
    pub seq: Seq,
    /// The conversation's rev of its last change.
    pub rev: Rev,
    /// Who sent it; for the timeline, who acted.
    pub sender: UserId,
    /// `None` for the timeline.
    pub client_id: Option<ClientKey>,
    /// What kind of thing it is.
    pub kind: MessageKind,
    /// The words; empty when deleted.
    pub body: String,
    /// What a timeline message says, structured.
    pub data: Option<serde_json::Value>,
    /// The client's own clock.
    pub client_sent_at: Option<Millis>,
    /// When the gateway took it.
    pub created_at: Millis,
    /// When it was last edited.
    pub edited_at: Option<Millis>,
    /// When it was deleted.
    pub deleted_at: Option<Millis>,
    /// Who deleted it.
    pub deleted_by: Option<UserId>,
    /// What was first sent, see [`Draft::fingerprint`]; `None` for the timeline.
    pub fingerprint: Option<String>,
}

impl Message {
    /// Whether it counts as unread for those who did not send it.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.kind != MessageKind::System && self.deleted_at.is_none()
    }
}
