//! The head of a conversation in Redis: the hash from which its numbers come.
//!
//! | field | holds |
//! |---|---|
//! | `state` | `open`, or `closed` while it is being installed or cooled (`closing` then names the cooling) |
//! | `lease_epoch`, `lease_from`, `lease_to` | the block of numbers it may give out, and the shard epoch in which it was granted |
//! | `next`, `head`, `rev` | next seq to give, last seq given, last rev given |
//! | `made` | `0` in a shell that only holds a lease, for a pair that never wrote |
//! | `title`, `owner`, `pair`, `history`, `created_at`, `updated_at`, `dissolved`, `voids` | the common facts; absent is none |
//! | `mver`, `mcount` | membership version (the rev of the last change of members or facts) and how many members |
//! | `keys_since`, `keys_all`, `kgen`, `kgen_at` | from when on Redis knows every key, whether that is since the making, and the current generation of keys |
//! | `floor`, `under_rev` | lowest seq in the window, and the highest rev of a message that left it or was changed below it and left |
//! | `block_low`, `block_high` | since when the bytewise lower one of a pair blocks the other, and the other way round, ms; absent or empty is not |
//! | `cleared_max` | highest seq that any member has cleared to |
//! | `last_request` | id of the last change applied |
//! | `moved:<message id>` | number that a message got in the place of one that another message had in the archive |

use std::collections::HashMap;

use super::reply::Reply;
use super::stored_form::Unreadable;
use crate::domain::block::Blocks;
use crate::domain::conversation::{Conversation, History};
use crate::domain::ids::{ConversationId, Millis, Seq, UserId};

/// The fields that hold since when the lower one of a pair blocks the higher one, and the higher one the lower one.
pub const BLOCK_FIELDS: (&str, &str) = ("block_low", "block_high");

/// The head, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// The common facts.
    pub conversation: Conversation,
    /// Whether the conversation exists for its members.
    pub made: bool,
    /// Whether writes are taken.
    pub open: bool,
    /// Who is cooling it.
    pub closing: Option<String>,
    /// Epoch of the lease.
    pub lease_epoch: u64,
    /// First seq of the lease.
    pub lease_from: Seq,
    /// Last seq of the lease.
    pub lease_to: Seq,
    /// Membership version.
    pub members_version: u64,
    /// Lowest seq in the window.
    pub floor: Seq,
    /// From when on Redis knows every key.
    pub keys_since: Millis,
    /// Highest seq that any member has cleared to.
    pub cleared_max: Seq,
    /// Id of the last change applied.
    pub last_request: Option<String>,
}

impl Head {
    /// Reads the flat list that `HGETALL` gives.
    ///
    /// # Errors
    /// When a field is missing or not in its form.
    pub fn parse(id: &ConversationId, fields: &Reply) -> Result<Self, Unreadable> {
        let mut map = HashMap::new();
        for (name, value) in fields.as_pairs()? {
            map.insert(name.as_str()?, value.as_str()?);
        }
        let text = |name: &str| map.get(name).copied().filter(|v| !v.is_empty());
        let number = |name: &str| text(name).and_then(|v| v.parse::<u64>().ok()).ok_or(Unreadable("conversation head"));
        let moment = |name: &str| text(name).and_then(|v| v.parse::<Millis>().ok()).ok_or(Unreadable("conversation head"));
        let optional = |name: &str| text(name).map(|v| v.parse::<Millis>().map_err(|_| Unreadable("conversation head"))).transpose();
        let user = |name: &str| text(name).map(UserId::parse).transpose().map_err(|_| Unreadable("conversation head user"));
        Ok(Self {
            conversation: Conversation {
                id: id.clone(),
                title: text("title").map(str::to_owned),
                owner: user("owner")?,
                pair: text("pair").map(parse_pair).transpose()?,
                history: text("history").and_then(History::parse).unwrap_or(History::All),
                member_count: number("mcount")?,
                head_seq: number("head")?,
                rev: number("rev")?,
                created_at: moment("created_at")?,
                updated_at: moment("updated_at")?,
                dissolved: text("dissolved") == Some("1"),
                voids: parse_voids(text("voids").unwrap_or("[]"))?,
                blocks: Blocks { by_low: optional(BLOCK_FIELDS.0)?, by_high: optional(BLOCK_FIELDS.1)? },
            },
            made: text("made") == Some("1"),
            open: text("state") == Some("open"),
            closing: text("closing").map(str::to_owned),
            lease_epoch: number("lease_epoch")?,
            lease_from: number("lease_from")?,
            lease_to: number("lease_to")?,
            members_version: number("mver")?,
            floor: number("floor")?,
            keys_since: moment("keys_since")?,
            cleared_max: text("cleared_max").map_or(Ok(0), |v| v.parse().map_err(|_| Unreadable("conversation head")))?,
            last_request: text("last_request").map(str::to_owned),
        })
    }
}

/// Reads void ranges.
///
/// # Errors
/// When they are not in their form.
pub fn parse_voids(json: &str) -> Result<Vec<(Seq, Seq)>, Unreadable> {
    serde_json::from_str(json).map_err(|_| Unreadable("voids"))
}

/// Writes a pair, `["low","high"]`.
#[must_use]
pub fn pair_json(low: &UserId, high: &UserId) -> String {
    serde_json::json!([low.as_str(), high.as_str()]).to_string()
}

fn parse_pair(json: &str) -> Result<(UserId, UserId), Unreadable> {
    let (low, high): (String, String) = serde_json::from_str(json).map_err(|_| Unreadable("pair"))?;
    let user = |text: String| UserId::parse(&text).map_err(|_| Unreadable("pair"));
    Ok((user(low)?, user(high)?))
}
