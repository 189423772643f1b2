//! What clients saw while harm was done, and the proof that no promise was broken by it: the invariant that broke is named, and where.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Mutex;
use std::time::Instant;

use serde_json::Value;
use sqlx::Row as _;

use crate::harness::{Client, TestDatabase};

/// A send that was answered with a message.
#[derive(Clone, Debug)]
pub struct Answered {
    pub conversation: String,
    pub seq: u64,
    pub id: String,
    /// The level that the answer named: `accepted`, `replicated`, `archived`.
    pub level: String,
    pub at: Instant,
}

/// What a stream told from one `resync` to the next.
#[derive(Debug, Default)]
pub struct Part {
    /// Conversation → its head when the list was read after the `resync` that began this part: up to there a client has read it.
    read_to: BTreeMap<String, u64>,
    /// Conversation → seqs in the order told.
    seqs: BTreeMap<String, Vec<u64>>,
}

/// What somebody who listens was told.
#[derive(Debug)]
pub struct Told {
    parts: Vec<Part>,
    pub resyncs: Vec<Instant>,
    pub events: usize,
}

impl Default for Told {
    fn default() -> Self {
        Self { parts: vec![Part::default()], resyncs: Vec::new(), events: 0 }
    }
}

impl Told {
    /// A `resync` came.
    pub fn resync(&mut self) {
        self.resyncs.push(Instant::now());
        self.parts.push(Part::default());
    }

    /// A message came.
    pub fn message(&mut self, conversation: &str, seq: u64) {
        let part = self.parts.last_mut().unwrap();
        part.seqs.entry(conversation.to_owned()).or_default().push(seq);
    }

    /// What the list said that was read after the `resync` of this number, from 1.
    pub fn read(&mut self, resyncs: usize, heads: impl Iterator<Item = (String, u64)>) {
        self.parts[resyncs].read_to.extend(heads);
    }

    /// What is known of a conversation by now.
    pub fn known_to(&self, conversation: &str) -> Option<u64> {
        let part = self.parts.last().unwrap();
        let heard = part.seqs.get(conversation).and_then(|seqs| seqs.last()).copied();
        heard.max(part.read_to.get(conversation).copied())
    }
}

/// What a conversation is in the end.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    pub messages: BTreeMap<u64, String>,
    pub voids: Vec<(u64, u64)>,
}

impl Kept {
    /// As history shows it.
    pub async fn read(client: &Client, conversation: &str) -> Self {
        let mut kept = Self::default();
        loop {
            let after = kept.messages.keys().next_back().copied().unwrap_or(0);
            let page = client.history(conversation, &format!("after={after}&limit=200")).await.expect(200);
            // A page tells the voids among its messages and beside them.
            let pairs = page.json["voids"].as_array().unwrap().iter().map(|v| (v[0].as_u64().unwrap(), v[1].as_u64().unwrap()));
            kept.voids.extend(pairs);
            let place = |message: &Value| (message["seq"].as_u64().unwrap(), message["id"].as_str().unwrap().to_owned());
            kept.messages.extend(page.items().iter().map(place));
            if page.json["has_more_after"] != true {
                return kept;
            }
        }
    }

