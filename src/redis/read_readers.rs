//! Reads which members have read up to a message.

use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::read_conversation::parse_mark;
use super::reply::unknown_word;
use super::stored_form::Unreadable;
use crate::domain::ids::{ConversationId, Millis, Seq, UserId};

/// The script.
pub static SCRIPT: Script = Script { name: "read_readers", source: include_str!("../../lua/read_readers.lua") };

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadersRead {
    /// Users and when their watermarks last moved.
    Here(Vec<(UserId, Millis)>),
    /// The conversation is not in Redis.
    Cold,
    /// The server is not the one the shard's epoch was opened on.
    StaleEpoch,
}

/// Reads the members whose watermark is at `seq` or above and whose joining lies before it.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn read_readers(link: &Link, keys: &Keys, id: &ConversationId, seq: Seq) -> Result<ReadersRead, RedisError> {
    let k = keys.conversation(id);
    let names = vec![keys::shard_info(keys.shard_of(id)), k.head, k.members, k.marks];
    let reply = link.eval(&SCRIPT, names, vec![seq.to_string().into()]).await?;
    let mut items = reply.items()?;
    Ok(match items.str()? {
        "here" => {
            let mut readers = Vec::new();
            for (user, mark) in items.item()?.as_pairs()? {
                let user = UserId::parse(user.as_str()?).map_err(|_| Unreadable("reader"))?;
                readers.push((user, parse_mark(mark.as_str()?)?.1));
            }
            ReadersRead::Here(readers)
        }
        "cold" => ReadersRead::Cold,
        "stale_epoch" => ReadersRead::StaleEpoch,
        _ => unknown_word("read_readers: unknown word")?,
    })
}
