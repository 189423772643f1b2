//! What clients say: messages to send, and other words for those that stand.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::message::MessageKind;
use super::share::ShareReference;
use super::timestamp::Timestamp;
use crate::domain::ids::{ClientKey, INTEGER_MAX, UserId};
use crate::domain::media::read_picture_ids;
use crate::domain::message::{self as domain, Draft, check_text_body};
use crate::domain::message_change::{MEDIA_MAX, MessageCommand, check_free_body, check_placeholders};
use crate::domain::refusal::FieldError;

/// Most users that a message names.
const MENTIONS_MAX: usize = 100;

/// A message to send.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SendMessage {
    /// The idempotency key, 1 to 128 bytes, one per send intent, kept through every retry; a UUIDv7 is best. May stand in the header `Idempotency-Key` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// `text` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<MessageKind>,
    /// At most 4,000 characters, at least one visible. Beside pictures there need be none, and `![img:<media_id>]` says where one belongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The pictures of a message of kind `image`, in order: 1 to 9 ids, each of an upload of one's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub media: Option<serde_json::Value>,
    /// The seq of a message to answer: of this conversation, not deleted, not of the timeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub reply_to: Option<serde_json::Value>,
    /// A reference into the host application; of messages of kind `share`, which need no words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<ShareReference>,
    /// Members to name, at most 100; a name that stands twice counts once. They see it in `me.unread_mentions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub mentions: Option<serde_json::Value>,
    /// The client's own clock, kept but never used for order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_sent_at: Option<Timestamp>,
    /// The other one of a single conversation, which is then made in the same step if it is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The user in whose name the host application's server posts: in a single or group conversation a member of it, in a system
    /// conversation anybody; the token's `sub` when absent. For the service alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
}

impl SendMessage {
    /// The idempotency key out of the body or the header `Idempotency-Key`.
    ///
    /// # Errors
    /// Names `client_id` when there is none, when it cannot be one, or when the two disagree.
    pub fn key(&self, header: Option<&str>) -> Result<ClientKey, FieldError> {
        let text = match (self.client_id.as_deref(), header) {
            (Some(body), Some(header)) if body != header => {
                return Err(FieldError::new("client_id", "differs from the header Idempotency-Key"));
            }
            (Some(text), _) | (None, Some(text)) => text,
            (None, None) => {
                return Err(FieldError::new(
                    "client_id",
                    "is missing: make one key for each thing the user sends, and keep it through retries",
                ));
            }
        };
        ClientKey::parse(text).map_err(|fault| fault.of("client_id"))
    }

    /// The other user that the sender named.
    ///
    /// # Errors
    /// Names `peer` when it cannot be a user id.
    pub fn peer(&self) -> Result<Option<UserId>, FieldError> {
        self.peer.as_deref().map(|text| UserId::parse(text).map_err(|fault| fault.of("peer"))).transpose()
    }

    /// The user in whose name to send.
    ///
    /// # Errors
    /// Names `sender` when it cannot be a user id.
    pub fn sender(&self) -> Result<Option<UserId>, FieldError> {
        self.sender.as_deref().map(|text| UserId::parse(text).map_err(|fault| fault.of("sender"))).transpose()
    }

    /// The proven draft under this key.
    ///
    /// # Errors
    /// Names the first field that cannot be accepted.
    pub fn draft(&self, client_id: ClientKey) -> Result<Draft, FieldError> {
        let kind = match self.kind {
            None | Some(MessageKind::Text) => domain::MessageKind::Text,
            Some(MessageKind::Image) => domain::MessageKind::Image,
            Some(MessageKind::System) => return Err(FieldError::new("kind", "'system' is made by the service alone")),
            Some(MessageKind::Share) => return self.share_draft(client_id),
        };
        if self.share.is_some() {
            return Err(FieldError::new("share", "belongs to messages of kind 'share'"));
        }
        let media = self.media.as_ref().filter(|v| !v.is_null()).map(picture_ids).transpose()?.unwrap_or_default();
        let body = match (kind, self.body.as_deref()) {
            (domain::MessageKind::Image, body) => {
                if media.is_empty() {
                    return Err(FieldError::new("media", format!("must hold 1 to {MEDIA_MAX} ids of pictures")));
                }
                let body = body.unwrap_or_default();
                check_free_body(body)?;
                check_placeholders(body, &media.iter().map(ToString::to_string).collect::<Vec<_>>())?;
                body
            }
            (_, None) => return Err(FieldError::new("body", "is missing")),
            (_, Some(body)) => {
                if !media.is_empty() {
                    return Err(FieldError::new("media", "belongs to messages of kind 'image'"));
                }
                check_text_body(body)?;
                body
            }
        };
        Ok(Draft {
            client_id,
            kind,
            body: body.to_owned(),
            media,
            reply_to: self.answered()?,
            share: None,
            mentions: self.named()?,
            client_sent_at: self.client_sent_at.map(|t| t.0),
        })
    }

