//! `seqline doctor`: what it finds right and wrong about real servers, in words, in JSON, in its exit code.

use std::process::{Command, Output};

use seqline::embedded::RedisOptions;
use serde_json::Value;

use crate::harness::fleet::{PARTITIONS, SHARDS};
use crate::harness::user::SECRET;
use crate::harness::{PrivateRedis, RedisKind, TestDatabase, on_both};

async fn doctor(redis_url: &str, database_url: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seqline"));
    command.env_clear().arg("doctor").args(more);
    command.env("SEQLINE_REDIS_URL", redis_url).env("SEQLINE_DATABASE_URL", database_url).env("SEQLINE_JWT_HS256_SECRETS", SECRET);
    command.env("SEQLINE_SHARDS", SHARDS.to_string()).env("SEQLINE_PARTITIONS", PARTITIONS.to_string());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The worst level of each check.
fn level(output: &Output, check: &str) -> String {
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let levels: Vec<&str> =
        json["findings"].as_array().unwrap().iter().filter(|f| f["check"] == check).map(|f| f["level"].as_str().unwrap()).collect();
    for worst in ["fail", "warn", "ok"] {
        if levels.contains(&worst) {
            return worst.to_owned();
        }
    }
    "absent".to_owned()
}

on_both! {
    async fn good_servers_pass_with_warnings(kind: RedisKind) {
        let (redis, database) = (PrivateRedis::start_durable(kind).await, TestDatabase::migrated().await);
        // The servers of tests do not wait for their disk.
        let mut connection = database.connect().await;
        let name: String = sqlx::query_scalar("SELECT current_database()::text").fetch_one(&mut connection).await.unwrap();
        let on = sqlx::AssertSqlSafe(format!("ALTER DATABASE {name} SET synchronous_commit = on"));
        sqlx::raw_sql(on).execute(&mut connection).await.unwrap();
        let output = doctor(&redis.url(), database.url(), &["--json"]).await;
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        for (check, wanted) in [
            ("settings", "ok"),
            ("redis.reachable", "ok"),
            ("redis.version", "ok"),
            ("redis.persistence", "ok"),
            ("redis.eviction", "ok"),
            ("redis.replicas", "warn"),
            ("postgres.reachable", "ok"),
            ("postgres.version", "ok"),
            ("postgres.tables", "ok"),
            ("postgres.standby", "warn"),
            ("installation", "ok"),
            ("webhooks", "absent"),
            ("pushes", "absent"),
        ] {
            assert_eq!(level(&output, check), wanted, "{check}: {}", String::from_utf8_lossy(&output.stdout));
        }
        let hook = ["--json", "--webhook-url", "https://user:hidden-word@host.example/hook", "--webhook-secrets", SECRET];
        let with_hook = doctor(&redis.url(), database.url(), &hook).await;
        assert_eq!(level(&with_hook, "webhooks"), "ok");
        let push = ["--json", "--vapid-private-key", "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw", "--vapid-subject", "mailto:ops@chat.app"];
        let with_push = doctor(&redis.url(), database.url(), &push).await;
        assert_eq!(level(&with_push, "pushes"), "ok");
        assert!(!String::from_utf8_lossy(&with_push.stdout).contains("yfWPiYE"));
        assert!(!String::from_utf8_lossy(&with_hook.stdout).contains("hidden-word"));
        let words = doctor(&redis.url(), database.url(), &[]).await;
        let text = String::from_utf8(words.stdout).unwrap();
        assert!(text.lines().all(|line| ["ok  ", "warn", "FAIL"].iter().any(|word| line.starts_with(word))), "{text}");
        assert!(!text.contains(redis.url().split('@').next().unwrap()), "a password in {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_must_be_changed_is_said() {
    // No append-only file, eviction, no tables.
    let redis = PrivateRedis::start_with(RedisKind::Single, &RedisOptions { throw_away: true, ..RedisOptions::default() }).await;
    redis.on_every_node(&["CONFIG", "SET", "appendonly", "no"]).await;
    redis.on_every_node(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    let empty = TestDatabase::empty().await;
    let output = doctor(&redis.url(), empty.url(), &["--json"]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    for check in ["redis.persistence", "redis.eviction", "postgres.commit", "postgres.tables"] {
        assert_eq!(level(&output, check), "fail", "{check}: {}", String::from_utf8_lossy(&output.stdout));
    }
    // Nobody there, and settings that cannot be used.
    let away = doctor("redis://:hidden-word@127.0.0.1:1", "postgres://a:hidden-word@127.0.0.1:1/x", &["--json"]).await;
    assert_eq!(away.status.code(), Some(1));
    assert_eq!((level(&away, "redis.reachable"), level(&away, "postgres.reachable")), ("fail".into(), "fail".into()));
    assert!(!String::from_utf8_lossy(&away.stdout).contains("hidden-word"));
    assert_eq!(doctor("", empty.url(), &["--json"]).await.status.code(), Some(2));
}
