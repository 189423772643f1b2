//! Takes one conversation out of Redis: closes it, waits until everything of it is told and archived, ends its lease, drops its keys. See
//! `workers/cool_conversations.rs` for what may be cut off where.

use std::time::{Duration, Instant};

use super::Stores;
use super::archive_outbox::{ArchiveStop, conversations_aside};
use crate::domain::ids::{ConversationId, Millis};
use crate::metrics;
use crate::redis::close_conversation::{CloseRequest, Closed, Closing, close_conversation};
use crate::redis::drop_conversation::drop_conversation;
use crate::redis::read_shard::read_shard;
use crate::redis::reopen_conversation::reopen_conversation;

/// How long a conversation stands closed at most while dispatch and archive pass its last entry.
const CLOSED_MAX: Duration = Duration::from_secs(2);
/// Pause between two looks at the cursors.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Age in ms at which a closing counts as abandoned: longer than any step of it may take.
const ABANDONED_AFTER_MS: i64 = 30_000;

/// What became of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cooled {
    /// It left Redis.
    Gone,
    /// It stays, open.
    Stays,
    /// It stands closed; the next round goes on with it.
    Unfinished,
}

/// Cools one conversation if it was last used at or before `idle_at`. Not to be called twice at once for one conversation with the same
/// `worker`.
///
/// # Errors
/// When a store does not answer; if it was left closed, calling again finishes it.
pub async fn cool_conversation(stores: &Stores, id: &ConversationId, worker: &str, idle_at: Millis) -> Result<Cooled, ArchiveStop> {
    let now = stores.clock.now();
    let request = CloseRequest { token: worker, now, idle_at, abandoned_at: now - ABANDONED_AFTER_MS };
    let closed = match close_conversation(&stores.link, &stores.keys, id, request).await? {
        Closing::Closed(closed) => closed,
        Closing::Absent => return Ok(Cooled::Gone),
        Closing::Used | Closing::Opening | Closing::Busy | Closing::StaleEpoch => return Ok(Cooled::Stays),
    };
    match is_passed(stores, id, &closed).await {
        Ok(true) => {}
        Ok(false) => return give_up(stores, id, worker, &closed).await,
        Err(error) => {
            give_up(stores, id, worker, &closed).await?;
            return Err(error);
        }
    }
    // From here on only forward. A lease of an epoch that was closed meanwhile is not ended: its rest becomes a void.
    if closed.lease_epoch == closed.last.epoch && !stores.archive.end_lease(id, closed.lease_epoch, closed.head).await? {
        tracing::info!(conversation = %id, "the lease was lost before it could be ended; what is left of it becomes a void");
    }
    if drop_conversation(&stores.link, &stores.keys, id, worker).await? {
        metrics::CONVERSATIONS_COOLED.add(&[], 1);
        Ok(Cooled::Gone)
    } else {
        Ok(Cooled::Unfinished)
    }
}

/// Whether everything of a closed conversation is in the users' logs and in Postgres, waiting a little for it.
async fn is_passed(stores: &Stores, id: &ConversationId, closed: &Closed) -> Result<bool, ArchiveStop> {
    let shard = stores.keys.shard_of(id);
    let until = Instant::now() + CLOSED_MAX;
    loop {
        let state = read_shard(&stores.link, shard).await?;
        if state.needs_epoch() {
            return Ok(false);
        }
        if state.has_passed(closed.last) {
            if state.aside > 0 && conversations_aside(stores, shard).await?.contains(id) {
                return Ok(false);
            }
            break;
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    // The cursors say so; what Redis is about to forget, the archive says itself.
    Ok(match stores.archive.load_conversation(id, 1).await? {
        Some(whole) => {
            let newest = whole.recent.last().map_or(0, |message| message.seq);
            whole.conversation.head_seq >= closed.head && whole.conversation.rev >= closed.rev && newest >= closed.head
        }
        None => !closed.made,
    })
}

async fn give_up(stores: &Stores, id: &ConversationId, token: &str, closed: &Closed) -> Result<Cooled, ArchiveStop> {
    if closed.taken_over {
        return Ok(Cooled::Unfinished);
    }
    reopen_conversation(&stores.link, &stores.keys, id, token, stores.clock.now()).await?;
    Ok(Cooled::Stays)
}
