//! Wall-clock time, in one place, with an offset for tests of clocks that disagree. Order never depends on it.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::domain::ids::Millis;

/// A wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    offset_ms: i64,
}

impl Clock {
    /// The system's clock plus so many milliseconds.
    #[must_use]
    pub fn with_offset(offset_ms: i64) -> Self {
        Self { offset_ms }
    }

    /// Now, in milliseconds since 1970 UTC.
    #[must_use]
    pub fn now(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX) + self.offset_ms
    }
}
