//! The entries of a shard's outbox that the archive has not got, and the server they are read from.

use bytes::Bytes;

use super::error::RedisError;
use super::keys;
use super::link::{Link, Script};
use super::outbox::{OutboxEntry, OutboxId};
use super::read_shard::outbox_id;
use super::reply::{Reply, unknown_word};
use super::stored_form::Unreadable;
use crate::domain::ids::ShardId;

/// The script.
pub static SCRIPT: Script = Script { name: "read_backlog", source: include_str!("../../lua/read_backlog.lua") };

/// An entry as it stands in the outbox: it may be unreadable, and is kept nevertheless.
#[derive(Clone, Debug, PartialEq)]
pub struct RawEntry {
    /// Its place.
    pub id: OutboxId,
    /// Field and value pairs.
    pub fields: Vec<(String, String)>,
}

impl RawEntry {
    /// Reads it.
    ///
    /// # Errors
    /// When a field is missing or not in its form.
    pub fn parse(&self) -> Result<OutboxEntry, Unreadable> {
        OutboxEntry::parse(self.id, &self.fields)
    }
}

/// A part of the backlog, read in one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Backlog {
    /// The shard's epoch.
    pub epoch: u64,
    /// The server that answered (`master_replid`).
    pub server_id: String,
    /// The cursor after which the entries stand.
    pub archived: OutboxId,
    /// The entries in order.
    pub entries: Vec<RawEntry>,
}

/// Reads up to `limit` entries after the archive's cursor; `None` while the shard has no epoch on the server that answers.
///
/// # Errors
/// When Redis cannot be asked or a reply is not in its form.
pub async fn read_backlog(link: &Link, shard: ShardId, limit: u64) -> Result<Option<Backlog>, RedisError> {
    let keys = vec![keys::shard_info(shard), keys::outbox(shard)];
    let reply = link.eval(&SCRIPT, keys, vec![Bytes::from(limit.to_string())]).await?;
    let mut items = reply.items()?;
    match items.str()? {
        "stale_epoch" => return Ok(None),
        "backlog" => {}
        _ => return Ok(unknown_word("read_backlog")?),
    }
    let epoch = items.u64()?;
    let server_id = items.str()?.to_owned();
    let archived = outbox_id(items.item()?)?;
    let entries = items.list()?.iter().map(raw_entry).collect::<Result<_, _>>()?;
    Ok(Some(Backlog { epoch, server_id, archived, entries }))
}

fn raw_entry(reply: &Reply) -> Result<RawEntry, Unreadable> {
    let mut items = reply.items()?;
    let id = OutboxId::parse(items.str()?).ok_or(Unreadable("outbox id"))?;
    // What is not UTF-8 cannot have come from us; it is kept as far as text can hold it, and set aside because it does not parse.
    let text = |r: &Reply| r.as_bytes().map(|b| String::from_utf8_lossy(b).into_owned());
    let fields = items.item()?.as_pairs()?.map(|(name, value)| Ok((text(name)?, text(value)?))).collect::<Result<_, Unreadable>>()?;
    Ok(RawEntry { id, fields })
}
