//! The way to Redis under faults: replies that are lost, connections that are cut, servers that hang, die, come back, or hand over.
//!
//! Each call carries a request of its own and the script counts how often it was executed, so that afterwards three things can be read
//! off: nothing was executed twice, what was answered was executed, and what is said not to have been sent was not executed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use seqline::embedded::{RedisCluster, RedisOptions, RedisServer, TempFolder, WireReply};
use seqline::redis::link::{Link, LinkError, Script};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::harness::standby::Sentinel;

static COUNT: Script = Script { name: "count", source: "return redis.call('HINCRBY', KEYS[1], ARGV[1], 1)" };

fn options() -> RedisOptions {
    RedisOptions { throw_away: true, ..RedisOptions::default() }
}

async fn count(link: &Link, key: &str, request: &str) -> Result<i64, LinkError> {
    let args = vec![Bytes::copy_from_slice(request.as_bytes())];
    link.eval(&COUNT, vec![key.to_owned()], args).await.map(|reply| reply.as_i64().unwrap())
}

/// Tries until it works, and returns how long that took; fails the test after `longest` seconds.
async fn until_served(link: &Link, key: &str, longest: u64) -> Duration {
    let begun = Instant::now();
    loop {
        match count(link, key, "probe").await {
            Ok(_) => return begun.elapsed(),
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(longest), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How often each request was executed, read past the link.
async fn executed(server: &RedisServer, key: &str) -> HashMap<String, i64> {
    let reply = server.wire().await.unwrap().command(&["HGETALL", key]).await.unwrap();
    let pair = |pair: &[WireReply]| (pair[0].text().unwrap().to_owned(), pair[1].text().unwrap().parse().unwrap());
    reply.items().chunks(2).map(pair).collect()
}

/// Stands between the link and the server; can swallow what the server answers, and cut every connection.
struct Proxy {
    port: u16,
    swallow: Arc<AtomicBool>,
    cut: watch::Sender<u64>,
}

impl Proxy {
    async fn before(server_port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let swallow = Arc::new(AtomicBool::new(false));
        let (cut, cuts) = watch::channel(0);
        let swallowing = swallow.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (swallowing, mut cuts) = (swallowing.clone(), cuts.clone());
                cuts.mark_unchanged();
                tokio::spawn(async move {
                    let server = TcpStream::connect(("127.0.0.1", server_port)).await.unwrap();
                    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (client.into_split(), server.into_split());
                    let requests = tokio::io::copy(&mut from_client, &mut to_server);
                    let replies = async {
                        let mut buffer = vec![0; 65_536];
                        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
                            if !swallowing.load(Ordering::SeqCst) && to_client.write_all(&buffer[..length]).await.is_err() {
                                break;
                            }
                        }
                    };
                    tokio::select! { _ = requests => {} () = replies => {} _ = cuts.changed() => {} }
                });
            }
        });
        Self { port, swallow, cut }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_replies_are_not_asked_for_twice() {
    let folder = TempFolder::new("link").unwrap();
    let server = RedisServer::start(folder.path(), &options()).await.unwrap();
    let proxy = Proxy::before(server.port()).await;
    let link = Link::connect(&format!("redis://:{}@127.0.0.1:{}", server.password(), proxy.port), 5_000).await.unwrap();
    count(&link, "warm:{1}", "a").await.unwrap();
    for (round, cut) in [("cut", true), ("silent", false)] {
        let key = format!("{round}:{{1}}");
        proxy.swallow.store(true, Ordering::SeqCst);
        let calls = (0..100).map(|n| {
            let (link, key) = (link.clone(), key.clone());
            tokio::spawn(async move { count(&link, &key, &n.to_string()).await })
        });
        let calls: Vec<_> = calls.collect();
        let begun = Instant::now();
        while executed(&server, &key).await.len() < 100 {
            assert!(begun.elapsed() < Duration::from_secs(5));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if cut {
            proxy.swallow.store(false, Ordering::SeqCst);
            proxy.cut.send_modify(|n| *n += 1);
        }
        for call in calls {
            let outcome = call.await.unwrap();
            assert!(matches!(outcome, Err(LinkError::NoAnswer(_))), "{round}: {outcome:?}");
        }
        assert!(begun.elapsed() < Duration::from_millis(2_500));
        proxy.swallow.store(false, Ordering::SeqCst);
        proxy.cut.send_modify(|n| *n += 1);
        until_served(&link, "probe:{1}", 10).await;
        assert!(executed(&server, &key).await.values().all(|times| *times == 1), "{round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_cut_connections_doubles_nothing() {
    let folder = TempFolder::new("link").unwrap();
    let cluster = RedisCluster::start(folder.path(), 3, &options()).await.unwrap();
    let link = Link::connect(&cluster.url(), 5_000).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let tasks = (0..32).map(|task| {
        let (link, stop) = (link.clone(), stop.clone());
        tokio::spawn(async move {
            let mut outcomes = Vec::new();
            for n in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let request = format!("{task}-{n}");
                let outcome = count(&link, &format!("storm:{{{}}}", task % 12), &request).await;
                outcomes.push((request, outcome));
            }
            outcomes
        })
    });
    let tasks: Vec<_> = tasks.collect();
    for _ in 0..30 {
        for node in cluster.nodes() {
            let mut wire = node.wire().await.unwrap();
            wire.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let outcomes: Vec<_> = futures_util::future::join_all(tasks).await.into_iter().flat_map(Result::unwrap).collect();
    let mut executions = HashMap::new();
    for node in cluster.nodes() {
        for key in 0..12 {
            executions.extend(executed(node, &format!("storm:{{{key}}}")).await);
        }
    }
    let (mut answered, mut unknown, mut unsent) = (0, 0, 0);
    for (request, outcome) in outcomes {
        let times = executions.get(&request).copied().unwrap_or(0);
        match outcome {
            Ok(reply) => {
                assert_eq!((reply, times), (1, 1), "{request}");
                answered += 1;
            }
            Err(LinkError::NoAnswer(_)) => {
                assert!(times <= 1, "{request}");
                unknown += 1;
            }
            Err(LinkError::NotSent(_)) => {
                assert_eq!(times, 0, "{request}");
                unsent += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(answered > 1_000, "{answered} answered, {unknown} unknown, {unsent} not sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_server_is_an_error_within_a_second_or_so() {
    let folder = TempFolder::new("link").unwrap();
    let mut server = RedisServer::start(folder.path(), &options()).await.unwrap();
    let link = Link::connect(&server.url(), 5_000).await.unwrap();
    count(&link, "a:{1}", "warm").await.unwrap();
    server.process().signal("STOP");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        let asked = Instant::now();
        let outcome = count(&link, "a:{1}", "hung").await;
        assert!(matches!(outcome, Err(LinkError::NoAnswer(_) | LinkError::NotSent(_))), "{outcome:?}");
        assert!(asked.elapsed() < Duration::from_millis(1_800), "{:?}", asked.elapsed());
    }
    // However many ask: what has no place in the queue is told so at once, and none of it is sent later.
    let asked = Instant::now();
    let calls = (0..10_000).map(|n| {
        let link = link.clone();
        tokio::spawn(async move { count(&link, "flood:{1}", &n.to_string()).await })
    });
    let outcomes = futures_util::future::join_all(calls).await;
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
    let unsent = outcomes.iter().filter(|outcome| matches!(outcome, Ok(Err(LinkError::NotSent(_))))).count();
    assert!(unsent >= 5_000, "{unsent}");
    server.process().signal("CONT");
    assert!(until_served(&link, "a:{1}", 10).await < Duration::from_secs(3));
    assert!(executed(&server, "flood:{1}").await.len() <= 10_000 - unsent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_is_used_again() {
    let folder = TempFolder::new("link").unwrap();
    let kept = RedisOptions { append_only: true, throw_away: false, ..RedisOptions::default() };
    let mut server = RedisServer::start(folder.path(), &kept).await.unwrap();
    let link = Link::connect(&server.url(), 5_000).await.unwrap();
    let mut reader = link.blocking_reader().await.unwrap();
    assert_eq!(reader.read("s:{1}", "0-0", 10, 1).await, Ok(vec![]));
    let waiting = tokio::spawn(async move {
        let broken = reader.read("s:{1}", "0-0", 10, 30_000).await;
        (reader, broken)
    });
    count(&link, "a:{1}", "warm").await.unwrap();
    server.process().kill().await;
    let (mut reader, broken) = waiting.await.unwrap();
    assert!(matches!(broken, Err(LinkError::NoAnswer(_))), "{broken:?}");
    let asked = Instant::now();
    let dead = count(&link, "a:{1}", "dead").await;
    assert!(matches!(dead, Err(LinkError::NotSent(_) | LinkError::NoAnswer(_))), "{dead:?}");
    assert!(asked.elapsed() < Duration::from_millis(1_800));
    assert!(reader.read("s:{1}", "0-0", 10, 1_000).await.is_err());
    // Once it is known that there is no connection, it is certain that nothing was sent.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(matches!(count(&link, "a:{1}", "dead").await, Err(LinkError::NotSent(_))));
    server.start_again().await.unwrap();
    assert!(until_served(&link, "a:{1}", 10).await < Duration::from_secs(3));
    assert_eq!(reader.read("s:{1}", "0-0", 10, 1).await, Ok(vec![]));
}

/// A key whose slot this node has, by its number among three nodes with equal shares.
fn key_of(node: usize) -> String {
    let slots = (16_384 * node / 3)..(16_384 * (node + 1) / 3);
    (0..).map(|n| format!("k:{{{n}}}")).find(|key| slots.contains(&usize::from(fred::util::redis_keyslot(key.as_bytes())))).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_master_leaves_the_others_alone_until_its_replica_takes_over() {
    let folder = TempFolder::new("link").unwrap();
    let mut cluster = RedisCluster::start(folder.path(), 3, &options()).await.unwrap();
    let link = Link::connect(&cluster.url(), 5_000).await.unwrap();
    let (victim, healthy) = (key_of(0), key_of(1));
    count(&link, &victim, "a").await.unwrap();
    let more = RedisOptions { cluster: true, password: Some(cluster.nodes()[0].password().to_owned()), ..options() };
    let replica = RedisServer::start(&folder.path().join("replica"), &more).await.unwrap();
    let id = cluster.nodes()[0].wire().await.unwrap().command(&["CLUSTER", "MYID"]).await.unwrap().text().unwrap().to_owned();
    let mut wire = replica.wire().await.unwrap();
    let (port, bus) = (cluster.nodes()[0].port().to_string(), cluster.nodes()[0].bus_port().to_string());
    wire.expect_ok(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await.unwrap();
    let begun = Instant::now();
    // Refused until the two have met.
    while wire.expect_ok(&["CLUSTER", "REPLICATE", &id]).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    while link.wait_replicas(&victim, 100).await.unwrap().confirmed == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Everybody must know the replica before its master may die.
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.nodes_mut()[0].process().kill().await;
    let begun = Instant::now();
    let stop = Arc::new(AtomicBool::new(false));
    let others = tokio::spawn({
        let (link, stop) = (link.clone(), stop.clone());
        async move {
            let mut slowest = Duration::ZERO;
            while !stop.load(Ordering::Relaxed) {
                let asked = Instant::now();
                count(&link, &healthy, "others").await.unwrap();
                slowest = slowest.max(asked.elapsed());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            slowest
        }
    });
    let back = until_served(&link, &victim, 20).await;
    stop.store(true, Ordering::Relaxed);
    let slowest = others.await.unwrap();
    assert!(slowest < Duration::from_millis(500), "{slowest:?} on a healthy shard; victim back after {back:?}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{back:?}");
    assert_eq!(link.ping_all().await.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_is_followed() {
    let folder = TempFolder::new("link").unwrap();
    let cluster = RedisCluster::start(folder.path(), 3, &options()).await.unwrap();
    let link = Link::connect(&cluster.url(), 5_000).await.unwrap();
    let key = key_of(0);
    let tag = key.trim_start_matches("k:");
    let (stream, fresh) = (format!("stream:{tag}"), format!("fresh:{tag}"));
    let slot = fred::util::redis_keyslot(key.as_bytes()).to_string();
    assert_eq!(count(&link, &key, "before").await, Ok(1));
    let mut reader = link.blocking_reader().await.unwrap();
    let waiting = tokio::spawn({
        let stream = stream.clone();
        async move { (reader.read(&stream, "0-0", 10, 20_000).await, reader) }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;

    let (source, target) = (&cluster.nodes()[0], &cluster.nodes()[1]);
    let (mut from, mut to) = (source.wire().await.unwrap(), target.wire().await.unwrap());
    let source_id = from.command(&["CLUSTER", "MYID"]).await.unwrap().text().unwrap().to_owned();
    let target_id = to.command(&["CLUSTER", "MYID"]).await.unwrap().text().unwrap().to_owned();
    to.expect_ok(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]).await.unwrap();
    from.expect_ok(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]).await.unwrap();
    let port = target.port().to_string();
    from.expect_ok(&["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "AUTH", target.password(), "KEYS", &key]).await.unwrap();
    // On its way: what has gone is asked for there, and what is new is made there.
    assert_eq!(count(&link, &key, "moving").await, Ok(1));
    assert_eq!(count(&link, &key, "before").await, Ok(2));
    assert_eq!(count(&link, &fresh, "moving").await, Ok(1));
    let add = |id: &'static str| {
        let args = [&stream, id, "f", "v"].map(|word: &str| Bytes::copy_from_slice(word.as_bytes()));
        link.command("XADD", &stream, args.to_vec())
    };
    add("1-1").await.unwrap();
    for (node, id) in [(&mut to, &target_id), (&mut from, &target_id)] {
        node.expect_ok(&["CLUSTER", "SETSLOT", &slot, "NODE", id]).await.unwrap();
    }
    assert_eq!(count(&link, &key, "moved").await, Ok(1));
    assert_eq!(count(&link, &key, "before").await, Ok(3));
    add("1-2").await.unwrap();
    let (entries, mut reader) = waiting.await.unwrap();
    let entries = entries.unwrap();
    assert_eq!(entries.first().map(|entry| entry.id.as_str()), Some("1-1"));
    let last = entries.last().unwrap().id.clone();
    add("1-3").await.unwrap();
    let more = reader.read(&stream, &last, 10, 5_000).await.unwrap();
    assert_eq!(more.last().map(|entry| entry.id.as_str()), Some("1-3"));
    assert_eq!(link.wait_replicas(&key, 100).await.unwrap().connected, 0);
}

async fn sentinels_name_another_server(signal: &str) {
    let folder = TempFolder::new("link").unwrap();
    let mut master = RedisServer::start(&folder.path().join("master"), &options()).await.unwrap();
    let follow = RedisOptions { replica_of: Some(master.port()), password: Some(master.password().to_owned()), ..options() };
    let replica = RedisServer::start(&folder.path().join("replica"), &follow).await.unwrap();
    let sentinel = Sentinel::start(folder.path().join("sentinel"), &master);
    let url = sentinel.url(master.password());
    let link = Link::connect(&url, 10_000).await.unwrap();
    count(&link, "a:{1}", "before").await.unwrap();
    let begun = Instant::now();
    let mut wire = sentinel.wire().await;
    loop {
        let known = wire.command(&["SENTINEL", "REPLICAS", "main"]).await.unwrap();
        if known.items().len() == 1 && link.wait_replicas("a:{1}", 1_000).await.unwrap().confirmed == 1 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let replid = link.wait_replicas("a:{1}", 1_000).await.unwrap().replid;
    match signal {
        "FAILOVER" => wire.expect_ok(&["SENTINEL", "FAILOVER", "main"]).await.unwrap(),
        _ => master.process().signal(signal),
    }
    // A server that hands over serves until its successor is chosen.
    while signal == "FAILOVER" && link.wait_replicas("a:{1}", 100).await.is_ok_and(|now| now.replid == replid) {
        assert!(begun.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let back = until_served(&link, "a:{1}", 25).await;
    let after = link.wait_replicas("a:{1}", 1_000).await.unwrap();
    assert_ne!(after.replid, replid, "back after {back:?}");
    assert_eq!(executed(&replica, "a:{1}").await.get("before"), Some(&1));
    assert_eq!(count(&link, "a:{1}", "before").await, Ok(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_sentinels_name_in_place_of_a_dead_one_is_found() {
    sentinels_name_another_server("KILL").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_sentinels_name_in_place_of_a_hung_one_is_found() {
    sentinels_name_another_server("STOP").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_sentinels_were_told_to_replace_is_left() {
    sentinels_name_another_server("FAILOVER").await;
}
