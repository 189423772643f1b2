//! What a search found.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::message::Message;

/// Messages found, the newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchPage {
    /// The messages as they are now.
    pub items: Vec<Message>,
    /// Where the next page begins; null at the end. A page may be short and have a next one all the same.
    pub next_cursor: Option<String>,
}
