//! Messages on the wire: what is sent, what comes back, and the pages they come in.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::timestamp::Timestamp;
use crate::domain::ids::{ClientKey, UserId};
use crate::domain::message::{self as domain, Draft, check_text_body};
use crate::domain::refusal::FieldError;

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
pub struct Quote {
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

/// A reference into the host application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Share {
    /// The host's word for what it is.
    pub r#type: String,
    /// The host's id of it.
    pub id: String,
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
    /// Media ids in order.
    pub media: Vec<String>,
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

impl From<&domain::Message> for Message {
    fn from(message: &domain::Message) -> Self {
        Self {
            id: message.id,
            conversation_id: message.conversation.to_string(),
            seq: message.seq,
            rev: message.rev,
            sender: message.sender.to_string(),
            client_id: message.client_id.as_ref().map(ToString::to_string),
            kind: message.kind.into(),
            body: if message.deleted_at.is_some() { String::new() } else { message.body.clone() },
            media: Vec::new(),
            reply_to: None,
            share: None,
            mentions: Vec::new(),
            reactions: Vec::new(),
            data: message.data.clone(),
            client_sent_at: message.client_sent_at.map(Timestamp),
            created_at: Timestamp(message.created_at),
            edited_at: message.edited_at.map(Timestamp),
            deleted_at: message.deleted_at.map(Timestamp),
            deleted_by: message.deleted_by.as_ref().map(ToString::to_string),
        }
    }
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

/// A message to send.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SendMessage {
    /// The idempotency key, 1 to 128 bytes, one per send intent, kept through every retry; a UUIDv7 is best. May stand in the header `Idempotency-Key` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// `text` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<MessageKind>,
    /// At most 4,000 characters, at least one visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Media ids; not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub media: Option<serde_json::Value>,
    /// A seq to answer; not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub reply_to: Option<serde_json::Value>,
    /// A reference into the host application; not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Share>)]
    pub share: Option<serde_json::Value>,
    /// Users to name; not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub mentions: Option<serde_json::Value>,
    /// The client's own clock, kept but never used for order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_sent_at: Option<Timestamp>,
    /// The other one of a single conversation, which is then made in the same step if it is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
}

impl SendMessage {
    /// The idempotency key out of the body or the header `Idempotency-Key`.
    ///
    /// # Errors
    /// Names `client_id` when there is none, when it cannot be one, or when the two disagree.
    pub fn key(&self, header: Option<&str>) -> Result<ClientKey, FieldError> {
        let text = match (self.client_id.as_deref(), header) {
            (Some(body), Some(header)) if body != header => {
                return Err(FieldError::new("client_id", "differs from the header Idempotency-Key"));
            }
            (Some(text), _) | (None, Some(text)) => text,
            (None, None) => {
                return Err(FieldError::new(
                    "client_id",
                    "is missing: make one key for each thing the user sends, and keep it through retries",
                ));
            }
        };
        ClientKey::parse(text).map_err(|fault| fault.of("client_id"))
    }

    /// The other user that the sender named.
    ///
    /// # Errors
    /// Names `peer` when it cannot be a user id.
    pub fn peer(&self) -> Result<Option<UserId>, FieldError> {
        self.peer.as_deref().map(|text| UserId::parse(text).map_err(|fault| fault.of("peer"))).transpose()
    }

    /// The proven draft under this key.
    ///
    /// # Errors
    /// Names the first field that cannot be accepted.
    pub fn draft(&self, client_id: ClientKey) -> Result<Draft, FieldError> {
        match self.kind {
            None | Some(MessageKind::Text) => {}
            Some(MessageKind::System) => return Err(FieldError::new("kind", "'system' is made by the service alone")),
            Some(MessageKind::Image | MessageKind::Share) => return Err(FieldError::new("kind", "is not supported yet")),
        }
        for (name, value) in [("media", &self.media), ("reply_to", &self.reply_to), ("share", &self.share), ("mentions", &self.mentions)] {
            let empty = value.as_ref().is_none_or(|v| v.is_null() || v.as_array().is_some_and(Vec::is_empty));
            if !empty {
                return Err(FieldError::new(name, "is not supported yet"));
            }
        }
        let Some(body) = self.body.as_deref() else { return Err(FieldError::new("body", "is missing")) };
        check_text_body(body)?;
        Ok(Draft { client_id, kind: domain::MessageKind::Text, body: body.to_owned(), client_sent_at: self.client_sent_at.map(|t| t.0) })
    }
}
