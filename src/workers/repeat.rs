//! The loop that all workers share: a round, a pause, another round; errors said once, not once a round.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::WorkError;
use crate::metrics;

/// What a round under way is given to end by itself when the worker is told to stop.
const LAST_ROUND_MAX: Duration = Duration::from_secs(2);

/// When the next round begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// There is more to do.
    AtOnce,
    /// After the worker's pause.
    AfterPause,
}

/// Something that goes on in rounds. A round may be cut off anywhere, and two may run at once in two processes: each worker says why
/// neither does harm.
pub trait Worker: Send {
    /// Its name in logs and metrics.
    const NAME: &'static str;
    /// The pause between two rounds, up to a tenth shorter or longer so that processes do not march in step.
    const PAUSE: Duration;
    /// The longest pause after failed rounds. Short for what all others wait for when a store is back.
    const FAILED_PAUSE_MAX: Duration = Duration::from_secs(5);

    /// One round.
    fn run_once(&mut self) -> impl Future<Output = Result<Next, WorkError>> + Send;

    /// Ends the pause early when there is news; never, unless a worker says otherwise.
    fn news(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// Runs rounds until `stop`, and gives the worker back.
pub async fn repeat<W: Worker>(mut worker: W, stop: CancellationToken) -> W {
    let mut failed = 0_u32;
    while !stop.is_cancelled() {
        let outcome = tokio::select! {
            outcome = worker.run_once() => outcome,
            () = async { stop.cancelled().await; tokio::time::sleep(LAST_ROUND_MAX).await } => break,
        };
        let pause = match outcome {
            Ok(next) => {
                if failed > 0 {
                    tracing::info!(worker = W::NAME, failed_rounds = failed, "worker goes on");
                    failed = 0;
                }
                match next {
                    Next::AtOnce => continue,
                    Next::AfterPause => W::PAUSE,
                }
            }
            Err(error) => {
                metrics::WORKER_ERRORS.add(&[W::NAME], 1);
                if failed == 0 {
                    tracing::warn!(worker = W::NAME, %error, "worker's round failed; it tries again");
                }
                failed = failed.saturating_add(1);
                pause_after::<W>(failed)
            }
        };
        let pause = pause.mul_f64(rand::random_range(0.9..1.1));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = worker.news(), if failed == 0 => {}
            () = stop.cancelled() => {}
        }
    }
    worker
}

/// The pause after so many rounds that failed one after the other: doubled with each, up to the worker's limit.
fn pause_after<W: Worker>(failed: u32) -> Duration {
    W::PAUSE.saturating_mul(1 << failed.min(6)).clamp(Duration::from_millis(50), W::FAILED_PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::super::dispatch_events::DispatchShard;
    use super::super::own_shards::OwnShards;
    use super::super::tend_shards::TendShards;
    use super::*;

    #[test]
    fn what_all_wait_for_is_tried_again_within_a_second() {
        for failed in 1..100 {
            let pauses = [pause_after::<OwnShards>(failed), pause_after::<TendShards>(failed), pause_after::<DispatchShard>(failed)];
            assert!(
                pauses.iter().all(|pause| (Duration::from_millis(50)..=Duration::from_secs(1)).contains(pause)),
                "{failed}: {pauses:?}"
            );
        }
    }
}
