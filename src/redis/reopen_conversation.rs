//! Taking back a closing.

use bytes::Bytes;

use super::error::RedisError;
use super::keys::Keys;
use super::link::{Link, Script};
use super::reply::unknown_word;
use crate::domain::ids::ConversationId;

/// The script.
pub static SCRIPT: Script = Script { name: "reopen_conversation", source: include_str!("../../lua/reopen_conversation.lua") };

/// Opens a conversation that `token` closed and whose lease nobody has touched; false when it is not closed by `token` (any more).
///
/// # Errors
/// When Redis cannot be asked.
pub async fn reopen_conversation(link: &Link, keys: &Keys, conversation: &ConversationId, token: &str) -> Result<bool, RedisError> {
    let args = vec![Bytes::copy_from_slice(token.as_bytes())];
    let reply = link.eval(&SCRIPT, vec![keys.conversation(conversation).head], args).await?;
    Ok(match reply.items()?.str()? {
        "open" => true,
        "other" => false,
        _ => unknown_word("reopen_conversation")?,
    })
}
