//! What becomes of an outbox entry whose message found its number or its key taken in the archive.

use super::Stores;
use super::archive_outbox::ArchiveStop;
use super::resequence_message::{Displaced, Placed, resequence_message};
use super::settle_double::{settle_double, without_key};
use crate::metrics;
use crate::postgres::{ArchiveBatch, BatchOutcome, ReadRow, VersionRow};
use crate::redis::outbox::OutboxEntry;

/// Whether the entry's message was not written because another one has its number or its key.
#[must_use]
pub fn is_in_conflict(entry: &OutboxEntry, rows: &ArchiveBatch, outcome: &BatchOutcome) -> bool {
    rows.messages.first().is_some_and(|message| outcome.is_lost(&entry.conversation, message.seq, message.id))
}

/// Settles it: afterwards an entry further down the outbox brings the message to the archive, and this one has nothing left to say. False
/// when that cannot be done for the time; then it has to be kept. Safe to repeat.
///
/// # Errors
/// When a store does not answer.
pub async fn settle_conflict(
    stores: &Stores,
    entry: &OutboxEntry,
    rows: &ArchiveBatch,
    outcome: &BatchOutcome,
) -> Result<bool, ArchiveStop> {
    let (Some(message), Some((seq, json))) = (rows.messages.first(), &entry.message) else { return Ok(true) };
    let on_number = outcome.conflicts.iter().any(|c| c.conv == entry.conversation && c.seq == *seq && c.ours == message.id);
    let placed = if on_number {
        let displaced = Displaced { conversation: &entry.conversation, seq: *seq, id: message.id, sender: &message.sender, json };
        resequence_message(stores, displaced).await?
    } else {
        settle_double(stores, message).await?
    };
    let (new_seq, fresh) = match placed {
        Placed::Moved(new_seq) => (new_seq, true),
        Placed::Stands(new_seq) => (new_seq, false),
        Placed::Waits => return Ok(false),
    };
    if fresh && on_number {
        metrics::SEQ_CONFLICTS.add(&[], 1);
    }
    if fresh {
        tracing::error!(
            conversation = %entry.conversation, seq, new_seq, id = %message.id, on_key = !on_number,
            "another message stood in the archive where this one belongs; both are kept"
        );
    }
    // What the message said before it was edited follows it.
    let versions: Vec<VersionRow> = rows.versions.iter().map(|version| VersionRow { seq: new_seq, ..version.clone() }).collect();
    stores.archive.keep_versions(&versions).await?;
    Ok(true)
}

/// For a double that is not in Redis any more: the rows that bring it to the archive as it is to stand. `None` when its number is not free.
///
/// # Errors
/// When the archive does not answer.
pub async fn rows_without_key(stores: &Stores, rows: &ArchiveBatch) -> Result<Option<ArchiveBatch>, ArchiveStop> {
    let Some((message, key)) = rows.messages.first().and_then(|m| Some((m, m.client_id.as_ref()?))) else { return Ok(None) };
    let first = stores.archive.find_by_key(&message.conversation, &message.sender, key).await?;
    Ok(first.map(|first| {
        let stripped = without_key(message, &first, stores.clock.now());
        let mut rows = ArchiveBatch { messages: vec![stripped], events: Vec::new(), ..rows.clone() };
        rows.reads.extend(rows.messages.iter().map(|m| ReadRow {
            conv: m.conversation.clone(),
            user: m.sender.clone(),
            seq: m.seq,
            at: m.created_at,
        }));
        rows
    }))
}
