//! The `data` of events that say what changed, by type, and which shape belongs to which type.

use serde::{Deserialize, Serialize};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::conversation::Conversation;
use super::event::{MemberData, MessageData, PreferencesData, ReadData};
use super::message::{Message, Reaction};
use super::stream::{Hello, Resync, StreamUnavailable};
use super::typing::TypingData;
use crate::domain::event::EventType;

/// `data` of `conversation.created`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConversationData {
    /// The conversation as it is when the event is sent.
    pub conversation: Conversation,
}

/// `data` of `conversation.renamed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RenamedData {
    /// The title now.
    pub title: String,
    /// Who gave it.
    pub by: String,
    /// The seq of the timeline message.
    pub seq: u64,
}

/// `data` of `conversation.dissolved`, which nobody is left to see but the host application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DissolvedData {
    /// Who left last.
    pub by: String,
    /// The seq of the timeline message.
    pub seq: u64,
}

/// `data` of `conversation.imported`: old messages stand on these numbers now, and count as read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ImportedData {
    /// How many are new.
    pub imported: u64,
    /// The first number; null when an earlier import, whose members were not told, had brought all of them.
    pub first_seq: Option<u64>,
    /// The last number.
    pub last_seq: Option<u64>,
    /// The conversation's head.
    pub head_seq: u64,
}

/// `data` of `owner.changed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OwnerData {
    /// The owner now.
    pub owner: String,
    /// Who handed over.
    pub by: String,
    /// The seq of the timeline message.
    pub seq: u64,
}

/// `data` of `message.resequenced`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResequencedData {
    /// Where it stood.
    pub old_seq: u64,
    /// The message, on its new number.
    pub message: Message,
}

/// `data` of `reaction.changed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReactionData {
    /// The message.
    pub seq: u64,
    /// What is on it now, without `me`.
    pub reactions: Vec<Reaction>,
}

/// `data` of events whose type says everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NoData {}

/// The name of a shape and the shape.
pub type NamedSchema = (String, RefOr<Schema>);

/// The shape of an event's `data`, and all shapes that it stands on.
#[must_use]
pub fn data_schema(kind: EventType) -> (NamedSchema, Vec<NamedSchema>) {
    match kind {
        EventType::ConversationCreated => shape::<ConversationData>(),
        EventType::ConversationImported => shape::<ImportedData>(),
        EventType::TokenExpired | EventType::Goodbye => shape::<NoData>(),
        EventType::ConversationRenamed => shape::<RenamedData>(),
        EventType::ConversationDissolved => shape::<DissolvedData>(),
        EventType::MemberJoined | EventType::MemberLeft | EventType::MemberRemoved => shape::<MemberData>(),
        EventType::OwnerChanged => shape::<OwnerData>(),
        EventType::MessageCreated | EventType::MessageEdited | EventType::MessageDeleted => shape::<MessageData>(),
        EventType::MessageResequenced => shape::<ResequencedData>(),
        EventType::ReactionChanged => shape::<ReactionData>(),
        EventType::ReadAdvanced => shape::<ReadData>(),
        EventType::PreferencesChanged => shape::<PreferencesData>(),
        EventType::Resync => shape::<Resync>(),
        EventType::Hello => shape::<Hello>(),
        EventType::TypingUpdated => shape::<TypingData>(),
        EventType::Unavailable => shape::<StreamUnavailable>(),
    }
}

fn shape<T: ToSchema + PartialSchema>() -> (NamedSchema, Vec<NamedSchema>) {
    let mut below = Vec::new();
    T::schemas(&mut below);
    ((T::name().into_owned(), T::schema()), below)
}
