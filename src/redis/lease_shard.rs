//! Taking a shard, and holding on to it.

use bytes::Bytes;

use super::error::RedisError;
use super::keys;
use super::link::{Link, Script};
use super::reply::unknown_word;
use crate::domain::ids::ShardId;

/// The script.
pub static SCRIPT: Script = Script { name: "lease_shard", source: include_str!("../../lua/lease_shard.lua") };

/// Whose the shard is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardLease {
    /// It was free and is the asker's now.
    Taken,
    /// It was the asker's and stays so.
    Renewed,
    /// It is another worker's.
    Held(String),
}

/// Takes or renews a shard for `ttl_ms`.
///
/// # Errors
/// When Redis cannot be asked; the shard may have been taken nevertheless.
pub async fn lease_shard(link: &Link, shard: ShardId, worker: &str, ttl_ms: u64) -> Result<ShardLease, RedisError> {
    let args = vec![Bytes::copy_from_slice(worker.as_bytes()), Bytes::from(ttl_ms.to_string())];
    let reply = link.eval(&SCRIPT, vec![keys::shard_lease(shard)], args).await?;
    let mut items = reply.items()?;
    Ok(match items.str()? {
        "taken" => ShardLease::Taken,
        "renewed" => ShardLease::Renewed,
        "held" => ShardLease::Held(items.str()?.to_owned()),
        _ => unknown_word("lease_shard")?,
    })
}
