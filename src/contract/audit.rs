//! What moderators get to know about the state of a conversation.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::audit::Finding;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditFinding {
    /// A stable word, e.g. `hole`; `seqline audit --help` explains each.
    pub code: String,
    /// What it means, for a person.
    pub detail: String,
    /// The conversation, when it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// The number concerned, of a range the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The last number of a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_seq: Option<u64>,
    /// The user concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// What else is concerned: a picture's id, an idempotency key, a shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// More about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl From<&Finding> for AuditFinding {
    fn from(finding: &Finding) -> Self {
        Self {
            code: finding.code.as_str().to_owned(),
            detail: finding.code.meaning().to_owned(),
            conversation_id: finding.conversation.as_ref().map(ToString::to_string),
            seq: finding.seq,
            to_seq: finding.to_seq,
            user_id: finding.user.clone(),
            subject: finding.subject.clone(),
            note: finding.note.clone(),
        }
    }
}

/// The state of a conversation in both stores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConversationAudit {
    /// Which.
    pub conversation_id: String,
    /// The last number given out.
    pub head_seq: u64,
    /// The newest message in the archive.
    pub archived_to: u64,
    /// Whether every number up to the head is a message or void.
    pub contiguous: bool,
    /// Numbers that name two messages, or whose message stands on another one too.
    pub duplicates: Vec<u64>,
    /// Ranges that will never hold a message, both ends included.
    pub voids: Vec<(u64, u64)>,
    /// Numbers given out above the newest one in the archive, on their way there.
    pub backlog: u64,
    /// Everything that is wrong; empty is good.
    pub findings: Vec<AuditFinding>,
}
