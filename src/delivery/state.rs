//! What a connection keeps under its lock: where it stands, and the little that waits for its reader.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::connection::Ending;
use crate::domain::ids::{ConversationId, Rev};
use crate::domain::position::{EntryId, Position};

/// Bytes that wait for a reader at most (one event may pass it).
const QUEUE_BYTES_MAX: usize = 128 * 1024;
/// Pieces that wait for a reader at most; a live event has two.
const QUEUE_PIECES_MAX: usize = 128;
/// Entries that are read from the log at once: the most, which is also where a connection begins, and the fewest.
const PAGE_ENTRIES: std::ops::RangeInclusive<u64> = 8..=100;
/// Conversations whose leaving is remembered at most; what is under way when one is left arrives within moments.
const LEFT_MAX: usize = 8;
/// Events without an entry that wait while the log is being read, at most.
const HELD_MAX: usize = 8;
/// For which they wait at most: what they tell of is over soon.
const HELD_FOR: Duration = Duration::from_secs(1);

/// An event that leaves no log entry.
#[derive(Clone, Debug)]
pub(super) struct Passing {
    pub(super) conversation: ConversationId,
    pub(super) rev: Rev,
    pub(super) frame: Bytes,
    pub(super) came_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Everything up to the log's end was queued.
    Live,
    /// There is more in the log.
    Behind,
    /// A task is reading the log.
    Reading,
    /// What is queued is the last.
    Ended,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) epoch: Arc<str>,
    /// The last entry that was queued or passed over.
    pub(super) place: EntryId,
    /// The highest entry that a wake-up named while the task was reading.
    pub(super) hinted: Option<EntryId>,
    pub(super) mode: Mode,
    pub(super) ending: Option<Ending>,
    pub(super) queue: VecDeque<Bytes>,
    pub(super) queued_bytes: usize,
    pub(super) waker: Option<Waker>,
    /// When something was last queued.
    pub(super) queued_at: Instant,
    /// When the reader last took something, or the queue was empty.
    pub(super) taken_at: Instant,
    pub(super) beats: u32,
    pub(super) waits_for_store: bool,
    /// Conversations that the user left or was removed from while this was open, the latest last, and the rev of the leaving.
    left: Vec<(ConversationId, Rev)>,
    /// What came while the log was being read; it is shown when that is done, or never.
    held: Vec<Passing>,
    /// Entries of the next page.
    pub(super) page: u64,
}

