//! Where a shard stands.

use super::error::RedisError;
use super::keys;
use super::link::{Link, Script};
use super::outbox::OutboxId;
use super::reply::{Reply, unknown_word};
use super::stored_form::Unreadable;
use crate::domain::ids::{Millis, ShardId};

/// The script.
pub static SCRIPT: Script = Script { name: "read_shard", source: include_str!("../../lua/read_shard.lua") };

/// A shard's epoch, cursors and backlog at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardState {
    /// Its epoch; `None` before the first was opened, or when the key was lost.
    pub epoch: Option<u64>,
    /// The server (`master_replid`) under which the epoch was opened.
    pub replid: Option<String>,
    /// Whether it takes writes.
    pub open: bool,
    /// The server that answered.
    pub live_replid: String,
    /// The last entry that was written, `n` 0 when none was in this epoch.
    pub last: OutboxId,
    /// Everything up to here is in the users' logs.
    pub dispatched: OutboxId,
    /// Everything up to here is in Postgres, or set aside.
    pub archived: OutboxId,
    /// Entries in the outbox.
    pub entries: u64,
    /// When the oldest of them was written.
    pub oldest_at: Option<Millis>,
    /// Entries set aside because Postgres refused them.
    pub aside: u64,
}

impl ShardState {
    /// Whether writes are refused until an epoch is opened on the server that answered.
    #[must_use]
    pub fn needs_epoch(&self) -> bool {
        self.epoch.is_none() || !self.open || self.replid.as_deref() != Some(self.live_replid.as_str())
    }

    /// Whether everything that was written up to `id` is dispatched and archived.
    #[must_use]
    pub fn has_passed(&self, id: OutboxId) -> bool {
        self.entries == 0 || (self.dispatched >= id && self.archived >= id)
    }
}

/// Reads a shard's state.
///
/// # Errors
/// When Redis cannot be asked or a field is not in its form.
pub async fn read_shard(link: &Link, shard: ShardId) -> Result<ShardState, RedisError> {
    let keys = vec![keys::shard_info(shard), keys::outbox(shard), keys::aside(shard)];
    let reply = link.eval(&SCRIPT, keys, vec![]).await?;
    let mut items = reply.items()?;
    match items.str()? {
        "shard" => {}
        _ => return Ok(unknown_word("read_shard")?),
    }
    let epoch = items.item()?.present().map(Reply::as_u64).transpose()?;
    let replid = items.item()?.present().map(Reply::as_str).transpose()?.map(str::to_owned);
    let open = items.item()?.present().map(Reply::as_str).transpose()? == Some("open");
    let live_replid = items.str()?.to_owned();
    let n = items.item()?.present().map(Reply::as_u64).transpose()?.unwrap_or(0);
    let dispatched = outbox_id(items.item()?)?;
    let archived = outbox_id(items.item()?)?;
    let entries = items.u64()?;
    let oldest_at = items.item()?.present().map(Reply::as_i64).transpose()?;
    let aside = items.u64()?;
    let last = OutboxId { epoch: epoch.unwrap_or(0), n };
    Ok(ShardState { epoch, replid, open, live_replid, last, dispatched, archived, entries, oldest_at, aside })
}

/// A cursor; nothing is the place before the first entry.
pub(super) fn outbox_id(reply: &Reply) -> Result<OutboxId, Unreadable> {
    match reply.present() {
        None => Ok(OutboxId::default()),
        Some(id) => OutboxId::parse(id.as_str()?).ok_or(Unreadable("cursor")),
    }
}
