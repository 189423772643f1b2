//! Who works for which shard: all of them are somebody's, fairly shared, and soon another's when their owner is gone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use seqline::actions::change_conversation::change_conversation;
use seqline::domain::change::Command;
use seqline::domain::event::EventType;
use seqline::redis::keys;
use seqline::redis::lease_shard::{ShardLease, lease_shard};
use seqline::redis::register_worker::register_worker;
use seqline::redis::release_shard::release_shard;
use seqline::workers::own_shards::{OwnShards, Owned};
use seqline::workers::repeat::{Worker as _, repeat};
use seqline::workers::tend_shards::tend;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::harness::{PrivateRedis, RedisKind, StorePair, TestDatabase, eventually, on_both, stores};
use crate::scene::*;

const LONG: Duration = Duration::from_secs(40);

fn count(view: &watch::Receiver<Owned>) -> usize {
    view.borrow().len()
}

on_both! {
    async fn a_lease_has_one_owner(pair: StorePair) {
        let (link, shard) = (&pair.one.link, seqline::domain::ids::ShardId(3));
        assert_eq!(lease_shard(link, shard, "a", 5_000).await.unwrap(), ShardLease::Taken);
        assert_eq!(lease_shard(link, shard, "a", 5_000).await.unwrap(), ShardLease::Renewed);
        assert_eq!(lease_shard(link, shard, "b", 5_000).await.unwrap(), ShardLease::Held("a".into()));
        assert!(!release_shard(link, shard, "b").await.unwrap());
        assert!(release_shard(link, shard, "a").await.unwrap());
        assert_eq!(lease_shard(link, shard, "b", 50).await.unwrap(), ShardLease::Taken);
        eventually("a lease ends by itself", LONG, async || lease_shard(link, shard, "a", 5_000).await.unwrap() == ShardLease::Taken).await;
    }

    async fn the_register_forgets_the_dead(pair: StorePair) {
        let link = &pair.one.link;
        for n in 0..20 {
            register_worker(link, &format!("dead{n}"), 30).await.unwrap();
        }
        eventually("only the living stand there", LONG, async || register_worker(link, "me", 5_000).await.unwrap() == ["me"]).await;
        assert_eq!(redis(&pair.one, "SCARD", &[&keys::workers()]).await.as_u64().unwrap(), 1);
    }

    async fn shards_are_shared_and_move_when_their_owner_is_gone(pair: StorePair) {
        let (mut one, view_one) = OwnShards::new(Arc::clone(&pair.one), "one".into());
        let (mut two, view_two) = OwnShards::new(Arc::clone(&pair.two), "two".into());
        one.run_once().await.unwrap();
        assert_eq!(count(&view_one), 8, "alone it has all");
        for _ in 0..3 {
            two.run_once().await.unwrap();
            one.run_once().await.unwrap();
        }
        two.run_once().await.unwrap();
        assert_eq!((count(&view_one), count(&view_two)), (4, 4));
        assert!(view_one.borrow().is_disjoint(&view_two.borrow()));

        // One stops renewing, as a killed process does.
        drop(one);
        eventually("two has all", LONG, async || {
            two.run_once().await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
            count(&view_two) == 8
        })
        .await;
        // A worker that leaves in peace gives them back at once.
        two.release_all().await;
        let (mut three, view_three) = OwnShards::new(Arc::clone(&pair.one), "three".into());
        three.run_once().await.unwrap();
        assert_eq!((count(&view_two), count(&view_three)), (0, 8));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_cannot_renew_stops_believing_that_it_owns() {
    let mut redis = PrivateRedis::start(RedisKind::Single).await;
    let database = TestDatabase::migrated().await;
    let stores = stores::open(&redis.url(), database.url(), &[]).await;
    let (own, view) = OwnShards::new(Arc::clone(&stores), "one".into());
    let stop = CancellationToken::new();
    let running = tokio::spawn(repeat(own, stop.clone()));
    eventually("it owns all", LONG, async || count(&view) == 8).await;
    redis.nodes()[0].process().kill().await;
    eventually("it owns nothing", LONG, async || count(&view) == 0).await;
    redis.nodes()[0].start_again().await.unwrap();
    eventually("it owns all again", LONG, async || count(&view) == 8).await;
    // The server was restarted: whoever tends the shards opens a new epoch of each.
    let mut epochs = BTreeSet::new();
    for shard in shards(&stores) {
        let state = tend(&stores, shard).await.unwrap();
        assert!(!state.needs_epoch());
        epochs.insert(state.epoch);
        assert_eq!(tend(&stores, shard).await.unwrap().epoch, state.epoch, "looking again opens nothing");
    }
    assert_eq!(epochs.len(), 1);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_restarted_server_still_holds_is_archived_and_dispatched() {
    let mut redis = PrivateRedis::start_durable(RedisKind::Single).await;
    let database = TestDatabase::migrated().await;
    let stores = stores::open(&redis.url(), database.url(), &[]).await;
    let id = group(&stores, "ann", &["bob"]).await;
    send_run(&stores, "ann", &id, 1..=10).await;
    // Neither dispatched nor archived; the server goes down and comes back with its data.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    redis.nodes()[0].process().kill().await;
    redis.nodes()[0].start_again().await.unwrap();
    let shard = stores.keys.shard_of(&id);
    eventually("a new epoch is open", LONG, async || tend(&stores, shard).await.is_ok_and(|state| state.epoch == Some(1))).await;
    assert_eq!(stores.archive.load_conversation(&id, 100).await.unwrap().unwrap().recent.len(), 10, "archived before it was opened");
    let next = try_send(&stores, "bob", &id, "next", "hi").await.unwrap();
    assert!(next > 10);
    dispatch_all(&stores).await;
    let heard = heard(&stores, "bob", &id).await;
    assert_eq!(heard, (1..=10).chain([next]).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_whose_logs_live_elsewhere_are_told_that_a_server_was_lost() {
    let mut redis = PrivateRedis::start(RedisKind::Cluster).await;
    let database = TestDatabase::migrated().await;
    let stores = stores::open(&redis.url(), database.url(), &[]).await;
    let id = group(&stores, "ann", &[]).await;
    let shard = stores.keys.shard_of(&id);
    let home = node_of(&redis, &keys::outbox(shard)).await;
    let bob = user_on(&redis, &stores, "bob", |node| node != home).await;
    change_conversation(&stores, &user("ann"), &id, &Command::Invite(user(&bob))).await.unwrap();
    send_run(&stores, "ann", &id, 1..=3).await;
    dispatch_all(&stores).await;
    archive_all(&stores).await;
    let (before, heard_before) = (log(&stores, &bob).await, heard(&stores, &bob, &id).await.len());
    // The server comes back with nothing.
    redis.nodes()[home].process().kill().await;
    redis.nodes()[home].start_again().await.unwrap();
    eventually("a new epoch is open", LONG, async || tend(&stores, shard).await.is_ok_and(|state| state.epoch == Some(1))).await;
    for (key, body) in [("next", "hi"), ("more", "ho")] {
        eventually("sends work", LONG, async || try_send(&stores, "ann", &id, key, body).await.is_ok()).await;
    }
    eventually("bob hears of it", LONG, async || {
        let mut dispatcher = dispatcher(&stores, shard);
        let _ = dispatcher.dispatch_once(20).await;
        heard(&stores, &bob, &id).await.len() == heard_before + 2
    })
    .await;
    let after: Vec<EventType> = log(&stores, &bob).await[before.len()..].iter().map(|(kind, ..)| *kind).collect();
    assert_eq!(after, [EventType::Resync, EventType::MessageCreated, EventType::MessageCreated]);
}
