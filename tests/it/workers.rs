//! From the outbox to the users' logs: each event once and in order, whoever dispatches and however often; and the workers as they run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use seqline::actions::change_conversation::change_conversation;
use seqline::domain::change::Command;
use seqline::domain::event::EventType;
use seqline::redis::keys;
use seqline::workers::start_workers;
use tokio_util::sync::CancellationToken;

use crate::harness::{PrivateRedis, RedisKind, StorePair, TestDatabase, eventually, on_both, stores};
use crate::scene::*;

const LONG: Duration = Duration::from_secs(30);

on_both! {
    async fn every_member_hears_each_message_once_and_in_order(pair: StorePair) {
        let id = group(&pair.one, "ann", &["bob", "cid"]).await;
        let other = group(&pair.one, "cid", &["dan"]).await;
        send_run(&pair.one, "ann", &id, 1..=40).await;
        send_run(&pair.two, "dan", &other, 1..=20).await;
        // Two dispatch the same shards at the same time.
        tokio::join!(dispatch_all(&pair.one), dispatch_all(&pair.two));
        for name in ["ann", "bob", "cid"] {
            assert_eq!(heard(&pair.one, name, &id).await, (1..=40).collect::<Vec<_>>(), "{name}");
        }
        assert_eq!(heard(&pair.one, "dan", &other).await, (1..=20).collect::<Vec<_>>());
        assert!(heard(&pair.one, "dan", &id).await.is_empty());
        assert_eq!(log(&pair.one, "bob").await[0].0, EventType::ConversationCreated);
        for shard in shards(&pair.one) {
            let state = state(&pair.one, shard).await;
            assert!(state.last.n == 0 || state.dispatched == state.last, "{state:?}");
        }
    }

    async fn what_was_delivered_before_the_cursor_moved_is_not_delivered_again(pair: StorePair) {
        let id = group(&pair.one, "ann", &["bob"]).await;
        send_run(&pair.one, "ann", &id, 1..=10).await;
        dispatch_all(&pair.one).await;
        let before = log(&pair.one, "bob").await;
        forget_cursor(&pair.one, "dispatched").await;
        dispatch_all(&pair.two).await;
        assert_eq!(log(&pair.one, "bob").await, before);
        send_run(&pair.one, "ann", &id, 11..=12).await;
        forget_cursor(&pair.one, "dispatched").await;
        dispatch_all(&pair.two).await;
        assert_eq!(heard(&pair.one, "bob", &id).await, (1..=12).collect::<Vec<_>>());
    }

    async fn who_left_hears_what_came_before_and_nothing_after(pair: StorePair) {
        let id = group(&pair.one, "ann", &["bob", "cid"]).await;
        send_run(&pair.one, "ann", &id, 1..=3).await;
        change_conversation(&pair.one, &user("ann"), &id, &Command::Remove(user("bob"))).await.unwrap();
        send_run(&pair.one, "ann", &id, 4..=6).await;
        change_conversation(&pair.one, &user("cid"), &id, &Command::Invite(user("eve"))).await.unwrap();
        // Nothing was dispatched while bob was a member.
        dispatch_all(&pair.one).await;
        let bob = log(&pair.one, "bob").await;
        assert_eq!(heard(&pair.one, "bob", &id).await, [1, 2, 3]);
        assert_eq!(bob.last().unwrap().0, EventType::MemberRemoved);
        assert_eq!(bob.iter().filter(|(kind, ..)| *kind == EventType::MemberRemoved).count(), 1);
        assert_eq!(heard(&pair.one, "ann", &id).await, (1..=8).collect::<Vec<_>>());
        assert_eq!(heard(&pair.one, "eve", &id).await, [8], "eve hears of her own coming and what follows");
        let keys = pair.one.keys.conversation(&id);
        assert_eq!(redis(&pair.one, "LLEN", &[&keys.left]).await.as_u64().unwrap(), 0, "ended memberships are forgotten");
        let listed = |name: &str| pair.one.keys.user(&user(name)).index;
        assert!(redis(&pair.one, "ZSCORE", &[&listed("bob"), id.as_str()]).await.is_nil());
        assert!(!redis(&pair.one, "ZSCORE", &[&listed("eve"), id.as_str()]).await.is_nil());
    }

    async fn workers_take_what_is_said_to_logs_and_archive_and_stop_cleanly(pair: StorePair) {
        let stop = CancellationToken::new();
        let mut workers = start_workers(Arc::clone(&pair.one), stop.clone());
        let id = group(&pair.two, "ann", &["bob"]).await;
        for n in 1..=50 {
            try_send(&pair.two, "ann", &id, &format!("k{n}"), "hi").await.unwrap();
        }
        let shard = pair.one.keys.shard_of(&id);
        eventually("everything is in the logs and in Postgres, and the outbox is empty", LONG, async || {
            let whole = pair.two.archive.load_conversation(&id, 100).await.unwrap();
            heard(&pair.two, "bob", &id).await.len() == 50
                && whole.is_some_and(|whole| whole.recent.len() == 50)
                && state(&pair.two, shard).await.entries == 0
        })
        .await;
        // A lone message is archived at once, not with the next poll or batch.
        let mut fastest = Duration::MAX;
        for n in 51..=60 {
            let begun = Instant::now();
            let seq = try_send(&pair.two, "ann", &id, &format!("k{n}"), "hi").await.unwrap();
            while pair.two.archive.messages_at(&id, &[seq]).await.unwrap().is_empty() {
                assert!(begun.elapsed() < LONG);
            }
            fastest = fastest.min(begun.elapsed());
        }
        assert!(fastest < Duration::from_millis(150), "{fastest:?}");
        stop.cancel();
        tokio::time::timeout(Duration::from_secs(10), async { while workers.join_next().await.is_some() {} }).await.unwrap();
        for shard in shards(&pair.one) {
            assert!(redis(&pair.two, "GET", &[&keys::shard_lease(shard)]).await.is_nil(), "{shard:?} is free");
        }
        assert!(redis(&pair.two, "SMEMBERS", &[&keys::workers()]).await.as_list().unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_is_away_delays_nobody_else_and_misses_nothing() {
    let mut redis = PrivateRedis::start_durable(RedisKind::Cluster).await;
    let database = TestDatabase::migrated().await;
    let stores = stores::open(&redis.url(), database.url(), &[]).await;
    // The conversation on one node, ann and bob with it or on a second one, cid on the one that will be away.
    let id = group(&stores, "starter", &[]).await;
    let shard = stores.keys.shard_of(&id);
    let home = node_of(&redis, &keys::outbox(shard)).await;
    let away = (home + 1) % 3;
    let bob = user_on(&redis, &stores, "bob", |node| node != away).await;
    let cid = user_on(&redis, &stores, "cid", |node| node == away).await;
    for name in [&bob, &cid] {
        change_conversation(&stores, &user("starter"), &id, &Command::Invite(user(name))).await.unwrap();
    }
    let mut line = dispatcher(&stores, shard);
    while line.dispatch_once(1).await.unwrap() > 0 {}
    let before = heard(&stores, &cid, &id).await.len();
    redis.nodes()[away].process().kill().await;
    for n in 0..30 {
        try_send(&stores, "starter", &id, &format!("k{n}"), "hi").await.unwrap();
        let begun = Instant::now();
        // What is said meanwhile reaches bob; cid's partition leaves the line.
        while heard(&stores, &bob, &id).await.last() != Some(&(n + 3)) {
            assert!(begun.elapsed() < LONG, "bob waits");
            line.dispatch_once(1).await.unwrap();
        }
    }
    let waiting = state(&stores, shard).await;
    assert!(waiting.dispatched < waiting.last, "the cursor waits for cid's partition");
    // The archive goes on too, but for the shards of the server that is away.
    let _ = archiver(&stores).archive_once(&shards(&stores)).await.unwrap_err();
    assert_eq!(state(&stores, shard).await.archived, state(&stores, shard).await.last);
    assert!(state(&stores, shard).await.entries >= 30, "nothing is trimmed before cid has it");
    redis.nodes()[away].start_again().await.unwrap();
    eventually("cid has everything", LONG, async || {
        let _ = line.dispatch_once(20).await;
        let _ = try_send(&stores, "starter", &id, "late", "hi").await;
        state(&stores, shard).await.dispatched == state(&stores, shard).await.last
    })
    .await;
    assert_eq!(heard(&stores, &bob, &id).await.len(), 32 + 1);
    let cids = heard(&stores, &cid, &id).await;
    assert_eq!(cids.len(), before + 31, "{cids:?}");
    assert!(cids.windows(2).all(|pair| pair[0] + 1 == pair[1]), "in order and whole: {cids:?}");
}
