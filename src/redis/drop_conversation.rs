//! Taking a conversation out of Redis.

use bytes::Bytes;

use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::reply::unknown_word;
use crate::domain::ids::ConversationId;

/// The script.
pub static SCRIPT: Script = Script { name: "drop_conversation", source: include_str!("../../lua/drop_conversation.lua") };

/// Deletes the keys of a conversation that `token` closed; false when it is not closed by `token` (any more).
///
/// # Errors
/// When Redis cannot be asked; the keys may be gone.
pub async fn drop_conversation(link: &Link, keys: &Keys, conversation: &ConversationId, token: &str) -> Result<bool, RedisError> {
    let mut all = vec![keys::warm(keys.shard_of(conversation))];
    all.extend(keys.conversation(conversation).all());
    let args = vec![Bytes::from(conversation.to_string()), Bytes::copy_from_slice(token.as_bytes())];
    let reply = link.eval(&SCRIPT, all, args).await?;
    Ok(match reply.items()?.str()? {
        "dropped" => true,
        "other" => false,
        _ => unknown_word("drop_conversation")?,
    })
}
