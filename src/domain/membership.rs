//! Who belongs to a conversation, since when, and what that lets one see.

use super::conversation::{Conversation, History};
use super::ids::{Kind, Millis, Rev, Seq, UserId};

/// A member's standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Renames and removes; exactly one in a group.
    Owner,
    /// Everybody else.
    Member,
}

impl Role {
    /// The word used in JSON, Redis and Postgres.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Member => "member",
        }
    }

    /// The inverse of [`Role::as_str`].
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "owner" => Some(Self::Owner),
            "member" => Some(Self::Member),
            _ => None,
        }
    }
}

/// One membership interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub user: UserId,
    /// Standing.
    pub role: Role,
    /// When the interval began.
    pub joined_at: Millis,
    /// The seq of the join; messages above it are "after joining". 0 for founders.
    pub joined_seq: Seq,
    /// The rev of the join: events with this rev or a higher one are for this member.
    pub joined_rev: Rev,
}

impl Member {
    /// The lowest seq this member may see: the one visibility rule for pages, unread, quotes, streams and push.
    #[must_use]
    pub fn first_visible_seq(&self, conversation: &Conversation) -> Seq {
        match (conversation.kind(), conversation.history) {
            (Kind::Group, History::FromJoin) if self.joined_seq > 0 => self.joined_seq,
            _ => 1,
        }
    }
}

/// A membership interval as dispatch needs it: who sees events from which rev to which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Who.
    pub user: UserId,
    /// First rev seen.
    pub joined_rev: Rev,
    /// Last rev seen; `None` while a member.
    pub left_rev: Option<Rev>,
}

impl Interval {
    /// Whether an event with this rev is for this interval's user.
    #[must_use]
    pub fn contains(&self, rev: Rev) -> bool {
        self.joined_rev <= rev && self.left_rev.is_none_or(|left| rev <= left)
    }
}
