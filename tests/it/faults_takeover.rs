//! A replica that was held back takes over from a primary that had gone on: again and again under load, on Sentinel and on Cluster. And an
//! old primary that still takes writes while the new one does. No number names two messages, what was answered `archived` or `replicated`
//! stays, what is lost is told.

use std::sync::Arc;
use std::time::Duration;

use seqline::embedded::{RedisOptions, RedisServer, TempFolder};
use sqlx::Connection as _;

use crate::crowd::{both, events_head, group_on_every_shard};
use crate::harness::standby::{Standby, info};
use crate::harness::{Fleet, PATIENCE, PrivateRedis, RedisKind, TestDatabase, User, eventually, on_both};
use crate::trace::{Answered, Trace};
use crate::witnesses::{Listener, Writers, settle};

/// A gateway says what is not reached by then; short, so that a writer who waits for a replica that is held back goes on.
const FLAGS: &[&str] = &["--request-deadline-ms", "1500"];
/// What sends may take after a takeover, and open streams to be told: ten times what is promised.
const SENDS_AGAIN: Duration = Duration::from_secs(20);
const STREAMS_TOLD: Duration = Duration::from_secs(30);

on_both! {
    async fn a_replica_that_was_held_back_takes_over_again_and_again(kind: RedisKind) {
        const ROUNDS: usize = 2;
        let mut standby = Standby::start(kind).await;
        let fleet = Fleet::start_over(PrivateRedis::elsewhere(standby.url()), TestDatabase::migrated().await, 2, 1, FLAGS).await;
        let (writers, bob) = (User::many(4), User::new("bob"));
        let members: Vec<&str> = writers.iter().skip(1).chain([&bob]).map(|user| user.id.as_str()).collect();
        let groups = group_on_every_shard(&fleet.client(0, &writers[0]), &members).await;
        let trace = Arc::new(Trace::default());
        let mut listeners = Vec::new();
        for user in [&bob, &writers[0]] {
            let at = both(&fleet, user);
            let from = events_head(&at[0]).await;
            listeners.push(Listener::start(at, from, &trace));
        }
        let crowd = Writers::start(writers.iter().map(|user| both(&fleet, user)).collect(), &groups, &trace);
        let mut moments = Vec::new();
        let mut connection = fleet.database().connect().await;
        for _ in 0..ROUNDS {
            crowd.further(60).await;
            standby.hold_back().await;
            // Nor does Postgres get what is said now.
            let mut barrier = connection.begin().await.unwrap();
            sqlx::query("LOCK TABLE messages IN SHARE MODE").execute(&mut *barrier).await.unwrap();
            crowd.further(40).await;
            let moment = standby.take_over().await;
            barrier.rollback().await.unwrap();
            moments.push(moment);
            for listener in &listeners {
                println!("{kind:?}: a stream was told {:?} after the takeover", listener.told_since(moment, STREAMS_TOLD).await);
            }
            crowd.further(40).await;
            standby.bring_back().await;
        }
        crowd.finish().await;
        let told = trace.answered();
        for moment in moments {
            let first = |group: &String| {
                let later = |one: &&Answered| one.conversation == *group && one.at > moment;
                told.iter().filter(later).map(|one| one.at - moment).min().unwrap()
            };
            let slowest = groups.iter().map(first).max().unwrap();
            println!("{kind:?}: every conversation takes sends {slowest:?} after the takeover");
            assert!(slowest < SENDS_AGAIN, "{slowest:?}");
        }
        let readers = [fleet.client(0, &bob), fleet.client(1, &writers[1])];
        let lost = settle(&trace, &groups, &both(&fleet, &writers[2]), &readers, listeners, fleet.database()).await;
        let by_level = |level: &str| told.iter().filter(|one| one.level == level).count();
        println!("{kind:?}: {lost} of {} lost, {} archived, {} replicated", told.len(), by_level("archived"), by_level("replicated"));
        trace.assert_whole();
        assert!(lost >= ROUNDS, "the takeovers lost nothing, so this proves nothing");
        assert!(by_level("archived") > 0 && by_level("replicated") > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_primary_that_still_takes_writes_gives_no_number_again() {
    let folder = TempFolder::new("test-split").unwrap();
    let options = RedisOptions { throw_away: true, append_only: true, ..RedisOptions::default() };
    let mut old = RedisServer::start(&folder.path().join("old"), &options).await.unwrap();
    let follow = RedisOptions { replica_of: Some(old.port()), password: Some(old.password().to_owned()), ..options };
    let new = RedisServer::start(&folder.path().join("new"), &follow).await.unwrap();
    eventually("it follows", PATIENCE, async || info(&new, "master_link_status").await.as_deref() == Some("up")).await;
    let database = TestDatabase::migrated().await;
    let at_new = PrivateRedis::elsewhere(new.url());
    let before = Fleet::start_over(PrivateRedis::elsewhere(old.url()), database, 2, 1, FLAGS).await;
    let (writers, bob) = (User::many(4), User::new("bob"));
    let members: Vec<&str> = writers.iter().skip(1).chain([&bob]).map(|user| user.id.as_str()).collect();
    let groups = group_on_every_shard(&before.client(0, &writers[0]), &members).await;
    let trace = Arc::new(Trace::default());
    let crowd = Writers::start(writers.iter().map(|user| both(&before, user)).collect(), &groups, &trace);
    crowd.further(100).await;
    // From here on there are two that take writes; neither knows of the other.
    new.wire().await.unwrap().expect_ok(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    let after = Fleet::start_over(at_new, before.database().at(before.database().url()), 2, 1, FLAGS).await;
    let second = Writers::start(writers.iter().map(|user| both(&after, user)).collect(), &groups, &trace);
    second.further(200).await;
    crowd.further(100).await;
    crowd.finish().await;
    old.process().kill().await;
    second.finish().await;
    let readers = [after.client(0, &bob), after.client(1, &writers[1])];
    let lost = settle(&trace, &groups, &both(&after, &writers[0]), &readers, Vec::new(), after.database()).await;
    println!("{lost} of {} were taken by the old primary alone, and are told void", trace.answered().len());
    trace.assert_whole();
    assert!(lost > 0);
}
