//! The way to Redis.

use bytes::Bytes;

pub use super::reply::Reply;

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

/// A Lua script: its name, its text, and the SHA-1 of the text in hex.
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

/// Connections to all nodes, cheap to clone.
#[derive(Clone, Debug)]
pub struct Link {}

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

impl Link {
    /// Connects by URL: `redis://`, `rediss://`, `redis-sentinel://`, `rediss-sentinel://`, `redis-cluster://`, `rediss-cluster://`.
    ///
    /// # Errors
    /// When the URL cannot be read or no node answers within `timeout_ms`.
    pub async fn connect(_url: &str, _timeout_ms: u64) -> Result<Self, LinkError> {
        Err(LinkError::NotSent("not built".into()))
    }

    /// Whether keys of different tags may stand in one call.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        false
    }

    /// Runs a script. All keys have the slot of `keys[0]` (on a single server: any).
    ///
    /// # Errors
    /// See [`LinkError`].
    pub async fn eval(&self, _script: &'static Script, _keys: Vec<String>, _args: Vec<Bytes>) -> Result<Reply, LinkError> {
        Err(LinkError::NotSent("not built".into()))
    }

    /// Runs one plain command on the node that holds `key`; `args` are all its arguments, the key included.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub async fn command(&self, _name: &'static str, _key: &str, _args: Vec<Bytes>) -> Result<Reply, LinkError> {
        Err(LinkError::NotSent("not built".into()))
    }

    /// Opens a connection of its own for blocking reads of streams.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub async fn blocking_reader(&self) -> Result<BlockingReader, LinkError> {
        Err(LinkError::NotSent("not built".into()))
    }

    /// Waits until every connected replica of the node that holds `key` has confirmed what was written before this call.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub async fn wait_replicas(&self, _key: &str, _timeout_ms: u64) -> Result<Replicated, LinkError> {
        Err(LinkError::NotSent("not built".into()))
    }

    /// `INFO <section>` of every node (masters): (node address, text).
    ///
    /// # Errors
    /// See [`LinkError`].
    pub async fn info(&self, _section: &'static str) -> Result<Vec<(String, String)>, LinkError> {
        Err(LinkError::NotSent("not built".into()))
    }
}

/// A connection for blocking reads; a blocking read must never share a connection with other commands.
#[derive(Debug)]
pub struct BlockingReader {}

impl BlockingReader {
    /// Entries after `after` (exclusive) of one stream, waiting up to `block_ms` for the first; empty when none came.
    /// Follows the key when its slot moves and reconnects by itself.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub async fn read(&mut self, _key: &str, _after: &str, _count: u64, _block_ms: u64) -> Result<Vec<StreamEntry>, LinkError> {
        Err(LinkError::NotSent("not built".into()))
    }
}
