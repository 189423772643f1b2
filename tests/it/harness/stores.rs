//! Stores without a gateway around them: what two gateways would hold, for tests of actions.

use std::sync::Arc;

use clap::Parser;
use seqline::actions::Stores;
use seqline::media::MediaRoom;
use seqline::postgres::Archive;
use seqline::redis::link::Link;
use seqline::settings::Settings;

use super::fleet::{PARTITIONS, SHARDS};
use super::servers::{PrivateRedis, TestDatabase};
use super::{MadeOn, RedisKind};

#[derive(Parser)]
#[command(args_override_self = true)]
struct Words {
    #[command(flatten)]
    settings: Settings,
}

/// Settings as a gateway of a test would have them, with these flags added.
pub fn settings(redis_url: &str, database_url: &str, flags: &[&str]) -> Settings {
    let (shards, partitions) = (SHARDS.to_string(), PARTITIONS.to_string());
    let mut words =
        vec!["test", "--redis-url", redis_url, "--database-url", database_url, "--shards", &shards, "--partitions", &partitions];
    words.extend(["--jwt-hs256-secrets", super::user::SECRET, "--database-connections", "5"]);
    words.extend(flags);
    Words::parse_from(words).settings
}

/// A Redis, a database, and two sets of stores on them.
pub struct StorePair {
    pub redis: PrivateRedis,
    pub database: TestDatabase,
    pub one: Arc<Stores>,
    pub two: Arc<Stores>,
}

impl StorePair {
    /// With these flags for both.
    pub async fn with(kind: RedisKind, flags: &[&str]) -> Self {
        let (redis, database) = (PrivateRedis::start(kind).await, TestDatabase::migrated().await);
        let one = open(&redis.url(), database.url(), flags).await;
        let two = open(&redis.url(), database.url(), flags).await;
        Self { redis, database, one, two }
    }
}

impl MadeOn for StorePair {
    async fn made_on(kind: RedisKind) -> Self {
        Self::with(kind, &[]).await
    }
}

/// Stores as a gateway opens them.
pub async fn open(redis_url: &str, database_url: &str, flags: &[&str]) -> Arc<Stores> {
    let settings = Arc::new(settings(redis_url, database_url, flags));
    let link = Link::connect(redis_url, 5_000).await.unwrap();
    let archive = Archive::connect(database_url, 4).unwrap();
    let media = MediaRoom::open(&settings).unwrap();
    Stores::new(link, archive, media, settings)
}
