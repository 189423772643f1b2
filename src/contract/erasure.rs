//! Erasing a user, on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::timestamp::Timestamp;
use crate::domain::erasure::Erasure as DomainErasure;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErasureState {
    /// Under way; profile and pictures are gone already.
    Running,
    /// Nothing of the user is left.
    Done,
}

/// A request to erase a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Erasure {
    /// Whom.
    pub user_id: String,
    /// How far it is.
    pub state: ErasureState,
    /// When it was asked for.
    pub asked_at: Timestamp,
    /// When it was done; null while it is under way.
    pub finished_at: Option<Timestamp>,
    /// Messages that were blanked so far.
    pub messages: u64,
}

impl From<&DomainErasure> for Erasure {
    fn from(erasure: &DomainErasure) -> Self {
        Self {
            user_id: erasure.user.to_string(),
            state: if erasure.finished_at.is_some() { ErasureState::Done } else { ErasureState::Running },
            asked_at: Timestamp(erasure.asked_at),
            finished_at: erasure.finished_at.map(Timestamp),
            messages: erasure.messages,
        }
    }
}
