//! Redis that loses what it had: killed, emptied, or back as it was a while ago. No number is given twice, what is lost is told void.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use seqline::domain::ids::{ConversationId, ShardId};
use seqline::redis::keys;
use serde_json::Value;
use sqlx::Connection as _;

use crate::crowd::{both, events_head, log_after, messages_in, send_for_sure, seqs_up_to, until_ready};
use crate::harness::fleet::{PARTITIONS, SHARDS};
use crate::harness::{Client, Fleet, PATIENCE, PrivateRedis, RedisKind, User, eventually};

/// Proves that every seq which was told has its message or is told void, and that no number bears two messages.
pub async fn kept_or_void(client: &Client, group: &str, told: &HashMap<u64, String>) -> usize {
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
        // What was written last had not reached the disk.
        cut_tail(&fleet.redis_ref().folder().join("appendonlydir"), 2_000 * round as u64);
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
    // Who wants to be woken was forgotten too; what leaves no entry reaches open streams all the same.
    anns[0].post(&format!("/v1/conversations/{group}/typing"), &serde_json::json!({"typing": true})).await.expect(204);
    stream.wait_for("typing.updated", PATIENCE).await;
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

/// Cuts so many bytes off the newest file that grows.
fn cut_tail(folder: &Path, bytes: u64) {
    let files = std::fs::read_dir(folder).unwrap().flatten().filter(|file| file.file_name().to_string_lossy().ends_with(".incr.aof"));
    let newest = files.max_by_key(|file| file.metadata().unwrap().modified().unwrap()).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(newest.path()).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length.saturating_sub(bytes)).unwrap();
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_back_as_it_was_a_while_ago_goes_on_above_all_that_was_told() {
    let mut fleet = Fleet::start_on(PrivateRedis::start_durable(RedisKind::Single).await, 2, 1, &[]).await;
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    let anns = both(&fleet, &ann);
    let group = anns[0].create_group("talk", &["bob"]).await;
    let mut stream = fleet.client(1, &bob).stream().open().await;
    stream.wait_for("hello", PATIENCE).await;
    let mut told = HashMap::new();
    let mut keys = Vec::new();
    let mut send = async |body: &str| {
        let key = uuid::Uuid::now_v7().to_string();
        let one = send_for_sure(&anns, told.len(), &group, &key, body).await;
        assert!(told.keys().all(|seq| *seq < one.seq), "{} is not above all before", one.seq);
        told.insert(one.seq, one.id.clone());
        keys.push((key, one.clone()));
        one.seq
    };
    for _ in 0..20 {
        send("kept").await;
    }
    seqs_up_to(&mut stream, 20).await;
    let folder = fleet.redis_ref().folder();
    copy_folder(&folder.join("appendonlydir"), &folder.join("earlier"));
    for _ in 0..10 {
        send("archived, and forgotten by Redis").await;
    }
    let mut connection = fleet.database().connect().await;
    let archived = async |connection: &mut sqlx::PgConnection| {
        sqlx::query_scalar::<_, i64>("SELECT count(*) FROM messages").fetch_one(connection).await.unwrap()
    };
    eventually("these are archived", PATIENCE, async || archived(&mut connection).await == 30).await;
    let mut barrier = connection.begin().await.unwrap();
    sqlx::query("LOCK TABLE messages IN SHARE MODE").execute(&mut *barrier).await.unwrap();
    for _ in 0..10 {
        send("known to nobody afterwards").await;
    }
    seqs_up_to(&mut stream, 40).await;
    fleet.redis().nodes()[0].process().kill().await;
    std::fs::remove_dir_all(folder.join("appendonlydir")).unwrap();
    copy_folder(&folder.join("earlier"), &folder.join("appendonlydir"));
    barrier.rollback().await.unwrap();
    fleet.redis().nodes()[0].start_again().await.unwrap();
    let back = Instant::now();
    let next = send("after").await;
    println!("a send works {:?} after the restart; after 40 comes {next}", back.elapsed());
    assert!(next > 40);
    assert_eq!(stream.wait_for("resync", PATIENCE).await.data["reason"], "lost");
    let from = events_head(&fleet.client(0, &bob)).await;
    let last = send("heard").await;
    let heard = seqs_up_to(&mut stream, last).await;
    assert!(heard.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{heard:?}");
    eventually("the log holds it", PATIENCE, async || {
        let seqs: Vec<u64> =
            messages_in(&log_after(&fleet.client(0, &bob), &from).await).iter().map(|m| m["seq"].as_u64().unwrap()).collect();
        assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");
        seqs.last() == Some(&last)
    })
    .await;
    // The same intent again: a message that stands is found by its key, and one that is lost is made anew, once.
    for (key, one) in keys {
        let body = match one.seq {
            1..=20 => "kept",
            21..=30 => "archived, and forgotten by Redis",
            31..=40 => "known to nobody afterwards",
            _ => continue,
        };
        let again = send_for_sure(&anns, 0, &group, &key, body).await;
        if again.status == 200 {
            assert_eq!((again.seq, &again.id), (one.seq, &one.id));
        } else {
            assert!(one.seq > 30 && again.seq > last, "{} became {}", one.seq, again.seq);
        }
    }
    for client in [fleet.client(0, &bob), fleet.client(1, &ann)] {
        let lost = kept_or_void(&client, &group, &told).await;
        println!("{lost} of {} were lost", told.len());
        assert!((1..=10).contains(&lost));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_redis_that_needs_a_new_epoch_still_hands_its_backlog_to_postgres() {
    let mut fleet = Fleet::start(RedisKind::Single, 2, 1).await;
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    let anns = both(&fleet, &ann);
    let group = anns[0].create_group("talk", &["bob"]).await;
    let mut connection = fleet.database().connect().await;
    let mut barrier = connection.begin().await.unwrap();
    sqlx::query("LOCK TABLE messages IN SHARE MODE").execute(&mut *barrier).await.unwrap();
    let mut told = HashMap::new();
    for n in 0..15 {
        let sent = anns[n % 2].send(&group, &format!("k{n}"), "hi").await.expect(201);
        told.insert(sent.seq(), sent.json["id"].as_str().unwrap().to_owned());
    }
    // As after a restart of a server that was full before.
    let mut wire = fleet.redis().nodes()[0].wire().await.unwrap();
    wire.expect_ok(&["MULTI"]).await.unwrap();
    for shard in 0..SHARDS {
        wire.command(&["HSET", &keys::shard_info(ShardId(shard)), "replid", "another"]).await.unwrap();
    }
    wire.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    assert_eq!(wire.command(&["EXEC"]).await.unwrap().items().len(), usize::from(SHARDS) + 1);
    barrier.rollback().await.unwrap();
    eventually("the backlog is archived", PATIENCE, async || {
        sqlx::query_scalar::<_, i64>("SELECT count(*) FROM messages").fetch_one(&mut connection).await.unwrap() == 15
    })
    .await;
    anns[0].send(&group, "full", "hi").await.expect(503);
    wire.expect_ok(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    let next = send_for_sure(&anns, 0, &group, "room", "hi").await;
    assert!(next.seq > 15);
    told.insert(next.seq, next.id);
    assert_eq!(kept_or_void(&fleet.client(1, &bob), &group, &told).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_shown_an_archive_that_is_behind_while_a_new_epoch_opens() {
    let mut fleet = Fleet::start(RedisKind::Single, 2, 1).await;
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    let group = fleet.client(0, &ann).create_group("talk", &["bob"]).await;
    fleet.client(0, &ann).send(&group, "first", "archived").await.expect(201);
    let mut connection = fleet.database().connect().await;
    eventually("it is archived", PATIENCE, async || {
        sqlx::query_scalar::<_, i64>("SELECT count(*) FROM messages").fetch_one(&mut connection).await.unwrap() == 1
    })
    .await;
    let mut barrier = connection.begin().await.unwrap();
    sqlx::query("LOCK TABLE messages IN SHARE MODE").execute(&mut *barrier).await.unwrap();
    for n in 0..5 {
        fleet.client(n, &ann).send(&group, &format!("k{n}"), "held by Redis alone").await.expect(201);
    }
    // As after a restart that lost nothing: a new epoch is granted, and cannot open before Postgres has what survived.
    let mut wire = fleet.redis().nodes()[0].wire().await.unwrap();
    wire.expect_ok(&["MULTI"]).await.unwrap();
    for shard in 0..SHARDS {
        wire.command(&["HSET", &keys::shard_info(ShardId(shard)), "replid", "another"]).await.unwrap();
    }
    assert_eq!(wire.command(&["EXEC"]).await.unwrap().items().len(), usize::from(SHARDS));
    let here = keys::Keys { shards: SHARDS, partitions: PARTITIONS }.shard_of(&ConversationId::parse(&group).unwrap());
    eventually("its shard waits for Postgres", PATIENCE, async || {
        wire.command(&["HGET", &keys::shard_info(here), "state"]).await.unwrap().text() == Some("closed")
    })
    .await;
    let newest = async |path: &'static str| {
        let bob = fleet.client(1, &bob);
        match path {
            "list" => bob.conversations().await.expect(200).items()[0]["head_seq"].as_u64(),
            "one" => bob.conversation(&group).await.expect(200).json["head_seq"].as_u64(),
            "page" => bob.history(&group, "limit=10").await.expect(200).items().last().unwrap()["seq"].as_u64(),
            _ => bob.history(&group, "since_rev=0").await.expect(200).items().iter().filter_map(|m| m["seq"].as_u64()).max(),
        }
    };
    let mut asked = Box::pin(async { tokio::join!(newest("list"), newest("one"), newest("page"), newest("changes")) });
    // Who would answer out of an archive that is behind does it at once.
    let early = tokio::time::timeout(Duration::from_millis(700), &mut asked).await;
    barrier.rollback().await.unwrap();
    let told = match early {
        Ok(told) => told,
        Err(_) => asked.await,
    };
    assert_eq!(told, (Some(6), Some(6), Some(6), Some(6)));
}
