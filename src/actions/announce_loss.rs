//! Tells members that conversations of a shard may have lost something, before its new epoch opens.
//!
//! Without it: the server of a shard is replaced, what it had accepted last is gone, and a member whose log lives on another server goes
//! on listening as if nothing had happened; the numbers simply jump. On a single server there is nothing to tell: the logs were on the
//! same server, and their positions of before are answered with `resync` anyway.

use super::Stores;
use crate::domain::ids::{ConversationId, ShardId};
use crate::domain::refusal::Refusal;
use crate::redis::announce_epoch::announce_epoch;

/// Conversations told of in one step.
const STEP: u64 = 500;

/// Puts a resync mark for the members of every conversation that could be written to in an earlier epoch. To be called while the shard is
/// closed by `epoch`; twice is harmless.
///
/// # Errors
/// [`Refusal::Unavailable`] when a store is away or another epoch came.
pub async fn announce_loss(stores: &Stores, shard: ShardId, epoch: u64) -> Result<(), Refusal> {
    if epoch == 0 || !stores.link.is_cluster() {
        return Ok(());
    }
    let mut after: Option<ConversationId> = None;
    loop {
        let some = stores.archive.leased_before(shard, epoch, after.as_ref(), STEP).await?;
        if some.is_empty() {
            return Ok(());
        }
        // Below every change of the epoch, above every change before it.
        let first_rev = epoch << 32;
        if !announce_epoch(&stores.link, shard, epoch, first_rev, stores.clock.now(), &some).await? {
            return Err(Refusal::Unavailable("the live store is changing"));
        }
        if (some.len() as u64) < STEP {
            return Ok(());
        }
        after = some.into_iter().next_back();
    }
}
