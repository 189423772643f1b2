//! The way to Redis: one server, one behind Sentinels, or a Cluster, behind one set of functions.
//!
//! [`Link`] sends each call to the server that has the key's slot (`routing.rs`), on that server's own connection (`node.rs`). An error
//! never means "not executed", with one exception, [`LinkError::NotSent`]; whoever repeats a write needs a script that knows it again.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;

pub use super::blocking_reader::BlockingReader;
use super::link_url::LinkUrl;
use super::node::{Fault, Way};
use super::replicas;
pub use super::reply::Reply;
use super::routing::{REDIRECTS_MAX, Routing, slot_of};
use super::stored_form::Unreadable;
use crate::metrics;

/// Why a call to Redis failed. Only [`LinkError::NotSent`] promises that nothing was executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The command never left this process.
    #[error("not sent: {0}")]
    NotSent(String),
    /// The connection broke or the answer did not come in time; the command may or may not have been executed.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// The server is out of memory and refused a write (`OOM`).
    #[error("the server is out of memory")]
    OutOfMemory,
    /// The server cannot serve now (`LOADING`, `READONLY`, `CLUSTERDOWN`, `MASTERDOWN`, `NOREPLICAS`, `BUSY`); an earlier execution cannot be excluded.
    #[error("not serving: {0}")]
    NotServing(String),
    /// The server refused the command itself (a bug of ours, or a key of the wrong type).
    #[error("refused: {0}")]
    Refused(String),
}

impl LinkError {
    /// Its kind in one word, as metrics name it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotSent(_) => "not_sent",
            Self::NoAnswer(_) => "no_answer",
            Self::OutOfMemory => "out_of_memory",
            Self::NotServing(_) => "not_serving",
            Self::Refused(_) => "refused",
        }
    }
}

/// Counts a failed call.
pub(super) fn counted<T>(outcome: Result<T, LinkError>) -> Result<T, LinkError> {
    if let Err(error) = &outcome {
        metrics::REDIS_ERRORS.add(&[error.kind()], 1);
    }
    outcome
}

/// A Lua script: its name and its text.
#[derive(Debug)]
pub struct Script {
    /// File name without `.lua`.
    pub name: &'static str,
    /// The whole text.
    pub source: &'static str,
}

/// A stream entry: id as written, and its fields in order.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamEntry {
    /// `ms-n`.
    pub id: String,
    /// Field and value pairs.
    pub fields: Vec<(String, Bytes)>,
}

impl StreamEntry {
    /// Reads a list of entries, as `XRANGE` answers it.
    ///
    /// # Errors
    /// When it is no such list.
    pub fn read_all(reply: &Reply) -> Result<Vec<Self>, Unreadable> {
        let mut entries = Vec::new();
        for entry in reply.as_list()? {
            let mut items = entry.items()?;
            let id = items.str()?.to_owned();
            let mut fields = Vec::new();
            for (name, value) in items.item()?.as_pairs()? {
                fields.push((name.as_str()?.to_owned(), value.as_bytes()?.clone()));
            }
            entries.push(Self { id, fields });
        }
        Ok(entries)
    }
}

/// Connections to all nodes, cheap to clone.
#[derive(Clone, Debug)]
pub struct Link {
    routing: Arc<Routing>,
    /// SHA-1 of each script's text in hex, by the script's place in memory (scripts are statics).
    digests: Arc<RwLock<HashMap<usize, Bytes>>>,
}

/// How far a write got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicated {
    /// Replicas that have confirmed.
    pub confirmed: u64,
    /// Replicas that are connected.
    pub connected: u64,
    /// The server's `master_replid` at that moment.
    pub replid: String,
}

/// How long a question to every node waits for its connection.
const EACH_CONNECT_WAIT: Duration = Duration::from_millis(100);

impl Link {
    /// Connects by URL: `redis://`, `rediss://`, `redis-sentinel://`, `rediss-sentinel://`, `redis-cluster://`, `rediss-cluster://`.
    ///
    /// # Errors
    /// When the URL cannot be read or no node answers within `timeout_ms`; always [`LinkError::NotSent`], with a text that never shows
    /// a password.
    pub async fn connect(url: &str, timeout_ms: u64) -> Result<Self, LinkError> {
        let url = LinkUrl::parse(url).map_err(|fault| LinkError::NotSent(fault.to_string()))?;
        let routing = Routing::connect(Way::new(url)?, Duration::from_millis(timeout_ms)).await?;
        Ok(Self { routing, digests: Arc::default() })
    }

