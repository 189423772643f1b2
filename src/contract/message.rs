//! Messages on the wire: what comes back, and the pages they come in.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::share::Share;
use super::timestamp::Timestamp;
use crate::domain::ids::UserId;
use crate::domain::message as domain;
use crate::domain::quote::{Quote as DomainQuote, ShownMessage};

/// What kind of thing a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    /// Words.
    Text,
    /// Pictures, with or without words.
    Image,
    /// A reference into the host application.
    Share,
    /// The timeline; made by the service alone.
    System,
}

impl From<domain::MessageKind> for MessageKind {
    fn from(kind: domain::MessageKind) -> Self {
        match kind {
            domain::MessageKind::Text => Self::Text,
            domain::MessageKind::Image => Self::Image,
            domain::MessageKind::Share => Self::Share,
            domain::MessageKind::System => Self::System,
        }
    }
}

/// A quoted message, built when it is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Quote {
    /// One that the reader may see.
    Seen(SeenQuote),
    /// One from before the reader's joining.
    Hidden(HiddenQuote),
}

/// A quoted message that the reader may not see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HiddenQuote {
    /// Its seq.
    pub seq: u64,
    /// Always true.
    pub hidden: bool,
}

/// A quoted message that the reader may see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SeenQuote {
    /// Its seq.
    pub seq: u64,
    /// Its id.
    pub id: Uuid,
    /// Who said it.
    pub sender: String,
    /// What kind of thing it is.
    pub kind: MessageKind,
    /// At most 120 characters of it; empty when deleted.
    pub preview: String,
    /// Whether it was deleted.
    pub deleted: bool,
}

impl From<&DomainQuote> for Quote {
    fn from(quote: &DomainQuote) -> Self {
        match quote {
            DomainQuote::Seen { seq, id, sender, kind, preview, deleted } => Self::Seen(SeenQuote {
                seq: *seq,
                id: *id,
                sender: sender.to_string(),
                kind: (*kind).into(),
                preview: preview.clone(),
                deleted: *deleted,
            }),
            DomainQuote::Hidden { seq } => Self::Hidden(HiddenQuote { seq: *seq, hidden: true }),
        }
    }
}

/// A picture of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MediaItem {
    /// The upload's id; the picture is at `/v1/media/{id}`.
    pub id: String,
    /// Its place in the message's pictures, from 0.
    pub position: u64,
    /// E.g. `image/png`.
    pub mime_type: String,
    /// Bytes.
    pub size: u64,
    /// Pixels.
    pub width: u32,
    /// Pixels.
    pub height: u32,
}

/// How often one emoji stands on a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Reaction {
    /// One grapheme cluster.
    pub emoji: String,
    /// How many users.
    pub count: u64,
    /// Whether the caller is one of them; absent in events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub me: Option<bool>,
}

/// A message as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Message {
    /// UUIDv7, made by the server.
    pub id: Uuid,
    /// Where it stands.
    pub conversation_id: String,
    /// Its number in the conversation, from 1 without a gap.
    pub seq: u64,
    /// The conversation's rev of its last change.
    pub rev: u64,
    /// Who sent it; in the timeline, who acted.
    pub sender: String,
    /// The sender's idempotency key; null in the timeline.
    pub client_id: Option<String>,
    /// What kind of thing it is.
    pub kind: MessageKind,
    /// The words, exactly as sent; empty when deleted.
    pub body: String,
    /// Its pictures in order; empty when deleted.
    pub media: Vec<MediaItem>,
    /// What it answers.
    pub reply_to: Option<Quote>,
    /// What it shares.
    pub share: Option<Share>,
    /// Users it names.
    pub mentions: Vec<String>,
    /// What others put on it.
    pub reactions: Vec<Reaction>,
    /// What a timeline message says, structured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<serde_json::Value>,
    /// The client's own clock; never used for order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_sent_at: Option<Timestamp>,
    /// When the server took it.
    pub created_at: Timestamp,
    /// When it was last edited.
    pub edited_at: Option<Timestamp>,
    /// When it was deleted.
    pub deleted_at: Option<Timestamp>,
    /// Who deleted it.
    pub deleted_by: Option<String>,
}

