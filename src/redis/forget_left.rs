//! Forgetting ended memberships that dispatch has passed.

use bytes::Bytes;

use super::error::RedisError;
use super::keys::Keys;
use super::link::{Link, Script};
use super::reply::unknown_word;
use crate::domain::ids::{ConversationId, Rev};

/// The script.
pub static SCRIPT: Script = Script { name: "forget_left", source: include_str!("../../lua/forget_left.lua") };

/// Most intervals that one call forgets.
const FORGOTTEN_MAX: u64 = 1_000;

/// Forgets intervals that ended at or before `passed`, up to which every event of the conversation was dispatched; says how many.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn forget_left(link: &Link, keys: &Keys, conversation: &ConversationId, passed: Rev) -> Result<u64, RedisError> {
    let args = vec![Bytes::from(passed.to_string()), Bytes::from(FORGOTTEN_MAX.to_string())];
    let reply = link.eval(&SCRIPT, vec![keys.conversation(conversation).left], args).await?;
    let mut items = reply.items()?;
    Ok(match items.str()? {
        "forgotten" => items.u64()?,
        _ => unknown_word("forget_left")?,
    })
}
