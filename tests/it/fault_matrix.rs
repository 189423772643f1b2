//! Every script × (lost on its way to Redis, done with its answer lost) × the connection cut: what a client tries again has exactly one
//! effect. The same for the archive's transactions.
//!
//! An evening of three friends is played once for each script, through a proxy that strikes the first two calls of it: one is never heard,
//! the other is done and not answered. Then history at both gateways, the stream of one who listened, and Postgres must say what they say
//! after an evening without faults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use reqwest::Method;
use seqline::actions::Stores;
use seqline::domain::ids::ConversationId;
use seqline::redis::scripts;
use seqline::workers::cool_conversations::{Cooled, cool_conversation};
use serde_json::{Value, json};
use sqlx::Row as _;

use crate::crowd::both;
use crate::harness::proxy::{Proxy, When};
use crate::harness::{Answer, Client, Fleet, PATIENCE, PrivateRedis, RedisKind, TestDatabase, User, eventually, eventually_some, stores};

/// Scripts that an evening does not need, and where they are struck instead.
const ELSEWHERE: &[(&str, &str)] = &[
    ("announce_epoch", "faults_takeover: masters that are lost in the middle of it"),
    ("discard_conversation", "lease_races: whoever comes late"),
    ("extend_lease", "lease_races, numbering: asked for again with each send until it is there"),
    ("inspect_log", "audit: a store that goes away ends it with a place"),
    ("mark_offset", "acks: a replica that does not answer"),
    ("open_epoch", "faults_loss, faults_takeover: servers that are killed in the middle of it"),
    ("read_aside", "archive: what stands aside comes back"),
    ("release_shard", "shard_leases: a lease that is left to end by itself"),
    ("renew_log", "rebuild: done again it changes nothing"),
    ("reopen_conversation", "cooling: whoever comes next finishes what was cut off"),
    ("resequence_message", "resequence: cut off anywhere"),
    ("settle_double", "resequence: cut off anywhere"),
];

/// Limits so high that they are asked and never reached.
const FLAGS: &[&str] = &["--user-sends-per-second", "10000", "--user-writes-per-second", "10000", "--request-deadline-ms", "20000"];

/// Everything under the proxies.
struct Stage {
    fleet: Fleet,
    stores: Arc<Stores>,
    redis: Proxy,
    postgres: Proxy,
    server: PrivateRedis,
    database: TestDatabase,
}

impl Stage {
    async fn set() -> Self {
        let (server, database) = (PrivateRedis::start(RedisKind::Single).await, TestDatabase::migrated().await);
        let port = |url: &str| url::Url::parse(url).unwrap().port().unwrap();
        let (redis, postgres) = (Proxy::before(port(&server.url())).await, Proxy::before(port(database.url())).await);
        let (redis_url, database_url) = (redis.url(&server.url()), postgres.url(database.url()));
        let stores = stores::open(&redis_url, &database_url, FLAGS).await;
        let fleet = Fleet::start_over(PrivateRedis::elsewhere(redis_url), database.at(database_url), 2, 1, FLAGS).await;
        Self { fleet, stores, redis, postgres, server, database }
    }
}

