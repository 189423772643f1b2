//! Conversations and members on the wire.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::message::Message;
use super::profile::ProfileFacts;
use super::timestamp::Timestamp;
use crate::domain::conversation::{self as domain, History as DomainHistory, parse_title};
use crate::domain::ids::{INTEGER_MAX, Kind as DomainKind, UserId};
use crate::domain::membership;
use crate::domain::preferences::PreferencesWish;
use crate::domain::profile::Profile;
use crate::domain::refusal::FieldError;

/// Which family a conversation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConversationKind {
    /// Two users, for ever.
    Single,
    /// Members come and go.
    Group,
    /// The host application speaks, members read.
    System,
}

impl From<DomainKind> for ConversationKind {
    fn from(kind: DomainKind) -> Self {
        match kind {
            DomainKind::Single => Self::Single,
            DomainKind::Group => Self::Group,
            DomainKind::System => Self::System,
        }
    }
}

/// What of the past a new member of a group sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum History {
    /// Everything.
    All,
    /// From the last join on.
    FromJoin,
}

impl From<DomainHistory> for History {
    fn from(history: DomainHistory) -> Self {
        match history {
            DomainHistory::All => Self::All,
            DomainHistory::FromJoin => Self::FromJoin,
        }
    }
}

impl From<History> for DomainHistory {
    fn from(history: History) -> Self {
        match history {
            History::All => Self::All,
            History::FromJoin => Self::FromJoin,
        }
    }
}

/// A member's standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Renames and removes; exactly one in a group.
    Owner,
    /// Everybody else.
    Member,
}

impl From<membership::Role> for Role {
    fn from(role: membership::Role) -> Self {
        match role {
            membership::Role::Owner => Self::Owner,
            membership::Role::Member => Self::Member,
        }
    }
}

/// The caller's own part of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Me {
    /// The caller's standing.
    pub role: Role,
    /// When the membership began.
    pub joined_at: Timestamp,
    /// Up to where the caller has read.
    pub read_seq: u64,
    /// When that last moved; null when it never did.
    pub read_at: Option<Timestamp>,
    /// Unread messages, exact up to a limit.
    pub unread: u64,
    /// Whether there are more than `unread` says.
    pub unread_more: bool,
    /// Unread messages that name the caller, at most as many as are counted.
    pub unread_mentions: u64,
    /// No notifications.
    pub muted: bool,
    /// Kept on top by clients; the list itself stays in the order of activity.
    pub pinned: bool,
    /// Out of the list until the next seq is given out: a message of whomever, or one of the timeline.
    pub hidden: bool,
    /// Marked by hand, until the caller next reads or sends.
    pub marked_unread: bool,
    /// Messages up to this seq are not shown to the caller.
    pub cleared_to: u64,
    /// Whether the caller has blocked the other one of a single conversation; the other one is not told.
    pub blocked: bool,
}

/// A conversation as the caller sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Conversation {
    /// Stable for ever, e.g. `group:0193…`.
    pub id: String,
    /// The family.
    pub kind: ConversationKind,
    /// A title; null is "named from its members".
    pub title: Option<String>,
    /// A group's owner.
    pub owner: Option<String>,
    /// The other user of a single conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// How the other user is shown; only in single conversations, and only what is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_profile: Option<ProfileFacts>,
    /// What the caller may show it as: the title, else the other one's name, else the names of the first other members (ids where no name
    /// is known); null when there is nothing to call it by. May be a few seconds old.
    #[serde(default)]
    pub display_name: Option<String>,
    /// What new members of a group see of the past; only in groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
    /// How many members there are.
    pub member_count: u64,
    /// The last seq given out, 0 before the first.
    pub head_seq: u64,
    /// Grows with every change of anything in the conversation.
    pub rev: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When something last happened in it.
    pub updated_at: Timestamp,
    /// The newest message that the caller may see.
    pub last_message: Option<Message>,
    /// The caller's own part; null for the host application's server, which is no member of its own conversations.
    pub me: Option<Me>,
}

