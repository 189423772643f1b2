//! Takes what the outboxes of all owned shards hold to Postgres, in shared batches, and drops from Redis what is no longer recent.
//!
//! Word from dispatch begins a round at once, so that a lone entry is archived within milliseconds; while a batch is being written the
//! next one gathers by itself. A poll now and then finds what word was lost of.
//!
//! Safe to run twice: see `actions/archive_outbox.rs`. When Postgres is away a round fails, pauses and reads the same entries again:
//! nothing is kept in memory but one batch.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::WorkError;
use super::news::News;
use super::own_shards::Owned;
use super::repeat::{Next, Worker};
use super::trim::Trimmer;
use crate::actions::Stores;
use crate::actions::archive_outbox::{Reach, archive_outboxes, conversations_aside, retry_aside};
use crate::domain::ids::{ConversationId, ShardId};
use crate::redis::read_shard::read_shard;

pub use crate::actions::archive_outbox::drain_shard;

/// Time after which every owned shard is asked, news or not.
const POLL: Duration = Duration::from_millis(250);
/// Time between two tries of what stands aside.
const RETRY_EVERY: Duration = Duration::from_secs(60);
/// Time for which a shard whose Redis server does not answer is left alone.
const REST: Duration = Duration::from_secs(1);
/// Conversations trimmed in a round that had nothing to archive.
const TRIMMED_WHEN_IDLE: usize = 50;

/// Archives owned shards.
#[derive(Debug)]
pub struct ArchiveMessages {
    stores: Arc<Stores>,
    owned: watch::Receiver<Owned>,
    news: Arc<News>,
    polled_at: Option<Instant>,
    trimmer: Trimmer,
    /// Shards whose aside list was read by this worker within the last minute.
    known: BTreeSet<ShardId>,
    known_since: Instant,
    /// Shards whose Redis server did not answer, and until when they are not asked: waiting for it would hold up the others.
    resting: HashMap<ShardId, Instant>,
}

impl ArchiveMessages {
    /// For the shards that `owned` shows, woken by `news`.
    #[must_use]
    pub fn new(stores: Arc<Stores>, owned: watch::Receiver<Owned>, news: Arc<News>) -> Self {
        let trimmer = Trimmer::new(Arc::clone(&stores));
        Self { stores, owned, news, polled_at: None, trimmer, known: BTreeSet::new(), known_since: Instant::now(), resting: HashMap::new() }
    }

    /// Archives one batch out of these shards and trims behind it. True when there is more.
    ///
    /// # Errors
    /// When a store does not answer; shards on Redis servers that do have been archived nevertheless.
    pub async fn archive_once(&mut self, shards: &[ShardId]) -> Result<bool, WorkError> {
        self.resting.retain(|_, until| *until > Instant::now());
        let awake: Vec<ShardId> = shards.iter().copied().filter(|shard| !self.resting.contains_key(shard)).collect();
        let done = archive_outboxes(&self.stores, &awake, self.stores.settings.archive_batch_rows).await?;
        self.trimmer.keep(done.aside);
        let mut outcome = self.trim(done.reached).await;
        for shard in &done.more {
            self.news.tell(*shard);
        }
        for (shard, error) in done.failed {
            self.resting.insert(shard, Instant::now() + REST);
            outcome = Err(error.into());
        }
        outcome.map(|()| !done.more.is_empty())
    }

    async fn trim(&mut self, reached: BTreeMap<ConversationId, Reach>) -> Result<(), WorkError> {
        let shards: BTreeSet<ShardId> = reached.keys().map(|id| self.stores.keys.shard_of(id)).collect();
        for shard in shards {
            if self.known.contains(&shard) {
                continue;
            }
            // What stands aside is not in Postgres, so its conversation is not to be trimmed.
            if read_shard(&self.stores.link, shard).await?.aside > 0 {
                self.trimmer.set_aside(shard, conversations_aside(&self.stores, shard).await?);
            }
            self.known.insert(shard);
        }
        self.trimmer.reached(reached).await
    }
}

impl Worker for ArchiveMessages {
    const NAME: &'static str = "archive_messages";
    const PAUSE: Duration = POLL;

    async fn run_once(&mut self) -> Result<Next, WorkError> {
        let owned = Arc::clone(&*self.owned.borrow());
        self.known.retain(|shard| owned.contains(shard));
        if self.known_since.elapsed() >= RETRY_EVERY {
            self.known.clear();
            self.known_since = Instant::now();
        }
        let news = self.news.take();
        let poll = self.polled_at.is_none_or(|at| at.elapsed() >= POLL);
        let shards: Vec<ShardId> = if poll { owned.iter().copied().collect() } else { news.intersection(&owned).copied().collect() };
        if shards.is_empty() {
            return Ok(Next::AfterPause);
        }
        if poll {
            self.polled_at = Some(Instant::now());
        }
        if self.archive_once(&shards).await? {
            return Ok(Next::AtOnce);
        }
        self.trimmer.trim_some(TRIMMED_WHEN_IDLE).await?;
        Ok(Next::AfterPause)
    }

    async fn news(&mut self) {
        self.news.wait().await;
    }
}

/// Tries again what Postgres refused. Safe to run twice: the archive takes a row any number of times, and only what it has leaves the list.
#[derive(Debug)]
pub struct RetryAside {
    stores: Arc<Stores>,
    owned: watch::Receiver<Owned>,
    last: HashMap<ShardId, Instant>,
}

impl RetryAside {
    /// For the shards that `owned` shows.
    #[must_use]
    pub fn new(stores: Arc<Stores>, owned: watch::Receiver<Owned>) -> Self {
        Self { stores, owned, last: HashMap::new() }
    }
}

impl Worker for RetryAside {
    const NAME: &'static str = "retry_aside";
    const PAUSE: Duration = Duration::from_secs(10);

    async fn run_once(&mut self) -> Result<Next, WorkError> {
        let owned = Arc::clone(&*self.owned.borrow());
        self.last.retain(|shard, _| owned.contains(shard));
        let mut outcome = Ok(Next::AfterPause);
        for shard in owned.iter() {
            if self.last.get(shard).is_some_and(|at| at.elapsed() < RETRY_EVERY) {
                continue;
            }
            match retry_shard(&self.stores, *shard).await {
                Ok(()) => drop(self.last.insert(*shard, Instant::now())),
                // One shard's server that is away says nothing about the others'.
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }
}

async fn retry_shard(stores: &Stores, shard: ShardId) -> Result<(), WorkError> {
    if read_shard(&stores.link, shard).await?.aside > 0 {
        retry_aside(stores, shard).await?;
    }
    Ok(())
}
