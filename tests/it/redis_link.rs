//! The way to Redis: one server, a Cluster, Sentinels; servers that die, hang, forget their scripts or hand their slots on.

use std::time::{Duration, Instant};

use bytes::Bytes;
use seqline::embedded::{RedisCluster, RedisOptions, RedisServer, TempFolder};
use seqline::redis::link::{Link, LinkError, Reply, Script};

/// Counts how often each request was executed: what a repeated command would show.
static COUNT: Script = Script { name: "count", source: "return redis.call('HINCRBY', KEYS[1], ARGV[1], 1)" };
static SHAPES: Script = Script {
    name: "shapes",
    source: "redis.setresp(3) return {'word', 7, false, {1, 'x'}, {double = 1.5}, {map = {k = 'v'}}, {set = {a = true}}, \
             {err = 'OUCH inside'}, true}",
};
static FAILS: Script = Script { name: "fails", source: "return redis.error_reply('NOPE said the script')" };

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn options() -> RedisOptions {
    RedisOptions { throw_away: true, ..RedisOptions::default() }
}

async fn single(folder: &TempFolder) -> (RedisServer, Link) {
    let server = RedisServer::start(&folder.path().join("redis"), &options()).await.unwrap();
    let link = Link::connect(&server.url(), 5_000).await.unwrap();
    (server, link)
}

async fn cluster(folder: &TempFolder) -> (RedisCluster, Link) {
    let cluster = RedisCluster::start(folder.path(), 3, &options()).await.unwrap();
    let link = Link::connect(&cluster.url(), 5_000).await.unwrap();
    (cluster, link)
}

async fn count(link: &Link, key: &str, request: &str) -> Result<i64, LinkError> {
    link.eval(&COUNT, vec![key.to_owned()], vec![bytes(request)]).await.map(|reply| reply.as_i64().unwrap())
}

async fn the_basics(link: &Link) {
    for n in 0..40 {
        assert_eq!(count(link, &format!("count:{{{n}}}"), "a").await, Ok(1));
    }
    let args = vec![bytes("count:{7}"), bytes("a")];
    assert_eq!(link.command("HGET", "count:{7}", args).await, Ok(Reply::Bulk(bytes("1"))));
    let key = vec!["x:{1}".to_owned()];
    let word = |text| Reply::Bulk(bytes(text));
    assert_eq!(
        link.eval(&SHAPES, key.clone(), vec![]).await,
        Ok(Reply::List(vec![
            word("word"),
            Reply::Int(7),
            Reply::Int(0),
            Reply::List(vec![Reply::Int(1), word("x")]),
            word("1.5"),
            Reply::List(vec![word("k"), word("v")]),
            Reply::List(vec![word("a")]),
            Reply::Error("OUCH inside".into()),
            Reply::Int(1),
        ]))
    );
    let refused = link.eval(&FAILS, key, vec![]).await;
    assert!(matches!(&refused, Err(LinkError::Refused(text)) if text.starts_with("NOPE said the script")), "{refused:?}");
    for (address, pong) in link.ping_all().await {
        assert!(pong.is_ok(), "{address}: {pong:?}");
    }
    let policies = link.config_get("maxmemory-policy").await.unwrap();
    assert!(policies.iter().all(|(_, value)| value.as_deref() == Some("noeviction")), "{policies:?}");
    assert!(link.info("server").await.unwrap().iter().all(|(_, text)| text.contains("redis_version")));
}

