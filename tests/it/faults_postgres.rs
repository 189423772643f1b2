//! Postgres away: whoever is talking goes on talking, what is new waits, and the backlog goes by itself when it is back.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::{Connection as _, PgConnection};

use crate::crowd::{Load, both, events_head, group_on_every_shard, listen, log_after, messages_in, prove, prove_heard, send_for_sure};
use crate::harness::proxy::Proxy;
use crate::harness::servers::postgres_pair;
use crate::harness::{Client, Fleet, PATIENCE, PrivateRedis, RedisKind, TestDatabase, User, eventually};
use crate::trace::Trace;
use crate::witnesses::{Listener, Writers, settle};

/// A request's deadline, and what a loaded machine may add.
const DEADLINE: Duration = Duration::from_secs(12);

/// A process and its children.
pub fn family(pid: u32) -> Vec<u32> {
    let parent = |entry: &fs::DirEntry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let children = fs::read_dir("/proc").unwrap().flatten().filter(|entry| parent(entry) == Some(pid));
    children.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).chain([pid]).collect()
}

/// Sends a signal, e.g. `STOP`, to each of them.
pub fn signal(signal: &str, pids: &[u32]) {
    for pid in pids {
        Command::new("sh").args(["-c", "kill -s \"$1\" \"$2\"", "sh", signal, &pid.to_string()]).status().unwrap();
    }
}

/// What must go on while Postgres is away, and what must be refused in time.
async fn talk_without_postgres(anns: &[Client], bob: &Client, group: &str, from: u64) {
    let mut slowest = Duration::ZERO;
    for n in 0..60 {
        let begun = Instant::now();
        let seq = anns[n % 2].send(group, &uuid::Uuid::now_v7().to_string(), "hi").await.expect(201).seq();
        slowest = slowest.max(begun.elapsed());
        assert_eq!(seq, from + n as u64);
    }
    println!("slowest send without Postgres: {slowest:?}");
    let page = bob.history(group, "limit=50").await.expect(200);
    assert_eq!(page.items().last().unwrap()["seq"], from + 59);
    bob.read(group, from + 59).await.expect(200);
    let begun = Instant::now();
    let answer = bob.post("/v1/conversations", &serde_json::json!({"kind": "group", "members": ["ann"]})).await;
    println!("a new group: {} after {:?}", answer.status, begun.elapsed());
    assert!(begun.elapsed() < DEADLINE && answer.header("retry-after").is_some());
    answer.expect_problem(503, "unavailable");
}

