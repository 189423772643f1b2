//! Taking back a closing.

use bytes::Bytes;

use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::reply::unknown_word;
use crate::domain::ids::{ConversationId, Millis};

/// The script.
pub static SCRIPT: Script = Script { name: "reopen_conversation", source: include_str!("../../lua/reopen_conversation.lua") };

/// Opens a conversation that `token` closed and whose lease nobody has touched; false when it is not closed by `token` (any more). It counts
/// as used at `now`, so that it is not closed again at once.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn reopen_conversation(
    link: &Link,
    keys: &Keys,
    conversation: &ConversationId,
    token: &str,
    now: Millis,
) -> Result<bool, RedisError> {
    let args = vec![Bytes::from(conversation.to_string()), Bytes::copy_from_slice(token.as_bytes()), Bytes::from(now.to_string())];
    let all = vec![keys::warm(keys.shard_of(conversation)), keys.conversation(conversation).head];
    let reply = link.eval(&SCRIPT, all, args).await?;
    Ok(match reply.items()?.str()? {
        "open" => true,
        "other" => false,
        _ => unknown_word("reopen_conversation")?,
    })
}
