//! What was read from Postgres a moment ago: bounded, short-lived, and never a reason to fail. It stands before things that may be a few
//! seconds old when they are shown (profiles, what messages share), so that neither a busy list nor an outage of Postgres is felt.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use quick_cache::sync::Cache;

use crate::postgres::ArchiveError;

/// Longest wait for Postgres: what is asked for here is decoration, and nobody waits long for that.
const ASK_WITHIN: Duration = Duration::from_millis(750);
/// Time for which Postgres is not asked again after it did not answer.
const LEFT_ALONE: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
struct Held<V> {
    asked_at: Instant,
    value: Option<V>,
}

/// Values by key, `None` for what is known not to be there.
pub(crate) struct ShortMemory<K, V> {
    held: Cache<K, Held<V>>,
    life: Duration,
    left_alone_until: Mutex<Option<Instant>>,
}

impl<K, V> std::fmt::Debug for ShortMemory<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShortMemory").field("life", &self.life).finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash, V: Clone> ShortMemory<K, V> {
    /// Keeps about `items_max` values, each for `life`; a value is kept longer only to be shown while Postgres is away.
    pub(crate) fn new(items_max: usize, life: Duration) -> Self {
        Self { held: Cache::new(items_max), life, left_alone_until: Mutex::default() }
    }

    /// The values of these keys; `ask` is given those that are not known or no longer young. What cannot be asked for in time is shown
    /// as it last was, or left out.
    pub(crate) async fn recall<F, R>(&self, keys: Vec<K>, ask: F) -> HashMap<K, V>
    where
        F: FnOnce(Vec<K>) -> R,
        R: Future<Output = Result<Vec<(K, V)>, ArchiveError>>,
    {
        let now = Instant::now();
        let mut found = HashMap::new();
        let mut wanted: HashMap<K, Option<V>> = HashMap::new();
        for key in keys {
            match self.held.get(&key) {
                Some(held) if now.duration_since(held.asked_at) < self.life => {
                    found.extend(held.value.map(|value| (key, value)));
                }
                held => {
                    wanted.insert(key, held.and_then(|held| held.value));
                }
            }
        }
        if wanted.is_empty() {
            return found;
        }
        let answered = self.ask(ask(wanted.keys().cloned().collect())).await;
        match answered {
            Some(values) => {
                let mut values: HashMap<K, V> = values.into_iter().collect();
                for key in wanted.into_keys() {
                    let value = values.remove(&key);
                    self.keep(&key, now, value.clone());
                    found.extend(value.map(|value| (key, value)));
                }
            }
            None => found.extend(wanted.into_iter().filter_map(|(key, stale)| stale.map(|value| (key, value)))),
        }
        found
    }

    /// A value that is still young, without asking.
    pub(crate) fn remembered(&self, key: &K) -> Option<Option<V>> {
        self.held.get(key).filter(|held| held.asked_at.elapsed() < self.life).map(|held| held.value)
    }

    /// Puts in what was just written.
    pub(crate) fn put(&self, key: K, value: Option<V>) {
        self.held.insert(key, Held { asked_at: Instant::now(), value });
    }

    /// Makes sure that a value is asked for when it is next needed.
    pub(crate) fn forget(&self, key: &K) {
        self.held.remove(key);
    }

    /// What was asked for before a newer value was put in must not stand above it.
    fn keep(&self, key: &K, asked_at: Instant, value: Option<V>) {
        if self.held.peek(key).is_none_or(|held| held.asked_at <= asked_at) {
            self.held.insert(key.clone(), Held { asked_at, value });
        }
    }

    /// The answer to a question of the same kind; `None` when Postgres does not give it in time, or did not a moment ago.
    pub(crate) async fn ask<T>(&self, asking: impl Future<Output = Result<T, ArchiveError>>) -> Option<T> {
        if self.is_left_alone(Instant::now()) {
            return None;
        }
        match tokio::time::timeout(ASK_WITHIN, asking).await {
            Ok(Ok(values)) => return Some(values),
            Ok(Err(error)) => tracing::debug!(%error, "shown without what Postgres knows"),
            Err(_) => tracing::debug!("shown without what Postgres knows; it did not answer in time"),
        }
        *self.left_alone_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + LEFT_ALONE);
        None
    }

    fn is_left_alone(&self, now: Instant) -> bool {
        self.left_alone_until.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn recall(
        memory: &ShortMemory<u32, u32>,
        keys: &[u32],
        answer: Result<Vec<(u32, u32)>, ArchiveError>,
    ) -> (Vec<u32>, Option<Vec<u32>>) {
        let mut asked = None;
        let found = memory
            .recall(keys.to_vec(), |mut keys| {
                keys.sort_unstable();
                asked = Some(keys);
                std::future::ready(answer)
            })
            .await;
        let mut found: Vec<u32> = found.into_values().collect();
        found.sort_unstable();
        (found, asked)
    }

    #[tokio::test]
    async fn asks_once_and_shows_what_it_has_while_nobody_answers() {
        let memory = ShortMemory::new(100, Duration::from_secs(60));
        assert_eq!(recall(&memory, &[1, 2], Ok(vec![(1, 10)])).await, (vec![10], Some(vec![1, 2])));
        assert_eq!(recall(&memory, &[1, 2], Ok(vec![])).await, (vec![10], None));
        memory.put(2, Some(20));
        assert_eq!(recall(&memory, &[1, 2], Ok(vec![])).await, (vec![10, 20], None));
        memory.forget(&1);
        assert_eq!(recall(&memory, &[1, 2], Ok(vec![(1, 11)])).await, (vec![11, 20], Some(vec![1])));

        let memory = ShortMemory::new(100, Duration::ZERO);
        memory.put(1, Some(10));
        let away = || Err(ArchiveError::Unavailable("away".into()));
        assert_eq!(recall(&memory, &[1, 2], away()).await, (vec![10], Some(vec![1, 2])));
        assert_eq!(recall(&memory, &[1, 2], Ok(vec![(1, 11)])).await.0, [10], "left alone for a while");
    }
}
