//! Edits, recalls, deletions, reactions and quotes.

use std::sync::Arc;

use reqwest::Method;
use serde_json::json;
use tokio::sync::Barrier;

use crate::harness::{Client, Fleet, MadeOn, PATIENCE, RedisKind, User, eventually, on_both, path_segment, stores};
use crate::scene::head_field;

fn message_path(conversation: &str, seq: u64) -> String {
    format!("/v1/conversations/{conversation}/messages/{seq}")
}

async fn edit(client: &Client, conversation: &str, seq: u64, body: &str) -> crate::harness::Answer {
    client.patch(&message_path(conversation, seq), &json!({ "body": body })).await
}

async fn react(client: &Client, conversation: &str, seq: u64, emoji: &str) -> crate::harness::Answer {
    client.put(&format!("{}/reactions/{}", message_path(conversation, seq), path_segment(emoji)), None).await
}

async fn unreact(client: &Client, conversation: &str, seq: u64, emoji: &str) -> crate::harness::Answer {
    client.delete(&format!("{}/reactions/{}", message_path(conversation, seq), path_segment(emoji))).await
}

async fn archived(client: &Client, conversation: &str, key: &str) {
    eventually("it is archived", PATIENCE, async || {
        client.get(&format!("/v1/conversations/{conversation}/messages/by-client-id/{key}")).await.json["state"] == "archived"
    })
    .await;
}

/// A fleet whose windows are so short that most messages have left Redis.
struct ShortWindows(Fleet);

impl MadeOn for ShortWindows {
    async fn made_on(kind: RedisKind) -> Self {
        Self(Fleet::start_with(kind, 2, 1, &["--window-messages", "2"]).await)
    }
}

