//! Moves a member's read watermark, only ever forward.

use bytes::Bytes;
use serde_json::json;

use super::conversation_head::parse_voids;
use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::outbox::LIVE_MARK;
use super::reply::unknown_word;
use super::stored_form::parse_member;
use crate::domain::event::EventType;
use crate::domain::ids::{ConversationId, Millis, Seq, UserId};
use crate::domain::membership::Member;

/// The script.
pub static SCRIPT: Script = Script { name: "advance_read", source: include_str!("../../lua/advance_read.lua") };

/// A watermark to move.
#[derive(Clone, Debug)]
pub struct AdvanceRead {
    /// Where.
    pub conversation: ConversationId,
    /// Whose.
    pub user: UserId,
    /// How far; above the head it is the head.
    pub seq: Seq,
    /// Members up to which the others learn of it from their logs; in a larger conversation it reaches their open streams alone.
    pub members_max: u64,
}

/// Where the watermark stands now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadMark {
    /// Whether this call moved it.
    pub moved: bool,
    /// Its place.
    pub read_seq: Seq,
    /// When it last moved; 0 for never.
    pub read_at: Millis,
    /// The conversation's head.
    pub head_seq: Seq,
    /// The user's membership.
    pub member: Member,
    /// Seqs after the watermark, and after what the user has cleared, that never count as unread.
    pub uncounted: u64,
    /// The conversation's voids.
    pub voids: Vec<(Seq, Seq)>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advanced {
    /// The watermark.
    Mark(ReadMark),
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

/// Moves a watermark.
///
/// # Errors
/// When Redis cannot be asked; repeating is safe, a maximum taken twice is the same.
pub async fn advance_read(
    link: &Link,
    keys: &Keys,
    now: Millis,
    read_at_text: &str,
    outbox_max: u64,
    advance: &AdvanceRead,
) -> Result<Advanced, RedisError> {
    let shard = keys.shard_of(&advance.conversation);
    let k = keys.conversation(&advance.conversation);
    let names = vec![keys::shard_info(shard), keys::outbox(shard), k.head, k.members, k.marks, k.uncounted, k.mentions];
    let pieces = |reach| change_pieces(&advance.user, now, read_at_text, reach);
    let (for_all, middle, end) = pieces(Reach::AllKept);
    let (for_self, _, _) = pieces(Reach::OthersLive);
    let (for_self_alone, _, _) = pieces(Reach::SelfAlone);
    let args: Vec<Bytes> = [
        now.to_string(),
        outbox_max.to_string(),
        advance.conversation.to_string(),
        advance.user.to_string(),
        advance.seq.to_string(),
        advance.members_max.to_string(),
        for_all,
        for_self,
        middle,
        end,
        for_self_alone,
    ]
    .map(Bytes::from)
    .into();
    let reply = link.eval(&SCRIPT, names, args).await?;
    let mut items = reply.items()?;
    let word = items.str()?;
    Ok(match word {
        "advanced" | "unchanged" => Advanced::Mark(ReadMark {
            moved: word == "advanced",
            read_seq: items.u64()?,
            read_at: items.i64()?,
            head_seq: items.u64()?,
            uncounted: items.u64()?,
            voids: parse_voids(items.item()?.present().map_or(Ok("[]"), |v| v.as_str())?)?,
            member: parse_member(advance.user.as_str(), items.str()?)?,
        }),
        "not_member" => Advanced::NotMember,
        "cold" => Advanced::Cold,
        "closed" => Advanced::Closed,
        "overloaded" => Advanced::Overloaded,
        "stale_epoch" => Advanced::StaleEpoch,
        _ => unknown_word("advance_read: unknown word")?,
    })
}

/// Who learns that a watermark moved; one's own devices always do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Everybody, from their logs.
    AllKept,
    /// The others on their open streams alone.
    OthersLive,
    /// Nobody else.
    SelfAlone,
}

/// The change as JSON (see `stored_form::Change`), in pieces between which the seq belongs: only the script knows it.
fn change_pieces(user: &UserId, now: Millis, read_at_text: &str, reach: Reach) -> (String, String, String) {
    let user = json!(user.as_str());
    let kind = EventType::ReadAdvanced.code();
    let at = json!(read_at_text);
    let to = if reach == Reach::AllKept { json!("all") } else { json!({"only": [&user]}) };
    let for_others =
        if reach == Reach::OthersLive { format!(r#"{{"t":"{kind}{LIVE_MARK}","to":{{"except":[{user}]}}}},"#) } else { String::new() };
    (
        format!(r#"{{"events":[{for_others}{{"t":"{kind}","to":{to},"d":{{"user_id":{user},"read_at":{at},"read_seq":"#),
        format!(r#"}}}}],"read":[{user},"#),
        format!(",{now}]}}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::stored_form::{Audience, Change};

    #[test]
    fn the_pieces_make_a_change_again_whatever_the_user_is_called() {
        for name in ["ann", "18446744073709551615", "\",18446744073709551615", "\"read_seq\":18446744073709551615"] {
            let user = UserId::parse(name).unwrap();
            let (a, b, c) = change_pieces(&user, 5, "t", Reach::AllKept);
            let change: Change = serde_json::from_str(&format!("{a}7{b}7{c}")).unwrap();
            assert_eq!(change.read, Some((name.to_owned(), 7, 5)));
            assert_eq!(change.events[0].to, Audience::All);
            assert_eq!(change.events[0].d.as_ref().unwrap()["read_seq"], 7);
            assert_eq!(change.events[0].d.as_ref().unwrap()["user_id"], name);
            let (a, b, c) = change_pieces(&user, 5, "t", Reach::OthersLive);
            let large: Change = serde_json::from_str(&format!("{a}7{b}7{c}")).unwrap();
            let named = vec![name.to_owned()];
            assert_eq!((large.events[0].t.as_str(), &large.events[0].to), ("ra~", &Audience::Except(named.clone())));
            assert_eq!((&large.events[1].to, &large.events[1].d), (&Audience::Only(named), &change.events[0].d));
            let (a, b, c) = change_pieces(&user, 5, "t", Reach::SelfAlone);
            let blocked: Change = serde_json::from_str(&format!("{a}7{b}7{c}")).unwrap();
            assert_eq!(blocked.events, large.events[1..]);
        }
    }
}
