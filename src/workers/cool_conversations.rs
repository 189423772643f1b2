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
use crate::actions::archive_outbox::conversations_aside;
use crate::domain::ids::{ConversationId, Millis, ShardId};
use crate::metrics;
use crate::redis::close_conversation::{CloseRequest, Closed, Closing, close_conversation, list_idle};
use crate::redis::drop_conversation::drop_conversation;
use crate::redis::read_shard::{ShardState, read_shard};
use crate::redis::reopen_conversation::reopen_conversation;

/// Conversations cooled in one round of a shard.
const ROUND_MAX: u64 = 32;
/// Conversations cooled at the same time.
const AT_ONCE: usize = 8;
/// A shard with more entries than this waiting is left alone: its conversations would stand closed for too long.
const BACKLOG_MAX: u64 = 1_000;
/// How long a conversation stands closed at most while dispatch and archive pass its last entry.
const CLOSED_MAX: Duration = Duration::from_secs(2);
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

/// Cools one conversation if it was last used at or before `idle_at`. Not to be called twice at once for one conversation with the same
/// `worker`.
///
/// # Errors
/// When a store does not answer; if it was left closed, calling again finishes it.
pub async fn cool_conversation(stores: &Stores, id: &ConversationId, worker: &str, idle_at: Millis) -> Result<Cooled, WorkError> {
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
async fn is_passed(stores: &Stores, id: &ConversationId, closed: &Closed) -> Result<bool, WorkError> {
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

async fn give_up(stores: &Stores, id: &ConversationId, token: &str, closed: &Closed) -> Result<Cooled, WorkError> {
    if closed.taken_over {
        return Ok(Cooled::Unfinished);
    }
    reopen_conversation(&stores.link, &stores.keys, id, token, stores.clock.now()).await?;
    Ok(Cooled::Stays)
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
