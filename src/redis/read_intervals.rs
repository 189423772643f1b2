//! Who belongs to a conversation and since when, as dispatch needs it.

use super::error::RedisError;
use super::keys::Keys;
use super::link::{Link, Script};
use super::reply::unknown_word;
use super::stored_form::{Unreadable, parse_member};
use crate::domain::ids::{ConversationId, UserId};
use crate::domain::membership::Interval;

/// The script.
pub static SCRIPT: Script = Script { name: "read_intervals", source: include_str!("../../lua/read_intervals.lua") };

/// The intervals of a conversation at one membership version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// Changes of membership up to this version are in it.
    pub members_version: u64,
    /// Current and lately ended intervals.
    pub intervals: Vec<Interval>,
    /// Whether some of them have ended.
    pub has_ended: bool,
}

/// Reads the intervals; `None` when the conversation is not in Redis.
///
/// # Errors
/// When Redis cannot be asked or a record is not in its form.
pub async fn read_intervals(link: &Link, keys: &Keys, conversation: &ConversationId) -> Result<Option<Intervals>, RedisError> {
    let k = keys.conversation(conversation);
    let reply = link.eval(&SCRIPT, vec![k.head, k.members, k.left], vec![]).await?;
    let mut items = reply.items()?;
    match items.str()? {
        "cold" => return Ok(None),
        "here" => {}
        _ => return Ok(unknown_word("read_intervals")?),
    }
    let members_version = items.u64()?;
    let mut intervals = Vec::new();
    for (user, record) in items.item()?.as_pairs()? {
        let member = parse_member(user.as_str()?, record.as_str()?)?;
        intervals.push(Interval { user: member.user, joined_rev: member.joined_rev, left_rev: None });
    }
    let ended = items.list()?;
    for interval in ended {
        intervals.push(parse_ended(interval.as_str()?)?);
    }
    Ok(Some(Intervals { members_version, intervals, has_ended: !ended.is_empty() }))
}

/// Reads `<joined_rev> <left_rev> <user id>`; a user id may hold spaces.
fn parse_ended(text: &str) -> Result<Interval, Unreadable> {
    let wrong = Unreadable("ended membership");
    let mut parts = text.splitn(3, ' ');
    let mut number = || parts.next().and_then(|t| t.parse().ok());
    let (joined_rev, left_rev) = number().zip(number()).ok_or(wrong.clone())?;
    let user = parts.next().and_then(|u| UserId::parse(u).ok()).ok_or(wrong)?;
    Ok(Interval { user, joined_rev, left_rev: Some(left_rev) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_interval_is_read_whatever_the_user_id_holds() {
        let interval = parse_ended("3 9 ann of green gables").unwrap();
        assert_eq!((interval.user.as_str(), interval.joined_rev, interval.left_rev), ("ann of green gables", 3, Some(9)));
        for wrong in ["", "3", "3 9", "3 9 ", "x 9 ann", "3 x ann"] {
            assert!(parse_ended(wrong).is_err(), "{wrong:?}");
        }
    }
}
