//! Naming members: who may be named, and how many unread messages name one.

use serde_json::{Value, json};

use crate::harness::{Answer, Client, Fleet, PATIENCE, User, eventually, on_both};

async fn name(client: &Client, conversation: &str, key: &str, who: &Value) -> Answer {
    client.send_message(conversation, &json!({"client_id": key, "body": "hey", "mentions": who})).await
}

async fn named(client: &Client, conversation: &str) -> u64 {
    let count = client.conversation(conversation).await.expect(200).json["me"]["unread_mentions"].as_u64().unwrap();
    let page = client.conversations().await.expect(200);
    let item = page.items().iter().find(|c| c["id"] == conversation).unwrap();
    assert_eq!(item["me"]["unread_mentions"], count, "the list says the same");
    count
}

on_both! {
    async fn only_members_are_named_and_the_message_shows_it(fleet: Fleet) {
        let (a, b) = (fleet.client(0, &User::new("ann")), fleet.client(1, &User::new("bob")));
        let group = a.create_group("names", &["bob", "ann of green gables"]).await;
        let sent = name(&a, &group, "k1", &json!(["bob", "ann", "bob", "ann of green gables"])).await.expect(201);
        assert_eq!(sent.json["mentions"], json!(["bob", "ann", "ann of green gables"]));
        assert_eq!(b.history(&group, "").await.expect(200).items()[0]["mentions"], sent.json["mentions"]);
        assert_eq!(name(&a, &group, "k1", &json!(["bob", "ann", "ann of green gables"])).await.expect(200).seq(), 1, "a replay");
        name(&a, &group, "k1", &json!(["bob"])).await.expect_problem(409, "idempotency_conflict");
        for wrong in [json!(["eve"]), json!(["bob", "eve"])] {
            assert_eq!(name(&a, &group, "k2", &wrong).await.expect_problem(422, "invalid_field").json["field"], "mentions");
        }
        let many: Vec<String> = (0..101).map(|n| format!("u{n}")).collect();
        assert_eq!(name(&a, &group, "k2", &json!(many)).await.expect_problem(422, "invalid_field").json["field"], "mentions");
        name(&a, &group, "k2", &json!("bob")).await.expect_problem(422, "invalid_field");
        assert_eq!(name(&a, &group, "k2", &json!([7])).await.expect_problem(422, "invalid_field").json["field"], "mentions[0]");
        name(&fleet.client(1, &User::new("eve")), &group, "k", &json!(["eve"])).await.expect_problem(404, "not_found");
        // Who has left cannot be named any more, at either gateway, from then on; what was said stands.
        a.remove(&group, "bob").await.expect(204);
        assert_eq!(name(&a, &group, "k3", &json!(["bob"])).await.expect_problem(422, "invalid_field").json["field"], "mentions");
        assert_eq!(name(&a, &group, "k1", &json!(["bob", "ann", "ann of green gables"])).await.expect(200).seq(), 1, "a known key comes before");
        a.invite(&group, "bob").await.expect(201);
        eventually("bob has it in the list again", PATIENCE, async || {
            b.conversations().await.items().iter().any(|c| c["id"] == group.as_str())
        })
        .await;
        assert_eq!(named(&b, &group).await, 0, "who comes back has read what was there");
        // The other one of a pair can be named in the message that makes the conversation, and nobody else.
        let id = crate::harness::client::pair("ann", "bob");
        let first = |who: &str| json!({"client_id": "p1", "body": "hey", "peer": "bob", "mentions": [who]});
        assert_eq!(a.send_message(&id, &first("eve")).await.expect_problem(422, "invalid_field").json["field"], "mentions");
        a.send_message(&id, &first("bob")).await.expect(201);
        eventually("bob has it in the list", PATIENCE, async || b.conversations().await.items().len() == 2).await;
        assert_eq!(named(&b, &id).await, 1);
    }

    async fn what_is_counted_is_unread_visible_and_not_ones_own(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
        let group = a.create_group("counts", &["bob", "bob2"]).await;
        for n in 1..=6 {
            name(&a, &group, &format!("k{n}"), &json!(["ann", "bob"])).await.expect(201);
        }
        eventually("bob has it in the list", PATIENCE, async || !b.conversations().await.items().is_empty()).await;
        assert_eq!((named(&b, &group).await, named(&a, &group).await), (6, 0), "one's own name none");
        assert_eq!(fleet.client(0, &User::new("bob2")).conversation(&group).await.json["me"]["unread_mentions"], 0, "another name is another");
        b.read(&group, 2).await.expect(200);
        assert_eq!(named(&b, &group).await, 4);
        b.read(&group, 1).await.expect(200);
        assert_eq!(named(&fleet.client(0, &bob), &group).await, 4);
        let deleted = a.delete(&format!("/v1/conversations/{group}/messages/5")).await.expect(200);
        assert_eq!((&deleted.json["mentions"], named(&b, &group).await), (&json!([]), 3));
        a.delete(&format!("/v1/conversations/{group}/messages/1")).await.expect(200);
        a.patch(&format!("/v1/conversations/{group}/messages/6"), &json!({"body": "other words"})).await.expect(200);
        assert_eq!(named(&b, &group).await, 3, "an edit changes no names");
        b.put(&format!("/v1/conversations/{group}/preferences"), Some(&json!({"cleared_to": 3}))).await.expect(200);
        assert_eq!(named(&b, &group).await, 2);
        b.send(&group, "own", "text").await.expect(201);
        assert_eq!(named(&b, &group).await, 0, "who sends has read");
        // Names in numbers of any length are counted in order.
        for n in 8..=12 {
            name(&a, &group, &format!("k{n}"), &json!(["bob"])).await.expect(201);
        }
        b.read(&group, 9).await.expect(200);
        assert_eq!(named(&b, &group).await, 3);
    }
}
