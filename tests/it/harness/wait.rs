//! Waiting for a condition. A deadline is generous, because it is only reached when the test fails: a loaded machine must not fail it.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Waits until `condition` holds; panics with `what` after `within`.
pub async fn eventually(what: &str, within: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < within, "not within {within:?}: {what}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until `look` finds something and gives it; panics with `what` and what was seen last after `within`.
pub async fn eventually_some<T, E: Debug>(what: &str, within: Duration, mut look: impl AsyncFnMut() -> Result<T, E>) -> T {
    let begun = Instant::now();
    loop {
        match look().await {
            Ok(found) => return found,
            Err(seen) => assert!(begun.elapsed() < within, "not within {within:?}: {what}; last seen: {seen:?}"),
        }
        tokio::time::sleep(LOOK).await;
    }
}
