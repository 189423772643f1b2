//! Gives a message whose number another one has in the archive a new number. See `lua/resequence_message.lua`.

use bytes::Bytes;
use serde_json::json;
use uuid::Uuid;

use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::reply::unknown_word;
use super::stored_form::{Change, StoredMessage};
use crate::domain::event::EventType;
use crate::domain::ids::{ConversationId, Millis, Seq};
use crate::domain::message::Message;

/// The script.
pub static SCRIPT: Script = Script { name: "resequence_message", source: include_str!("../../lua/resequence_message.lua") };

/// What is moved, and what the archive said.
#[derive(Clone, Debug)]
pub struct Resequence<'a> {
    /// Where.
    pub conversation: &'a ConversationId,
    /// The first number of the lease under which the archive was asked.
    pub lease_from: Seq,
    /// The number that another message has.
    pub old_seq: Seq,
    /// The message to be moved.
    pub id: Uuid,
    /// The message as it was accepted, as JSON; Redis uses what it holds itself if it still holds the message.
    pub json: &'a str,
    /// What the archive holds on the old number and above the head, ascending; at least one.
    pub stands: &'a [Message],
    /// Whether that is all of it.
    pub whole: bool,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resequenced {
    /// It stands here now.
    Moved(Seq),
    /// Somebody had moved it here before.
    Done(Seq),
    /// What the archive holds was brought in; there is more to bring in before the message can be moved.
    Adopted,
    /// The conversation is not in Redis under that lease.
    Other,
    /// It takes no writes for a moment.
    Closed,
    /// Its numbers do not reach beyond what the archive holds.
    LeaseUsedUp,
    /// The server is not the one the shard's epoch was opened on.
    StaleEpoch,
}

/// Moves a message. Repeating is safe: it is moved once.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn resequence_message(link: &Link, keys: &Keys, now: Millis, wanted: &Resequence<'_>) -> Result<Resequenced, RedisError> {
    let shard = keys.shard_of(wanted.conversation);
    let k = keys.conversation(wanted.conversation);
    let names = vec![
        keys::shard_info(shard),
        keys::outbox(shard),
        k.head,
        k.members,
        k.marks,
        k.window,
        k.revs,
        k.uncounted,
        k.keys_0,
        k.keys_1,
        k.amended,
        k.mentions,
    ];
    let mut args: Vec<Bytes> = vec![
        now.to_string().into(),
        wanted.conversation.to_string().into(),
        wanted.lease_from.to_string().into(),
        wanted.old_seq.to_string().into(),
        wanted.id.to_string().into(),
        wanted.json.to_owned().into(),
        Change::telling(EventType::MessageResequenced, Some(json!({"old_seq": wanted.old_seq}))).to_json().into(),
        Change::telling(EventType::MessageEdited, None).to_json().into(),
        if wanted.whole { "1" } else { "0" }.into(),
    ];
    for message in wanted.stands {
        args.push(message.seq.to_string().into());
        args.push(StoredMessage::of(message).to_json().into());
    }
    let reply = link.eval(&SCRIPT, names, args).await?;
    let mut items = reply.items()?;
    Ok(match items.str()? {
        "moved" => Resequenced::Moved(items.u64()?),
        "done" => Resequenced::Done(items.u64()?),
        "adopted" => Resequenced::Adopted,
        "other" => Resequenced::Other,
        "closed" => Resequenced::Closed,
        "lease_used_up" => Resequenced::LeaseUsedUp,
        "stale_epoch" => Resequenced::StaleEpoch,
        _ => unknown_word("resequence_message")?,
    })
}