impl From<&domain::ConversationView> for Conversation {
    fn from(view: &domain::ConversationView) -> Self {
        let facts = &view.conversation;
        Self {
            id: facts.id.to_string(),
            kind: facts.kind().into(),
            title: facts.title.clone(),
            owner: facts.owner.as_ref().map(ToString::to_string),
            peer: facts.peer_of(&view.me.user).map(ToString::to_string),
            peer_profile: view.names.peer.as_ref().map(ProfileFacts::from),
            display_name: view.names.called.clone(),
            history: (facts.kind() == DomainKind::Group).then(|| facts.history.into()),
            member_count: facts.member_count,
            head_seq: facts.head_seq,
            rev: facts.rev,
            created_at: Timestamp(facts.created_at),
            updated_at: Timestamp(facts.updated_at),
            last_message: view.last_message.as_ref().map(Message::from),
            me: (!view.outside).then(|| Me {
                role: view.me.role.into(),
                joined_at: Timestamp(view.me.joined_at),
                read_seq: view.read_seq,
                read_at: view.read_at.map(Timestamp),
                unread: view.unread.count,
                unread_more: view.unread.more,
                unread_mentions: view.unread_mentions,
                muted: view.preferences.muted,
                pinned: view.preferences.pinned,
                hidden: view.preferences.hidden,
                marked_unread: view.preferences.marked_unread,
                cleared_to: view.preferences.cleared_to,
                blocked: facts.blocked_by(&view.me.user).is_some(),
            }),
        }
    }
}

/// Conversations, newest activity first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConversationPage {
    /// The conversations.
    pub items: Vec<Conversation>,
    /// For the next page; null on the last one.
    pub next_cursor: Option<String>,
    /// Open the stream from here to start without a gap; read before the list.
    pub events_head: String,
}

/// A member of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// Who.
    pub user_id: String,
    /// Standing.
    pub role: Role,
    /// When the membership began.
    pub joined_at: Timestamp,
    /// Name, when one is known; may be a few seconds old.
    #[serde(default)]
    pub name: Option<String>,
    /// Picture, when one is known.
    #[serde(default)]
    pub avatar_url: Option<String>,
}

impl Member {
    /// A member, and how it is shown.
    #[must_use]
    pub fn new(member: &membership::Member, profile: Option<&Profile>) -> Self {
        let Profile { name, avatar_url } = profile.cloned().unwrap_or_default();
        Self { user_id: member.user.to_string(), role: member.role.into(), joined_at: Timestamp(member.joined_at), name, avatar_url }
    }
}

/// Members, ordered by user id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemberPage {
    /// The members.
    pub items: Vec<Member>,
    /// For the next page; null on the last one.
    pub next_cursor: Option<String>,
}

/// Unread messages over all of the caller's conversations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnreadTotals {
    /// Unread messages in conversations that are not muted.
    pub total: u64,
    /// How many of these conversations have any, or are marked by hand. Hidden ones are not counted.
    pub conversations: u64,
    /// Whether some conversation has more than is counted.
    pub more: bool,
    /// The same for muted ones.
    pub muted: MutedTotals,
}

/// Unread messages in muted conversations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MutedTotals {
    /// Unread messages.
    pub total: u64,
    /// How many conversations have any, or are marked by hand.
    pub conversations: u64,
}

/// A conversation to make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateConversation {
    /// The family.
    pub kind: ConversationKind,
    /// The other user; for `single`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// 1 to 80 characters after trimming; for `group` and `system`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The other members, without oneself; for `group` and `system`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<Vec<String>>,
    /// `all` when absent; for `group`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
    /// The host's business key; for `system`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A conversation to make, proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewConversation {
    /// With one other user.
    Single {
        /// The other one.
        peer: UserId,
    },
    /// With any number of others.
    Group {
        /// Trimmed title.
        title: Option<String>,
        /// The others, each once, in the order given.
        members: Vec<UserId>,
        /// What joiners see.
        history: DomainHistory,
    },
    /// By the host application.
    System {
        /// Business key, not yet proven.
        key: String,
        /// Trimmed title.
        title: Option<String>,
        /// Who reads it.
        members: Vec<UserId>,
    },
}

impl CreateConversation {
    /// Proves the request of `caller`.
    ///
    /// # Errors
    /// Names the first field that cannot be accepted: one that does not belong to the kind, one that is missing, oneself as peer or member.
    pub fn prove(self, caller: &UserId) -> Result<NewConversation, FieldError> {
        self.prove_beside(Some(caller))
    }

