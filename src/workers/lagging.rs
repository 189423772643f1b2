//! Partitions of users that could not be reached: delivered to apart from the line, each in order from where it stopped.
//!
//! A partition's mark says "everything up to here is in these logs". So nothing later may be delivered to a lagging partition before what
//! it missed; and the shard's cursor, behind which the outbox is trimmed, waits for the lowest of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinHandle;

use super::WorkError;
use super::dispatch_events::{BATCH_MAX, DispatchShard, Parsed, deliver};
use crate::domain::ids::PartitionId;
use crate::metrics;
use crate::redis::deliver_events::{Delivery, DeliveryOutcome};
use crate::redis::error::RedisError;
use crate::redis::keys;
use crate::redis::outbox::{OutboxEntry, OutboxId};
use crate::redis::reply::Reply;
use crate::redis::stored_form::Unreadable;

/// First pause before a partition is tried again.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest one.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Steps of catching up between two looks at the line.
const STEPS_MAX: u32 = 10;

#[derive(Debug)]
struct Lag {
    /// Up to here the partition has everything.
    after: OutboxId,
    /// Its server answered lately: it may be caught up in the line's own task, which waits for it.
    answers: bool,
    again_at: Instant,
    pause: Duration,
}

/// Where each lagging partition stopped.
#[derive(Debug, Default)]
pub(super) struct Lagging {
    partitions: BTreeMap<PartitionId, Lag>,
    /// A try under way in a task of its own, so that a server that only times out does not hold up the line.
    probe: Option<Probe>,
}

#[derive(Debug)]
struct Probe {
    partition: PartitionId,
    last: OutboxId,
    entries: Vec<Parsed>,
    deliveries: Arc<Vec<Delivery>>,
    running: JoinHandle<DeliveryOutcome>,
}

impl Drop for Lagging {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Lagging {
    /// Forgets all of it, for a line that begins again below the lowest.
    pub(super) fn clear(&mut self) {
        for _ in std::mem::take(&mut self.partitions) {
            metrics::PARTITIONS_LAGGING.down(&[]);
        }
        self.probe = None;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    pub(super) fn partitions(&self) -> BTreeSet<PartitionId> {
        self.partitions.keys().copied().collect()
    }

    /// Up to here every lagging partition has everything; `None` when none lags.
    pub(super) fn lowest(&self) -> Option<OutboxId> {
        self.partitions.values().map(|lag| lag.after).min()
    }

    /// These stopped after `after`.
    pub(super) fn add(&mut self, partitions: &[PartitionId], after: OutboxId) {
        for partition in partitions {
            let lag = Lag { after, answers: false, again_at: Instant::now() + PAUSE_MIN, pause: PAUSE_MIN };
            if self.partitions.insert(*partition, lag).is_none() {
                metrics::PARTITIONS_LAGGING.up(&[]);
            }
        }
    }

    fn caught_up(&mut self, partition: PartitionId) {
        if self.partitions.remove(&partition).is_some() {
            metrics::PARTITIONS_LAGGING.down(&[]);
        }
    }

    fn failed(&mut self, partition: PartitionId) {
        if let Some(lag) = self.partitions.get_mut(&partition) {
            lag.answers = false;
            lag.pause = (lag.pause * 2).min(PAUSE_MAX);
            lag.again_at = Instant::now() + lag.pause.mul_f64(rand::random_range(0.9..1.1));
        }
    }

    /// One answered, so its neighbours on the same server probably do too.
    fn answered(&mut self) {
        for lag in self.partitions.values_mut() {
            lag.answers = true;
        }
    }

    /// The partitions that stopped at the same place, the lowest, among those whose server answers.
    fn lowest_group(&self) -> Option<(OutboxId, BTreeSet<PartitionId>)> {
        let after = self.partitions.values().filter(|lag| lag.answers).map(|lag| lag.after).min()?;
        let group = self.partitions.iter().filter(|(_, lag)| lag.answers && lag.after == after).map(|(p, _)| *p).collect();
        Some((after, group))
    }
}

impl DispatchShard {
    /// Brings lagging partitions forward as far as their servers answer.
    pub(super) async fn catch_up(&mut self) -> Result<(), WorkError> {
        self.look_at_probe().await;
        for _ in 0..STEPS_MAX {
            let Some((after, group)) = self.lagging.lowest_group() else { break };
            self.catch_up_group(after, &group).await?;
        }
        self.start_probe().await
    }

