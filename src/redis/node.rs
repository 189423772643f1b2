//! One server and the connections to it.
//!
//! Each server has a client of its own that knows nothing of the others, so that one that is dead or hung holds up nobody else. What the
//! client does by itself is little, and deliberately so:
//!
//! - it never sends a command twice (`max_command_attempts` 1): a command in flight when the connection breaks fails, and the caller
//!   alone knows whether to repeat it;
//! - it reconnects for ever, every 100 to 200 ms;
//! - it bounds how long a call takes and how many are in flight; the client's own queue is bounded only up to its task, not behind it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fred::bytes_utils::Str;
use fred::clients::Client;
use fred::error::{Error, ErrorKind};
use fred::interfaces::{ClientLike, EventInterface};
use fred::types::config::{
    Config, ConnectionConfig, PerformanceConfig, ReconnectPolicy, Server, ServerConfig, TcpConfig, TlsConfig, TlsConnector,
};
use fred::types::{ClusterHash, ConnectHandle, CustomCommand, Resp3Frame, RespVersion, Value};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::sync::{Mutex, Semaphore};

use super::link::LinkError;
use super::link_url::{Kind, LinkUrl, host_and_port};
use super::replicas::WaitQueue;
use super::reply::Reply;
use crate::metrics;

/// Milliseconds between attempts to connect (a jitter of up to as much is added).
const RECONNECT_MS: u32 = 100;
/// How long one attempt to connect, or one command of the handshake, may take.
const CONNECT_MS_MAX: u64 = 500;
/// How long an ordinary call may take.
const CALL_MS_MAX: u64 = 1_000;
/// Calls that the client's channel holds.
const CHANNEL_MAX: usize = 10_000;
/// Calls in flight to one server.
const IN_FLIGHT_MAX: usize = 4_096;
/// How long a call waits for its turn when as many are in flight.
const TURN_MS_MAX: u64 = 100;
/// How long the client's word about a connection is waited for before it is looked for.
const SECOND_LOOK: Duration = Duration::from_millis(50);
/// How long calls may go unanswered, one after another, before the connection is given up.
const SILENT_MS_MAX: u64 = 2_000;

/// What came of sending a command once.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fault {
    /// Another server has the slot; nothing was executed.
    Moved { slot: u16, address: String },
    /// The slot is on its way to another server and the key is there already; nothing was executed.
    Ask { address: String },
    /// The slot is on its way and the keys are on both sides; nothing was executed.
    TryAgain(String),
    /// There was no connection; nothing was executed.
    Unsent(String),
    /// All else.
    Link(LinkError),
}

impl From<Fault> for LinkError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Moved { .. } | Fault::Ask { .. } => {
                Self::Refused("the server belongs to a Redis Cluster; SEQLINE_REDIS_URL must begin with redis-cluster://".to_owned())
            }
            Fault::TryAgain(text) => Self::NotServing(text),
            Fault::Unsent(text) => Self::NotSent(text),
            Fault::Link(error) => error,
        }
    }
}

/// How to reach servers of this installation: everything of the URL but which of them.
#[derive(Clone, Debug)]
pub(super) struct Way {
    base: Config,
    url: LinkUrl,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Calls that are answered at once.
    Calls,
    /// Calls that wait inside the server; the caller bounds them.
    Waiting,
}

impl Way {
    pub(super) fn new(url: LinkUrl) -> Result<Self, LinkError> {
        let tls = if url.tls {
            let connector = TlsConnector::default_rustls().map_err(|e| LinkError::NotSent(format!("TLS roots: {}", e.details())))?;
            Some(TlsConfig::from(connector))
        } else {
            None
        };
        let base = Config {
            fail_fast: false,
            version: RespVersion::RESP3,
            username: url.username.clone(),
            password: url.password.clone(),
            database: url.database,
            tls,
            ..Config::default()
        };
        Ok(Self { base, url })
    }

    pub(super) fn url(&self) -> &LinkUrl {
        &self.url
    }

    /// The address under which the only node of a single server or a Sentinel group is known.
    pub(super) fn only_address(&self) -> String {
        match &self.url.kind {
            Kind::Sentinel { service, .. } => service.clone(),
            _ => self.url.hosts.first().map(|(host, port)| format!("{host}:{port}")).unwrap_or_default(),
        }
    }

