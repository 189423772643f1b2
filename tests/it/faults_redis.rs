//! The moods of Redis: forgotten scripts, cut connections, silence, a full server, one that evicts.

use std::time::{Duration, Instant};

use crate::crowd::{
    Load, both, events_head, group_on_every_shard, listen, prove, prove_heard, readiness, send_for_sure, seqs_up_to, until_ready,
};
use crate::harness::{Client, Fleet, PATIENCE, RedisKind, User, on_both};

const WRITERS: usize = 10;
/// A request's deadline, and what a loaded machine may add.
const DEADLINE: Duration = Duration::from_secs(12);

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
    fleet.client(0, &User::new("cid")).stream().open().await.wait_for("hello", PATIENCE).await;
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
