//! Blocks on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::timestamp::Timestamp;

/// Somebody whom the caller blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Block {
    /// Who.
    pub user_id: String,
    /// Since when.
    pub created_at: Timestamp,
}

/// Blocks, ordered by user id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BlockPage {
    /// The blocks.
    pub items: Vec<Block>,
    /// For the next page; null on the last one.
    pub next_cursor: Option<String>,
}
