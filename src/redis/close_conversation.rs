//! Closing an idle conversation before it leaves Redis.

use bytes::Bytes;

use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::outbox::OutboxId;
use super::reply::unknown_word;
use crate::domain::ids::{ConversationId, Millis, Rev, Seq, ShardId};

/// The script.
pub static SCRIPT: Script = Script { name: "close_conversation", source: include_str!("../../lua/close_conversation.lua") };

/// A conversation that takes no writes until it is dropped or opened again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The epoch of its lease.
    pub lease_epoch: u64,
    /// The last seq given out.
    pub head: Seq,
    /// Its rev.
    pub rev: Rev,
    /// Whether it came to be at all.
    pub made: bool,
    /// Every entry of the conversation stands at or before this place of the outbox.
    pub last: OutboxId,
    /// It was closing before, by whomever: its lease may have ended already, so it must never be opened again.
    pub taken_over: bool,
}

/// What came of closing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closing {
    /// It is closed.
    Closed(Closed),
    /// It was used lately; its place in the list of warm ones was corrected.
    Used,
    /// Somebody is just bringing it in.
    Opening,
    /// Another one is closing it.
    Busy,
    /// It is not in Redis; the list of warm ones was corrected.
    Absent,
    /// The shard has no epoch on this server.
    StaleEpoch,
}

/// Whose closing it is, and what counts as idle.
#[derive(Clone, Copy, Debug)]
pub struct CloseRequest<'a> {
    /// The name of whoever closes; one name closes one conversation once at a time.
    pub token: &'a str,
    /// Now.
    pub now: Millis,
    /// Conversations last used at or before this moment are idle.
    pub idle_at: Millis,
    /// A closing that began at or before this moment was abandoned.
    pub abandoned_at: Millis,
}

/// Closes a conversation if it is idle.
///
/// # Errors
/// When Redis cannot be asked; it may have been closed.
pub async fn close_conversation(
    link: &Link,
    keys: &Keys,
    conversation: &ConversationId,
    request: CloseRequest<'_>,
) -> Result<Closing, RedisError> {
    let shard = keys.shard_of(conversation);
    let args = vec![
        Bytes::from(conversation.to_string()),
        Bytes::from(request.token.to_owned()),
        Bytes::from(request.now.to_string()),
        Bytes::from(request.idle_at.to_string()),
        Bytes::from(request.abandoned_at.to_string()),
    ];
    let all = vec![keys::shard_info(shard), keys::warm(shard), keys.conversation(conversation).head];
    let reply = link.eval(&SCRIPT, all, args).await?;
    let mut items = reply.items()?;
    Ok(match items.str()? {
        "closed" => Closing::Closed(Closed {
            lease_epoch: items.u64()?,
            head: items.u64()?,
            rev: items.u64()?,
            made: items.bool()?,
            last: OutboxId { epoch: items.u64()?, n: items.item()?.present().map(|n| n.as_u64()).transpose()?.unwrap_or(0) },
            taken_over: items.bool()?,
        }),
        "used" => Closing::Used,
        "opening" => Closing::Opening,
        "busy" => Closing::Busy,
        "absent" => Closing::Absent,
        "stale_epoch" => Closing::StaleEpoch,
        _ => unknown_word("close_conversation")?,
    })
}

/// Up to `limit` conversations of a shard that were brought in or seen in use at or before `idle_at`, the longest idle first.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn list_idle(link: &Link, shard: ShardId, idle_at: Millis, limit: u64) -> Result<Vec<ConversationId>, RedisError> {
    let key = keys::warm(shard);
    let args = [key.clone(), "-inf".into(), idle_at.to_string(), "LIMIT".into(), "0".into(), limit.to_string()];
    let reply = link.command("ZRANGEBYSCORE", &key, args.map(Bytes::from).into()).await?;
    // A name that is no conversation's cannot have come from us, and is left alone.
    Ok(reply.as_list()?.iter().filter_map(|id| id.as_str().ok().and_then(ConversationId::parse)).collect())
}
