//! Audits shards: epochs, cursors, what waits and for how long, what Postgres refuses.

use std::time::Duration;

use super::Stores;
use super::archive_outbox::ArchiveStop;
use super::audit_conversations::entries_aside;
use crate::domain::audit::{Code, Finding, still_there};
use crate::domain::ids::{ConversationId, Millis, PartitionId, ShardId};
use crate::redis::audit_keys::{delivered_marks, first_waiting};
use crate::redis::outbox::OutboxId;
use crate::redis::read_shard::{ShardState, read_shard};

/// Pauses between looks at a suspicion, in milliseconds: long enough for a worker to open an epoch.
const PAUSES_MS: [u64; 4] = [200, 600, 1_500, 3_000];
/// Entries aside that are told of in one shard.
const ASIDE_MAX: usize = 500;

/// Audits all shards, and what waits in Postgres for longer than `behind_ms`.
///
/// # Errors
/// When a store does not answer.
pub async fn audit_shards(stores: &Stores, behind_ms: Millis) -> Result<Vec<Finding>, ArchiveStop> {
    let mut found = look(stores, behind_ms).await?;
    for pause in PAUSES_MS {
        if found.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(pause)).await;
        found = still_there(&found, look(stores, behind_ms).await?);
    }
    Ok(found)
}

async fn look(stores: &Stores, behind_ms: Millis) -> Result<Vec<Finding>, ArchiveStop> {
    let mut found = stores.archive.audit_queues(behind_ms).await?;
    // Read before the shards: a mark never goes beyond what was written by then.
    let mut marks = Vec::new();
    for partition in 0..stores.keys.partitions {
        let of = delivered_marks(&stores.link, PartitionId(partition), stores.keys.shards).await?;
        marks.extend(of.into_iter().map(|(shard, mark)| (partition, shard, mark)));
    }
    let granted = stores.archive.granted_epochs().await?;
    for shard in (0..stores.keys.shards).map(ShardId) {
        let of = |code| Finding::new(code).about(format!("shard {}", shard.0));
        let state = read_shard(&stores.link, shard).await?;
        let grant = granted.iter().find(|(number, ..)| *number == i32::from(shard.0));
        match (state.epoch, grant) {
            (None, None) => continue,
            (Some(epoch), Some((_, granted, server, true)))
                if epoch == *granted && *server == state.live_replid && !state.needs_epoch() => {}
            (epoch, grant) => {
                let granted = grant.map(|(_, epoch, ..)| *epoch);
                found.push(of(Code::EpochDiffers).note(format!("{epoch:?} in Redis, {granted:?} granted, open: {}", state.open)));
            }
        }
        for (name, cursor) in [("archived", state.archived), ("dispatched", state.dispatched)] {
            if cursor > state.last {
                found.push(
                    Finding::new(Code::CursorBeyond)
                        .about(format!("shard {} {name}", shard.0))
                        .note(format!("{cursor} beyond {}", state.last)),
                );
            }
        }
        for (partition, _, mark) in marks.iter().filter(|(_, of, mark)| *of == shard && *mark > state.last) {
            let subject = format!("shard {} partition {partition}", shard.0);
            found.push(Finding::new(Code::CursorBeyond).about(subject).note(format!("{mark} beyond {}", state.last)));
        }
        if let Some(gap) = gap(stores, shard, &state).await? {
            found.push(of(Code::OutboxGap).note(gap));
        }
        let age = state.oldest_at.map_or(0, |at| stores.clock.now() - at);
        if age > behind_ms {
            found.push(of(Code::BacklogOld).note(format!("{} entries, the oldest for {} s", state.entries, age / 1_000)));
        }
        if state.aside > 0 {
            for waiting in entries_aside(stores, shard).await?.into_iter().take(ASIDE_MAX) {
                let finding = Finding::new(Code::AsideWaiting).about(format!("shard {} {}", shard.0, waiting.entry)).note(waiting.why);
                found.push(Finding { conversation: ConversationId::parse(&waiting.conversation), seq: waiting.seq, ..finding });
            }
        }
    }
    Ok(found)
}

/// Says what is missing between the archive's cursor and the first entry that waits for it. The cursor may move meanwhile, and then what it
/// passed is trimmed: so it is read once more.
async fn gap(stores: &Stores, shard: ShardId, before: &ShardState) -> Result<Option<String>, ArchiveStop> {
    let first = first_waiting(&stores.link, shard, before.archived).await?;
    let expected = |first: OutboxId| if first.epoch == before.archived.epoch { before.archived.n + 1 } else { 1 };
    let missing_to = match first {
        Some(first) if first.n > expected(first) => OutboxId { n: first.n - 1, ..first },
        None if before.archived < before.last && before.last.n > 0 => before.last,
        _ => return Ok(None),
    };
    let after = read_shard(&stores.link, shard).await?;
    Ok((after.archived < missing_to).then(|| format!("after {} to {missing_to}", before.archived)))
}
