//! Reads a user's log from a place on. See `lua/read_log.lua` and [`event_log`](super::event_log).

use bytes::Bytes;

use super::error::RedisError;
use super::event_log::{LogEntry, LogState, entry_id, fresh_nonce, parse_pointer};
use super::keys::Keys;
use super::link::{Link, Script};
use super::reply::{Items, Reply};
use super::stored_form::Unreadable;
use crate::domain::ids::UserId;
use crate::domain::position::{EntryId, Position};

/// The script.
pub static SCRIPT: Script = Script { name: "read_log", source: include_str!("../../lua/read_log.lua") };

const LAST_POSSIBLE: EntryId = EntryId { ms: u64::MAX, n: u64::MAX };

/// A log at one moment, and a run of its entries.
#[derive(Clone, Debug, PartialEq)]
pub struct LogPage {
    /// The log.
    pub log: LogState,
    /// Entries after the asked-for place, in order.
    pub entries: Vec<LogEntry>,
}

/// Reads up to `count` entries after `after`, or only the log's bounds when that is `None`. A user without a log gets one now, so that
/// there is a position to hold on to.
///
/// # Errors
/// When Redis cannot be asked or answers in another form.
pub async fn read_log(link: &Link, keys: &Keys, user: &UserId, after: Option<EntryId>, count: u64) -> Result<LogPage, RedisError> {
    let of = keys.user(user);
    // Redis refuses to read after the last id there can be; nothing stands there.
    let after = after.filter(|id| *id != LAST_POSSIBLE).map(|id| id.to_string()).unwrap_or_default();
    let args = vec![Bytes::from(after), Bytes::from(count.to_string()), Bytes::from(fresh_nonce())];
    let reply = link.eval(&SCRIPT, vec![of.log, of.log_info], args).await?;
    let mut items = reply.items()?;
    if items.str()? != "log" {
        return Err(Unreadable("read_log").into());
    }
    Ok(read_page(&mut items)?)
}

/// The end of a user's log.
///
/// # Errors
/// When Redis cannot be asked or answers in another form.
pub async fn log_head(link: &Link, keys: &Keys, user: &UserId) -> Result<Position, RedisError> {
    read_log(link, keys, user, None, 1).await.map(|page| page.log.head())
}

fn read_page(items: &mut Items<'_>) -> Result<LogPage, Unreadable> {
    let log = LogState::read(items)?;
    let entries = items.list()?.iter().map(read_entry).collect::<Result<_, _>>()?;
    Ok(LogPage { log, entries })
}

fn read_entry(entry: &Reply) -> Result<LogEntry, Unreadable> {
    let mut parts = entry.items()?;
    let id = entry_id(parts.str()?)?;
    let fields = parts.list()?;
    let field = |name: &str| fields.chunks_exact(2).find(|pair| pair[0].as_str() == Ok(name)).and_then(|pair| pair[1].as_str().ok());
    let pointer = field("p").and_then(|text| parse_pointer(text, field("d").map(str::to_owned)).ok());
    if pointer.is_none() {
        tracing::warn!(entry = %id, "an entry of a user's log cannot be read and is passed over");
    }
    Ok(LogEntry { id, pointer })
}
