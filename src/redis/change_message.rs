//! Puts a message's new state in the place of the one it was decided on.

use bytes::Bytes;

use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::reply::unknown_word;
use super::stored_form::{Change, StoredMessage};
use crate::domain::ids::{Millis, Rev, Seq, UserId};
use crate::domain::membership::Role;
use crate::domain::message::Message;

/// The script.
pub static SCRIPT: Script = Script { name: "change_message", source: include_str!("../../lua/change_message.lua") };

/// A decision to apply.
#[derive(Clone, Debug)]
pub struct MessageChange<'a> {
    /// Who must still be a member, and with which standing; `None` for who needs no membership.
    pub member: Option<(&'a UserId, Option<Role>)>,
    /// The message afterwards, with the rev that it had before.
    pub message: &'a Message,
    /// The conversation's rev when the message was read.
    pub read_at: Rev,
    /// Whether one of a pair had blocked the other then.
    pub blocked: bool,
    /// The highest seq that a member had cleared then.
    pub cleared_max: Seq,
    /// Users that the message no longer names.
    pub unnamed: &'a [UserId],
    /// What the outbox says.
    pub change: Change,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageChanged {
    /// Applied.
    Done {
        /// The message's rev now.
        rev: Rev,
    },
    /// The message or a standing has changed: read and decide again.
    Changed,
    /// Whoever asks is no member any more.
    NotMember,
    /// The conversation is not in Redis.
    Cold,
    /// It takes no writes for a moment.
    Closed,
    /// The outbox is at its high-water mark.
    Overloaded,
    /// The server is not the one the shard's epoch was opened on.
    StaleEpoch,
}

/// Applies a decision about a message.
///
/// # Errors
/// When Redis cannot be asked. Whether it was applied is then seen by reading the message again.
pub async fn change_message(
    link: &Link,
    keys: &Keys,
    now: Millis,
    outbox_max: u64,
    wanted: &MessageChange<'_>,
) -> Result<MessageChanged, RedisError> {
    let message = wanted.message;
    let shard = keys.shard_of(&message.conversation);
    let k = keys.conversation(&message.conversation);
    let names = vec![keys::shard_info(shard), keys::outbox(shard), k.head, k.members, k.window, k.revs, k.uncounted, k.amended, k.mentions];
    let (user, role) = match wanted.member {
        Some((user, Some(Role::Owner))) => (user.as_str(), "o"),
        Some((user, Some(Role::Member))) => (user.as_str(), "m"),
        Some((user, None)) => (user.as_str(), ""),
        None => ("", ""),
    };
    let args: [Bytes; 14] = [
        now.to_string().into(),
        outbox_max.to_string().into(),
        message.conversation.to_string().into(),
        user.to_owned().into(),
        role.into(),
        message.seq.to_string().into(),
        message.rev.to_string().into(),
        wanted.read_at.to_string().into(),
        StoredMessage::of(message).to_json().into(),
        // A tree of strings and numbers always serialises.
        serde_json::to_string(&wanted.change).unwrap_or_default().into(),
        if message.counts() { "0" } else { "1" }.into(),
        if wanted.blocked { "1" } else { "0" }.into(),
        wanted.cleared_max.to_string().into(),
        wanted.unnamed.iter().map(UserId::as_str).collect::<Vec<_>>().join("\n").into(),
    ];
    let reply = link.eval(&SCRIPT, names, args.into()).await?;
    let mut items = reply.items()?;
    Ok(match items.str()? {
        "done" => MessageChanged::Done { rev: items.u64()? },
        "changed" => MessageChanged::Changed,
        "not_member" => MessageChanged::NotMember,
        "cold" => MessageChanged::Cold,
        "closed" => MessageChanged::Closed,
        "overloaded" => MessageChanged::Overloaded,
        "stale_epoch" => MessageChanged::StaleEpoch,
        _ => unknown_word("change_message: unknown word")?,
    })
}
