//! Webhooks: everything that happened reaches the host application, signed, of each conversation in order, and nothing of it twice but
//! what was cut off.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use seqline::actions::Stores;
use seqline::actions::archive_outbox::retry_aside;
use seqline::actions::change_message::{ChangeRequest, change_message};
use seqline::domain::message_change::MessageCommand;
use seqline::workers::repeat::Worker as _;
use seqline::workers::send_webhooks::SendWebhooks;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, PgConnection};

use crate::harness::host_application::SECRETS;
use crate::harness::{
    Call, Fleet, HostApplication, PATIENCE, ProcessFleet, RedisKind, Reply, StorePair, TestDatabase, User, eventually, on_both,
};
use crate::scene::{archive_all, forget_cursor, group, send_run, try_send, user};

async fn waiting(database: &TestDatabase) -> i64 {
    count(&mut database.connect().await, "webhook_queue").await
}

async fn count(connection: &mut PgConnection, table: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(format!("SELECT count(*) FROM {table}"))).fetch_one(connection).await.unwrap()
}

/// Posts by hand until nothing waits.
async fn post_all(stores: &Arc<Stores>, database: &TestDatabase) {
    let mut worker = SendWebhooks::new(Arc::clone(stores));
    eventually("nothing waits", PATIENCE, async || {
        worker.run_once().await.unwrap();
        waiting(database).await == 0
    })
    .await;
    worker.finish().await;
}

/// HMAC as RFC 2104 has it, apart from what the product uses.
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    assert!(key.len() <= 64);
    let padded = |with: u8| (0..64).map(|at| key.get(at).copied().unwrap_or(0) ^ with).collect::<Vec<u8>>();
    let inner = Sha256::digest([&padded(0x36), text].concat());
    Sha256::digest([padded(0x5c), inner.to_vec()].concat()).to_vec()
}

/// What a receiver does who knows this key: the signature is ours and the call is not an old one.
#[track_caller]
fn verify(call: &Call, key: &[u8]) {
    let wanted = hmac(key, format!("{}.{}.{}", call.id, call.timestamp, call.text).as_bytes());
    let fits = |signature: &str| signature.strip_prefix("v1,").is_some_and(|text| STANDARD.decode(text).unwrap() == wanted);
    assert!(call.signature.split(' ').any(fits), "{call:?}");
    let age = i64::try_from(crate::harness::user::now_s()).unwrap() - call.timestamp.parse::<i64>().unwrap();
    assert!(age.abs() < 300, "{call:?}");
}

/// Of each conversation no event is tried before all earlier ones were taken; every event is taken once.
#[track_caller]
fn prove_order(calls: &[Call]) {
    let mut last: HashMap<String, (u64, bool)> = HashMap::new();
    let mut taken = HashSet::new();
    for call in calls {
        let (rev, done) = last.get(call.conversation()).copied().unwrap_or((0, true));
        assert!(call.rev() == rev || (call.rev() > rev && done), "{call:?} after rev {rev}");
        let took = (200..300).contains(&call.status);
        last.insert(call.conversation().to_owned(), (call.rev(), took));
        assert!(!took || taken.insert(call.id.clone()), "twice: {call:?}");
    }
}

