//! `seqline doctor`: are Redis and Postgres as they must be? Looks, changes nothing.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::time::timeout;

use super::EXIT_USAGE;
use crate::ops::eviction_policy;
use crate::postgres::{Archive, Claim};
use crate::redis::link::Link;
use crate::settings::{Role, Settings, shown_url};

/// Shown under `seqline doctor --help`.
pub const EXAMPLES: &str = "\
Exit codes: 0 all is well or only warnings, 1 something must be changed, 2 the settings themselves are wrong.";

/// Time for all questions to one store.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// Time in ms above which it is worth a warning that pushes go out late.
const PUSHES_LATE_MS: u64 = 300_000;
/// Age in ms above which a webhook that waits is worth a warning.
const WEBHOOK_LATE_MS: u64 = 900_000;
/// Time for one attempt to reach Redis, in milliseconds.
const CONNECT_MS: u64 = 3_000;

/// Arguments of `doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The settings
    #[command(flatten)]
    pub settings: Settings,
}

/// How a finding is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it must be.
    Ok,
    /// Works, until something else goes wrong.
    Warn,
    /// Must be changed.
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How to take it.
    pub level: Level,
    /// What was looked at, e.g. `redis.eviction`.
    pub check: &'static str,
    /// What was found, and what to do about it.
    pub text: String,
}

fn finding(level: Level, check: &'static str, text: impl Into<String>) -> Finding {
    Finding { level, check, text: text.into() }
}

