//! The moods of Redis: forgotten scripts, cut connections, silence, a restart, an empty server, a full one, one that evicts.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use sqlx::Connection as _;

use crate::crowd::{Load, events_head, group_on_every_shard, listen, prove, prove_heard, send_for_sure};
use crate::harness::{Client, EventStream, Fleet, PATIENCE, PrivateRedis, RedisKind, User, eventually, on_both};

const WRITERS: usize = 10;
/// A request's deadline, and what a loaded machine may add.
const DEADLINE: Duration = Duration::from_secs(12);

fn both(fleet: &Fleet, user: &User) -> Vec<Client> {
    vec![fleet.client(0, user).kept_alive(), fleet.client(1, user).kept_alive()]
}

/// What `/readyz` of a gateway says.
async fn readiness(fleet: &Fleet, gateway: usize) -> (u16, String) {
    let answer = reqwest::get(format!("{}/readyz", fleet.admin_url(gateway))).await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

async fn until_ready(fleet: &Fleet, status: u16) {
    eventually("readiness has changed", PATIENCE, async || readiness(fleet, 0).await.0 == status && readiness(fleet, 1).await.0 == status)
        .await;
}

/// A crowd writes into groups on all shards while `disturb` is called between two parts of its work, over and over.
async fn disturbed(fleet: &Fleet, each: usize, times: usize, words: &[&str]) {
    let (writers, bob) = (User::many(WRITERS), User::new("bob"));
    let names: Vec<&str> = writers.iter().skip(1).chain([&bob]).map(|user| user.id.as_str()).collect();
    let groups = group_on_every_shard(&fleet.client(0, &writers[0]), &names).await;
    let from = events_head(&fleet.client(0, &bob)).await;
    let heard = listen(vec![fleet.client(1, &bob)], from.clone(), WRITERS * each);
    let load = Load::start(writers.iter().map(|user| both(fleet, user)).collect(), &groups, each);
    let redis = fleet.redis_ref();
    for time in 0..times {
        load.at(time * WRITERS * each / times).await;
        redis.on_every_node(words).await;
    }
    let told = load.finish().await;
    let unlike: Vec<_> = told.iter().filter(|one| one.status != 201 || !one.refused.is_empty()).collect();
    assert!(unlike.is_empty(), "every send is answered 201 at once: {unlike:?}");
    prove_heard(&told, &heard.await.unwrap());
    prove(&told, &[fleet.client(1, &bob)], &[(fleet.client(0, &bob), from)], fleet.database()).await;
}

on_both! {
    async fn scripts_that_are_forgotten_ten_times_are_brought_back_unseen(fleet: Fleet) {
        disturbed(&fleet, 100, 10, &["SCRIPT", "FLUSH"]).await;
    }

    async fn connections_that_are_cut_again_and_again_double_nothing(fleet: Fleet) {
        disturbed(&fleet, 60, 20, &["CLIENT", "KILL", "TYPE", "normal"]).await;
    }

    async fn pauses_are_sat_out(fleet: Fleet) {
        disturbed(&fleet, 40, 3, &["CLIENT", "PAUSE", "1500", "ALL"]).await;
    }
}

/// Messages that a stream tells up to the one with this seq.
async fn seqs_up_to(stream: &mut EventStream, last: u64) -> Vec<u64> {
    let mut seqs = Vec::new();
    while seqs.last() != Some(&last) {
        seqs.push(stream.next_message(2 * PATIENCE).await["seq"].as_u64().unwrap());
    }
    seqs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_hangs_is_told_in_time_and_nothing_is_doubled_after_it() {
    let mut fleet = Fleet::start(RedisKind::Single, 2, 1).await;
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    let group = fleet.client(0, &ann).create_group("talk", &["bob"]).await;
    let mut stream = fleet.client(1, &bob).stream().open().await;
    stream.wait_for("hello", PATIENCE).await;
    let anns = both(&fleet, &ann);
    anns[0].send(&group, "k1", "hi").await.expect(201);
    assert_eq!(seqs_up_to(&mut stream, 1).await, [1]);

    fleet.redis().nodes()[0].process().signal("STOP");
    let halted = Instant::now();
    let timed = async |client: &Client, key: &str| {
        let begun = Instant::now();
        let answer = client.send(&group, key, "hi").await;
        (answer, begun.elapsed())
    };
    for keys in [["k2", "k3"], ["k2", "k4"]] {
        let (a, b) = tokio::join!(timed(&anns[0], keys[0]), timed(&anns[1], keys[1]));
        for (answer, took) in [a, b] {
            println!("{} after {took:?}", answer.status);
            assert!(took < DEADLINE, "{took:?}");
            assert!(answer.header("retry-after").is_some());
            answer.expect_problem(503, "unavailable");
        }
    }
    until_ready(&fleet, 503).await;
    let refused = fleet.client(0, &bob).stream().open().await.wait_for("unavailable", PATIENCE).await;
    assert_eq!(refused.data["code"], "unavailable");
    println!("halted for {:?}", halted.elapsed());
    fleet.redis().nodes()[0].process().signal("CONT");
    let back = Instant::now();
    let mut told = Vec::new();
    for key in ["k2", "k3", "k4", "k5"] {
        told.push(send_for_sure(&anns, 1, &group, key, "hi").await.seq);
    }
    println!("sends work {:?} after it is back", back.elapsed());
    told.sort_unstable();
    assert_eq!(told, [2, 3, 4, 5], "one message for each key");
    until_ready(&fleet, 200).await;
    let history = fleet.client(1, &bob).whole_history(&group).await;
    assert_eq!(history.len(), 5);
    assert_eq!(seqs_up_to(&mut stream, 5).await, [2, 3, 4, 5], "the stream was kept open and misses nothing");
}

/// Proves that every seq which was told has its message or is told void, and that no number bears two messages.
async fn kept_or_void(client: &Client, group: &str, told: &HashMap<u64, String>) -> usize {
    let history = client.whole_history(group).await;
    let page = client.history(group, "after=0&limit=200").await.expect(200);
    let mut voids: Vec<(u64, u64)> = Vec::new();
    let mut add = |list: &Value| voids.extend(list.as_array().unwrap().iter().map(|v| (v[0].as_u64().unwrap(), v[1].as_u64().unwrap())));
    add(&page.json["voids"]);
    add(&client.history(group, "limit=200").await.expect(200).json["voids"]);
    let kept: HashMap<u64, &str> = history.iter().map(|m| (m["seq"].as_u64().unwrap(), m["id"].as_str().unwrap())).collect();
    assert_eq!(kept.len(), history.len());
    let mut lost = 0;
    for (seq, id) in told {
        let void = voids.iter().any(|(from, to)| (from..=to).contains(&seq));
        match kept.get(seq) {
            Some(there) => assert!(there == id && !void, "{seq} is another message, or void: {voids:?}"),
            None => {
                assert!(void, "{seq} is neither there nor void: {voids:?}");
                lost += 1;
            }
        }
    }
    lost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_killed_and_comes_back_never_gives_a_number_again() {
    let mut fleet = Fleet::start_on(PrivateRedis::start_durable(RedisKind::Single).await, 2, 1, &[]).await;
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    let group = fleet.client(0, &ann).create_group("talk", &["bob"]).await;
    let anns = both(&fleet, &ann);
    let mut stream = fleet.client(1, &bob).stream().open().await;
    stream.wait_for("hello", PATIENCE).await;
    let mut told = HashMap::new();
    for round in 0..3 {
        for n in 0..60 {
            let one = send_for_sure(&anns, n, &group, &uuid::Uuid::now_v7().to_string(), "hi").await;
            assert!(told.keys().all(|seq| *seq < one.seq), "{} is not above all before", one.seq);
            told.insert(one.seq, one.id);
        }
        fleet.redis().nodes()[0].process().kill().await;
        fleet.redis().nodes()[0].start_again().await.unwrap();
        let back = Instant::now();
        let one = send_for_sure(&anns, round, &group, &uuid::Uuid::now_v7().to_string(), "after").await;
        println!("a send works {:?} after the restart; {} tries before", back.elapsed(), one.refused.len());
        assert!(told.keys().all(|seq| *seq < one.seq), "{} was given out before", one.seq);
        let resync = stream.wait_for("resync", PATIENCE).await;
        assert_eq!(resync.data["reason"], "lost");
        let last = send_for_sure(&anns, round, &group, &uuid::Uuid::now_v7().to_string(), "heard").await;
        let heard = seqs_up_to(&mut stream, last.seq).await;
        assert!(heard.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{heard:?}");
        told.insert(one.seq, one.id);
        told.insert(last.seq, last.id);
    }
    for client in [fleet.client(0, &bob), fleet.client(1, &ann)] {
        println!("{} of {} were lost", kept_or_void(&client, &group, &told).await, told.len());
    }
    until_ready(&fleet, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_redis_goes_on_above_all_that_was_told_and_says_what_is_void() {
    let fleet = Fleet::start(RedisKind::Single, 2, 1).await;
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    let anns = both(&fleet, &ann);
    let group = anns[0].create_group("talk", &["bob"]).await;
    let mut stream = fleet.client(1, &bob).stream().open().await;
    stream.wait_for("hello", PATIENCE).await;
    let mut told = HashMap::new();
    let mut send = async |body: &str| {
        let one = send_for_sure(&anns, told.len(), &group, &uuid::Uuid::now_v7().to_string(), body).await;
        assert!(told.keys().all(|seq| *seq < one.seq), "{} is not above all before", one.seq);
        told.insert(one.seq, one.id);
        one.seq
    };
    for _ in 0..20 {
        send("archived").await;
    }
    let mut connection = fleet.database().connect().await;
    eventually("the first are archived", PATIENCE, async || {
        sqlx::query_scalar::<_, i64>("SELECT count(*) FROM messages").fetch_one(&mut connection).await.unwrap() == 20
    })
    .await;
    // Nobody can archive what comes now.
    let mut barrier = connection.begin().await.unwrap();
    sqlx::query("LOCK TABLE messages IN SHARE MODE").execute(&mut *barrier).await.unwrap();
    for _ in 0..5 {
        send("accepted").await;
    }
    assert_eq!(seqs_up_to(&mut stream, 25).await.len(), 25);
    let before = stream.last_id().unwrap().to_owned();
    fleet.redis_ref().on_every_node(&["FLUSHALL"]).await;
    barrier.rollback().await.unwrap();
    let next = send("after").await;
    println!("after 25 numbers comes {next}");
    assert_eq!(stream.wait_for("resync", PATIENCE).await.data["reason"], "lost");
    let last = send("heard").await;
    let heard = seqs_up_to(&mut stream, last).await;
    assert!(heard.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{heard:?}");
    // An id from before, lower than the new head.
    let mut late = fleet.client(0, &bob).stream().after(&before).open().await;
    let resync = late.wait_for("resync", PATIENCE).await;
    assert_eq!(resync.data["reason"], "lost");
    let again = late.again();
    assert!(again.open().await.until_quiet(Duration::from_millis(500)).await.iter().all(|event| event.name == "hello"), "told once");
    for client in [fleet.client(0, &bob), fleet.client(1, &ann)] {
        println!("{} of {} were lost", kept_or_void(&client, &group, &told).await, told.len());
        assert_eq!(client.conversation(&group).await.expect(200).json["head_seq"], last);
        assert_eq!(client.conversations().await.expect(200).items()[0]["id"], *group, "the list is there again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_redis_refuses_without_using_a_number_and_one_that_evicts_is_not_ready() {
    let fleet = Fleet::start(RedisKind::Single, 2, 1).await;
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    let anns = both(&fleet, &ann);
    let group = anns[0].create_group("talk", &["bob"]).await;
    let mut stream = fleet.client(1, &bob).stream().open().await;
    stream.wait_for("hello", PATIENCE).await;
    for n in 1..=3 {
        anns[n % 2].send(&group, &format!("k{n}"), "hi").await.expect(201);
    }
    let redis = fleet.redis_ref();
    redis.on_every_node(&["CONFIG", "SET", "maxmemory", "1"]).await;
    for n in 4..=6 {
        let begun = Instant::now();
        let answer = anns[n % 2].send(&group, &format!("k{n}"), "hi").await.expect(503);
        println!("full: {} after {:?}", answer.json["code"], begun.elapsed());
        assert!(matches!(answer.json["code"].as_str(), Some("unavailable" | "overloaded")), "{}", answer.text);
        assert!(answer.header("retry-after").is_some() && begun.elapsed() < DEADLINE);
    }
    assert_eq!(anns[0].send(&group, "k3", "hi").await.expect(200).seq(), 3, "what stands is still told");
    assert_eq!(fleet.client(1, &bob).whole_history(&group).await.len(), 3, "and read");
    redis.on_every_node(&["CONFIG", "SET", "maxmemory", "0"]).await;
    for n in [5, 4, 6] {
        assert_eq!(
            anns[n % 2].send(&group, &format!("k{n}"), "hi").await.expect(201).seq(),
            [5, 4, 6].iter().position(|k| *k == n).unwrap() as u64 + 4
        );
    }
    assert_eq!(seqs_up_to(&mut stream, 6).await, [1, 2, 3, 4, 5, 6]);

    until_ready(&fleet, 200).await;
    redis.on_every_node(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    until_ready(&fleet, 503).await;
    let (_, text) = readiness(&fleet, 0).await;
    assert!(text.contains("allkeys-lru") && text.contains("noeviction"), "{text}");
    redis.on_every_node(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    until_ready(&fleet, 200).await;
}
