//! How long an audit takes: a million messages in 2,000 conversations, written by COPY, all well.
//!
//! `cargo bench --bench audit`. One private Postgres with its default durability and one private Redis in which no conversation is; the
//! largest conversation has a tenth of all messages. Prints rows a second and how much memory the audit took at most.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use seqline::actions::Stores;
use seqline::actions::audit_everything::{Audit, Place};
use seqline::domain::ids::ConversationId;
use seqline::embedded::{PostgresOptions, PostgresServer, RedisOptions, RedisServer, TempFolder};
use seqline::postgres::Archive;
use seqline::redis::link::Link;
use seqline::settings::Settings;
use sqlx::{Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

const MESSAGES: u64 = 1_000_000;
const CONVERSATIONS: u64 = 2_000;
/// Messages of the largest one.
const LARGEST: u64 = 100_000;
const AT_MS: i64 = 1_764_500_000_000;

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
    let (folder, redis_folder) = (TempFolder::new("bench").unwrap(), TempFolder::new("bench-redis").unwrap());
    let mut server = PostgresServer::start(folder.path(), &PostgresOptions::default()).await.unwrap();
    let redis = RedisServer::start(redis_folder.path(), &RedisOptions { throw_away: true, ..RedisOptions::default() }).await.unwrap();
    let url = server.url("postgres");
    let archive = Archive::connect(&url, 4).unwrap();
    archive.migrate().await.unwrap();
    let settings = Words::parse_from(["bench", "--redis-url", &redis.url(), "--database-url", &url]).settings;
    let begun = Instant::now();
    fill(&url, settings.shards).await;
    println!("filled in           {:>9.1} s", begun.elapsed().as_secs_f64());

    let link = Link::connect(&redis.url(), 3_000).await.unwrap();
    let stores: Arc<Stores> = Stores::new(link, archive, None, Arc::new(settings));
    let before = resident_kib();
    let (mut audit, mut findings, mut most, begun) = (Audit::of_everything(&stores, Place::Begin, 60_000), 0, before, Instant::now());
    while let Some(found) = audit.step().await.unwrap() {
        if let Some(first) = found.first() {
            println!("{first:?}");
        }
        findings += found.len();
        most = most.max(resident_kib());
    }
    let took = begun.elapsed();
    println!(
        "messages            {:>9}, {} conversations, {} users",
        audit.looked.messages, audit.looked.conversations, audit.looked.users
    );
    println!("findings            {findings:>9}");
    println!("audited in          {:>9.1} s", took.as_secs_f64());
    println!("rows a second       {:>9.0}", audit.looked.messages as f64 / took.as_secs_f64());
    println!("memory above start  {:>9} KiB", most.saturating_sub(before));
    server.stop().await;
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok()).unwrap()
}

async fn fill(url: &str, shards: u16) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    // What is copied is indexed here at once, without terms: search is not what is measured.
    connection.execute("ALTER TABLE messages DISABLE TRIGGER messages_queue_new").await.unwrap();
    let mut messages = connection
        .copy_in_raw("COPY messages (conv_id, seq, id, sender, client_id, kind, body, fingerprint, rev, created_at_ms) FROM STDIN")
        .await
        .unwrap();
    let (mut conversations, mut members) = (String::new(), String::new());
    let mut left = MESSAGES;
    for number in 0..CONVERSATIONS {
        let id = ConversationId::of_group(Uuid::now_v7());
        let each = (MESSAGES - LARGEST) / (CONVERSATIONS - 1);
        let count = if number == 0 {
            LARGEST
        } else if number == CONVERSATIONS - 1 {
            left
        } else {
            each
        };
        left -= count;
        let mut rows = String::new();
        for seq in 1..=count {
            let (message, sender) = (Uuid::now_v7(), format!("user-{}", (number + seq % 5) % 500));
            rows.push_str(&format!("{id}\t{seq}\t{message}\t{sender}\t{message}\ttext\tSomething of the length that messages usually have\tabc\t{seq}\t{AT_MS}\n"));
            if rows.len() > 1_000_000 {
                messages.send(std::mem::take(&mut rows).into_bytes()).await.unwrap();
            }
        }
        messages.send(rows.into_bytes()).await.unwrap();
        conversations.push_str(&format!(
            "{id}\t{}\tgroup\t1\tuser-{}\t{AT_MS}\t{count}\t{count}\t{AT_MS}\n",
            id.shard(shards).0,
            number % 500
        ));
        for place in 0..5 {
            let role = if place == 0 { "owner" } else { "member" };
            members.push_str(&format!("{id}\tuser-{}\t{role}\t{AT_MS}\t0\t1\t1\n", (number + place) % 500));
        }
    }
    messages.finish().await.unwrap();
    let copies = [
        ("COPY conversations (id, shard, kind, facts_rev, owner, created_at_ms, head_seq, rev, updated_at_ms) FROM STDIN", conversations),
        ("COPY members (conv_id, user_id, role, joined_at_ms, joined_seq, joined_rev, rev) FROM STDIN", members),
    ];
    for (statement, rows) in copies {
        let mut into = connection.copy_in_raw(statement).await.unwrap();
        into.send(rows.into_bytes()).await.unwrap();
        into.finish().await.unwrap();
    }
    let terms = "INSERT INTO message_terms SELECT conv_id, created_at_ms, seq, rev, ''::tsvector FROM messages";
    connection.execute(terms).await.unwrap();
    connection.execute("ANALYZE").await.unwrap();
}
