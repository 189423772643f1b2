//! Resuming: from every position exactly what comes after it, or a word that something is missing.

use std::time::Duration;

use seqline::redis::register_streams;
use serde_json::json;

use crate::harness::fleet::PATIENCE;
use crate::harness::log_writer::LogWriter;
use crate::harness::lone_gateway::LoneGateway;
use crate::harness::proxy::Proxy;
use crate::harness::{Client, EventStream, Fleet, MadeOn, PrivateRedis, RedisKind, TestDatabase, User, on_both};

/// The numbers of so many events that follow on a stream, in the order in which they came.
async fn numbers(stream: &mut EventStream, count: usize) -> Vec<u64> {
    let mut got = Vec::with_capacity(count);
    while got.len() < count {
        let event = stream.next_event(PATIENCE).await.expect("the stream goes on");
        if event.name != "hello" {
            assert_eq!(event.name, "member.left", "{event:?}");
            got.push(event.data["data"]["n"].as_u64().unwrap());
        }
    }
    got
}

/// A fleet that seldom compares its streams with their logs: who goes on only then is seen to be late.
struct Unhurried(Fleet);

impl MadeOn for Unhurried {
    async fn made_on(kind: RedisKind) -> Self {
        Self(Fleet::start_with(kind, 2, 1, &["--heartbeat-ms", "15000"]).await)
    }
}

