//! Notes what tokens claim about their bearers, for those whose profile the service did not set. Never on a request's way: a claim that
//! differs from what was noted last waits in memory for the next batch. What a gateway loses by ending, the next request brings again.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quick_cache::sync::Cache;

use super::Stores;
use crate::domain::ids::UserId;
use crate::domain::profile::Claimed;

/// Users of whom is remembered what was noted last.
const USERS_MAX: usize = 20_000;
/// Claims that may wait; beyond it a claim waits for the bearer's next request.
const WAITING_MAX: usize = 10_000;
/// Rows of one batch.
const BATCH_ROWS: usize = 1_000;
/// Time for which claims gather before they are written.
const GATHER: Duration = Duration::from_millis(250);
/// Times that a batch is tried before its claims are left to their bearers' next requests.
const TRIES: u32 = 5;
/// After this time a claim is noted again though it did not change: another gateway may have noted another meanwhile.
const NOTED_FOR: Duration = Duration::from_secs(300);

/// What was noted, and what waits to be written.
pub(crate) struct Claims {
    noted: Cache<UserId, (u64, Instant)>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    claims: HashMap<UserId, Claimed>,
    /// Whether somebody is writing.
    under_way: bool,
}

impl std::fmt::Debug for Claims {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claims").finish_non_exhaustive()
    }
}

impl Claims {
    pub(crate) fn new() -> Self {
        Self { noted: Cache::new(USERS_MAX), waiting: Mutex::default() }
    }

    /// Whether these claims are what was noted last; if not, they are from now on.
    fn is_known(&self, user: &UserId, name: Option<&str>, picture: Option<&str>) -> bool {
        let mut hash = DefaultHasher::new();
        (name, picture).hash(&mut hash);
        let hash = hash.finish();
        if self.noted.get(user).is_some_and(|(known, at)| known == hash && at.elapsed() < NOTED_FOR) {
            return true;
        }
        self.noted.insert(user.clone(), (hash, Instant::now()));
        false
    }

    /// Lets a claim wait; whether the caller has to see to it that it is written.
    fn wait(&self, user: UserId, claimed: Claimed) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.claims.len() >= WAITING_MAX && !waiting.claims.contains_key(&user) {
            self.noted.remove(&user);
            return false;
        }
        waiting.claims.insert(user, claimed);
        !std::mem::replace(&mut waiting.under_way, true)
    }

    /// Takes what was noted for nothing: it was taken out of the archive.
    pub(crate) fn forget(&self, user: &UserId) {
        self.noted.remove(user);
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).claims.remove(user);
    }

    /// The next batch; with none, whoever writes has ended.
    fn take(&self) -> Vec<(UserId, Claimed)> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let users: Vec<UserId> = waiting.claims.keys().take(BATCH_ROWS).cloned().collect();
        waiting.under_way = !users.is_empty();
        users.into_iter().filter_map(|user| waiting.claims.remove_entry(&user)).collect()
    }
}

/// Notes the claims of a token that was just proven.
pub fn note_claims(stores: &Arc<Stores>, user: &UserId, name: Option<&str>, picture: Option<&str>) {
    if name.is_none() && picture.is_none() || stores.claims.is_known(user, name, picture) {
        return;
    }
    let Some(claimed) = Claimed::of(name, picture, stores.clock.now()) else { return };
    if stores.claims.wait(user.clone(), claimed) {
        tokio::spawn(write(Arc::clone(stores)));
    }
}

async fn write(stores: Arc<Stores>) {
    loop {
        tokio::time::sleep(GATHER).await;
        let batch = stores.claims.take();
        if batch.is_empty() {
            return;
        }
        let mut tries = 0;
        while let Err(error) = stores.archive.note_claims(&batch).await {
            tries += 1;
            if tries == TRIES {
                tracing::warn!(%error, claims = batch.len(), "names out of tokens could not be written; they come again with the next requests");
                batch.iter().for_each(|(user, _)| {
                    stores.claims.noted.remove(user);
                });
                break;
            }
            tokio::time::sleep(GATHER * 2_u32.pow(tries)).await;
        }
        batch.iter().for_each(|(user, _)| stores.profiles.forget(user));
    }
}