    fn is_void(&self, seq: u64) -> bool {
        self.voids.iter().any(|(from, to)| (from..=to).contains(&&seq))
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The invariant's name in the design, `I1` to `I8`.
    pub invariant: &'static str,
    /// The conversation, and what is wrong in it.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

/// Everything that anybody was told.
#[derive(Debug, Default)]
pub struct Trace {
    names: Mutex<HashMap<(String, u64), String>>,
    broken: Mutex<Vec<Broken>>,
    answered: Mutex<Vec<Answered>>,
}

impl Trace {
    fn break_(&self, invariant: &'static str, what: String) {
        self.broken.lock().unwrap().push(Broken { invariant, what });
    }

    /// Somebody was told that this number names this message.
    pub fn note(&self, conversation: &str, seq: u64, id: &str) {
        let mut names = self.names.lock().unwrap();
        let known = names.entry((conversation.to_owned(), seq)).or_insert_with(|| id.to_owned());
        if known != id {
            let what = format!("{seq} of {conversation} names {known} and {id}");
            self.break_("I1", what);
        }
    }

    /// A send was answered.
    pub fn answer(&self, answered: Answered) {
        self.note(&answered.conversation, answered.seq, &answered.id);
        self.answered.lock().unwrap().push(answered);
    }

    /// All answers so far.
    pub fn answered(&self) -> Vec<Answered> {
        self.answered.lock().unwrap().clone()
    }

    /// Holds what was told against what a conversation is in the end.
    pub fn compare(&self, conversation: &str, kept: &Kept, listeners: &[(&str, &Told)]) {
        for (seq, id) in &kept.messages {
            self.note(conversation, *seq, id);
        }
        let mut next = 1;
        for seq in kept.messages.keys() {
            if let Some(hole) = (next..*seq).find(|seq| !kept.is_void(*seq)) {
                self.break_("I1", format!("{hole} of {conversation} is neither a message nor void"));
            }
            next = seq + 1;
        }
        let ids: BTreeSet<&str> = kept.messages.values().map(String::as_str).collect();
        if ids.len() != kept.messages.len() {
            self.break_("I2", format!("a message stands twice in {conversation}"));
        }
        for one in self.answered().iter().filter(|one| one.conversation == conversation) {
            if ids.contains(&*one.id) {
                continue;
            }
            if one.level != "accepted" {
                self.break_("I6", format!("{} of {conversation} was answered '{}' and is gone", one.seq, one.level));
            } else if !kept.is_void(one.seq) {
                self.break_("I1", format!("{} of {conversation} is gone and not void", one.seq));
            } else if let Some((who, _)) = listeners.iter().find(|(_, told)| told.resyncs.is_empty()) {
                self.break_("I4", format!("{} of {conversation} is gone and {who} was told nothing", one.seq));
            }
        }
        for (who, told) in listeners {
            for part in &told.parts {
                let read_to = part.read_to.get(conversation).copied().unwrap_or(0);
                let mut seqs = part.seqs.get(conversation).into_iter().flatten().copied();
                let Some(mut one) = seqs.next() else { continue };
                for then in seqs {
                    if one == then {
                        self.break_("I3", format!("{who} heard {one} of {conversation} twice"));
                    } else if one > then {
                        self.break_("I3", format!("{who} heard {then} of {conversation} after {one}"));
                    } else if let Some((gap, _)) = kept.messages.range(one + 1..then).find(|(gap, _)| **gap > read_to) {
                        self.break_("I4", format!("{who} heard {then} of {conversation} after {one}, and never {gap}"));
                    }
                    one = then;
                }
            }
            let (last, head) = (told.known_to(conversation), kept.messages.keys().next_back().copied());
            if last < head {
                self.break_("I4", format!("{who} knows {conversation} up to {last:?} only, and it goes to {head:?}"));
            }
        }
    }

    /// What Postgres names.
    pub async fn note_archive(&self, database: &TestDatabase) {
        let rows = sqlx::query("SELECT conv_id, seq, id::text FROM messages").fetch_all(&mut database.connect().await).await.unwrap();
        for row in rows {
            self.note(&row.get::<String, _>(0), u64::try_from(row.get::<i64, _>(1)).unwrap(), &row.get::<String, _>(2));
        }
    }

    /// What was found to be broken so far.
    pub fn broken(&self) -> Vec<Broken> {
        self.broken.lock().unwrap().clone()
    }

    /// Fails the test when anything was broken.
    #[track_caller]
    pub fn assert_whole(&self) {
        let broken = self.broken();
        let lines: Vec<String> = broken.iter().take(20).map(ToString::to_string).collect();
        assert!(broken.is_empty(), "{} promises broken:\n{}", broken.len(), lines.join("\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: &str = "group:1";

    fn kept(seqs: &[u64], voids: &[(u64, u64)]) -> Kept {
        Kept { messages: seqs.iter().map(|seq| (*seq, format!("m{seq}"))).collect(), voids: voids.to_vec() }
    }

    fn told(parts: &[&[u64]]) -> Told {
        let mut told = Told::default();
        for (number, part) in parts.iter().enumerate() {
            if number > 0 {
                told.resync();
            }
            part.iter().for_each(|seq| told.message(G, *seq));
        }
        told
    }

    fn answered(seq: u64, level: &str) -> Answered {
        Answered { conversation: G.into(), seq, id: format!("m{seq}"), level: level.into(), at: Instant::now() }
    }

    fn found(kept: &Kept, told: &Told, answers: &[Answered]) -> Vec<&'static str> {
        let trace = Trace::default();
        answers.iter().for_each(|one| trace.answer(one.clone()));
        trace.compare(G, kept, &[("bob", told)]);
        trace.broken().iter().map(|broken| broken.invariant).collect()
    }

    #[test]
    fn what_is_whole_is_not_complained_of() {
        assert!(
            found(&kept(&[1, 2, 5], &[(3, 4)]), &told(&[&[1, 2], &[5]]), &[answered(2, "archived"), answered(4, "accepted")]).is_empty()
        );
        assert!(found(&kept(&[1, 2, 3], &[]), &told(&[&[1], &[3]]), &[]).is_empty(), "what a resync passed over is read elsewhere");
        let mut late = told(&[&[1], &[1, 3]]);
        late.read(1, [(G.to_owned(), 2)].into_iter());
        assert!(found(&kept(&[1, 2, 3], &[]), &late, &[]).is_empty(), "so is what stood when the list was read");
    }

    #[test]
    fn each_broken_promise_is_named() {
        let whole = kept(&[1, 2, 3], &[]);
        assert_eq!(found(&kept(&[1, 3], &[]), &told(&[&[1, 3]]), &[]), ["I1"], "a hole");
        assert_eq!(
            found(&whole, &told(&[&[1, 2, 3]]), &[Answered { id: "other".into(), ..answered(2, "accepted") }]),
            ["I1", "I1"],
            "two names"
        );
        assert_eq!(found(&whole, &told(&[&[1, 2, 2, 3]]), &[]), ["I3"], "twice");
        assert_eq!(found(&whole, &told(&[&[2, 1, 2, 3]]), &[]), ["I3"], "out of order");
        assert_eq!(found(&whole, &told(&[&[1, 3]]), &[]), ["I4"], "a gap");
        assert_eq!(found(&whole, &told(&[&[1, 2]]), &[]), ["I4"], "an end too early");
        let lossy = kept(&[1, 3], &[(2, 2)]);
        assert_eq!(found(&lossy, &told(&[&[1, 3]]), &[answered(2, "accepted")]), ["I4"], "nobody was told");
        assert_eq!(found(&lossy, &told(&[&[1], &[3]]), &[answered(2, "archived")]), ["I6"], "archived and gone");
        let doubled = Kept { messages: BTreeMap::from([(1, "m1".into()), (2, "m1".into())]), voids: vec![] };
        assert_eq!(found(&doubled, &told(&[&[1, 2]]), &[]), ["I2"], "a message twice");
    }
}