    async fn catch_up_group(&mut self, after: OutboxId, group: &BTreeSet<PartitionId>) -> Result<(), WorkError> {
        let entries = self.read_again(after).await?;
        let last = entries.last().map_or(self.cursor.unwrap_or_default(), |entry| entry.id);
        let (deliveries, _) = self.expand(&entries, |partition| group.contains(&partition)).await?;
        let outcome = self.deliver(&deliveries).await;
        self.wake(&entries, &deliveries, &outcome.delivered).await;
        let at_end = last >= self.cursor.unwrap_or_default();
        for partition in group {
            if outcome.failed_partitions.contains(partition) {
                self.lagging.failed(*partition);
            } else if at_end {
                self.lagging.caught_up(*partition);
            } else if let Some(lag) = self.lagging.partitions.get_mut(partition) {
                lag.after = last;
            }
        }
        Ok(())
    }

    async fn look_at_probe(&mut self) {
        if !self.lagging.probe.as_ref().is_some_and(|probe| probe.running.is_finished()) {
            return;
        }
        let Some(probe) = self.lagging.probe.take() else { return };
        match probe.running.await {
            Ok(outcome) if outcome.failed_partitions.is_empty() => {
                self.wake(&probe.entries, &probe.deliveries, &outcome.delivered).await;
                if let Some(lag) = self.lagging.partitions.get_mut(&probe.partition) {
                    lag.after = lag.after.max(probe.last);
                }
                self.lagging.answered();
            }
            _ => self.lagging.failed(probe.partition),
        }
    }

    async fn start_probe(&mut self) -> Result<(), WorkError> {
        if self.lagging.probe.is_some() {
            return Ok(());
        }
        let now = Instant::now();
        let due = self.lagging.partitions.iter().find(|(_, lag)| !lag.answers && lag.again_at <= now).map(|(p, lag)| (*p, lag.after));
        let Some((partition, after)) = due else { return Ok(()) };
        let entries = self.read_again(after).await?;
        let last = entries.last().map_or(after, |entry| entry.id);
        let (deliveries, _) = self.expand(&entries, |p| p == partition).await?;
        let deliveries = Arc::new(deliveries);
        let (stores, shard, work) = (Arc::clone(&self.stores), self.shard, Arc::clone(&deliveries));
        let running = tokio::spawn(async move { deliver(&stores, shard, &work).await });
        self.lagging.probe = Some(Probe { partition, last, entries, deliveries, running });
        Ok(())
    }

    /// Entries after `after` up to the line's cursor, at most a batch.
    async fn read_again(&self, after: OutboxId) -> Result<Vec<Parsed>, WorkError> {
        let key = keys::outbox(self.shard);
        let to = self.cursor.unwrap_or_default();
        let args = [key.clone(), format!("({after}"), to.to_string(), "COUNT".to_owned(), BATCH_MAX.to_string()];
        let reply = self.stores.link.command("XRANGE", &key, args.map(Bytes::from).into()).await?;
        Ok(reply.as_list().map_err(RedisError::from)?.iter().map(parse).collect::<Result<_, _>>().map_err(RedisError::from)?)
    }
}

fn parse(reply: &Reply) -> Result<Parsed, Unreadable> {
    let mut items = reply.items()?;
    let id = OutboxId::parse(items.str()?).ok_or(Unreadable("outbox id"))?;
    let mut fields = Vec::new();
    for (name, value) in items.item()?.as_pairs()? {
        let text = |r: &Reply| r.as_bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        fields.push((text(name)?, text(value)?));
    }
    Ok(Parsed { id, read: OutboxEntry::parse(id, &fields).ok() })
}
