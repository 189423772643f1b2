//! One private Postgres for all tests that run at the same time, and a fresh, migrated database in it for each.

use std::sync::{Arc, Weak};

use seqline::domain::ids::{ClientKey, ConversationId, Seq, ShardId, UserId};
use seqline::domain::message::{Message, MessageKind};
use seqline::embedded::{PostgresOptions, PostgresServer, TempFolder, random_word};
use seqline::postgres::{Archive, ArchiveBatch, ConversationFacts, ConversationRow, MemberRow, Source};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::sync::Mutex;
use uuid::Uuid;

static SHARED: Mutex<Weak<Shared>> = Mutex::const_new(Weak::new());

struct Shared {
    server: PostgresServer,
    _folder: TempFolder,
}

/// A database of one's own.
pub struct Database {
    pub archive: Archive,
    pub url: String,
    _shared: Arc<Shared>,
}

/// Makes a database and applies the migrations.
pub async fn database() -> Database {
    let shared = {
        let mut weak = SHARED.lock().await;
        match weak.upgrade() {
            Some(shared) => shared,
            None => {
                let folder = TempFolder::new("archive").unwrap();
                let options = PostgresOptions { throw_away: true, connections: Some(200), ..PostgresOptions::default() };
                let server = PostgresServer::start(folder.path(), &options).await.unwrap();
                let shared = Arc::new(Shared { server, _folder: folder });
                *weak = Arc::downgrade(&shared);
                shared
            }
        }
    };
    let name = format!("t_{}", random_word(12).to_lowercase());
    let mut admin = PgConnection::connect(&shared.server.url("postgres")).await.unwrap();
    sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut admin).await.unwrap();
    let url = shared.server.url(&name);
    let archive = Archive::connect(&url, 8).unwrap();
    archive.migrate().await.unwrap();
    Database { archive, url, _shared: shared }
}

impl Database {
    /// A connection past the archive.
    pub async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    /// One number from one statement.
    pub async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut self.connection().await).await.unwrap()
    }

    /// Opens and installs epoch 0 of a shard for server `s1`.
    pub async fn open_shard(&self, shard: u16) -> Source {
        let grant = self.archive.grant_epoch(ShardId(shard), "s1", None, 1).await.unwrap();
        assert!(self.archive.mark_epoch_installed(ShardId(shard), grant.epoch).await.unwrap());
        Source { shard: ShardId(shard), epoch: grant.epoch, server_id: "s1".into() }
    }
}

pub fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

pub fn conversation(key: &str) -> ConversationId {
    ConversationId::of_system(key).unwrap()
}

/// A text message as a gateway would make it, its rev equal to its seq.
pub fn text(conv: &ConversationId, seq: Seq, sender: &str, key: &str) -> Message {
    Message {
        id: Uuid::now_v7(),
        conversation: conv.clone(),
        seq,
        rev: seq,
        sender: user(sender),
        client_id: Some(ClientKey::parse(key).unwrap()),
        kind: MessageKind::Text,
        body: format!("body {seq} \u{1F600} 中 \\ ' \" \u{FEFF}"),
        data: None,
        client_sent_at: None,
        created_at: 1_764_500_000_000 + i64::try_from(seq).unwrap(),
        edited_at: None,
        deleted_at: None,
        deleted_by: None,
        fingerprint: Some("f".repeat(32)),
    }
}

pub fn batch_of(source: &Source, messages: Vec<Message>) -> ArchiveBatch {
    ArchiveBatch { sources: vec![source.clone()], messages, ..ArchiveBatch::default() }
}

/// A conversation's row with plain facts.
pub fn conversation_row(conv: &ConversationId, history: seqline::domain::conversation::History, head_seq: Seq) -> ConversationRow {
    ConversationRow {
        id: conv.clone(),
        shard: ShardId(0),
        facts: Some(ConversationFacts { title: Some("Title".into()), owner: None, pair: None, history, created_at: 1, dissolved: false }),
        head_seq,
        rev: head_seq,
        updated_at: i64::try_from(head_seq).unwrap() + 1,
    }
}

/// A membership that goes on.
pub fn member_row(conv: &ConversationId, name: &str, joined_seq: Seq) -> MemberRow {
    MemberRow {
        conv: conv.clone(),
        user: user(name),
        role: seqline::domain::membership::Role::Member,
        joined_at: 5,
        joined_seq,
        joined_rev: joined_seq,
        left_rev: None,
        rev: joined_seq,
    }
}
