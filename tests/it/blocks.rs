//! Blocks: while one of a pair has blocked the other, nothing new passes between them, and only the blocker knows.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::client::pair;
use crate::harness::{Client, Fleet, MadeOn, PATIENCE, RedisKind, User, eventually, on_both};

/// For what must not come: well above what it takes to come.
const QUIET: Duration = Duration::from_millis(400);

async fn block(client: &Client, user: &str) -> Value {
    client.put(&format!("/v1/blocks/{user}"), None).await.expect(200).json
}

async fn unblock(client: &Client, user: &str) {
    client.delete(&format!("/v1/blocks/{user}")).await.expect(204);
}

async fn blocked(client: &Client) -> Vec<String> {
    client.get("/v1/blocks").await.expect(200).items().iter().map(|b| b["user_id"].as_str().unwrap().to_owned()).collect()
}

/// A fleet whose conversations leave Redis almost at once.
struct Cooling(Fleet);

impl MadeOn for Cooling {
    async fn made_on(kind: RedisKind) -> Self {
        Self(Fleet::start_with(kind, 2, 1, &["--cool-after", "1"]).await)
    }
}

on_both! {
    async fn nothing_new_passes_either_way_and_history_stays(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
        let id = pair("ann", "bob");
        a.send_to_peer("bob", "a1", "one").await.expect(201);
        b.send_to_peer("ann", "b1", "two").await.expect(201);
        a.send(&id, "a2", "three").await.expect(201);
        eventually("both have it", PATIENCE, async || !a.conversations().await.items().is_empty() && !b.conversations().await.items().is_empty()).await;
        let open = async |client: &Client| client.stream().with("last_event_id", client.conversations().await.json["events_head"].as_str().unwrap()).open().await;
        let (mut own, mut other) = (open(&fleet.client(1, &ann)).await, open(&fleet.client(0, &bob)).await);
        let first = block(&a, "bob").await;
        assert_eq!(first["user_id"], "bob");
        assert_eq!(block(&fleet.client(1, &ann), "bob").await, first, "again changes nothing");
        assert_eq!(own.wait_for("preferences.changed", PATIENCE).await.data["data"]["blocked"], true);
        let path = |rest: &str| format!("/v1/conversations/{id}/{rest}");
        for (client, key, known, own_seq) in [(&a, "a9", "a1", 1), (&b, "b9", "b1", 2)] {
            client.send(&id, key, "new").await.expect_problem(403, "forbidden");
            let replay = client.send(&id, known, if known == "a1" { "one" } else { "two" }).await.expect(200);
            assert_eq!(replay.header("idempotency-replayed"), Some("true"), "a known key is answered all the same");
            client.send(&id, key, "").await.expect_problem(422, "invalid_field");
            client.send_message(&id, &json!({"client_id": key, "body": "x", "reply_to": 1})).await.expect_problem(403, "forbidden");
            client.send_message(&id, &json!({"client_id": key, "body": "x", "reply_to": 99})).await.expect_problem(422, "invalid_field");
            client.patch(&path(&format!("messages/{own_seq}")), &json!({"body": "changed"})).await.expect_problem(403, "forbidden");
            client.put(&path("messages/1/reactions/x"), None).await.expect_problem(403, "forbidden");
            client.post(&path("typing"), &json!({"typing": true})).await.expect(204);
            client.read(&id, 3).await.expect(200);
            assert_eq!(client.history(&id, "").await.expect(200).items().len(), 3);
            assert_eq!(client.get(&path(&format!("messages/{own_seq}/readers"))).await.expect(200).items().len(), 0);
        }
        assert_eq!((&a.conversation(&id).await.json["me"]["blocked"], &b.conversation(&id).await.json["me"]["blocked"]), (&json!(true), &json!(false)));
        // What was said may be taken back.
        a.delete(&path("messages/3")).await.expect(200);
        let mut told: Vec<String> = other.until_quiet(QUIET).await.into_iter().map(|e| e.name).collect();
        told.retain(|name| name != "hello" && name != "message.created");
        assert_eq!(told, ["read.advanced", "message.deleted"], "the own reading, and the recall");
        let events = own.until_quiet(QUIET).await;
        assert!(events.iter().all(|e| e.name != "typing.updated" && (e.name != "read.advanced" || e.data["data"]["user_id"] == "ann")), "{events:?}");

        // Two blocks are two: each lifts one's own.
        block(&b, "ann").await;
        unblock(&a, "bob").await;
        unblock(&a, "bob").await;
        assert_eq!((blocked(&a).await, blocked(&b).await), (vec![], vec!["ann".to_owned()]));
        a.send(&id, "a9", "new").await.expect_problem(403, "forbidden");
        unblock(&b, "ann").await;
        assert_eq!(a.send(&id, "a9", "new").await.expect(201).seq(), 4, "what was refused took no number");
        assert_eq!(b.send(&id, "b9", "new").await.expect(201).seq(), 5);
        b.read(&id, 5).await.expect(200);
    }

    async fn a_pair_that_never_spoke_is_blocked_without_a_sign(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
        let mut other = b.stream().with("last_event_id", b.conversations().await.json["events_head"].as_str().unwrap()).open().await;
        let (one, two) = (fleet.client(1, &ann), fleet.client(0, &ann));
        let (one, two) = tokio::join!(block(&one, "bob"), block(&two, "bob"));
        assert_eq!(one, two, "two at once make one");
        b.send_to_peer("ann", "b1", "hi").await.expect_problem(403, "forbidden");
        a.send_to_peer("bob", "a1", "hi").await.expect_problem(403, "forbidden");
        for client in [&a, &b] {
            assert!(client.conversations().await.items().is_empty(), "not listed before there is a message");
            assert_eq!(client.get("/v1/unread").await.json["conversations"], 0);
        }
        assert!(other.until_quiet(QUIET).await.iter().all(|e| e.name == "hello"), "bob is told nothing");
        unblock(&a, "bob").await;
        assert_eq!(b.send_to_peer("ann", "b1", "hi").await.expect(201).seq(), 1, "the refused key is free");
        eventually("both have it", PATIENCE, async || !a.conversations().await.items().is_empty() && !b.conversations().await.items().is_empty()).await;
        other.next_message(PATIENCE).await;
        assert_eq!(a.put("/v1/blocks/ann", None).await.expect_problem(422, "invalid_field").json["field"], "user_id");
        a.delete("/v1/blocks/ann").await.expect_problem(422, "invalid_field");
        unblock(&a, "nobody").await;
    }

    async fn the_list_is_ones_own_and_comes_in_pages(fleet: Fleet) {
        let (a, b) = (fleet.client(0, &User::new("ann")), fleet.client(1, &User::new("ann")));
        for n in [3, 1, 5, 2, 4] {
            block(&a, &format!("user-{n}")).await;
            assert!(blocked(&b).await.contains(&format!("user-{n}")), "at once, at any gateway");
        }
        unblock(&b, "user-4").await;
        let mut found = Vec::new();
        let mut query = "limit=2".to_owned();
        loop {
            let page = b.get(&format!("/v1/blocks?{query}")).await.expect(200);
            found.extend(page.items().iter().map(|item| item["user_id"].as_str().unwrap().to_owned()));
            let Some(next) = page.json["next_cursor"].as_str() else { break };
            query = format!("limit=2&cursor={next}");
        }
        assert_eq!(found, ["user-1", "user-2", "user-3", "user-5"]);
        assert!(blocked(&fleet.client(0, &User::new("user-1"))).await.is_empty());
        a.get("/v1/blocks?cursor=%21").await.expect_problem(400, "invalid_cursor");
        a.get("/v1/blocks?limit=0").await.expect_problem(400, "invalid_parameter");
    }

    async fn a_block_holds_when_the_conversation_has_left_redis(cooling: Cooling) {
        let fleet = &cooling.0;
        let (a, b) = (fleet.client(0, &User::new("ann")), fleet.client(1, &User::new("bob")));
        let id = pair("ann", "bob");
        let cold = async || {
            eventually("it has left Redis", PATIENCE, async || fleet.redis_ref().keys(&format!("conv:*}}:{id}")).await.is_empty()).await;
        };
        b.send_to_peer("ann", "b0", "hi").await.expect(201);
        b.get(&format!("/v1/conversations/{id}/messages/1/readers")).await.expect(200);
        a.read(&id, 1).await.expect(200);
        let since = block(&a, "bob").await;
        cold().await;
        assert_eq!((&a.conversation(&id).await.json["me"]["blocked"], &b.conversation(&id).await.json["me"]["blocked"]), (&json!(true), &json!(false)));
        assert_eq!(b.get(&format!("/v1/conversations/{id}/messages/1/readers")).await.expect(200).items().len(), 0);
        b.post(&format!("/v1/conversations/{id}/typing"), &json!({"typing": true})).await.expect(204);
        b.send(&id, "b0", "hi").await.expect(200);
        b.send(&id, "b1", "hi").await.expect_problem(403, "forbidden");
        cold().await;
        assert_eq!(block(&a, "bob").await, since);
        cold().await;
        unblock(&a, "bob").await;
        assert_eq!(b.send(&id, "b1", "hi").await.expect(201).seq(), 2);
    }

    async fn what_crosses_a_block_is_before_it_or_refused(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let id = pair("ann", "bob");
        let b = fleet.client(1, &bob);
        b.send_to_peer("ann", "first", "hi").await.expect(201);
        let mut taken = 1;
        for round in 0..10 {
            let sends = async {
                let mut taken = Vec::new();
                for n in 0..10 {
                    let answer = b.send(&id, &format!("k{round}-{n}"), "hi").await;
                    assert!([201, 403].contains(&answer.status), "{}", answer.text);
                    taken.push(answer.status == 201);
                }
                taken
            };
            let blocks = async {
                block(&fleet.client(0, &ann), "bob").await;
                fleet.client(1, &ann).conversation(&id).await.expect(200).json["head_seq"].as_u64().unwrap()
            };
            let (sent, head) = tokio::join!(sends, blocks);
            assert!(sent.is_sorted_by(|a, b| a >= b), "once refused, always refused: {sent:?}");
            taken += sent.iter().filter(|taken| **taken).count() as u64;
            assert_eq!(head, taken, "after the answer nothing more came");
            unblock(&fleet.client(0, &ann), "bob").await;
        }
    }
}
