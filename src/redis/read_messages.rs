//! Reads recent messages of a conversation, together with the caller's membership.

use bytes::Bytes;

use super::conversation_head::Head;
use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::reply::unknown_word;
use super::stored_form::{parse_member, parse_window_value};
use crate::domain::ids::{ConversationId, Rev, Seq, UserId};
use crate::domain::membership::Member;
use crate::domain::message::Message;

/// The script.
pub static SCRIPT: Script = Script { name: "read_messages", source: include_str!("../../lua/read_messages.lua") };

/// Which messages.
#[derive(Clone, Debug)]
pub enum Which {
    /// From this seq down.
    Down(Seq),
    /// From this seq up.
    Up(Seq),
    /// Changed after this rev, ascending.
    SinceRev(Rev),
    /// These.
    At(Vec<Seq>),
}

/// Messages in Redis.
#[derive(Clone, Debug)]
pub struct HotMessages {
    /// The conversation's head.
    pub head: Head,
    /// The caller's membership; without one there are no messages.
    pub member: Option<Member>,
    /// In the order asked for.
    pub messages: Vec<Message>,
    /// Messages below the window that were changed and may not be archived yet; only going down and up.
    pub amended: Vec<Message>,
}

/// What was found.
#[derive(Clone, Debug)]
pub enum MessagesRead {
    /// The conversation is in Redis.
    Here(Box<HotMessages>),
    /// It is not.
    Cold,
    /// The server is not the one the shard's epoch was opened on.
    StaleEpoch,
}

/// Reads up to `limit` messages (at most 200), for a user who must be a member, or for nobody in particular.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn read_messages(
    link: &Link,
    keys: &Keys,
    id: &ConversationId,
    user: Option<&UserId>,
    which: &Which,
    limit: usize,
) -> Result<MessagesRead, RedisError> {
    let k = keys.conversation(id);
    let names = vec![keys::shard_info(keys.shard_of(id)), k.head, k.members, k.window, k.revs, k.amended];
    let (mode, numbers): (&'static str, Vec<u64>) = match which {
        Which::Down(seq) => ("down", vec![*seq]),
        Which::Up(seq) => ("up", vec![*seq]),
        Which::SinceRev(rev) => ("rev", vec![*rev]),
        Which::At(seqs) => ("at", seqs.clone()),
    };
    let mut args: Vec<Bytes> =
        vec![user.map(ToString::to_string).unwrap_or_default().into(), Bytes::from_static(mode.as_bytes()), limit.to_string().into()];
    args.extend(numbers.iter().map(|n| Bytes::from(n.to_string())));
    let reply = link.eval(&SCRIPT, names, args).await?;
    let mut items = reply.items()?;
    Ok(match items.str()? {
        "here" => {
            let head = Head::parse(id, items.item()?)?;
            let member = match (items.item()?.present(), user) {
                (Some(record), Some(user)) => Some(parse_member(user.as_str(), record.as_str()?)?),
                _ => None,
            };
            let mut lists = [Vec::new(), Vec::new()];
            for list in &mut lists {
                for (seq, value) in items.item()?.as_pairs()? {
                    list.push(parse_window_value(id, seq.as_u64()?, value.as_str()?)?);
                }
            }
            let [messages, amended] = lists;
            MessagesRead::Here(Box::new(HotMessages { head, member, messages, amended }))
        }
        "cold" => MessagesRead::Cold,
        "stale_epoch" => MessagesRead::StaleEpoch,
        _ => unknown_word("read_messages: unknown word")?,
    })
}
