//! Handing over: from a list to the stream, from replay to live, from one gateway to the other, while others go on writing.

use std::collections::BTreeMap;
use std::time::Instant;

use seqline::domain::position::Position;
use serde_json::Value;

use crate::crowd::{Load, events_head};
use crate::harness::{Fleet, PATIENCE, RedisKind, User, on_both};

/// Messages of the writer that never stops.
const WRITTEN: usize = 1_500;

fn seq(message: &Value) -> u64 {
    message["seq"].as_u64().unwrap()
}

on_both! {
    async fn a_reader_that_reconnects_hundreds_of_times_misses_nothing_and_hears_nothing_twice(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let writer = [fleet.client(0, &ann).kept_alive(), fleet.client(1, &ann).kept_alive()];
        let group = writer[0].create_group("talk", &["bob"]).await;
        let reader = [fleet.client(0, &bob), fleet.client(1, &bob)];
        let mut last = events_head(&reader[0]).await;
        let writing = tokio::spawn(async move {
            for n in 0..WRITTEN {
                writer[n % 2].send(&group, &format!("k{n}"), "hi").await.expect(201);
            }
        });
        let (mut heard, mut connects) = (Vec::new(), 0_usize);
        while heard.len() < WRITTEN {
            let mut stream = reader[connects % 2].stream().after(&last).open().await;
            connects += 1;
            // Cut at once, after a few, in the middle of a replay: whatever the number says.
            for _ in 0..(connects * 7) % 13 {
                if heard.len() < WRITTEN {
                    heard.push(seq(&stream.next_message(PATIENCE).await));
                }
            }
            last = stream.last_id().unwrap_or(&last).to_owned();
        }
        writing.await.unwrap();
        assert!(connects >= 200, "{connects}");
        assert_eq!(heard, (1..=WRITTEN as u64).collect::<Vec<_>>());
    }

    async fn a_list_and_the_stream_from_its_head_make_the_whole(fleet: Fleet) {
        const SENT: usize = 400;
        const READERS: usize = 5;
        let ann = User::new("ann");
        let readers: Vec<User> = (0..READERS).map(|n| User::new(format!("reader-{n}"))).collect();
        let names: Vec<&str> = readers.iter().map(|r| r.id.as_str()).collect();
        let writer = [fleet.client(0, &ann).kept_alive(), fleet.client(1, &ann).kept_alive()];
        let group = writer[0].create_group("talk", &names).await;
        let (progress, sent) = tokio::sync::watch::channel(0);
        let to = group.clone();
        let writing = tokio::spawn(async move {
            for n in 0..SENT {
                writer[n % 2].send(&to, &format!("k{n}"), "hi").await.expect(201);
                progress.send_replace(n + 1);
            }
        });
        let mut reading = tokio::task::JoinSet::new();
        for (n, user) in readers.iter().enumerate() {
            let (one, two) = (fleet.client(n, user), fleet.client(n + 1, user));
            let (group, mut sent) = (group.clone(), sent.clone());
            reading.spawn(async move {
                sent.wait_for(|sent| *sent >= n * SENT / READERS).await.unwrap();
                let list = one.conversations().await.expect(200);
                let head = list.json["events_head"].as_str().unwrap().to_owned();
                let known = list.items().iter().find(|c| c["id"] == *group).map_or(0, |c| c["head_seq"].as_u64().unwrap());
                let mut merged: BTreeMap<u64, Value> = BTreeMap::new();
                for message in one.whole_history(&group).await {
                    assert!(merged.insert(seq(&message), message).is_none(), "history tells each message once");
                }
                let floor = Position::parse(&head).unwrap();
                let mut stream = two.stream().after(&head).open().await;
                let mut heard = Vec::new();
                while heard.last().or(merged.keys().last()).is_none_or(|seq| *seq < SENT as u64) {
                    let event = stream.wait_for("message.created", 2 * PATIENCE).await;
                    let place = Position::parse(event.id.as_deref().unwrap()).unwrap();
                    assert!(place.epoch == floor.epoch && place.entry > floor.entry, "nothing at or below the head");
                    let message = event.data["data"]["message"].clone();
                    heard.push(seq(&message));
                    if let Some(before) = merged.insert(seq(&message), message.clone()) {
                        assert_eq!(before["id"], message["id"]);
                    }
                }
                assert!(heard.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{heard:?}");
                assert!(heard.first().is_none_or(|first| *first <= known + 1), "what the list did not know is in the stream");
                assert_eq!(merged.into_keys().collect::<Vec<_>>(), (1..=SENT as u64).collect::<Vec<_>>(), "{}", two.user().id);
            });
        }
        reading.join_all().await;
        writing.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_after_the_beginning_is_all_there_live_and_after_a_long_absence() {
    const CROWD: usize = 20;
    const EACH: usize = 50;
    let fleet = Fleet::start(RedisKind::Single, 2, 1).await;
    let (bob, cid) = (User::new("bob"), User::new("cid"));
    let writers = User::many(CROWD);
    let names: Vec<&str> = writers.iter().chain([&bob, &cid]).skip(1).map(|user| user.id.as_str()).collect();
    let group = fleet.client(0, &writers[0]).create_group("crowd", &names).await;
    let cids = [fleet.client(0, &cid), fleet.client(1, &cid)];
    let away_since = events_head(&cids[0]).await;
    let mut stream = fleet.client(1, &bob).stream().open().await;
    stream.wait_for("hello", PATIENCE).await;
    let at = |user: &User| vec![fleet.client(0, user).kept_alive(), fleet.client(1, user).kept_alive()];
    let load = Load::start(writers.iter().map(at).collect(), std::slice::from_ref(&group), EACH);
    let mut heard = Vec::new();
    while heard.len() < CROWD * EACH {
        heard.push(seq(&stream.next_message(PATIENCE).await));
    }
    assert_eq!(heard, (1..=1_000).collect::<Vec<_>>(), "a stream without a position misses nothing that came after it");
    load.finish().await;
    fleet.client(0, &bob).send(&group, "last", "of all").await.expect(201);
    assert_eq!(seq(&stream.next_message(PATIENCE).await), 1_001);
    drop(stream);

    // Nobody sends any more.
    let begun = Instant::now();
    let mut stream = cids[0].stream().after(&away_since).open().await;
    let mut missed = Vec::new();
    while missed.len() < 1_001 {
        missed.push(seq(&stream.next_message(PATIENCE).await));
    }
    assert_eq!(missed, (1..=1_001).collect::<Vec<_>>());
    println!("1001 events after an absence: {:?}", begun.elapsed());
    assert!(stream.until_quiet(std::time::Duration::from_millis(300)).await.is_empty());

    // Entries that share a millisecond, cut after each of the first, continued at the other gateway.
    for k in 1..=20 {
        let mut stream = cids[k % 2].stream().after(&away_since).open().await;
        for n in 1..=k {
            assert_eq!(seq(&stream.next_message(PATIENCE).await), n as u64);
        }
        let mut stream = stream.reconnect(&fleet.url(k + 1)).await;
        assert_eq!(seq(&stream.next_message(PATIENCE).await), k as u64 + 1, "cut after {k}");
    }
}
