//! Users' logs: what is delivered stands on them once and in order, whatever is repeated, lost or of the wrong type.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use seqline::domain::event::{EventType, Pointer};
use seqline::domain::ids::{ConversationId, Millis, ShardId, UserId};
use seqline::domain::position::{EntryId, Position};
use seqline::redis::ack_cursor::{Acked, ack_cursor, stored_cursor};
use seqline::redis::deliver_events::{Delivery, DeliveryOutcome, IndexChange, deliver_events};
use seqline::redis::event_log::LogBounds;
use seqline::redis::keys::{Keys, delivered_mark};
use seqline::redis::link::{Link, Reply};
use seqline::redis::outbox::OutboxId;
use seqline::redis::read_index::{Listed, read_index};
use seqline::redis::read_log::{LogPage, log_head, read_log};
use seqline::redis::register_streams::{Presence, register_streams};
use seqline::redis::tickets::{TicketClaims, find_ticket, make_ticket};
use seqline::redis::touch_index::touch_index;
use seqline::redis::wake_gateway::{Wake, WakeUp, Woken, probe_wakeups, read_wakeups, wake_gateway};

use crate::harness::{MadeOn, PrivateRedis, RedisKind, eventually_some, on_both};

const KEYS: Keys = Keys { shards: 8, partitions: 16 };
const NOW: Millis = 1_764_500_000_000;
const BOUNDS: LogBounds = LogBounds { entries_max: 10_000, age_max_ms: 7 * 24 * 3_600_000 };

/// A Redis and a way to it.
struct Logs {
    link: Link,
    redis: PrivateRedis,
}

impl MadeOn for Logs {
    async fn made_on(kind: RedisKind) -> Self {
        let redis = PrivateRedis::start(kind).await;
        Self { link: Link::connect(&redis.url(), 5_000).await.unwrap(), redis }
    }
}

impl Logs {
    async fn deliver(&self, deliveries: &[Delivery], now: Millis) -> DeliveryOutcome {
        self.deliver_within(deliveries, now, BOUNDS).await
    }

    async fn deliver_within(&self, deliveries: &[Delivery], now: Millis, bounds: LogBounds) -> DeliveryOutcome {
        deliver_events(&self.link, &KEYS, ShardId(3), deliveries, now, bounds).await
    }

    async fn log(&self, user: &UserId) -> LogPage {
        read_log(&self.link, &KEYS, user, Some(EntryId::default()), 100_000).await.unwrap()
    }

    async fn command(&self, name: &'static str, key: &str, args: &[&str]) -> Reply {
        self.link.command(name, key, args.iter().map(|a| Bytes::copy_from_slice(a.as_bytes())).collect()).await.unwrap()
    }
}

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn users(count: usize) -> Vec<UserId> {
    (0..count).map(|n| user(&format!("user-{n}"))).collect()
}

fn conversation(key: &str) -> ConversationId {
    ConversationId::of_system(key).unwrap()
}

fn delivery(n: u64, recipients: &[UserId]) -> Delivery {
    Delivery {
        outbox_id: OutboxId { epoch: 1, n },
        pointer: Pointer { kind: EventType::MessageCreated, conversation: conversation("order:1"), rev: n, seq: n, at: NOW, data: None },
        recipients: recipients.to_vec(),
        index: IndexChange::Touch,
    }
}

fn run(numbers: std::ops::RangeInclusive<u64>, recipients: &[UserId]) -> Vec<Delivery> {
    numbers.map(|n| delivery(n, recipients)).collect()
}

fn seqs(page: &LogPage) -> Vec<u64> {
    page.entries.iter().map(|entry| entry.pointer.as_ref().unwrap().seq).collect()
}

