//! Decides which shards this process works for: leases that end by themselves, a register of workers, a fair share for each.
//!
//! A lease is a key with a time to live of [`LEASE_MS`], renewed well before its end. A worker that dies stops renewing: its sign of life
//! and its leases end within 6 s, the others' share grows, and they take what is free. No two clocks are compared: only Redis counts
//! down the leases, and a worker that cannot renew counts from the moment before it last asked.
//!
//! Safe to run twice: a lease has one owner, whoever else asks is told so. For a moment two workers may believe they own a shard (one
//! was slow to learn that it lost it); everything done for a shard is harmless when done by two.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use tokio::sync::watch;

use super::WorkError;
use super::repeat::{Next, Worker};
use crate::actions::Stores;
use crate::domain::ids::ShardId;
use crate::metrics;
use crate::redis::lease_shard::{ShardLease, lease_shard};
use crate::redis::register_worker::{register_worker, sign_off_worker};
use crate::redis::release_shard::release_shard;

/// How long a lease and a sign of life last without renewal, in ms.
pub const LEASE_MS: u64 = 6_000;
/// Age at which a lease is renewed.
const RENEW_AFTER: Duration = Duration::from_millis(1_500);
/// Leases asked for at the same time.
const ASKED_AT_ONCE: usize = 16;

/// The shards that this process owns now.
pub type Owned = Arc<BTreeSet<ShardId>>;

/// Holds this process's share of shards.
#[derive(Debug)]
pub struct OwnShards {
    stores: Arc<Stores>,
    worker: String,
    /// Shard → the moment before its lease was last granted.
    held: BTreeMap<ShardId, Instant>,
    owned: watch::Sender<Owned>,
    /// Workers that were alive at the last look, this one included.
    alive: usize,
}

impl OwnShards {
    /// A worker with a name that no other process bears, and a view of what it owns (nothing yet).
    #[must_use]
    pub fn new(stores: Arc<Stores>, worker: String) -> (Self, watch::Receiver<Owned>) {
        let (owned, view) = watch::channel(Owned::default());
        (Self { stores, worker, held: BTreeMap::new(), owned, alive: 1 }, view)
    }

    /// Gives every shard back and leaves the register, so that the others need not wait for the leases to end.
    pub async fn release_all(&mut self) {
        let shards: Vec<ShardId> = std::mem::take(&mut self.held).into_keys().collect();
        self.publish();
        self.release(shards).await;
        if let Err(error) = sign_off_worker(&self.stores.link, &self.worker).await {
            tracing::info!(%error, "the sign of life was left to end by itself");
        }
    }

    async fn release(&self, shards: Vec<ShardId>) {
        let calls = shards.into_iter().map(|shard| async move {
            if let Err(error) = release_shard(&self.stores.link, shard, &self.worker).await {
                tracing::info!(shard = shard.0, %error, "a lease was left to end by itself");
            }
        });
        stream::iter(calls).buffer_unordered(ASKED_AT_ONCE).collect::<Vec<()>>().await;
    }

    /// Asks for shards, new ones and held ones alike; those that are another's by now are let go. Errors leave things as they were.
    async fn ask(&mut self, shards: Vec<ShardId>) -> Result<(), WorkError> {
        let calls = shards.into_iter().map(|shard| {
            let (link, worker) = (&self.stores.link, &self.worker);
            async move { (shard, Instant::now(), lease_shard(link, shard, worker, LEASE_MS).await) }
        });
        let answers: Vec<_> = stream::iter(calls).buffer_unordered(ASKED_AT_ONCE).collect().await;
        let mut outcome = Ok(());
        for (shard, asked_at, answer) in answers {
            match answer {
                Ok(ShardLease::Taken | ShardLease::Renewed) => {
                    self.held.insert(shard, asked_at);
                }
                Ok(ShardLease::Held(_)) => {
                    self.held.remove(&shard);
                }
                Err(error) => outcome = Err(error.into()),
            }
        }
        outcome
    }

    /// Lets go of leases that may have ended: Redis started to count at the earliest when it was asked.
    fn drop_ended(&mut self) {
        self.held.retain(|_, asked_at| asked_at.elapsed() < Duration::from_millis(LEASE_MS));
    }

    fn publish(&self) {
        let now: BTreeSet<ShardId> = self.held.keys().copied().collect();
        metrics::SHARDS_OWNED.set(&[], now.len() as u64);
        self.owned.send_if_modified(|owned| {
            let changed = **owned != now;
            if changed {
                *owned = Arc::new(now);
            }
            changed
        });
    }

    /// Where this worker begins to look for shards, so that workers that start together do not all ask for the same ones.
    fn preference(&self) -> impl Iterator<Item = ShardId> + use<> {
        let shards = self.stores.keys.shards;
        let start = self.worker.bytes().fold(7_u16, |sum, byte| sum.wrapping_mul(31).wrapping_add(u16::from(byte))) % shards.max(1);
        (start..shards).chain(0..start).map(ShardId)
    }

    /// Each step goes on where it can: on a Cluster one server that is away must not cost the shards of the others.
    async fn balance(&mut self) -> Result<(), WorkError> {
        let due = self.held.iter().filter(|(_, at)| at.elapsed() >= RENEW_AFTER).map(|(shard, _)| *shard).collect();
        let mut outcome = self.ask(due).await;
        match register_worker(&self.stores.link, &self.worker, LEASE_MS).await {
            Ok(workers) => self.alive = workers.len().max(1),
            Err(error) => outcome = Err(error.into()),
        }
        let share = usize::from(self.stores.keys.shards).div_ceil(self.alive);
        if self.held.len() > share {
            let order: Vec<ShardId> = self.preference().filter(|shard| self.held.contains_key(shard)).collect();
            let surplus = order[share..].to_vec();
            self.held.retain(|shard, _| !surplus.contains(shard));
            // Whoever works for them here learns it before another one can.
            self.publish();
            self.release(surplus).await;
        }
        let mut wanted: Vec<ShardId> = self.preference().filter(|shard| !self.held.contains_key(shard)).collect();
        while self.held.len() < share && !wanted.is_empty() {
            let some = wanted.drain(..(share - self.held.len()).min(wanted.len())).collect();
            outcome = self.ask(some).await.and(outcome);
        }
        outcome
    }
}

impl Worker for OwnShards {
    const NAME: &'static str = "own_shards";
    const PAUSE: Duration = Duration::from_secs(1);
    const FAILED_PAUSE_MAX: Duration = Duration::from_secs(1);

    async fn run_once(&mut self) -> Result<Next, WorkError> {
        let outcome = self.balance().await;
        self.drop_ended();
        self.publish();
        outcome.map(|()| Next::AfterPause)
    }
}
