//! Waiting until the replicas have what was written.
//!
//! `WAIT` blocks its connection and counts only that connection's writes. So each node has one more connection, on which rounds go one
//! after another: a small write, then `WAIT` for every replica that is online. Callers that come while a round is under way share the
//! next one: their writes were made before it begins, so its mark stands behind them in the replication stream.
//!
//! A round proves nothing about writes made on another history. Were the server replaced between a caller's write and the mark, the
//! mark would be confirmed by the new server's replicas and the write be gone. Therefore the round names the `master_replid`, the same
//! before and after, and the caller compares it with the one its write saw.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::Shared;

use super::keys;
use super::link::{LinkError, Replicated};
use super::mark_offset::mark_offset;
use super::node::{Connection, Fault, Node, Purpose, Way};

/// How long a round waits for its connection.
const CONNECT_WAIT: Duration = Duration::from_millis(500);
/// How much later than `WAIT` itself a round gives up: a server that does not answer is not waited for longer.
const ANSWER_MARGIN: Duration = Duration::from_millis(1_000);

type Round = Shared<Pin<Box<dyn Future<Output = Result<Replicated, Fault>> + Send>>>;

/// How a server stands among its replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// Whether it takes writes.
    pub(super) master: bool,
    /// Its history's name.
    pub(super) replid: String,
    /// Replicas that follow it; those still loading a copy cannot confirm and do not count.
    pub(super) online: u64,
}

impl Standing {
    /// Reads `INFO replication`.
    pub(super) fn read(info: &str) -> Option<Self> {
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let is_online = |line: &&str| line.starts_with("slave") && line.contains(",state=online,");
        Some(Self {
            master: field("role")?.trim() == "master",
            replid: field("master_replid")?.trim().to_owned(),
            online: u64::try_from(info.lines().filter(is_online).count()).ok()?,
        })
    }
}

/// The rounds of one node.
#[derive(Clone, Default)]
pub(super) struct WaitQueue {
    /// The connection; who holds the lock has the round that is under way.
    seat: Arc<tokio::sync::Mutex<Option<Connection>>>,
    /// The round that has not begun yet.
    next: Arc<Mutex<Option<Round>>>,
}

impl std::fmt::Debug for WaitQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WaitQueue")
    }
}

/// Waits for the replicas of a node; `key` names the slot in which the mark is written. The first caller of a round sets its time.
pub(super) async fn wait(node: &Node, key: &str, wait_ms: u64) -> Result<Replicated, Fault> {
    let queue = &node.waits;
    let round = {
        let mut next = queue.next.lock().unwrap_or_else(PoisonError::into_inner);
        match &*next {
            Some(round) => round.clone(),
            None => {
                let work = run(queue, node.way().clone(), node.address.clone(), keys::wait_mark(key), wait_ms);
                let boxed: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(work);
                next.insert(boxed.shared()).clone()
            }
        }
    };
    round.await
}

/// A round from its place in the queue to its end. It is moved on by those who wait for it; when all of them have left, it and its
/// connection go with them, unless somebody new takes the place up.
fn run(
    queue: &WaitQueue,
    way: Arc<Way>,
    address: String,
    mark: String,
    wait_ms: u64,
) -> impl Future<Output = Result<Replicated, Fault>> + Send + use<> {
    let seat = queue.seat.clone();
    // Weak, because the round stands in `next` itself.
    let next = Arc::downgrade(&queue.next);
    async move {
        let mut seat = seat.lock_owned().await;
        if let Some(next) = next.upgrade() {
            // Whoever comes from now on may have written after this round's mark.
            next.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        let connection = match seat.take() {
            Some(connection) if !connection.dead() => connection,
            _ => Connection::open(&way, &address, Purpose::Waiting).map_err(Fault::Link)?,
        };
        if !connection.ready(CONNECT_WAIT).await {
            return Err(Fault::Unsent(format!("no connection to {address}")));
        }
        let bound = Duration::from_millis(wait_ms) + ANSWER_MARGIN;
        let outcome = match tokio::time::timeout(bound, round(&connection, &mark, wait_ms)).await {
            Ok(outcome) => outcome?,
            Err(_) => return Err(Fault::Link(LinkError::NoAnswer(format!("no answer from {address} while waiting for replicas")))),
        };
        // Only a connection on which everything was answered is used again.
        *seat = Some(connection);
        Ok(outcome)
    }
}

async fn round(connection: &Connection, mark: &str, wait_ms: u64) -> Result<Replicated, Fault> {
    let unreadable = || Fault::Link(LinkError::Refused("unreadable INFO replication".to_owned()));
    let connection_id = connection.send("CLIENT", &[Bytes::from_static(b"ID")]).await?.as_i64().map_err(|_| unreadable())?;
    let info = connection.send("INFO", &[Bytes::from_static(b"replication")]).await?;
    let before = info.as_str().ok().and_then(Standing::read).ok_or_else(unreadable)?;
    if !before.master {
        return Err(Fault::Link(LinkError::NotServing("READONLY the server has become a replica".to_owned())));
    }
    if before.online == 0 {
        return Ok(Replicated { confirmed: 0, connected: 0, replid: before.replid });
    }
    // `WAIT 0 0` would wait for ever.
    let waited = mark_offset(connection, mark, before.online, wait_ms.max(1)).await?;
    // A connection that broke between the mark and the wait is made anew by the client, and a wait on it confirms everything at once.
    let same = waited.connection_id == connection_id && waited.standing.replid == before.replid && waited.standing.master;
    let confirmed = if same { waited.confirmed } else { 0 };
    Ok(Replicated { confirmed, connected: before.online, replid: waited.standing.replid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standing_counts_replicas_that_are_online() {
        let info = "# Replication\r\nrole:master\r\nconnected_slaves:2\r\n\
                    slave0:ip=127.0.0.1,port=7001,state=online,offset=14,lag=1\r\n\
                    slave1:ip=127.0.0.1,port=7002,state=wait_bgsave,offset=0,lag=0\r\n\
                    master_failover_state:no-failover\r\nmaster_replid:abc\r\nmaster_replid2:000\r\n";
        assert_eq!(Standing::read(info), Some(Standing { master: true, replid: "abc".into(), online: 1 }));
        assert_eq!(Standing::read("role:slave\r\nmaster_replid:x\r\n").map(|s| s.master), Some(false));
        assert_eq!(Standing::read("nothing"), None);
    }
}