on_both! {
    async fn each_user_gets_every_entry_once_and_in_order(logs: Logs) {
        let people = users(120);
        let outcome = logs.deliver(&run(1..=30, &people), NOW).await;
        assert!(outcome.error.is_none() && outcome.failed_partitions.is_empty() && outcome.rebuilt.is_empty(), "{outcome:?}");
        assert_eq!(outcome.delivered.len(), 120 * 30);
        let mut places: HashMap<UserId, EntryId> = HashMap::new();
        for delivered in &outcome.delivered {
            let before = places.insert(delivered.user.clone(), delivered.position.entry).unwrap_or_default();
            assert_eq!(delivered.previous, before, "the chain of {:?}", delivered.user);
            assert!(delivered.position.entry > before);
        }
        for person in &people {
            assert_eq!(seqs(&logs.log(person).await), (1..=30).collect::<Vec<_>>());
        }
    }

    async fn a_repeated_delivery_changes_nothing_and_a_longer_one_adds_the_rest(logs: Logs) {
        let people = users(40);
        logs.deliver(&run(1..=10, &people), NOW).await;
        let again = logs.deliver(&run(1..=10, &people), NOW + 5).await;
        assert!(again.delivered.is_empty() && again.error.is_none());
        let more = logs.deliver(&run(8..=12, &people), NOW + 6).await;
        assert_eq!(more.delivered.len(), 40 * 2);
        for person in &people {
            assert_eq!(seqs(&logs.log(person).await), (1..=12).collect::<Vec<_>>());
        }
        // A new epoch of the shard begins at 1 again and is later than everything.
        let mut next = delivery(1, &people);
        next.outbox_id.epoch = 2;
        next.pointer.seq = 77;
        assert_eq!(logs.deliver(&[next], NOW + 7).await.delivered.len(), 40);
        assert_eq!(logs.deliver(&run(1..=99, &people), NOW + 8).await.delivered.len(), 0);
    }

    async fn several_events_of_one_entry_stand_together(logs: Logs) {
        let (ann, bob) = (user("ann"), user("bob"));
        let mut joined = delivery(1, &[ann.clone(), bob.clone()]);
        joined.pointer.kind = EventType::MemberJoined;
        joined.pointer.data = Some(r#"{"user_id":"bob","by":"ann","seq":1}"#.to_owned());
        let shown = delivery(1, &[ann.clone(), bob.clone()]);
        let outcome = logs.deliver(&[joined.clone(), shown.clone()], NOW).await;
        assert_eq!(outcome.delivered.len(), 4);
        let log = logs.log(&bob).await;
        assert_eq!(log.entries.iter().map(|e| e.pointer.clone().unwrap().kind).collect::<Vec<_>>(), [EventType::MemberJoined, EventType::MessageCreated]);
        assert_eq!(log.entries[0].pointer.as_ref().unwrap().data, joined.pointer.data);
        let repeated = logs.deliver(&[joined, shown], NOW).await;
        assert!(repeated.delivered.is_empty());
    }

    async fn entry_ids_never_go_back_with_the_clock(logs: Logs) {
        let ann = user("ann");
        for (n, now) in [(1, NOW), (2, NOW), (3, NOW - 120_000), (4, NOW + 1), (5, NOW)] {
            logs.deliver(&[delivery(n, std::slice::from_ref(&ann))], now).await;
        }
        let log = logs.log(&ann).await;
        let expected = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)].map(|(ms, n)| EntryId { ms: NOW as u64 + ms, n });
        assert_eq!(log.entries.iter().map(|e| e.id).collect::<Vec<_>>(), expected);
        assert_eq!((log.log.last, log.log.trimmed), (expected[4], EntryId::default()));
    }

    async fn more_than_one_call_takes_is_cut_without_loss(logs: Logs) {
        let people = users(3);
        let outcome = logs.deliver(&run(1..=700, &people), NOW).await;
        assert_eq!(outcome.delivered.len(), 2_100);
        let crowd = users(1_000);
        let mut big = delivery(701, &crowd);
        big.index = IndexChange::Leave;
        assert_eq!(logs.deliver(&[big], NOW).await.delivered.len(), 1_000);
        assert_eq!(seqs(&logs.log(&people[1]).await), (1..=701).collect::<Vec<_>>());
    }

    async fn a_full_log_drops_the_oldest_and_remembers_which(logs: Logs) {
        let ann = user("ann");
        let bounds = LogBounds { entries_max: 100, ..BOUNDS };
        for n in 1..=400 {
            logs.deliver_within(&[delivery(n, std::slice::from_ref(&ann))], NOW + n as i64, bounds).await;
        }
        let log = logs.log(&ann).await;
        assert!((100..=164).contains(&log.entries.len()), "{}", log.entries.len());
        let first = log.entries[0].pointer.as_ref().unwrap().seq;
        assert_eq!(log.log.trimmed, EntryId { ms: NOW as u64 + first - 1, n: 0 }, "the last one dropped is the one before the first");
        assert_eq!(seqs(&log), (first..=400).collect::<Vec<_>>());
    }

    async fn what_is_too_old_goes(logs: Logs) {
        let ann = user("ann");
        let bounds = LogBounds { age_max_ms: 3_600_000, ..BOUNDS };
        logs.deliver_within(&run(1..=5, std::slice::from_ref(&ann)), NOW, bounds).await;
        logs.deliver_within(&[delivery(6, std::slice::from_ref(&ann))], NOW + 1_800_000, bounds).await;
        logs.deliver_within(&[delivery(7, std::slice::from_ref(&ann))], NOW + 3_600_001, bounds).await;
        let log = logs.log(&ann).await;
        assert_eq!(seqs(&log), [6, 7]);
        assert_eq!(log.log.trimmed, EntryId { ms: NOW as u64, n: 4 });
        logs.deliver_within(&[delivery(8, std::slice::from_ref(&ann))], NOW + 99_000_000, bounds).await;
        assert_eq!(seqs(&logs.log(&ann).await), [8]);
    }

    async fn a_log_of_the_wrong_type_costs_its_user_alone(logs: Logs) {
        let people = users(20);
        logs.deliver(&run(1..=3, &people), NOW).await;
        let before = log_head(&logs.link, &KEYS, &people[7]).await.unwrap();
        let other = log_head(&logs.link, &KEYS, &people[8]).await.unwrap();
        let broken = KEYS.user(&people[7]);
        logs.command("SET", &broken.log, &[&broken.log, "not a stream"]).await;
        let outcome = logs.deliver(&run(4..=5, &people), NOW + 1).await;
        assert_eq!((outcome.delivered.len(), outcome.rebuilt.as_slice()), (40, &people[7..8]));
        assert!(outcome.failed_users.is_empty() && outcome.failed_partitions.is_empty());
        let after = logs.log(&people[7]).await;
        assert_eq!(seqs(&after), [4, 5]);
        assert_ne!(Some(after.log.epoch), before.epoch, "another log: whoever stood on the old one is told");
        let neighbour = logs.log(&people[8]).await;
        assert_eq!((seqs(&neighbour), Some(neighbour.log.epoch)), (vec![1, 2, 3, 4, 5], other.epoch));

        // The same for what stands beside the log.
        for key in [&KEYS.user(&people[1]).log_info, &KEYS.user(&people[2]).index] {
            logs.command("DEL", key, &[key]).await;
            logs.command("SET", key, &[key, "not what it should be"]).await;
        }
        let outcome = logs.deliver(&run(6..=6, &people), NOW + 2).await;
        assert_eq!((outcome.delivered.len(), outcome.rebuilt.as_slice()), (20, &people[1..2]));
        assert_eq!(seqs(&logs.log(&people[2]).await), (1..=6).collect::<Vec<_>>(), "a broken list does not touch the log");
    }

    async fn a_lost_log_begins_again_with_another_epoch(logs: Logs) {
        let ann = user("ann");
        logs.deliver(&run(1..=3, std::slice::from_ref(&ann)), NOW).await;
        let head = log_head(&logs.link, &KEYS, &ann).await.unwrap();
        assert_eq!(log_head(&logs.link, &KEYS, &ann).await.unwrap(), head, "reading does not change it");
        let of = KEYS.user(&ann);
        logs.command("DEL", &of.log, &[&of.log]).await;
        let born = log_head(&logs.link, &KEYS, &ann).await.unwrap();
        assert!(born.epoch != head.epoch && born.entry == EntryId::default(), "{born}");
        // The facts without the entries, and the entries without the facts.
        logs.deliver(&run(4..=5, std::slice::from_ref(&ann)), NOW + 1).await;
        logs.command("DEL", &of.log_info, &[&of.log_info]).await;
        let outcome = logs.deliver(&run(6..=6, std::slice::from_ref(&ann)), NOW + 2).await;
        assert_eq!(outcome.rebuilt, std::slice::from_ref(&ann));
        let log = logs.log(&ann).await;
        assert!(Some(&log.log.epoch) != born.epoch.as_ref() && seqs(&log) == [6], "{log:?}");
    }

    async fn no_two_users_share_an_epoch(logs: Logs) {
        let people = users(60);
        logs.deliver(&run(1..=1, &people), NOW).await;
        let places = register_streams(&logs.link, &KEYS, "gw", &people, Presence::Look).await.unwrap();
        let epochs: std::collections::HashSet<_> = places.iter().map(|(_, log)| log.epoch.clone()).collect();
        assert_eq!((places.len(), epochs.len()), (60, 60));
        assert!(epochs.iter().all(|e| Position::parse(&format!("{e}.1-1")).is_some()));
    }

    async fn gateways_are_named_while_they_want_to_know(logs: Logs) {
        let (ann, bob) = (user("ann"), user("bob"));
        let both = [ann.clone(), bob.clone()];
        register_streams(&logs.link, &KEYS, "gw-1", &both, Presence::Until(NOW + 1_000)).await.unwrap();
        register_streams(&logs.link, &KEYS, "gw-2", &both[..1], Presence::Until(NOW + 1_000)).await.unwrap();
        register_streams(&logs.link, &KEYS, "gw-3", &both, Presence::Look).await.unwrap();
        let named = |outcome: DeliveryOutcome| -> HashMap<String, Vec<String>> {
            outcome.delivered.into_iter().map(|mut d| { d.gateways.sort(); (d.user.to_string(), d.gateways) }).collect()
        };
        let first = named(logs.deliver(&run(1..=1, &both), NOW).await);
        assert_eq!((first["ann"].join(" "), first["bob"].join(" ")), ("gw-1 gw-2".to_owned(), "gw-1".to_owned()));
        register_streams(&logs.link, &KEYS, "gw-1", &both[..1], Presence::Gone).await.unwrap();
        let second = named(logs.deliver(&run(2..=2, &both), NOW + 1).await);
        assert_eq!((second["ann"].join(" "), second["bob"].join(" ")), ("gw-2".to_owned(), "gw-1".to_owned()));
        let late = named(logs.deliver(&run(3..=3, &both), NOW + 1_000).await);
        assert!(late.values().all(Vec::is_empty), "{late:?}");
    }

    async fn the_mark_belongs_to_one_shard_and_one_partition(logs: Logs) {
        let people = users(30);
        logs.deliver(&run(1..=4, &people), NOW).await;
        let partitions: std::collections::BTreeSet<_> = people.iter().map(|u| KEYS.partition_of(u)).collect();
        for partition in partitions {
            let key = delivered_mark(partition, ShardId(3));
            assert_eq!(logs.command("GET", &key, &[&key]).await.as_str(), Ok("1-4"));
        }
        let other = deliver_events(&logs.link, &KEYS, ShardId(4), &run(1..=2, &people), NOW, BOUNDS).await;
        assert_eq!(other.delivered.len(), 60, "another shard counts by itself");
    }

    async fn logs_are_written_when_redis_is_full(logs: Logs) {
        let ann = user("ann");
        register_streams(&logs.link, &KEYS, "gw", std::slice::from_ref(&ann), Presence::Look).await.unwrap();
        logs.redis.on_every_node(&["CONFIG", "SET", "maxmemory", "1"]).await;
        let outcome = logs.deliver(&run(1..=2, std::slice::from_ref(&ann)), NOW).await;
        assert!(outcome.error.is_none() && outcome.delivered.len() == 2, "{outcome:?}");
        wake_gateway(&logs.link, "gw", &[Wake { pointer: delivery(1, &[]).pointer, message: None, recipients: vec![] }]).await.unwrap();
        assert_eq!(seqs(&logs.log(&ann).await), [1, 2], "and read");
    }

    async fn cursors_only_move_forward_and_within_the_log(logs: Logs) {
        let ann = user("ann");
        logs.deliver(&run(1..=9, std::slice::from_ref(&ann)), NOW).await;
        let head = log_head(&logs.link, &KEYS, &ann).await.unwrap();
        let at = |n: u64| Position { epoch: head.epoch.clone(), entry: EntryId { ms: NOW as u64, n } };
        let ack = async |device: &str, place: Position, now: Millis| ack_cursor(&logs.link, &KEYS, &ann, device, &place, now).await.unwrap();
        let stored = async |device: &str| stored_cursor(&logs.link, &KEYS, &ann, device).await.unwrap();
        assert_eq!(stored("phone").await, None);
        assert_eq!(ack("phone", at(3), NOW).await, Acked::Moved);
        assert_eq!(ack("phone", at(2), NOW).await, Acked::Kept);
        assert_eq!(ack("phone", at(3), NOW).await, Acked::Kept);
        assert_eq!(stored("phone").await, Some(at(3)));
        assert_eq!(ack("phone", at(8), NOW).await, Acked::Moved);
        assert_eq!(ack("phone", at(9), NOW).await, Acked::Future);
        let far = Position { epoch: head.epoch.clone(), entry: EntryId { ms: u64::MAX, n: u64::MAX } };
        assert_eq!(ack("phone", far, NOW).await, Acked::Future);
        assert_eq!(ack("phone", Position { epoch: Some("x".into()), ..at(4) }, NOW).await, Acked::Lost);
        assert_eq!(ack("phone", Position { epoch: None, ..at(4) }, NOW).await, Acked::Lost);
        assert_eq!(stored("phone").await, Some(at(8)));
        // Twenty devices; the longest unused goes.
        for n in 0..19 {
            assert_eq!(ack(&format!("tablet {n} é"), at(1), NOW + 10 + n).await, Acked::Moved);
        }
        assert_eq!(ack("phone", at(8), NOW + 100).await, Acked::Kept);
        assert_eq!(ack("watch", at(1), NOW + 101).await, Acked::Moved);
        assert_eq!(stored("tablet 0 é").await, None);
        assert_eq!((stored("tablet 1 é").await, stored("phone").await, stored("watch").await), (Some(at(1)), Some(at(8)), Some(at(1))));
    }

    async fn a_list_is_paged_without_repeats_while_conversations_move(logs: Logs) {
        let ann = user("ann");
        let names: Vec<_> = (0..45).map(|n| (conversation(&format!("c-{n:02}")), NOW + n / 10)).collect();
        touch_index(&logs.link, &KEYS, &ann, &names, false).await.unwrap();
        let page = async |after: Option<&Listed>, limit: u64| read_index(&logs.link, &KEYS, &ann, after, limit).await.unwrap();
        assert!(!page(None, 10).await.whole);
        touch_index(&logs.link, &KEYS, &ann, &[], true).await.unwrap();
        let mut seen: Vec<ConversationId> = Vec::new();
        let mut last = None;
        loop {
            let got = page(last.as_ref(), 7).await;
            assert!(got.whole);
            if got.items.is_empty() { break; }
            last = got.items.last().cloned();
            seen.extend(got.items.into_iter().map(|l| l.conversation));
            // One that was seen and one that was not move to the top.
            let moved = [(seen[0].clone(), NOW + 500), (names[1].0.clone(), NOW + 500)];
            touch_index(&logs.link, &KEYS, &ann, &moved, false).await.unwrap();
        }
        let unique: std::collections::HashSet<_> = seen.iter().collect();
        assert_eq!(unique.len(), seen.len(), "no conversation twice");
        assert_eq!(unique.len(), 44, "all but the one that moved up before it was reached");
        assert!(!seen.contains(&names[1].0));
        // Whatever is said of the past never lowers a conversation.
        touch_index(&logs.link, &KEYS, &ann, &[(names[1].0.clone(), 1)], false).await.unwrap();
        assert!(page(None, 2).await.items.iter().any(|l| l.conversation == names[1].0));
    }

    async fn the_list_follows_deliveries(logs: Logs) {
        let ann = [user("ann")];
        let mut deliveries = vec![delivery(1, &ann), delivery(2, &ann), delivery(3, &ann), delivery(4, &ann)];
        for (delivery, key) in deliveries.iter_mut().zip(["a", "b", "c", "a"]) {
            delivery.pointer.conversation = conversation(key);
        }
        logs.deliver(&deliveries, NOW).await;
        let listed = async || read_index(&logs.link, &KEYS, &ann[0], None, 10).await.unwrap().items.into_iter().map(|l| l.conversation.to_string()).collect::<Vec<_>>();
        assert_eq!(listed().await, ["system:a", "system:c", "system:b"]);
        let mut left = delivery(5, &ann);
        (left.index, left.pointer.conversation) = (IndexChange::Remove, conversation("c"));
        logs.deliver(&[left], NOW + 1).await;
        assert_eq!(listed().await, ["system:a", "system:b"]);
    }

    async fn wake_ups_are_read_in_order_and_the_probe_lies_above(logs: Logs) {
        let mut reader = logs.link.blocking_reader().await.unwrap();
        let wake = |n: u64| Wake {
            pointer: delivery(n, &[]).pointer,
            message: Some(format!("{{\"n\":{n}}}")),
            recipients: vec![Woken { user: user("ann"), position: Position { epoch: Some("e".into()), entry: EntryId { ms: n, n: 1 } }, previous: EntryId { ms: n, n: 0 } }],
        };
        wake_gateway(&logs.link, "gw", &[wake(1), wake(2)]).await.unwrap();
        let probe = probe_wakeups(&logs.link, "gw").await.unwrap();
        wake_gateway(&logs.link, "gw", &[wake(3)]).await.unwrap();
        let (mut place, mut got) = (EntryId::default(), vec![]);
        while got.len() < 3 {
            let (next, wakes) = read_wakeups(&mut reader, "gw", place, 2_000).await.unwrap();
            assert!(next > place, "nothing came");
            place = next;
            got.extend(wakes);
        }
        assert_eq!(got, [1, 2, 3].map(|n| WakeUp::Logged(wake(n))));
        assert!(place > probe);
        let ttl = logs.command("PTTL", "wake:{ggw}", &["wake:{ggw}"]).await.as_i64().unwrap();
        assert!((100_000..=120_000).contains(&ttl), "{ttl}");
    }

    async fn tickets_open_what_they_were_made_for_and_nothing_else(logs: Logs) {
        let claims = TicketClaims { user: user("ann é"), device: Some("phone".into()), over_at: NOW };
        let ticket = make_ticket(&logs.link, &KEYS, &claims, 60_000).await.unwrap();
        assert_eq!(find_ticket(&logs.link, &KEYS, &ticket).await.unwrap().as_ref(), Some(&claims));
        assert_eq!(find_ticket(&logs.link, &KEYS, &ticket).await.unwrap(), Some(claims), "good for the browser's own reconnects");
        let secret = ticket.split_once('.').unwrap().1;
        assert!(logs.redis.keys("*").await.iter().all(|key| !key.contains(secret)), "the secret is stored nowhere");
        let other = format!("{}.{}", ticket.split_once('.').unwrap().0, "0".repeat(64));
        for wrong in [other.as_str(), "", ".", "1.", secret, "99999.00", "+1.00", "1.zz", &format!("{ticket}0"), &format!("{ticket}\r\n")] {
            assert_eq!(find_ticket(&logs.link, &KEYS, wrong).await.unwrap(), None, "{wrong:?}");
        }
        let short = make_ticket(&logs.link, &KEYS, &TicketClaims { user: user("ann"), device: None, over_at: NOW }, 0).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(find_ticket(&logs.link, &KEYS, &short).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_log_that_went_back_with_its_server_is_another_log() {
    let mut redis = PrivateRedis::start_durable(RedisKind::Single).await;
    let link = Link::connect(&redis.url(), 5_000).await.unwrap();
    let ann = [user("ann")];
    deliver_events(&link, &KEYS, ShardId(3), &run(1..=3, &ann), NOW, BOUNDS).await;
    let before = log_head(&link, &KEYS, &ann[0]).await.unwrap();
    redis.nodes()[0].process().kill().await;
    redis.nodes()[0].start_again().await.unwrap();
    let look = async || log_head(&link, &KEYS, &ann[0]).await;
    let after = eventually_some("the log again", Duration::from_secs(10), look).await;
    assert_eq!(after.entry, before.entry, "everything is there");
    assert_ne!(after.epoch, before.epoch, "and yet nobody can know that nothing is missing");
}
