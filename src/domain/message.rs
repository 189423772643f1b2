//! What a message is, and which drafts may become one.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::ids::{ClientKey, ConversationId, Millis, Rev, Seq, UserId};
use super::reaction::Reaction;
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

/// A picture of a message: facts of the upload that never change, kept with the message so that a page needs no second look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaItem {
    /// The upload's id.
    pub id: Uuid,
    /// E.g. `image/png`.
    pub mime_type: String,
    /// Bytes.
    pub size: u64,
    /// Pixels.
    pub width: u32,
    /// Pixels.
    pub height: u32,
}

/// A reference into the host application; what it is called there is looked up when it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Share {
    /// The host's word for what it is.
    pub kind: String,
    /// The host's id of it.
    pub id: String,
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
    /// Uploads to show, in order.
    pub media: Vec<Uuid>,
    /// The message it answers.
    pub reply_to: Option<Seq>,
    /// What it shares.
    pub share: Option<Share>,
    /// Members it names, each once.
    pub mentions: Vec<UserId>,
    /// The client's own clock, kept but never used for order.
    pub client_sent_at: Option<Millis>,
}

impl Draft {
    /// Words alone.
    #[must_use]
    pub fn text(client_id: ClientKey, body: String) -> Self {
        Self {
            client_id,
            kind: MessageKind::Text,
            body,
            media: Vec::new(),
            reply_to: None,
            share: None,
            mentions: Vec::new(),
            client_sent_at: None,
        }
    }

    /// What is compared when a key comes again: everything first sent but `client_sent_at`.
    /// 16 bytes of SHA-256 in lower-case hex over length-prefixed parts, so that no two contents run together.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        let mut add = |part: &str| {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        };
        add(self.kind.as_str());
        add(&self.body);
        // What is absent adds nothing; what is there is preceded by its name, so that no two contents look alike.
        for id in &self.media {
            add("media");
            add(&id.to_string());
        }
        if let Some(seq) = self.reply_to {
            add("reply_to");
            add(&seq.to_string());
        }
        if let Some(share) = &self.share {
            add("share");
            add(&share.kind);
            add(&share.id);
        }
        for user in &self.mentions {
            add("mention");
            add(user.as_str());
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
    /// Its pictures in order.
    pub media: Vec<MediaItem>,
    /// The message it answers.
    pub reply_to: Option<Seq>,
    /// What it shares.
    pub share: Option<Share>,
    /// Members it names.
    pub mentions: Vec<UserId>,
    /// What others put on it, in the order in which each emoji first came.
    pub reactions: Vec<Reaction>,
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
    /// A bare message of this kind without a place; callers fill in what it has.
    #[must_use]
    pub fn unplaced(id: Uuid, conversation: ConversationId, sender: UserId, kind: MessageKind, created_at: Millis) -> Self {
        Self {
            id,
            conversation,
            seq: 0,
            rev: 0,
            sender,
            client_id: None,
            kind,
            body: String::new(),
            media: Vec::new(),
            reply_to: None,
            share: None,
            mentions: Vec::new(),
            reactions: Vec::new(),
            data: None,
            client_sent_at: None,
            created_at,
            edited_at: None,
            deleted_at: None,
            deleted_by: None,
            fingerprint: None,
        }
    }

    /// The message as it is once it was taken back or taken down: its number and its place stay. The rev is still the old one.
    #[must_use]
    pub fn taken_back(&self, by: &UserId, now: Millis) -> Self {
        Self {
            body: String::new(),
            media: Vec::new(),
            reply_to: None,
            share: None,
            mentions: Vec::new(),
            reactions: Vec::new(),
            deleted_at: Some(now.max(self.created_at)),
            deleted_by: Some(by.clone()),
            ..self.clone()
        }
    }

    /// Whether it counts as unread for those who did not send it.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.kind != MessageKind::System && self.deleted_at.is_none()
    }
}
