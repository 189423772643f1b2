//! Takes what shards' outboxes hold to Postgres: one batch over several shards, row by row where the archive refuses.
//!
//! Every step may be cut off or done by two at once. The rows are written before the cursor moves, so that a crash in between only writes
//! them again, which changes nothing; the cursor only ever moves forward; and an entry that Postgres refuses is kept aside in the very
//! step in which the cursor passes it. A batch names the server it was read from: what a replaced server still holds is not accepted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use futures_util::future::join_all;

use super::Stores;
use super::archive_rows::rows_of;
use super::push_rows::push_row;
use super::settle_conflict::{is_in_conflict, rows_without_key, settle_conflict};
use super::warm_conversation::warm_conversation;
use super::webhook_rows::webhook_rows;
use crate::domain::ids::{ConversationId, Millis, Rev, Seq, ShardId};
use crate::domain::refusal::Refusal;
use crate::metrics;
use crate::postgres::{ArchiveBatch, ArchiveError, BatchOutcome, Source};
use crate::redis::advance_cursor::{Cursor, advance_cursor};
use crate::redis::error::RedisError;
use crate::redis::outbox::{OutboxEntry, OutboxId};
use crate::redis::read_aside::{AsideEntry, AsideReason, read_aside, take_aside};
use crate::redis::read_backlog::{Backlog, RawEntry, read_backlog};

/// Entries that are asked for of each shard, however many shards share a batch.
const SHARE_MIN: u64 = 16;
/// Entries set aside that are looked at in one step.
const ASIDE_PAGE: u64 = 100;

/// Why archiving stopped. What was done stays done; the next call goes on from there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveStop {
    /// Redis.
    #[error(transparent)]
    Redis(#[from] RedisError),
    /// Postgres.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// Another epoch of the shard was opened.
    #[error("another epoch was opened")]
    StaleEpoch,
}

impl From<ArchiveStop> for Refusal {
    fn from(stop: ArchiveStop) -> Self {
        match stop {
            ArchiveStop::Redis(error) => error.into(),
            ArchiveStop::Archive(error) => error.into(),
            ArchiveStop::StaleEpoch => Self::Unavailable("the live store is changing"),
        }
    }
}

/// How far a conversation is in Postgres.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Every message up to here, 0 when this call saw none.
    pub seq: Seq,
    /// Every change up to here.
    pub rev: Rev,
}

/// What a call came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Archived {
    /// Entries that the cursors passed.
    pub entries: u64,
    /// Shards that may have more: as many entries came as were asked for.
    pub more: Vec<ShardId>,
    /// Shards whose epoch is not (or no longer) that of the server they are on: nothing of theirs was written.
    pub stale: Vec<ShardId>,
    /// Shards whose server did not answer, and why: the others went on.
    pub failed: Vec<(ShardId, RedisError)>,
    /// Conversations that moved on.
    pub reached: BTreeMap<ConversationId, Reach>,
    /// Conversations of which something was set aside.
    pub aside: BTreeSet<ConversationId>,
    /// When the oldest entry that this call saw was accepted.
    pub oldest_at: Option<Millis>,
}

/// An entry of one of the shards of a batch.
struct Item {
    shard: ShardId,
    raw: RawEntry,
    /// `None` when it cannot be read.
    read: Option<(OutboxEntry, ArchiveBatch)>,
}

impl Item {
    fn of(stores: &Stores, shard: ShardId, raw: RawEntry) -> Self {
        let read = raw.parse().and_then(|entry| {
            let mut rows = rows_of(shard, &entry)?;
            if let Some(webhooks) = &stores.hooks.webhooks {
                rows.events = webhook_rows(webhooks, &entry, rows.messages.first());
            }
            if stores.push.is_some() {
                rows.pushes.extend(rows.messages.first().and_then(|message| push_row(&entry, message)));
            }
            Ok((entry, rows))
        });
        if let Err(error) = &read {
            tracing::error!(shard = shard.0, entry = %raw.id, %error, "an outbox entry cannot be read; it is set aside");
        }
        Self { shard, raw, read: read.ok() }
    }
}

