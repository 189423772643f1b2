//! Why a typed function of this room failed.

use super::link::LinkError;
use super::stored_form::Unreadable;

/// Either Redis could not be asked, or its answer could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedisError {
    /// The call failed; see [`LinkError`] for whether it may have been executed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The call was executed and its answer is not in the form it was written in.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}
