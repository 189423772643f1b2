//! Tells the members of a large conversation how far the others have read: of each reader the latest place, at most once a second for a
//! conversation, to open streams alone.
//!
//! Nothing here holds up the line of dispatch: one task tells while the next places gather, bounded by readers and conversations. What a
//! worker takes with it when it dies is told by the next reading.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::recipients::Recipients;
use crate::actions::Stores;
use crate::actions::tell_streams::tell_streams;
use crate::domain::event::{EventType, Pointer};
use crate::domain::ids::{ConversationId, Millis, Rev, UserId};
use crate::redis::outbox::{LIVE_MARK, OutboxEntry};

/// Between two events of one conversation.
const BETWEEN: Duration = Duration::from_secs(1);
/// Before the next look while a task is telling.
const WHILE_TELLING: Duration = Duration::from_millis(20);
/// Places in one event at most; further ones go with the next.
const PLACES_MAX: usize = 100;
/// Readers of one conversation whose places wait at most.
const READERS_MAX: usize = 1_000;
/// Conversations of one shard that wait at most.
const CONVERSATIONS_MAX: usize = 1_000;
/// Conversations that are told of at a time.
const TELLS_AT_ONCE: usize = 4;

/// The places that wait to be told, of one shard.
#[derive(Debug, Default)]
pub(super) struct LiveReads {
    waiting: BTreeMap<ConversationId, Waiting>,
    noted: u64,
    telling: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Waiting {
    /// Of the last reading.
    rev: Rev,
    at: Millis,
    /// Of the last entry, whatever it was about: who has left by then is not told.
    seen_rev: Rev,
    members_version: u64,
    /// Reader, how many were noted before, and the facts of `read.advanced`.
    places: BTreeMap<String, (u64, Value)>,
    not_before: Instant,
}

/// One event, and at what point of the conversation its readers are looked up.
#[derive(Debug)]
struct Tell {
    event: Pointer,
    seen_rev: Rev,
    members_version: u64,
    /// The reader, if it is one alone: the own devices have it from the log.
    alone: Option<String>,
}

impl LiveReads {
    /// Takes what an entry says about reading, if the others get it live only.
    pub(super) fn note(&mut self, entry: &OutboxEntry, now: Instant) {
        let place = place_of(entry);
        if place.is_none() && !self.waiting.contains_key(&entry.conversation) {
            return;
        }
        if self.waiting.len() >= CONVERSATIONS_MAX && !self.waiting.contains_key(&entry.conversation) {
            return;
        }
        let waiting = self.waiting.entry(entry.conversation.clone()).or_insert_with(|| Waiting {
            rev: 0,
            at: 0,
            seen_rev: 0,
            members_version: 0,
            places: BTreeMap::new(),
            not_before: now,
        });
        waiting.seen_rev = waiting.seen_rev.max(entry.rev);
        waiting.members_version = waiting.members_version.max(entry.members_version);
        if let Some((reader, place)) = place
            && (waiting.places.len() < READERS_MAX || waiting.places.contains_key(reader))
        {
            self.noted += 1;
            waiting.places.insert(reader.to_owned(), (self.noted, place.clone()));
            waiting.rev = waiting.rev.max(entry.rev);
            waiting.at = entry.at;
        }
    }

    /// In how long something is to be told; `None` while nothing waits.
    pub(super) fn due_in(&self, now: Instant) -> Option<Duration> {
        let next = self.waiting.values().filter(|waiting| !waiting.places.is_empty()).map(|waiting| waiting.not_before).min()?;
        let due_in = next.saturating_duration_since(now);
        Some(if self.is_telling() { due_in.max(WHILE_TELLING) } else { due_in })
    }

    /// Begins to tell what is due, unless the last round has not ended yet.
    pub(super) fn tell_due(&mut self, stores: &Arc<Stores>, recipients: &Arc<Recipients>, now: Instant) {
        if self.is_telling() {
            return;
        }
        let tells = self.take_due(now);
        if tells.is_empty() {
            return;
        }
        let (stores, recipients) = (Arc::clone(stores), Arc::clone(recipients));
        self.telling = Some(tokio::spawn(async move {
            let each = tells.into_iter().map(|one| tell(Arc::clone(&stores), Arc::clone(&recipients), one));
            futures_util::stream::iter(each).buffer_unordered(TELLS_AT_ONCE).collect::<Vec<()>>().await;
        }));
    }

    fn is_telling(&self) -> bool {
        self.telling.as_ref().is_some_and(|task| !task.is_finished())
    }

