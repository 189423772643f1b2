//! Reading a stream while waiting for more.
//!
//! A blocking read holds up every command behind it on its connection, so each reader has one of its own. It is kept only while its
//! reads are answered: after a fault, or when a read was given up half-way, the next read opens a new one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::link::{LinkError, StreamEntry, counted};
use super::node::{Connection, Fault, Purpose};
use super::reply::Reply;
use super::routing::{REDIRECTS_MAX, Routing, slot_of};
use super::stored_form::Unreadable;

/// How long a read waits for its connection.
const CONNECT_WAIT: Duration = Duration::from_millis(500);
/// How much later than the server itself a read gives up.
const ANSWER_MARGIN: Duration = Duration::from_millis(2_000);
/// Pause between reads while a stream is being moved to another node, in ms.
const MOVING_PAUSE_MS: u64 = 50;

/// A connection for blocking reads; a blocking read must never share a connection with other commands.
#[derive(Debug)]
pub struct BlockingReader {
    routing: Arc<Routing>,
    connection: Option<(String, Connection)>,
}

impl BlockingReader {
    pub(super) fn new(routing: Arc<Routing>) -> Self {
        Self { routing, connection: None }
    }

    /// Entries after `after` (exclusive) of one stream, waiting up to `block_ms` for the first (0: not at all); empty when none came.
    /// Follows the key when its slot moves and reconnects by itself. May be dropped half-way: nothing is lost but the time.
    ///
    /// # Errors
    /// See [`LinkError`]; the next read starts afresh.
    pub async fn read(&mut self, key: &str, after: &str, count: u64, block_ms: u64) -> Result<Vec<StreamEntry>, LinkError> {
        counted(self.read_once(key, after, count, block_ms).await)
    }

    async fn read_once(&mut self, key: &str, after: &str, count: u64, block_ms: u64) -> Result<Vec<StreamEntry>, LinkError> {
        let slot = slot_of(key);
        let mut last = Fault::Unsent("no node has the slot".to_owned());
        for _ in 0..REDIRECTS_MAX {
            let Some(node) = self.routing.owner(slot) else {
                self.routing.refresh_soon("");
                break;
            };
            // Taken out, so that a read that is dropped half-way leaves no connection with a read still waiting on it.
            let connection = match self.connection.take() {
                Some((address, connection)) if address == node.address && !connection.dead() => connection,
                _ => Connection::open(self.routing.way(), &node.address, Purpose::Waiting)?,
            };
            if !connection.ready(CONNECT_WAIT).await {
                self.routing.refresh_soon(&node.address);
                return Err(LinkError::NotSent(format!("no connection to {}", node.address)));
            }
            let bound = Duration::from_millis(block_ms) + ANSWER_MARGIN;
            let args = arguments(key, after, count, block_ms);
            let outcome = match tokio::time::timeout(bound, connection.send("XREAD", &args)).await {
                Ok(outcome) => outcome,
                Err(_) => Err(Fault::Link(LinkError::NoAnswer(format!("no answer from {}", node.address)))),
            };
            match outcome {
                Ok(reply) => {
                    self.connection = Some((node.address.clone(), connection));
                    return entries_of(&reply);
                }
                Err(Fault::Ask { address }) => {
                    // The stream is there already, the slot not yet: look there without waiting.
                    let target = self.routing.node_at(&address, &node.address)?;
                    let reply = target.send_asking("XREAD", &arguments(key, after, count, 0)).await?;
                    let entries = entries_of(&reply)?;
                    if entries.is_empty() {
                        tokio::time::sleep(Duration::from_millis(block_ms.min(MOVING_PAUSE_MS))).await;
                    }
                    return Ok(entries);
                }
                Err(Fault::Moved { slot, address }) if self.routing.is_cluster() => {
                    self.routing.moved(slot, &address, &node.address)?;
                    last = Fault::Unsent(format!("slot {slot} was not found"));
                }
                Err(fault) => {
                    self.routing.refresh_soon(&node.address);
                    return Err(fault.into());
                }
            }
        }
        Err(last.into())
    }
}

fn arguments(key: &str, after: &str, count: u64, block_ms: u64) -> Vec<Bytes> {
    let mut args = vec![Bytes::from_static(b"COUNT"), Bytes::from(count.to_string())];
    // BLOCK 0 would wait for ever.
    if block_ms > 0 {
        args.extend([Bytes::from_static(b"BLOCK"), Bytes::from(block_ms.to_string())]);
    }
    args.extend([Bytes::from_static(b"STREAMS"), Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(after.as_bytes())]);
    args
}

/// The answer is a map from key to entries; there is one key.
fn entries_of(reply: &Reply) -> Result<Vec<StreamEntry>, LinkError> {
    let read = || match reply.as_list()? {
        [] => Ok(Vec::new()),
        [_key, entries] => StreamEntry::read_all(entries),
        _ => Err(Unreadable("a stream reply")),
    };
    read().map_err(|e| LinkError::Refused(e.to_string()))
}
