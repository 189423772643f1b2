//! Looks up a message by its sender's idempotency key.

use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::reply::unknown_word;
use super::stored_form::parse_window_value;
use crate::domain::ids::{ClientKey, ConversationId, Seq, UserId};
use crate::domain::message::Message;

/// The script.
pub static SCRIPT: Script = Script { name: "find_message", source: include_str!("../../lua/find_message.lua") };

/// What is known of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyFound {
    /// It names a message; the message is there unless it has left the window.
    Found {
        /// Its number.
        seq: Seq,
        /// The message as it is now.
        message: Option<Box<Message>>,
    },
    /// Redis does not know it; `for_sure` if it knows every key of the conversation.
    Unknown {
        /// Whether Postgres need not be asked.
        for_sure: bool,
    },
    /// The conversation is not in Redis.
    Cold,
    /// The server is not the one the shard's epoch was opened on.
    StaleEpoch,
}

/// Looks up a key.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn find_message(
    link: &Link,
    keys: &Keys,
    id: &ConversationId,
    sender: &UserId,
    client_id: &ClientKey,
) -> Result<KeyFound, RedisError> {
    let k = keys.conversation(id);
    let names = vec![keys::shard_info(keys.shard_of(id)), k.head, k.keys_0, k.keys_1, k.window];
    let reply = link.eval(&SCRIPT, names, vec![sender.to_string().into(), client_id.to_string().into()]).await?;
    let mut items = reply.items()?;
    Ok(match items.str()? {
        "found" => {
            let seq = items.u64()?;
            items.item()?;
            let value = items.item()?.present().map(|v| parse_window_value(id, seq, v.as_str()?)).transpose()?;
            KeyFound::Found { seq, message: value.map(Box::new) }
        }
        "unknown" => KeyFound::Unknown { for_sure: items.item()?.present().map_or(Ok(""), |v| v.as_str())? == "1" },
        "cold" => KeyFound::Cold,
        "stale_epoch" => KeyFound::StaleEpoch,
        _ => unknown_word("find_message: unknown word")?,
    })
}
