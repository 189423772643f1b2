//! Search over 200,000 messages of 200 conversations that one user belongs to, and what it costs the archive that they can be found.
//!
//! `cargo bench --bench search`. Four fifths of the bodies are lines of the recorded chat, the others Chinese made of two-character words as
//! often as words are; the first conversation has a fifth of all messages. What is timed is the question to Postgres for a page of 50, with
//! everything in its cache: the median of nine. Then Postgres explains how it reads the index for a rare word.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use seqline::domain::conversation::History;
use seqline::domain::ids::{ClientKey, ConversationId, ShardId, UserId};
use seqline::domain::membership::Role;
use seqline::domain::message::{Message, MessageKind};
use seqline::domain::search_terms::{SearchText, terms_of};
use seqline::embedded::{PostgresOptions, PostgresServer, TempFolder};
use seqline::postgres::search::{FoundAt, LOOK_UP, WALK, conversation_tag};
use seqline::postgres::{Archive, ArchiveBatch, ConversationFacts, ConversationRow, MemberRow, Source};
use sqlx::{Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

const MESSAGES: usize = 200_000;
const CONVERSATIONS: usize = 200;
const BATCH_ROWS: usize = 1_000;
const PAGE: usize = 51;
/// Rare, common and very common words, words of two Han characters, one letter, several words, and what nobody said.
const QUERIES: &[(&str, &str)] = &[
    ("rare", "zebrafish"),
    ("rare and common", "zebrafish the"),
    ("rare, Chinese", "鲸鱼"),
    ("middling", "question"),
    ("common, Chinese", "天气"),
    ("one Han character", "天"),
    ("very common", "the"),
    ("one letter", "a"),
    ("two common", "the you"),
    ("two that never meet", "zebrafish 鲸鱼"),
    ("said by nobody", "xylophonist"),
];
fn main() {
    // `cargo test --benches` calls it with this, to see that it builds.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(measure());
}

async fn measure() {
    let (folder, sockets) = (TempFolder::new("bench").unwrap(), TempFolder::new("sockets").unwrap());
    std::fs::set_permissions(sockets.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let directory = sockets.path().display().to_string();
    let options = PostgresOptions { more: vec![("unix_socket_directories".into(), directory.clone())], ..PostgresOptions::default() };
    let mut server = PostgresServer::start(folder.path(), &options).await.unwrap();
    let url = server.url("postgres").replace("127.0.0.1", &directory.replace('/', "%2F"));
    let archive = Archive::connect(&url, 2).unwrap();
    archive.migrate().await.unwrap();
    archive.grant_epoch(ShardId(0), "s", None, None, 1).await.unwrap();
    let mut sql = PgConnection::connect(&url).await.unwrap();

    let mut talk = Talk::new();
    archive.write_batch(&talk.rooms()).await.unwrap();
    let (mut noted, mut silent, mut indexing, mut folding) = (Duration::ZERO, Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let rounds = MESSAGES / BATCH_ROWS;
    for round in 0..rounds {
        // Every tenth batch is written without the notes first and then once more with them: the same rows, the same table.
        let batch = talk.batch();
        if round % 10 == 0 {
            sql.execute("ALTER TABLE messages DISABLE TRIGGER USER").await.unwrap();
            silent += time(archive.write_batch(&batch)).await;
            sql.execute("ALTER TABLE messages ENABLE TRIGGER USER").await.unwrap();
            sql.execute("INSERT INTO search_queue (conv_ids, seqs) SELECT array_agg(m.conv_id), array_agg(m.seq) FROM messages AS m LEFT JOIN message_terms AS t USING (conv_id, created_at_ms, seq) WHERE t.seq IS NULL")
                .await
                .unwrap();
        } else {
            noted += time(archive.write_batch(&batch)).await;
        }
        let begun = Instant::now();
        batch.messages.iter().for_each(|message| drop(std::hint::black_box(terms_of(&message.body))));
        folding += begun.elapsed();
        let begun = Instant::now();
        while archive.index_messages().await.unwrap().more {}
        indexing += begun.elapsed();
    }
    let rate = |rows: usize, took: Duration| rows as f64 / took.as_secs_f64();
    println!("archived without notes  {:>8.0} rows/s", rate(rounds / 10 * BATCH_ROWS, silent));
    println!("archived with notes     {:>8.0} rows/s", rate((rounds - rounds / 10) * BATCH_ROWS, noted));
    println!("terms worked out        {:>8.0} messages/s", rate(MESSAGES, indexing));
    println!("of that, without Postgres {:>6.0} messages/s", rate(MESSAGES, folding));
    sql.execute("VACUUM ANALYZE").await.unwrap();
    for relation in ["message_terms", "message_terms_pkey", "message_terms_by_term"] {
        let bytes: i64 = sqlx::query_scalar("SELECT pg_relation_size($1::regclass)").bind(relation).fetch_one(&mut sql).await.unwrap();
        println!("{relation:<22} {:>7.0} bytes a message", bytes as f64 / MESSAGES as f64);
    }

    let user = UserId::parse("ann").unwrap();
    println!("\n{:<22} {:<16} {:>6} {:>10} {:>12}", "query", "", "found", "first page", "second page");
    for (what, query) in QUERIES {
        let text = SearchText::parse(query).unwrap();
        let first = archive.find_messages(&user, None, &text, None, PAGE).await.unwrap();
        let took = median(&archive, &user, &text, None).await;
        let second = median(&archive, &user, &text, first.last()).await;
        println!("{what:<22} {query:<16} {:>6} {:>7.1} ms {:>9.1} ms", first.len(), took.as_secs_f64() * 1e3, second.as_secs_f64() * 1e3);
    }
    sql.execute("SET jit = off").await.unwrap();
    for (what, statement) in [("one round of the walk", WALK), ("the look into the index", LOOK_UP)] {
        let chosen = if statement == WALK { 50 } else { CONVERSATIONS };
        let ids: Vec<&str> = talk.conversations[..chosen].iter().map(|(id, _)| id.as_str()).collect();
        let queries: Vec<String> = ids.iter().map(|id| format!("'{}zebrafish':*", conversation_tag(id))).collect();
        let explain = sqlx::AssertSqlSafe(format!("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) {statement}"));
        let asked =
            sqlx::query_scalar(explain).bind(ids).bind(vec![1_i64; chosen]).bind(vec![i64::MAX; chosen]).bind(vec![i64::MAX; chosen]);
        let plan: Vec<String> = asked.bind(queries).bind(if statement == WALK { 10_i64 } else { 51 }).fetch_all(&mut sql).await.unwrap();
        println!("\n{what}:\n{}", plan.join("\n"));
    }
    sql.close().await.unwrap();
    archive.close().await;
    server.stop().await;
}

async fn time<T: std::fmt::Debug, E: std::fmt::Debug>(work: impl Future<Output = Result<T, E>>) -> Duration {
    let begun = Instant::now();
    work.await.unwrap();
    begun.elapsed()
}

async fn median(archive: &Archive, user: &UserId, text: &SearchText, before: Option<&FoundAt>) -> Duration {
    let mut took = Vec::new();
    for _ in 0..9 {
        took.push(time(archive.find_messages(user, None, text, before, PAGE)).await);
    }
    took.sort();
    took[took.len() / 2]
}

/// Rows as they come: conversations by chance, each in its own order.
struct Talk {
    conversations: Vec<(ConversationId, u64)>,
    lines: Vec<String>,
    chance: u64,
    sent: i64,
}

impl Talk {
    fn new() -> Self {
        let record = include_str!("../tests/data/irc-two-evenings.ndjson").lines();
        let lines =
            record.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["body"].as_str().unwrap().to_owned()).collect();
        let conversations = (0..CONVERSATIONS).map(|_| (ConversationId::of_group(Uuid::now_v7()), 0)).collect();
        Self { conversations, lines, chance: 1, sent: 0 }
    }

    fn rooms(&self) -> ArchiveBatch {
        let user = UserId::parse("ann").unwrap();
        let facts = ConversationFacts {
            title: None,
            owner: Some(user.clone()),
            pair: None,
            history: History::All,
            created_at: 1,
            dissolved: false,
        };
        let rows = self.conversations.iter().map(|(id, _)| ConversationRow {
            id: id.clone(),
            shard: ShardId(0),
            facts: Some(facts.clone()),
            head_seq: 0,
            rev: 0,
            updated_at: 1,
        });
        let members = self.conversations.iter().map(|(id, _)| MemberRow {
            conv: id.clone(),
            user: user.clone(),
            role: Role::Owner,
            joined_at: 1,
            joined_seq: 0,
            joined_rev: 0,
            left_rev: None,
            rev: 0,
        });
        ArchiveBatch { sources: vec![source()], conversations: rows.collect(), members: members.collect(), ..ArchiveBatch::default() }
    }

    fn batch(&mut self) -> ArchiveBatch {
        ArchiveBatch { sources: vec![source()], messages: (0..BATCH_ROWS).map(|_| self.message()).collect(), ..ArchiveBatch::default() }
    }

    fn message(&mut self) -> Message {
        let place = if self.below(5) == 0 { 0 } else { self.below(CONVERSATIONS) };
        let body = self.body();
        let (conversation, seq) = &mut self.conversations[place];
        *seq += 1;
        self.sent += 1;
        Message {
            seq: *seq,
            rev: *seq,
            client_id: Some(ClientKey::parse(&Uuid::now_v7().to_string()).unwrap()),
            body,
            fingerprint: Some("0123456789abcdef0123456789abcdef".into()),
            ..Message::unplaced(
                Uuid::now_v7(),
                conversation.clone(),
                UserId::parse("bob").unwrap(),
                MessageKind::Text,
                1_764_500_000_000 + self.sent * 1_000,
            )
        }
    }

    fn body(&mut self) -> String {
        match (self.below(20_000), self.below(5)) {
            (0, _) => "a zebrafish, in the end".to_owned(),
            (1, _) => "看，鲸鱼来了".to_owned(),
            (_, 0) => (0..3 + self.below(10)).map(|_| self.word()).collect(),
            _ => {
                let line = self.below(self.lines.len());
                self.lines[line].clone()
            }
        }
    }

    /// Two Han characters; the few first words make up much of what is said, 天气 among them.
    fn word(&mut self) -> String {
        let chance = self.below(1_000_000) as f64 / 1_000_000.0;
        let rank = 4_000_f64.powf(chance) as u32;
        if rank == 30 {
            return "天气".to_owned();
        }
        [rank * 7 % 2_500, rank * 13 % 2_503].into_iter().map(|n| char::from_u32(0x4E00 + n).unwrap()).collect()
    }

    /// The same at every run.
    fn below(&mut self, end: usize) -> usize {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) as usize % end
    }
}

fn source() -> Source {
    Source { shard: ShardId(0), epoch: 0, server_id: "s".into() }
}
