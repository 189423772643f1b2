//! Takes what a shard's outbox says to the users' logs and wakes the gateways: one task for each owned shard.
//!
//! ```text
//! outbox ──read in order──▶ expand to pointers ──▶ users' logs, a script per partition ──▶ wake-ups ──▶ `dispatched` moves
//! ```
//! Safe to run twice, and to be cut off anywhere: a partition's mark passes over what its logs hold already, the cursor only moves
//! forward, and it moves last. A wake-up that is lost is found by the gateway's own comparison.
//!
//! A partition that cannot be reached leaves the line (see `lagging`): it is caught up apart, in order, and the cursor waits for it while
//! everybody else goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::WorkError;
use super::expand_entry::{expand_entry, needs_members};
use super::lagging::Lagging;
use super::live_reads::LiveReads;
use super::news::News;
use super::own_shards::Owned;
use super::recipients::Recipients;
use super::repeat::{Next, Worker, repeat};
use crate::actions::Stores;
use crate::domain::ids::{ConversationId, Millis, PartitionId, Rev, ShardId};
use crate::metrics;
use crate::redis::advance_cursor::{Cursor, advance_cursor};
use crate::redis::deliver_events::{Delivered, Delivery, DeliveryOutcome, deliver_events};
use crate::redis::event_log::LogBounds;
use crate::redis::forget_left::forget_left;
use crate::redis::keys;
use crate::redis::link::{BlockingReader, StreamEntry};
use crate::redis::outbox::{OutboxEntry, OutboxId};
use crate::redis::read_shard::read_shard;
use crate::redis::stored_form::Unreadable;
use crate::redis::wake_gateway::{Wake, Woken, wake_gateway};

/// Entries dispatched in one step.
pub(super) const BATCH_MAX: u64 = 200;
/// How long a read waits for news, in ms; bounds how late a task learns that its shard is another's.
const WAIT_MS: u64 = 1_000;
/// The same while a partition lags.
const WAIT_LAGGING_MS: u64 = 100;
/// Conversations whose ended memberships wait to be forgotten, at most.
const ENDED_MAX: usize = 1_000;

/// Keeps one dispatching task for each owned shard.
#[derive(Debug)]
pub struct DispatchShards {
    stores: Arc<Stores>,
    owned: watch::Receiver<Owned>,
    recipients: Arc<Recipients>,
    news: Arc<News>,
}

impl DispatchShards {
    /// For the shards that `owned` shows, now and later.
    #[must_use]
    pub fn new(stores: Arc<Stores>, owned: watch::Receiver<Owned>, recipients: Arc<Recipients>, news: Arc<News>) -> Self {
        Self { stores, owned, recipients, news }
    }

    /// Runs until `stop`, and until every task has ended.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut running: BTreeMap<ShardId, CancellationToken> = BTreeMap::new();
        let mut tasks = JoinSet::new();
        while !stop.is_cancelled() {
            let owned = Arc::clone(&*self.owned.borrow_and_update());
            running.retain(|shard, token| {
                let keep = owned.contains(shard);
                if !keep {
                    token.cancel();
                }
                keep
            });
            for shard in owned.iter() {
                running.entry(*shard).or_insert_with(|| {
                    let token = stop.child_token();
                    let worker = DispatchShard::new(Arc::clone(&self.stores), *shard, Arc::clone(&self.recipients), Arc::clone(&self.news));
                    let running = repeat(worker, token.clone());
                    let shard = *shard;
                    tasks.spawn(async move {
                        let _ = running.await;
                        shard
                    });
                    token
                });
            }
            tokio::select! {
                changed = self.owned.changed() => if changed.is_err() { break },
                ended = tasks.join_next(), if !tasks.is_empty() => if let Some(Err(error)) = ended {
                    // A task that ends without being told to has panicked; all begin again with the next look.
                    tracing::error!(%error, "a dispatching task ended");
                    metrics::WORKER_ERRORS.add(&[DispatchShard::NAME], 1);
                    for token in running.values() {
                        token.cancel();
                    }
                    running.clear();
                },
                () = stop.cancelled() => {}
            }
        }
        for token in running.values() {
            token.cancel();
        }
        while tasks.join_next().await.is_some() {}
    }
}