    fn server(&self, address: &str) -> Result<ServerConfig, LinkError> {
        if let Kind::Sentinel { service, username, password } = &self.url.kind {
            return Ok(ServerConfig::Sentinel {
                hosts: self.url.hosts.iter().map(|(host, port)| Server::new(host.clone(), *port)).collect(),
                service_name: service.clone(),
                username: username.clone(),
                password: password.clone(),
            });
        }
        let (host, port) = host_and_port(address, 6379).map_err(|_| LinkError::NotSent(format!("unreadable node address {address}")))?;
        Ok(ServerConfig::new_centralized(host, port))
    }
}

/// One client with one socket. Its task ends with it.
#[derive(Debug)]
pub(super) struct Connection {
    client: Client,
    task: ConnectHandle,
    /// Faults of connecting since it was last asked why; the channel drops the oldest by itself.
    errors: std::sync::Mutex<Receiver<(Error, Option<Server>)>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Commands that nobody waits for any more go with the task; `quit` would wait for them first.
        self.task.abort();
    }
}

impl Connection {
    /// Begins to connect; it goes on by itself until this value is dropped.
    pub(super) fn open(way: &Way, address: &str, purpose: Purpose) -> Result<Self, LinkError> {
        let config = Config { server: way.server(address)?, ..way.base.clone() };
        let performance = PerformanceConfig {
            default_command_timeout: match purpose {
                Purpose::Calls => Duration::from_millis(CALL_MS_MAX),
                Purpose::Waiting => Duration::ZERO,
            },
            ..PerformanceConfig::default()
        };
        let connection = ConnectionConfig {
            connection_timeout: Duration::from_millis(CONNECT_MS_MAX),
            internal_command_timeout: Duration::from_millis(CONNECT_MS_MAX),
            max_command_attempts: 1,
            max_command_buffer_len: CHANNEL_MAX,
            tcp: TcpConfig { nodelay: Some(true), ..TcpConfig::default() },
            ..ConnectionConfig::default()
        };
        let client = Client::new(config, Some(performance), Some(connection), Some(ReconnectPolicy::new_constant(0, RECONNECT_MS)));
        let errors = std::sync::Mutex::new(client.error_rx());
        let task = client.connect();
        Ok(Self { client, task, errors })
    }

    /// Whether a connection stands, waiting for one up to `wait`.
    pub(super) async fn ready(&self, wait: Duration) -> bool {
        let deadline = Instant::now() + wait;
        while !self.client.is_connected() {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.dead() || left.is_zero() {
                return false;
            }
            // The client tells of it, unless it connected between the look and the question: hence the second look.
            let _ = tokio::time::timeout(left.min(SECOND_LOOK), self.client.wait_for_connect()).await;
            tokio::task::yield_now().await;
        }
        true
    }

    /// Whether the client has given up for good, as it does when the server refuses the password.
    pub(super) fn dead(&self) -> bool {
        self.task.is_finished()
    }