impl State {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            epoch: Arc::from(""),
            place: EntryId::default(),
            hinted: None,
            mode: Mode::Reading,
            ending: None,
            queue: VecDeque::new(),
            queued_bytes: 0,
            waker: None,
            queued_at: now,
            taken_at: now,
            beats: 0,
            waits_for_store: false,
            left: Vec::new(),
            held: Vec::new(),
            page: *PAGE_ENTRIES.end(),
        }
    }

    pub(super) fn push(&mut self, bytes: Bytes) {
        let now = Instant::now();
        if self.queue.is_empty() {
            self.taken_at = now;
        }
        self.queued_at = now;
        self.queued_bytes += bytes.len();
        self.queue.push_back(bytes);
    }

    pub(super) fn has_room(&self) -> bool {
        self.queued_bytes < QUEUE_BYTES_MAX && self.queue.len() + 2 <= QUEUE_PIECES_MAX
    }

    /// After a page of which so many events found room: the next one is about as long as what finds room, as what does not is read in vain
    /// (a hundred long messages are ten times what may wait).
    pub(super) fn pace_pages(&mut self, whole: bool, queued: u64) {
        let next = if whole { self.page * 2 } else { queued + queued / 4 };
        self.page = next.clamp(*PAGE_ENTRIES.start(), *PAGE_ENTRIES.end());
    }

    pub(super) fn position(&self) -> Position {
        Position { epoch: Some(self.epoch.to_string()), entry: self.place }
    }

    pub(super) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    pub(super) fn end(&mut self, ending: Ending, last_words: Option<Bytes>) {
        if self.mode == Mode::Ended {
            return;
        }
        self.mode = Mode::Ended;
        self.ending = Some(ending);
        if let Some(words) = last_words {
            self.push(words);
        }
        self.wake();
    }

    /// After a page, or at the beginning: live when nothing is missing that is known of.
    pub(super) fn settle(&mut self, at_end: bool) {
        let hinted = self.hinted.take();
        if self.mode == Mode::Reading {
            self.mode = if at_end && hinted.is_none_or(|hint| hint <= self.place) { Mode::Live } else { Mode::Behind };
        }
        self.waits_for_store = false;
        if self.mode == Mode::Live {
            for passing in std::mem::take(&mut self.held) {
                if passing.came_at.elapsed() <= HELD_FOR {
                    self.show(&passing);
                }
            }
        }
        self.wake();
    }

    /// Queues an event that leaves no entry, if the reader has room and may see it.
    pub(super) fn show(&mut self, passing: &Passing) -> bool {
        let shown = self.has_room() && self.belongs(&passing.conversation, passing.rev);
        if shown {
            self.push(passing.frame.clone());
            self.wake();
        }
        shown
    }

    /// Lets one wait for the end of the reading, if few do.
    pub(super) fn hold(&mut self, passing: Passing) {
        self.held.retain(|held| held.came_at.elapsed() <= HELD_FOR);
        if self.held.len() < HELD_MAX {
            self.held.push(passing);
        }
    }

    /// Remembers that the user left a conversation: an event without an entry may have been under way to them.
    pub(super) fn leave(&mut self, conversation: &ConversationId, rev: Rev) {
        self.left.retain(|(left, _)| left != conversation);
        if self.left.len() == LEFT_MAX {
            self.left.remove(0);
        }
        self.left.push((conversation.clone(), rev));
    }

    /// Whether something that was so at `rev` may still be shown to the user.
    fn belongs(&self, conversation: &ConversationId, rev: Rev) -> bool {
        !self.left.iter().any(|(left, at)| left == conversation && rev < *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passing(rev: Rev, came_at: Instant) -> Passing {
        let conversation = ConversationId::parse("system:x").unwrap();
        Passing { conversation, rev, frame: Bytes::from(rev.to_string()), came_at }
    }

    fn shown(state: &State) -> Vec<&[u8]> {
        state.queue.iter().map(AsRef::as_ref).collect()
    }

    #[test]
    fn what_came_while_reading_is_shown_after_it_unless_it_is_over() {
        let now = Instant::now();
        let mut state = State::new(now);
        state.hold(passing(1, now.checked_sub(HELD_FOR * 2).unwrap()));
        (2..=9).for_each(|rev| state.hold(passing(rev, now)));
        state.settle(false);
        assert!(shown(&state).is_empty(), "there is more to read");
        state.mode = Mode::Reading;
        state.hold(passing(10, now));
        state.leave(&passing(0, now).conversation, 5);
        state.settle(true);
        assert_eq!(shown(&state), [b"5", b"6", b"7", b"8", b"9"], "neither the old one, nor those before the leaving, nor too many");
        state.settle(true);
        assert_eq!(state.queue.len(), 5, "once");
    }

    #[test]
    fn a_page_is_about_as_long_as_what_finds_room() {
        let mut state = State::new(Instant::now());
        let mut after = |whole, queued| {
            state.pace_pages(whole, queued);
            state.page
        };
        assert_eq!((after(true, 100), after(false, 11), after(false, 0)), (100, 13, 8));
        assert_eq!((after(true, 8), after(true, 16), after(true, 32), after(true, 64)), (16, 32, 64, 100));
    }

    #[test]
    fn who_reads_slowly_is_shown_less_and_nothing_grows() {
        let now = Instant::now();
        let mut state = State::new(now);
        state.mode = Mode::Live;
        let taken = (0..1_000).filter(|rev| state.show(&passing(*rev, now))).count();
        assert!(taken < QUEUE_PIECES_MAX && state.queue.len() == taken, "{taken}");
        (0..20).for_each(|n| state.leave(&ConversationId::parse(&format!("system:{n}")).unwrap(), n));
        assert_eq!(state.left.len(), LEFT_MAX);
    }
}
