//! Reads a user's log and list for an audit, beginning none that is not there.

use bytes::Bytes;

use super::error::RedisError;
use super::event_log::parse_pointer;
use super::keys::Keys;
use super::link::{Link, Script, StreamEntry};
use super::reply::{Reply, unknown_word};
use crate::domain::event::Pointer;
use crate::domain::ids::{ConversationId, UserId};
use crate::domain::position::EntryId;

/// The script.
pub static SCRIPT: Script = Script { name: "inspect_log", source: include_str!("../../lua/inspect_log.lua") };

/// Entries of a list that are looked at.
pub const LIST_MAX: u64 = 20_000;

/// A part of a user's log.
#[derive(Clone, Debug, Default)]
pub struct InspectedLog {
    /// The last entry's id as the log says.
    pub last: Option<EntryId>,
    /// The last one dropped, as the log says.
    pub trimmed: Option<EntryId>,
    /// Entries.
    pub length: u64,
    /// The last entry's id.
    pub newest: Option<EntryId>,
    /// A run of entries; a pointer that cannot be read is `None`.
    pub entries: Vec<(EntryId, Option<Pointer>)>,
    /// The user's list, when asked for, newest activity first.
    pub list: Vec<ConversationId>,
    /// Whether the list says that it is whole.
    pub list_is_whole: bool,
}

/// Reads up to `count` entries after `after`, and the list when `with_list`. `Ok(None)` when something has the wrong type or form.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn inspect_log(
    link: &Link,
    keys: &Keys,
    user: &UserId,
    after: Option<EntryId>,
    count: u64,
    with_list: bool,
) -> Result<Option<InspectedLog>, RedisError> {
    let k = keys.user(user);
    let list_max = if with_list { LIST_MAX } else { 0 };
    let args = [after.map(|id| id.to_string()).unwrap_or_default(), count.to_string(), list_max.to_string()];
    let reply = link.eval(&SCRIPT, vec![k.log, k.log_info, k.index], args.map(Bytes::from).into()).await?;
    let mut items = reply.items()?;
    match items.str()? {
        "log" => {}
        "absent" => return Ok(Some(InspectedLog::default())),
        "broken" => return Ok(None),
        _ => return Ok(unknown_word("inspect_log: unknown word")?),
    }
    let mut log = InspectedLog::default();
    items.item()?;
    (log.last, log.trimmed) = (entry(items.item()?), entry(items.item()?));
    log.length = items.u64()?;
    log.newest = entry(items.item()?);
    for read in StreamEntry::read_all(items.item()?)? {
        let Some(id) = EntryId::parse(&read.id) else { return Ok(None) };
        let text = |name: &str| read.fields.iter().find(|(n, _)| n == name).map(|(_, v)| String::from_utf8_lossy(v).into_owned());
        log.entries.push((id, text("p").and_then(|pointer| parse_pointer(&pointer, text("d")).ok())));
    }
    for member in items.list()? {
        match member.as_str() {
            Ok("") => log.list_is_whole = true,
            Ok(text) => log.list.extend(ConversationId::parse(text)),
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(log))
}

fn entry(reply: &Reply) -> Option<EntryId> {
    reply.present().and_then(|text| text.as_str().ok()).and_then(EntryId::parse)
}
