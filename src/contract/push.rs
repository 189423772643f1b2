//! Web Push: what browsers register, and what their service workers are woken with.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::message::MessageKind;
use super::timestamp::Timestamp;

/// The key that a browser needs to subscribe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PushKey {
    /// The VAPID public key: base64url of the uncompressed point, as `applicationServerKey` takes it.
    pub key: String,
}

/// What a browser gave for encrypting.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PushKeys {
    /// The browser's public key: base64url of the 65 bytes of an uncompressed point of P-256.
    pub p256dh: String,
    /// The secret that it shares with the gateway: base64url of 16 bytes.
    pub auth: String,
}

impl std::fmt::Debug for PushKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PushKeys").finish_non_exhaustive()
    }
}

/// A browser's subscription, as its `PushSubscription` has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutPushSubscription {
    /// An https URL of a public host, at most 2,048 bytes.
    pub endpoint: String,
    /// For encrypting.
    pub keys: PushKeys,
    /// Whether pushes say who wrote what; without it they only say that something came.
    #[serde(default)]
    pub show_preview: bool,
}

/// Which subscription to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeletePushSubscription {
    /// As it was registered.
    pub endpoint: String,
}

/// A subscription as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PushSubscription {
    /// Where its push service takes pushes.
    pub endpoint: String,
    /// Whether pushes say who wrote what.
    pub show_preview: bool,
    /// The device that the token named when it was registered.
    pub device: Option<String>,
    /// When it was first registered by this user.
    pub created_at: Timestamp,
}

/// What the service worker gets, decrypted by the browser: there are unread messages. It is looked up when it is sent, so it speaks of the
/// newest one then; a later one about the same conversation takes its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PushPayload {
    /// `message`; pass over what you do not know.
    pub r#type: String,
    /// Where.
    pub conversation_id: String,
    /// The newest unread message that others wrote.
    pub seq: u64,
    /// Unread messages there.
    pub unread: u64,
    /// Whether there are more than are counted.
    pub unread_more: bool,
    /// How many of them name the user.
    pub mentions: u64,
    /// That message, when the subscription wants previews.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<PushMessage>,
}

/// The message that a push speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PushMessage {
    /// Its id.
    pub id: Uuid,
    /// What the conversation is called by its reader.
    pub title: String,
    /// Who wrote it.
    pub sender: String,
    /// What they are called; their id when no name is known.
    pub sender_name: String,
    /// What kind of thing it is.
    pub kind: MessageKind,
    /// The beginning of its words, at most 240 characters as people count them; empty when it has none.
    pub preview: String,
    /// When it was written.
    pub created_at: Timestamp,
}
