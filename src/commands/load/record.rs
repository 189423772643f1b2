//! What all senders and readers of a run write to: its conversations, its counts and its times.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::LoadError;
use super::verdict::Ledger;

/// A conversation of the run.
#[derive(Debug)]
pub struct Room {
    /// Its id.
    pub id: String,
    /// Its members, as places in the run's list of users.
    pub members: Vec<usize>,
    /// Which message stands where.
    pub ledger: Mutex<Ledger>,
}

/// Times in microseconds, from many tasks.
#[derive(Debug)]
pub struct Times(Mutex<Histogram<u64>>);

/// Percentiles in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Percentiles {
    /// How many were measured.
    pub count: u64,
    /// Half were faster.
    pub p50_ms: f64,
    /// 90 of 100 were faster.
    pub p90_ms: f64,
    /// 99 of 100 were faster.
    pub p99_ms: f64,
    /// The slowest.
    pub max_ms: f64,
}

impl Times {
    fn new() -> Result<Self, LoadError> {
        // Three digits are kept of each time, from 1 µs to 10 minutes.
        let times = Histogram::new_with_bounds(1, 600_000_000, 3).map_err(|err| LoadError::Setup(err.to_string()))?;
        Ok(Self(Mutex::new(times)))
    }

    /// Adds one time.
    pub fn add(&self, us: u64) {
        hold(&self.0).saturating_record(us);
    }

    /// Sums up.
    #[must_use]
    pub fn percentiles(&self) -> Percentiles {
        let times = hold(&self.0);
        if times.is_empty() {
            return Percentiles::default();
        }
        #[allow(clippy::cast_precision_loss)] // Times of at most 600,000,000 µs are exact in an f64.
        let at = |quantile: f64| times.value_at_quantile(quantile) as f64 / 1_000.0;
        Percentiles { count: times.len(), p50_ms: at(0.5), p90_ms: at(0.9), p99_ms: at(0.99), max_ms: at(1.0) }
    }
}

/// The run's record.
#[derive(Debug)]
pub struct Record {
    started: Instant,
    /// Conversations.
    pub rooms: Vec<Room>,
    by_id: HashMap<String, usize>,
    /// Limit of a delivery in microseconds.
    pub late_us: u64,
    /// First try of a send to its answer.
    pub sends: Times,
    /// Answer of a send to a reader's receipt.
    pub deliveries: Times,
    /// Sends that ended, well or not.
    pub ended: AtomicU64,
    /// Sends taken.
    pub taken: AtomicU64,
    /// Sends whose answer was a replay of an earlier try.
    pub replayed: AtomicU64,
    /// Sends answered with a lower level than asked for.
    pub below: AtomicU64,
    /// Messages that reached a reader.
    pub shown: AtomicU64,
    /// Time of the last one, µs since the start.
    pub last_shown_us: AtomicU64,
    /// Most that a send began after its time, µs.
    pub behind_us: AtomicU64,
    /// `message.resequenced` events: a number was given twice and mended.
    pub resequenced: AtomicU64,
    /// Sends not taken, and why the first was not.
    pub unsent: Mutex<(u64, Option<String>)>,
}

impl Record {
    /// An empty record of these conversations.
    ///
    /// # Errors
    /// Never in practice: the bounds of the histograms are sound.
    pub fn new(rooms: Vec<Room>, late_us: u64) -> Result<Self, LoadError> {
        let by_id = rooms.iter().enumerate().map(|(at, room)| (room.id.clone(), at)).collect();
        Ok(Self {
            started: Instant::now(),
            rooms,
            by_id,
            late_us,
            sends: Times::new()?,
            deliveries: Times::new()?,
            ended: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            replayed: AtomicU64::new(0),
            below: AtomicU64::new(0),
            shown: AtomicU64::new(0),
            last_shown_us: AtomicU64::new(0),
            behind_us: AtomicU64::new(0),
            resequenced: AtomicU64::new(0),
            unsent: Mutex::new((0, None)),
        })
    }

    /// Microseconds since the record was opened.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The conversation of this id, when it is one of the run.
    #[must_use]
    pub fn room_at(&self, id: &str) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// A stream showed a message to a reader who had not seen it.
    pub fn delivered(&self, room: usize, seq: u64, id: u128, at_us: u64, connected_us: u64) {
        let took = hold(&self.rooms[room].ledger).shown(seq, id, at_us, connected_us, self.late_us);
        self.deliveries.add(took);
        self.shown.fetch_add(1, Ordering::Relaxed);
        self.last_shown_us.fetch_max(at_us, Ordering::Relaxed);
    }
}

/// Locks. A task that panicked while it held the lock has left a record as good as any: counts are single steps.
pub fn hold<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
