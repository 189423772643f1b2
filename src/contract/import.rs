//! Old messages to bring in, and what became of them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::conversation::{ConversationKind, CreateConversation, History, NewConversation};
use super::message::MessageKind;
use super::timestamp::Timestamp;
use crate::domain::ids::{ClientKey, ConversationId, UserId};
use crate::domain::import::{ImportTarget, OldMessage};
use crate::domain::refusal::FieldError;

/// The conversation of an import: one that is there, by its `id`; or one that is made if it is new, by its kind. What is said beside the
/// id, the peers or the key counts only when it is made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportConversation {
    /// A conversation that is there; then nothing else is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The family of one that is made if it is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ConversationKind>,
    /// The two users; for `single`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<(String, String)>,
    /// For `system` its key; for `group` the host's own name of it, 1 to 128 bytes, by which the same group is found when the import comes again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The owner; for `group`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The (other) members; for `group` and `system`. Whoever wrote old messages need not be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<Vec<String>>,
    /// 1 to 80 characters after trimming; for `group` and `system`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// `all` when absent; for `group`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
}

/// The first line of an import in lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportHead {
    /// The conversation.
    pub conversation: ImportConversation,
}

/// One old message; in lines each stands on its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportMessage {
    /// The host's own id, kept as `client_id`: 1 to 128 bytes, once in an import.
    pub id: String,
    /// Who wrote it.
    pub sender: String,
    /// The words, by the same rules as when they are sent.
    pub body: String,
    /// When.
    pub at: Timestamp,
    /// The old id of the message it answers, of this import or an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// `text` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<MessageKind>,
}

/// An import as one JSON object. As `application/x-ndjson` it is `{"conversation":{…}}` on the first line and a message on each further one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportBody {
    /// The conversation.
    pub conversation: ImportConversation,
    /// The messages, in any order.
    pub messages: Vec<ImportMessage>,
}

/// What became of an import.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ImportReport {
    /// Where the messages are.
    pub conversation_id: String,
    /// Messages that are new there.
    pub imported: u64,
    /// Messages that an earlier import, or a sender with the same key, had brought.
    pub skipped: u64,
    /// Number of the first new one; null when there is none.
    pub first_seq: Option<u64>,
    /// Number of the last new one.
    pub last_seq: Option<u64>,
}

impl ImportConversation {
    /// The proven conversation.
    ///
    /// # Errors
    /// Names the first field that cannot be accepted.
    pub fn prove(self) -> Result<ImportTarget, FieldError> {
        let user = |text: &str, field: &'static str| UserId::parse(text).map_err(|fault| fault.of(field));
        if let Some(id) = self.id {
            let named = self.kind.is_some() || self.peers.is_some() || self.key.is_some() || self.owner.is_some();
            if named || self.members.is_some() || self.title.is_some() || self.history.is_some() {
                return Err(FieldError::new("conversation.id", "stands alone"));
            }
            let id = ConversationId::parse(&id).ok_or_else(|| FieldError::new("conversation.id", "must be the id of a conversation"))?;
            return Ok(ImportTarget::Existing(id));
        }
        let kind = self.kind.ok_or_else(|| FieldError::new("conversation.kind", "is missing"))?;
        let (first, peer) = match (kind, self.peers) {
            (ConversationKind::Single, Some((one, other))) => (Some(user(&one, "conversation.peers[0]")?), Some(other)),
            (ConversationKind::Single, None) => return Err(FieldError::new("conversation.peers", "is missing")),
            (_, Some(_)) => return Err(FieldError::new("conversation.peers", "does not belong to this kind of conversation")),
            (ConversationKind::Group, None) => {
                let owner = self.owner.as_deref().ok_or_else(|| FieldError::new("conversation.owner", "is missing"))?;
                (Some(user(owner, "conversation.owner")?), None)
            }
            (ConversationKind::System, None) => (None, None),
        };
        let is_group = kind == ConversationKind::Group;
        let group_key = match self.key.as_deref().filter(|_| is_group) {
            Some(key) => Some(ClientKey::parse(key).map_err(|fault| fault.of("conversation.key"))?),
            None if is_group => return Err(FieldError::new("conversation.key", "is missing")),
            None => None,
        };
        let key = self.key.filter(|_| !is_group);
        let made = CreateConversation { kind, peer, title: self.title, members: self.members, history: self.history, key };
        // Without a first user nobody is compared with: no user id is empty.
        let wanted = match &first {
            Some(first) => made.prove(first),
            None => made.prove_for_service(),
        };
        match (wanted.map_err(|error| FieldError::new(format!("conversation.{}", error.field), error.fault))?, first, group_key) {
            (NewConversation::Single { peer }, Some(first), _) => Ok(ImportTarget::Single { users: (first, peer) }),
            (NewConversation::Group { title, members, history }, Some(owner), Some(key)) => {
                Ok(ImportTarget::Group { key, owner, title, members, history })
            }
            (NewConversation::System { key, title, members }, ..) => {
                let id = ConversationId::of_system(&key).map_err(|error| FieldError::new("conversation.key", error.fault))?;
                Ok(ImportTarget::System { id, title, members })
            }
            _ => Err(FieldError::new("conversation", "cannot be accepted")),
        }
    }
}

impl ImportMessage {
    /// The proven message.
    ///
    /// # Errors
    /// Names the first field that cannot be accepted.
    pub fn prove(self) -> Result<OldMessage, FieldError> {
        if !matches!(self.kind, None | Some(MessageKind::Text)) {
            return Err(FieldError::new("kind", "must be 'text'"));
        }
        let message = OldMessage {
            id: ClientKey::parse(&self.id).map_err(|fault| fault.of("id"))?,
            sender: UserId::parse(&self.sender).map_err(|fault| fault.of("sender"))?,
            body: self.body,
            at: self.at.0,
            reply_to: self.reply_to.map(|id| ClientKey::parse(&id).map_err(|fault| fault.of("reply_to"))).transpose()?,
        };
        message.check()?;
        Ok(message)
    }
}
