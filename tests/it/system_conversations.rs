//! Conversations of the host application: it posts, members read; and posts in the name of a bot elsewhere.

use serde_json::{Value, json};

use crate::harness::{Client, Fleet, PATIENCE, User, eventually, on_both};

async fn make(client: &Client, key: &str, members: &[&str]) -> crate::harness::Answer {
    client.post("/v1/conversations", &json!({"kind": "system", "key": key, "members": members, "title": "Order 123"})).await
}

async fn post(client: &Client, id: &str, key: &str, body: &str) -> crate::harness::Answer {
    client.send(id, key, body).await
}

fn seqs(messages: &[Value]) -> Vec<u64> {
    messages.iter().map(|m| m["seq"].as_u64().unwrap()).collect()
}

on_both! {
    async fn the_service_makes_it_once_and_alone_posts(fleet: Fleet) {
        let (host, ann, bob, eve) = (User::service(), User::new("ann"), User::new("bob"), User::new("eve"));
        let (s, s2, a, b, e) =
            (fleet.client(0, &host), fleet.client(1, &host), fleet.client(1, &ann), fleet.client(0, &bob), fleet.client(0, &eve));
        make(&a, "order:123", &["ann"]).await.expect_problem(403, "forbidden");
        let mut stream = a.stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        let (one, two) = tokio::join!(make(&s, "order:123", &["ann"]), make(&s2, "order:123", &["ann"]));
        let mut statuses = [one.status, two.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 201], "{} {}", one.text, two.text);
        let id = "system:order:123";
        assert_eq!((one.json["id"].as_str(), one.json["member_count"].as_u64(), &one.json["me"]), (Some(id), Some(1), &Value::Null));
        assert_eq!((one.json["title"].as_str(), one.json["head_seq"].as_u64()), (Some("Order 123"), Some(0)));
        let created = stream.wait_for("conversation.created", PATIENCE).await;
        assert_eq!(created.data["conversation_id"], id);

        let sent = post(&s, id, "p1", "It was shipped").await.expect(201);
        assert_eq!((sent.seq(), sent.json["sender"].as_str(), sent.json["kind"].as_str()), (1, Some("host-application"), Some("text")));
        let replay = post(&s2, id, "p1", "It was shipped").await.expect(200);
        assert_eq!((replay.seq(), replay.header("idempotency-replayed")), (1, Some("true")));
        post(&s2, id, "p1", "other words").await.expect_problem(409, "idempotency_conflict");
        let event = stream.wait_for("message.created", PATIENCE).await;
        assert_eq!(event.data["data"]["message"]["body"], "It was shipped");
        eventually("the list shows it, unread", PATIENCE, async || {
            let list = a.conversations().await;
            list.items().iter().any(|c| c["id"] == id && c["me"]["unread"] == 1 && c["last_message"]["seq"] == 1)
        })
        .await;

        // Members read and cannot write; strangers see nothing of it.
        post(&a, id, "k", "thanks").await.expect_problem(403, "read_only");
        post(&e, id, "k", "thanks").await.expect_problem(404, "not_found");
        a.send_message(id, &json!({"client_id": "k", "body": "x", "sender": "host-application"})).await.expect_problem(403, "read_only");
        a.post(&format!("/v1/conversations/{id}/typing"), &json!({"typing": true})).await.expect_problem(403, "read_only");
        a.put(&format!("/v1/conversations/{id}/messages/1/reactions/%F0%9F%91%8D"), None).await.expect_problem(403, "read_only");
        a.remove(id, "ann").await.expect_problem(403, "forbidden");
        a.invite(id, "bob").await.expect_problem(403, "forbidden");
        a.patch(&format!("/v1/conversations/{id}"), &json!({"title": "mine"})).await.expect_problem(403, "forbidden");
        assert_eq!(a.read(id, 1).await.expect(200).json["unread"], 0);

        // Named again with others, the others join; nobody goes, the title stays.
        let again = s.post("/v1/conversations", &json!({"kind": "system", "key": "order:123", "members": ["bob"], "title": "Else"})).await.expect(200);
        assert_eq!((again.json["member_count"].as_u64(), again.json["title"].as_str()), (Some(2), Some("Order 123")));
        assert_eq!(b.history(id, "").await.expect(200).items().len(), 2, "what was said, and the joining");
        s.invite(id, "cid").await.expect(201);
        s2.invite(id, "cid").await.expect(200);
        s.patch(&format!("/v1/conversations/{id}"), &json!({"title": "Order 123, shipped"})).await.expect(200);
        s.remove(id, "bob").await.expect(204);
        b.history(id, "").await.expect_problem(404, "not_found");

        // The service reads its own conversations, at any gateway, and no others.
        let seen = s2.whole_history(id).await;
        assert_eq!(seqs(&seen), [1, 2, 3, 4, 5]);
        assert_eq!(s2.get(&format!("/v1/conversations/{id}/members")).await.expect(200).items().len(), 2);
        assert_eq!(s2.conversation(id).await.expect(200).json["last_message"]["seq"], 5);
        let reply = s.send_message(id, &json!({"client_id": "p2", "body": "again", "reply_to": 1, "sender": "bot:orders"})).await.expect(201);
        assert_eq!((reply.json["sender"].as_str(), reply.json["reply_to"]["preview"].as_str()), (Some("bot:orders"), Some("It was shipped")));
        let edited = s2.patch(&format!("/v1/conversations/{id}/messages/6"), &json!({"body": "Once more"})).await.expect(200);
        assert_eq!(edited.json["body"], "Once more", "in whosever name it was posted");
        let group = a.create_group("private", &[]).await;
        s.conversation(&group).await.expect_problem(404, "not_found");
        s.history(&group, "").await.expect_problem(404, "not_found");
        s.conversation("system:never").await.expect_problem(404, "not_found");
        post(&s, "system:never", "k", "x").await.expect_problem(404, "not_found");
    }

    async fn the_service_posts_in_the_name_of_a_member(fleet: Fleet) {
        let (host, ann, bot) = (User::service(), User::new("ann"), User::new("bot"));
        let (s, s2, a, b) = (fleet.client(0, &host), fleet.client(1, &host), fleet.client(0, &ann), fleet.client(1, &bot));
        let group = a.create_group("with a bot", &["bot"]).await;
        let as_bot = |key: &str, body: &str| json!({"client_id": key, "body": body, "sender": "bot"});
        let sent = s.send_message(&group, &as_bot("k1", "beep")).await.expect(201);
        assert_eq!((sent.seq(), sent.json["sender"].as_str()), (1, Some("bot")));
        s2.send_message(&group, &as_bot("k1", "beep")).await.expect(200);
        b.send(&group, "k1", "beep").await.expect(200);
        b.send(&group, "k1", "boop").await.expect_problem(409, "idempotency_conflict");
        let state = s2.get(&format!("/v1/conversations/{group}/messages/by-client-id/k1?sender=bot")).await.expect(200);
        assert_eq!(state.json["message"]["seq"], 1);
        a.get(&format!("/v1/conversations/{group}/messages/by-client-id/k1?sender=bot")).await.expect_problem(400, "invalid_parameter");
        assert_eq!(b.conversation(&group).await.json["me"]["read_seq"], 1, "one's own is read, whoever sent it");
        s.send_message(&group, &json!({"client_id": "k2", "body": "x", "sender": "nobody"})).await.expect_problem(404, "not_found");
        s.send(&group, "k2", "in its own name it is no member").await.expect_problem(404, "not_found");
        let bad = s.send_message(&group, &json!({"client_id": "k2", "body": "x", "sender": "a/b"})).await.expect_problem(422, "invalid_field");
        assert_eq!(bad.json["field"], "sender");
        a.send_message(&group, &as_bot("k2", "not me")).await.expect_problem(403, "forbidden");
        // A pair's first message, by the bot.
        let pair = crate::harness::client::pair("ann", "bot");
        let hello = s.send_message(&pair, &json!({"client_id": "k1", "body": "hello", "sender": "bot", "peer": "ann"})).await.expect(201);
        assert_eq!(hello.seq(), 1);
        eventually("the peer has it", PATIENCE, async || a.history(&pair, "").await.status == 200).await;
    }
}
