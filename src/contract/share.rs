//! What messages share, on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::message::Share as DomainShare;
use crate::domain::refusal::FieldError;
use crate::domain::share::{ShareCard, ShareFacts};

/// A reference into the host application, as a message shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Share {
    /// The host's word for what it is.
    pub r#type: String,
    /// The host's id of it.
    pub id: String,
    /// What it is called; null when it is gone, or not known.
    pub title: Option<String>,
    /// Where it is; null when it is gone, or not known.
    pub url: Option<String>,
    /// Its picture, if it has one.
    pub image_url: Option<String>,
    /// Whether it is gone.
    pub deleted: bool,
}

impl Share {
    /// What is shared, with what is known about it.
    #[must_use]
    pub fn new(share: &DomainShare, facts: Option<&ShareFacts>) -> Self {
        let (card, deleted) = match facts {
            Some(ShareFacts::Told(card)) => (Some(card), false),
            Some(ShareFacts::Gone) => (None, true),
            None => (None, false),
        };
        Self {
            r#type: share.kind.clone(),
            id: share.id.clone(),
            title: card.map(|card| card.title.clone()),
            url: card.map(|card| card.url.clone()),
            image_url: card.and_then(|card| card.image_url.clone()),
            deleted,
        }
    }
}

/// A reference into the host application, as a client sends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShareReference {
    /// 1 to 64 characters of `[A-Za-z0-9._:-]`.
    pub r#type: String,
    /// 1 to 200 characters of `[A-Za-z0-9._:-]`.
    pub id: String,
}

impl ShareReference {
    /// The proven reference.
    ///
    /// # Errors
    /// Names `share.type` or `share.id`.
    pub fn prove(&self) -> Result<DomainShare, FieldError> {
        DomainShare::parse(&self.r#type, &self.id).map_err(|error| FieldError::new(format!("share.{}", error.field), error.fault))
    }
}

/// What the host application tells about something shared, in place of what it told before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutShare {
    /// 1 to 200 characters after trimming.
    pub title: String,
    /// An http or https URL of at most 2,048 bytes.
    pub url: String,
    /// The same; none when null or left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_url: Option<String>,
}

impl PutShare {
    /// The proven facts.
    ///
    /// # Errors
    /// Names the first field that cannot be accepted.
    pub fn prove(&self) -> Result<ShareFacts, FieldError> {
        ShareCard::prove(&self.title, &self.url, self.image_url.as_deref()).map(ShareFacts::Told)
    }
}
