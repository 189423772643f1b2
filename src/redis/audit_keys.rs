//! Small reads and repairs of an audit: plain commands, each on one key.

use std::collections::HashMap;

use bytes::Bytes;

use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::Link;
use super::outbox::OutboxId;
use super::stored_form::mention_entry;
use crate::domain::ids::{ConversationId, PartitionId, Rev, Seq, ShardId, UserId};

/// An idempotency key as Redis holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKey {
    /// Who sent.
    pub sender: String,
    /// The key.
    pub client_id: String,
    /// The message it names; `None` when that cannot be read.
    pub seq: Option<Seq>,
}

/// Conversations that a page of warm ones has.
const WARM_PAGE: usize = 500;

async fn command(link: &Link, name: &'static str, args: Vec<String>) -> Result<super::reply::Reply, RedisError> {
    let key = args.first().cloned().unwrap_or_default();
    Ok(link.command(name, &key, args.into_iter().map(Bytes::from).collect()).await?)
}

/// A page of a conversation's idempotency keys of one generation (0 or 1) from a scan cursor (`"0"` to begin), and where to go on (`"0"` at
/// the end).
///
/// # Errors
/// When Redis cannot be asked.
pub async fn scan_keys(
    link: &Link,
    all: &Keys,
    id: &ConversationId,
    generation: u8,
    cursor: &str,
) -> Result<(String, Vec<StoredKey>), RedisError> {
    let k = all.conversation(id);
    let key = if generation == 0 { k.keys_0 } else { k.keys_1 };
    let reply = command(link, "HSCAN", vec![key, cursor.to_owned(), "COUNT".into(), "300".into()]).await?;
    let mut items = reply.items()?;
    let next = items.str()?.to_owned();
    let mut found = Vec::new();
    for (name, value) in items.item()?.as_pairs()? {
        let name = String::from_utf8_lossy(name.as_bytes()?).into_owned();
        let (sender, client_id) = name.split_once('\0').map_or((name.clone(), String::new()), |(s, c)| (s.to_owned(), c.to_owned()));
        let seq = value.as_str().ok().and_then(|text| text.split_once(' ')).and_then(|(seq, _)| seq.parse().ok());
        found.push(StoredKey { sender, client_id, seq });
    }
    Ok((next, found))
}

/// Which of these keys (sender and client id) Redis knows, in their order.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn known_keys(link: &Link, all: &Keys, id: &ConversationId, wanted: &[(String, String)]) -> Result<Vec<bool>, RedisError> {
    let mut known = vec![false; wanted.len()];
    let k = all.conversation(id);
    for key in [k.keys_0, k.keys_1] {
        let mut args = vec![key];
        args.extend(wanted.iter().map(|(sender, client)| format!("{sender}\0{client}")));
        for (place, value) in command(link, "HMGET", args).await?.as_list()?.iter().enumerate() {
            if let Some(known) = known.get_mut(place) {
                *known |= !value.is_nil();
            }
        }
    }
    Ok(known)
}

/// Which of these numbers stand in a conversation's window, in their order.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn in_window(link: &Link, all: &Keys, id: &ConversationId, seqs: &[Seq]) -> Result<Vec<bool>, RedisError> {
    let mut args = vec![all.conversation(id).window];
    args.extend(seqs.iter().map(ToString::to_string));
    Ok(command(link, "HMGET", args).await?.as_list()?.iter().map(|value| !value.is_nil()).collect())
}

/// Whether a user belongs to a conversation in Redis; `None` when the conversation is not there.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn is_hot_member(link: &Link, all: &Keys, id: &ConversationId, user: &UserId) -> Result<Option<bool>, RedisError> {
    let k = all.conversation(id);
    if !command(link, "EXISTS", vec![k.head]).await?.as_bool()? {
        return Ok(None);
    }
    Ok(Some(command(link, "HEXISTS", vec![k.members, user.to_string()]).await?.as_bool()?))
}

/// A page of a shard's conversations in Redis, from this scan cursor (`"0"` to begin), and where to go on (`"0"` at the end).
///
/// # Errors
/// When Redis cannot be asked.
pub async fn scan_warm(link: &Link, shard: ShardId, cursor: &str) -> Result<(String, Vec<ConversationId>), RedisError> {
    let reply = command(link, "ZSCAN", vec![keys::warm(shard), cursor.to_owned(), "COUNT".into(), WARM_PAGE.to_string()]).await?;
    let mut items = reply.items()?;
    let next = items.str()?.to_owned();
    let found = items.list()?.chunks(2).filter_map(|pair| pair.first()?.as_str().ok().and_then(ConversationId::parse)).collect();
    Ok((next, found))
}

