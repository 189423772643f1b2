//! Sends a second against the raw limit: the very same script, called by `redis-benchmark` on the same server in the same run.
//!
//! `cargo bench --bench sends`. Four rows: HTTP clients to a gateway, with and without a
//! worker that delivers and archives beside it; the product's own send without HTTP; `redis-benchmark`, one
//! message a call, 50 connections that each keep 16 calls under way. Everything shares this machine's cores, clients too; only the ratios
//! mean something.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use seqline::actions::Stores;
use seqline::actions::make_conversation::{GroupWish, make_group};
use seqline::actions::send_message::{Ack, SendRequest, send_message};
use seqline::domain::conversation::History;
use seqline::domain::ids::{ClientKey, ConversationId, UserId};
use seqline::domain::message::Draft;
use seqline::embedded::{PostgresOptions, PostgresServer, RedisOptions, RedisServer, TempFolder};
use seqline::identity::mint::{Claims, mint};
use seqline::redis::send_message::{SCRIPT, Send, Terms, call_of};
use seqline::settings::Settings;
use seqline::startup::{open_stores, start_gateway, start_worker};
use tokio::task::JoinSet;

const SECRET: &str = "a secret of benchmarks that has at least 32 bytes";
const HTTP_CLIENTS: usize = 64;
const CALLERS: usize = 256;
const SECONDS: u64 = 8;
const RAW_CALLS: u64 = 300_000;
const BODY_BYTES: usize = 200;

#[derive(Parser)]
struct Words {
    #[command(flatten)]
    settings: Settings,
}

fn main() {
    // `cargo test --benches` calls it with this, to see that it builds.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(measure());
}

async fn measure() {
    let (redis_folder, postgres_folder) = (TempFolder::new("bench").unwrap(), TempFolder::new("bench").unwrap());
    let mut redis = RedisServer::start(redis_folder.path(), &RedisOptions { append_only: true, ..RedisOptions::default() }).await.unwrap();
    let mut postgres = PostgresServer::start(postgres_folder.path(), &PostgresOptions::default()).await.unwrap();
    let (redis_url, postgres_url) = (redis.url(), postgres.url("postgres"));
    let settings = Words::parse_from([
        "bench",
        "--redis-url",
        &redis_url,
        "--database-url",
        &postgres_url,
        "--jwt-hs256-secrets",
        SECRET,
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
        "--lease-block",
        "100000000",
        "--outbox-max-entries",
        "100000000",
    ])
    .settings;
    seqline::postgres::Archive::connect(&postgres_url, 1).unwrap().migrate().await.unwrap();
    let stores = open_stores(Arc::new(settings.clone())).await.unwrap();
    let gateway = start_gateway(settings.clone()).await.unwrap();
    let worker = start_worker(settings).await.unwrap();
    let ann = UserId::parse("ann").unwrap();
    let wish = GroupWish { title: None, members: vec![UserId::parse("bob").unwrap()], history: History::All, key: None };
    let group = make_group(&stores, &ann, &wish).await.unwrap().view.conversation.id;

    let base = format!("http://{}", gateway.api_addr);
    let whole = over_http(&base, &group).await;
    // The rest without dispatch and archive beside it, as for the limit.
    worker.stop.cancel();
    worker.join().await;
    let http = over_http(&base, &group).await;
    let own = without_http(&stores, &ann, &group).await;
    let raw = raw(&redis, &stores, &ann, &group).await;
    println!("over HTTP, {HTTP_CLIENTS} clients, delivered and archived  {whole:>7.0} sends/s  {:>5.2} of the limit", whole / raw);
    println!("over HTTP, {HTTP_CLIENTS} clients, accepted only           {http:>7.0} sends/s  {:>5.2} of the limit", http / raw);
    println!("without HTTP, {CALLERS} callers, accepted only       {own:>7.0} sends/s  {:>5.2} of the limit", own / raw);
    println!("redis-benchmark                               {raw:>7.0} calls/s");
    gateway.stop.cancel();
    gateway.join().await;
    redis.stop().await;
    postgres.stop().await;
}

