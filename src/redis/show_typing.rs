//! Lets a sign of typing pass, or holds it back. See `lua/show_typing.lua`.

use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::reply::unknown_word;
use super::stored_form::Unreadable;
use crate::domain::ids::{ConversationId, Rev, UserId};

/// The script.
pub static SCRIPT: Script = Script { name: "show_typing", source: include_str!("../../lua/show_typing.lua") };

/// Milliseconds between two signs of one user in one conversation that pass.
const BETWEEN_MS: u64 = 3_000;
/// Milliseconds after which receivers drop a sign by themselves; a stop after that has nothing to stop.
const LIFE_MS: u64 = 6_000;

/// What became of a sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// It passes.
    Passed {
        /// The conversation's rev.
        rev: Rev,
        /// Who belongs to it in this moment, the typing user included.
        members: Vec<UserId>,
    },
    /// It passes; the archive knows the members.
    PassedCold,
    /// One passed a moment ago, there is none to stop, or one of a pair has blocked the other.
    Held,
    /// The user is no member.
    NotMember,
    /// The conversation is not in Redis.
    Cold,
    /// The server is not the one the shard's epoch was opened on.
    StaleEpoch,
}

/// Lets it pass or holds it back; with `is_archived_member` also where the conversation is not in Redis.
///
/// # Errors
/// When Redis cannot be asked or the answer has another form.
pub async fn show_typing(
    link: &Link,
    keys: &Keys,
    id: &ConversationId,
    user: &UserId,
    typing: bool,
    is_archived_member: bool,
) -> Result<Shown, RedisError> {
    let k = keys.conversation(id);
    let names = vec![keys::shard_info(keys.shard_of(id)), k.head, k.members, keys.typing(id, user)];
    let flag = |yes: bool| if yes { "1" } else { "0" };
    let args = vec![
        user.to_string().into(),
        flag(typing).into(),
        LIFE_MS.to_string().into(),
        BETWEEN_MS.to_string().into(),
        flag(is_archived_member).into(),
    ];
    let reply = link.eval(&SCRIPT, names, args).await?;
    let mut items = reply.items()?;
    Ok(match items.str()? {
        "passed" => {
            let rev = items.u64()?;
            let member = |reply: &super::reply::Reply| UserId::parse(reply.as_str()?).map_err(|_| Unreadable("member id"));
            Shown::Passed { rev, members: items.list()?.iter().map(member).collect::<Result<_, _>>()? }
        }
        "passed_cold" => Shown::PassedCold,
        "held" => Shown::Held,
        "not_member" => Shown::NotMember,
        "cold" => Shown::Cold,
        "stale_epoch" => Shown::StaleEpoch,
        _ => unknown_word("show_typing")?,
    })
}
