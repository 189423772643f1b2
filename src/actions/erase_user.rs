//! Erases a user: the request is noted and answered, the work goes on behind it (`workers/erase_users.rs`).
//!
//! Asked again it tells how far it has come. Once it is done, asking again begins anew only if there is something of the user again: so the
//! host application may ask until it is done, and may ask for somebody who has come back.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use super::Stores;
use super::tell_streams::end_streams;
use crate::domain::erasure::Erasure;
use crate::domain::ids::{ShardId, UserId};
use crate::domain::refusal::Refusal;
use crate::metrics;
use crate::redis::outbox::OutboxId;
use crate::redis::read_shard::read_shard;

/// How long a request waits for the archive before it takes the user for somebody who has come back.
const ARCHIVE_WAIT: Duration = Duration::from_secs(2);
/// Pause between two looks at the cursors.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Asks for a user to be erased. `by` stands in the messages as who took them down.
///
/// # Errors
/// [`Refusal::Forbidden`] for everybody but the service, [`Refusal::Unavailable`] when a store is away.
pub async fn erase_user(stores: &Stores, service: bool, by: &UserId, user: &UserId) -> Result<Erasure, Refusal> {
    if !service {
        return Err(Refusal::Forbidden("only the service erases users"));
    }
    if let Some(known) = stores.archive.erasure_of(user).await?
        && (known.finished_at.is_none() || !has_traces(stores, user).await?)
    {
        return Ok(known);
    }
    let erasure = stores.archive.begin_erasure(user, by, stores.clock.now()).await?;
    stores.profiles.put(user.clone(), None);
    stores.claims.forget(user);
    // Again when everything is done: a device may come back meanwhile.
    end_streams(stores, user).await;
    metrics::ERASURES.add(&["begun"], 1);
    Ok(erasure)
}

/// What was said a moment ago is in the archive a moment later. While that is behind, nobody can say that nothing is left.
async fn has_traces(stores: &Stores, user: &UserId) -> Result<bool, Refusal> {
    let shards: Vec<ShardId> = (0..stores.keys.shards).map(ShardId).collect();
    Ok(!pass(stores, &shards, ARCHIVE_WAIT).await? || stores.archive.has_traces(user).await?)
}

/// Waits until what these shards have accepted by now is told and archived; false when it is not within that time.
///
/// # Errors
/// [`Refusal::Unavailable`] when a shard's server does not answer.
pub async fn pass(stores: &Stores, shards: &[ShardId], within: Duration) -> Result<bool, Refusal> {
    let until = Instant::now() + within;
    let states = try_join_all(shards.iter().map(|shard| read_shard(&stores.link, *shard))).await?;
    let mut waiting: Vec<(ShardId, OutboxId)> =
        shards.iter().zip(states).filter(|(_, state)| !state.has_passed(state.last)).map(|(shard, state)| (*shard, state.last)).collect();
    while !waiting.is_empty() {
        if Instant::now() >= until {
            return Ok(false);
        }
        tokio::time::sleep(LOOK_EVERY).await;
        let states = try_join_all(waiting.iter().map(|(shard, _)| read_shard(&stores.link, *shard))).await?;
        waiting = waiting.into_iter().zip(states).filter(|((_, last), state)| !state.has_passed(*last)).map(|(one, _)| one).collect();
    }
    Ok(true)
}
