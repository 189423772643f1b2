//! What tests of the audit have in common: conversations in which everything happened that can happen, and runs of the audit.

use std::process::{Command, Output};
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use seqline::actions::Stores;
use seqline::actions::audit_everything::{Audit, Place};
use seqline::actions::cool_conversation::{Cooled, cool_conversation};
use seqline::domain::audit::Finding;
use seqline::domain::ids::ConversationId;
use serde_json::json;

use crate::harness::fleet::{PARTITIONS, SHARDS};
use crate::harness::{Client, Fleet, PATIENCE, User, eventually, stores};
use crate::scene::{shards, state};

/// Who is in every group: its owner, one who reads, and one who does not.
pub struct People {
    pub ann: Client,
    pub bob: Client,
    pub cid: Client,
}

impl People {
    pub fn of(fleet: &Fleet) -> Self {
        let at = |number, name: &str| fleet.client(number, &User::new(name)).kept_alive();
        Self { ann: at(0, "ann"), bob: at(1, "bob"), cid: at(1, "cid") }
    }

    /// A group in which: 1 and 2 are words, 1 with a reaction, 3 as well, 4 answers 2, 5 names Cid, 6 is a picture, 7 was taken back, 8 was edited, 9
    /// is the timeline. Bob has read up to 8, Cid nothing.
    pub async fn talk(&self, more: &[&str]) -> ConversationId {
        let (ann, bob) = (&self.ann, &self.bob);
        let group = ann.create_group("Lunch", &[&["bob", "cid"], more].concat()).await;
        ann.send(&group, "k1", "one word").await.expect(201);
        bob.send(&group, "k2", "two words").await.expect(201);
        ann.send(&group, "k3", "three words").await.expect(201);
        bob.send_message(&group, &json!({"client_id": "k4", "body": "to two", "reply_to": 2})).await.expect(201);
        ann.send_message(&group, &json!({"client_id": "k5", "body": "hey", "mentions": ["cid"]})).await.expect(201);
        let picture = ann.upload_picture().await;
        ann.send_message(&group, &json!({"client_id": "k6", "kind": "image", "media": [picture]})).await.expect(201);
        bob.send(&group, "k7", "secret").await.expect(201);
        bob.delete(&format!("/v1/conversations/{group}/messages/7")).await.expect(200);
        ann.send(&group, "k8", "eihgt").await.expect(201);
        ann.patch(&format!("/v1/conversations/{group}/messages/8"), &json!({"body": "eight"})).await.expect(200);
        bob.put(&format!("/v1/conversations/{group}/messages/1/reactions/%F0%9F%91%8D"), None).await.expect(200);
        bob.read(&group, 8).await.expect(200);
        ann.patch(&format!("/v1/conversations/{group}"), &json!({"title": "Lunch at one"})).await.expect(200);
        ConversationId::parse(&group).unwrap()
    }
}

/// Does so much for each of these at once.
const AT_ONCE: usize = 3;

/// The outcomes of all of these, in their order.
pub async fn all<F: Future>(tasks: Vec<F>) -> Vec<F::Output> {
    stream::iter(tasks).buffered(AT_ONCE).collect().await
}

/// Stores of a test's own on those of a fleet.
pub async fn beside(fleet: &Fleet) -> Arc<Stores> {
    stores::open(&fleet.redis_url(), fleet.database().url(), &[]).await
}

/// Waits until everything is dispatched and archived and can be found.
pub async fn settled(fleet: &Fleet, stores: &Stores) {
    let mut connection = fleet.database().connect().await;
    eventually("nothing is under way", PATIENCE, async || {
        for shard in shards(stores) {
            let state = state(stores, shard).await;
            if state.entries > 0 || state.needs_epoch() {
                return false;
            }
        }
        let queued: i64 = sqlx::query_scalar("SELECT count(*) FROM search_queue").fetch_one(&mut connection).await.unwrap();
        queued == 0
    })
    .await;
}

/// Takes a conversation out of Redis in order.
pub async fn cool(stores: &Stores, id: &ConversationId) {
    eventually("it leaves Redis", PATIENCE, async || {
        cool_conversation(stores, id, "audit", stores.clock.now() + 3_600_000).await.unwrap() == Cooled::Gone
    })
    .await;
}

/// Audits everything from a place on.
pub async fn audit_from(stores: &Stores, place: Place, behind_ms: i64) -> Vec<Finding> {
    let (mut audit, mut found) = (Audit::of_everything(stores, place, behind_ms), Vec::new());
    while let Some(more) = audit.step().await.unwrap() {
        found.extend(more);
    }
    found
}

/// Audits everything.
pub async fn audit(stores: &Stores) -> Vec<Finding> {
    audit_from(stores, Place::Begin, 60_000).await
}

/// The command, ready to be started.
pub fn command(fleet: &Fleet, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seqline"));
    command.env_clear().arg("audit").args(args);
    command.env("SEQLINE_REDIS_URL", fleet.redis_url()).env("SEQLINE_DATABASE_URL", fleet.database().url());
    command.env("SEQLINE_SHARDS", SHARDS.to_string()).env("SEQLINE_PARTITIONS", PARTITIONS.to_string());
    command
}

/// Runs the command.
pub async fn run(fleet: &Fleet, args: &[&str]) -> Output {
    let mut command = command(fleet, args);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The codes that an output in JSON names, and its summary.
pub fn codes(output: &Output) -> (Vec<String>, serde_json::Value) {
    let lines: Vec<serde_json::Value> =
        String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let codes = lines.iter().filter_map(|line| line["code"].as_str().map(str::to_owned)).collect();
    (codes, lines.last().map_or(serde_json::Value::Null, |line| line["summary"].clone()))
}
