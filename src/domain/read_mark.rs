//! How many messages a member has not read: always derived, never a counter that could drift.

use super::conversation::Unread;
use super::ids::Seq;

/// Counts what is unread: everything after the watermark up to the head, without what never counts and without voids. One's own messages
/// need no subtraction: a send moves its sender's watermark to itself.
#[must_use]
pub fn unread(head: Seq, read: Seq, uncounted_after_read: u64, voids: &[(Seq, Seq)], limit: u64) -> Unread {
    let void: u64 = voids
        .iter()
        .map(|(from, to)| {
            let (from, to) = ((*from).max(read + 1), (*to).min(head));
            if from > to { 0 } else { to - from + 1 }
        })
        .sum();
    let count = head.saturating_sub(read).saturating_sub(void).saturating_sub(uncounted_after_read);
    Unread { count: count.min(limit), more: count > limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voids_and_what_never_counts_are_left_out() {
        let cases = [
            ((0, 0, 0, &[][..]), (0, false)),
            ((5, 2, 0, &[][..]), (3, false)),
            ((5, 2, 1, &[(3, 3)][..]), (1, false)),
            ((20, 5, 0, &[(1, 3), (4, 8), (19, 30)][..]), (10, false)),
            ((20, 25, 0, &[][..]), (0, false)),
            ((2_000, 0, 0, &[][..]), (1_000, true)),
            ((1_000, 0, 0, &[][..]), (1_000, false)),
        ];
        for ((head, read, uncounted, voids), (count, more)) in cases {
            assert_eq!(unread(head, read, uncounted, voids, 1_000), Unread { count, more });
        }
    }
}