async fn over_http(base: &str, group: &ConversationId) -> f64 {
    let expires = i64::try_from(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()).unwrap() + 3_600;
    let token = mint(SECRET, &Claims { sub: "ann".into(), exp: expires, ..Claims::default() }).unwrap();
    let url = format!("{base}/v1/conversations/{group}/messages");
    let body = "x".repeat(BODY_BYTES);
    in_turns(HTTP_CLIENTS, |_| {
        let (client, url, token, body) = (reqwest::Client::builder().no_proxy().build().unwrap(), url.clone(), token.clone(), body.clone());
        move || {
            let message = serde_json::json!({"client_id": uuid::Uuid::now_v7().to_string(), "body": body});
            let sending = client.post(&url).bearer_auth(&token).json(&message).send();
            async move { assert_eq!(sending.await.unwrap().status(), 201) }
        }
    })
    .await
}

async fn without_http(stores: &Arc<Stores>, ann: &UserId, group: &ConversationId) -> f64 {
    in_turns(CALLERS, |_| {
        let (stores, ann, group) = (Arc::clone(stores), ann.clone(), group.clone());
        move || {
            let (stores, request) = (Arc::clone(&stores), request(&ann, &group, &uuid::Uuid::now_v7().to_string()));
            async move {
                send_message(&stores, request).await.unwrap();
            }
        }
    })
    .await
}

fn request(sender: &UserId, group: &ConversationId, key: &str) -> SendRequest {
    let client_id = ClientKey::parse(key).unwrap();
    let draft = Draft::text(client_id.clone(), "x".repeat(BODY_BYTES));
    SendRequest {
        sender: sender.clone(),
        service: false,
        conversation: group.clone(),
        peer: None,
        client_id,
        content: Ok(draft),
        ack: Ack::Accepted,
    }
}

/// Calls a second of so many callers, each of which begins again when it has ended.
async fn in_turns<C, F>(callers: usize, make: impl Fn(usize) -> C) -> f64
where
    C: Fn() -> F + std::marker::Send + 'static,
    F: Future<Output = ()> + std::marker::Send,
{
    let done = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..callers {
        let (call, done) = (make(number), Arc::clone(&done));
        tasks.spawn(async move {
            while begun.elapsed() < Duration::from_secs(SECONDS) {
                call().await;
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tasks.join_all().await;
    #[allow(clippy::cast_precision_loss)]
    let count = done.load(Ordering::Relaxed) as f64;
    count / begun.elapsed().as_secs_f64()
}

/// The script's calls a second by `redis-benchmark`; its `__rand_int__` makes every key another one.
async fn raw(redis: &RedisServer, stores: &Stores, ann: &UserId, group: &ConversationId) -> f64 {
    let send = Send {
        conversation: group.clone(),
        sender: ann.clone(),
        client_id: ClientKey::parse("raw-__rand_int__").unwrap(),
        fingerprint: "0123456789abcdef0123456789abcdef".into(),
        archive_asked: true,
        message_json: format!(
            r#"{{"id":"{}","s":"ann","k":"k","t":"text","b":"{}","at":1}}"#,
            uuid::Uuid::now_v7(),
            "x".repeat(BODY_BYTES)
        ),
        pair: None,
        open: false,
        refuse: false,
        mentions: Vec::new(),
    };
    let terms = Terms { now: stores.clock.now(), outbox_max: u64::from(u32::MAX), conversation_rate: None };
    let (names, args) = call_of(&stores.keys, stores.keys.shard_of(group), &terms, &[send]);
    let sha = redis.wire().await.unwrap().command(&["SCRIPT", "LOAD", SCRIPT.source]).await.unwrap().text().unwrap().to_owned();
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &redis.port().to_string(), "-a", redis.password(), "-n", &RAW_CALLS.to_string(), "-c", "50", "-P", "16"]);
    command.args(["-r", "1000000000000", "--csv", "EVALSHA", &sha, &names.len().to_string()]);
    command.args(names).args(args.iter().map(|arg| std::str::from_utf8(arg).unwrap()));
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // The last line: name, calls a second, then six latencies; the name holds the whole call, quotes too, so it is read from its end.
    let line = text.lines().last().unwrap();
    line.rsplit("\",\"").nth(6).and_then(|field| field.trim_matches('"').parse().ok()).unwrap_or_else(|| panic!("unreadable: {text}"))
}