    /// A message that shares something, with or without words.
    fn share_draft(&self, client_id: ClientKey) -> Result<Draft, FieldError> {
        let Some(share) = &self.share else {
            return Err(FieldError::new("share", "is missing: a message of this kind refers to something"));
        };
        if self.media.as_ref().is_some_and(|media| !media.is_null() && media.as_array().is_none_or(|ids| !ids.is_empty())) {
            return Err(FieldError::new("media", "belongs to messages of kind 'image'"));
        }
        let body = self.body.clone().unwrap_or_default();
        check_free_body(&body)?;
        Ok(Draft {
            kind: domain::MessageKind::Share,
            share: Some(share.prove()?),
            reply_to: self.answered()?,
            mentions: self.named()?,
            client_sent_at: self.client_sent_at.map(|t| t.0),
            ..Draft::text(client_id, body)
        })
    }

    fn answered(&self) -> Result<Option<u64>, FieldError> {
        let Some(value) = self.reply_to.as_ref().filter(|v| !v.is_null()) else { return Ok(None) };
        match value.as_u64() {
            Some(seq) if (1..=INTEGER_MAX).contains(&seq) => Ok(Some(seq)),
            _ => Err(FieldError::new("reply_to", "must be the seq of a message")),
        }
    }

    fn named(&self) -> Result<Vec<UserId>, FieldError> {
        let Some(value) = self.mentions.as_ref().filter(|v| !v.is_null()) else { return Ok(Vec::new()) };
        let Some(names) = value.as_array() else { return Err(FieldError::new("mentions", "must be a list of user ids")) };
        if names.len() > MENTIONS_MAX {
            return Err(FieldError::new("mentions", format!("must name at most {MENTIONS_MAX} users")));
        }
        let mut users = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            let field = || format!("mentions[{index}]");
            let Some(name) = name.as_str() else { return Err(FieldError::new(field(), "must be a user id")) };
            let user = UserId::parse(name).map_err(|fault| fault.of(field()))?;
            if !users.contains(&user) {
                users.push(user);
            }
        }
        Ok(users)
    }
}

/// Other words for a message; what is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchMessage {
    /// The words, by the same rules as when it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The pictures of a message of kind `image`, 1 to 9 ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub media: Option<serde_json::Value>,
}

impl PatchMessage {
    /// The wish, but for its pictures.
    #[must_use]
    pub fn command(&self) -> MessageCommand {
        MessageCommand::Edit { body: self.body.clone(), media: None }
    }

    /// The pictures that it names; whether the message can show them is not known here.
    ///
    /// # Errors
    /// Names `media` or the first `media[i]` that cannot be accepted.
    pub fn pictures(&self) -> Result<Option<Vec<Uuid>>, FieldError> {
        self.media.as_ref().filter(|v| !v.is_null()).map(picture_ids).transpose()
    }
}

/// Ids out of a list of texts.
fn picture_ids(value: &serde_json::Value) -> Result<Vec<Uuid>, FieldError> {
    let Some(items) = value.as_array() else { return Err(FieldError::new("media", "must be a list of ids of pictures")) };
    // What is no text is no id.
    let texts: Vec<&str> = items.iter().map(|item| item.as_str().unwrap_or_default()).collect();
    read_picture_ids(&texts)
}
