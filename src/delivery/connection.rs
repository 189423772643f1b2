//! One open stream: its place in the log, a small queue, and a body that the HTTP server polls. No task belongs to it while it is idle.
//!
//! ```text
//!            wake-up follows on the place, queue has room: push
//!            ┌──────┐
//!            ▼      │        any other wake-up                queue empty, body polled
//!          Live ────┴────────────────────────► Behind ────────────────────────────────► Reading (one task)
//!            ▲                                    ▲                                        │
//!            │  everything up to the log's end    │  queue full, or more came meanwhile    │
//!            └────────────────────────────────────┴────────────────────────────────────────┘
//! ```
//! The task fills the queue once and ends; the next page is read when the reader has taken this one, so a slow reader sets its own pace.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Frame;

use super::addresses::Place;
use super::frames;
use super::open_streams::OpenStreams;
use super::socket::PeerSocket;
use super::state::{Mode, Passing, State};
use crate::domain::event::{EventType, Pointer};
use crate::domain::ids::UserId;
use crate::domain::position::{EntryId, Position};

/// Every so many heartbeats the place is repeated.
const BEATS_A_PLACE: u32 = 4;

/// Why a stream ended; the label in `seqline_streams_closed_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its life is over.
    Life,
    /// The token has ended.
    Expired,
    /// The user was erased.
    Erased,
    /// The gateway stops.
    Drain,
    /// The reader takes nothing, or is gone without a word.
    Stalled,
}

impl Ending {
    fn label(self) -> &'static str {
        match self {
            Self::Life => "life",
            Self::Expired => "expired",
            Self::Erased => "erased",
            Self::Drain => "drain",
            Self::Stalled => "stalled",
        }
    }
}

/// What a wake-up led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It was queued.
    Pushed,
    /// The connection will read it from the log.
    Behind,
    /// It had it already.
    Known,
}

/// An event on its way to a connection: the part of its own and the shared part.
#[derive(Debug)]
pub struct LiveEvent<'a> {
    /// Its place.
    pub position: &'a Position,
    /// The entry before it.
    pub previous: EntryId,
    /// Head and end of the frame; `None` is a hint to read the log.
    pub frame: Option<(EventType, Bytes)>,
}

/// Times of all streams of a gateway.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Between heartbeats.
    pub heartbeat: Duration,
    /// Between two looks at every connection.
    pub tick: Duration,
    /// After which a reader that takes nothing is cut.
    pub stall: Duration,
    /// After which a peer that acknowledges nothing is taken for dead.
    pub silence: Duration,
}

/// One open stream, or a poll that waits (`is_watch`).
#[derive(Debug)]
pub struct Connection {
    /// Whose.
    pub user: UserId,
    is_watch: bool,
    life_ends: Option<Instant>,
    token_ends: Option<Instant>,
    socket: Option<PeerSocket>,
    state: Mutex<State>,
}

/// What a page of the log came to, for a connection.
#[derive(Debug)]
pub enum Page {
    /// Events in order, `None` for those that are passed over, and where the log ended.
    Events {
        /// Place and frame.
        events: Vec<(EntryId, Option<Bytes>)>,
        /// The last entry of the page, one that cannot be read included.
        through: EntryId,
        /// The log's last entry when the page was read.
        last: EntryId,
    },
    /// The place does not hold any more: go on from there, after saying so.
    Moved {
        /// The log's head.
        head: Position,
        /// The frame that says so.
        frame: Bytes,
    },
}

