//! Messages, read back. The primary only: what was committed a moment ago must be there.

use serde::{Deserialize, Serialize};
use sqlx::types::Json;
use uuid::Uuid;

use super::connection::{Archive, bound, read, read_conversation, read_user};
use super::error::{ArchiveError, Fault};
use crate::domain::ids::{ClientKey, ConversationId, Millis, Rev, Seq, UserId};
use crate::domain::message::{MediaItem, Message, MessageKind, Share};
use crate::domain::reaction::Reaction;

/// What only some messages have, as it stands in the column `content`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Content {
    /// Pictures: id, type, bytes, width, height.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    media: Vec<(Uuid, String, u64, u32, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply_to: Option<Seq>,
    /// Type and id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    share: Option<(String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    mentions: Vec<String>,
    /// Emoji and users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reactions: Vec<(String, Vec<String>)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_sent_at: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleted_by: Option<String>,
}

impl Content {
    /// The column's value for a message; `None` when there is nothing to keep.
    pub(super) fn of(message: &Message) -> Option<Self> {
        let content = Self {
            media: message.media.iter().map(|m| (m.id, m.mime_type.clone(), m.size, m.width, m.height)).collect(),
            reply_to: message.reply_to,
            share: message.share.as_ref().map(|s| (s.kind.clone(), s.id.clone())),
            mentions: message.mentions.iter().map(ToString::to_string).collect(),
            reactions: message.reactions.iter().map(|r| (r.emoji.clone(), r.users.iter().map(ToString::to_string).collect())).collect(),
            data: message.data.clone(),
            client_sent_at: message.client_sent_at,
            deleted_by: message.deleted_by.as_ref().map(ToString::to_string),
        };
        (content != Self::default()).then_some(content)
    }
}

/// A row of `messages`; every SELECT names these columns.
#[derive(sqlx::FromRow)]
pub(super) struct MessageRow {
    conv_id: String,
    seq: i64,
    id: Uuid,
    sender: String,
    client_id: Option<String>,
    kind: String,
    body: String,
    content: Option<Json<Content>>,
    fingerprint: Option<String>,
    rev: i64,
    created_at_ms: i64,
    edited_at_ms: Option<i64>,
    deleted_at_ms: Option<i64>,
}

impl MessageRow {
    pub(super) fn into_message(self) -> Result<Message, Fault> {
        let content = self.content.map(|c| c.0).unwrap_or_default();
        Ok(Message {
            id: self.id,
            conversation: read_conversation(&self.conv_id)?,
            seq: read(self.seq)?,
            rev: read(self.rev)?,
            sender: read_user(&self.sender)?,
            client_id: self.client_id.map(|k| ClientKey::parse(&k)).transpose().map_err(|_| Fault::Data("a stored client id is none"))?,
            kind: MessageKind::parse(&self.kind).ok_or(Fault::Data("a stored message kind is none"))?,
            body: self.body,
            media: content
                .media
                .into_iter()
                .map(|(id, mime_type, size, width, height)| MediaItem { id, mime_type, size, width, height })
                .collect(),
            reply_to: content.reply_to,
            share: content.share.map(|(kind, id)| Share { kind, id }),
            mentions: read_users(&content.mentions)?,
            reactions: content
                .reactions
                .into_iter()
                .map(|(emoji, users)| Ok(Reaction { emoji, users: read_users(&users)? }))
                .collect::<Result<_, Fault>>()?,
            data: content.data,
            client_sent_at: content.client_sent_at,
            created_at: self.created_at_ms,
            edited_at: self.edited_at_ms,
            deleted_at: self.deleted_at_ms,
            deleted_by: content.deleted_by.as_deref().map(read_user).transpose()?,
            fingerprint: self.fingerprint,
        })
    }
}

fn read_users(names: &[String]) -> Result<Vec<UserId>, Fault> {
    names.iter().map(|name| read_user(name)).collect()
}

pub(super) fn into_messages(rows: Vec<MessageRow>) -> Result<Vec<Message>, Fault> {
    rows.into_iter().map(MessageRow::into_message).collect()
}

