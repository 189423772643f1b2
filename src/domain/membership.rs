//! Who belongs to a conversation, since when, and what that lets one see.

use super::conversation::{Conversation, History};
use super::ids::{Kind, Millis, Rev, Seq, UserId};
use super::permission::{Act, Standing, may};
use super::preferences::Preferences;

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
    /// What they set for themselves.
    pub preferences: Preferences,
}

impl Member {
    /// The lowest seq this member may see: the one visibility rule for pages, unread, quotes, search, streams and push. It lies above what
    /// they cleared, and where history begins with joining, not below the join.
    #[must_use]
    pub fn first_visible_seq(&self, conversation: &Conversation) -> Seq {
        let by_history = match (conversation.kind(), conversation.history) {
            (Kind::Group, History::FromJoin) if self.joined_seq > 0 => self.joined_seq,
            _ => 1,
        };
        by_history.max(self.preferences.cleared_to.saturating_add(1))
    }
}

/// Who reads a conversation: a user, who must be a member; or somebody whose standing makes up for that.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    /// The user, or the `sub` of the host application's server.
    pub user: &'a UserId,
    /// A standing beside membership, and for what it is asked.
    beside: Option<(Standing, Act)>,
}

impl<'a> From<&'a UserId> for Reader<'a> {
    fn from(user: &'a UserId) -> Self {
        Self { user, beside: None }
    }
}

impl<'a> Reader<'a> {
    /// A caller; the host application's server reads its own conversations without belonging to them.
    #[must_use]
    pub fn caller(user: &'a UserId, service: bool) -> Self {
        Self { user, beside: service.then_some((Standing::Service, Act::Read)) }
    }

    /// Somebody who takes whole conversations out.
    #[must_use]
    pub fn of_everything(user: &'a UserId, standing: Standing) -> Self {
        Self { user, beside: Some((standing, Act::Export)) }
    }

    /// The user who has to be a member of a conversation of this kind; `None` when nobody has to.
    #[must_use]
    pub fn must_be_member(&self, kind: Kind) -> Option<&'a UserId> {
        let may_read = self.beside.is_some_and(|(standing, act)| may(act, kind, standing));
        (!may_read).then_some(self.user)
    }

    /// The lowest seq that can be seen, with this membership; `None` for nothing.
    #[must_use]
    pub fn first_visible_seq(&self, conversation: &Conversation, member: Option<&Member>) -> Option<Seq> {
        match (self.must_be_member(conversation.kind()), member) {
            (None, _) => Some(1),
            (Some(_), Some(member)) => Some(member.first_visible_seq(conversation)),
            (Some(_), None) => None,
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
