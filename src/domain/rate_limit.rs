//! How fast one may go: buckets of tokens that fill by themselves, and what the one who is held back is told.

/// A limit as it is set up: on average so many a second, and so many at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Tokens that come back in a second; above 0.
    pub per_second: f64,
    /// Size of the bucket in tokens; at least 1.
    pub burst: u64,
}

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limited {
    /// A user's messages.
    UserSends,
    /// A user's other writes.
    UserWrites,
    /// The messages of all members of a conversation.
    ConversationSends,
    /// Streams that are open at once.
    Streams,
}

/// Where one stands with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitState {
    /// Which limit.
    pub limited: Limited,
    /// Tokens that a full bucket holds.
    pub quota: u64,
    /// Seconds in which an empty bucket fills, rounded up.
    pub window_s: u64,
    /// Tokens left.
    pub remaining: u64,
    /// Seconds until there is a token (when there is none) or until the bucket is full, rounded up.
    pub reset_s: u64,
}

impl Limited {
    /// The word in headers, metrics and key names.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UserSends => "user",
            Self::UserWrites => "writes",
            Self::ConversationSends => "conversation",
            Self::Streams => "streams",
        }
    }
}

impl Rate {
    /// A rate, unless it is set to 0, which is no limit.
    #[must_use]
    pub fn of(per_second: f64, burst: u64) -> Option<Self> {
        (per_second > 0.0).then_some(Self { per_second, burst: burst.max(1) })
    }

    /// Where one stands with so many tokens left.
    #[must_use]
    pub fn with_left(&self, limited: Limited, remaining: u64) -> LimitState {
        LimitState { remaining, reset_s: self.seconds_for(self.burst.saturating_sub(remaining)), ..self.empty(limited, 0) }
    }

    /// Where one stands with none left and so many milliseconds to wait.
    #[must_use]
    pub fn empty(&self, limited: Limited, wait_ms: u64) -> LimitState {
        let window_s = self.seconds_for(self.burst).max(1);
        LimitState { limited, quota: self.burst, window_s, remaining: 0, reset_s: wait_ms.div_ceil(1000).max(1) }
    }

    /// Seconds in which so many tokens come back, rounded up.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number of seconds; what does not fit is as good as for ever"
    )]
    fn seconds_for(&self, tokens: u64) -> u64 {
        (tokens as f64 / self.per_second).ceil() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(Rate::of(0.0, 5), None);
        let rate = Rate { per_second: 2.0, burst: 5 };
        let state = rate.with_left(Limited::UserSends, 4);
        assert_eq!((state.quota, state.window_s, state.remaining, state.reset_s), (5, 3, 4, 1));
        let full = rate.with_left(Limited::UserSends, 5);
        assert_eq!(full.reset_s, 0);
        for (wait_ms, reset_s) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2)] {
            assert_eq!(rate.empty(Limited::UserSends, wait_ms).reset_s, reset_s);
        }
    }
}