on_both! {
    async fn an_edit_shows_everywhere_and_keeps_its_place(fleet: Fleet) {
        let (ann, bob, eve) = (User::new("ann"), User::new("bob"), User::new("eve"));
        let (a, b, e) = (fleet.client(0, &ann), fleet.client(1, &bob), fleet.client(1, &eve));
        let group = a.create_group("edits", &["bob"]).await;
        let first = a.send(&group, "k1", "helo").await.expect(201);
        for n in 2..=3 {
            a.send(&group, &format!("k{n}"), "more").await.expect(201);
        }
        let mut stream = b.stream().with("last_event_id", b.conversations().await.json["events_head"].as_str().unwrap()).open().await;
        let before = b.conversation(&group).await.expect(200);
        let edited = edit(&a, &group, 1, "hello").await.expect(200);
        assert_eq!((edited.json["body"].as_str(), edited.json["seq"].as_u64()), (Some("hello"), Some(1)));
        assert!(edited.json["edited_at"].is_string() && edited.json["created_at"] == first.json["created_at"]);
        assert!(edited.json["rev"].as_u64() > first.json["rev"].as_u64());
        assert_eq!(edit(&a, &group, 1, "hello").await.expect(200).json["rev"], edited.json["rev"], "what changes nothing makes no new version");
        let event = stream.wait_for("message.edited", PATIENCE).await;
        assert_eq!(event.data["data"]["message"], edited.json);
        assert_eq!(b.get(&message_path(&group, 1)).await.expect(200).json, edited.json);
        let page = b.history(&group, "").await.expect(200);
        assert_eq!(page.items().iter().map(|m| m["seq"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
        let after = b.conversation(&group).await.expect(200);
        for same in ["last_message", "created_at", "updated_at"] {
            assert_eq!(after.json[same], before.json[same], "{same}");
        }
        assert_eq!(after.json["me"]["unread"], before.json["me"]["unread"]);
        let changed = b.history(&group, &format!("since_rev={}", before.json["rev"])).await.expect(200);
        assert_eq!(changed.items(), &vec![edited.json.clone()]);
        let replay = a.send(&group, "k1", "helo").await.expect(200);
        assert_eq!(replay.json["body"], "hello", "the key stands for what was first sent, the answer shows what it is now");
        a.send(&group, "k1", "hello").await.expect_problem(409, "idempotency_conflict");

        edit(&b, &group, 1, "mine").await.expect_problem(403, "forbidden");
        edit(&e, &group, 1, "mine").await.expect_problem(404, "not_found");
        e.patch(&message_path(&group, 1), &json!({"wrong": 1})).await.expect_problem(404, "not_found");
        a.patch(&message_path(&group, 1), &json!({"wrong": 1})).await.expect_problem(422, "unknown_field");
        for body in [" ".to_owned(), "\u{200B}".to_owned(), "x".repeat(4_001), "a\0".to_owned()] {
            assert_eq!(edit(&a, &group, 1, &body).await.expect_problem(422, "invalid_field").json["field"], "body");
        }
        edit(&a, &group, 9, "none").await.expect_problem(404, "not_found");
        assert_eq!(a.get(&message_path(&group, 1)).await.json, edited.json, "a refused edit changes nothing");
        assert_eq!(a.patch(&message_path(&group, 1), &json!({})).await.expect(200).json, edited.json);
    }

    async fn what_is_deleted_is_gone_everywhere_and_keeps_its_number(fleet: Fleet) {
        let (ann, bob, cid) = (User::new("ann"), User::new("bob"), User::new("cid"));
        let moderator = User::with_claims("mod", &json!({"scope": "admin"}));
        let (a, b, c, m) = (fleet.client(0, &ann), fleet.client(1, &bob), fleet.client(0, &cid), fleet.client(1, &moderator));
        let group = a.create_group("deletions", &["bob", "cid"]).await;
        for n in 1..=4 {
            b.send(&group, &format!("k{n}"), &format!("secret {n}")).await.expect(201);
        }
        c.send_message(&group, &json!({"client_id": "q", "body": "answer", "reply_to": 4})).await.expect(201);
        let mut stream = c.stream().with("last_event_id", c.conversations().await.json["events_head"].as_str().unwrap()).open().await;
        c.delete(&message_path(&group, 1)).await.expect_problem(403, "forbidden");
        let gone = b.delete(&message_path(&group, 4)).await.expect(200);
        assert_eq!((gone.json["body"].as_str(), gone.json["deleted_by"].as_str(), gone.json["seq"].as_u64()), (Some(""), Some("bob"), Some(4)));
        assert!(gone.json["deleted_at"].is_string());
        let event = stream.wait_for("message.deleted", PATIENCE).await;
        assert_eq!(event.data["data"]["message"], gone.json);
        assert_eq!(b.delete(&message_path(&group, 4)).await.expect(200).json["rev"], gone.json["rev"], "deleting again is harmless");
        a.delete(&message_path(&group, 3)).await.expect(200);
        assert_eq!(m.delete(&message_path(&group, 2)).await.expect(200).json["deleted_by"], "mod");
        edit(&b, &group, 4, "back").await.expect_problem(409, "deleted");
        react(&c, &group, 4, "\u{1F44D}").await.expect_problem(409, "deleted");
        assert_eq!(c.send_message(&group, &json!({"client_id": "q2", "body": "x", "reply_to": 4})).await.expect_problem(422, "invalid_field").json["field"], "reply_to");
        for client in [&a, &c] {
            let page = client.history(&group, "").await.expect(200);
            assert!(!page.text.contains("secret 2") && !page.text.contains("secret 3") && !page.text.contains("secret 4"), "{}", page.text);
            assert_eq!(page.items().len(), 5, "places are kept");
            let quote = &page.items()[4]["reply_to"];
            assert_eq!((quote["deleted"].as_bool(), quote["preview"].as_str()), (Some(true), Some("")));
        }
        // One's own sends moved one's own mark; what is left for cid is one message of bob's that stands.
        assert_eq!(c.conversation(&group).await.json["me"]["unread"], 0);
        assert_eq!(a.conversation(&group).await.json["me"]["unread"], 2, "the first one and the answer");
        assert_eq!(b.send(&group, "k4", "secret 4").await.expect(200).json["body"], "", "a replay brings nothing back");
        let mut replay = c.stream().with("last_event_id", "0-0").open().await;
        assert_eq!(replay.next_event(PATIENCE).await.map(|e| e.name), Some("hello".into()));
        eventually("the record of what was said is kept for moderators", PATIENCE, async || {
            m.get(&format!("/v1/audit/conversations/{group}/messages/4/versions")).await.expect(200).items().len() == 1
        })
        .await;
        let mut database = fleet.database().connect().await;
        let bodies: Vec<String> =
            sqlx::query_scalar("SELECT body FROM messages WHERE deleted_at_ms IS NOT NULL").fetch_all(&mut database).await.unwrap();
        assert!(!bodies.is_empty() && bodies.iter().all(String::is_empty), "what is not shown is not kept beside that record: {bodies:?}");
        b.get(&format!("/v1/audit/conversations/{group}/messages/4/versions")).await.expect_problem(403, "forbidden");
    }

    async fn an_edit_and_a_deletion_that_cross_end_deleted(fleet: Fleet) {
        let ann = User::new("ann");
        let group = fleet.client(0, &ann).create_group("crossing", &["bob"]).await;
        let bob = fleet.client(1, &User::new("bob"));
        let mut stream = bob.stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        for round in 1..=50_u64 {
            fleet.client(0, &ann).send(&group, &format!("k{round}"), "first").await.expect(201);
            let barrier = Arc::new(Barrier::new(2));
            let (one, two) = (fleet.client(0, &ann), fleet.client(1, &ann));
            let wait = Arc::clone(&barrier);
            let edits = async {
                wait.wait().await;
                edit(&one, &group, round, "second").await
            };
            let deletes = async {
                barrier.wait().await;
                two.delete(&message_path(&group, round)).await
            };
            let (edited, deleted) = tokio::join!(edits, deletes);
            deleted.expect(200);
            assert!(edited.status == 200 || edited.json["code"] == "deleted", "{}", edited.text);
            let now = bob.get(&message_path(&group, round)).await.expect(200);
            assert!(now.json["deleted_at"].is_string() && now.json["body"] == "", "{}", now.text);
        }
        let mut deleted_at_rev = std::collections::HashMap::new();
        while deleted_at_rev.len() < 50 {
            let event = stream.next_event(PATIENCE).await.unwrap();
            let (seq, rev) = (event.data["data"]["message"]["seq"].as_u64(), event.data["rev"].as_u64().unwrap());
            match event.name.as_str() {
                "message.deleted" => drop(deleted_at_rev.insert(seq, rev)),
                "message.edited" => assert!(deleted_at_rev.get(&seq).is_none_or(|deleted| rev < *deleted), "no edit after a deletion"),
                _ => {}
            }
        }
    }

    async fn changes_reach_messages_that_have_left_redis(windows: ShortWindows) {
        let fleet = windows.0;
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
        let group = a.create_group("long ago", &["bob"]).await;
        for n in 1..=40 {
            a.send(&group, &format!("k{n}"), &format!("body {n}")).await.expect(201);
        }
        archived(&a, &group, "k40").await;
        let looking = stores::open(&fleet.redis_url(), fleet.database().url(), &[]).await;
        let id = seqline::domain::ids::ConversationId::parse(&group).unwrap();
        eventually("the first messages have left the window", PATIENCE, async || {
            a.send(&group, &uuid::Uuid::now_v7().to_string(), "more").await.expect(201);
            head_field(&looking, &id, "floor").await.is_some_and(|floor| floor.parse::<u64>().unwrap() > 5)
        })
        .await;
        let before = b.conversation(&group).await.json["rev"].as_u64().unwrap();
        let edited = edit(&a, &group, 3, "late edit").await.expect(200);
        // At once, at the other gateway: the archive may not have it yet.
        for query in ["after=0&limit=10", "before=8&limit=10", "around=3&limit=6"] {
            let page = b.history(&group, query).await.expect(200);
            let third = page.items().iter().find(|m| m["seq"] == 3).unwrap();
            assert_eq!(third, &edited.json, "{query}");
        }
        assert_eq!(b.history(&group, &format!("since_rev={before}")).await.expect(200).items(), &vec![edited.json.clone()]);
        react(&b, &group, 3, "\u{1F44D}").await.expect(200);
        // Changes that went to the archive and left Redis are not undone by one that was decided on what stood before.
        for round in 0..30 {
            let body = format!("round {round}");
            edit(&a, &group, 3, &body).await.expect(200);
            a.send(&group, &uuid::Uuid::now_v7().to_string(), "push").await.expect(201);
            assert_eq!(b.get(&message_path(&group, 3)).await.expect(200).json["body"], body);
        }
        let last = b.get(&message_path(&group, 3)).await.expect(200);
        assert_eq!(last.json["reactions"], json!([{"emoji": "\u{1F44D}", "count": 1, "me": true}]));
        a.delete(&message_path(&group, 3)).await.expect(200);
        let moderator = fleet.client(0, &User::with_claims("mod", &json!({"scope": "admin"})));
        eventually("every version is on record, in order", PATIENCE, async || {
            let versions = moderator.get(&format!("/v1/audit/conversations/{group}/messages/3/versions")).await.expect(200);
            let bodies: Vec<&str> = versions.items().iter().map(|v| v["body"].as_str().unwrap()).collect();
            bodies.len() == 32 && bodies[0] == "body 3" && bodies[1] == "late edit" && bodies[31] == "round 29"
        })
        .await;
        let page = b.history(&group, "after=0&limit=5").await.expect(200);
        assert_eq!((page.items()[2]["body"].as_str(), &page.items()[2]["reactions"]), (Some(""), &json!([])));
    }

    async fn reactions_are_counted_once_each_and_bounded(fleet: Fleet) {
        let users = User::many(12);
        let names: Vec<&str> = users[1..].iter().map(|u| u.id.as_str()).collect();
        let group = fleet.client(0, &users[0]).create_group("reactions", &names).await;
        let a = fleet.client(0, &users[0]);
        a.send(&group, "k1", "like it?").await.expect(201);
        let thumb = "\u{1F44D}";
        // All at once, each twice, through both gateways.
        let mut all = tokio::task::JoinSet::new();
        for (n, user) in users.iter().enumerate() {
            for gateway in 0..2 {
                let (client, group) = (fleet.client(gateway, user), group.clone());
                let emoji = if n % 2 == 0 { thumb.to_owned() } else { format!("{thumb}\u{FE0F}") };
                all.spawn(async move { react(&client, &group, 1, &emoji).await.expect(200) });
            }
        }
        while let Some(done) = all.join_next().await {
            done.unwrap();
        }
        let seen = a.get(&message_path(&group, 1)).await.expect(200);
        assert_eq!(seen.json["reactions"].as_array().unwrap().len(), 1, "U+FE0F makes no other emoji: {}", seen.text);
        assert_eq!((seen.json["reactions"][0]["count"].as_u64(), seen.json["reactions"][0]["me"].as_bool()), (Some(12), Some(true)));
        unreact(&a, &group, 1, &format!("{thumb}\u{FE0F}")).await.expect(200);
        assert_eq!(unreact(&a, &group, 1, thumb).await.expect(200).json["reactions"], json!([{"emoji": seen.json["reactions"][0]["emoji"], "count": 11, "me": false}]));
        let b = fleet.client(1, &users[1]);
        let mut kinds = tokio::task::JoinSet::new();
        for n in 0..30_u32 {
            let (client, group) = (b.clone(), group.clone());
            kinds.spawn(async move { react(&client, &group, 1, &char::from_u32(0x1F600 + n).unwrap().to_string()).await.status });
        }
        let statuses = kinds.join_all().await;
        assert_eq!(statuses.iter().filter(|s| **s == 200).count(), 19, "twenty different ones, the thumb among them: {statuses:?}");
        assert!(statuses.iter().all(|s| matches!(s, 200 | 422)), "{statuses:?}");
        for bad in [thumb.repeat(2), format!("a{}", "\u{0301}".repeat(32)), "\u{200B}".to_owned()] {
            assert_eq!(react(&b, &group, 1, &bad).await.expect_problem(422, "invalid_field").json["field"], "emoji");
        }
        let eve = fleet.client(0, &User::new("eve"));
        react(&eve, &group, 1, thumb).await.expect_problem(404, "not_found");
        react(&eve, &group, 1, "two letters").await.expect_problem(404, "not_found");
        eve.request(Method::PUT, &format!("{}/reactions/", message_path(&group, 1)), &[], None).await.expect_problem(404, "not_found");
    }

    async fn reactions_and_quotes_come_by_the_stream(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
        let group = a.create_group("stream", &["bob"]).await;
        let mut stream = b.stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        let said = a.send(&group, "k1", "the question").await.expect(201);
        react(&a, &group, 1, "\u{2764}").await.expect(200);
        let event = stream.wait_for("reaction.changed", PATIENCE).await;
        assert_eq!(event.data["data"], json!({"seq": 1, "reactions": [{"emoji": "\u{2764}", "count": 1}]}));
        let answer = b.send_message(&group, &json!({"client_id": "k2", "body": "the answer", "reply_to": 1})).await.expect(201);
        let quote = json!({"seq": 1, "id": said.json["id"], "sender": "ann", "kind": "text", "preview": "the question", "deleted": false});
        assert_eq!(answer.json["reply_to"], quote);
        assert_eq!(stream.next_message(PATIENCE).await["reply_to"], quote);
        edit(&a, &group, 1, &"中".repeat(200)).await.expect(200);
        let shown = b.history(&group, "").await.expect(200);
        assert_eq!(shown.items()[1]["reply_to"]["preview"], "中".repeat(120), "an edit shows in what quotes it");
        for (reply, field) in [(json!({"seq": 1, "preview": "x"}), "reply_to"), (json!(9), "reply_to"), (json!(0), "reply_to"), (json!(-1), "reply_to")] {
            let refused = a.send_message(&group, &json!({"client_id": "k3", "body": "x", "reply_to": reply})).await;
            assert_eq!(refused.expect_problem(422, "invalid_field").json["field"], field);
        }
        b.invite(&group, "cid").await.expect(201);
        let timeline = json!({"client_id": "k3", "body": "x", "reply_to": 3});
        a.send_message(&group, &timeline).await.expect_problem(422, "invalid_field");
        let same = b.send_message(&group, &json!({"client_id": "k2", "body": "the answer"})).await;
        same.expect_problem(409, "idempotency_conflict");
    }

    async fn who_joined_late_sees_hidden_quotes_and_no_changes_of_the_past(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
        let body = json!({"kind": "group", "title": "late", "members": ["cid"], "history": "from_join"});
        let group = a.post("/v1/conversations", &body).await.expect(201).json["id"].as_str().unwrap().to_owned();
        a.send(&group, "k1", "before").await.expect(201);
        a.invite(&group, "bob").await.expect(201);
        let mut stream = b.stream().with("last_event_id", b.conversations().await.json["events_head"].as_str().unwrap()).open().await;
        stream.wait_for("hello", PATIENCE).await;
        edit(&a, &group, 1, "still before").await.expect(200);
        react(&a, &group, 1, "\u{1F44D}").await.expect(200);
        a.send_message(&group, &json!({"client_id": "k2", "body": "after", "reply_to": 1})).await.expect(201);
        let mut seen = Vec::new();
        let message = loop {
            let event = stream.next_event(PATIENCE).await.unwrap();
            if event.name == "message.created" && event.data["data"]["message"]["body"] == "after" {
                break event.data["data"]["message"].clone();
            }
            seen.push(event.name);
        };
        assert!(!seen.iter().any(|name| name == "message.edited" || name == "reaction.changed"), "{seen:?}");
        assert_eq!(message["reply_to"], json!({"seq": 1, "hidden": true}));
        assert_eq!(b.history(&group, "").await.items().last().unwrap()["reply_to"], json!({"seq": 1, "hidden": true}));
        for refused in [b.get(&message_path(&group, 1)).await, react(&b, &group, 1, "\u{1F44D}").await, edit(&b, &group, 1, "x").await] {
            refused.expect_problem(404, "not_found");
        }
        b.send_message(&group, &json!({"client_id": "k3", "body": "x", "reply_to": 1})).await.expect_problem(422, "invalid_field");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recall_is_possible_within_its_window_only() {
    let fleet = Fleet::start_with(RedisKind::Single, 2, 1, &["--recall-window", "0"]).await;
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
    let group = a.create_group("no recall", &["bob"]).await;
    b.send(&group, "k1", "for ever").await.expect(201);
    b.delete(&message_path(&group, 1)).await.expect_problem(403, "forbidden");
    a.delete(&message_path(&group, 1)).await.expect(200);
}
