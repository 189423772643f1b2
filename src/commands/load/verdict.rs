//! What a run must have shown, and whether it did: every acknowledged message on every listening member's stream, once, in order, in time.
//!
//! A delivery is judged as it arrives, so that a run costs memory per message and not per delivery. Two kinds of records:
//! [`Ledger`], one for each conversation, shared by senders and readers: which message stands on which number, and when its sender was answered;
//! [`Line`], one for each conversation on each stream: which numbers have come by. After the run [`judge`] lays both beside the history.

use std::collections::HashMap;

use serde::Serialize;

/// Most faults that a verdict describes in words; all are counted.
const EXAMPLES_MAX: usize = 12;

/// Numbers that have come by, as closed ranges in ascending order. Healthy streams hold one range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Adds one number; `false` when it was there.
    pub fn insert(&mut self, n: u64) -> bool {
        let at = self.0.partition_point(|&(_, to)| to < n);
        if self.0.get(at).is_some_and(|&(from, _)| from <= n) {
            return false;
        }
        let joins_left = at > 0 && self.0[at - 1].1 + 1 == n;
        let joins_right = self.0.get(at).is_some_and(|&(from, _)| from == n + 1);
        match (joins_left, joins_right) {
            (true, true) => {
                self.0[at - 1].1 = self.0[at].1;
                self.0.remove(at);
            }
            (true, false) => self.0[at - 1].1 = n,
            (false, true) => self.0[at].0 = n,
            (false, false) => self.0.insert(at, (n, n)),
        }
        true
    }

    /// Whether the number is there.
    #[must_use]
    pub fn contains(&self, n: u64) -> bool {
        let at = self.0.partition_point(|&(_, to)| to < n);
        self.0.get(at).is_some_and(|&(from, _)| from <= n)
    }

    /// The highest number, or 0.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.0.last().map_or(0, |&(_, to)| to)
    }
}

/// What one stream showed of one conversation.
#[derive(Clone, Debug, Default)]
pub struct Line {
    seen: Ranges,
    /// Numbers read from history after a `resync`: the stream may show them once more, which is no fault.
    caught_up: Ranges,
    doubled: Vec<u64>,
    out_of_order: Vec<u64>,
}

impl Line {
    /// The stream showed the message on `seq`. `true` when it is new to this reader.
    pub fn show(&mut self, seq: u64) -> bool {
        let highest = self.seen.highest();
        if self.seen.insert(seq) {
            if seq < highest {
                self.out_of_order.push(seq);
            }
            return true;
        }
        if !self.caught_up.contains(seq) {
            self.doubled.push(seq);
        }
        false
    }

    /// The reader was told to `resync` and found `seq` in the history.
    pub fn catch_up(&mut self, seq: u64) {
        if self.seen.insert(seq) {
            self.caught_up.insert(seq);
        }
    }

    /// The numbers seen so far.
    #[must_use]
    pub fn seen(&self) -> &Ranges {
        &self.seen
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u128,
    /// Microseconds since the start of the run at which the sender had its answer.
    answered_us: Option<u64>,
}

/// Which message stands on which number of one conversation, as senders and readers were told.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: HashMap<u64, Entry>,
    /// Numbers on which two different messages were seen.
    clashes: Vec<u64>,
    /// Last number answered to each sender: a sender who waits for each answer must see its numbers rise.
    last_of: HashMap<usize, u64>,
    fell: Vec<u64>,
    late: u64,
    late_worst: Option<(u64, u64)>,
}

impl Ledger {
    /// A send of `sender` was answered with this number and message id.
    pub fn answered(&mut self, sender: usize, seq: u64, id: u128, at_us: u64) {
        self.know(seq, id);
        if let Some(entry) = self.entries.get_mut(&seq) {
            entry.answered_us.get_or_insert(at_us);
        }
        let last = self.last_of.entry(sender).or_default();
        if seq <= *last {
            self.fell.push(seq);
        }
        *last = (*last).max(seq);
    }

    /// A stream showed the message. Gives how long after its answer that was, in microseconds: 0 when the stream was faster than the answer.
    /// Time before `connected_us`, when the reader was not there, does not count.
    pub fn shown(&mut self, seq: u64, id: u128, at_us: u64, connected_us: u64, late_us: u64) -> u64 {
        self.know(seq, id);
        let Some(answered) = self.entries.get(&seq).and_then(|entry| entry.answered_us) else { return 0 };
        let took = at_us.saturating_sub(answered.max(connected_us));
        if took > late_us {
            self.late += 1;
            if self.late_worst.is_none_or(|(_, worst)| took > worst) {
                self.late_worst = Some((seq, took));
            }
        }
        took
    }

