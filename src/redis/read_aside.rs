//! Entries that Postgres refused: they wait in a hash of their shard, by outbox id, until they can be archived.
//!
//! A value is JSON: `{"why": "refused", "fields": [["c", "group:…"], …]}`, the entry's own fields as they stood in the outbox.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::error::RedisError;
use super::keys;
use super::link::{Link, Script};
use super::outbox::OutboxId;
use super::read_backlog::RawEntry;
use super::reply::unknown_word;
use super::stored_form::Unreadable;
use crate::domain::ids::ShardId;

/// The script.
pub static SCRIPT: Script = Script { name: "read_aside", source: include_str!("../../lua/read_aside.lua") };

/// Why an entry was set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AsideReason {
    /// Postgres refuses the row.
    Refused,
    /// Another message stands on its number or bears its key.
    Conflict,
    /// It cannot be read.
    Unreadable,
}

/// An entry that waits aside.
#[derive(Clone, Debug, PartialEq)]
pub struct AsideEntry {
    /// Why.
    pub why: AsideReason,
    /// What.
    pub entry: RawEntry,
}

#[derive(Serialize, Deserialize)]
struct StoredAside {
    why: AsideReason,
    fields: Vec<(String, String)>,
}

impl AsideEntry {
    /// As it is stored.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings always serialise.
        serde_json::to_string(&StoredAside { why: self.why, fields: self.entry.fields.clone() }).unwrap_or_default()
    }

    /// Reads what [`AsideEntry::to_json`] wrote.
    ///
    /// # Errors
    /// When it is not in that form.
    pub fn parse(id: OutboxId, json: &str) -> Result<Self, Unreadable> {
        let stored: StoredAside = serde_json::from_str(json).map_err(|_| Unreadable("aside entry"))?;
        Ok(Self { why: stored.why, entry: RawEntry { id, fields: stored.fields } })
    }
}

/// A part of what waits aside, read in one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Aside {
    /// The shard's epoch.
    pub epoch: u64,
    /// The server that answered (`master_replid`).
    pub server_id: String,
    /// Where to go on; `"0"` when all was seen.
    pub next: String,
    /// The entries, in no order.
    pub entries: Vec<AsideEntry>,
}

/// Reads about `count` entries from the scan cursor `from` (`"0"` to begin); `None` while the shard has no epoch on the server that answers.
///
/// # Errors
/// When Redis cannot be asked or a reply is not in its form.
pub async fn read_aside(link: &Link, shard: ShardId, from: &str, count: u64) -> Result<Option<Aside>, RedisError> {
    let args = vec![Bytes::copy_from_slice(from.as_bytes()), Bytes::from(count.to_string())];
    let reply = link.eval(&SCRIPT, vec![keys::shard_info(shard), keys::aside(shard)], args).await?;
    let mut items = reply.items()?;
    match items.str()? {
        "stale_epoch" => return Ok(None),
        "aside" => {}
        _ => return Ok(unknown_word("read_aside")?),
    }
    let (epoch, server_id, next) = (items.u64()?, items.str()?.to_owned(), items.str()?.to_owned());
    let mut entries = Vec::new();
    for (id, json) in items.item()?.as_pairs()? {
        let id = OutboxId::parse(id.as_str()?).ok_or(Unreadable("aside id"))?;
        entries.push(AsideEntry::parse(id, json.as_str()?)?);
    }
    Ok(Some(Aside { epoch, server_id, next, entries }))
}

/// Takes an entry off the aside list, once the archive has it. Doing it twice is harmless: an id is never used for another entry.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn take_aside(link: &Link, shard: ShardId, id: OutboxId) -> Result<(), RedisError> {
    let key = keys::aside(shard);
    link.command("HDEL", &key, vec![Bytes::from(key.clone()), Bytes::from(id.to_string())]).await?;
    Ok(())
}