/// Looks at everything and prints what was found.
pub async fn run(args: DoctorArgs) -> ExitCode {
    let settings = args.settings.tidy();
    let (redis, postgres) = tokio::join!(look_at_redis(&settings), look_at_postgres(&settings));
    let mut findings = Vec::new();
    let wrong = settings.validate(Role::Gateway).err();
    match &wrong {
        Some(fault) => findings.push(finding(Level::Fail, "settings", fault.to_string())),
        None => findings.push(finding(Level::Ok, "settings", "can be used")),
    }
    findings.extend(settings.warnings().into_iter().map(|text| finding(Level::Warn, "settings", text)));
    findings.extend(redis);
    findings.extend(postgres);
    print(&findings, args.json);
    if wrong.is_some() {
        return ExitCode::from(EXIT_USAGE);
    }
    if findings.iter().any(|f| f.level == Level::Fail) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn print(findings: &[Finding], json: bool) {
    if json {
        let worst = findings.iter().any(|f| f.level == Level::Fail);
        println!("{}", serde_json::json!({ "ok": !worst, "findings": findings }));
        return;
    }
    for found in findings {
        let word = match found.level {
            Level::Ok => "ok  ",
            Level::Warn => "warn",
            Level::Fail => "FAIL",
        };
        println!("{word}  {:<20} {}", found.check, found.text);
    }
}

async fn look_at_redis(settings: &Settings) -> Vec<Finding> {
    if settings.redis_url.is_empty() {
        return Vec::new();
    }
    let url = shown_url(&settings.redis_url);
    let away = |why: String| vec![finding(Level::Fail, "redis.reachable", format!("{url}: {why}"))];
    let link = match timeout(ASK_TIMEOUT, Link::connect(&settings.redis_url, CONNECT_MS)).await {
        Ok(Ok(link)) => link,
        Ok(Err(error)) => return away(error.to_string()),
        Err(_) => return away("no answer in time".into()),
    };
    let mut nodes: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut memory = Vec::new();
    for section in ["server", "memory", "persistence", "replication"] {
        match timeout(ASK_TIMEOUT, link.info(section)).await {
            Ok(Ok(answers)) => {
                for (node, text) in answers {
                    let facts = nodes.entry(node.clone()).or_default();
                    facts
                        .extend(text.lines().filter_map(|line| line.trim_end().split_once(':')).map(|(k, v)| (k.to_owned(), v.to_owned())));
                    if section == "memory" {
                        memory.push((node, text));
                    }
                }
            }
            Ok(Err(error)) => return away(error.to_string()),
            Err(_) => return away("no answer in time".into()),
        }
    }
    let kind = if link.is_cluster() { "Cluster" } else { "one primary" };
    let mut findings = vec![finding(Level::Ok, "redis.reachable", format!("{url}: {kind}, {} node(s)", nodes.len()))];
    for (node, facts) in &nodes {
        findings.extend(judge_redis(node, facts));
    }
    for (node, text) in &memory {
        findings.push(judge_policy(node, eviction_policy(text)));
    }
    findings
}

fn judge_redis(node: &str, facts: &BTreeMap<String, String>) -> Vec<Finding> {
    let fact = |name: &str| facts.get(name).map_or("", String::as_str);
    let number = |name: &str| fact(name).parse::<u64>().unwrap_or(0);
    // Valkey names its own version beside the Redis version it is compatible with, which stays at 7.2.
    let version = fact("redis_version");
    let major = version.split('.').next().and_then(|m| m.parse::<u32>().ok()).unwrap_or(0);
    let mut findings = vec![if major >= 7 {
        finding(Level::Ok, "redis.version", format!("{node}: {version}"))
    } else {
        finding(Level::Fail, "redis.version", format!("{node}: {version} is too old; 7.0 or later is needed"))
    }];
    findings.push(match (fact("aof_enabled"), fact("aof_last_write_status")) {
        ("1", "ok" | "") => finding(Level::Ok, "redis.persistence", format!("{node}: append-only file is on")),
        ("1", _) => finding(Level::Fail, "redis.persistence", format!("{node}: the append-only file cannot be written; look at its disk")),
        _ => finding(
            Level::Fail,
            "redis.persistence",
            format!("{node}: appendonly is off, so a restart loses what was acknowledged; set 'appendonly yes'"),
        ),
    });
    let (max, used) = (number("maxmemory"), number("used_memory"));
    if max > 0 && used.saturating_mul(10) > max.saturating_mul(8) {
        findings.push(finding(
            Level::Warn,
            "redis.memory",
            format!("{node}: {used} of {max} bytes are used; sends are refused when it is full"),
        ));
    }
    findings.push(match (fact("role"), number("connected_slaves")) {
        ("master", 0) => finding(Level::Warn, "redis.replicas", format!("{node}: no replica; ack=replicated cannot be reached, and this server's disk holds the only copy of what is not yet archived")),
        ("master", replicas) => finding(Level::Ok, "redis.replicas", format!("{node}: {replicas} replica(s)")),
        (role, _) => finding(Level::Fail, "redis.replicas", format!("{node}: is a {role}, not a primary")),
    });
    findings
}

fn judge_policy(node: &str, policy: Option<&str>) -> Finding {
    match policy {
        Some("noeviction") => finding(Level::Ok, "redis.eviction", format!("{node}: noeviction")),
        Some(policy) => finding(
            Level::Fail,
            "redis.eviction",
            format!("{node}: maxmemory-policy is {policy}, which throws messages away; set noeviction"),
        ),
        None => finding(Level::Warn, "redis.eviction", format!("{node}: does not say its maxmemory-policy; it must be noeviction")),
    }
}

async fn look_at_postgres(settings: &Settings) -> Vec<Finding> {
    if settings.database_url.is_empty() {
        return Vec::new();
    }
    let url = shown_url(&settings.database_url);
    let away = |why: String| vec![finding(Level::Fail, "postgres.reachable", format!("{url}: {why}"))];
    let archive = match Archive::connect(&settings.database_url, 1) {
        Ok(archive) => archive,
        Err(error) => return away(error.to_string()),
    };
    let facts = match timeout(ASK_TIMEOUT, archive.server_facts()).await {
        Ok(Ok(facts)) => facts,
        Ok(Err(error)) => return away(error.to_string()),
        Err(_) => return away("no answer in time".into()),
    };
    let (major, minor) = (facts.version / 10_000, facts.version % 10_000);
    let mut findings = vec![finding(Level::Ok, "postgres.reachable", url.clone())];
    findings.push(if major >= 14 {
        finding(Level::Ok, "postgres.version", format!("{major}.{minor}"))
    } else {
        finding(Level::Fail, "postgres.version", format!("{major}.{minor} is too old; 14 or later is needed"))
    });
    if facts.follows {
        findings.push(finding(Level::Fail, "postgres.primary", "this server follows another one and takes no writes; name the primary"));
    }
    findings.push(match facts.synchronous_commit.as_str() {
        "off" => {
            finding(Level::Fail, "postgres.commit", "synchronous_commit is off: what was answered as archived can be lost; set it to on")
        }
        mode => finding(Level::Ok, "postgres.commit", format!("synchronous_commit is {mode}")),
    });
    findings.push(match (facts.standbys, facts.synchronous_standbys.is_empty()) {
        (_, false) => finding(Level::Ok, "postgres.standby", format!("waits for {}", facts.synchronous_standbys)),
        (0, true) => finding(Level::Warn, "postgres.standby", "no standby is seen; one that may take over must be synchronous (synchronous_standby_names)"),
        (n, true) => finding(Level::Fail, "postgres.standby", format!("{n} standby(s), none of them synchronous: a takeover would lose what was archived and give its numbers again; set synchronous_standby_names")),
    });
    if !facts.migrated {
        findings.push(finding(Level::Fail, "postgres.tables", "the tables are not there; run `seqline migrate`"));
        return findings;
    }
    findings.push(finding(Level::Ok, "postgres.tables", "are there"));
    findings.extend(look_at_webhooks(settings, &archive).await);
    findings.extend(look_at_pushes(settings, &archive).await);
    findings.push(match facts.claim(settings.shards, settings.partitions) {
        None => finding(Level::Ok, "installation", "not made yet; the first start fixes shards and partitions"),
        Some(Claim::Ours) => finding(Level::Ok, "installation", format!("{} shards, {} partitions", settings.shards, settings.partitions)),
        Some(Claim::Mismatch { shards, partitions }) => finding(
            Level::Fail,
            "installation",
            format!(
                "was made with SEQLINE_SHARDS={shards} and SEQLINE_PARTITIONS={partitions}, the settings say {} and {}",
                settings.shards, settings.partitions
            ),
        ),
    });
    findings
}

/// Whether browsers are woken in time; nothing while push is off.
async fn look_at_pushes(settings: &Settings, archive: &Archive) -> Option<Finding> {
    settings.vapid_private_key.as_ref()?;
    let Ok(Ok(backlog)) = timeout(ASK_TIMEOUT, archive.push_backlog(settings.push_delay_ms)).await else {
        return Some(finding(Level::Fail, "pushes", "their tables cannot be read; run `seqline migrate`"));
    };
    let level = if backlog.late_ms > PUSHES_LATE_MS { Level::Warn } else { Level::Ok };
    let text = format!("{} wait, {} s behind their time at most", backlog.pushes, backlog.late_ms / 1_000);
    Some(finding(level, "pushes", text))
}

/// What waits for the host application, when something may.
async fn look_at_webhooks(settings: &Settings, archive: &Archive) -> Option<Finding> {
    let url = shown_url(settings.webhook_url.as_ref()?);
    let Ok(Ok(backlog)) = timeout(ASK_TIMEOUT, archive.webhook_backlog()).await else {
        return Some(finding(Level::Fail, "webhooks", "their tables cannot be read; run `seqline migrate`"));
    };
    let (events, dead, oldest_ms) = (backlog.events, backlog.dead, backlog.oldest_ms);
    let level = if dead > 0 || oldest_ms > WEBHOOK_LATE_MS { Level::Warn } else { Level::Ok };
    let text = format!("{url}: {events} wait, the oldest for {} s; {dead} given up within a month", oldest_ms / 1_000);
    Some(finding(level, "webhooks", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(facts: &[(&str, &str)]) -> Vec<(&'static str, Level)> {
        let facts = facts.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        judge_redis("n", &facts).into_iter().map(|f| (f.check, f.level)).collect()
    }

    #[test]
    fn judges_a_good_and_a_bad_redis() {
        let good = [
            ("redis_version", "7.0.15"),
            ("aof_enabled", "1"),
            ("aof_last_write_status", "ok"),
            ("role", "master"),
            ("connected_slaves", "2"),
        ];
        assert!(levels(&good).iter().all(|(_, level)| *level == Level::Ok));
        let bad = [("redis_version", "6.2.14"), ("aof_enabled", "0"), ("role", "slave"), ("maxmemory", "100"), ("used_memory", "90")];
        assert_eq!(
            levels(&bad),
            [
                ("redis.version", Level::Fail),
                ("redis.persistence", Level::Fail),
                ("redis.memory", Level::Warn),
                ("redis.replicas", Level::Fail)
            ]
        );
        assert_eq!(judge_policy("n", Some("allkeys-lru")).level, Level::Fail);
    }
}
