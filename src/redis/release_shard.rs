//! Giving a shard back.

use bytes::Bytes;

use super::error::RedisError;
use super::keys;
use super::link::{Link, Script};
use super::reply::unknown_word;
use crate::domain::ids::ShardId;

/// The script.
pub static SCRIPT: Script = Script { name: "release_shard", source: include_str!("../../lua/release_shard.lua") };

/// Gives a shard back; false when it was not this worker's (any more).
///
/// # Errors
/// When Redis cannot be asked; the lease then ends by itself.
pub async fn release_shard(link: &Link, shard: ShardId, worker: &str) -> Result<bool, RedisError> {
    let reply = link.eval(&SCRIPT, vec![keys::shard_lease(shard)], vec![Bytes::copy_from_slice(worker.as_bytes())]).await?;
    Ok(match reply.items()?.str()? {
        "released" => true,
        "other" => false,
        _ => unknown_word("release_shard")?,
    })
}
