//! Whether a position still holds: the one decision behind streams, polls and catching up. Pure.
//!
//! The order of the questions matters. A position of another log says nothing about this one, whatever its numbers are: it is lost, even
//! when it lies below this log's head. Only within one log may it be compared with what is there and with what was dropped.

use crate::contract::stream::ResyncReason;
use crate::domain::position::{EntryId, Position};
use crate::redis::event_log::LogState;

/// What to do about a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Everything after this entry is there.
    After(EntryId),
    /// Something may be missing: say so, and go on from the head.
    Resync(ResyncReason),
}

/// Decides for a position in a log as it is now.
#[must_use]
pub fn decide(position: &Position, log: &LogState) -> Resume {
    if position.epoch.as_deref() != Some(log.epoch.as_str()) {
        return Resume::Resync(ResyncReason::Lost);
    }
    if position.entry > log.last {
        return Resume::Resync(ResyncReason::Future);
    }
    if position.entry < log.trimmed {
        return Resume::Resync(ResyncReason::Trimmed);
    }
    Resume::After(position.entry)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(ms: u64, n: u64) -> EntryId {
        EntryId { ms, n }
    }

    #[test]
    fn malformed_positions_are_never_a_beginning() {
        for text in [
            "",
            "-1",
            "abc",
            "5-",
            "-",
            "$",
            "+",
            ">",
            "*",
            "1-2-3",
            "1",
            "+1-2",
            "1-+2",
            " 1-2",
            "1-2 ",
            "1-2\n",
            "a.",
            ".1-2",
            "a.1",
            "A.1-2",
            "a.b.1-2",
            "é.1-2",
            "a.1-18446744073709551616",
            "99999999999999999999-0",
            "1.5-2.5",
            "0x1-2",
        ] {
            assert_eq!(Position::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn table() {
        let log = LogState { epoch: "e1".to_owned(), last: id(10, 3), trimmed: id(5, 1) };
        let rows = [
            ("e1.10-3", Resume::After(id(10, 3))),
            ("e1.5-1", Resume::After(id(5, 1))),
            ("e1.7-0", Resume::After(id(7, 0))),
            ("e1.5-0", Resume::Resync(ResyncReason::Trimmed)),
            ("e1.0-0", Resume::Resync(ResyncReason::Trimmed)),
            ("e1.10-4", Resume::Resync(ResyncReason::Future)),
            ("e1.18446744073709551615-18446744073709551615", Resume::Resync(ResyncReason::Future)),
            ("18446744073709551615-18446744073709551615", Resume::Resync(ResyncReason::Lost)),
            ("10-3", Resume::Resync(ResyncReason::Lost)),
            ("e2.7-0", Resume::Resync(ResyncReason::Lost)),
            ("e2.99-0", Resume::Resync(ResyncReason::Lost)),
        ];
        for (text, expected) in rows {
            assert_eq!(decide(&Position::parse(text).unwrap(), &log), expected, "{text}");
        }
    }

    /// The model keeps every entry that any incarnation of the log ever had, and knows which of them a reader at a position has not seen.
    #[derive(Clone, Debug)]
    enum Step {
        Append { same_ms: bool },
        Trim { keep: usize },
        Lose,
        Remember,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => any::<bool>().prop_map(|same_ms| Step::Append { same_ms }),
            1 => (0_usize..6).prop_map(|keep| Step::Trim { keep }),
            1 => Just(Step::Lose),
            3 => Just(Step::Remember),
        ]
    }

    proptest! {
        /// A reader is told to go on exactly when the log still holds every entry made after its position, and it is never told so in
        /// another incarnation of the log.
        #[test]
        fn agrees_with_a_model_that_forgets_nothing(steps in proptest::collection::vec(step(), 1..80)) {
            let mut log = LogState { epoch: "e0".to_owned(), last: id(0, 0), trimmed: id(0, 0) };
            let (mut held, mut ever): (Vec<EntryId>, Vec<EntryId>) = (vec![], vec![]);
            let mut readers: Vec<(Position, usize, usize)> = vec![];
            let mut incarnation = 0;
            for step in steps {
                match step {
                    Step::Append { same_ms } => {
                        let next = if same_ms && log.last.ms > 0 { id(log.last.ms, log.last.n + 1) } else { id(log.last.ms + 1, 0) };
                        log.last = next;
                        held.push(next);
                        ever.push(next);
                    }
                    Step::Trim { keep } => {
                        if held.len() > keep {
                            let dropped = held.len() - keep;
                            log.trimmed = held[dropped - 1];
                            held.drain(..dropped);
                        }
                    }
                    Step::Lose => {
                        incarnation += 1;
                        log = LogState { epoch: format!("e{incarnation}"), last: id(0, 0), trimmed: id(0, 0) };
                        held.clear();
                        ever.clear();
                    }
                    Step::Remember => readers.push((log.head(), incarnation, ever.len())),
                }
                for (position, born_in, seen) in &readers {
                    let decided = decide(position, &log);
                    if *born_in != incarnation {
                        prop_assert_eq!(decided, Resume::Resync(ResyncReason::Lost));
                        continue;
                    }
                    let unseen = &ever[*seen..];
                    let all_held = unseen.iter().all(|entry| held.contains(entry));
                    prop_assert_eq!(decided == Resume::After(position.entry), all_held);
                    if all_held {
                        let read: Vec<_> = held.iter().copied().filter(|entry| *entry > position.entry).collect();
                        prop_assert_eq!(read.as_slice(), unseen);
                    }
                }
            }
        }
    }
}
