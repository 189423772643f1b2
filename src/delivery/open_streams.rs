//! The streams that are open at this gateway, by user; and the doors through which they are opened.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand::Rng as _;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::addresses::Addresses;
use super::connection::{Connection, Ending, LiveEvent, Pace, StreamBody, Taken};
use super::resume::{self, Resume};
use super::socket::PeerSocket;
use super::{frames, reader, sweep, wakeups};
use crate::actions::Stores;
use crate::contract::stream::{Hello, Resync, ResyncReason};
use crate::contract::timestamp::Timestamp;
use crate::domain::ids::{Millis, UserId};
use crate::domain::position::Position;
use crate::domain::rate_limit::{LimitState, Limited};
use crate::domain::refusal::Refusal;
use crate::metrics;
use crate::redis::ack_cursor::stored_cursor;
use crate::redis::event_log::LogState;
use crate::redis::register_streams::{Presence, register_streams};
use crate::redis::wake_gateway::{LiveWake, Wake};

/// Parts of the map, each under its own lock.
const PARTS: usize = 64;
/// Logs that are read at a time.
const READS_AT_ONCE: usize = 64;
/// Seconds after which somebody with as many streams as one may have should try again.
const FULL_WAIT_S: u64 = 5;
/// Time for which one registration asks for wake-ups.
pub(super) const PRESENCE_MS: Millis = 600_000;

/// Where a stream starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// After this place.
    At(Position),
    /// After the device's stored cursor, or at the end of the log if it has none.
    Device,
    /// At the end of the log.
    Head,
}

/// A stream that is wanted.
#[derive(Clone, Debug)]
pub struct OpenRequest {
    /// Whose.
    pub user: UserId,
    /// Where it starts.
    pub start: Start,
    /// The device.
    pub device: Option<String>,
    /// When the stream must end because the caller's proof does (leeway included).
    pub proof_ends_at: Option<Millis>,
    /// Where it is wanted from, as far as that is known.
    pub address: Option<IpAddr>,
    /// The socket, when the listener is ours.
    pub socket: Option<PeerSocket>,
}

type Part = Mutex<HashMap<UserId, Vec<Arc<Connection>>>>;

/// The hub of one gateway.
#[derive(Debug)]
pub struct OpenStreams {
    pub(super) stores: Arc<Stores>,
    /// This gateway's name; a new one for every start.
    pub(super) gateway: String,
    pub(super) pace: Pace,
    parts: Vec<Part>,
    hasher: RandomState,
    open: AtomicUsize,
    addresses: Arc<Addresses>,
    pub(super) reads: Semaphore,
    pub(super) redis_away: AtomicBool,
    /// Users whose last stream has closed, until Redis was told.
    pub(super) gone: Mutex<Vec<UserId>>,
    stop: CancellationToken,
    emptied: Notify,
}

impl OpenStreams {
    /// Starts the hub's loops. When `stop` is cancelled every stream is told goodbye, new ones are refused, and the loops end with the last one.
    #[must_use]
    pub fn start(stores: Arc<Stores>, gateway: String, stop: CancellationToken) -> Arc<Self> {
        let heartbeat = Duration::from_millis(stores.settings.heartbeat_ms.max(10));
        let pace = Pace {
            heartbeat,
            tick: (heartbeat / 8).clamp(Duration::from_millis(5), Duration::from_secs(1)),
            stall: Duration::from_millis(stores.settings.stream_stall_ms),
            // Looked at with each heartbeat, of which the first goes unanswered: below two of them, so that the second or the third finds it.
            silence: (heartbeat * 7 / 4).max(Duration::from_secs(1)),
        };
        let addresses = Addresses::new(stores.settings.address_streams_max);
        let hub = Arc::new(Self {
            stores,
            gateway,
            pace,
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            open: AtomicUsize::new(0),
            addresses,
            reads: Semaphore::new(READS_AT_ONCE),
            redis_away: AtomicBool::new(false),
            gone: Mutex::default(),
            stop,
            emptied: Notify::new(),
        });
        tokio::spawn(wakeups::run(hub.clone()));
        tokio::spawn(sweep::run(hub.clone()));
        tokio::spawn(sweep::look_after(hub.clone()));
        hub
    }

