//! A shard's epoch: bound to the server it was opened on.

use super::error::RedisError;
use super::keys;
use super::link::{Link, Script};
use super::reply::unknown_word;
use super::stored_form::Unreadable;
use crate::domain::ids::ShardId;

/// The script.
pub static SCRIPT: Script = Script { name: "open_epoch", source: include_str!("../../lua/open_epoch.lua") };

/// A shard as Redis holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardState {
    /// The epoch; `None` when nothing is there.
    pub epoch: Option<u64>,
    /// The server it was opened on.
    pub opened_on: Option<String>,
    /// Whether writes are taken.
    pub open: bool,
    /// The server's `master_replid` now.
    pub live: String,
}

impl ShardState {
    /// Whether numbers may be given out here and now, and in which epoch.
    #[must_use]
    pub fn current_epoch(&self) -> Option<u64> {
        (self.open && self.opened_on.as_deref() == Some(&self.live)).then_some(self.epoch).flatten()
    }
}

/// Looks at a shard.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn look_at_shard(link: &Link, shard: ShardId) -> Result<ShardState, RedisError> {
    let reply = link.eval(&SCRIPT, vec![keys::shard_info(shard)], vec!["look".into(), "".into()]).await?;
    let mut items = reply.items()?;
    if items.str()? != "shard" {
        return unknown_word("open_epoch: unknown word").map_err(Into::into);
    }
    let epoch = items.item()?.present().map(super::reply::Reply::as_u64).transpose()?;
    let mut text = || -> Result<Option<String>, Unreadable> { items.item()?.present().map(|r| r.as_str().map(str::to_owned)).transpose() };
    let (opened_on, state, live) = (text()?, text()?, text()?);
    Ok(ShardState { epoch, opened_on, open: state.as_deref() == Some("open"), live: live.ok_or(Unreadable("master_replid"))? })
}

/// Writes an epoch, closed. `false` when the shard is already in a later one, or this one was opened on another server.
///
/// # Errors
/// When Redis cannot be asked; repeating is safe.
pub async fn install_epoch(link: &Link, shard: ShardId, epoch: u64) -> Result<bool, RedisError> {
    step(link, shard, "install", epoch).await
}

/// Lets an installed epoch take writes. `false` when the shard is in another one or on another server.
///
/// # Errors
/// When Redis cannot be asked; repeating is safe.
pub async fn open_epoch(link: &Link, shard: ShardId, epoch: u64) -> Result<bool, RedisError> {
    step(link, shard, "open", epoch).await
}

async fn step(link: &Link, shard: ShardId, verb: &'static str, epoch: u64) -> Result<bool, RedisError> {
    let reply = link.eval(&SCRIPT, vec![keys::shard_info(shard)], vec![verb.into(), epoch.to_string().into()]).await?;
    Ok(match reply.items()?.str()? {
        "installed" | "open" => true,
        "other" => false,
        _ => unknown_word("open_epoch: unknown word")?,
    })
}
