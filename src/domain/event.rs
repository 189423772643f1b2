//! The one list of event types. SQL, OpenAPI and the web client are checked against it.

use super::ids::{ConversationId, Millis, Rev, Seq, UserId};

macro_rules! event_types {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $word:literal;)*) => {
        /// What happened. Kept types stand in users' logs and have an id; the others reach live streams only.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum EventType { $($(#[$doc])* $name,)* }

        impl EventType {
            /// Every type, in the contract's order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name in the contract, e.g. `message.created`.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// The few bytes that stand for it in a pointer; empty for types that are never kept.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// The inverse of [`EventType::code`].
            #[must_use]
            pub fn of_code(code: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|t| !code.is_empty() && t.code() == code)
            }

            /// The inverse of [`EventType::as_str`].
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|t| t.as_str() == word)
            }

            /// Whether it stands in logs and bears an id.
            #[must_use]
            pub fn is_kept(self) -> bool {
                !self.code().is_empty()
            }
        }
    };
}

event_types! {
    /// A conversation came to be for this user.
    ConversationCreated = "cc", "conversation.created";
    /// Its title changed.
    ConversationRenamed = "cr", "conversation.renamed";
    /// The last member left.
    ConversationDissolved = "cd", "conversation.dissolved";
    /// Old messages were imported.
    ConversationImported = "ci", "conversation.imported";
    /// Somebody joined.
    MemberJoined = "mj", "member.joined";
    /// Somebody left.
    MemberLeft = "ml", "member.left";
    /// Somebody was removed.
    MemberRemoved = "mr", "member.removed";
    /// Another owner.
    OwnerChanged = "oc", "owner.changed";
    /// A new message.
    MessageCreated = "m", "message.created";
    /// Other words.
    MessageEdited = "me", "message.edited";
    /// Taken back.
    MessageDeleted = "md", "message.deleted";
    /// Stands on another number now.
    MessageResequenced = "mq", "message.resequenced";
    /// Reactions changed.
    ReactionChanged = "rc", "reaction.changed";
    /// A watermark moved.
    ReadAdvanced = "ra", "read.advanced";
    /// One's own settings of a conversation changed.
    PreferencesChanged = "pc", "preferences.changed";
    /// The log cannot be resumed from here: read again.
    Resync = "rs", "resync";
    /// The stream is open.
    Hello = "", "hello";
    /// Somebody types.
    TypingUpdated = "", "typing.updated";
    /// No stream for the moment.
    Unavailable = "", "unavailable";
    /// The token has ended.
    TokenExpired = "", "token_expired";
    /// The gateway leaves.
    Goodbye = "", "goodbye";
}

/// What stands in a user's log: small, and what it points to is read when it is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Pointer {
    /// What happened.
    pub kind: EventType,
    /// Where.
    pub conversation: ConversationId,
    /// The conversation's rev of the change.
    pub rev: Rev,
    /// The message concerned, 0 for none.
    pub seq: Seq,
    /// When.
    pub at: Millis,
    /// Facts that need no second look, as one JSON object (e.g. `{"user_id":"ann","seq":7}`); `None` when they are read when sent.
    pub data: Option<String>,
}

impl Pointer {
    /// The number that the message had before, when this tells that it stands on another one now.
    #[must_use]
    pub fn moved_from(&self) -> Option<Seq> {
        #[derive(serde::Deserialize)]
        struct About {
            old_seq: Seq,
        }
        let facts = self.data.as_deref().filter(|_| self.kind == EventType::MessageResequenced)?;
        serde_json::from_str::<About>(facts).ok().map(|about| about.old_seq)
    }

    /// Whether it tells that this user left or was removed: the last that the user sees of the conversation.
    #[must_use]
    pub fn ends_membership_of(&self, user: &UserId) -> bool {
        #[derive(serde::Deserialize)]
        struct About {
            user_id: String,
        }
        matches!(self.kind, EventType::MemberLeft | EventType::MemberRemoved)
            && self
                .data
                .as_deref()
                .and_then(|facts| serde_json::from_str::<About>(facts).ok())
                .is_some_and(|about| about.user_id == user.as_str())
    }
}
