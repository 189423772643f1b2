//! Reads a conversation as one member sees it.

use super::conversation_head::Head;
use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::reply::unknown_word;
use super::stored_form::{Unreadable, parse_member, parse_window_value};
use crate::domain::ids::{ConversationId, Millis, Seq, UserId};
use crate::domain::membership::Member;
use crate::domain::message::Message;

/// The script.
pub static SCRIPT: Script = Script { name: "read_conversation", source: include_str!("../../lua/read_conversation.lua") };

/// A conversation in Redis, and what one user has to do with it.
#[derive(Clone, Debug, PartialEq)]
pub struct HotConversation {
    /// Its head.
    pub head: Head,
    /// The user's membership.
    pub member: Option<Member>,
    /// The user's watermark: seq and when.
    pub mark: Option<(Seq, Millis)>,
    /// Seqs after the watermark, and after what the user has cleared, that never count as unread.
    pub uncounted: u64,
    /// The message at the head.
    pub last_message: Option<Message>,
    /// Messages after both that name the user.
    pub mentions: u64,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub enum ConversationRead {
    /// It is in Redis.
    Here(Box<HotConversation>),
    /// It is not.
    Cold,
    /// The server is not the one the shard's epoch was opened on.
    StaleEpoch,
}

/// Reads a conversation.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn read_conversation(link: &Link, keys: &Keys, id: &ConversationId, user: &UserId) -> Result<ConversationRead, RedisError> {
    let k = keys.conversation(id);
    let names = vec![keys::shard_info(keys.shard_of(id)), k.head, k.members, k.marks, k.window, k.uncounted, k.mentions];
    let reply = link.eval(&SCRIPT, names, vec![user.to_string().into()]).await?;
    let mut items = reply.items()?;
    Ok(match items.str()? {
        "here" => {
            let head = Head::parse(id, items.item()?)?;
            let member = items.item()?.present().map(|r| parse_member(user.as_str(), r.as_str()?)).transpose()?;
            let mark = items.item()?.present().map(|r| parse_mark(r.as_str()?)).transpose()?;
            let uncounted = items.u64()?;
            let last = items.item()?.present().map(|r| parse_window_value(id, head.conversation.head_seq, r.as_str()?)).transpose()?;
            let mentions = items.u64()?;
            ConversationRead::Here(Box::new(HotConversation { head, member, mark, uncounted, last_message: last, mentions }))
        }
        "cold" => ConversationRead::Cold,
        "stale_epoch" => ConversationRead::StaleEpoch,
        _ => unknown_word("read_conversation: unknown word")?,
    })
}

/// Reads a watermark, `<read_seq> <read_at>`.
///
/// # Errors
/// When it is not in that form.
pub fn parse_mark(record: &str) -> Result<(Seq, Millis), Unreadable> {
    let (seq, at) = record.split_once(' ').ok_or(Unreadable("mark"))?;
    Ok((seq.parse().map_err(|_| Unreadable("mark seq"))?, at.parse().map_err(|_| Unreadable("mark time"))?))
}