    /// Why it last failed to connect, if it did.
    pub(super) fn why(&self) -> Option<String> {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let mut last = None;
        loop {
            match errors.try_recv() {
                Ok((error, _)) => last = Some(error.details().to_owned()),
                Err(TryRecvError::Lagged(_)) => {}
                Err(_) => return last,
            }
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a command once.
    pub(super) async fn send(&self, name: &'static str, args: &[Bytes]) -> Result<Reply, Fault> {
        let args: Vec<Value> = args.iter().map(|arg| Value::Bytes(arg.clone())).collect();
        match self.client.custom_raw(custom(name), args).await {
            Ok(frame) => match reply_of(frame) {
                Reply::Error(text) => Err(fault_of_text(&text)),
                reply => Ok(reply),
            },
            Err(error) => Err(fault_of_error(&error)),
        }
    }
}

/// The client sends to its only server, whatever slot is named.
pub(super) fn custom(name: &'static str) -> CustomCommand {
    CustomCommand::new(Str::from_static(name), ClusterHash::Random, false)
}

/// One server (behind Sentinels: whichever they name).
#[derive(Debug)]
pub(super) struct Node {
    pub(super) address: String,
    calls: Connection,
    way: Arc<Way>,
    room: Semaphore,
    /// `ASKING` holds for the next command of its connection, so that nothing may come between the two.
    asking: Mutex<Option<Connection>>,
    /// Milliseconds since `born` of the first of the unanswered calls since the last answer, plus 1; 0 for none.
    silent_since: AtomicU64,
    born: Instant,
    pub(super) waits: WaitQueue,
}

impl Node {
    pub(super) fn open(way: &Arc<Way>, address: &str) -> Result<Arc<Self>, LinkError> {
        Ok(Arc::new(Self {
            address: address.to_owned(),
            calls: Connection::open(way, address, Purpose::Calls)?,
            way: way.clone(),
            room: Semaphore::new(IN_FLIGHT_MAX),
            asking: Mutex::new(None),
            silent_since: AtomicU64::new(0),
            born: Instant::now(),
            waits: WaitQueue::default(),
        }))
    }

    pub(super) fn way(&self) -> &Arc<Way> {
        &self.way
    }

    pub(super) async fn ready(&self, wait: Duration) -> bool {
        self.calls.ready(wait).await
    }

    pub(super) fn why(&self) -> Option<String> {
        self.calls.why()
    }

    /// Sends a command once, when there is a connection and a turn for it.
    pub(super) async fn send(&self, name: &'static str, args: &[Bytes], connect_wait: Duration) -> Result<Reply, Fault> {
        let begun = Instant::now();
        let turn = tokio::time::timeout(Duration::from_millis(TURN_MS_MAX), self.room.acquire());
        let Ok(Ok(_turn)) = turn.await else {
            return Err(Fault::Link(LinkError::NotSent(format!("{IN_FLIGHT_MAX} calls in flight to {}", self.address))));
        };
        let ready = self.calls.ready(connect_wait).await;
        metrics::REDIS_WAIT_SECONDS.record(&[], begun.elapsed().as_secs_f64());
        if !ready {
            return Err(Fault::Unsent(format!("no connection to {}", self.address)));
        }
        let outcome = self.calls.send(name, args).await;
        self.note(&outcome);
        outcome
    }

    /// Sends a command once to a server that a slot is moving to.
    pub(super) async fn send_asking(&self, name: &'static str, args: &[Bytes]) -> Result<Reply, Fault> {
        let mut asking = self.asking.lock().await;
        if asking.as_ref().is_none_or(Connection::dead) {
            *asking = Some(Connection::open(&self.way, &self.address, Purpose::Calls).map_err(Fault::Link)?);
        }
        let Some(connection) = asking.as_ref() else {
            return Err(Fault::Unsent(format!("no connection to {}", self.address)));
        };
        if !connection.ready(Duration::from_millis(CONNECT_MS_MAX)).await {
            return Err(Fault::Unsent(format!("no connection to {}", self.address)));
        }
        connection.send("ASKING", &[]).await?;
        connection.send(name, args).await
    }

    fn note(&self, outcome: &Result<Reply, Fault>) {
        if matches!(outcome, Err(Fault::Link(LinkError::NoAnswer(_)))) {
            let now = self.age_ms() + 1;
            let _ = self.silent_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        } else if !matches!(outcome, Err(Fault::Unsent(_) | Fault::Link(LinkError::NotSent(_)))) {
            self.silent_since.store(0, Ordering::Relaxed);
        }
    }

    /// Whether behind Sentinels the server has become a replica while the connection stood: then they are asked again, but not at once
    /// after they were asked, for a new master may take a moment to take writes.
    pub(super) fn deposed(&self, error: &LinkError) -> bool {
        let sentinel = matches!(self.way.url().kind, Kind::Sentinel { .. });
        sentinel && self.age_ms() >= CONNECT_MS_MAX && matches!(error, LinkError::NotServing(text) if text.starts_with("READONLY"))
    }

    /// Whether the connection should be made anew: the client has ended, or the server has been silent too long on a connection that
    /// seems to stand (a hung server, a cable that was pulled; behind Sentinels another server may have taken over).
    pub(super) fn worn(&self) -> bool {
        let since = self.silent_since.load(Ordering::Relaxed);
        self.calls.dead() || (since != 0 && self.age_ms() + 1 - since >= SILENT_MS_MAX)
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX / 2)
    }
}

/// A frame as a plain value; see `reply.rs` for what is folded into what.
fn reply_of(frame: Resp3Frame) -> Reply {
    let list = |frames: Vec<Resp3Frame>| Reply::List(frames.into_iter().map(reply_of).collect());
    match frame {
        Resp3Frame::Null => Reply::Nil,
        Resp3Frame::Number { data, .. } => Reply::Int(data),
        Resp3Frame::Boolean { data, .. } => Reply::Int(i64::from(data)),
        Resp3Frame::Double { data, .. } => Reply::Bulk(Bytes::from(data.to_string())),
        Resp3Frame::BlobString { data, .. }
        | Resp3Frame::SimpleString { data, .. }
        | Resp3Frame::BigNumber { data, .. }
        | Resp3Frame::VerbatimString { data, .. }
        | Resp3Frame::ChunkedString(data) => Reply::Bulk(data),
        Resp3Frame::SimpleError { data, .. } => Reply::Error(data.to_string()),
        Resp3Frame::BlobError { data, .. } => Reply::Error(String::from_utf8_lossy(&data).into_owned()),
        Resp3Frame::Array { data, .. } | Resp3Frame::Push { data, .. } => list(data),
        Resp3Frame::Set { data, .. } => Reply::List(data.into_iter().map(reply_of).collect()),
        Resp3Frame::Map { data, .. } => Reply::List(data.into_iter().flat_map(|(key, value)| [reply_of(key), reply_of(value)]).collect()),
        Resp3Frame::Hello { .. } => Reply::Nil,
    }
}

/// What the text of an error says that the server answered.
pub(super) fn fault_of_text(text: &str) -> Fault {
    let mut words = text.split(' ');
    match words.next().unwrap_or_default() {
        "MOVED" => match (words.next().and_then(|slot| slot.parse().ok()), words.next()) {
            (Some(slot), Some(address)) => Fault::Moved { slot, address: address.to_owned() },
            _ => Fault::Link(LinkError::Refused(text.to_owned())),
        },
        "ASK" => match words.nth(1) {
            Some(address) => Fault::Ask { address: address.to_owned() },
            None => Fault::Link(LinkError::Refused(text.to_owned())),
        },
        "TRYAGAIN" => Fault::TryAgain(text.to_owned()),
        "OOM" => Fault::Link(LinkError::OutOfMemory),
        "LOADING" | "READONLY" | "CLUSTERDOWN" | "MASTERDOWN" | "NOREPLICAS" | "BUSY" | "MISCONF" | "UNBLOCKED" => {
            Fault::Link(LinkError::NotServing(text.to_owned()))
        }
        _ => Fault::Link(LinkError::Refused(text.to_owned())),
    }
}

/// What the client itself says. Only two of its errors promise that nothing was sent.
pub(super) fn fault_of_error(error: &Error) -> Fault {
    let text = error.details();
    match error.kind() {
        ErrorKind::Backpressure => Fault::Link(LinkError::NotSent(text.to_owned())),
        ErrorKind::Timeout | ErrorKind::IO | ErrorKind::Canceled | ErrorKind::Protocol | ErrorKind::Parse | ErrorKind::Tls => {
            Fault::Link(LinkError::NoAnswer(text.to_owned()))
        }
        _ => match text {
            "Failed to route command." | "Client is not initialized." | "Failed to send command to router." => {
                Fault::Unsent(text.to_owned())
            }
            "Too many failed write attempts." => Fault::Link(LinkError::NoAnswer(text.to_owned())),
            // In a pipeline the server's errors come this way.
            _ => fault_of_text(text),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_of_an_error_decides() {
        assert_eq!(fault_of_text("MOVED 17 h:1"), Fault::Moved { slot: 17, address: "h:1".into() });
        assert_eq!(fault_of_text("ASK 17 h:1"), Fault::Ask { address: "h:1".into() });
        assert_eq!(fault_of_text("OOM command not allowed"), Fault::Link(LinkError::OutOfMemory));
        assert!(matches!(fault_of_text("BUSY Redis is busy"), Fault::Link(LinkError::NotServing(_))));
        assert!(matches!(fault_of_text("BUSYGROUP exists"), Fault::Link(LinkError::Refused(_))));
        assert!(matches!(fault_of_text("ERR user_script:1: oops"), Fault::Link(LinkError::Refused(text)) if text.contains("oops")));
    }

    #[test]
    fn only_what_was_never_written_counts_as_not_sent() {
        let fault = |kind, text: &'static str| fault_of_error(&Error::new(kind, text));
        assert!(matches!(fault(ErrorKind::Timeout, "Request timed out."), Fault::Link(LinkError::NoAnswer(_))));
        assert!(matches!(fault(ErrorKind::IO, "Connection closed."), Fault::Link(LinkError::NoAnswer(_))));
        assert!(matches!(fault(ErrorKind::Unknown, "Too many failed write attempts."), Fault::Link(LinkError::NoAnswer(_))));
        assert!(matches!(fault(ErrorKind::Unknown, "Failed to route command."), Fault::Unsent(_)));
        assert!(matches!(fault(ErrorKind::Backpressure, "full"), Fault::Link(LinkError::NotSent(_))));
    }
}
