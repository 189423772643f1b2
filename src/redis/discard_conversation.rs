//! Taking away what was installed under a lease that did not live any more.

use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::reply::unknown_word;
use crate::domain::ids::{ConversationId, Seq};

/// The script.
pub static SCRIPT: Script = Script { name: "discard_conversation", source: include_str!("../../lua/discard_conversation.lua") };

/// Deletes the keys of a conversation that stands closed under this lease; false when it does not (any more).
///
/// # Errors
/// When Redis cannot be asked; repeating is safe.
pub async fn discard_conversation(
    link: &Link,
    keys: &Keys,
    conversation: &ConversationId,
    epoch: u64,
    lease_from: Seq,
) -> Result<bool, RedisError> {
    let mut all = vec![keys::warm(keys.shard_of(conversation))];
    all.extend(keys.conversation(conversation).all());
    let args = vec![conversation.to_string().into(), epoch.to_string().into(), lease_from.to_string().into()];
    let reply = link.eval(&SCRIPT, all, args).await?;
    Ok(match reply.items()?.str()? {
        "discarded" => true,
        "other" => false,
        _ => unknown_word("discard_conversation")?,
    })
}
