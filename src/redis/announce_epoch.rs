//! Telling members that a conversation may have lost something.

use bytes::Bytes;

use super::error::RedisError;
use super::keys;
use super::link::{Link, Script};
use super::reply::unknown_word;
use super::stored_form::{Audience, Change, StoredEvent};
use crate::domain::event::EventType;
use crate::domain::ids::{ConversationId, Millis, Rev, ShardId};

/// The script.
pub static SCRIPT: Script = Script { name: "announce_epoch", source: include_str!("../../lua/announce_epoch.lua") };

/// Puts a resync mark for the members of each conversation at the beginning of a closed shard's epoch; false when the shard has another
/// epoch or is open. A mark that comes twice costs a second look, nothing else.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn announce_epoch(
    link: &Link,
    shard: ShardId,
    epoch: u64,
    first_rev: Rev,
    now: Millis,
    conversations: &[ConversationId],
) -> Result<bool, RedisError> {
    let change = Change { events: vec![StoredEvent::new(EventType::Resync, Audience::All, None)], ..Change::default() };
    // A struct of strings and lists always serialises.
    let change = serde_json::to_string(&change).unwrap_or_default();
    let mut args: Vec<Bytes> = [epoch.to_string(), first_rev.to_string(), now.to_string(), change].map(Bytes::from).into();
    args.extend(conversations.iter().map(|id| Bytes::from(id.to_string())));
    let reply = link.eval(&SCRIPT, vec![keys::shard_info(shard), keys::outbox(shard)], args).await?;
    Ok(match reply.items()?.str()? {
        "announced" => true,
        "other" => false,
        _ => unknown_word("announce_epoch")?,
    })
}