async fn the_stream(link: &Link) {
    let key = "outbox:{s3}";
    let add = |id: &'static str, value: &'static str| {
        let link = link.clone();
        async move { link.command("XADD", key, [key, id, "f", value].map(bytes).to_vec()).await.unwrap() }
    };
    let mut reader = link.blocking_reader().await.unwrap();
    assert_eq!(reader.read(key, "0-0", 10, 0).await, Ok(vec![]));
    let begun = Instant::now();
    assert_eq!(reader.read(key, "0-0", 10, 100).await, Ok(vec![]));
    assert!(begun.elapsed() >= Duration::from_millis(100));
    let later = tokio::spawn({
        let add = add("1-1", "one");
        async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            add.await;
        }
    });
    let begun = Instant::now();
    let entries = reader.read(key, "0-0", 10, 5_000).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2));
    later.await.unwrap();
    assert_eq!((entries.len(), entries[0].id.as_str()), (1, "1-1"));
    assert_eq!(entries[0].fields, vec![("f".to_owned(), bytes("one"))]);
    // A read that is dropped half-way holds nothing up.
    assert!(tokio::time::timeout(Duration::from_millis(50), reader.read(key, "1-1", 10, 20_000)).await.is_err());
    add("1-2", "two").await;
    add("1-3", "three").await;
    let ids: Vec<_> = reader.read(key, "1-1", 1, 5_000).await.unwrap().into_iter().map(|entry| entry.id).collect();
    assert_eq!(ids, ["1-2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_server_answers() {
    let folder = TempFolder::new("link").unwrap();
    let (_server, link) = single(&folder).await;
    assert!(!link.is_cluster());
    the_basics(&link).await;
    the_stream(&link).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_answers() {
    let folder = TempFolder::new("link").unwrap();
    let (_cluster, link) = cluster(&folder).await;
    assert!(link.is_cluster());
    assert_eq!(link.ping_all().await.len(), 3);
    the_basics(&link).await;
    the_stream(&link).await;
}

async fn forgotten_scripts_come_back(link: &Link, servers: &[RedisServer]) {
    for round in 0..3 {
        count(link, "x:{1}", "warm").await.unwrap();
        for server in servers {
            server.wire().await.unwrap().expect_ok(&["SCRIPT", "FLUSH"]).await.unwrap();
        }
        let calls = (0..200).map(|n| {
            let (link, request) = (link.clone(), format!("{round}-{n}"));
            tokio::spawn(async move { count(&link, &format!("flush:{{{}}}", n % 20), &request).await })
        });
        for call in calls.collect::<Vec<_>>() {
            assert_eq!(call.await.unwrap(), Ok(1));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_the_server_forgot_are_sent_again() {
    let folder = TempFolder::new("link").unwrap();
    let (server, link) = single(&folder).await;
    forgotten_scripts_come_back(&link, &[server]).await;
    let folder = TempFolder::new("link").unwrap();
    let (cluster, link) = cluster(&folder).await;
    forgotten_scripts_come_back(&link, cluster.nodes()).await;
}

#[tokio::test]
async fn what_is_wrong_with_the_url_is_said_without_the_password() {
    for url in ["redis://u:s3cret@127.0.0.1:1", "redis-cluster://:s3cret@127.0.0.1:1", "redis://u:s3cret/", "redis://:s3cret@h:p"] {
        let begun = Instant::now();
        let error = Link::connect(url, 300).await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(3));
        assert!(matches!(error, LinkError::NotSent(_)) && !error.to_string().contains("s3cret"), "{error}");
    }
    let folder = TempFolder::new("link").unwrap();
    let server = RedisServer::start(folder.path(), &options()).await.unwrap();
    let wrong = Link::connect(&format!("redis://:s3cret@127.0.0.1:{}", server.port()), 1_000).await.unwrap_err().to_string();
    assert!(wrong.contains("WRONGPASS") && !wrong.contains("s3cret"), "{wrong}");
    let no_cluster = Link::connect(&server.url().replace("redis://", "redis-cluster://"), 1_000).await.unwrap_err().to_string();
    assert!(no_cluster.contains("cluster support disabled"), "{no_cluster}");
}

async fn calls_of(server: &RedisServer, command: &str) -> u64 {
    let info = server.wire().await.unwrap().command(&["INFO", "commandstats"]).await.unwrap();
    let prefix = format!("cmdstat_{command}:calls=");
    let line = info.text().unwrap().lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned);
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_names_the_replicas_that_confirmed() {
    let folder = TempFolder::new("link").unwrap();
    let (server, link) = single(&folder).await;
    let alone = link.wait_replicas("a:{1}", 100).await.unwrap();
    assert_eq!((alone.confirmed, alone.connected, alone.replid.len()), (0, 0, 40));

    let follow = RedisOptions { replica_of: Some(server.port()), password: Some(server.password().to_owned()), ..options() };
    let mut replica = RedisServer::start(&folder.path().join("replica"), &follow).await.unwrap();
    let begun = Instant::now();
    while link.wait_replicas("a:{1}", 100).await.unwrap().connected == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    count(&link, "a:{1}", "r").await.unwrap();
    let one = link.wait_replicas("a:{1}", 5_000).await.unwrap();
    // Its first replica gives a server a new history: nobody has followed the old one.
    assert_eq!((one.confirmed, one.connected, one.replid == alone.replid), (1, 1, false));
    assert_eq!(link.wait_replicas("b:{2}", 5_000).await.unwrap(), one);

    // Those who come together share a few rounds.
    let before = calls_of(&server, "wait").await;
    let waits = (0..100).map(|n| {
        let link = link.clone();
        tokio::spawn(async move { link.wait_replicas(&format!("a:{{{n}}}"), 5_000).await.unwrap().confirmed })
    });
    for wait in waits.collect::<Vec<_>>() {
        assert_eq!(wait.await.unwrap(), 1);
    }
    let rounds = calls_of(&server, "wait").await - before;
    assert!(rounds < 50, "{rounds}");

    // A full server is waited for all the same.
    let mut wire = server.wire().await.unwrap();
    wire.expect_ok(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    assert_eq!(count(&link, "a:{1}", "full").await, Err(LinkError::OutOfMemory));
    assert_eq!(link.wait_replicas("a:{1}", 5_000).await.unwrap().confirmed, 1);
    wire.expect_ok(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();

    // A replica that is late is not counted, and the answer comes in time.
    replica.process().signal("STOP");
    let begun = Instant::now();
    let late = link.wait_replicas("a:{1}", 300).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert_eq!((late.confirmed, late.connected), (0, 1));
    replica.process().signal("CONT");
    assert_eq!(link.wait_replicas("a:{1}", 5_000).await.unwrap().confirmed, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_end_with_who_opened_them() {
    let folder = TempFolder::new("link").unwrap();
    let (server, link) = single(&folder).await;
    let connected = async || {
        let list = server.wire().await.unwrap().command(&["CLIENT", "LIST", "TYPE", "normal"]).await.unwrap();
        // The one that asks is among them.
        list.text().unwrap().lines().count() - 1
    };
    assert_eq!(connected().await, 1);
    let mut readers = Vec::new();
    for n in 0..10 {
        let mut reader = link.blocking_reader().await.unwrap();
        assert_eq!(reader.read(&format!("s:{{{n}}}"), "0-0", 1, 1).await, Ok(vec![]));
        readers.push(reader);
    }
    assert_eq!(connected().await, 11);
    // One read is given up half-way, one reader while it reads, the others at rest.
    let mut first = readers.remove(0);
    assert!(tokio::time::timeout(Duration::from_millis(50), first.read("s:{0}", "0-0", 1, 60_000)).await.is_err());
    let mut second = readers.remove(0);
    let reading = tokio::spawn(async move { second.read("s:{1}", "0-0", 1, 60_000).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    reading.abort();
    drop(readers);
    drop(first);
    drop(link);
    let begun = Instant::now();
    while connected().await > 0 {
        assert!(begun.elapsed() < Duration::from_secs(5), "{} left", connected().await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
