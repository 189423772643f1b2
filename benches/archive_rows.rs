//! Archive rows a second: `Archive::write_batch` against `COPY … (FORMAT binary)` of the same rows into a table of the same shape.
//!
//! `cargo bench --bench archive_rows`. Both run in turns against one private Postgres with its default durability, over a Unix socket:
//! over TCP the driver's COPY waits 40 ms a call for Nagle's algorithm, which would make this comparison worthless. What is written is
//! not the same work: a batch also proves its epoch, tells replays from conflicts and moves the senders' watermarks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use seqline::domain::ids::{ClientKey, ConversationId, ShardId, UserId};
use seqline::domain::message::{Message, MessageKind};
use seqline::embedded::{PostgresOptions, PostgresServer, TempFolder};
use seqline::postgres::{Archive, ArchiveBatch, PushRow, Source};
use sqlx::{Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

const BATCH_ROWS: usize = 1_000;
const ROUNDS: usize = 100;
const WARM_UP_ROUNDS: usize = 10;
const CONVERSATIONS: usize = 200;
const BODY_BYTES: usize = 200;

/// The archive's table once more: the same columns, keys, indexes and partitions.
const SAME_SHAPE: &str = "
    CREATE TABLE copied (LIKE messages INCLUDING ALL) PARTITION BY HASH (conv_id);
    DO $$ BEGIN FOR n IN 0..15 LOOP
        EXECUTE format('CREATE TABLE copied_%s PARTITION OF copied FOR VALUES WITH (MODULUS 16, REMAINDER %s)', n, n);
    END LOOP; END $$";

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
    let mut copying = PgConnection::connect(&url).await.unwrap();
    copying.execute(SAME_SHAPE).await.unwrap();

    let source = Source { shard: ShardId(0), epoch: 0, server_id: "s".into() };
    let mut makers = Makers::new();
    let (mut unnest, mut pushed, mut copy, mut replay) = (Duration::ZERO, Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for round in 0..ROUNDS + WARM_UP_ROUNDS {
        let batch = ArchiveBatch { sources: vec![source.clone()], messages: makers.batch(), ..ArchiveBatch::default() };
        let bytes = copy_bytes(&batch.messages);
        let begun = Instant::now();
        assert_eq!(archive.write_batch(&batch).await.unwrap().inserted, BATCH_ROWS as u64);
        let unnest_took = begun.elapsed();
        let begun = Instant::now();
        let mut into = copying.copy_in_raw("COPY copied FROM STDIN (FORMAT binary)").await.unwrap();
        into.send(bytes).await.unwrap();
        assert_eq!(into.finish().await.unwrap(), BATCH_ROWS as u64);
        let copy_took = begun.elapsed();
        let begun = Instant::now();
        assert_eq!(archive.write_batch(&batch).await.unwrap().replayed, BATCH_ROWS as u64);
        let replay_took = begun.elapsed();
        let mut noted = ArchiveBatch { sources: vec![source.clone()], messages: makers.batch(), ..ArchiveBatch::default() };
        noted.pushes = noted.messages.iter().map(|m| PushRow { conv: m.conversation.clone(), seq: m.seq, message: m.id }).collect();
        let begun = Instant::now();
        assert_eq!(archive.write_batch(&noted).await.unwrap().inserted, BATCH_ROWS as u64);
        let pushed_took = begun.elapsed();
        if round >= WARM_UP_ROUNDS {
            unnest += unnest_took;
            pushed += pushed_took;
            copy += copy_took;
            replay += replay_took;
        }
    }
    let rate = |took: Duration| (ROUNDS * BATCH_ROWS) as f64 / took.as_secs_f64();
    println!("rows a batch        {BATCH_ROWS}, {ROUNDS} batches, bodies of {BODY_BYTES} bytes, {CONVERSATIONS} conversations");
    println!("write_batch, new    {:>9.0} rows/s", rate(unnest));
    println!("  with push on      {:>9.0} rows/s", rate(pushed));
    println!("write_batch, again  {:>9.0} rows/s", rate(replay));
    println!("COPY binary         {:>9.0} rows/s", rate(copy));
    println!("write_batch / COPY  {:>9.2}", rate(unnest) / rate(copy));
    copying.close().await.unwrap();
    archive.close().await;
    server.stop().await;
}

/// Makes rows as they come: conversations in turns, each in its own order.
struct Makers {
    conversations: Vec<ConversationId>,
    users: Vec<UserId>,
    sent: usize,
}

impl Makers {
    fn new() -> Self {
        Self {
            conversations: (0..CONVERSATIONS).map(|_| ConversationId::of_group(Uuid::now_v7())).collect(),
            users: (0..10).map(|n| UserId::parse(&format!("user-{n:012}")).unwrap()).collect(),
            sent: 0,
        }
    }

    fn batch(&mut self) -> Vec<Message> {
        (0..BATCH_ROWS).map(|_| self.message()).collect()
    }

    fn message(&mut self) -> Message {
        let seq = (self.sent / CONVERSATIONS + 1) as u64;
        let message = Message {
            seq,
            rev: seq,
            client_id: Some(ClientKey::parse(&Uuid::now_v7().to_string()).unwrap()),
            body: "x".repeat(BODY_BYTES),
            fingerprint: Some("0123456789abcdef0123456789abcdef".into()),
            ..Message::unplaced(
                Uuid::now_v7(),
                self.conversations[self.sent % CONVERSATIONS].clone(),
                self.users[(self.sent / CONVERSATIONS) % self.users.len()].clone(),
                MessageKind::Text,
                1_764_500_000_000,
            )
        };
        self.sent += 1;
        message
    }
}

/// Rows in COPY's binary form: a signature, then for each row the number of fields and each field's length and bytes.
fn copy_bytes(messages: &[Message]) -> Vec<u8> {
    let mut out = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
    for m in messages {
        out.extend(13_i16.to_be_bytes());
        field(&mut out, Some(m.conversation.as_str().as_bytes()));
        field(&mut out, Some(&number(m.seq)));
        field(&mut out, Some(m.id.as_bytes()));
        field(&mut out, Some(m.sender.as_str().as_bytes()));
        field(&mut out, m.client_id.as_ref().map(|k| k.as_str().as_bytes()));
        field(&mut out, Some(m.kind.as_str().as_bytes()));
        field(&mut out, Some(m.body.as_bytes()));
        field(&mut out, None);
        field(&mut out, m.fingerprint.as_ref().map(String::as_bytes));
        field(&mut out, Some(&number(m.rev)));
        field(&mut out, Some(&m.created_at.to_be_bytes()));
        field(&mut out, None);
        field(&mut out, None);
    }
    out.extend((-1_i16).to_be_bytes());
    out
}

fn number(n: u64) -> [u8; 8] {
    i64::try_from(n).unwrap().to_be_bytes()
}

fn field(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => out.extend((-1_i32).to_be_bytes()),
        Some(bytes) => {
            out.extend(i32::try_from(bytes.len()).unwrap().to_be_bytes());
            out.extend(bytes);
        }
    }
}