/// Dispatches one shard.
#[derive(Debug)]
pub struct DispatchShard {
    pub(super) stores: Arc<Stores>,
    pub(super) shard: ShardId,
    recipients: Arc<Recipients>,
    news: Arc<News>,
    reader: Option<BlockingReader>,
    /// The place up to which entries were read and delivered to all partitions but the lagging ones; unknown before the first look.
    pub(super) cursor: Option<OutboxId>,
    /// The place up to which Redis knows it.
    saved: OutboxId,
    /// The shard's epoch when the cursor was read. An entry of a later one means that the server may have gone back meanwhile, logs and
    /// cursor included, so the cursor is read again.
    epoch: u64,
    pub(super) lagging: Lagging,
    /// Conversations with ended memberships, and the rev up to which they are dispatched.
    ended: BTreeMap<ConversationId, Rev>,
    live_reads: LiveReads,
}

impl DispatchShard {
    /// Begins at the shard's cursor.
    #[must_use]
    pub fn new(stores: Arc<Stores>, shard: ShardId, recipients: Arc<Recipients>, news: Arc<News>) -> Self {
        Self {
            stores,
            shard,
            recipients,
            news,
            reader: None,
            cursor: None,
            saved: OutboxId::default(),
            epoch: 0,
            lagging: Lagging::default(),
            ended: BTreeMap::new(),
            live_reads: LiveReads::default(),
        }
    }

    /// Dispatches what stands after the cursor, up to `BATCH_MAX` entries, waiting up to `wait_ms` for the first. Says how many came.
    ///
    /// # Errors
    /// When a store does not answer; the next round begins at the same place.
    pub async fn dispatch_once(&mut self, wait_ms: u64) -> Result<usize, WorkError> {
        let outcome = self.dispatch(wait_ms).await;
        if outcome.is_err() {
            self.cursor = None;
        }
        outcome
    }