impl From<&ShownMessage> for Message {
    fn from(shown: &ShownMessage) -> Self {
        let message = &shown.message;
        Self {
            id: message.id,
            conversation_id: message.conversation.to_string(),
            seq: message.seq,
            rev: message.rev,
            sender: message.sender.to_string(),
            client_id: message.client_id.as_ref().map(ToString::to_string),
            kind: message.kind.into(),
            body: if message.deleted_at.is_some() { String::new() } else { message.body.clone() },
            media: message.media.iter().zip(0..).map(|(item, position)| media_item(item, position)).collect(),
            reply_to: shown.quote.as_ref().map(Quote::from),
            share: message.share.as_ref().map(|share| Share::new(share, shown.shared.as_ref())),
            mentions: message.mentions.iter().map(ToString::to_string).collect(),
            reactions: reactions(message, shown.reader.as_ref()),
            data: message.data.clone(),
            client_sent_at: message.client_sent_at.map(Timestamp),
            created_at: Timestamp(message.created_at),
            edited_at: message.edited_at.map(Timestamp),
            deleted_at: message.deleted_at.map(Timestamp),
            deleted_by: message.deleted_by.as_ref().map(ToString::to_string),
        }
    }
}

fn media_item(item: &domain::MediaItem, position: u64) -> MediaItem {
    MediaItem {
        id: item.id.to_string(),
        position,
        mime_type: item.mime_type.clone(),
        size: item.size,
        width: item.width,
        height: item.height,
    }
}

/// A message's reactions as `reader` sees them; in events nobody in particular does.
#[must_use]
pub fn reactions(message: &domain::Message, reader: Option<&UserId>) -> Vec<Reaction> {
    message
        .reactions
        .iter()
        .map(|r| Reaction { emoji: r.emoji.clone(), count: r.users.len() as u64, me: reader.map(|reader| r.users.contains(reader)) })
        .collect()
}

/// Messages in ascending seq.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MessagePage {
    /// The messages.
    pub items: Vec<Message>,
    /// Whether there are visible ones before the first.
    pub has_more_before: bool,
    /// Whether there are some after the last.
    pub has_more_after: bool,
    /// The last seq given out.
    pub head_seq: u64,
    /// Seqs that will never hold a message, `[from, to]` both included.
    pub voids: Vec<(u64, u64)>,
}

/// Messages that changed, in ascending rev.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangesPage {
    /// The messages as they are now.
    pub items: Vec<Message>,
    /// Ask again with this `since_rev`.
    pub next_rev: u64,
    /// Whether there is more after `next_rev`.
    pub has_more: bool,
    /// The last seq given out.
    pub head_seq: u64,
    /// Seqs that will never hold a message, `[from, to]` both included.
    pub voids: Vec<(u64, u64)>,
}

/// Either shape of answer that the history gives: changes when `since_rev` was asked, else a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum MessagesAnswer {
    /// In ascending rev.
    Changes(ChangesPage),
    /// In ascending seq.
    Page(MessagePage),
}

/// How far a message has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageState {
    /// In Redis.
    Accepted,
    /// In Postgres.
    Archived,
    /// No message has this key.
    Unknown,
}

/// What became of an idempotency key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KeyState {
    /// How far it has got.
    pub state: MessageState,
    /// The message, unless unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
}

/// A message's reactions after one was put or taken back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReactionsOfMessage {
    /// The message.
    pub seq: u64,
    /// Its rev now.
    pub rev: u64,
    /// What is on it.
    pub reactions: Vec<Reaction>,
}

/// One version of a message's words, for moderators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MessageVersion {
    /// Rev of the message then.
    pub rev: u64,
    /// Since when these words stood.
    pub at: Timestamp,
    /// The words.
    pub body: String,
    /// Ids of its pictures.
    pub media: Vec<String>,
}

/// What a message said before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VersionList {
    /// Oldest first.
    pub items: Vec<MessageVersion>,
}

/// Somebody who has read a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Reader {
    /// Who.
    pub user_id: String,
    /// When their watermark last moved.
    pub read_at: Timestamp,
}

/// Who has read a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReaderList {
    /// How many.
    pub count: u64,
    /// Without the sender, the latest first.
    pub items: Vec<Reader>,
}