/// Archives the next entries of these shards, at most about `rows_max` in one transaction.
///
/// # Errors
/// When Postgres does not answer. A Redis server that does not answer costs its own shards only.
pub async fn archive_outboxes(stores: &Stores, shards: &[ShardId], rows_max: u64) -> Result<Archived, ArchiveStop> {
    let limit = (rows_max / (shards.len() as u64).max(1)).max(SHARE_MIN);
    let backlogs = join_all(shards.iter().map(|shard| read_backlog(&stores.link, *shard, limit))).await;
    let mut done = Archived::default();
    let mut sources = Vec::new();
    let mut items = Vec::new();
    for (shard, backlog) in shards.iter().zip(backlogs) {
        let backlog = match backlog {
            Ok(Some(backlog)) => backlog,
            Ok(None) => {
                done.stale.push(*shard);
                continue;
            }
            Err(error) => {
                done.failed.push((*shard, error));
                continue;
            }
        };
        if backlog.entries.len() as u64 >= limit {
            done.more.push(*shard);
        }
        note_gap(*shard, &backlog);
        sources.push(Source { shard: *shard, epoch: backlog.epoch, server_id: backlog.server_id });
        items.extend(backlog.entries.into_iter().map(|raw| Item::of(stores, *shard, raw)));
    }
    done.oldest_at = items.iter().filter_map(|item| item.read.as_ref().map(|(entry, _)| entry.at)).min();
    write(stores, &sources, items, &mut done).await?;
    // What could not be written now is not to be asked for again at once.
    let (stale, failed) = (&done.stale, &done.failed);
    done.more.retain(|shard| !stale.contains(shard) && !failed.iter().any(|(other, _)| other == shard));
    Ok(done)
}

/// Archives everything that a closed shard's outbox holds, under the epoch that is about to be opened: conversations that are loaded in
/// it must see what the archive has not got yet.
///
/// # Errors
/// When a store does not answer or the shard has another epoch by now; calling again goes on from there.
pub async fn drain_shard(stores: &Stores, shard: ShardId) -> Result<(), ArchiveStop> {
    let rows_max = stores.settings.archive_batch_rows.max(1);
    let mut began: Option<Source> = None;
    loop {
        let Some(backlog) = read_backlog(&stores.link, shard, rows_max).await? else { return Err(ArchiveStop::StaleEpoch) };
        note_gap(shard, &backlog);
        let source = Source { shard, epoch: backlog.epoch, server_id: backlog.server_id };
        if began.get_or_insert_with(|| source.clone()) != &source {
            return Err(ArchiveStop::StaleEpoch);
        }
        if backlog.entries.is_empty() {
            return Ok(());
        }
        let items = backlog.entries.into_iter().map(|raw| Item::of(stores, shard, raw)).collect();
        let mut done = Archived::default();
        write(stores, &[source], items, &mut done).await?;
        if let Some((_, error)) = done.failed.pop() {
            return Err(error.into());
        }
        if !done.stale.is_empty() {
            return Err(ArchiveStop::StaleEpoch);
        }
    }
}