on_both! {
    async fn all_that_happened_is_posted_in_order_though_the_host_fails_for_a_while(kind: RedisKind) {
        let mut failed: BTreeMap<String, u32> = BTreeMap::new();
        let host = HostApplication::start(move |call| {
            // Each conversation's third and seventh events fail, in different ways.
            let failures = failed.entry(call.id.clone()).or_default();
            *failures += 1;
            match (call.rev() % 5, *failures) {
                (3, 1) => Reply::Status(500),
                (3, 2) => Reply::Status(404),
                (4, 1) => Reply::Silence,
                _ => Reply::Status(204),
            }
        })
        .await;
        let url = host.url();
        let flags = ["--webhook-url", &url, "--webhook-secrets", SECRETS, "--webhook-timeout-ms", "400"];
        let fleet = Fleet::start_with(kind, 2, 2, &flags).await;
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let mut groups = Vec::new();
        for n in 0..3 {
            groups.push(fleet.client(n, &ann).create_group("Lake", &["bob"]).await);
        }
        for n in 0..6 {
            for group in &groups {
                let (user, gateway) = if n % 2 == 0 { (&ann, 0) } else { (&bob, 1) };
                fleet.client(gateway, user).send(group, &format!("k{n}"), &format!("words {n}")).await.expect(201);
            }
        }
        for group in &groups {
            fleet.client(1, &bob).invite(group, "cid").await.expect(201);
            fleet.client(0, &ann).patch(&format!("/v1/conversations/{group}"), &serde_json::json!({"title": "Sea"})).await.expect(200);
            fleet.client(0, &ann).read(group, 2).await.expect(200);
            fleet.client(1, &bob).remove(group, "bob").await.expect(204);
        }
        // Made, six messages, and for each of three changes its event and the message of the timeline.
        let taken = host.has_taken(3 * 13, PATIENCE).await;
        eventually("nothing waits", PATIENCE, async || waiting(fleet.database()).await == 0).await;
        let calls = host.calls();
        prove_order(&calls);
        assert!(calls.len() > taken.len(), "some failed");
        for call in &calls {
            verify(call, b"a secret of tests for webhooks");
            verify(call, &STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap());
            assert_eq!(call.json["id"], call.id.as_str());
            assert_eq!(call.path, "/seqline");
        }
        for group in &groups {
            let told: Vec<&Call> = taken.iter().filter(|call| call.conversation() == group).collect();
            let kinds: Vec<&str> = told.iter().map(|call| call.kind()).filter(|kind| *kind != "message.created").collect();
            assert_eq!(kinds, ["conversation.created", "member.joined", "conversation.renamed", "member.left"]);
            assert_eq!(told[0].json["data"]["conversation"]["members"], serde_json::json!(["ann", "bob"]));
            let words: Vec<&str> = told.iter().filter_map(|call| call.words()).filter(|words| !words.is_empty()).collect();
            assert_eq!(words, (0..6).map(|n| format!("words {n}")).collect::<Vec<_>>());
            let left = told.last().unwrap();
            assert_eq!((&left.json["data"]["user_id"], &left.json["data"]["seq"]), (&"bob".into(), &9.into()));
        }
        assert_eq!(count(&mut fleet.database().connect().await, "webhook_lines").await, 0);
        assert_eq!(count(&mut fleet.database().connect().await, "webhook_dead").await, 0);
    }

    async fn archiving_again_queues_nothing_again(kind: RedisKind) {
        let host = HostApplication::start(|_| Reply::Status(200)).await;
        let url = host.url();
        let pair = StorePair::with(kind, &["--webhook-url", &url, "--webhook-secrets", SECRETS]).await;
        let id = group(&pair.one, "ann", &["bob"]).await;
        send_run(&pair.one, "ann", &id, 1..=20).await;
        // Two workers that archive the same entries at the same time, and one that ended before it moved its cursor.
        tokio::join!(archive_all(&pair.one), archive_all(&pair.two));
        forget_cursor(&pair.one, "archived").await;
        tokio::join!(archive_all(&pair.one), archive_all(&pair.two));
        assert_eq!(waiting(&pair.database).await, 21);
        // Two that post at the same time, too.
        tokio::join!(post_all(&pair.one, &pair.database), post_all(&pair.two, &pair.database));
        // And what was archived before is not queued again because it was posted meanwhile.
        forget_cursor(&pair.one, "archived").await;
        archive_all(&pair.two).await;
        send_run(&pair.two, "bob", &id, 21..=21).await;
        archive_all(&pair.one).await;
        assert_eq!(waiting(&pair.database).await, 1);
        post_all(&pair.one, &pair.database).await;
        let calls = host.calls();
        assert_eq!(calls.len(), 22);
        prove_order(&calls);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stood_aside_is_posted_when_it_is_archived_and_once() {
    let host = HostApplication::start(|_| Reply::Status(200)).await;
    let url = host.url();
    let pair = StorePair::with(RedisKind::Single, &["--webhook-url", &url, "--webhook-secrets", SECRETS]).await;
    let mut connection = pair.database.connect().await;
    let run = async |connection: &mut PgConnection, sql: &'static str| sqlx::raw_sql(sql).execute(connection).await.unwrap();
    run(&mut connection, "ALTER TABLE messages ADD CONSTRAINT no_poison CHECK (body <> 'poison')").await;
    let id = group(&pair.one, "ann", &["bob"]).await;
    for (key, body) in [("k1", "one"), ("k2", "poison"), ("k3", "three")] {
        try_send(&pair.one, "ann", &id, key, body).await.unwrap();
    }
    archive_all(&pair.one).await;
    post_all(&pair.one, &pair.database).await;
    let words = |host: &HostApplication| host.taken().iter().filter_map(|call| call.words().map(str::to_owned)).collect::<Vec<_>>();
    assert_eq!(words(&host), ["one", "three"]);
    let shard = pair.one.keys.shard_of(&id);
    assert_eq!(retry_aside(&pair.one, shard).await.unwrap().len(), 1, "still refused");
    run(&mut connection, "ALTER TABLE messages DROP CONSTRAINT no_poison").await;
    assert!(retry_aside(&pair.one, shard).await.unwrap().is_empty());
    post_all(&pair.one, &pair.database).await;
    assert_eq!(words(&host), ["one", "three", "poison"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_queued_while_webhooks_are_off_or_for_types_that_nobody_wants() {
    let host = HostApplication::start(|_| Reply::Status(200)).await;
    let off = StorePair::with(RedisKind::Single, &[]).await;
    let url = host.url();
    let flags = ["--webhook-url", &url, "--webhook-secrets", SECRETS, "--webhook-events", "conversation.created,reaction.*"];
    let few = StorePair::with(RedisKind::Single, &flags).await;
    for (pair, queued) in [(&off, 0), (&few, 1)] {
        let id = group(&pair.one, "ann", &["bob"]).await;
        send_run(&pair.one, "ann", &id, 1..=3).await;
        archive_all(&pair.one).await;
        assert_eq!(waiting(&pair.database).await, queued);
        assert_eq!(count(&mut pair.database.connect().await, "webhook_lines").await, queued);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_old_is_given_up_and_its_conversation_goes_on() {
    let host = HostApplication::start(|call| Reply::Status(if call.words() == Some("poison") { 410 } else { 200 })).await;
    let url = host.url();
    let flags = ["--webhook-url", &url, "--webhook-secrets", SECRETS, "--webhook-max-age", "1"];
    let fleet = Fleet::start_with(RedisKind::Single, 1, 1, &flags).await;
    let ann = fleet.client(0, &User::new("ann"));
    let group = ann.create_group("Lake", &["bob"]).await;
    for body in ["one", "poison", "three"] {
        ann.send(&group, body, body).await.expect(201);
    }
    let taken = host.has_taken(3, PATIENCE).await;
    assert_eq!(taken.iter().filter_map(Call::words).collect::<Vec<_>>(), ["one", "three"]);
    assert!(host.calls().len() > 4, "it was tried more than once before it was given up");
    let mut connection = fleet.database().connect().await;
    let dead: Vec<(String, String)> = sqlx::query_as("SELECT type, reason FROM webhook_dead").fetch_all(&mut connection).await.unwrap();
    assert_eq!(dead, [("message.created".to_owned(), "status 410".to_owned())]);
    let rows: Vec<String> = sqlx::query_scalar("SELECT d::text FROM webhook_dead AS d").fetch_all(&mut connection).await.unwrap();
    assert!(!rows[0].contains("poison"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_asks_to_wait_is_left_alone() {
    let mut first = true;
    let host = HostApplication::start(move |_| if std::mem::take(&mut first) { Reply::Later(503, 2) } else { Reply::Status(200) }).await;
    let url = host.url();
    let fleet = Fleet::start_with(RedisKind::Single, 1, 1, &["--webhook-url", &url, "--webhook-secrets", SECRETS]).await;
    fleet.client(0, &User::new("ann")).create_group("Lake", &["bob"]).await;
    eventually("the first call comes", PATIENCE, async || host.calls().len() == 1).await;
    let asked = std::time::Instant::now();
    host.has_taken(1, PATIENCE).await;
    // Not to the millisecond: the first call was seen a moment after it was answered.
    assert!(asked.elapsed() > Duration::from_millis(1_800), "{:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_while_it_posts_costs_a_repetition_at_most() {
    let host = HostApplication::start(|call| if call.words() == Some("m4") { Reply::Silence } else { Reply::Status(200) }).await;
    let url = host.url();
    let envs = [("SEQLINE_WEBHOOK_URL", url.as_str()), ("SEQLINE_WEBHOOK_SECRETS", SECRETS), ("SEQLINE_WEBHOOK_TIMEOUT_MS", "1000")];
    let mut fleet = ProcessFleet::start_with(RedisKind::Single, 2, 1, &envs).await;
    let ann = User::new("ann");
    let group = fleet.client(0, &ann).create_group("Lake", &["bob"]).await;
    for n in 1..=8 {
        fleet.client(n, &ann).send(&group, &format!("k{n}"), &format!("m{n}")).await.expect(201);
    }
    eventually("the call hangs", PATIENCE, async || host.calls().iter().any(|call| call.words() == Some("m4"))).await;
    fleet.workers[0].kill().await;
    host.behave(|_| Reply::Status(200));
    let successor = fleet.add_worker();
    fleet.workers[successor].wait_ready().await;
    let taken = host.has_taken(9, PATIENCE).await;
    prove_order(&host.calls());
    assert_eq!(taken.iter().filter_map(Call::words).collect::<Vec<_>>(), (1..=8).map(|n| format!("m{n}")).collect::<Vec<_>>());
    eventually("it is counted", PATIENCE, async || {
        fleet.workers[successor].metric("seqline_webhooks_total{outcome=\"delivered\"}").await.is_some_and(|count| count >= 1.0)
            && fleet.workers[successor].metric("seqline_webhook_queue_events").await == Some(0.0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_that_were_taken_back_before_they_were_posted_are_not_posted() {
    let host = HostApplication::start(|_| Reply::Status(500)).await;
    let url = host.url();
    let fleet = Fleet::start_with(RedisKind::Single, 2, 1, &["--webhook-url", &url, "--webhook-secrets", SECRETS]).await;
    let ann = fleet.client(0, &User::new("ann"));
    let group = ann.create_group("Lake", &["bob"]).await;
    ann.send(&group, "k1", "a secret").await.expect(201);
    ann.send(&group, "k2", "no secret").await.expect(201);
    eventually("all are queued", PATIENCE, async || waiting(fleet.database()).await == 3).await;
    fleet.client(1, ann.user()).delete(&format!("/v1/conversations/{group}/messages/1")).await.expect(200);
    eventually("the deletion is queued", PATIENCE, async || waiting(fleet.database()).await == 4).await;
    host.behave(|_| Reply::Status(200));
    let taken = host.has_taken(4, PATIENCE).await;
    let kinds: Vec<&str> = taken.iter().map(Call::kind).collect();
    assert_eq!(kinds, ["conversation.created", "message.created", "message.created", "message.deleted"]);
    assert_eq!(taken.iter().filter_map(Call::words).collect::<Vec<_>>(), ["", "no secret", ""]);
    assert!(host.calls().iter().all(|call| !call.text.contains("a secret")), "{:?}", host.calls());
    assert_eq!(taken[1].json["data"]["message"], taken[3].json["data"]["message"]);
    assert_eq!(taken[1].json["data"]["message"]["deleted_by"], "ann");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_counts_before_the_archive_has_it() {
    let host = HostApplication::start(|_| Reply::Status(200)).await;
    let url = host.url();
    let pair = StorePair::with(RedisKind::Single, &["--webhook-url", &url, "--webhook-secrets", SECRETS]).await;
    let id = group(&pair.one, "ann", &["bob"]).await;
    try_send(&pair.one, "ann", &id, "k1", "a secret").await.unwrap();
    archive_all(&pair.one).await;
    let delete = ChangeRequest {
        user: user("ann"),
        service: false,
        admin: false,
        conversation: id.clone(),
        seq: 1,
        command: MessageCommand::Delete,
        pictures: None,
    };
    change_message(&pair.two, &delete).await.unwrap();
    post_all(&pair.one, &pair.database).await;
    let words: Vec<String> = host.taken().iter().filter_map(|call| call.words().map(str::to_owned)).collect();
    assert_eq!(words, [""]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_answers_and_reactions_are_told_as_the_host_may_see_them() {
    let host = HostApplication::start(|_| Reply::Status(200)).await;
    let url = host.url();
    let fleet = Fleet::start_with(RedisKind::Single, 2, 1, &["--webhook-url", &url, "--webhook-secrets", SECRETS]).await;
    let (ann, bob) = (fleet.client(0, &User::new("ann")), fleet.client(1, &User::new("bob")));
    // Where members do not all see the same, the host still sees everything.
    let wish = json!({"kind": "group", "title": "Lake", "members": ["bob"], "history": "from_join"});
    let group = ann.post("/v1/conversations", &wish).await.expect(201).json["id"].as_str().unwrap().to_owned();
    ann.send(&group, "k1", "hello").await.expect(201);
    bob.send_message(&group, &json!({"client_id": "k2", "body": "why", "reply_to": 1})).await.expect(201);
    host.has_taken(3, PATIENCE).await;
    let message = format!("/v1/conversations/{group}/messages/1");
    ann.patch(&message, &json!({"body": "hello there"})).await.expect(200);
    bob.put(&format!("{message}/reactions/%F0%9F%91%8D"), None).await.expect(200);
    let taken = host.has_taken(5, PATIENCE).await;
    prove_order(&host.calls());
    let kinds: Vec<&str> = taken.iter().map(Call::kind).collect();
    assert_eq!(kinds, ["conversation.created", "message.created", "message.created", "message.edited", "reaction.changed"]);
    let quote = &taken[2].json["data"]["message"]["reply_to"];
    assert_eq!((&quote["seq"], &quote["sender"], &quote["preview"]), (&json!(1), &json!("ann"), &json!("hello")));
    assert_eq!(taken[3].words(), Some("hello there"));
    assert_eq!(taken[4].json["data"], json!({"seq": 1, "reactions": [{"emoji": "\u{1F44D}", "count": 1}]}));
}