    async fn dispatch(&mut self, wait_ms: u64) -> Result<usize, WorkError> {
        let cursor = match self.cursor {
            Some(cursor) => cursor,
            None => self.begin().await?,
        };
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => self.stores.link.blocking_reader().await?,
        };
        let due_ms = self.live_reads.due_in(Instant::now()).and_then(|due| u64::try_from(due.as_millis()).ok());
        // Never 0: that would wait for ever.
        let wait_ms = due_ms.map_or(wait_ms, |due| wait_ms.min(due + 1));
        let read = reader.read(&keys::outbox(self.shard), &cursor.to_string(), BATCH_MAX, wait_ms).await?;
        self.reader = Some(reader);
        if !read.is_empty() {
            self.news.tell(self.shard);
        }
        let entries = parse_entries(self.shard, &read)?;
        if entries.last().is_some_and(|entry| entry.id.epoch > self.epoch) {
            let before = cursor;
            if self.begin().await? != before {
                return Ok(0);
            }
        }
        if !entries.is_empty() {
            self.deliver_fresh(&entries).await?;
            let now = Instant::now();
            entries.iter().filter_map(|entry| entry.read.as_ref()).for_each(|entry| self.live_reads.note(entry, now));
        }
        self.live_reads.tell_due(&self.stores, &self.recipients, Instant::now());
        self.catch_up().await?;
        self.save().await?;
        Ok(entries.len())
    }

    /// Begins at the cursor that Redis knows; below it every partition has everything.
    async fn begin(&mut self) -> Result<OutboxId, WorkError> {
        let state = read_shard(&self.stores.link, self.shard).await?;
        self.lagging.clear();
        self.epoch = state.epoch.unwrap_or(0);
        self.saved = state.dispatched;
        Ok(*self.cursor.insert(state.dispatched))
    }

    /// Delivers fresh entries to every partition that does not lag, and moves the cursor in memory behind them.
    async fn deliver_fresh(&mut self, entries: &[Parsed]) -> Result<(), WorkError> {
        let lagging = self.lagging.partitions();
        let (deliveries, ended) = self.expand(entries, |partition| !lagging.contains(&partition)).await?;
        let outcome = self.deliver(&deliveries).await;
        let before = self.cursor.unwrap_or_default();
        if !outcome.failed_partitions.is_empty() {
            let targeted = self.partitions_of(&deliveries);
            // With one server behind everything there is no partition to go on without: the line waits and nothing lags.
            if !self.stores.link.is_cluster() && outcome.failed_partitions.len() == targeted.len() {
                return Err(outcome.error.map_or(WorkError::StaleEpoch, WorkError::from));
            }
            self.lagging.add(&outcome.failed_partitions, before);
        }
        self.wake(entries, &deliveries, &outcome.delivered).await;
        self.cursor = entries.last().map(|entry| entry.id).or(self.cursor);
        let now = self.stores.clock.now();
        for entry in entries.iter().filter_map(|entry| entry.read.as_ref()) {
            metrics::DISPATCH_SECONDS.record_ms(&[], now - entry.at);
        }
        for (conversation, rev) in ended {
            if self.ended.len() < ENDED_MAX || self.ended.contains_key(&conversation) {
                let passed = self.ended.entry(conversation).or_default();
                *passed = rev.max(*passed);
            }
        }
        Ok(())
    }

    /// Makes the deliveries of entries for the users of those partitions that `wanted` picks. Beside them: conversations with ended
    /// memberships, and their last rev in these entries.
    pub(super) async fn expand(
        &self,
        entries: &[Parsed],
        wanted: impl Fn(PartitionId) -> bool,
    ) -> Result<(Vec<Delivery>, BTreeMap<ConversationId, Rev>), WorkError> {
        let mut deliveries = Vec::new();
        let mut ended = BTreeMap::new();
        for entry in entries.iter().filter_map(|entry| entry.read.as_ref()) {
            let mut members = Vec::new();
            if needs_members(entry) {
                let found = self.recipients.of(&entry.conversation, entry.rev, entry.members_version).await?;
                if found.has_ended {
                    ended.insert(entry.conversation.clone(), entry.rev);
                }
                members = found.users;
            }
            for mut delivery in expand_entry(entry, &members) {
                delivery.recipients.retain(|user| wanted(self.stores.keys.partition_of(user)));
                if !delivery.recipients.is_empty() {
                    deliveries.push(delivery);
                }
            }
        }
        Ok((deliveries, ended))
    }

    /// Appends to the logs, and counts.
    pub(super) async fn deliver(&self, deliveries: &[Delivery]) -> DeliveryOutcome {
        deliver(&self.stores, self.shard, deliveries).await
    }

    pub(super) fn partitions_of(&self, deliveries: &[Delivery]) -> BTreeSet<PartitionId> {
        deliveries.iter().flat_map(|d| &d.recipients).map(|user| self.stores.keys.partition_of(user)).collect()
    }

    /// Tells the gateways. Only a hint: a failure is the gateway's to find out.
    pub(super) async fn wake(&self, entries: &[Parsed], deliveries: &[Delivery], delivered: &[Delivered]) {
        let mut by_gateway: BTreeMap<&str, BTreeMap<usize, Vec<Woken>>> = BTreeMap::new();
        for one in delivered {
            for gateway in &one.gateways {
                let woken = Woken { user: one.user.clone(), position: one.position.clone(), previous: one.previous };
                by_gateway.entry(gateway).or_default().entry(one.delivery).or_default().push(woken);
            }
        }
        let calls = by_gateway.into_iter().map(|(gateway, by_delivery)| async move {
            let wakes: Vec<Wake> = by_delivery
                .into_iter()
                .filter_map(|(number, recipients)| {
                    let delivery = deliveries.get(number)?;
                    let place = entries.binary_search_by_key(&delivery.outbox_id, |entry| entry.id).ok()?;
                    let message = entries[place].read.as_ref().and_then(|entry| entry.message.as_ref()).map(|(_, json)| json.clone());
                    Some(Wake { pointer: delivery.pointer.clone(), message, recipients })
                })
                .collect();
            if let Err(error) = wake_gateway(&self.stores.link, gateway, &wakes).await {
                tracing::debug!(%error, "a gateway could not be woken; it will look by itself");
            }
        });
        futures_util::future::join_all(calls).await;
    }

    /// Moves the cursor in Redis up to what every partition has, then forgets memberships that ended below it.
    async fn save(&mut self) -> Result<(), WorkError> {
        let Some(cursor) = self.cursor else { return Ok(()) };
        let safe = self.lagging.lowest().map_or(cursor, |lowest| lowest.min(cursor));
        if safe > self.saved {
            if advance_cursor(&self.stores.link, self.shard, Cursor::Dispatched, safe, &[]).await?.is_none() {
                // The shard's key is gone: whoever opens a new epoch makes it again, and this round is told by its first entries.
                return Err(WorkError::StaleEpoch);
            }
            self.saved = safe;
        }
        if self.lagging.is_empty() {
            while let Some((conversation, passed)) = self.ended.pop_first() {
                forget_left(&self.stores.link, &self.stores.keys, &conversation, passed).await?;
            }
        }
        Ok(())
    }
}