on_both! {
    async fn from_every_place_exactly_what_follows(fleet: Fleet) {
        let mut writer = LogWriter::new(&fleet.redis_url(), "ann").await;
        // All in one millisecond: the place within it counts.
        writer.now = Some(seqline::clock::Clock::default().now());
        let ann = User::new("ann");
        let mut stream = fleet.client(0, &ann).stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        let mut places = vec![stream.last_id().unwrap().to_owned()];
        writer.write(100).await;
        for n in 1..=100 {
            let event = stream.next_event(PATIENCE).await.unwrap();
            assert_eq!(event.data["data"]["n"], n);
            places.push(event.id.unwrap());
        }
        for k in (0..=20).chain([99, 100]) {
            let mut again = fleet.client(k, &ann).stream().after(places[k].clone()).open().await;
            let expected: Vec<u64> = (k as u64 + 1..=100).collect();
            assert_eq!(numbers(&mut again, expected.len()).await, expected, "after the {k}th");
            assert_eq!(again.until_quiet(Duration::from_millis(50)).await.iter().filter(|e| e.name != "hello").count(), 0);
        }
        // The header wins over the query, which a browser repeats for ever.
        let mut both = fleet.client(1, &ann).stream().with("last_event_id", &places[1]).after(places[10].clone()).open().await;
        assert_eq!(numbers(&mut both, 1).await, [11]);
        let mut query = fleet.client(1, &ann).stream().with("last_event_id", &places[1]).open().await;
        assert_eq!(numbers(&mut query, 1).await, [2]);
    }

    async fn a_thousand_and_one_events_while_away_come_at_once(unhurried: Unhurried) {
        let fleet = unhurried.0;
        let mut writer = LogWriter::new(&fleet.redis_url(), "ann").await;
        let ann = User::new("ann");
        let mut stream = fleet.client(0, &ann).stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        let request = stream.again().at(&fleet.url(1));
        drop(stream);
        writer.write(1_001).await;
        let mut back = request.open().await;
        let got = tokio::time::timeout(Duration::from_secs(20), numbers(&mut back, 1_001)).await.expect("in time");
        assert_eq!(got, (1..=1_001).collect::<Vec<_>>());
    }

    async fn a_stream_without_a_position_starts_where_it_was_opened(fleet: Fleet) {
        let mut writer = LogWriter::new(&fleet.redis_url(), "ann").await;
        writer.write(7).await;
        let mut stream = fleet.client(0, &User::new("ann")).stream().open().await;
        stream.next_frame(PATIENCE).await.unwrap();
        writer.write(1_000).await;
        assert_eq!(numbers(&mut stream, 1_000).await, (8..=1_007).collect::<Vec<_>>());
    }

    async fn a_reader_that_jumps_between_gateways_misses_nothing_while_a_writer_never_stops(fleet: Fleet) {
        let ann = User::new("ann");
        let mut writer = LogWriter::new(&fleet.redis_url(), "ann").await;
        let mut stream = fleet.client(0, &ann).stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        let stop = std::sync::atomic::AtomicBool::new(false);
        let total = std::sync::atomic::AtomicU64::new(0);
        let writing = async {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                writer.write(1 + rand::random::<u64>() % 4).await;
                tokio::time::sleep(Duration::from_millis(rand::random::<u64>() % 3)).await;
                total.store(writer.written(), std::sync::atomic::Ordering::Relaxed);
            }
        };
        let reading = async {
            let (mut expected, mut connects) = (1, 0);
            while connects < 250 {
                for _ in 0..rand::random::<u64>() % 12 {
                    assert_eq!(numbers(&mut stream, 1).await, [expected], "after {connects} connects");
                    expected += 1;
                }
                connects += 1;
                let place = stream.again().at(&fleet.url(connects));
                drop(stream);
                stream = place.open().await;
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            (expected, stream)
        };
        let ((), (expected, mut stream)) = tokio::join!(writing, reading);
        let left = total.load(std::sync::atomic::Ordering::Relaxed) + 1 - expected;
        let rest = numbers(&mut stream, left as usize).await;
        assert_eq!(rest, (expected..expected + left).collect::<Vec<_>>());
        let more = stream.until_quiet(Duration::from_millis(600)).await;
        // The greeting is still there when nothing was left to read.
        assert!(more.iter().all(|event| event.name == "hello"), "{more:?}");
    }

    async fn positions_that_do_not_hold_are_answered_with_resync(fleet: Fleet) {
        let mut writer = LogWriter::new(&fleet.redis_url(), "ann").await;
        writer.entries_max = 50;
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let mut stream = fleet.client(0, &ann).stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        let first = stream.last_id().unwrap().to_owned();
        let mut of_bob = fleet.client(0, &bob).stream().open().await;
        of_bob.wait_for("hello", PATIENCE).await;
        writer.write(10).await;
        numbers(&mut stream, 10).await;
        let tenth = stream.last_id().unwrap().to_owned();
        drop(stream);
        for _ in 0..30 {
            writer.write(10).await;
        }
        let (epoch, _) = tenth.split_once('.').unwrap();
        let huge = "18446744073709551615-18446744073709551615";
        for (position, reason) in [
            (first.clone(), "trimmed"),
            (tenth.clone(), "trimmed"),
            (format!("{epoch}.{huge}"), "future"),
            (huge.to_owned(), "lost"),
            ("1-1".to_owned(), "lost"),
            (of_bob.last_id().unwrap().to_owned(), "lost"),
            (format!("zz{tenth}"), "lost"),
        ] {
            // Who is cut off before the word comes still stands where it stood, and hears it from the next connection.
            let mut cut_off = fleet.client(0, &ann).stream().after(position.clone()).open().await;
            cut_off.wait_for("hello", PATIENCE).await;
            assert_eq!(cut_off.last_id(), Some(position.as_str()));
            let mut stream = cut_off.reconnect(&fleet.url(1)).await;
            let hello = stream.wait_for("hello", PATIENCE).await;
            assert_eq!(hello.data["resumed_from"], json!(null));
            let resync = stream.next_event(PATIENCE).await.unwrap();
            assert_eq!((resync.name.as_str(), resync.data["reason"].as_str().unwrap()), ("resync", reason), "{position}");
            assert_eq!(resync.data["head"], json!(resync.id.clone().unwrap()));
            assert!(resync.data["spread_ms"].as_u64().unwrap() > 0);
            // With the id that it carried the next connection goes on as if nothing had been.
            writer.write(1).await;
            let mut again = stream.reconnect(&fleet.url(0)).await;
            let next = again.next_event(PATIENCE).await.unwrap();
            assert_eq!((next.name.as_str(), &next.data["resumed_from"]), ("hello", &json!(resync.id.unwrap())));
            assert_eq!(numbers(&mut again, 1).await, [writer.written()]);
        }
        assert!(of_bob.until_quiet(Duration::from_millis(300)).await.is_empty(), "others are not touched");
    }

    async fn an_open_stream_is_told_when_its_log_is_lost(fleet: Fleet) {
        let mut fleet = fleet;
        let mut writer = LogWriter::new(&fleet.redis_url(), "ann").await;
        let mut stream = fleet.client(0, &User::new("ann")).stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        writer.write(5).await;
        numbers(&mut stream, 5).await;
        let before = stream.last_id().unwrap().to_owned();
        fleet.redis().on_every_node(&["FLUSHALL"]).await;
        let mut writer = LogWriter::new(&fleet.redis_url(), "ann").await;
        writer.write(3).await;
        let resync = stream.wait_for("resync", PATIENCE).await;
        assert_eq!(resync.data["reason"], "lost");
        // And who was away at that time, with a place below the new head.
        let mut away = fleet.client(1, &User::new("ann")).stream().after(before).open().await;
        assert_eq!(away.wait_for("resync", PATIENCE).await.data["reason"], "lost");
        writer.write(1).await;
        assert_eq!(numbers(&mut away, 1).await, [4]);
    }

    async fn a_device_goes_on_from_its_stored_cursor(fleet: Fleet) {
        let mut writer = LogWriter::new(&fleet.redis_url(), "ann").await;
        let ann = User::new("ann");
        let mut stream = fleet.client(0, &ann).stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        writer.write(6).await;
        let mut ids = vec![];
        for _ in 0..6 {
            ids.push(stream.next_event(PATIENCE).await.unwrap().id.unwrap());
        }
        let client = fleet.client(1, &ann);
        let ack = async |id: &str| client.post("/v1/events/ack", &json!({"device": "phone", "id": id})).await;
        ack(&ids[3]).await.expect(204);
        ack(&ids[1]).await.expect(204);
        let mut phone = fleet.client(0, &ann).stream().with("device", "phone").open().await;
        let hello = phone.wait_for("hello", PATIENCE).await;
        assert_eq!((&hello.data["device"], &hello.data["resumed_from"]), (&json!("phone"), &json!(ids[3])));
        assert_eq!(numbers(&mut phone, 2).await, [5, 6]);
        let mut named = fleet.client(0, &ann).stream().with("device", "phone").after(ids[4].clone()).open().await;
        assert_eq!(numbers(&mut named, 1).await, [6]);
        for wrong in ["1-1", "zz.1-1", "abc", "", &format!("{}0", ids[5]), &format!("{}9-9", ids[5])] {
            ack(wrong).await.expect_problem(400, "invalid_cursor");
        }
        client.post("/v1/events/ack", &json!({"device": "", "id": ids[0]})).await.expect_problem(422, "invalid_field");
        client.post("/v1/events/ack", &json!({"device": "d", "id": ids[0], "x": 1})).await.expect_problem(422, "unknown_field");
    }

    async fn list_and_stream_fit_together_while_sends_go_on(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let sender = fleet.client(0, &ann);
        let conversation = sender.send_to_peer("bob", "k0", "m0").await.expect(201).json["conversation_id"].as_str().unwrap().to_owned();
        let sending = async {
            for n in 1..60 {
                sender.send(&conversation, &format!("k{n}"), &format!("m{n}")).await.expect(201);
            }
        };
        let reading = async {
            let list = fleet.client(1, &bob).conversations().await.expect(200);
            let from = list.json["events_head"].as_str().unwrap().to_owned();
            let listed = list.items().first().map_or(0, |c| c["head_seq"].as_u64().unwrap());
            let mut stream = fleet.client(1, &bob).stream().after(from).open().await;
            let mut seen = std::collections::BTreeSet::new();
            let mut last = 0;
            while last < 60 {
                last = stream.next_message(PATIENCE).await["seq"].as_u64().unwrap();
                assert!(seen.insert(last), "{last} came twice");
            }
            (listed, seen)
        };
        let ((), (listed, seen)) = tokio::join!(sending, reading);
        let missing: Vec<_> = (listed + 1..=60).filter(|seq| !seen.contains(seq)).collect();
        assert!(missing.is_empty(), "neither in the list (up to {listed}) nor in the stream: {missing:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_positions_are_refused_before_the_stream_begins() {
    let fleet = Fleet::start(RedisKind::Single, 1, 0).await;
    let ann = User::new("ann");
    let client = fleet.client(0, &ann);
    for malformed in ["-1", "abc", "5-", "$", "+", ">", "1-2-3", "", "e.", "e.1", "E.1-1", "1-99999999999999999999", "%00", "0", "*"] {
        for request in [client.stream().after(malformed), client.stream().with("last_event_id", malformed)] {
            let refused = request.try_open().await.map(|_| ()).unwrap_err();
            assert_eq!(refused.header("content-type"), Some("application/problem+json"), "{malformed:?}");
            refused.expect_problem(400, "invalid_cursor");
        }
    }
}

/// What is written between a stream's look at its log and its being open is heard, though nothing comes after it that would give it away: who
/// looks has asked for wake-ups in the same step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_while_a_stream_opens_is_heard() {
    let (redis, database) = (PrivateRedis::start(RedisKind::Single).await, TestDatabase::migrated().await);
    let proxy = Proxy::before(url::Url::parse(&redis.url()).unwrap().port().unwrap()).await;
    let gateway = LoneGateway::start(&proxy.url(&redis.url()), database.url(), &[]).await;
    let loaded = redis.on_every_node(&["SCRIPT", "LOAD", register_streams::SCRIPT.source]).await;
    let mut writer = LogWriter::new(&redis.url(), "ann").await;
    let mut held = proxy.hold(loaded[0].text().unwrap().as_bytes());
    let ann = Client::new(gateway.url(), &User::new("ann"));
    let opening = tokio::spawn(async move { ann.stream().open().await });
    held.came().await;
    writer.write(1).await;
    drop(held);
    assert_eq!(numbers(&mut opening.await.unwrap(), 1).await, [1]);
}