/// Asks until there is an answer that settles it: one that is no 503. What was asked before and is there by now counts as done.
async fn sure(at: &[Client], method: Method, path: &str, headers: &[(&str, &str)], body: Option<Value>, good: &[u16]) -> Answer {
    let begun = Instant::now();
    for round in 0.. {
        let body = body.as_ref().map(|body| body.to_string().into_bytes());
        match at[round % at.len()].try_request(method.clone(), path, headers, body).await {
            Ok(answer) if answer.status == 503 => {}
            Ok(answer) => {
                assert!(good.contains(&answer.status), "{method} {path}: {} {}", answer.status, answer.text);
                return answer;
            }
            Err(_) => {}
        }
        assert!(begun.elapsed() < PATIENCE, "{method} {path} is never answered");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    unreachable!()
}

async fn say(at: &[Client], conversation: &str, key: &str, mut message: Value) -> Answer {
    message["client_id"] = json!(key);
    sure(at, Method::POST, &format!("/v1/conversations/{conversation}/messages"), &[], Some(message), &[200, 201]).await
}

/// What one who listens is told, whichever gateway tells it.
struct Ear {
    told: Arc<Mutex<Vec<Value>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Ear {
    fn open(at: Vec<Client>, after: String) -> Self {
        let told = Arc::<Mutex<Vec<Value>>>::default();
        let notes = Arc::clone(&told);
        let task = tokio::spawn(async move {
            let mut last = after;
            for round in 0.. {
                let Ok(mut stream) = at[round % at.len()].stream().after(&last).try_open().await else {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                };
                while let Some(event) = stream.next_event(4 * PATIENCE).await {
                    if event.id.is_some() {
                        notes.lock().unwrap().push(event.data);
                    }
                }
                last = stream.last_id().unwrap().to_owned();
            }
        });
        Self { told, task }
    }

    fn of(&self, conversation: &str) -> Vec<Value> {
        self.told.lock().unwrap().iter().filter(|event| event["conversation_id"] == conversation).cloned().collect()
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Plays the evening of this number, and proves that each thing that was done was done once.
async fn evening(stage: &Stage, n: usize) {
    let fleet = &stage.fleet;
    let name = |who: &str| format!("{who}-{n}");
    let at = |who: &str| both(fleet, &User::new(name(who)));
    let (ann, bob, cid) = (at("ann"), at("bob"), at("cid"));
    let from = sure(&bob, Method::GET, "/v1/conversations", &[], None, &[200]).await.json["events_head"].as_str().unwrap().to_owned();
    let ear = Ear::open(vec![bob[0].clone(), bob[1].clone()], from.clone());

    let made = json!({"kind": "group", "title": "evening", "members": [name("bob"), name("cid")]});
    let key = format!("evening {n}");
    let group = sure(&ann, Method::POST, "/v1/conversations", &[("idempotency-key", &key)], Some(made), &[200, 201]).await;
    let group = group.json["id"].as_str().unwrap().to_owned();
    let path = |rest: &str| format!("/v1/conversations/{group}{rest}");

    say(&ann, &group, "a1", json!({"body": "who comes?", "mentions": [name("bob")]})).await;
    let second = say(&ann, &group, "a2", json!({"body": "a slip"})).await.seq();
    let answer = say(&bob, &group, "b1", json!({"body": "mee", "reply_to": 1})).await.seq();
    say(&cid, &group, "c1", json!({"body": "not me"})).await;
    sure(&bob, Method::PATCH, &path(&format!("/messages/{answer}")), &[], Some(json!({"body": "me"})), &[200]).await;
    sure(&ann, Method::DELETE, &path(&format!("/messages/{second}")), &[], None, &[200]).await;
    sure(&ann, Method::PUT, &path(&format!("/messages/{answer}/reactions/%F0%9F%91%8D")), &[], None, &[200]).await;
    sure(&cid, Method::POST, &path("/typing"), &[], Some(json!({"typing": true})), &[204]).await;
    sure(&ann, Method::PUT, &path(&format!("/members/{}", name("dan"))), &[], None, &[200, 201]).await;
    sure(&ann, Method::PATCH, &path(""), &[], Some(json!({"title": "the evening"})), &[200]).await;
    // Whose leaving was done and not answered is no member any more.
    sure(&cid, Method::DELETE, &path(&format!("/members/{}", name("cid"))), &[], None, &[204, 404]).await;
    sure(&ann, Method::DELETE, &path(&format!("/members/{}", name("dan"))), &[], None, &[204, 404]).await;
    let last = say(&ann, &group, "a3", json!({"body": "see you"})).await.seq();
    sure(&bob, Method::PUT, &path("/preferences"), &[], Some(json!({"muted": true})), &[200]).await;
    sure(&bob, Method::POST, &path("/read"), &[], Some(json!({"seq": last})), &[200]).await;

    let readers = sure(&ann, Method::GET, &path(&format!("/messages/{last}/readers")), &[], None, &[200]).await;
    assert_eq!(readers.items().iter().map(|r| r["user_id"].as_str().unwrap()).collect::<Vec<_>>(), [name("bob")]);
    let polled = sure(&bob, Method::GET, &format!("/v1/events/poll?after={from}&limit=3"), &[], None, &[200]).await;
    let place = polled.json["next"].clone();
    sure(&bob, Method::POST, "/v1/events/ack", &[], Some(json!({"device": "phone", "id": place})), &[204]).await;

    eventually("all of it is archived", PATIENCE, async || {
        let found = sure(&ann, Method::GET, &path("/messages/by-client-id/a3"), &[], None, &[200]).await;
        found.json["state"] == "archived"
    })
    .await;
    let moderator = both(fleet, &User::with_claims("mod", &json!({"scope": "admin"})));
    let audited = sure(&moderator, Method::GET, &format!("/v1/audit/conversations/{group}"), &[], None, &[200]).await;
    assert_eq!((&audited.json["contiguous"], &audited.json["findings"]), (&json!(true), &json!([])));
    let id = ConversationId::parse(&group).unwrap();
    let later = stage.stores.clock.now() + 1_000_000_000;
    eventually("the conversation leaves Redis", PATIENCE, async || {
        matches!(cool_conversation(&stage.stores, &id, "the test", later).await, Ok(Cooled::Gone))
    })
    .await;
    say(&bob, &group, "b2", json!({"body": "home"})).await;
    prove(stage, &group, &name, [&ann, &bob], &ear).await;
}

async fn prove(stage: &Stage, group: &str, name: &impl Fn(&str) -> String, [ann, bob]: [&Vec<Client>; 2], ear: &Ear) {
    let history = ann[0].whole_history(group).await;
    assert_eq!(history, ann[1].whole_history(group).await, "both gateways say the same");
    let said: Vec<Value> = history
        .iter()
        .map(|m| match m["kind"].as_str().unwrap() {
            "system" => json!([m["seq"], m["data"]["type"]]),
            _ => json!([m["seq"], m["client_id"], m["body"], m["reactions"].as_array().unwrap().len()]),
        })
        .collect();
    let expected = json!([
        [1, "a1", "who comes?", 0],
        [2, "a2", "", 0],
        [3, "b1", "me", 1],
        [4, "c1", "not me", 0],
        [5, "member.joined"],
        [6, "conversation.renamed"],
        [7, "member.left"],
        [8, "member.removed"],
        [9, "a3", "see you", 0],
        [10, "b2", "home", 0]
    ]);
    assert_eq!(json!(said), expected);
    let facts = bob[0].conversation(group).await.expect(200).json;
    assert_eq!(
        json!([facts["title"], facts["owner"], facts["member_count"], facts["head_seq"]]),
        json!(["the evening", name("ann"), 2, 10])
    );
    let me = &facts["me"];
    assert_eq!(json!([me["muted"], me["read_seq"], me["unread"], me["unread_mentions"]]), json!([true, 10, 0, 0]));

    let once = BTreeMap::from([
        ("conversation.created", 1),
        ("conversation.renamed", 1),
        ("member.joined", 1),
        ("member.left", 1),
        ("member.removed", 1),
        ("message.created", 10),
        ("message.deleted", 1),
        ("message.edited", 1),
        ("preferences.changed", 1),
        ("reaction.changed", 1),
    ]);
    let count = |events: &[Value]| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        events.iter().for_each(|event| *counts.entry(event["type"].as_str().unwrap().to_owned()).or_default() += 1);
        // A reader's own sends move the watermark too, and cid reads by sending.
        counts.remove("read.advanced");
        counts
    };
    let told = eventually_some("everything is heard", PATIENCE, async || {
        let events = ear.of(group);
        let heard = events.iter().filter(|event| event["type"] == "message.created").count();
        if heard >= 10 { Ok(events) } else { Err(count(&events)) }
    })
    .await;
    assert_eq!(count(&told), once.iter().map(|(kind, times)| ((*kind).to_owned(), *times)).collect(), "on the stream");
    let seqs: Vec<&Value> = told.iter().filter(|e| e["type"] == "message.created").map(|e| &e["data"]["message"]["seq"]).collect();
    assert_eq!(json!(seqs), json!([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]));

    let mut connection = stage.database.connect().await;
    eventually("Postgres has it", PATIENCE, async || {
        let rows =
            sqlx::query("SELECT seq, id::text FROM messages WHERE conv_id = $1 ORDER BY seq").bind(group).fetch_all(&mut connection).await;
        let rows: Vec<Value> = rows.unwrap().iter().map(|row| json!([row.get::<i64, _>(0), row.get::<String, _>(1)])).collect();
        let there: Vec<Value> = history.iter().map(|m| json!([m["seq"], m["id"]])).collect();
        rows == there
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_script_has_one_effect_whichever_way_its_connection_is_cut() {
    for (name, where_else) in ELSEWHERE {
        assert!(scripts::ALL.iter().any(|script| script.name == *name), "there is no {name} ({where_else})");
    }
    let stage = Stage::set().await;
    evening(&stage, 0).await;
    let mut evenings = 0;
    for script in scripts::ALL {
        if ELSEWHERE.iter().any(|(name, _)| *name == script.name) {
            continue;
        }
        let loaded = stage.server.on_every_node(&["SCRIPT", "LOAD", script.source]).await;
        let digest = loaded[0].text().unwrap();
        let begun = Instant::now();
        stage.redis.arm(digest.as_bytes(), &[When::Before, When::After]);
        // Some are called once in an evening.
        for round in 1.. {
            evenings += 1;
            evening(&stage, evenings).await;
            if stage.redis.spent(Duration::from_secs(3)).await {
                println!("{}: {round} evenings, {:?}", script.name, begun.elapsed());
                break;
            }
            assert!(round < 5, "{} is called too seldom", script.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_transaction_of_the_archive_has_one_effect_whichever_way_its_connection_is_cut() {
    let stage = Stage::set().await;
    evening(&stage, 0).await;
    for (n, needle) in ["BEGIN", "COMMIT"].into_iter().enumerate() {
        stage.postgres.arm(needle.as_bytes(), &[When::Before, When::After, When::Before, When::After]);
        evening(&stage, n + 1).await;
        let struck = stage.postgres.disarm();
        println!("{needle}: {struck}");
        assert!(struck >= 2, "{needle} was asked {struck} times");
    }
}
