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

/// Tries until it works; fails the test after ten seconds.
async fn until_served(link: &Link, key: &str) -> Duration {
    let begun = Instant::now();
    loop {
        match count(link, key, "probe").await {
            Ok(_) => return begun.elapsed(),
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(10), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
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
