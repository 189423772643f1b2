//! How a process is told to stop, softly first and hard after a set time. The token is handed down, never kept in a static.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Cancels `stop` at the first SIGTERM or SIGINT; a second one ends the process at once.
///
/// # Errors
/// When the system will not let us listen for signals.
pub fn stop_on_signals(stop: CancellationToken) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        for first in [true, false] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if first {
                tracing::info!("stopping: no new connections, streams say goodbye, requests end");
                stop.cancel();
            } else {
                tracing::warn!("stopping at once");
                std::process::exit(130);
            }
        }
    });
    Ok(())
}

/// Waits until all tasks have ended, at most so long; what is left then is cut off. Says how many had to be.
pub async fn join_within(tasks: &mut JoinSet<()>, limit: Duration) -> usize {
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(limit, all).await.is_ok() {
        return 0;
    }
    let left = tasks.len();
    tasks.shutdown().await;
    left
}