    fn know(&mut self, seq: u64, id: u128) {
        let known = self.entries.entry(seq).or_insert(Entry { id, answered_us: None });
        if known.id != id {
            self.clashes.push(seq);
        }
    }
}

/// One message as the history tells it.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its number.
    pub seq: u64,
    /// Its id.
    pub id: u128,
    /// The sender and the sender's key; `None` for messages of kind `system`.
    pub key: Option<(String, String)>,
}

/// A conversation's whole history as read at the end of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Ascending, as the pages gave them.
    pub messages: Vec<Recorded>,
    /// Ranges that will never hold a message.
    pub voids: Vec<(u64, u64)>,
    /// The last number given out.
    pub head_seq: u64,
}

impl History {
    fn is_void(&self, seq: u64) -> bool {
        self.voids.iter().any(|&(from, to)| (from..=to).contains(&seq))
    }

    /// Whether a stream that saw these numbers has seen all of it.
    #[must_use]
    pub fn is_covered_by(&self, seen: &Ranges) -> bool {
        self.messages.iter().all(|message| seen.contains(message.seq))
    }
}

/// The outcome of a run. Everything but `resyncs` must be 0.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Verdict {
    /// Whether all counts of faults are 0.
    pub good: bool,
    /// Messages that a listening member or the history should have had and had not.
    pub lost: u64,
    /// Messages shown twice to a reader, or stored twice for one key, and numbers that two messages share.
    pub doubled: u64,
    /// Messages shown after a later one, and answers whose numbers fell.
    pub out_of_order: u64,
    /// Deliveries that took longer than the limit although the reader was connected.
    pub late: u64,
    /// Messages whose sender never got a positive answer.
    pub unsent: u64,
    /// Streams that did not open, or ended without need.
    pub broken_streams: u64,
    /// Some of the faults in words.
    pub examples: Vec<String>,
}

impl Verdict {
    fn tell(&mut self, text: impl FnOnce() -> String) {
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(text());
        }
    }

    /// Counts messages that no gateway would take.
    pub fn count_unsent(&mut self, unsent: u64, why: Option<&str>) {
        self.unsent += unsent;
        if unsent > 0 {
            self.tell(|| format!("{unsent} messages were not taken: {}", why.unwrap_or("no answer")));
        }
    }

    /// Counts streams that were not there when they should have been.
    pub fn count_broken_streams(&mut self, broken: u64, why: &str) {
        self.broken_streams += broken;
        if broken > 0 {
            self.tell(|| format!("{broken} streams were not open: {why}"));
        }
    }

    /// Counts messages that were given another number after the fact: the last guard had to act.
    pub fn count_resequenced(&mut self, resequenced: u64) {
        self.doubled += resequenced;
        if resequenced > 0 {
            self.tell(|| format!("{resequenced} times a reader was told that a message had to be numbered anew"));
        }
    }

    /// Draws the conclusion.
    #[must_use]
    pub fn close(mut self) -> Self {
        self.good =
            [self.lost, self.doubled, self.out_of_order, self.late, self.unsent, self.broken_streams].iter().all(|count| *count == 0);
        self
    }
}

/// Judges one conversation: its ledger against its history, and each listening member's line against both.
pub fn judge(verdict: &mut Verdict, name: &str, ledger: &Ledger, history: &History, lines: &[(&str, &Line)]) {
    judge_history(verdict, name, ledger, history);
    for seq in &ledger.clashes {
        verdict.doubled += 1;
        verdict.tell(|| format!("{name}: two messages on number {seq}"));
    }
    for seq in &ledger.fell {
        verdict.out_of_order += 1;
        verdict.tell(|| format!("{name}: number {seq} was answered to a sender after a higher one"));
    }
    verdict.late += ledger.late;
    if let Some((seq, took)) = ledger.late_worst {
        verdict.tell(|| format!("{name}: {} late, the worst is number {seq} after {} ms", ledger.late, took / 1000));
    }
    for (member, line) in lines {
        for seq in &line.doubled {
            verdict.doubled += 1;
            verdict.tell(|| format!("{name}: {member} got number {seq} twice"));
        }
        for seq in &line.out_of_order {
            verdict.out_of_order += 1;
            verdict.tell(|| format!("{name}: {member} got number {seq} after a higher one"));
        }
        for message in &history.messages {
            if !line.seen.contains(message.seq) {
                verdict.lost += 1;
                verdict.tell(|| format!("{name}: {member} never got number {}", message.seq));
            }
        }
    }
}

