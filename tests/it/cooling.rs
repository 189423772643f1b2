//! Idle conversations leave Redis and come back: no number twice, none skipped, whenever it is cut off.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use seqline::actions::Stores;
use seqline::actions::read_messages::{Place, page};
use seqline::domain::ids::ConversationId;
use seqline::domain::refusal::Refusal;
use seqline::redis::close_conversation::{CloseRequest, Closing, close_conversation};
use seqline::redis::reopen_conversation::reopen_conversation;
use seqline::workers::cool_conversations::{Cooled, cool_all, cool_conversation, cool_shard};
use seqline::workers::start_workers;
use tokio_util::sync::CancellationToken;

use crate::harness::{RedisKind, StorePair, on_both};
use crate::scene::*;

/// A moment at which everything counts as idle.
fn later(stores: &Stores) -> i64 {
    stores.clock.now() + 1_000_000
}

async fn settle(stores: &Arc<Stores>) {
    dispatch_all(stores).await;
    archive_all(stores).await;
}

async fn close(stores: &Stores, id: &ConversationId, by: &str, now: i64, abandoned_at: i64) -> Closing {
    let request = CloseRequest { token: by, now, idle_at: later(stores), abandoned_at };
    close_conversation(&stores.link, &stores.keys, id, request).await.unwrap()
}

async fn seqs(stores: &Stores, reader: &str, id: &ConversationId) -> (Vec<u64>, Vec<(u64, u64)>) {
    let page = page(stores, &user(reader), id, Place::Before(10_000), 1_000).await.unwrap();
    (page.messages.iter().map(|m| m.seq).collect(), page.voids)
}