async fn archived(database: &TestDatabase) -> i64 {
    let Ok(mut connection) = PgConnection::connect(database.url()).await else { return -1 };
    sqlx::query_scalar("SELECT count(*) FROM messages").fetch_one(&mut connection).await.unwrap_or(-1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn talk_goes_on_while_postgres_is_away_and_the_backlog_goes_when_it_is_back() {
    let redis = PrivateRedis::start(RedisKind::Single).await;
    let mut fleet = Fleet::start_over(redis, TestDatabase::on_own_server().await, 2, 1, &[]).await;
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    let anns = [fleet.client(0, &ann).kept_alive(), fleet.client(1, &ann).kept_alive()];
    let bobs = fleet.client(1, &bob);
    let group = anns[0].create_group("talk", &["bob"]).await;
    let from = events_head(&bobs).await;
    let heard = listen(vec![bobs.clone()], from, 123);
    anns[0].send(&group, "k1", "hi").await.expect(201);
    let ready = async |fleet: &Fleet| reqwest::get(format!("{}/readyz", fleet.admin_url(0))).await.unwrap().status().as_u16();

    // Halted: connections stand, and nothing answers.
    let pids = family(fleet.database_mut().server().process().pid().unwrap());
    assert!(pids.len() > 5, "{pids:?}");
    signal("STOP", &pids);
    talk_without_postgres(&anns, &bobs, &group, 2).await;
    assert_eq!(ready(&fleet).await, 200, "warm conversations go on, so requests may come");
    signal("CONT", &pids);
    let back = Instant::now();
    eventually("the backlog is archived", PATIENCE, async || archived(fleet.database()).await == 61).await;
    println!("halted: archived {:?} after it is back", back.elapsed());

    // Gone: nobody listens.
    fleet.database_mut().server().process().signal("INT");
    eventually("Postgres has ended", PATIENCE, async || fleet.database_mut().server().process().ended().is_some()).await;
    talk_without_postgres(&anns, &bobs, &group, 62).await;
    fleet.database_mut().server().start_again().await.unwrap();
    let back = Instant::now();
    eventually("the backlog is archived", PATIENCE, async || archived(fleet.database()).await == 121).await;
    println!("gone: archived {:?} after it is back", back.elapsed());
    let other = bobs.create_group("new", &["ann"]).await;
    send_for_sure(&anns, 0, &other, "k", "hi").await;
    send_for_sure(&anns, 0, &group, "k", "hi").await;
    let seqs: Vec<u64> = heard
        .await
        .unwrap()
        .iter()
        .filter(|h| h.message["conversation_id"] == *group)
        .map(|h| h.message["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(seqs, (1..=122).collect::<Vec<_>>(), "the stream went on all the time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn talk_does_not_notice_that_postgres_ends_connections_or_gets_a_column() {
    const EACH: usize = 60;
    let fleet = Fleet::start(RedisKind::Single, 2, 1).await;
    let (writers, bob) = (User::many(8), User::new("bob"));
    let names: Vec<&str> = writers.iter().skip(1).chain([&bob]).map(|user| user.id.as_str()).collect();
    let groups = group_on_every_shard(&fleet.client(0, &writers[0]), &names).await;
    let from = events_head(&fleet.client(0, &writers[1])).await;
    let load = Load::start(writers.iter().map(|user| both(&fleet, user)).collect(), &groups, EACH);
    let mut connection = fleet.database().connect().await;
    for time in 0..8 {
        load.at(time * writers.len() * EACH / 8).await;
        let end =
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let ended: i64 = sqlx::query_scalar(end).fetch_one(&mut connection).await.unwrap();
        if time == 4 {
            sqlx::query("ALTER TABLE messages ADD COLUMN zz int").execute(&mut connection).await.unwrap();
        }
        // What needs Postgres at once may be told to come again, when new connections take their time.
        let (client, begun) = (fleet.client(time, &bob), Instant::now());
        let wish = serde_json::json!({"kind": "group", "members": ["user-0"]});
        let answer = client.post("/v1/conversations", &wish).await;
        println!("{ended} connections ended; a new group: {} after {:?}", answer.status, begun.elapsed());
        assert!(answer.status == 201 || (answer.status == 503 && answer.header("retry-after").is_some()), "{}", answer.text);
        assert!(begun.elapsed() < DEADLINE);
        eventually("groups are made again", PATIENCE, async || client.post("/v1/conversations", &wish).await.status == 201).await;
    }
    let told = load.finish().await;
    let unlike: Vec<_> = told.iter().filter(|one| one.status != 201 || !one.refused.is_empty()).collect();
    assert!(unlike.is_empty(), "{unlike:?}");
    prove(&told, &[fleet.client(1, &bob)], &[(fleet.client(1, &writers[1]), from)], fleet.database()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_at_its_high_water_mark_refuses_sends_until_it_sinks() {
    let fleet = Fleet::start_with(RedisKind::Single, 2, 1, &["--outbox-max-entries", "40"]).await;
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    let (anns, bobs) = (both(&fleet, &ann), both(&fleet, &bob));
    let group = anns[0].create_group("talk", &["bob"]).await;
    let from = events_head(&bobs[0]).await;
    let mut connection = fleet.database().connect().await;
    let mut barrier = connection.begin().await.unwrap();
    sqlx::query("LOCK TABLE messages IN SHARE MODE").execute(&mut *barrier).await.unwrap();
    let mut told = Vec::new();
    let refused = loop {
        let key = uuid::Uuid::now_v7().to_string();
        let answer = anns[told.len() % 2].send(&group, &key, "hi").await;
        if answer.status != 201 {
            assert!(answer.header("retry-after").is_some());
            answer.expect_problem(503, "overloaded");
            break key;
        }
        told.push(send_for_sure(&anns, 0, &group, &key, "hi").await);
        assert!(told.len() <= 60, "no mark holds it");
    };
    assert!(told.len() >= 38, "{}", told.len());
    anns[1].send(&group, &refused, "hi").await.expect_problem(503, "overloaded");
    assert_eq!(bobs[1].whole_history(&group).await.len(), told.len(), "what stands is read");
    let heard = listen(vec![bobs[1].clone()], from.clone(), told.len() + 1);
    barrier.rollback().await.unwrap();
    told.push(send_for_sure(&anns, 0, &group, &refused, "hi").await);
    prove_heard(&told, &heard.await.unwrap());
    prove(&told, &bobs, &[(bobs[0].clone(), from)], fleet.database()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_takes_over_has_everything_that_was_answered_archived() {
    let (mut primary, standby, _folder) = postgres_pair().await;
    let proxy = Proxy::before(primary.port()).await;
    let database = TestDatabase::elsewhere(proxy.url(&primary.url("migrated")));
    let fleet = Fleet::start_over(PrivateRedis::start(RedisKind::Single).await, database, 2, 1, &[]).await;
    let (writers, bob) = (User::many(4), User::new("bob"));
    let names: Vec<&str> = writers.iter().skip(1).chain([&bob]).map(|user| user.id.as_str()).collect();
    let groups = group_on_every_shard(&fleet.client(0, &writers[0]), &names).await;
    let trace = Arc::new(Trace::default());
    let at = both(&fleet, &bob);
    let from = events_head(&at[0]).await;
    let listener = Listener::start(at, from, &trace);
    let crowd = Writers::start(writers.iter().map(|user| both(&fleet, user)).collect(), &groups, &trace);
    crowd.further(150).await;
    // Its connections end with it; new ones are led to the one that takes over.
    proxy.cut();
    primary.process().kill().await;
    crowd.further(20).await;
    let mut connection = PgConnection::connect(&standby.url("postgres")).await.unwrap();
    assert!(sqlx::query_scalar::<_, bool>("SELECT pg_promote()").fetch_one(&mut connection).await.unwrap());
    proxy.lead_to(standby.port());
    proxy.restore();
    crowd.further(150).await;
    crowd.finish().await;
    let readers = [fleet.client(0, &bob), fleet.client(1, &writers[1])];
    let gone = settle(&trace, &groups, &both(&fleet, &writers[0]), &readers, vec![listener], fleet.database()).await;
    trace.assert_whole();
    assert_eq!(gone, 0, "Redis had everything all the time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn talk_goes_on_while_postgres_only_reads() {
    let fleet = Fleet::start(RedisKind::Single, 2, 1).await;
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    let (anns, bobs) = (both(&fleet, &ann), fleet.client(1, &bob));
    let group = anns[0].create_group("talk", &["bob"]).await;
    let from = events_head(&bobs).await;
    anns[0].send(&group, "k1", "hi").await.expect(201);
    let mut connection = fleet.database().connect().await;
    eventually("it is archived", PATIENCE, async || archived(fleet.database()).await == 1).await;
    let mut only_reads = async |word: &str| {
        let set = format!("ALTER ROLE postgres IN DATABASE {} SET default_transaction_read_only = {word}", fleet.database().name());
        sqlx::raw_sql("SET default_transaction_read_only = off").execute(&mut connection).await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(set)).execute(&mut connection).await.unwrap();
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        sqlx::query(end).execute(&mut connection).await.unwrap();
    };
    only_reads("on").await;
    let told: Vec<_> = {
        let mut told = Vec::new();
        for n in 0..40 {
            told.push(send_for_sure(&anns, n, &group, &uuid::Uuid::now_v7().to_string(), "hi").await);
        }
        told
    };
    assert!(told.iter().all(|one| one.refused.is_empty()), "no send notices: {told:?}");
    assert_eq!(archived(fleet.database()).await, 1, "nothing can be written");
    assert_eq!(bobs.whole_history(&group).await.len(), 41);
    only_reads("off").await;
    eventually("the backlog is archived", PATIENCE, async || archived(fleet.database()).await == 41).await;
    let seqs: Vec<u64> = messages_in(&log_after(&bobs, &from).await).iter().map(|m| m["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=41).collect::<Vec<_>>());
}
