//! Signs of typing: the request, and what the others are shown.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether the caller types just now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowTyping {
    /// `true` while typing, repeated at most every 3 s; `false` for having stopped.
    pub typing: bool,
}

/// `data` of `typing.updated`. Receivers drop it after 6 s by themselves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TypingData {
    /// Who types, or has stopped.
    pub user_id: String,
    /// Which of the two.
    pub typing: bool,
}