    /// Streams open now.
    #[must_use]
    pub fn count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Whether the gateway is leaving.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.stop.is_cancelled()
    }

    pub(super) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Waits until no stream is open.
    pub async fn emptied(&self) {
        loop {
            let notified = self.emptied.notified();
            if self.count() == 0 {
                return;
            }
            notified.await;
        }
    }

    fn part(&self, user: &UserId) -> MutexGuard<'_, HashMap<UserId, Vec<Arc<Connection>>>> {
        let index = usize::try_from(self.hasher.hash_one(user) % PARTS as u64).unwrap_or(0);
        self.parts[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every connection, part by part.
    pub(super) fn each(&self, mut look: impl FnMut(&Arc<Connection>)) {
        for part in &self.parts {
            // Not under the lock: an ended poll closes itself, which takes it.
            let connections: Vec<_> = part.lock().unwrap_or_else(PoisonError::into_inner).values().flatten().cloned().collect();
            connections.iter().for_each(&mut look);
        }
    }

    /// Every user with a connection.
    pub(super) fn users(&self) -> Vec<UserId> {
        self.parts.iter().flat_map(|part| part.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect::<Vec<_>>()).collect()
    }

    /// A user's connections.
    pub(super) fn of(&self, user: &UserId) -> Vec<Arc<Connection>> {
        self.part(user).get(user).cloned().unwrap_or_default()
    }

    /// How long a client may take to read everything again: the more streams there are, the longer.
    fn spread_ms(&self) -> u64 {
        (self.count() as u64 * 2).clamp(1_000, 30_000)
    }

    pub(super) fn resync(&self, reason: ResyncReason, log: &LogState) -> Resync {
        metrics::RESYNCS.add(&[reason.as_str()], 1);
        Resync { reason, head: log.head().to_string(), spread_ms: self.spread_ms() }
    }

    /// Opens a stream. It is in the map before its place is decided: what is written from then on reaches it as a hint, what was written
    /// before stands in the log.
    ///
    /// # Errors
    /// [`Refusal::Unavailable`] when the gateway is leaving or Redis is away.
    pub async fn open(self: &Arc<Self>, request: OpenRequest) -> Result<StreamBody, Refusal> {
        if self.is_draining() {
            return Err(Refusal::Unavailable("the gateway is leaving"));
        }
        let start = match request.start {
            Start::At(position) => Some((position, "resumed")),
            Start::Device => self.stored(&request.user, request.device.as_deref()).await?.map(|place| (place, "cursor")),
            Start::Head => None,
        };
        let now = self.stores.clock.now();
        let proof_life = request.proof_ends_at.map(|at| Duration::from_millis(u64::try_from(at - now).unwrap_or(0)));
        let life = Duration::from_millis(self.stores.settings.stream_life_max_ms).mul_f64(rand::rng().random_range(0.8..1.0));
        let connection = Arc::new(Connection::new(request.user.clone(), false, Some(life), proof_life, request.socket));
        let full = |quota| {
            let state = LimitState { limited: Limited::Streams, quota, window_s: FULL_WAIT_S, remaining: 0, reset_s: FULL_WAIT_S };
            Refusal::RateLimited(state)
        };
        let place_taken = self.addresses.take(request.address).map_err(full)?;
        if !self.insert(&connection) {
            return Err(full(self.stores.settings.user_streams_max));
        }
        let body = StreamBody { connection: connection.clone(), hub: self.clone(), _place: place_taken };
        let log = self.register(&request.user).await?;
        let (place, resumed_from, resync) = match &start {
            None => (log.head(), None, None),
            Some((position, _)) => match resume::decide(position, &log) {
                Resume::After(entry) => (Position { epoch: Some(log.epoch.clone()), entry }, Some(position.to_string()), None),
                Resume::Resync(reason) => (log.head(), None, Some(self.resync(reason, &log))),
            },
        };
        let hello = Hello { device: request.device, resumed_from, head: log.head().to_string(), server_time: Timestamp(now) };
        // A client keeps every id that it gets. The head goes to it with the word of the loss and not before: who is cut off between the two
        // would come back from the head and never hear of it.
        let first = match (&start, &resync) {
            (Some((asked, _)), Some(_)) => asked,
            _ => &place,
        };
        let words = [frames::priming(first), frames::hello(&hello)].into_iter().chain(resync.as_ref().map(frames::resync));
        connection.begin(&place, log.last, words);
        metrics::STREAMS_OPENED.add(&[start.map_or("head", |(_, label)| label)], 1);
        if self.is_draining() {
            connection.end(Ending::Drain);
        }
        Ok(body)
    }

    /// The stored cursor of a device; `None` without one.
    ///
    /// # Errors
    /// [`Refusal::Unavailable`] when Redis is away.
    pub(super) async fn stored(&self, user: &UserId, device: Option<&str>) -> Result<Option<Position>, Refusal> {
        let Some(device) = device else { return Ok(None) };
        stored_cursor(&self.stores.link, &self.stores.keys, user, device).await.map_err(|error| {
            tracing::warn!(%error, "a stored cursor cannot be read");
            Refusal::Unavailable("redis is away")
        })
    }

    /// Asks for wake-ups for a user, and looks where the log stands.
    pub(super) async fn register(&self, user: &UserId) -> Result<LogState, Refusal> {
        let until = Presence::Until(self.stores.clock.now() + PRESENCE_MS);
        let places = register_streams(&self.stores.link, &self.stores.keys, &self.gateway, std::slice::from_ref(user), until).await;
        match places.map(|mut places| places.pop()) {
            Ok(Some((_, log))) => Ok(log),
            Ok(None) => Err(Refusal::Unavailable("the log cannot be read")),
            Err(error) => {
                tracing::warn!(%error, "a stream cannot be registered");
                Err(Refusal::Unavailable("redis is away"))
            }
        }
    }

    /// Puts a connection on the map; `false` for a stream of a user who has as many here as one may have.
    pub(super) fn insert(&self, connection: &Arc<Connection>) -> bool {
        let mut part = self.part(&connection.user);
        let all = part.entry(connection.user.clone()).or_insert_with(|| Vec::with_capacity(1));
        let max = self.stores.settings.user_streams_max;
        if max > 0 && connection.is_stream() && all.iter().filter(|other| other.is_stream()).count() as u64 >= max {
            return false;
        }
        all.push(connection.clone());
        drop(part);
        if connection.is_stream() {
            self.open.fetch_add(1, Ordering::Relaxed);
            metrics::STREAMS_OPEN.up(&[]);
        }
        true
    }

    /// Takes a connection off the map.
    pub(super) fn close(&self, connection: &Arc<Connection>) {
        let mut part = self.part(&connection.user);
        let Some(all) = part.get_mut(&connection.user) else { return };
        all.retain(|other| !Arc::ptr_eq(other, connection));
        let was_last = all.is_empty();
        if was_last {
            part.remove(&connection.user);
        }
        drop(part);
        if was_last {
            self.gone.lock().unwrap_or_else(PoisonError::into_inner).push(connection.user.clone());
        }
        if connection.is_stream() {
            metrics::STREAMS_OPEN.down(&[]);
            metrics::STREAMS_CLOSED.add(&[connection.ending_label()], 1);
            if self.open.fetch_sub(1, Ordering::Relaxed) == 1 {
                self.emptied.notify_waiters();
            }
        }
    }

    pub(super) fn spawn_reader(self: &Arc<Self>, connection: &Arc<Connection>) {
        tokio::spawn(reader::read_once(self.clone(), connection.clone()));
    }

    /// Takes a wake-up: pushes where the chain is unbroken, and sends the others to the log. The shared part is encoded once.
    pub(super) fn wake(&self, wake: &Wake) {
        let mut shared = None;
        for woken in &wake.recipients {
            let connections = self.of(&woken.user);
            if connections.is_empty() {
                metrics::WAKE_UPS.add(&["nobody"], 1);
            }
            for connection in connections {
                connection.heed(&wake.pointer);
                let end = shared.get_or_insert_with(|| wakeups::shared_end(&self.stores, wake));
                let frame = end.clone().map(|end| (wake.pointer.kind, end));
                match connection.take(&LiveEvent { position: &woken.position, previous: woken.previous, frame }) {
                    Taken::Pushed => {
                        metrics::WAKE_UPS.add(&["pushed"], 1);
                        metrics::EVENTS_SENT.add(&["live"], 1);
                        metrics::DELIVER_SECONDS.record_ms(&[], self.stores.clock.now() - wake.pointer.at);
                    }
                    Taken::Behind => metrics::WAKE_UPS.add(&["behind"], 1),
                    Taken::Known => {}
                }
            }
        }
    }

    /// Takes an event that leaves no log entry: to everybody who is live, encoded once. Whoever misses it misses nothing that counts.
    pub(super) fn tell(&self, wake: &LiveWake) {
        let frame = frames::live_event(&wake.event);
        for connection in wake.users.iter().flat_map(|user| self.of(user)) {
            if connection.tell(&wake.event, &frame) {
                metrics::EVENTS_SENT.add(&["live_only"], 1);
            }
        }
    }

    /// Ends the streams of users who were erased.
    pub(super) fn end_of(&self, users: &[UserId]) {
        users.iter().flat_map(|user| self.of(user)).for_each(|connection| connection.end(Ending::Erased));
    }

    /// Says goodbye to everybody.
    pub(super) fn end_all(&self) {
        self.each(|connection| connection.end(Ending::Drain));
    }

    pub(super) fn tick(&self) {
        let (now, away) = (Instant::now(), self.redis_away.load(Ordering::Relaxed));
        self.each(|connection| connection.tick(now, &self.pace, away));
    }
}
