//! Takes the key from a message whose key names another one in the archive. See `lua/settle_double.lua`.

use bytes::Bytes;

use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::reply::unknown_word;
use super::stored_form::{Change, StoredMessage};
use crate::domain::event::EventType;
use crate::domain::ids::{ClientKey, Millis, UserId};
use crate::domain::message::Message;

/// The script.
pub static SCRIPT: Script = Script { name: "settle_double", source: include_str!("../../lua/settle_double.lua") };

/// A message that loses its key.
#[derive(Clone, Debug)]
pub struct Double<'a> {
    /// As it is to be, with the rev that it had.
    pub message: &'a Message,
    /// The key.
    pub key: &'a ClientKey,
    /// The message that the key names.
    pub first: &'a Message,
    /// Users that it named and does not name any more.
    pub unnamed: &'a [UserId],
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoubleSettled {
    /// It has no key any more.
    Done,
    /// It has changed meanwhile, or left Redis.
    Changed,
    /// The conversation is not in Redis.
    Cold,
    /// It takes no writes for a moment.
    Closed,
    /// The server is not the one the shard's epoch was opened on.
    StaleEpoch,
}

/// Takes the key away, and has it name the first message.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn settle_double(link: &Link, keys: &Keys, now: Millis, double: &Double<'_>) -> Result<DoubleSettled, RedisError> {
    let message = double.message;
    let shard = keys.shard_of(&message.conversation);
    let k = keys.conversation(&message.conversation);
    let names = vec![
        keys::shard_info(shard),
        keys::outbox(shard),
        k.head,
        k.window,
        k.revs,
        k.uncounted,
        k.keys_0,
        k.keys_1,
        k.amended,
        k.mentions,
    ];
    let kind = if message.deleted_at.is_some() { EventType::MessageDeleted } else { EventType::MessageEdited };
    // Without a key the archive does not know that somebody sent it, and so read up to it.
    let read = Some((message.sender.to_string(), message.seq, message.created_at));
    let change = Change { read, ..Change::telling(kind, None) };
    let args: [Bytes; 10] = [
        now.to_string().into(),
        message.conversation.to_string().into(),
        message.seq.to_string().into(),
        message.rev.to_string().into(),
        StoredMessage::of(message).to_json().into(),
        change.to_json().into(),
        format!("{}\0{}", message.sender, double.key).into(),
        format!("{} {}", double.first.seq, double.first.fingerprint.as_deref().unwrap_or_default()).into(),
        if message.counts() { "0" } else { "1" }.into(),
        double.unnamed.iter().map(UserId::as_str).collect::<Vec<_>>().join("\n").into(),
    ];
    let reply = link.eval(&SCRIPT, names, args.into()).await?;
    Ok(match reply.items()?.str()? {
        "done" => DoubleSettled::Done,
        "changed" => DoubleSettled::Changed,
        "cold" => DoubleSettled::Cold,
        "closed" => DoubleSettled::Closed,
        "stale_epoch" => DoubleSettled::StaleEpoch,
        _ => unknown_word("settle_double")?,
    })
}