/// Writes items, halving where the archive refuses. Items of one shard stand together and in order, and so do the halves: when a cursor
/// passes the end of a part, everything before it is written or aside.
async fn write(stores: &Stores, sources: &[Source], items: Vec<Item>, done: &mut Archived) -> Result<(), ArchiveStop> {
    let mut parts = vec![items];
    while let Some(mut part) = parts.pop() {
        part.retain(|item| !done.stale.contains(&item.shard) && !done.failed.iter().any(|(shard, _)| *shard == item.shard));
        if part.is_empty() {
            continue;
        }
        let started = Instant::now();
        match stores.archive.write_batch(&batch_of(sources, &part, true)).await {
            Ok(outcome) if !outcome.stale.is_empty() => {
                done.stale.extend(&outcome.stale);
                parts.push(part);
            }
            Ok(outcome) => {
                metrics::ARCHIVE_BATCH_SECONDS.since(&[], started);
                metrics::ARCHIVE_BATCH_ROWS.record(&[], count_f64(part.len()));
                count(&outcome);
                tell_webhooks(stores, &part);
                let waiting = settle(stores, &part, &outcome, done).await?;
                part.retain(|item| !done.failed.iter().any(|(shard, _)| *shard == item.shard));
                let aside = part.iter().filter_map(|item| why_aside(item, &waiting).map(|why| (item, why))).collect();
                pass(stores, &part, aside, done).await;
            }
            Err(ArchiveError::Refused(_)) if part.len() > 1 => {
                let second = part.split_off(part.len() / 2);
                parts.push(second);
                parts.push(part);
            }
            Err(ArchiveError::Refused(error)) => {
                let item = &part[0];
                tracing::error!(shard = item.shard.0, entry = %item.raw.id, %error, "postgres refuses an entry; it is set aside");
                // What came with the message (that the conversation was made, who belongs to it) need not wait for it.
                match stores.archive.write_batch(&batch_of(sources, &part, false)).await {
                    Ok(_) | Err(ArchiveError::Refused(_)) => {}
                    Err(error) => return Err(error.into()),
                }
                let aside = part.iter().map(|item| (item, AsideReason::Refused)).collect();
                pass(stores, &part, aside, done).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn batch_of(sources: &[Source], items: &[Item], with_messages: bool) -> ArchiveBatch {
    let mut batch = ArchiveBatch::default();
    batch.sources.extend(sources.iter().filter(|source| items.iter().any(|item| item.shard == source.shard)).cloned());
    for (_, rows) in items.iter().filter_map(|item| item.read.as_ref()) {
        if with_messages {
            batch.messages.extend(rows.messages.iter().cloned());
            batch.events.extend(rows.events.iter().cloned());
            batch.pushes.extend(rows.pushes.iter().cloned());
        }
        batch.conversations.extend(rows.conversations.iter().cloned());
        batch.members.extend(rows.members.iter().cloned());
        batch.reads.extend(rows.reads.iter().cloned());
        batch.versions.extend(rows.versions.iter().cloned());
        batch.preferences.extend(rows.preferences.iter().cloned());
        batch.blocks.extend(rows.blocks.iter().cloned());
        batch.voids.extend(rows.voids.iter().cloned());
    }
    batch
}

/// Wakes this process's worker for webhooks when there is something new for it.
fn tell_webhooks(stores: &Stores, items: &[Item]) {
    if let Some(webhooks) = &stores.hooks.webhooks
        && items.iter().any(|item| item.read.as_ref().is_some_and(|(_, rows)| !rows.events.is_empty()))
    {
        webhooks.tell_queued();
    }
}

/// Settles the entries of a part whose message found its number or its key taken, in their order, and names those that have to wait. A shard
/// whose Redis server does not answer counts as failed.
async fn settle(stores: &Stores, part: &[Item], outcome: &BatchOutcome, done: &mut Archived) -> Result<BTreeSet<OutboxId>, ArchiveStop> {
    let mut waiting = BTreeSet::new();
    for item in part {
        let Some((entry, rows)) = item.read.as_ref().filter(|(entry, rows)| is_in_conflict(entry, rows, outcome)) else { continue };
        match settle_conflict(stores, entry, rows, outcome).await {
            // What settled it stands further down the outbox, and need not wait for the next poll.
            Ok(true) if !done.more.contains(&item.shard) => done.more.push(item.shard),
            Ok(true) => {}
            Ok(false) => {
                metrics::SEQ_CONFLICTS.add(&[], 1);
                tracing::error!(
                    conversation = %entry.conversation, entry = %item.raw.id,
                    "another message stands in the archive where this one belongs; it waits aside until its conversation is in redis"
                );
                waiting.insert(item.raw.id);
            }
            Err(ArchiveStop::Redis(error)) => {
                done.failed.push((item.shard, error));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(waiting)
}

fn why_aside(item: &Item, waiting: &BTreeSet<OutboxId>) -> Option<AsideReason> {
    if item.read.is_none() {
        return Some(AsideReason::Unreadable);
    }
    waiting.contains(&item.raw.id).then_some(AsideReason::Conflict)
}

/// Moves the cursors to the end of a part, keeping aside what is not in Postgres.
async fn pass(stores: &Stores, part: &[Item], aside: Vec<(&Item, AsideReason)>, done: &mut Archived) {
    let mut ends: BTreeMap<ShardId, (OutboxId, Vec<AsideEntry>)> = BTreeMap::new();
    for item in part {
        ends.entry(item.shard).or_default().0 = item.raw.id;
    }
    for (item, why) in aside {
        metrics::ARCHIVE_ROWS.add(&["set_aside"], 1);
        if let Some((_, kept)) = ends.get_mut(&item.shard) {
            kept.push(AsideEntry { why, entry: item.raw.clone() });
        }
        if let Some((entry, _)) = &item.read {
            done.aside.insert(entry.conversation.clone());
        }
    }
    let moves = ends
        .iter()
        .map(|(shard, (end, kept))| async move { (*shard, advance_cursor(&stores.link, *shard, Cursor::Archived, *end, kept).await) });
    for (shard, moved) in join_all(moves).await {
        match moved {
            Ok(_) => {}
            Err(error) => done.failed.push((shard, error)),
        }
    }
    done.entries += part.len() as u64;
    for (entry, _) in part.iter().filter_map(|item| item.read.as_ref()) {
        let reach = done.reached.entry(entry.conversation.clone()).or_default();
        reach.rev = reach.rev.max(entry.rev);
        reach.seq = reach.seq.max(entry.message.as_ref().map_or(0, |(seq, _)| *seq));
    }
}

/// Tries once more what stands aside in a shard; what Postgres takes now leaves the list, and so does what is settled. Returns the
/// conversations that still wait.
///
/// # Errors
/// When a store does not answer.
pub async fn retry_aside(stores: &Stores, shard: ShardId) -> Result<BTreeSet<ConversationId>, ArchiveStop> {
    let mut waiting = BTreeSet::new();
    let mut in_conflict = Vec::new();
    let mut from = "0".to_owned();
    loop {
        let Some(page) = read_aside(&stores.link, shard, &from, ASIDE_PAGE).await? else { return Err(ArchiveStop::StaleEpoch) };
        let source = Source { shard, epoch: page.epoch, server_id: page.server_id };
        for kept in page.entries {
            if kept.why == AsideReason::Conflict {
                in_conflict.push((source.clone(), Item::of(stores, shard, kept.entry)));
            } else {
                retry(stores, source.clone(), Item::of(stores, shard, kept.entry), &mut waiting).await?;
            }
        }
        if page.next == "0" {
            break;
        }
        from = page.next;
    }
    // Of a message that stands aside in several versions the newest goes first: it is the one that is numbered anew.
    in_conflict.sort_by_key(|(_, item)| std::cmp::Reverse(item.raw.id));
    for (source, item) in in_conflict {
        retry(stores, source, item, &mut waiting).await?;
    }
    Ok(waiting)
}

/// Tries one entry that stands aside.
async fn retry(stores: &Stores, source: Source, item: Item, waiting: &mut BTreeSet<ConversationId>) -> Result<(), ArchiveStop> {
    let Some((entry, rows)) = &item.read else { return Ok(()) };
    let batch = ArchiveBatch { late: true, ..batch_of(std::slice::from_ref(&source), std::slice::from_ref(&item), true) };
    let done = match write_late(stores, &batch).await? {
        None => false,
        Some(outcome) if !is_in_conflict(entry, rows, &outcome) => true,
        Some(outcome) if outcome.conflicts.is_empty() => {
            settle_conflict(stores, entry, rows, &outcome).await? || write_without_key(stores, source.clone(), rows).await?
        }
        Some(outcome) => {
            // What stands aside has often left Redis together with its conversation.
            if let Err(error) = warm_conversation(stores, &entry.conversation, false).await {
                tracing::warn!(conversation = %entry.conversation, %error, "a conversation with an entry aside cannot be loaded");
            }
            settle_conflict(stores, entry, rows, &outcome).await?
        }
    };
    if done {
        take_aside(&stores.link, source.shard, item.raw.id).await?;
        tracing::info!(shard = source.shard.0, entry = %item.raw.id, "an entry that stood aside is settled");
    } else {
        waiting.insert(entry.conversation.clone());
    }
    Ok(())
}

/// Writes a double that is not in Redis any more as it is to stand; false when it cannot be written yet.
async fn write_without_key(stores: &Stores, source: Source, rows: &ArchiveBatch) -> Result<bool, ArchiveStop> {
    let Some(rows) = rows_without_key(stores, rows).await? else { return Ok(false) };
    let outcome = write_late(stores, &ArchiveBatch { late: true, sources: vec![source], ..rows }).await?;
    Ok(outcome.is_some_and(|outcome| outcome.conflicts.is_empty() && outcome.key_conflicts.is_empty()))
}

/// Writes what stood aside; `None` when it is still refused.
async fn write_late(stores: &Stores, batch: &ArchiveBatch) -> Result<Option<BatchOutcome>, ArchiveStop> {
    match stores.archive.write_batch(batch).await {
        Ok(outcome) if !outcome.stale.is_empty() => Err(ArchiveStop::StaleEpoch),
        Ok(outcome) => {
            count(&outcome);
            Ok(Some(outcome))
        }
        Err(ArchiveError::Refused(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The conversations of which something stands aside in a shard.
///
/// # Errors
/// When Redis does not answer or the shard has no epoch on its server.
pub async fn conversations_aside(stores: &Stores, shard: ShardId) -> Result<BTreeSet<ConversationId>, ArchiveStop> {
    let mut found = BTreeSet::new();
    let mut from = "0".to_owned();
    loop {
        let Some(page) = read_aside(&stores.link, shard, &from, ASIDE_PAGE).await? else { return Err(ArchiveStop::StaleEpoch) };
        found.extend(page.entries.iter().filter_map(|kept| kept.entry.parse().ok()).map(|entry| entry.conversation));
        if page.next == "0" {
            return Ok(found);
        }
        from = page.next;
    }
}

/// Says so when entries were taken out of the outbox before they were archived: numbers within an epoch have no holes.
fn note_gap(shard: ShardId, backlog: &Backlog) {
    let Some(first) = backlog.entries.first().map(|entry| entry.id) else { return };
    let expected = OutboxId { epoch: backlog.archived.epoch, n: backlog.archived.n + 1 };
    if first.epoch == expected.epoch && first.n > expected.n {
        let lost = first.n - expected.n;
        metrics::OUTBOX_ENTRIES_LOST.add(&[], lost);
        tracing::error!(shard = shard.0, after = %backlog.archived, lost, "outbox entries were gone before they were archived");
    }
}

fn count(outcome: &BatchOutcome) {
    metrics::ARCHIVE_ROWS.add(&["inserted"], outcome.inserted);
    metrics::ARCHIVE_ROWS.add(&["updated"], outcome.updated);
    metrics::ARCHIVE_ROWS.add(&["replayed"], outcome.replayed);
}

#[allow(clippy::cast_precision_loss, reason = "a batch has thousands of rows, not 2^53")]
fn count_f64(n: usize) -> f64 {
    n as f64
}
