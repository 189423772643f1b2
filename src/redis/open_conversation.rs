//! Opens a conversation whose lease is marked as installed.

use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::reply::unknown_word;
use crate::domain::ids::{ConversationId, Seq};

/// The script.
pub static SCRIPT: Script = Script { name: "open_conversation", source: include_str!("../../lua/open_conversation.lua") };

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// It takes writes.
    Open,
    /// It is being cooled.
    Closing,
    /// Another lease stands there, or nothing.
    Other,
    /// The shard is in another epoch by now.
    StaleEpoch,
}

/// Opens a conversation.
///
/// # Errors
/// When Redis cannot be asked; repeating is safe.
pub async fn open_conversation(link: &Link, keys: &Keys, id: &ConversationId, epoch: u64, lease_from: Seq) -> Result<Opened, RedisError> {
    let names = vec![keys::shard_info(keys.shard_of(id)), keys.conversation(id).head];
    let reply = link.eval(&SCRIPT, names, vec![epoch.to_string().into(), lease_from.to_string().into()]).await?;
    Ok(match reply.items()?.str()? {
        "open" => Opened::Open,
        "closing" => Opened::Closing,
        "other" => Opened::Other,
        "stale_epoch" => Opened::StaleEpoch,
        _ => unknown_word("open_conversation: unknown word")?,
    })
}
