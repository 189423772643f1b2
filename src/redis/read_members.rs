//! Reads who belongs to a conversation.

use super::conversation_head::Head;
use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::reply::unknown_word;
use super::stored_form::parse_member;
use crate::domain::ids::{ConversationId, UserId};
use crate::domain::membership::Member;

/// The script.
pub static SCRIPT: Script = Script { name: "read_members", source: include_str!("../../lua/read_members.lua") };

/// A conversation's members at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct HotMembers {
    /// The conversation's head.
    pub head: Head,
    /// All members, in no particular order.
    pub members: Vec<Member>,
    /// Whether the asking user is or once was one of them.
    pub was_member: bool,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub enum MembersRead {
    /// The conversation is in Redis.
    Here(Box<HotMembers>),
    /// It is not.
    Cold,
    /// The server is not the one the shard's epoch was opened on.
    StaleEpoch,
}

/// Reads all members.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn read_members(link: &Link, keys: &Keys, id: &ConversationId, user: &UserId) -> Result<MembersRead, RedisError> {
    let k = keys.conversation(id);
    let names = vec![keys::shard_info(keys.shard_of(id)), k.head, k.members, k.marks];
    let reply = link.eval(&SCRIPT, names, vec![user.to_string().into()]).await?;
    let mut items = reply.items()?;
    Ok(match items.str()? {
        "here" => {
            let head = Head::parse(id, items.item()?)?;
            let mut members = Vec::new();
            for (user, record) in items.item()?.as_pairs()? {
                members.push(parse_member(user.as_str()?, record.as_str()?)?);
            }
            MembersRead::Here(Box::new(HotMembers { head, members, was_member: items.item()?.present().is_some() }))
        }
        "cold" => MembersRead::Cold,
        "stale_epoch" => MembersRead::StaleEpoch,
        _ => unknown_word("read_members: unknown word")?,
    })
}
