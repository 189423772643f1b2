//! Numbers and keeps messages: the hot step of the whole product.

use bytes::Bytes;

use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::reply::{Reply, unknown_word};
use super::stored_form::parse_window_value;
use crate::domain::ids::{ClientKey, ConversationId, Millis, Rev, Seq, ShardId, UserId};
use crate::domain::message::Message;
use crate::domain::rate_limit::Rate;

/// The script.
pub static SCRIPT: Script = Script { name: "send_message", source: include_str!("../../lua/send_message.lua") };

/// The two users of a conversation that may have to be made by this send.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Bytewise lower id.
    pub low: UserId,
    /// Bytewise higher id.
    pub high: UserId,
    /// The pair as stored.
    pub json: String,
    /// What the outbox says when the conversation is made.
    pub change_json: String,
}

/// One send.
#[derive(Clone, Debug)]
pub struct Send {
    /// Where to.
    pub conversation: ConversationId,
    /// By whom.
    pub sender: UserId,
    /// The idempotency key.
    pub client_id: ClientKey,
    /// What is compared when the key comes again.
    pub fingerprint: String,
    /// Whether Postgres was asked for this key and knew none.
    pub archive_asked: bool,
    /// The message without its place.
    pub message_json: String,
    /// When a peer was named.
    pub pair: Option<Pair>,
    /// Whether the sender needs no membership.
    pub open: bool,
    /// Ask what would be, but do not write.
    pub refuse: bool,
    /// Users it names; all must be members.
    pub mentions: Vec<UserId>,
}

/// What became of one send.
#[derive(Clone, Debug, PartialEq)]
pub enum Sent {
    /// It has its number.
    Sent {
        /// The number.
        seq: Seq,
        /// The conversation's rev.
        rev: Rev,
        /// Numbers that are left in the lease.
        left: u64,
        /// `master_replid` of the server that took it.
        replid: String,
        /// Whether it made the conversation.
        made: bool,
        /// Whole tokens left in the conversation's bucket; says nothing without a limit.
        tokens: u64,
    },
    /// The key is known, with the same content; the message is there unless it has left the window.
    Replayed {
        /// The number it has.
        seq: Seq,
        /// The message as it is now.
        message: Option<Box<Message>>,
    },
    /// The key is known, with other content.
    Conflict,
    /// The conversation is not in Redis.
    Cold,
    /// The conversation takes no writes for a moment.
    Closed,
    /// The conversation was never made, and no peer was named.
    Unmade,
    /// Only Postgres can tell whether the key is new.
    AskArchive,
    /// The sender is no member.
    NotMember,
    /// The group has ended.
    Dissolved,
    /// Somebody is named who is no member.
    StrangerNamed,
    /// Everything would have been in order, unless it is blocked; nothing was written, as asked.
    Refused {
        /// Whether one of a pair has blocked the other.
        blocked: bool,
    },
    /// One of a pair has blocked the other.
    Blocked,
    /// The conversation takes one more in so many milliseconds; nothing was written.
    Limited {
        /// Milliseconds to wait.
        wait_ms: u64,
    },
    /// Numbers must be fetched first.
    LeaseUsedUp,
    /// The outbox is at its high-water mark.
    Overloaded,
    /// The server is not the one the shard's epoch was opened on.
    StaleEpoch,
}

/// What a run of sends has in common.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// When, ms.
    pub now: Millis,
    /// Outbox length in entries above which sends are refused.
    pub outbox_max: u64,
    /// How fast one conversation takes messages.
    pub conversation_rate: Option<Rate>,
}

/// Sends a run of messages of one shard, in order.
///
/// # Errors
/// When Redis cannot be asked; each send is then safe to repeat, its key makes it so.
pub async fn send_messages(link: &Link, keys: &Keys, shard: ShardId, terms: &Terms, sends: &[Send]) -> Result<Vec<Sent>, RedisError> {
    let (names, args) = call_of(keys, shard, terms, sends);
    let reply = link.eval(&SCRIPT, names, args).await?;
    let replies = reply.as_list()?;
    if replies.len() != sends.len() {
        return Err(super::stored_form::Unreadable("send_message: another count than was sent").into());
    }
    sends.iter().zip(replies).map(|(send, reply)| parse(send, reply)).collect()
}

/// The script's keys and arguments for these sends; also what `benches/sends.rs` gives to `redis-benchmark`.
#[must_use]
pub fn call_of(keys: &Keys, shard: ShardId, terms: &Terms, sends: &[Send]) -> (Vec<String>, Vec<Bytes>) {
    let mut names = vec![keys::shard_info(shard), keys::outbox(shard)];
    let (per_second, burst) = terms.conversation_rate.map_or((0.0, 1), |rate| (rate.per_second, rate.burst));
    let common = [terms.now.to_string(), terms.outbox_max.to_string(), sends.len().to_string(), per_second.to_string(), burst.to_string()];
    let mut args: Vec<Bytes> = common.into_iter().map(Bytes::from).collect();
    for send in sends {
        let k = keys.conversation(&send.conversation);
        names.extend([k.head, k.members, k.marks, k.window, k.revs, k.keys_0, k.keys_1, k.mentions]);
        let (pair, low, high, change) =
            send.pair.as_ref().map_or(("", "", "", ""), |p| (p.json.as_str(), p.low.as_str(), p.high.as_str(), p.change_json.as_str()));
        // No user id holds a line break.
        let mentions = send.mentions.iter().map(UserId::as_str).collect::<Vec<_>>().join("\n");
        let stamp = send.client_id.stamped_at().map(|ms| ms.to_string()).unwrap_or_default();
        for text in [
            send.conversation.as_str(),
            send.sender.as_str(),
            send.client_id.as_str(),
            &send.fingerprint,
            &stamp,
            if send.archive_asked { "1" } else { "0" },
            &send.message_json,
            pair,
            low,
            high,
            change,
            match (send.open, send.refuse) {
                (false, false) => "",
                (false, true) => "refuse",
                (true, false) => "open",
                (true, true) => "open refuse",
            },
            &mentions,
        ] {
            args.push(Bytes::copy_from_slice(text.as_bytes()));
        }
    }
    (names, args)
}

fn parse(send: &Send, reply: &Reply) -> Result<Sent, RedisError> {
    let mut items = reply.items()?;
    Ok(match items.str()? {
        "sent" => Sent::Sent {
            seq: items.u64()?,
            rev: items.u64()?,
            left: items.u64()?,
            replid: items.str()?.to_owned(),
            made: items.bool()?,
            tokens: items.u64()?,
        },
        "replayed" => {
            let seq = items.u64()?;
            let message = match items.item()?.present() {
                Some(value) => Some(Box::new(parse_window_value(&send.conversation, seq, value.as_str()?)?)),
                None => None,
            };
            Sent::Replayed { seq, message }
        }
        "conflict" => Sent::Conflict,
        "cold" => Sent::Cold,
        "closed" => Sent::Closed,
        "unmade" => Sent::Unmade,
        "ask_archive" => Sent::AskArchive,
        "not_member" => Sent::NotMember,
        "dissolved" => Sent::Dissolved,
        "stranger_named" => Sent::StrangerNamed,
        "refused" => Sent::Refused { blocked: items.bool()? },
        "blocked" => Sent::Blocked,
        "limited" => Sent::Limited { wait_ms: items.u64()? },
        "lease_used_up" => Sent::LeaseUsedUp,
        "overloaded" => Sent::Overloaded,
        "stale_epoch" => Sent::StaleEpoch,
        _ => unknown_word("send_message: unknown word")?,
    })
}
