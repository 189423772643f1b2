//! A fresh, migrated database with an archive on it, and rows as gateways would make them.

use seqline::domain::ids::{ClientKey, ConversationId, Seq, ShardId, UserId};
use seqline::domain::message::{Message, MessageKind};
use seqline::postgres::{Archive, ArchiveBatch, ConversationFacts, ConversationRow, EpochGrant, MemberRow, Source};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::harness::TestDatabase;

/// A database of one's own.
pub struct Database {
    pub archive: Archive,
    database: TestDatabase,
}

/// Makes one.
pub async fn database() -> Database {
    let database = TestDatabase::migrated().await;
    Database { archive: Archive::connect(database.url(), 8).unwrap(), database }
}

impl Database {
    /// A connection past the archive.
    pub async fn connection(&self) -> PgConnection {
        self.database.connect().await
    }

    /// One number from one statement.
    pub async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut self.connection().await).await.unwrap()
    }

    /// Opens and installs epoch 0 of a shard for server `s1`.
    pub async fn open_shard(&self, shard: u16) -> Source {
        let epoch = self.new_epoch(shard, "s1").await;
        assert!(self.archive.mark_epoch_installed(ShardId(shard), epoch).await.unwrap());
        Source { shard: ShardId(shard), epoch, server_id: "s1".into() }
    }

    /// Opens the next epoch of a shard for a server that had none.
    pub async fn new_epoch(&self, shard: u16, server: &str) -> u64 {
        match self.archive.grant_epoch(ShardId(shard), server, None, None, 1).await.unwrap() {
            EpochGrant::Granted { epoch, fresh: true } => epoch,
            other => panic!("{other:?}"),
        }
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
        seq,
        rev: seq,
        client_id: Some(ClientKey::parse(key).unwrap()),
        body: format!("body {seq} \u{1F600} 中 \\ ' \" \u{FEFF}"),
        fingerprint: Some("f".repeat(32)),
        ..Message::unplaced(Uuid::now_v7(), conv.clone(), user(sender), MessageKind::Text, 1_764_500_000_000 + i64::try_from(seq).unwrap())
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
