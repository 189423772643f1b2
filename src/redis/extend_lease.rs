//! Lets a conversation give out more numbers, as the archive has granted.

use super::error::RedisError;
use super::keys::Keys;
use super::link::{Link, Script};
use super::reply::unknown_word;
use crate::domain::ids::{ConversationId, Seq};

/// The script.
pub static SCRIPT: Script = Script { name: "extend_lease", source: include_str!("../../lua/extend_lease.lua") };

/// Moves the end of a lease up. `false` when the conversation has another epoch's lease or is gone.
///
/// # Errors
/// When Redis cannot be asked; repeating is safe.
pub async fn extend_lease(link: &Link, keys: &Keys, id: &ConversationId, epoch: u64, lease_to: Seq) -> Result<bool, RedisError> {
    let args = vec![epoch.to_string().into(), lease_to.to_string().into()];
    let reply = link.eval(&SCRIPT, vec![keys.conversation(id).head], args).await?;
    Ok(match reply.items()?.str()? {
        "extended" => true,
        "other" => false,
        _ => unknown_word("extend_lease: unknown word")?,
    })
}