impl Connection {
    pub(super) fn new(
        user: UserId,
        is_watch: bool,
        life: Option<Duration>,
        token_life: Option<Duration>,
        socket: Option<PeerSocket>,
    ) -> Self {
        let now = Instant::now();
        Self {
            user,
            is_watch,
            life_ends: life.map(|life| now + life),
            token_ends: token_life.map(|life| now + life),
            socket,
            state: Mutex::new(State::new(now)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is a stream (not a poll that waits).
    #[must_use]
    pub fn is_stream(&self) -> bool {
        !self.is_watch
    }

    /// Gives a new connection its place and its first words; `last` is the log's last entry when the place was decided.
    pub(super) fn begin(&self, place: &Position, last: EntryId, words: impl IntoIterator<Item = Bytes>) {
        let mut state = self.state();
        state.epoch = Arc::from(place.epoch.as_deref().unwrap_or_default());
        state.place = place.entry;
        words.into_iter().for_each(|bytes| state.push(bytes));
        state.settle(place.entry >= last);
    }

    /// Takes a wake-up.
    pub(super) fn take(&self, event: &LiveEvent<'_>) -> Taken {
        let mut state = self.state();
        let entry = event.position.entry;
        let same_log = event.position.epoch.as_deref() == Some(&*state.epoch);
        match state.mode {
            Mode::Ended => return Taken::Known,
            Mode::Reading => {
                // While the first place is not known yet every entry is a hint; of another log, too.
                state.hinted =
                    state.hinted.max(Some(if same_log || state.epoch.is_empty() { entry } else { EntryId { ms: u64::MAX, n: u64::MAX } }));
                return Taken::Behind;
            }
            Mode::Behind => return Taken::Behind,
            Mode::Live => {}
        }
        if same_log && entry <= state.place {
            return Taken::Known;
        }
        if let Some((kind, end)) = &event.frame
            && same_log
            && event.previous == state.place
            && !self.is_watch
            && state.has_room()
        {
            state.push(frames::event_begin(*kind, event.position));
            state.push(end.clone());
            state.place = entry;
            state.wake();
            return Taken::Pushed;
        }
        if !self.is_watch && !state.queue.is_empty() && !state.has_room() {
            crate::metrics::SLOW_READERS.add(&[], 1);
        }
        state.mode = Mode::Behind;
        state.wake();
        Taken::Behind
    }

    /// Takes an event that leaves no log entry; whether it was queued at once. While the log is being read it waits for a moment; who
    /// reads slowly is better off without it.
    pub(super) fn tell(&self, event: &Pointer, frame: &Bytes) -> bool {
        let passing = Passing { conversation: event.conversation.clone(), rev: event.rev, frame: frame.clone(), came_at: Instant::now() };
        let mut state = self.state();
        match state.mode {
            Mode::Live if !self.is_watch => return state.show(&passing),
            Mode::Behind | Mode::Reading if !self.is_watch => state.hold(passing),
            _ => {}
        }
        false
    }

    /// Looks whether an entry of the log that is about to be shown ends the user's own membership.
    pub(super) fn heed(&self, pointer: &Pointer) {
        if pointer.ends_membership_of(&self.user) {
            self.state().leave(&pointer.conversation, pointer.rev);
        }
    }

    /// Whether it believes to have everything, and the log says otherwise.
    pub(super) fn misses(&self, head: &Position) -> bool {
        let state = self.state();
        state.mode == Mode::Live && (head.epoch.as_deref() != Some(&*state.epoch) || head.entry > state.place)
    }

    /// Sends it to the log.
    pub(super) fn fall_behind(&self) {
        let mut state = self.state();
        if state.mode == Mode::Live {
            state.mode = Mode::Behind;
            state.wake();
        }
    }

    /// The place from which the task goes on reading, and how many entries; `None` when the stream has ended.
    pub(super) fn reading_from(&self) -> Option<(Position, u64)> {
        let state = self.state();
        (state.mode == Mode::Reading).then(|| (state.position(), state.page))
    }

    /// Says that the task cannot read for the moment (the next heartbeats say so) or can again.
    pub(super) fn set_waiting(&self, waits: bool) {
        let mut state = self.state();
        if waits && !state.waits_for_store && state.mode == Mode::Reading && state.queue.is_empty() {
            state.push(Bytes::from_static(frames::STORE_AWAY));
            state.wake();
        }
        state.waits_for_store = waits;
    }

    /// Takes what the task has read, and ends the reading. Returns how many events were queued.
    pub(super) fn finish(&self, page: Page) -> u64 {
        let mut state = self.state();
        if state.mode != Mode::Reading {
            return 0;
        }
        let mut count = 0;
        match page {
            Page::Moved { head, frame } => {
                state.epoch = Arc::from(head.epoch.as_deref().unwrap_or_default());
                state.place = head.entry;
                // What was hinted belongs to another log, or lies at or below this head, or will be found by comparison.
                state.hinted = state.hinted.filter(|hint| *hint > head.entry && hint.ms != u64::MAX);
                state.push(frame);
                state.settle(true);
            }
            Page::Events { events, through, last } => {
                let mut whole = true;
                for (entry, frame) in events {
                    if let Some(frame) = frame {
                        if !state.has_room() {
                            whole = false;
                            break;
                        }
                        state.push(frame);
                        count += 1;
                    }
                    state.place = entry;
                }
                if whole {
                    state.place = state.place.max(through);
                }
                state.pace_pages(whole, count);
                let at_end = whole && state.place >= last;
                state.settle(at_end);
            }
        }
        count
    }

    /// Ends it with last words.
    pub(super) fn end(&self, ending: Ending) {
        let words = match ending {
            Ending::Life | Ending::Drain => Some(frames::farewell(EventType::Goodbye)),
            // Somebody who was erased needs another token as well: only the host application knows whether there is to be one.
            Ending::Expired | Ending::Erased => Some(frames::farewell(EventType::TokenExpired)),
            Ending::Stalled => None,
        };
        self.state().end(ending, words.filter(|_| !self.is_watch));
    }

    /// Says something to a reader who has taken everything.
    pub(super) fn remark(&self, words: &'static [u8]) {
        let mut state = self.state();
        if !self.is_watch && state.mode != Mode::Ended && state.queue.is_empty() {
            state.push(Bytes::from_static(words));
            state.wake();
        }
    }

    /// Looks after it: ends what must end, cuts what is stuck, and lets a quiet stream be heard.
    pub(super) fn tick(&self, now: Instant, pace: &Pace, redis_away: bool) {
        if self.is_watch {
            return;
        }
        if self.token_ends.is_some_and(|at| at <= now) {
            self.end(Ending::Expired);
        } else if self.life_ends.is_some_and(|at| at <= now) {
            self.end(Ending::Life);
        }
        let mut state = self.state();
        let stalled = !state.queue.is_empty() && now.saturating_duration_since(state.taken_at) > pace.stall;
        let beat_due = now.saturating_duration_since(state.queued_at) + pace.tick >= pace.heartbeat;
        if stalled {
            state.end(Ending::Stalled, None);
            state.queue = VecDeque::new();
            drop(state);
            return self.cut();
        }
        if !beat_due {
            return;
        }
        if self.socket.as_ref().is_some_and(|socket| socket.is_dead(pace.silence)) {
            state.end(Ending::Stalled, None);
            drop(state);
            return self.cut();
        }
        if state.mode == Mode::Ended || !state.queue.is_empty() {
            return;
        }
        state.beats = state.beats.wrapping_add(1);
        let place = (state.beats.is_multiple_of(BEATS_A_PLACE) && !state.epoch.is_empty()).then(|| frames::place(&state.position()));
        let words = if state.waits_for_store {
            frames::STORE_AWAY
        } else if redis_away {
            frames::REDIS_AWAY
        } else {
            frames::HEARTBEAT
        };
        state.push(Bytes::from_static(words));
        place.into_iter().for_each(|bytes| state.push(bytes));
        state.wake();
    }

    fn cut(&self) {
        if let Some(socket) = &self.socket {
            socket.cut();
        }
    }

    /// Why it ended, as a label.
    pub(super) fn ending_label(&self) -> &'static str {
        self.state().ending.map_or("client", Ending::label)
    }

    /// For a poll that waits: ready when there is something to read, or when it must not wait any longer.
    pub(super) fn poll_changed(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.mode != Mode::Live {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// A stream's body. Dropping it, as the HTTP server does when the client goes, closes the stream.
#[derive(Debug)]
pub struct StreamBody {
    pub(super) connection: Arc<Connection>,
    pub(super) hub: Arc<OpenStreams>,
    /// Given back with the stream.
    pub(super) _place: Option<Place>,
}

impl http_body::Body for StreamBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let mut state = self.connection.state();
        if let Some(bytes) = state.queue.pop_front() {
            state.queued_bytes -= bytes.len();
            state.taken_at = Instant::now();
            if state.queue.is_empty() {
                // Idle streams hold no buffer.
                state.queue = VecDeque::new();
            }
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match state.mode {
            Mode::Ended => return Poll::Ready(None),
            Mode::Behind => {
                state.mode = Mode::Reading;
                self.hub.spawn_reader(&self.connection);
            }
            Mode::Live | Mode::Reading => {}
        }
        if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            state.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        self.hub.close(&self.connection);
    }
}