fn judge_history(verdict: &mut Verdict, name: &str, ledger: &Ledger, history: &History) {
    let mut at = HashMap::with_capacity(history.messages.len());
    let mut keys = HashMap::with_capacity(history.messages.len());
    let mut expected = 1;
    for message in &history.messages {
        if at.insert(message.seq, message.id).is_some() {
            verdict.doubled += 1;
            verdict.tell(|| format!("{name}: the history shows number {} twice", message.seq));
            continue;
        }
        if message.seq < expected {
            verdict.out_of_order += 1;
            verdict.tell(|| format!("{name}: the history shows number {} after a higher one", message.seq));
        }
        expected = expected.max(message.seq + 1);
        if let Some(key) = &message.key
            && let Some(first) = keys.insert(key, message.seq)
        {
            verdict.doubled += 1;
            verdict.tell(|| format!("{name}: one send of {} stands on the numbers {first} and {}", key.0, message.seq));
        }
    }
    // Answered numbers count up to the highest that anybody named, even if the history forgets the end.
    let highest = ledger.entries.keys().copied().max().unwrap_or(0).max(history.head_seq);
    for seq in 1..=highest {
        match (at.get(&seq), ledger.entries.get(&seq)) {
            (Some(id), Some(entry)) if *id != entry.id => {
                verdict.doubled += 1;
                verdict.tell(|| format!("{name}: number {seq} is another message in the history than it was when answered or shown"));
            }
            (None, known) if known.is_some() || !history.is_void(seq) => {
                verdict.lost += 1;
                verdict.tell(|| format!("{name}: number {seq} is missing in the history"));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays a trace: `answered` are the numbers acknowledged, `shown` what one stream showed, `stored` the history. Ids equal numbers.
    fn play(answered: &[u64], shown: &[u64], stored: &[u64], voids: &[(u64, u64)]) -> Verdict {
        let mut ledger = Ledger::default();
        let mut line = Line::default();
        for (sender, seq) in answered.iter().enumerate() {
            ledger.answered(sender, *seq, u128::from(*seq), 0);
        }
        for seq in shown {
            line.show(*seq);
            ledger.shown(*seq, u128::from(*seq), 1_000, 0, 5_000);
        }
        let history = History {
            messages: stored.iter().map(|s| recorded(*s, *s)).collect(),
            voids: voids.to_vec(),
            head_seq: stored.iter().copied().max().unwrap_or(0),
        };
        let mut verdict = Verdict::default();
        judge(&mut verdict, "chat", &ledger, &history, &[("ann", &line)]);
        verdict.close()
    }

    fn recorded(seq: u64, key: u64) -> Recorded {
        Recorded { seq, id: u128::from(seq), key: Some(("ann".into(), key.to_string())) }
    }

    fn check(v: &Verdict, lost: u64, doubled: u64, out_of_order: u64, late: u64) {
        assert_eq!((v.lost, v.doubled, v.out_of_order, v.late), (lost, doubled, out_of_order, late), "{:?}", v.examples);
        assert_eq!(v.good, lost + doubled + out_of_order + late == 0);
        assert_eq!(v.examples.is_empty(), v.good);
    }

    #[test]
    fn a_whole_trace_is_good() {
        check(&play(&[1, 2, 3], &[1, 2, 3], &[1, 2, 3], &[]), 0, 0, 0, 0);
        check(&play(&[], &[], &[], &[]), 0, 0, 0, 0);
    }

    #[test]
    fn a_message_that_a_stream_never_showed_is_lost() {
        check(&play(&[1, 2, 3], &[1, 3], &[1, 2, 3], &[]), 1, 0, 0, 0);
        check(&play(&[1, 2, 3], &[1, 2], &[1, 2, 3], &[]), 1, 0, 0, 0);
    }

    #[test]
    fn a_message_that_the_history_forgot_is_lost() {
        check(&play(&[1, 2, 3], &[1, 2, 3], &[1, 3], &[]), 1, 0, 0, 0);
        check(&play(&[1, 2, 3], &[1, 2, 3], &[1, 2], &[]), 1, 0, 0, 0);
    }

    #[test]
    fn a_hole_in_the_numbers_is_a_loss_unless_it_is_void() {
        check(&play(&[1, 4], &[1, 4], &[1, 4], &[]), 2, 0, 0, 0);
        check(&play(&[1, 4], &[1, 4], &[1, 4], &[(2, 3)]), 0, 0, 0, 0);
    }

    #[test]
    fn an_acknowledged_message_is_not_excused_by_a_void() {
        check(&play(&[1, 2, 3], &[1, 3], &[1, 3], &[(2, 2)]), 1, 0, 0, 0);
    }

    #[test]
    fn a_message_shown_twice_is_doubled() {
        check(&play(&[1, 2], &[1, 2, 2], &[1, 2], &[]), 0, 1, 0, 0);
        check(&play(&[1, 2], &[1, 2, 1], &[1, 2], &[]), 0, 1, 0, 0);
    }

    #[test]
    fn a_message_shown_after_a_later_one_is_out_of_order() {
        check(&play(&[1, 2, 3], &[1, 3, 2], &[1, 2, 3], &[]), 0, 0, 1, 0);
    }

    #[test]
    fn a_history_out_of_order_or_doubled_is_told() {
        check(&play(&[1, 2, 3], &[1, 2, 3], &[1, 3, 2], &[]), 0, 0, 1, 0);
        check(&play(&[1, 2], &[1, 2], &[1, 2, 2], &[]), 0, 1, 0, 0);
    }

    #[test]
    fn two_messages_on_one_number_are_doubled() {
        let (mut ledger, mut verdict) = (Ledger::default(), Verdict::default());
        ledger.answered(0, 1, 70, 0);
        ledger.answered(1, 1, 71, 0);
        let history = History { messages: vec![Recorded { seq: 1, id: 70, key: None }], voids: vec![], head_seq: 1 };
        judge(&mut verdict, "chat", &ledger, &history, &[]);
        check(&verdict.close(), 0, 1, 0, 0);
    }

    #[test]
    fn one_key_on_two_numbers_is_doubled() {
        let (mut ledger, mut verdict) = (Ledger::default(), Verdict::default());
        ledger.answered(0, 2, 2, 0);
        let history = History { messages: vec![recorded(1, 9), recorded(2, 9)], voids: vec![], head_seq: 2 };
        judge(&mut verdict, "chat", &ledger, &history, &[]);
        check(&verdict.close(), 0, 1, 0, 0);
    }

    #[test]
    fn numbers_that_fall_for_one_sender_are_out_of_order() {
        let (mut ledger, mut verdict) = (Ledger::default(), Verdict::default());
        ledger.answered(0, 2, 2, 0);
        ledger.answered(0, 1, 1, 0);
        let history = History { messages: vec![recorded(1, 1), recorded(2, 2)], voids: vec![], head_seq: 2 };
        judge(&mut verdict, "chat", &ledger, &history, &[]);
        check(&verdict.close(), 0, 0, 1, 0);
    }

    #[test]
    fn late_is_counted_from_the_answer_and_only_while_connected() {
        let mut ledger = Ledger::default();
        for seq in 1..=4 {
            ledger.answered(0, seq, u128::from(seq), 1_000);
        }
        assert_eq!(ledger.shown(1, 1, 500, 0, 5_000), 0, "the stream was faster than the answer");
        assert_eq!(ledger.shown(2, 2, 6_000, 0, 5_000), 5_000, "at the limit is in time");
        assert_eq!(ledger.shown(3, 3, 60_000, 58_000, 5_000), 2_000, "the reader was away");
        assert_eq!(ledger.shown(4, 4, 6_001, 0, 5_000), 5_001);
        let history = History { messages: (1..=4).map(|s| recorded(s, s)).collect(), voids: vec![], head_seq: 4 };
        let mut verdict = Verdict::default();
        judge(&mut verdict, "chat", &ledger, &history, &[]);
        check(&verdict.close(), 0, 0, 0, 1);
    }

    #[test]
    fn what_was_read_after_a_resync_may_come_once_more() {
        let mut line = Line::default();
        line.show(1);
        line.catch_up(1);
        line.catch_up(2);
        line.catch_up(3);
        assert!(!line.show(3));
        assert!(line.show(4));
        assert!(line.doubled.is_empty() && line.out_of_order.is_empty());
        assert!(!line.show(4));
        assert_eq!(line.doubled, [4]);
    }

    #[test]
    fn ranges_agree_with_a_plain_set() {
        let mut ranges = Ranges::default();
        let mut plain = std::collections::BTreeSet::new();
        let mut n: u64 = 7;
        for _ in 0..2_000 {
            n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = (n >> 33) % 600;
            assert_eq!(ranges.insert(value), plain.insert(value));
        }
        assert!((0..600).all(|value| ranges.contains(value) == plain.contains(&value)));
        assert_eq!(ranges.highest(), plain.last().copied().unwrap_or(0));
        assert!(ranges.0.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
    }

    #[test]
    fn unsent_messages_and_broken_streams_are_faults() {
        let mut verdict = Verdict::default();
        verdict.count_unsent(2, Some("503"));
        assert!(!verdict.close().good);
        let mut verdict = Verdict::default();
        verdict.count_broken_streams(1, "refused");
        assert!(!verdict.close().good);
        assert!(Verdict::default().close().good);
    }
}
