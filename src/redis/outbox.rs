//! The shard's outbox: one Redis Stream, in which everything that happened in the shard's conversations stands in order.
//!
//! An entry's id is `<shard epoch>-<n>`, given by the script that made the change; no clock takes part. Its fields:
//!
//! | field | holds |
//! |---|---|
//! | `c` | conversation id |
//! | `r` | the conversation's rev of this change |
//! | `v` | membership version at that time |
//! | `t` | when, ms |
//! | `q` | seq of the message, absent when the change has none |
//! | `b` | the message's JSON ([`StoredMessage`](super::stored_form::StoredMessage)), absent when the change has none |
//! | `x` | the rest ([`Change`]) as JSON, absent when there is nothing more to say |

use std::fmt;

use super::stored_form::{Change, Unreadable};
use crate::domain::ids::{ConversationId, Millis, Rev, Seq};
use crate::domain::position::EntryId;

/// Ends the code of an event that leaves no log entry and reaches open streams alone.
pub const LIVE_MARK: char = '~';

/// `<shard epoch>-<n>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OutboxId {
    /// The shard's epoch.
    pub epoch: u64,
    /// Counter within the epoch, from 1.
    pub n: u64,
}

impl OutboxId {
    /// Reads `epoch-n`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        EntryId::parse(text).map(|id| Self { epoch: id.ms, n: id.n })
    }
}

impl fmt::Display for OutboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.n)
    }
}

/// One entry, read.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxEntry {
    /// Its place.
    pub id: OutboxId,
    /// Where it happened.
    pub conversation: ConversationId,
    /// The conversation's rev of the change.
    pub rev: Rev,
    /// Membership version.
    pub members_version: u64,
    /// When.
    pub at: Millis,
    /// The message's seq and JSON.
    pub message: Option<(Seq, String)>,
    /// The rest.
    pub change: Change,
}

impl OutboxEntry {
    /// Reads an entry from its stream fields.
    ///
    /// # Errors
    /// When a field is missing or not in its form.
    pub fn parse(id: OutboxId, fields: &[(String, String)]) -> Result<Self, Unreadable> {
        let field = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let number = |name: &str| field(name).and_then(|v| v.parse::<u64>().ok());
        let conversation = field("c").and_then(ConversationId::parse).ok_or(Unreadable("outbox conversation"))?;
        let message = match (number("q"), field("b")) {
            (Some(seq), Some(json)) => Some((seq, json.to_owned())),
            (None, None) => None,
            _ => return Err(Unreadable("outbox message")),
        };
        let change = match field("x") {
            Some(json) => serde_json::from_str(json).map_err(|_| Unreadable("outbox change"))?,
            None => Change::default(),
        };
        Ok(Self {
            id,
            conversation,
            rev: number("r").ok_or(Unreadable("outbox rev"))?,
            members_version: number("v").ok_or(Unreadable("outbox members version"))?,
            at: field("t").and_then(|v| v.parse().ok()).ok_or(Unreadable("outbox time"))?,
            message,
            change,
        })
    }
}
