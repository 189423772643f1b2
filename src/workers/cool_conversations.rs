//! Takes idle conversations out of Redis, so that it holds what is in use and not what ever was.
//!
//! ```text
//! open ──close──▶ closed ──everything dispatched and archived──▶ lease ended in Postgres ──▶ keys dropped
//!   ▲                │ not in time                                  │ from here on only forward
//!   └────reopen──────┘                                              ▼ cut off: whoever comes next closes it again and goes on
//! ```
//! Sends are refused for the moment between closing and dropping, then the conversation is loaded anew with numbers right above its head.
//!
//! Safe to run twice, and to be cut off anywhere: closing bears the worker's name, and only its bearer reopens or drops. Once the end of
//! the lease was asked for, nobody reopens: numbers of an ended lease could be given out twice. Whoever finds a closing that was not
//! finished, its own included, does not know how far it came, so it goes forward only.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use tokio::sync::watch;

use super::WorkError;
use super::own_shards::Owned;
use super::repeat::{Next, Worker};
use crate::actions::Stores;
pub use crate::actions::cool_conversation::{Cooled, cool_conversation};
use crate::domain::ids::{Millis, ShardId};
use crate::redis::close_conversation::list_idle;
use crate::redis::read_shard::{ShardState, read_shard};

/// Conversations cooled in one round of a shard.
const ROUND_MAX: u64 = 32;
/// Conversations cooled at the same time.
const AT_ONCE: usize = 8;
/// A shard with more entries than this waiting is left alone: its conversations would stand closed for too long.
const BACKLOG_MAX: u64 = 1_000;
/// Pause between two looks at the cursors.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Age in ms at which a closing counts as abandoned: longer than any step of it may take.
const ABANDONED_AFTER_MS: i64 = 30_000;
/// How long [`cool_all`] waits for the backlog.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// Cools idle conversations of owned shards.
#[derive(Debug)]
pub struct CoolConversations {
    stores: Arc<Stores>,
    owned: watch::Receiver<Owned>,
    worker: String,
}

impl CoolConversations {
    /// For the shards that `owned` shows, under the name of this worker.
    #[must_use]
    pub fn new(stores: Arc<Stores>, owned: watch::Receiver<Owned>, worker: String) -> Self {
        Self { stores, owned, worker }
    }
}

impl Worker for CoolConversations {
    const NAME: &'static str = "cool_conversations";
    const PAUSE: Duration = Duration::from_secs(1);

    async fn run_once(&mut self) -> Result<Next, WorkError> {
        let owned = Arc::clone(&*self.owned.borrow());
        let now = self.stores.clock.now();
        let cool_after_ms = i64::try_from(self.stores.settings.cool_after.saturating_mul(1_000)).unwrap_or(i64::MAX);
        let idle_at = now.saturating_sub(cool_after_ms);
        let mut outcome = Ok(Next::AfterPause);
        for shard in owned.iter() {
            // One shard's server that is away says nothing about the others'.
            if let Err(error) = cool_shard(&self.stores, *shard, &self.worker, idle_at).await {
                outcome = Err(error);
            }
        }
        outcome
    }
}

/// Cools up to 32 conversations of a shard that were last used at or before `idle_at`. Returns how many left Redis.
///
/// # Errors
/// When a store does not answer; what is left closed is finished by a later round.
pub async fn cool_shard(stores: &Stores, shard: ShardId, worker: &str, idle_at: Millis) -> Result<u64, WorkError> {
    let idle = list_idle(&stores.link, shard, idle_at, ROUND_MAX).await?;
    if idle.is_empty() {
        return Ok(0);
    }
    let state = read_shard(&stores.link, shard).await?;
    if state.needs_epoch() || state.entries > BACKLOG_MAX {
        return Ok(0);
    }
    let coolings: Vec<_> = idle.into_iter().map(|id| async move { cool_conversation(stores, &id, worker, idle_at).await }).collect();
    let outcomes: Vec<_> = stream::iter(coolings).buffer_unordered(AT_ONCE).collect().await;
    let mut gone = 0;
    for outcome in outcomes {
        gone += u64::from(outcome? == Cooled::Gone);
    }
    Ok(gone)
}

/// Waits (at most 10 s) until everything is dispatched and archived, then takes every conversation out of Redis. For a clean stop of a
/// private installation, when no gateway writes any more and workers still run. Returns how many conversations stayed behind; they are
/// found in Redis by the next start, or loaded with a void if Redis forgets them.
///
/// # Errors
/// When a store does not answer.
pub async fn cool_all(stores: &Stores) -> Result<u64, WorkError> {
    let shards: Vec<ShardId> = (0..stores.keys.shards).map(ShardId).collect();
    let until = Instant::now() + DRAIN_MAX;
    while Instant::now() < until {
        let looks = shards.iter().map(|shard| read_shard(&stores.link, *shard));
        let states: Vec<Result<ShardState, _>> = stream::iter(looks).buffer_unordered(AT_ONCE).collect().await;
        if states.into_iter().collect::<Result<Vec<_>, _>>()?.iter().all(|state| state.entries == 0) {
            break;
        }
        tokio::time::sleep(LOOK_EVERY * 5).await;
    }
    let ever = stores.clock.now().saturating_add(ABANDONED_AFTER_MS);
    let mut stayed = 0;
    for shard in shards {
        while cool_shard(stores, shard, "stop", ever).await? > 0 {}
        stayed += list_idle(&stores.link, shard, ever, ROUND_MAX).await?.len() as u64;
    }
    Ok(stayed)
}
