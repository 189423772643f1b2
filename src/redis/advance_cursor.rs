//! Moving a shard's cursors forward, setting refused entries aside, and trimming the outbox behind both cursors.

use bytes::Bytes;

use super::error::RedisError;
use super::keys;
use super::link::{Link, Script};
use super::outbox::OutboxId;
use super::read_aside::AsideEntry;
use super::read_shard::outbox_id;
use super::reply::unknown_word;
use crate::domain::ids::ShardId;

/// The script.
pub static SCRIPT: Script = Script { name: "advance_cursor", source: include_str!("../../lua/advance_cursor.lua") };

/// One of the outbox's two readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// Into the users' logs.
    Dispatched,
    /// Into Postgres.
    Archived,
}

/// Where the cursors stand now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursors {
    /// The dispatch cursor.
    pub dispatched: OutboxId,
    /// The archive cursor.
    pub archived: OutboxId,
    /// Entries that both have passed and that were dropped.
    pub trimmed: u64,
}

/// Moves a cursor up to `id`, never back, and keeps `aside` in the same step. `None` when the shard's key is lost: nothing was done then.
///
/// # Errors
/// When Redis cannot be asked; the step may have been done.
pub async fn advance_cursor(
    link: &Link,
    shard: ShardId,
    cursor: Cursor,
    id: OutboxId,
    aside: &[AsideEntry],
) -> Result<Option<Cursors>, RedisError> {
    let word = match cursor {
        Cursor::Dispatched => "dispatched",
        Cursor::Archived => "archived",
    };
    let mut args = vec![Bytes::from_static(word.as_bytes()), Bytes::from(id.to_string())];
    for entry in aside {
        args.push(Bytes::from(entry.entry.id.to_string()));
        args.push(Bytes::from(entry.to_json()));
    }
    let keys = vec![keys::shard_info(shard), keys::outbox(shard), keys::aside(shard)];
    let reply = link.eval(&SCRIPT, keys, args).await?;
    let mut items = reply.items()?;
    match items.str()? {
        "absent" => return Ok(None),
        "advanced" | "unchanged" => {}
        _ => return Ok(unknown_word("advance_cursor")?),
    }
    Ok(Some(Cursors { dispatched: outbox_id(items.item()?)?, archived: outbox_id(items.item()?)?, trimmed: items.u64()? }))
}