    fn take_due(&mut self, now: Instant) -> Vec<Tell> {
        self.waiting.retain(|_, waiting| !waiting.places.is_empty() || waiting.not_before > now);
        let due = self.waiting.iter_mut().filter(|(_, waiting)| !waiting.places.is_empty() && waiting.not_before <= now);
        due.map(|(conversation, waiting)| {
            waiting.not_before = now + BETWEEN;
            waiting.take(conversation)
        })
        .collect()
    }
}

impl Waiting {
    /// The places that have waited longest as one event, in the order in which they were reached.
    fn take(&mut self, conversation: &ConversationId) -> Tell {
        let mut places: Vec<(String, (u64, Value))> = std::mem::take(&mut self.places).into_iter().collect();
        places.sort_unstable_by_key(|(_, (noted, _))| *noted);
        if places.len() > PLACES_MAX {
            self.places.extend(places.split_off(PLACES_MAX));
        }
        let alone = if places.len() == 1 { places.first().map(|(reader, _)| reader.clone()) } else { None };
        // The last mover's facts, as in a conversation of few, and beside them everybody's.
        let mut data = places.last().map_or(Value::Null, |(_, (_, facts))| facts.clone());
        if let Value::Object(facts) = &mut data {
            facts.insert("positions".to_owned(), places.into_iter().map(|(_, (_, facts))| facts).collect());
        }
        let event = Pointer {
            kind: EventType::ReadAdvanced,
            conversation: conversation.clone(),
            rev: self.rev,
            seq: 0,
            at: self.at,
            data: Some(data.to_string()),
        };
        Tell { event, seen_rev: self.seen_rev, members_version: self.members_version, alone }
    }
}

async fn tell(stores: Arc<Stores>, recipients: Arc<Recipients>, tell: Tell) {
    // Whose membership ends with the very entry that was seen last still gets that one, and nothing after it.
    match recipients.of(&tell.event.conversation, tell.seen_rev + 1, tell.members_version).await {
        Ok(found) => {
            let users: Vec<UserId> =
                found.users.into_iter().filter(|user| tell.alone.as_deref().is_none_or(|reader| reader != user.as_str())).collect();
            tell_streams(&stores, &tell.event, &users).await;
        }
        Err(error) => tracing::debug!(%error, "nobody is told how far the others have read"),
    }
}

/// The reader and the facts, of an entry whose reading the others get live only.
fn place_of(entry: &OutboxEntry) -> Option<(&str, &Value)> {
    let code = EventType::ReadAdvanced.code();
    let events = &entry.change.events;
    events.iter().find(|event| event.t.strip_suffix(LIVE_MARK) == Some(code))?;
    let facts = events.iter().find(|event| event.t == code)?.d.as_ref()?;
    Some((facts.get("user_id")?.as_str()?, facts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::outbox::OutboxId;
    use crate::redis::stored_form::{Audience, Change, StoredEvent};
    use serde_json::json;

    fn entry(rev: Rev, members_version: u64, reading: Option<(&str, u64)>) -> OutboxEntry {
        let events = reading.map_or_else(Vec::new, |(reader, seq)| {
            let named = vec![reader.to_owned()];
            vec![
                StoredEvent { t: format!("ra{LIVE_MARK}"), to: Audience::Except(named.clone()), d: None },
                StoredEvent::new(EventType::ReadAdvanced, Audience::Only(named), Some(json!({"user_id": reader, "read_seq": seq}))),
            ]
        });
        OutboxEntry {
            id: OutboxId { epoch: 0, n: rev },
            conversation: ConversationId::parse("system:news").unwrap(),
            rev,
            members_version,
            at: 1_000,
            message: None,
            change: Change { events, ..Change::default() },
        }
    }

    fn data(tell: &Tell) -> Value {
        serde_json::from_str(tell.event.data.as_deref().unwrap()).unwrap()
    }

    #[test]
    fn the_first_is_told_at_once_and_the_latest_of_each_a_second_later() {
        let (begun, mut reads) = (Instant::now(), LiveReads::default());
        reads.note(&entry(1, 1, None), begun);
        assert_eq!(reads.due_in(begun), None, "nothing was read");
        reads.note(&entry(2, 1, Some(("ann", 1))), begun);
        assert_eq!(reads.due_in(begun), Some(Duration::ZERO));
        let told = reads.take_due(begun).remove(0);
        assert_eq!(data(&told), json!({"user_id": "ann", "read_seq": 1, "positions": [{"user_id": "ann", "read_seq": 1}]}));
        assert_eq!((told.event.rev, told.seen_rev, told.alone.as_deref()), (2, 2, Some("ann")));
        for (rev, reader, seq) in [(3, "ann", 2), (4, "bob", 5), (5, "ann", 7), (6, "cid", 6), (7, "bob", 9)] {
            reads.note(&entry(rev, 1, Some((reader, seq))), begun);
        }
        reads.note(&entry(8, 8, None), begun);
        assert!(reads.take_due(begun).is_empty());
        assert_eq!(reads.due_in(begun), Some(BETWEEN));
        let told = reads.take_due(begun + BETWEEN).remove(0);
        let place = |reader: &str, seq: u64| json!({"user_id": reader, "read_seq": seq});
        assert_eq!(data(&told), json!({"user_id": "bob", "read_seq": 9, "positions": [place("ann", 7), place("cid", 6), place("bob", 9)]}));
        assert_eq!((told.event.rev, told.seen_rev, told.members_version, told.alone), (7, 8, 8, None), "who left meanwhile is seen");
        assert!(reads.take_due(begun + BETWEEN * 3).is_empty() && reads.waiting.is_empty(), "nothing stays");
    }

    #[test]
    fn many_places_are_spread_and_too_many_are_not_kept() {
        let (begun, mut reads) = (Instant::now(), LiveReads::default());
        for n in 0..READERS_MAX as u64 + 50 {
            reads.note(&entry(n + 1, 1, Some((&format!("u{n}"), n))), begun);
        }
        let (mut now, mut seen) = (begun, Vec::new());
        while reads.due_in(begun).is_some() {
            let told = data(&reads.take_due(now).remove(0));
            let places = told["positions"].as_array().unwrap();
            assert!(places.len() <= PLACES_MAX && told["read_seq"] == places.last().unwrap()["read_seq"]);
            seen.extend(places.iter().map(|place| place["read_seq"].as_u64().unwrap()));
            now += BETWEEN;
        }
        assert_eq!(seen, (0..READERS_MAX as u64).collect::<Vec<_>>());
    }
}