    /// Whether keys of different tags may not stand in one call.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        self.routing.is_cluster()
    }

    /// Runs a script. All keys have the slot of `keys[0]` (on a single server: any).
    ///
    /// # Errors
    /// See [`LinkError`].
    pub async fn eval(&self, script: &'static Script, keys: Vec<String>, args: Vec<Bytes>) -> Result<Reply, LinkError> {
        let slot = keys.first().map_or(0, |key| slot_of(key));
        let mut line = Vec::with_capacity(2 + keys.len() + args.len());
        line.push(self.digest(script));
        line.push(Bytes::from(keys.len().to_string()));
        line.extend(keys.into_iter().map(Bytes::from));
        line.extend(args);
        let begun = Instant::now();
        let outcome = match self.routing.call(slot, "EVALSHA", &line).await {
            Err(LinkError::Refused(text)) if text.starts_with("NOSCRIPT") => {
                // Nothing was executed. The whole text is sent once, and the server keeps it.
                if let Some(first) = line.first_mut() {
                    *first = Bytes::from_static(script.source.as_bytes());
                }
                self.routing.call(slot, "EVAL", &line).await
            }
            outcome => outcome,
        };
        metrics::SCRIPT_SECONDS.record(&[script.name], begun.elapsed().as_secs_f64());
        counted(outcome)
    }

    /// Runs one plain command on the node that holds `key`; `args` are all its arguments, the key included. The server answers in
    /// RESP3: maps (`HGETALL`) come flat and in no order, and scores (`WITHSCORES`) come in a list of their own with each member.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub async fn command(&self, name: &'static str, key: &str, args: Vec<Bytes>) -> Result<Reply, LinkError> {
        counted(self.routing.call(slot_of(key), name, &args).await)
    }

    /// A reader with a connection of its own for blocking reads of streams; it connects at its first read.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub async fn blocking_reader(&self) -> Result<BlockingReader, LinkError> {
        Ok(BlockingReader::new(self.routing.clone()))
    }

    /// Waits up to `timeout_ms` until every connected replica of the node that holds `key` has confirmed what was written before this
    /// call. Callers share rounds; a round that others began may end a little before or after `timeout_ms`.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub async fn wait_replicas(&self, key: &str, timeout_ms: u64) -> Result<Replicated, LinkError> {
        let mut last = LinkError::NotSent("no node has the slot".to_owned());
        for _ in 0..REDIRECTS_MAX {
            let Some(node) = self.routing.owner(slot_of(key)) else {
                self.routing.refresh_soon("");
                break;
            };
            match replicas::wait(&node, key, timeout_ms).await {
                Ok(replicated) => return Ok(replicated),
                Err(Fault::Moved { slot, address }) if self.is_cluster() => {
                    self.routing.moved(slot, &address, &node.address)?;
                    last = LinkError::NotSent(format!("slot {slot} was redirected too often"));
                }
                Err(fault) => {
                    let error = LinkError::from(fault);
                    self.routing.failed(&node, &error);
                    return counted(Err(error));
                }
            }
        }
        counted(Err(last))
    }

    /// `INFO <section>` of every node (masters): (node address, text).
    ///
    /// # Errors
    /// The first node that does not answer, see [`LinkError`].
    pub async fn info(&self, section: &'static str) -> Result<Vec<(String, String)>, LinkError> {
        let mut texts = Vec::new();
        for (address, _, reply) in self.ask_all("INFO", &[Bytes::from_static(section.as_bytes())]).await {
            let text = reply?.as_str().map_err(|e| LinkError::Refused(e.to_string()))?.to_owned();
            texts.push((address, text));
        }
        Ok(texts)
    }

    /// `CONFIG GET <name>` of every node (masters): (node address, value), no value when the server does not know the name.
    ///
    /// # Errors
    /// The first node that does not answer, see [`LinkError`].
    pub async fn config_get(&self, name: &'static str) -> Result<Vec<(String, Option<String>)>, LinkError> {
        let args = [Bytes::from_static(b"GET"), Bytes::from_static(name.as_bytes())];
        let mut values = Vec::new();
        for (address, _, reply) in self.ask_all("CONFIG", &args).await {
            let reply = reply?;
            let value = match reply.as_list().map_err(|e| LinkError::Refused(e.to_string()))? {
                [_, value, ..] => Some(value.as_str().map_err(|e| LinkError::Refused(e.to_string()))?.to_owned()),
                _ => None,
            };
            values.push((address, value));
        }
        Ok(values)
    }

    /// Asks every node (masters) for a sign of life: node address and how long the answer took in ms, or why there was none. Empty when
    /// no node is known.
    pub async fn ping_all(&self) -> Vec<(String, Result<u64, LinkError>)> {
        let replies = self.ask_all("PING", &[]).await;
        replies.into_iter().map(|(address, wait_ms, reply)| (address, reply.map(|_| wait_ms))).collect()
    }

    async fn ask_all(&self, name: &'static str, args: &[Bytes]) -> Vec<(String, u64, Result<Reply, LinkError>)> {
        let nodes = self.routing.nodes();
        let replies = join_all(nodes.iter().map(|node| async {
            let begun = Instant::now();
            let outcome = node.send(name, args, EACH_CONNECT_WAIT).await;
            let outcome = outcome.map_err(LinkError::from);
            if let Err(error @ (LinkError::NotSent(_) | LinkError::NoAnswer(_))) = &outcome {
                self.routing.failed(node, error);
            }
            let wait_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            (node.address.clone(), wait_ms, outcome)
        }));
        replies.await
    }

    fn digest(&self, script: &'static Script) -> Bytes {
        let place = std::ptr::from_ref(script) as usize;
        if let Some(digest) = self.digests.read().unwrap_or_else(PoisonError::into_inner).get(&place) {
            return digest.clone();
        }
        let digest = Bytes::from(fred::util::sha1_hash(script.source));
        self.digests.write().unwrap_or_else(PoisonError::into_inner).insert(place, digest.clone());
        digest
    }
}
