//! Word from dispatch to the archive: which shards have something new. A word that is lost costs a poll's pause, nothing else.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::domain::ids::ShardId;

/// Shards with news since they were last taken.
#[derive(Debug, Default)]
pub struct News {
    shards: Mutex<BTreeSet<ShardId>>,
    told: Notify,
}

impl News {
    /// Says that a shard has something new.
    pub fn tell(&self, shard: ShardId) {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner).insert(shard);
        self.told.notify_one();
    }

    /// Takes all shards that have news.
    pub fn take(&self) -> BTreeSet<ShardId> {
        std::mem::take(&mut *self.shards.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for news; news told before the call end the wait at once.
    pub async fn wait(&self) {
        self.told.notified().await;
    }
}
