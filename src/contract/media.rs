//! Pictures on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::domain::media as domain;

/// An uploaded picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Media {
    /// Its id, for `media` of a message and for `/v1/media/{id}`.
    pub id: Uuid,
    /// What it is, by its bytes.
    #[schema(example = "image/png")]
    pub mime_type: String,
    /// Its bytes.
    pub size: u64,
    /// Pixels across, as it is shown: a camera's note that the picture lies on its side is taken into account.
    pub width: u32,
    /// Pixels down, as it is shown.
    pub height: u32,
}

impl From<&domain::Media> for Media {
    fn from(media: &domain::Media) -> Self {
        Self {
            id: media.id,
            mime_type: media.picture.kind.as_str().to_owned(),
            size: media.size,
            width: media.picture.width,
            height: media.picture.height,
        }
    }
}
