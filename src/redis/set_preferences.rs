//! Puts a member's preferences, or a block of the other one of a pair, in the place of what the decision was made on.

use bytes::Bytes;

use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::reply::unknown_word;
use super::stored_form::{Change, member_record};
use crate::domain::ids::{ConversationId, Millis, Rev, Seq};
use crate::domain::membership::Member;
use crate::domain::preferences::Preferences;

/// The script.
pub static SCRIPT: Script = Script { name: "set_preferences", source: include_str!("../../lua/set_preferences.lua") };

/// A decision to apply.
#[derive(Clone, Debug)]
pub struct PreferencesChange<'a> {
    /// Where.
    pub conversation: &'a ConversationId,
    /// The membership that the decision was made on.
    pub member: &'a Member,
    /// The conversation's head then.
    pub head: Seq,
    /// The member's watermark then.
    pub read_seq: Seq,
    /// What is set afterwards.
    pub preferences: Preferences,
    /// A block to set or lift.
    pub block: Option<BlockChange>,
    /// What the outbox says.
    pub change: Change,
}

/// A block to set or lift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockChange {
    /// The field of the head, one of [`BLOCK_FIELDS`](super::conversation_head::BLOCK_FIELDS).
    pub field: &'static str,
    /// Since when it stood; `None` for not at all.
    pub before: Option<Millis>,
    /// The same afterwards.
    pub after: Option<Millis>,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreferencesSet {
    /// Applied.
    Done {
        /// The conversation's rev now.
        rev: Rev,
    },
    /// What the decision was made on has changed: read and decide again.
    Changed,
    /// The user is no member.
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

/// Applies a decision.
///
/// # Errors
/// When Redis cannot be asked. Whether it was applied is then seen by reading again.
pub async fn set_preferences(
    link: &Link,
    keys: &Keys,
    now: Millis,
    outbox_max: u64,
    wanted: &PreferencesChange<'_>,
) -> Result<PreferencesSet, RedisError> {
    let shard = keys.shard_of(wanted.conversation);
    let k = keys.conversation(wanted.conversation);
    let names = vec![keys::shard_info(shard), keys::outbox(shard), k.head, k.members, k.marks];
    let after = Member { preferences: wanted.preferences, ..wanted.member.clone() };
    let bound = |matters: bool, place: Seq| if matters { place.to_string() } else { String::new() };
    let since = |at: Option<Millis>| at.map(|at| at.to_string()).unwrap_or_default();
    let args: [Bytes; 13] = [
        now.to_string().into(),
        outbox_max.to_string().into(),
        wanted.conversation.to_string().into(),
        wanted.member.user.to_string().into(),
        member_record(wanted.member).into(),
        member_record(&after).into(),
        bound(wanted.preferences.hidden_to.is_some(), wanted.head).into(),
        bound(wanted.preferences.marked_at.is_some(), wanted.read_seq).into(),
        wanted.preferences.cleared_to.to_string().into(),
        wanted.block.map_or("", |block| block.field).into(),
        since(wanted.block.and_then(|block| block.before)).into(),
        since(wanted.block.and_then(|block| block.after)).into(),
        // A tree of strings and numbers always serialises.
        serde_json::to_string(&wanted.change).unwrap_or_default().into(),
    ];
    let reply = link.eval(&SCRIPT, names, args.into()).await?;
    let mut items = reply.items()?;
    Ok(match items.str()? {
        "done" => PreferencesSet::Done { rev: items.u64()? },
        "changed" => PreferencesSet::Changed,
        "not_member" => PreferencesSet::NotMember,
        "cold" => PreferencesSet::Cold,
        "closed" => PreferencesSet::Closed,
        "overloaded" => PreferencesSet::Overloaded,
        "stale_epoch" => PreferencesSet::StaleEpoch,
        _ => unknown_word("set_preferences: unknown word")?,
    })
}
