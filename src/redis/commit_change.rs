//! Applies a decision about a conversation, with its timeline messages and events, whole or not at all.

use bytes::Bytes;
use uuid::Uuid;

use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::reply::unknown_word;
use super::stored_form::Change;
use crate::domain::ids::{ConversationId, Millis, Rev, Seq, UserId};
use crate::domain::membership::Role;

/// The script.
pub static SCRIPT: Script = Script { name: "commit_change", source: include_str!("../../lua/commit_change.lua") };

/// What happens to a membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberAct {
    /// A new interval begins.
    Join(UserId, Role),
    /// The standing changes.
    SetRole(UserId, Role),
    /// The interval ends.
    Leave(UserId),
}

/// One step: at most one timeline message, the facts that change with it, and what the outbox says.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// The timeline message without its place.
    pub message_json: Option<String>,
    /// What the outbox says.
    pub change: Change,
    /// Fields of the head.
    pub fields: Vec<(&'static str, String)>,
    /// What happens to memberships.
    pub acts: Vec<MemberAct>,
}

/// A decision to apply.
#[derive(Clone, Debug)]
pub struct Commit {
    /// Where.
    pub conversation: ConversationId,
    /// The membership version it was decided on.
    pub members_version: u64,
    /// Makes a repetition harmless.
    pub request: Uuid,
    /// In order.
    pub steps: Vec<Step>,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// Applied, now or by an earlier attempt of the same request.
    Done {
        /// The conversation's rev.
        rev: Rev,
        /// Its head.
        head: Seq,
    },
    /// The facts have changed: decide again.
    Changed,
    /// The conversation is not in Redis.
    Cold,
    /// It takes no writes for a moment.
    Closed,
    /// Numbers must be fetched first.
    LeaseUsedUp,
    /// The outbox is at its high-water mark.
    Overloaded,
    /// The server is not the one the shard's epoch was opened on.
    StaleEpoch,
}

/// Applies a decision.
///
/// # Errors
/// When Redis cannot be asked; repeating the same request is then safe.
pub async fn commit_change(link: &Link, keys: &Keys, now: Millis, outbox_max: u64, commit: &Commit) -> Result<Committed, RedisError> {
    let shard = keys.shard_of(&commit.conversation);
    let k = keys.conversation(&commit.conversation);
    let names =
        vec![keys::shard_info(shard), keys::outbox(shard), k.head, k.members, k.marks, k.window, k.revs, k.uncounted, k.left, k.mentions];
    let mut args: Vec<Bytes> = vec![
        now.to_string().into(),
        outbox_max.to_string().into(),
        commit.conversation.to_string().into(),
        commit.members_version.to_string().into(),
        commit.request.to_string().into(),
        commit.steps.len().to_string().into(),
    ];
    for step in &commit.steps {
        args.push(step.message_json.clone().unwrap_or_default().into());
        // A tree of strings and numbers always serialises.
        args.push(serde_json::to_string(&step.change).unwrap_or_default().into());
        args.push(step.fields.len().to_string().into());
        for (name, value) in &step.fields {
            args.extend([Bytes::from_static(name.as_bytes()), value.clone().into()]);
        }
        args.push(step.acts.len().to_string().into());
        for act in &step.acts {
            let (verb, user, role) = match act {
                MemberAct::Join(user, role) => ("join", user, role_letter(*role)),
                MemberAct::SetRole(user, role) => ("role", user, role_letter(*role)),
                MemberAct::Leave(user) => ("leave", user, ""),
            };
            args.extend([Bytes::from_static(verb.as_bytes()), user.to_string().into(), Bytes::from_static(role.as_bytes())]);
        }
    }
    let reply = link.eval(&SCRIPT, names, args).await?;
    let mut items = reply.items()?;
    Ok(match items.str()? {
        "done" => Committed::Done { rev: items.u64()?, head: items.u64()? },
        "changed" => Committed::Changed,
        "cold" => Committed::Cold,
        "closed" => Committed::Closed,
        "lease_used_up" => Committed::LeaseUsedUp,
        "overloaded" => Committed::Overloaded,
        "stale_epoch" => Committed::StaleEpoch,
        _ => unknown_word("commit_change: unknown word")?,
    })
}

fn role_letter(role: Role) -> &'static str {
    match role {
        Role::Owner => "o",
        Role::Member => "m",
    }
}
