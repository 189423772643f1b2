//! What a conversation is, and what one member sees of it.

use super::block::Blocks;
use super::ids::{ConversationId, Kind, Millis, Rev, Seq, UserId};
use super::membership::Member;
use super::message::is_visible;
use super::preferences::ShownPreferences;
use super::profile::Profile;
use super::quote::ShownMessage;
use super::refusal::FieldError;

/// Longest title in characters after trimming.
pub const TITLE_CHARS_MAX: usize = 80;

/// What of the past a new member of a group sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// Everything.
    All,
    /// From the last join on.
    FromJoin,
}

impl History {
    /// The word used in JSON, Redis and Postgres.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::FromJoin => "from_join",
        }
    }

    /// The inverse of [`History::as_str`].
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "all" => Some(Self::All),
            "from_join" => Some(Self::FromJoin),
            _ => None,
        }
    }
}

/// The facts of a conversation that are the same for everybody.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversation {
    /// Its id.
    pub id: ConversationId,
    /// A group's or system conversation's title; `None` is "named from its members".
    pub title: Option<String>,
    /// A group's owner.
    pub owner: Option<UserId>,
    /// A single conversation's two users, bytewise ascending.
    pub pair: Option<(UserId, UserId)>,
    /// What new members see of the past.
    pub history: History,
    /// How many members there are now.
    pub member_count: u64,
    /// The last seq given out, 0 before the first.
    pub head_seq: Seq,
    /// Grows with every change.
    pub rev: Rev,
    /// When it was made.
    pub created_at: Millis,
    /// When something last happened in it; never goes back.
    pub updated_at: Millis,
    /// Whether the last member has left.
    pub dissolved: bool,
    /// Seqs that will never hold a message, ascending, both ends included.
    pub voids: Vec<(Seq, Seq)>,
    /// Who of a pair has blocked the other one.
    pub blocks: Blocks,
}

impl Conversation {
    /// The family.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.id.kind()
    }

    /// The other one of a single conversation.
    #[must_use]
    pub fn peer_of(&self, user: &UserId) -> Option<&UserId> {
        let (low, high) = self.pair.as_ref()?;
        Some(if low == user { high } else { low })
    }

    /// Since when this one of a single conversation blocks the other one.
    #[must_use]
    pub fn blocked_by(&self, user: &UserId) -> Option<Millis> {
        let (low, _) = self.pair.as_ref()?;
        if low == user { self.blocks.by_low } else { self.blocks.by_high }
    }
}

/// A member's unread messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Unread {
    /// How many, at most the limit.
    pub count: u64,
    /// Whether there are more than the limit.
    pub more: bool,
}

/// A conversation as one member sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversationView {
    /// The common facts.
    pub conversation: Conversation,
    /// The caller's membership.
    pub me: Member,
    /// Whether the caller is no member and may look all the same; what belongs to a member then says nothing.
    pub outside: bool,
    /// The caller's watermark.
    pub read_seq: Seq,
    /// When the watermark last moved; `None` when it never did.
    pub read_at: Option<Millis>,
    /// The caller's unread messages.
    pub unread: Unread,
    /// Unread messages that name the caller, at most as many as are counted.
    pub unread_mentions: u64,
    /// What the caller has set.
    pub preferences: ShownPreferences,
    /// The newest message the caller may see.
    pub last_message: Option<ShownMessage>,
    /// What it is called; filled in where it is shown.
    pub names: Names,
}

/// What a conversation is called by one member. It is looked up when it is shown and may be a few seconds old.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The title, else a name made from the other members.
    pub called: Option<String>,
    /// How the other one of a single conversation is shown.
    pub peer: Option<Profile>,
}

/// Proves a title: 1 to 80 characters after trimming, no control characters.
///
/// # Errors
/// Names the field `title`.
pub fn parse_title(text: &str) -> Result<String, FieldError> {
    let trimmed = text.trim();
    let chars = trimmed.chars().count();
    if chars == 0 || chars > TITLE_CHARS_MAX {
        return Err(FieldError::new("title", "must be 1 to 80 characters after trimming"));
    }
    if !trimmed.chars().any(is_visible) {
        return Err(FieldError::new("title", "must hold at least one visible character"));
    }
    if trimmed.chars().any(char::is_control) {
        return Err(FieldError::new("title", "must hold no control character"));
    }
    Ok(trimmed.to_owned())
}
