//! Looks after owned shards: opens an epoch where the server was restarted or replaced, and measures what waits.
//!
//! Safe to run twice: an epoch is decided in Postgres once, whoever asks; the rest is looking.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::watch;

use super::WorkError;
use super::own_shards::Owned;
use super::repeat::{Next, Worker};
use crate::actions::Stores;
use crate::actions::open_epoch::open_shard;
use crate::domain::ids::ShardId;
use crate::metrics;
use crate::redis::outbox::OutboxId;
use crate::redis::read_shard::{ShardState, read_shard};

/// Shards looked at or opened at the same time.
const AT_ONCE: usize = 8;

/// Tends owned shards.
#[derive(Debug)]
pub struct TendShards {
    stores: Arc<Stores>,
    owned: watch::Receiver<Owned>,
    shown: BTreeSet<ShardId>,
}

impl TendShards {
    /// For the shards that `owned` shows.
    #[must_use]
    pub fn new(stores: Arc<Stores>, owned: watch::Receiver<Owned>) -> Self {
        Self { stores, owned, shown: BTreeSet::new() }
    }

    fn show(&mut self, owned: &BTreeSet<ShardId>, states: &[(ShardId, ShardState)]) {
        let now = self.stores.clock.now();
        let (mut to_dispatch, mut to_archive, mut aside, mut oldest) = (0, 0, 0, 0.0_f64);
        for (shard, state) in states {
            let label = shard.0.to_string();
            let age = state.oldest_at.map_or(0.0, |at| seconds(now - at));
            metrics::OUTBOX_ENTRIES.set(&[&label], state.entries);
            metrics::OUTBOX_AGE_SECONDS.set_f64(&[&label], age);
            to_dispatch += behind(state, state.dispatched);
            let unarchived = behind(state, state.archived);
            to_archive += unarchived;
            if unarchived > 0 {
                oldest = oldest.max(age);
            }
            aside += state.aside;
        }
        metrics::DISPATCH_LAG_ENTRIES.set(&[], to_dispatch);
        metrics::ARCHIVE_LAG_ENTRIES.set(&[], to_archive);
        metrics::ARCHIVE_LAG_SECONDS.set_f64(&[], oldest);
        metrics::ASIDE_ENTRIES.set(&[], aside);
        for gone in self.shown.difference(owned) {
            let label = gone.0.to_string();
            metrics::OUTBOX_ENTRIES.set(&[&label], 0);
            metrics::OUTBOX_AGE_SECONDS.set_f64(&[&label], 0.0);
        }
        self.shown.clone_from(owned);
    }
}

impl Worker for TendShards {
    const NAME: &'static str = "tend_shards";
    const PAUSE: Duration = Duration::from_secs(1);
    const FAILED_PAUSE_MAX: Duration = Duration::from_secs(1);

    async fn run_once(&mut self) -> Result<Next, WorkError> {
        let owned = Arc::clone(&*self.owned.borrow());
        let looks = owned.iter().copied().map(|shard| {
            let stores = Arc::clone(&self.stores);
            async move { (shard, tend(&stores, shard).await) }
        });
        let looks: Vec<_> = stream::iter(looks.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).collect().await;
        let mut states = Vec::with_capacity(looks.len());
        let mut outcome = Ok(Next::AfterPause);
        for (shard, look) in looks {
            match look {
                Ok(state) => states.push((shard, state)),
                Err(error) => outcome = Err(error),
            }
        }
        self.show(&owned, &states);
        outcome
    }
}

/// Looks at a shard, and opens an epoch of it when it needs one.
///
/// # Errors
/// When a store does not answer.
pub async fn tend(stores: &Stores, shard: ShardId) -> Result<ShardState, WorkError> {
    let state = read_shard(&stores.link, shard).await?;
    if !state.needs_epoch() {
        return Ok(state);
    }
    open_shard(stores, shard).await?;
    Ok(read_shard(&stores.link, shard).await?)
}

/// Entries that a cursor has not passed. Numbers begin anew with an epoch; of entries before it only the outbox's length tells.
fn behind(state: &ShardState, cursor: OutboxId) -> u64 {
    if cursor.epoch == state.last.epoch { state.last.n.saturating_sub(cursor.n).min(state.entries) } else { state.entries }
}

#[allow(clippy::cast_precision_loss, reason = "ages in milliseconds are far below 2^53")]
fn seconds(ms: i64) -> f64 {
    ms.max(0) as f64 / 1_000.0
}
