//! Readers that do not read, and readers that come and go: they cost the others nothing, and themselves nothing silently.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::crowd::{Load, both, events_head, hear, listen, prove_heard};
use crate::harness::{Fleet, PATIENCE, RedisKind, User};

const WRITERS: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_stalls_costs_the_others_nothing_and_gets_everything_later() {
    const EACH: usize = 200;
    let fleet = Fleet::start(RedisKind::Single, 2, 1).await;
    let (writers, stalled) = (User::many(WRITERS), User::new("stalled"));
    let names: Vec<&str> = writers.iter().skip(1).chain([&stalled]).map(|user| user.id.as_str()).collect();
    let group = fleet.client(0, &writers[0]).create_group("crowd", &names).await;
    let begin = events_head(&fleet.client(0, &stalled)).await;
    let mut silent = fleet.client(0, &stalled).stream().after(&begin).open().await;
    let mut healthy = Vec::new();
    for user in writers.iter().take(4) {
        let from = events_head(&fleet.client(0, user)).await;
        healthy.push(listen(vec![fleet.client(0, user)], from, WRITERS * EACH));
    }
    let load = Load::start_with_body(writers.iter().map(|user| both(&fleet, user)).collect(), &[group], EACH, &"x".repeat(3_000));
    let told = load.finish().await;
    for listener in healthy {
        prove_heard(&told, &listener.await.unwrap());
    }
    // It has taken nothing until now. When it was cut meanwhile, it connects again as every client does.
    let mut heard = Vec::new();
    hear(&mut silent, &mut heard, told.len()).await;
    while heard.len() < told.len() {
        silent = silent.reconnect(&fleet.url(1)).await;
        hear(&mut silent, &mut heard, told.len()).await;
    }
    prove_heard(&told, &heard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_stalls_beyond_what_its_log_keeps_is_told() {
    const EACH: usize = 75;
    let fleet = Fleet::start_with(RedisKind::Single, 2, 1, &["--log-max-entries", "200"]).await;
    let (writers, stalled) = (User::many(WRITERS), User::new("stalled"));
    let names: Vec<&str> = writers.iter().skip(1).chain([&stalled]).map(|user| user.id.as_str()).collect();
    let group = fleet.client(0, &writers[0]).create_group("crowd", &names).await;
    let mut silent = fleet.client(0, &stalled).stream().open().await;
    let load = Load::start_with_body(
        writers.iter().map(|user| both(&fleet, user)).collect(),
        std::slice::from_ref(&group),
        EACH,
        &"中".repeat(3_900),
    );
    let told = load.finish().await;
    let mut heard = Vec::new();
    let resync = loop {
        match silent.next_event(PATIENCE).await {
            Some(event) if event.name == "resync" => break event,
            Some(event) if event.name == "message.created" => heard.push(event.data["data"]["message"]["seq"].as_u64().unwrap()),
            Some(_) => {}
            None => silent = silent.reconnect(&fleet.url(1)).await,
        }
    };
    assert_eq!(heard, (1..=heard.len() as u64).collect::<Vec<_>>(), "up to there nothing is missing");
    assert_eq!(resync.data["reason"], "trimmed");
    assert!(heard.len() < told.len());
    assert_eq!(resync.id.as_deref(), resync.data["head"].as_str());
    // Nothing comes twice after it, and the position it carried holds.
    let next = fleet.client(1, &writers[0]).send(&group, "next", "hi").await.expect(201).seq();
    let mut seqs = vec![silent.next_message(PATIENCE).await["seq"].as_u64().unwrap()];
    while *seqs.last().unwrap() < next {
        seqs.push(silent.next_message(PATIENCE).await["seq"].as_u64().unwrap());
    }
    assert!(seqs.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{seqs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_come_and_go_take_nothing_from_one_that_stays() {
    const EACH: usize = 40;
    // What is busy may be late here, but refuses nobody.
    let fleet = Fleet::start_with(RedisKind::Single, 2, 1, &["--request-deadline-ms", "25000"]).await;
    let (writers, bob) = (User::many(WRITERS), User::new("bob"));
    let names: Vec<&str> = writers.iter().skip(1).chain([&bob]).map(|user| user.id.as_str()).collect();
    let group = fleet.client(0, &writers[0]).create_group("crowd", &names).await;
    let from = events_head(&fleet.client(0, &bob)).await;
    let stays = listen(vec![fleet.client(0, &bob)], from, WRITERS * EACH);
    let (over, passed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut guests = tokio::task::JoinSet::new();
    for user in [&bob, &writers[0], &writers[1], &bob] {
        let (client, over, passed) = (fleet.client(0, user), Arc::clone(&over), Arc::clone(&passed));
        guests.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                client.stream().open().await.wait_for("hello", PATIENCE).await;
                passed.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }
    let told = Load::start(writers.iter().map(|user| both(&fleet, user)).collect(), &[group], EACH).finish().await;
    let heard = stays.await.unwrap();
    over.store(true, Ordering::Relaxed);
    guests.join_all().await;
    prove_heard(&told, &heard);
    println!("{} streams came and went", passed.load(Ordering::Relaxed));
}
