//! Where a reader stands in a user's log.
//!
//! A bare stream id is not a position. Suppose a log held entries 1 to 9, a client stands at 7, and the server loses the log
//! and begins again: 1 to 8 are now other events. "Resume after 7" would deliver the new 8 and silently skip seven events.
//! So the log's epoch is part of the position, and a position of another epoch is answered with `resync`.

use std::fmt;

/// A place in one log: milliseconds and a counter, as Redis Streams write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryId {
    /// The millisecond part.
    pub ms: u64,
    /// The counter within the millisecond.
    pub n: u64,
}

impl EntryId {
    /// Reads `ms-n`, digits only.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (ms, n) = text.split_once('-')?;
        Some(Self { ms: digits(ms)?, n: digits(n)? })
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.n)
    }
}

/// A position as clients hold it: `<epoch>.<ms>-<n>`, or a bare `<ms>-<n>` that some client kept from elsewhere (epoch unknown).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The log's epoch, 1 to 32 lower-case letters and digits; `None` in a bare `ms-n`.
    pub epoch: Option<String>,
    /// The place.
    pub entry: EntryId,
}

impl Position {
    /// Reads a position; `None` is a malformed one (`invalid_cursor`), never "from the beginning".
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once('.') {
            None => Some(Self { epoch: None, entry: EntryId::parse(text)? }),
            Some((epoch, entry)) => {
                let fits = (1..=32).contains(&epoch.len()) && epoch.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
                fits.then_some(())?;
                Some(Self { epoch: Some(epoch.to_owned()), entry: EntryId::parse(entry)? })
            }
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.epoch {
            Some(epoch) => write!(f, "{epoch}.{}", self.entry),
            None => write!(f, "{}", self.entry),
        }
    }
}

/// Digits only: `u64::from_str` would also take a leading `+`.
fn digits(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}
