//! Dropping from Redis what is archived and no longer recent: messages beyond the window, and idempotency keys beyond theirs.

use bytes::Bytes;

use super::error::RedisError;
use super::keys::Keys;
use super::link::{Link, Script};
use super::reply::unknown_word;
use crate::domain::ids::{ConversationId, Millis, Rev, Seq};

/// The script.
pub static SCRIPT: Script = Script { name: "trim_window", source: include_str!("../../lua/trim_window.lua") };

/// Most messages that one call drops, so that the server is never held up for long.
const DROPPED_MAX: u64 = 500;

/// What may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// Every message up to this seq is in Postgres.
    pub archived_seq: Seq,
    /// Every change up to this rev is in Postgres.
    pub archived_rev: Rev,
    /// Recent messages that stay.
    pub window_messages: u64,
    /// Now.
    pub now: Millis,
    /// Time for which a generation of keys takes new ones, in ms.
    pub key_window_ms: u64,
}

/// What went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trimmed {
    /// So many messages, whether more could go now, whether a generation of keys went.
    Dropped {
        /// Messages.
        messages: u64,
        /// Another call would drop more.
        more: bool,
        /// Keys.
        keys: bool,
    },
    /// The conversation is not in Redis.
    Absent,
}

/// Drops what may go, at most 500 messages.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn trim_window(link: &Link, keys: &Keys, conversation: &ConversationId, trim: &Trim) -> Result<Trimmed, RedisError> {
    let k = keys.conversation(conversation);
    let args = [
        trim.archived_seq.to_string(),
        trim.archived_rev.to_string(),
        trim.window_messages.to_string(),
        DROPPED_MAX.to_string(),
        trim.now.to_string(),
        trim.key_window_ms.to_string(),
    ];
    let reply = link.eval(&SCRIPT, vec![k.head, k.window, k.revs, k.keys_0, k.keys_1, k.amended], args.map(Bytes::from).into()).await?;
    let mut items = reply.items()?;
    Ok(match items.str()? {
        "trimmed" => Trimmed::Dropped { messages: items.u64()?, more: items.bool()?, keys: items.bool()? },
        "absent" => Trimmed::Absent,
        _ => unknown_word("trim_window")?,
    })
}