/// What a partition's marks say was applied of each shard.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn delivered_marks(link: &Link, partition: PartitionId, shards: u16) -> Result<HashMap<ShardId, OutboxId>, RedisError> {
    let names = (0..shards).map(|shard| keys::delivered_mark(partition, ShardId(shard))).collect();
    let reply = command(link, "MGET", names).await?;
    let of = |(shard, value): (u16, &super::reply::Reply)| Some((ShardId(shard), OutboxId::parse(value.present()?.as_str().ok()?)?));
    Ok((0..shards).zip(reply.as_list()?).filter_map(of).collect())
}

/// The id of the first entry of a shard's outbox above `after`.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn first_waiting(link: &Link, shard: ShardId, after: OutboxId) -> Result<Option<OutboxId>, RedisError> {
    let args = vec![keys::outbox(shard), format!("({after}"), "+".into(), "COUNT".into(), "1".into()];
    let reply = command(link, "XRANGE", args).await?;
    let Some(first) = reply.as_list()?.first() else { return Ok(None) };
    Ok(OutboxId::parse(first.items()?.str()?))
}

/// Drops an idempotency key.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn drop_key(link: &Link, all: &Keys, id: &ConversationId, sender: &str, client_id: &str) -> Result<(), RedisError> {
    let k = all.conversation(id);
    for key in [k.keys_0, k.keys_1] {
        command(link, "HDEL", vec![key, format!("{sender}\0{client_id}")]).await?;
    }
    Ok(())
}

/// Puts an idempotency key in, unless it is known.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn add_key(
    link: &Link,
    all: &Keys,
    id: &ConversationId,
    (sender, client_id): (&str, &str),
    seq: Seq,
    fingerprint: &str,
) -> Result<(), RedisError> {
    let k = all.conversation(id);
    let generation = command(link, "HGET", vec![k.head, "kgen".into()]).await?;
    let key = if generation.present().and_then(|g| g.as_str().ok()) == Some("1") { k.keys_1 } else { k.keys_0 };
    command(link, "HSETNX", vec![key, format!("{sender}\0{client_id}"), format!("{seq} {fingerprint}")]).await?;
    Ok(())
}

/// Puts a number among those that never count as unread, or takes it out.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn set_uncounted(link: &Link, all: &Keys, id: &ConversationId, seq: Seq, uncounted: bool) -> Result<(), RedisError> {
    let (key, seq) = (all.conversation(id).uncounted, seq.to_string());
    if uncounted {
        command(link, "ZADD", vec![key, seq.clone(), seq]).await?
    } else {
        command(link, "ZREM", vec![key, seq]).await?
    };
    Ok(())
}

/// Counts a mention as unread, or no longer.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn set_mention(link: &Link, all: &Keys, id: &ConversationId, user: &UserId, seq: Seq, unread: bool) -> Result<(), RedisError> {
    let (key, entry) = (all.conversation(id).mentions, mention_entry(user, seq));
    if unread {
        command(link, "ZADD", vec![key, "0".into(), entry]).await?
    } else {
        command(link, "ZREM", vec![key, entry]).await?
    };
    Ok(())
}

/// Sets a number's place in the index by rev, or takes it out.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn set_rev(link: &Link, all: &Keys, id: &ConversationId, seq: Seq, rev: Option<Rev>) -> Result<(), RedisError> {
    let key = all.conversation(id).revs;
    match rev {
        Some(rev) => command(link, "ZADD", vec![key, rev.to_string(), seq.to_string()]).await?,
        None => command(link, "ZREM", vec![key, seq.to_string()]).await?,
    };
    Ok(())
}

/// Sets a member's watermark.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn set_mark(link: &Link, all: &Keys, id: &ConversationId, user: &str, seq: Seq, at: i64) -> Result<(), RedisError> {
    command(link, "HSET", vec![all.conversation(id).marks, user.to_owned(), format!("{seq} {at}")]).await?;
    Ok(())
}

/// Sets how many members a conversation has.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn set_member_count(link: &Link, all: &Keys, id: &ConversationId) -> Result<(), RedisError> {
    let k = all.conversation(id);
    let count = command(link, "HLEN", vec![k.members]).await?.as_u64()?;
    command(link, "HSET", vec![k.head, "mcount".into(), count.to_string()]).await?;
    Ok(())
}

/// Takes a conversation out of a user's list.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn drop_from_list(link: &Link, all: &Keys, user: &UserId, id: &ConversationId) -> Result<(), RedisError> {
    command(link, "ZREM", vec![all.user(user).index, id.to_string()]).await?;
    Ok(())
}
