//! Who of a pair has blocked the other one.

use super::ids::Millis;

/// A single conversation's flags; none in others. Whoever set one, it holds in both directions: no new words, no reactions, no typing, no
/// sign of reading. What was said stays, and may be taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// Since when the bytewise lower user blocks the higher one.
    pub by_low: Option<Millis>,
    /// Since when the higher one blocks the lower one.
    pub by_high: Option<Millis>,
}

impl Blocks {
    /// Whether there is one.
    #[must_use]
    pub fn any(&self) -> bool {
        self.by_low.is_some() || self.by_high.is_some()
    }
}