impl Archive {
    /// The message that a sender's key names, if it is archived.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn find_by_key(
        &self,
        conversation: &ConversationId,
        sender: &UserId,
        client_id: &ClientKey,
    ) -> Result<Option<Message>, ArchiveError> {
        let (conversation, sender, client_id) = (conversation.clone(), sender.clone(), client_id.clone());
        self.unit("find_by_key", move |connection| {
            let (conversation, sender, client_id) = (conversation.clone(), sender.clone(), client_id.clone());
            Box::pin(async move {
                let row: Option<MessageRow> = sqlx::query_as(
                    "SELECT conv_id, seq, id, sender, client_id, kind, body, content, fingerprint, rev,
                            created_at_ms, edited_at_ms, deleted_at_ms
                     FROM messages WHERE conv_id = $1 AND sender = $2 AND client_id = $3",
                )
                .bind(conversation.as_str())
                .bind(sender.as_str())
                .bind(client_id.as_str())
                .fetch_optional(connection)
                .await?;
                row.map(MessageRow::into_message).transpose()
            })
        })
        .await
    }

    /// The last `limit` messages below `before`, not below `lowest`, ascending.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn messages_before(
        &self,
        conversation: &ConversationId,
        before: Seq,
        lowest: Seq,
        limit: u64,
    ) -> Result<Vec<Message>, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("messages_before", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                let rows: Vec<MessageRow> = sqlx::query_as(
                    "SELECT conv_id, seq, id, sender, client_id, kind, body, content, fingerprint, rev,
                            created_at_ms, edited_at_ms, deleted_at_ms
                     FROM messages WHERE conv_id = $1 AND seq < $2 AND seq >= $3 ORDER BY seq DESC LIMIT $4",
                )
                .bind(conversation.as_str())
                .bind(bound(before))
                .bind(bound(lowest))
                .bind(bound(limit))
                .fetch_all(connection)
                .await?;
                let mut messages = into_messages(rows)?;
                messages.reverse();
                Ok(messages)
            })
        })
        .await
    }

    /// The first `limit` messages above `after`, not above `highest`, ascending.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn messages_after(
        &self,
        conversation: &ConversationId,
        after: Seq,
        highest: Seq,
        limit: u64,
    ) -> Result<Vec<Message>, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("messages_after", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                let rows: Vec<MessageRow> = sqlx::query_as(
                    "SELECT conv_id, seq, id, sender, client_id, kind, body, content, fingerprint, rev,
                            created_at_ms, edited_at_ms, deleted_at_ms
                     FROM messages WHERE conv_id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4",
                )
                .bind(conversation.as_str())
                .bind(bound(after))
                .bind(bound(highest))
                .bind(bound(limit))
                .fetch_all(connection)
                .await?;
                into_messages(rows)
            })
        })
        .await
    }

    /// The first `limit` messages last changed after `since`, not below `lowest`, in ascending rev.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn messages_since_rev(
        &self,
        conversation: &ConversationId,
        since: Rev,
        lowest: Seq,
        limit: u64,
    ) -> Result<Vec<Message>, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("messages_since_rev", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                let rows: Vec<MessageRow> = sqlx::query_as(
                    "SELECT conv_id, seq, id, sender, client_id, kind, body, content, fingerprint, rev,
                            created_at_ms, edited_at_ms, deleted_at_ms
                     FROM messages WHERE conv_id = $1 AND rev > $2 AND seq >= $3 ORDER BY rev, seq LIMIT $4",
                )
                .bind(conversation.as_str())
                .bind(bound(since))
                .bind(bound(lowest))
                .bind(bound(limit))
                .fetch_all(connection)
                .await?;
                into_messages(rows)
            })
        })
        .await
    }

    /// The messages that stand on these numbers, ascending; numbers without one are left out.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn messages_at(&self, conversation: &ConversationId, seqs: &[Seq]) -> Result<Vec<Message>, ArchiveError> {
        if seqs.is_empty() {
            return Ok(Vec::new());
        }
        let conversation = conversation.clone();
        let seqs: Vec<i64> = seqs.iter().map(|seq| bound(*seq)).collect();
        self.unit("messages_at", move |connection| {
            let (conversation, seqs) = (conversation.clone(), seqs.clone());
            Box::pin(async move {
                let rows: Vec<MessageRow> = sqlx::query_as(
                    "SELECT conv_id, seq, id, sender, client_id, kind, body, content, fingerprint, rev,
                            created_at_ms, edited_at_ms, deleted_at_ms
                     FROM messages WHERE conv_id = $1 AND seq = ANY($2) ORDER BY seq",
                )
                .bind(conversation.as_str())
                .bind(seqs)
                .fetch_all(connection)
                .await?;
                into_messages(rows)
            })
        })
        .await
    }

    /// The number from `lowest` on, but not `lowest` itself, on which this very message stands.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn seq_of(&self, conversation: &ConversationId, id: Uuid, lowest: Seq) -> Result<Option<Seq>, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("seq_of", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                let row: Option<(i64,)> = sqlx::query_as("SELECT seq FROM messages WHERE conv_id = $1 AND seq > $2 AND id = $3 LIMIT 1")
                    .bind(conversation.as_str())
                    .bind(bound(lowest))
                    .bind(id)
                    .fetch_optional(connection)
                    .await?;
                row.map(|(seq,)| read(seq)).transpose()
            })
        })
        .await
    }

    /// Whether this very message is committed on this number: what `ack=archived` answers by.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn is_archived(&self, conversation: &ConversationId, seq: Seq, id: Uuid) -> Result<bool, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("is_archived", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                let (there,): (bool,) =
                    sqlx::query_as("SELECT EXISTS (SELECT 1 FROM messages WHERE conv_id = $1 AND seq = $2 AND id = $3)")
                        .bind(conversation.as_str())
                        .bind(bound(seq))
                        .bind(id)
                        .fetch_one(connection)
                        .await?;
                Ok(there)
            })
        })
        .await
    }
}
