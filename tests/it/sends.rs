//! Sending: keys, bodies, refusals in their order.

use reqwest::Method;
use serde_json::json;

use crate::harness::client::pair;
use crate::harness::{Fleet, User, on_both};

on_both! {
    async fn a_key_has_a_scope_a_length_and_one_content(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
        let group = a.create_group("one", &["bob"]).await;
        let other = a.create_group("other", &["bob"]).await;
        let first = a.send(&group, "k", "hi").await.expect(201);
        assert_eq!(first.header("seqline-ack"), Some("accepted"));
        a.send(&group, "k", "other words").await.expect_problem(409, "idempotency_conflict");
        a.send(&other, "k", "other words").await.expect(201);
        b.send(&group, "k", "other words").await.expect(201);
        assert_eq!(b.send(&group, "k", "other words").await.expect(200).seq(), 2);
        for (key, status) in [("中".repeat(42), 201), ("中".repeat(43), 422), ("x".repeat(128), 201), ("x".repeat(129), 422), (String::new(), 422)] {
            let answer = a.send(&group, &key, "hi").await.expect(status);
            if status == 422 {
                assert_eq!(answer.json["field"], "client_id");
            }
        }
        a.send_message(&group, &json!({"body": "no key"})).await.expect_problem(422, "invalid_field");
        let path = format!("/v1/conversations/{group}/messages");
        a.request(Method::POST, &path, &[("idempotency-key", "in-header")], Some(&json!({"body": "hi"}))).await.expect(201);
        a.request(Method::POST, &path, &[("idempotency-key", "in-header")], Some(&json!({"client_id": "in-header", "body": "hi"}))).await.expect(200);
        a.request(Method::POST, &path, &[("idempotency-key", "x")], Some(&json!({"client_id": "y", "body": "hi"}))).await.expect_problem(422, "invalid_field");
        // The client's clock is no content.
        let told = |at: &str| json!({"client_id": "clock", "body": "hi", "client_sent_at": at});
        a.send_message(&group, &told("2026-01-01T00:00:00Z")).await.expect(201);
        a.send_message(&group, &told("2026-01-01T00:00:05Z")).await.expect(200);
    }

    async fn one_key_with_two_texts_at_once_is_one_message_and_one_conflict(fleet: Fleet) {
        const KEYS: usize = 50;
        let ann = User::new("ann");
        let group = fleet.client(0, &ann).create_group("one", &["bob"]).await;
        let start = std::sync::Arc::new(tokio::sync::Barrier::new(2 * KEYS));
        let mut asked = tokio::task::JoinSet::new();
        for (key, gateway) in (0..KEYS).flat_map(|key| [(key, 0), (key, 1)]) {
            let (client, group, start) = (fleet.client(gateway, &ann), group.clone(), start.clone());
            asked.spawn(async move {
                start.wait().await;
                (key, client.send(&group, &format!("k-{key}"), &format!("said at {gateway}")).await.status)
            });
        }
        let mut told = asked.join_all().await;
        told.sort_unstable();
        let wanted: Vec<(usize, u16)> = (0..KEYS).flat_map(|key| [(key, 201), (key, 409)]).collect();
        assert_eq!(told, wanted);
        assert_eq!(fleet.client(1, &ann).whole_history(&group).await.len(), KEYS);
    }

    async fn keys_come_again_in_any_order(fleet: Fleet) {
        let ann = User::new("ann");
        let group = fleet.client(0, &ann).create_group("one", &["bob"]).await;
        let (one, two) = (fleet.client(0, &ann), fleet.client(1, &ann));
        let (a, b, c) = tokio::join!(one.send(&group, "k1", "1"), two.send(&group, "k2", "2"), one.send(&group, "k3", "3"));
        let first = [a.expect(201).seq(), b.expect(201).seq(), c.expect(201).seq()];
        let (a, b, c) = tokio::join!(two.send(&group, "k1", "1"), one.send(&group, "k2", "2"), two.send(&group, "k3", "3"));
        assert_eq!([a.expect(200).seq(), b.expect(200).seq(), c.expect(200).seq()], first);
    }

    async fn bodies_come_back_exactly_as_sent(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
        let group = a.create_group("texts", &["bob"]).await;
        let mut stream = b.stream().open().await;
        stream.wait_for("hello", crate::harness::PATIENCE).await;
        let texts = [
            "\n\nx\n".to_owned(),
            "x\r\nid: 9-9\r\nevent: member.removed\r\n\r\ndata: {}".to_owned(),
            " lead and trail\u{a0} ".to_owned(),
            "\u{202e}sdrawkcab 👨‍👩‍👧 e\u{301} é".to_owned(),
            "中".repeat(4_000),
            "\"quotes\" \\ and \u{7f}\u{1} controls".to_owned(),
        ];
        for (n, text) in texts.iter().enumerate() {
            let sent = a.send(&group, &format!("k{n}"), text).await.expect(201);
            assert_eq!(sent.json["body"], **text);
            assert_eq!(stream.next_message(crate::harness::PATIENCE).await["body"], **text);
            assert_eq!(b.get(&format!("/v1/conversations/{group}/messages/{}", n + 1)).await.expect(200).json["body"], **text);
        }
        let history = b.whole_history(&group).await;
        assert_eq!(history.iter().map(|m| m["body"].as_str().unwrap()).collect::<Vec<_>>(), texts);
        let events = b.get("/v1/events/poll?limit=200").await.expect(200);
        assert!(events.json["events"].is_array());
    }

    async fn what_cannot_be_sent_is_named_and_takes_no_number(fleet: Fleet) {
        let (ann, eve) = (User::new("ann"), User::new("eve"));
        let a = fleet.client(0, &ann);
        let group = a.create_group("texts", &["bob"]).await;
        let cases = [
            (json!({"client_id": "k", "body": ""}), 422, "invalid_field", "body"),
            (json!({"client_id": "k", "body": "\u{3000}\u{3000}\u{3000}"}), 422, "invalid_field", "body"),
            (json!({"client_id": "k", "body": "\u{a0}\u{a0}"}), 422, "invalid_field", "body"),
            (json!({"client_id": "k", "body": "\u{200b}"}), 422, "invalid_field", "body"),
            (json!({"client_id": "k", "body": "中".repeat(4_001)}), 422, "invalid_field", "body"),
            (json!({"client_id": "k", "body": "a\u{0}b"}), 422, "invalid_field", "body"),
            (json!({"client_id": "k\u{0}", "body": "a"}), 422, "invalid_field", "client_id"),
            (json!({"client_id": "k", "body": 5}), 422, "invalid_field", "body"),
            (json!({"client_id": "k"}), 422, "invalid_field", "body"),
            (json!({"client_id": "k", "body": "x", "kind": "system"}), 422, "invalid_field", "kind"),
            (json!({"client_id": "k", "body": "x", "colour": "red"}), 422, "unknown_field", "colour"),
            (json!({"client_id": "k", "body": "x", "client_sent_at": "yesterday"}), 422, "invalid_field", "client_sent_at"),
            (json!({"client_id": "k", "body": "x", "peer": "bob"}), 422, "invalid_field", "peer"),
        ];
        for (body, status, code, field) in cases {
            let answer = a.send_message(&group, &body).await.expect_problem(status, code);
            assert_eq!(answer.json["field"], field, "{body}");
            fleet.client(1, &eve).send_message(&group, &body).await.expect_problem(404, "not_found");
        }
        let path = format!("/v1/conversations/{group}/messages");
        for raw in [&br#"{"client_id":"k","body":"\ud83c"}"#[..], b"{\"client_id\":\"k\",\"body\":\"\xff\"}", b"{", b"", b"[]", b"{\"client_id\":\"k\",\"body\":\"x\"} x"] {
            let answer = a.try_request(Method::POST, &path, &[], Some(raw.to_vec())).await.unwrap();
            answer.expect_problem(400, "malformed_json");
        }
        a.request(Method::POST, &format!("{path}?ack=perhaps"), &[], Some(&json!({"client_id": "k", "body": "x"}))).await.expect_problem(400, "invalid_parameter");
        let huge = json!({"client_id": "k", "body": "x".repeat(70_000)});
        a.send_message(&group, &huge).await.expect_problem(413, "too_large");
        let answer = a.try_request(Method::POST, &path, &[("content-type", "text/plain")], Some(b"{}".to_vec())).await.unwrap();
        answer.expect_problem(415, "unsupported_media_type");
        assert_eq!(a.send(&group, "k", "at last").await.expect(201).seq(), 1, "nothing of it took a number");
        // A known key is looked up before anything is said about the content.
        a.send_message(&group, &json!({"client_id": "k", "body": ""})).await.expect_problem(409, "idempotency_conflict");
    }

    async fn a_conversation_that_was_never_made_needs_a_peer(fleet: Fleet) {
        let (ann, bob, eve) = (User::new("ann"), User::new("bob"), User::new("eve"));
        let a = fleet.client(0, &ann);
        let id = pair("ann", "bob");
        a.send(&id, "k", "hi").await.expect_problem(404, "not_found");
        a.conversation(&id).await.expect_problem(404, "not_found");
        a.send_message(&id, &json!({"client_id": "k", "body": "hi", "peer": "ann"})).await.expect_problem(422, "invalid_field");
        a.send_message(&pair("ann", "cid"), &json!({"client_id": "k", "body": "hi", "peer": "bob"})).await.expect_problem(422, "invalid_field");
        let sent = a.send_to_peer("bob", "k", "hi").await.expect(201);
        assert_eq!((sent.seq(), sent.json["conversation_id"].as_str()), (1, Some(id.as_str())));
        fleet.client(1, &eve).conversation(&id).await.expect_problem(404, "not_found");
        let seen = fleet.client(1, &bob).conversation(&id).await.expect(200);
        assert_eq!((seen.json["peer"].as_str(), seen.json["me"]["unread"].as_u64()), (Some("ann"), Some(1)));
        assert_eq!(fleet.client(1, &bob).send(&id, "k", "ho").await.expect(201).seq(), 2, "now it is there");
        assert_eq!(a.post("/v1/conversations", &json!({"kind": "single", "peer": "bob"})).await.expect(200).json["id"], *id);
        for (x, y) in [("张三", "张三x"), ("é", "z"), ("ab", "c"), ("a", "bc"), ("9a", "1d")] {
            let sent = fleet.client(0, &User::new(x)).send_to_peer(y, "k", x).await.expect(201);
            assert_eq!(sent.seq(), 1, "{x} and {y} have one of their own");
            assert_eq!(fleet.client(1, &User::new(y)).history(&pair(x, y), "").await.expect(200).items().len(), 1);
        }
    }

    async fn what_became_of_a_send_can_be_asked_by_its_key(fleet: Fleet) {
        let (ann, bob, eve) = (User::new("ann"), User::new("bob"), User::new("eve"));
        let a = fleet.client(0, &ann);
        let group = a.create_group("asked", &["bob"]).await;
        let key = uuid::Uuid::now_v7().to_string();
        let sent = a.request(Method::POST, &format!("/v1/conversations/{group}/messages?ack=archived"), &[], Some(&json!({"client_id": key, "body": "hi"}))).await.expect(201);
        assert_eq!(sent.header("seqline-ack"), Some("archived"));
        let path = format!("/v1/conversations/{group}/messages/by-client-id");
        let found = fleet.client(1, &ann).get(&format!("{path}/{key}")).await.expect(200);
        assert_eq!((found.json["state"].as_str(), &found.json["message"]["id"]), (Some("archived"), &sent.json["id"]));
        assert_eq!(fleet.client(1, &bob).get(&format!("{path}/{key}")).await.expect(200).json, json!({"state": "unknown"}));
        fleet.client(1, &eve).get(&format!("{path}/{key}")).await.expect_problem(404, "not_found");
    }

    async fn one_sender_back_to_back_keeps_his_order(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let group = fleet.client(0, &ann).create_group("order", &["bob"]).await;
        let mut stream = fleet.client(1, &bob).stream().open().await;
        stream.wait_for("hello", crate::harness::PATIENCE).await;
        let words: Vec<String> = (0..40).map(|n| format!("w{n}")).collect();
        for (n, word) in words.iter().enumerate() {
            let message = json!({"client_id": word, "body": word, "client_sent_at": "2026-01-01T00:00:00Z"});
            fleet.client(n, &ann).send_message(&group, &message).await.expect(201);
        }
        let history = fleet.client(1, &bob).whole_history(&group).await;
        assert_eq!(history.iter().map(|m| m["body"].as_str().unwrap()).collect::<Vec<_>>(), words);
        for word in &words {
            assert_eq!(stream.next_message(crate::harness::PATIENCE).await["body"], **word);
        }
    }
}