on_both! {
    async fn a_conversation_leaves_redis_and_goes_on_where_it_stood(pair: StorePair) {
        let id = group(&pair.one, "ann", &["bob"]).await;
        send_run(&pair.one, "ann", &id, 1..=5).await;
        settle(&pair.one).await;
        assert_eq!(cool_conversation(&pair.one, &id, "w", later(&pair.one)).await.unwrap(), Cooled::Gone);
        let left = pair.redis.keys(&format!("*}}:{id}")).await;
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(cool_conversation(&pair.one, &id, "w", later(&pair.one)).await.unwrap(), Cooled::Gone, "again is no harm");
        assert_eq!(try_send(&pair.two, "bob", &id, "k6", "m6").await, Ok(6));
        assert_eq!(try_send(&pair.two, "ann", &id, "k3", "m3").await, Ok(3), "a repetition is still known");
        assert_eq!(seqs(&pair.one, "ann", &id).await, ((1..=6).collect(), vec![]));
        settle(&pair.one).await;
        assert_eq!(heard(&pair.one, "bob", &id).await, (1..=6).collect::<Vec<_>>());
    }

    async fn what_is_in_use_or_not_archived_stays(pair: StorePair) {
        let id = group(&pair.one, "ann", &["bob"]).await;
        send_run(&pair.one, "ann", &id, 1..=2).await;
        settle(&pair.one).await;
        let before = pair.one.clock.now() - 60_000;
        assert_eq!(cool_conversation(&pair.one, &id, "w", before).await.unwrap(), Cooled::Stays, "it was used a moment ago");
        assert_eq!(cool_shard(&pair.one, pair.one.keys.shard_of(&id), "w", before).await.unwrap(), 0);
        send_run(&pair.one, "ann", &id, 3..=3).await;
        dispatch_all(&pair.one).await;
        assert_eq!(cool_conversation(&pair.one, &id, "w", later(&pair.one)).await.unwrap(), Cooled::Stays, "it is not archived");
        assert_eq!(try_send(&pair.two, "bob", &id, "k4", "m4").await, Ok(4), "and takes messages again");
    }

    async fn whoever_comes_next_finishes_a_cooling_that_was_cut_off(pair: StorePair) {
        for after_end in [false, true] {
            let id = group(&pair.one, "ann", &["bob"]).await;
            send_run(&pair.one, "ann", &id, 1..=3).await;
            settle(&pair.one).await;
            let now = pair.one.clock.now();
            let Closing::Closed(closed) = close(&pair.one, &id, "dead", now - 60_000, now - 90_000).await else { panic!() };
            if after_end {
                assert!(pair.one.archive.end_lease(&id, closed.lease_epoch, closed.head).await.unwrap());
            }
            // It takes nothing now, from nobody; and only its closer may open it.
            assert!(!reopen_conversation(&pair.one.link, &pair.one.keys, &id, "other", now).await.unwrap());
            assert_eq!(close(&pair.two, &id, "other", now, now - 90_000).await, Closing::Busy, "it may still be worked on");
            assert_eq!(cool_conversation(&pair.two, &id, "next", later(&pair.two)).await.unwrap(), Cooled::Gone, "{after_end}");
            assert_eq!(try_send(&pair.one, "bob", &id, "k4", "m4").await, Ok(4), "{after_end}");
            assert_eq!(seqs(&pair.two, "ann", &id).await, ((1..=4).collect(), vec![]), "{after_end}");
        }
    }

    async fn sends_that_race_with_cooling_are_numbered_without_a_gap(pair: StorePair) {
        let id = group(&pair.one, "ann", &["bob"]).await;
        let done = Arc::new(AtomicBool::new(false));
        let stop = CancellationToken::new();
        let mut workers = start_workers(Arc::clone(&pair.two), stop.clone());
        let cooling = {
            let (stores, id, done) = (pair.two.clone(), id.clone(), done.clone());
            tokio::spawn(async move {
                let mut gone = 0;
                while !done.load(Ordering::Relaxed) {
                    if cool_conversation(&stores, &id, "w", later(&stores)).await == Ok(Cooled::Gone) {
                        gone += 1;
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                gone
            })
        };
        let mut sends = tokio::task::JoinSet::new();
        for sender in ["ann", "bob"] {
            let (stores, id) = (pair.one.clone(), id.clone());
            sends.spawn(async move {
                let mut got = Vec::new();
                for n in 0..40 {
                    let mut tries = 0;
                    got.push(loop {
                        match try_send(&stores, sender, &id, &format!("{sender}{n}"), "hi").await {
                            Ok(seq) => break seq,
                            Err(Refusal::Unavailable(_)) if tries < 20 => tries += 1,
                            Err(other) => panic!("{other}"),
                        }
                    });
                }
                got
            });
        }
        let mut got: Vec<u64> = sends.join_all().await.into_iter().flatten().collect();
        done.store(true, Ordering::Relaxed);
        assert!(cooling.await.unwrap() > 0, "it was cooled while people talked");
        got.sort_unstable();
        assert_eq!(got, (1..=80).collect::<Vec<_>>());
        let (read, voids) = seqs(&pair.one, "ann", &id).await;
        assert_eq!((read, voids), ((1..=80).collect(), vec![]));
        stop.cancel();
        while workers.join_next().await.is_some() {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stands_aside_keeps_its_conversation_hot() {
    let pair = StorePair::with(RedisKind::Single, &[]).await;
    let mut connection = pair.database.connect().await;
    sqlx::raw_sql("ALTER TABLE messages ADD CONSTRAINT no_poison CHECK (body <> 'poison')").execute(&mut connection).await.unwrap();
    let id = group(&pair.one, "ann", &["bob"]).await;
    for (n, body) in ["fine", "poison", "fine"].into_iter().enumerate() {
        try_send(&pair.one, "ann", &id, &format!("k{n}"), body).await.unwrap();
    }
    settle(&pair.one).await;
    assert_eq!(cool_conversation(&pair.one, &id, "w", later(&pair.one)).await.unwrap(), Cooled::Stays);
    assert_eq!(seqs(&pair.one, "bob", &id).await.0, [1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_stop_leaves_no_conversation_in_redis() {
    let pair = StorePair::with(RedisKind::Single, &[]).await;
    let stop = CancellationToken::new();
    let mut workers = start_workers(Arc::clone(&pair.one), stop.clone());
    let mut ids = BTreeSet::new();
    for n in 0..40 {
        let id = group(&pair.two, "ann", &[&format!("bob{n}")]).await;
        send_run(&pair.two, "ann", &id, 1..=3).await;
        ids.insert(id);
    }
    assert_eq!(cool_all(&pair.one).await.unwrap(), 0);
    stop.cancel();
    while workers.join_next().await.is_some() {}
    assert!(pair.redis.keys("conv:*").await.is_empty());
    for id in ids {
        assert_eq!(try_send(&pair.two, "ann", &id, "next", "hi").await, Ok(4));
    }
}