impl Worker for DispatchShard {
    const NAME: &'static str = "dispatch_events";
    const PAUSE: Duration = Duration::from_millis(10);

    async fn run_once(&mut self) -> Result<Next, WorkError> {
        let wait_ms = if self.lagging.is_empty() { WAIT_MS } else { WAIT_LAGGING_MS };
        self.dispatch_once(wait_ms).await.map(|_| Next::AtOnce)
    }
}

/// Appends to the logs, and counts.
pub(super) async fn deliver(stores: &Stores, shard: ShardId, deliveries: &[Delivery]) -> DeliveryOutcome {
    if deliveries.is_empty() {
        return DeliveryOutcome::default();
    }
    let settings = &stores.settings;
    let bounds = LogBounds { entries_max: settings.log_max_entries, age_max_ms: settings.log_max_age.saturating_mul(1_000) };
    let now: Millis = stores.clock.now();
    let outcome = deliver_events(&stores.link, &stores.keys, shard, deliveries, now, bounds).await;
    metrics::DELIVERIES.add(&[], outcome.delivered.len() as u64);
    metrics::LOGS_FAILED.add(&[], (outcome.rebuilt.len() + outcome.failed_users.len()) as u64);
    outcome
}

/// An outbox entry as dispatch sees it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parsed {
    /// Its place.
    pub(super) id: OutboxId,
    /// What it says; `None` when it cannot be read, which the archive reports.
    pub(super) read: Option<OutboxEntry>,
}

pub(super) fn parse_entries(shard: ShardId, read: &[StreamEntry]) -> Result<Vec<Parsed>, WorkError> {
    let mut entries = Vec::with_capacity(read.len());
    for entry in read {
        let id = OutboxId::parse(&entry.id).ok_or(crate::redis::error::RedisError::from(Unreadable("outbox id")))?;
        let fields: Vec<(String, String)> =
            entry.fields.iter().map(|(name, value)| (name.clone(), String::from_utf8_lossy(value).into_owned())).collect();
        let read = OutboxEntry::parse(id, &fields);
        if let Err(error) = &read {
            tracing::error!(shard = shard.0, entry = %id, %error, "an outbox entry cannot be read; nobody is told of it");
        }
        entries.push(Parsed { id, read: read.ok() });
    }
    Ok(entries)
}