    /// Proves the request of the host application's server, for a conversation to which it does not belong itself.
    ///
    /// # Errors
    /// As [`CreateConversation::prove`].
    pub fn prove_for_service(self) -> Result<NewConversation, FieldError> {
        self.prove_beside(None)
    }

    fn prove_beside(self, caller: Option<&UserId>) -> Result<NewConversation, FieldError> {
        let foreign = match self.kind {
            ConversationKind::Single => [
                ("title", self.title.is_some()),
                ("members", self.members.is_some()),
                ("history", self.history.is_some()),
                ("key", self.key.is_some()),
            ],
            ConversationKind::Group => [("peer", self.peer.is_some()), ("key", self.key.is_some()), ("", false), ("", false)],
            ConversationKind::System => [("peer", self.peer.is_some()), ("history", self.history.is_some()), ("", false), ("", false)],
        };
        if let Some((name, _)) = foreign.into_iter().find(|(_, there)| *there) {
            return Err(FieldError::new(name, "does not belong to this kind of conversation"));
        }
        let title = self.title.as_deref().map(parse_title).transpose()?;
        match self.kind {
            ConversationKind::Single => {
                let peer = self.peer.ok_or_else(|| FieldError::new("peer", "is missing"))?;
                let peer = UserId::parse(&peer).map_err(|fault| fault.of("peer"))?;
                if Some(&peer) == caller {
                    return Err(FieldError::new("peer", "must be another user than oneself"));
                }
                Ok(NewConversation::Single { peer })
            }
            ConversationKind::Group => {
                let members = prove_members(self.members.unwrap_or_default(), caller)?;
                Ok(NewConversation::Group { title, members, history: self.history.map_or(DomainHistory::All, Into::into) })
            }
            ConversationKind::System => {
                let key = self.key.ok_or_else(|| FieldError::new("key", "is missing"))?;
                Ok(NewConversation::System { key, title, members: prove_members(self.members.unwrap_or_default(), None)? })
            }
        }
    }
}

/// Each once, in the order given; a repeated one is harmless.
fn prove_members(texts: Vec<String>, caller: Option<&UserId>) -> Result<Vec<UserId>, FieldError> {
    let mut seen = std::collections::HashSet::new();
    let mut members = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate() {
        let user = UserId::parse(text).map_err(|fault| fault.of(format!("members[{index}]")))?;
        if Some(&user) == caller {
            return Err(FieldError::new(format!("members[{index}]"), "must be another user than oneself"));
        }
        if seen.insert(user.clone()) {
            members.push(user);
        }
    }
    Ok(members)
}

/// What to change about a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchConversation {
    /// 1 to 80 characters after trimming.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// What to set for oneself; what is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutPreferences {
    /// No notifications; unread messages are counted apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub muted: Option<bool>,
    /// Kept on top by clients; the list itself stays in the order of activity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
    /// Out of the list until the next seq is given out: a message of whomever, or one of the timeline. That makes no event of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<bool>,
    /// Marked by hand, until the caller next reads or sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marked_unread: Option<bool>,
    /// Messages up to this seq are not there for the caller any more. Never back; above the head it is the head.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "exact_integer_if_any")]
    pub cleared_to: Option<u64>,
}

impl From<PutPreferences> for PreferencesWish {
    fn from(put: PutPreferences) -> Self {
        Self { muted: put.muted, pinned: put.pinned, hidden: put.hidden, marked_unread: put.marked_unread, cleared_to: put.cleared_to }
    }
}

/// How far the caller has read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MarkRead {
    /// The last seq read; one above the head counts as the head.
    #[serde(deserialize_with = "exact_integer")]
    pub seq: u64,
}

/// Where the watermark stands now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReadPosition {
    /// The last seq read.
    pub read_seq: u64,
    /// When it last moved; null when it never did.
    pub read_at: Option<Timestamp>,
    /// Unread messages, exact up to a limit.
    pub unread: u64,
    /// Whether there are more than `unread` says.
    pub unread_more: bool,
}

/// Numbers above 2^53 - 1 are clamped: Lua counts in doubles, and a watermark ends at the head anyway.
fn exact_integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    u64::deserialize(deserializer).map(|n| n.min(INTEGER_MAX))
}

fn exact_integer_if_any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<u64>::deserialize(deserializer)?.map(|n| n.min(INTEGER_MAX)))
}
