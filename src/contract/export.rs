//! A conversation on its way out: what stands on the first and on the last line; each line between them is a message.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::conversation::{ConversationKind, History, Role};
use super::message::Message;
use super::timestamp::Timestamp;
use crate::domain::conversation as domain;
use crate::domain::ids::Kind;
use crate::domain::membership;

/// A line of an export.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum ExportLine {
    /// The first.
    Head(ExportHead),
    /// The last. Without it the export was cut off; `?after=` goes on above the last message that came.
    End(ExportEnd),
    /// Each in between, in ascending seq.
    Message(Box<Message>),
}

/// The first line of an export.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExportHead {
    /// The conversation when the export began.
    pub conversation: ExportConversation,
}

/// The last line of an export.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExportEnd {
    /// What came.
    pub end: ExportTotals,
}

/// What an export held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExportTotals {
    /// Messages on the lines before.
    pub messages: u64,
    /// The head when the export began; nothing above it is in it.
    pub head_seq: u64,
    /// Seqs up to it that will never hold a message, `[from, to]` both included.
    pub voids: Vec<(u64, u64)>,
}

/// A conversation as nobody in particular sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExportConversation {
    /// Stable for ever.
    pub id: String,
    /// The family.
    pub kind: ConversationKind,
    /// A title; null is "named from its members".
    pub title: Option<String>,
    /// A group's owner.
    pub owner: Option<String>,
    /// The two users of a single conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<(String, String)>,
    /// What new members of a group see of the past; only in groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Whether its last member has left.
    pub dissolved: bool,
    /// The last seq given out.
    pub head_seq: u64,
    /// Its rev.
    pub rev: u64,
    /// Its members by user id.
    pub members: Vec<ExportMember>,
}

/// A member in an export.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExportMember {
    /// Who.
    pub user_id: String,
    /// Standing.
    pub role: Role,
    /// Since when.
    pub joined_at: Timestamp,
}

impl ExportHead {
    /// Of a conversation and its members.
    #[must_use]
    pub fn new(conversation: &domain::Conversation, members: &[membership::Member]) -> Self {
        let member = |member: &membership::Member| ExportMember {
            user_id: member.user.to_string(),
            role: member.role.into(),
            joined_at: Timestamp(member.joined_at),
        };
        Self {
            conversation: ExportConversation {
                id: conversation.id.to_string(),
                kind: conversation.kind().into(),
                title: conversation.title.clone(),
                owner: conversation.owner.as_ref().map(ToString::to_string),
                peers: conversation.pair.as_ref().map(|(one, other)| (one.to_string(), other.to_string())),
                history: (conversation.kind() == Kind::Group).then(|| conversation.history.into()),
                created_at: Timestamp(conversation.created_at),
                dissolved: conversation.dissolved,
                head_seq: conversation.head_seq,
                rev: conversation.rev,
                members: members.iter().map(member).collect(),
            },
        }
    }
}

impl ExportEnd {
    /// Of an export that gave so many messages of this conversation.
    #[must_use]
    pub fn new(conversation: &domain::Conversation, messages: u64) -> Self {
        let head_seq = conversation.head_seq;
        let voids =
            conversation.voids.iter().filter(|(from, _)| *from <= head_seq).map(|(from, to)| (*from, (*to).min(head_seq))).collect();
        Self { end: ExportTotals { messages, head_seq, voids } }
    }
}
