//! Messages that share something of the host application: nothing is copied, what the host tells shows everywhere.

use serde_json::{Value, json};

use crate::faults_postgres::{family, signal};
use crate::harness::{Answer, Client, Fleet, PATIENCE, PrivateRedis, RedisKind, TestDatabase, User, eventually_some, on_both};

/// What a message shows of something that nobody told about.
fn unknown() -> Value {
    json!({"type": "article", "id": "a-1", "title": null, "url": null, "image_url": null, "deleted": false})
}

fn told(title: &str) -> Value {
    json!({"type": "article", "id": "a-1", "title": title, "url": "https://shop.example/a-1", "image_url": "https://cdn.example/a-1.png",
        "deleted": false})
}

fn gone() -> Value {
    json!({"type": "article", "id": "a-1", "title": null, "url": null, "image_url": null, "deleted": true})
}

async fn tell(service: &Client, title: &str) -> Answer {
    let body = json!({"title": title, "url": "https://shop.example/a-1", "image_url": "https://cdn.example/a-1.png"});
    service.put("/v1/shared/article/a-1", Some(&body)).await
}

async fn share(client: &Client, conversation: &str, key: &str) -> Answer {
    client.send_message(conversation, &json!({"client_id": key, "kind": "share", "share": {"type": "article", "id": "a-1"}})).await
}

/// Waits until every way to see the first message shows this.
async fn shown(client: &Client, group: &str, expected: &Value) {
    let message = format!("/v1/conversations/{group}/messages/1");
    eventually_some(&format!("{expected} is shown"), PATIENCE, async || {
        let one = client.get(&message).await.expect(200).json["share"].clone();
        if one == *expected { Ok(()) } else { Err(one) }
    })
    .await;
    assert_eq!(client.history(group, "").await.expect(200).items()[0]["share"], *expected);
    assert_eq!(client.history(group, "since_rev=0").await.expect(200).items()[0]["share"], *expected);
    let item = eventually_some("the conversation is in the list", PATIENCE, async || {
        let list = client.conversations().await.expect(200);
        list.items().iter().find(|item| item["id"] == *group).cloned().ok_or(list.text)
    })
    .await;
    assert_eq!(item["last_message"]["share"], *expected, "{item}");
    assert_eq!(client.conversation(group).await.json["last_message"]["share"], *expected);
}

on_both! {
    async fn what_is_shared_shows_as_the_host_last_told(fleet: Fleet) {
        let (ann, bob, service) = (User::new("ann"), User::new("bob"), User::service());
        let (a, b, s) = (fleet.client(0, &ann), fleet.client(1, &bob), fleet.client(1, &service));
        let group = a.create_group("g", &["bob"]).await;
        let mut stream = b.stream().open().await;
        stream.wait_for("hello", PATIENCE).await;

        let sent = share(&a, &group, "k").await.expect(201);
        assert_eq!((&sent.json["kind"], &sent.json["body"], &sent.json["share"]), (&json!("share"), &json!(""), &unknown()));
        assert_eq!(share(&b, &group, "mine").await.expect(201).seq(), 2);
        b.delete(&format!("/v1/conversations/{group}/messages/2")).await.expect(200);
        assert_eq!(stream.next_message(PATIENCE).await["share"], unknown());
        assert_eq!(share(&a, &group, "k").await.expect(200).json["id"], sent.json["id"]);
        let other = json!({"client_id": "k", "kind": "share", "share": {"type": "article", "id": "a-2"}});
        a.send_message(&group, &other).await.expect_problem(409, "idempotency_conflict");

        let only = a.create_group("only", &["bob"]).await;
        share(&a, &only, "first").await.expect(201);
        for title in ["Red shoes", "Blue shoes"] {
            let expected = told(title);
            assert_eq!(tell(&s, &format!(" {title} ")).await.expect(200).json, expected);
            for client in [&a, &b] {
                shown(client, &only, &expected).await;
            }
        }
        let by_key = a.get(&format!("/v1/conversations/{only}/messages/by-client-id/first")).await.expect(200);
        assert_eq!(by_key.json["message"]["share"], told("Blue shoes"));
        // An answer after long is built anew as well, and so is an event.
        assert_eq!(share(&a, &only, "first").await.expect(200).json["share"], told("Blue shoes"));
        let mut live = a.stream().open().await;
        live.wait_for("hello", PATIENCE).await;
        share(&b, &only, "live").await.expect(201);
        assert_eq!(live.next_message(PATIENCE).await["share"], told("Blue shoes"));
        b.delete(&format!("/v1/conversations/{only}/messages/2")).await.expect(200);

        for _ in 0..2 {
            s.delete("/v1/shared/article/a-1").await.expect(204);
        }
        for client in [&a, &b] {
            let first = format!("/v1/conversations/{only}/messages/1");
            eventually_some("it is gone", PATIENCE, async || {
                let one = client.get(&first).await.expect(200).json["share"].clone();
                if one == gone() { Ok(()) } else { Err(one) }
            })
            .await;
        }
        let polled = b.get("/v1/events/poll?limit=200").await.expect(200);
        assert!(polled.json["events"].is_array());
        tell(&s, "Back again").await.expect(200);
        let first = format!("/v1/conversations/{only}/messages/1");
        eventually_some("it is back", PATIENCE, async || {
            let one = b.get(&first).await.expect(200).json["share"].clone();
            if one == told("Back again") { Ok(()) } else { Err(one) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_shared_or_told_is_named() {
    let fleet = Fleet::start(RedisKind::Single, 1, 0).await;
    let (ann, service) = (User::new("ann"), User::service());
    let (a, s) = (fleet.client(0, &ann), fleet.client(0, &service));
    let group = a.create_group("g", &["bob"]).await;
    let reference = json!({"type": "article", "id": "a-1"});
    for (message, code, field) in [
        (json!({"client_id": "k", "kind": "share"}), "invalid_field", "share"),
        (json!({"client_id": "k", "kind": "share", "share": {"type": "a/b", "id": "1"}}), "invalid_field", "share.type"),
        (json!({"client_id": "k", "kind": "share", "share": {"type": "a", "id": ".."}}), "invalid_field", "share.id"),
        (json!({"client_id": "k", "kind": "share", "share": {"type": "a"}}), "invalid_field", "share"),
        (json!({"client_id": "k", "kind": "share", "share": {"type": "a", "id": "1", "title": "t"}}), "unknown_field", "share.title"),
        (json!({"client_id": "k", "kind": "share", "share": reference, "body": "x".repeat(4_001)}), "invalid_field", "body"),
        (json!({"client_id": "k", "body": "hi", "share": reference}), "invalid_field", "share"),
    ] {
        let refused = a.send_message(&group, &message).await.expect_problem(422, code);
        assert!(refused.json["field"].as_str().unwrap().starts_with(field), "{message}: {}", refused.text);
    }
    let worded = json!({"client_id": "k", "kind": "share", "share": reference, "body": "look at this"});
    assert_eq!(a.send_message(&group, &worded).await.expect(201).json["body"], "look at this");

    tell(&a, "Red shoes").await.expect_problem(403, "forbidden");
    a.delete("/v1/shared/article/a-1").await.expect_problem(403, "forbidden");
    for (body, code, field) in [
        (json!({"url": "https://a.example"}), "invalid_field", "title"),
        (json!({"title": " ", "url": "https://a.example"}), "invalid_field", "title"),
        (json!({"title": "t", "url": "javascript:alert(1)"}), "invalid_field", "url"),
        (json!({"title": "t", "url": "https://a.example", "image_url": "x"}), "invalid_field", "image_url"),
        (json!({"title": "t", "url": "https://a.example", "colour": "x"}), "unknown_field", "colour"),
    ] {
        let refused = s.put("/v1/shared/article/a-1", Some(&body)).await.expect_problem(422, code);
        assert_eq!(refused.json["field"], field, "{body}");
    }
    s.put("/v1/shared/a%20b/1", Some(&json!({"title": "t", "url": "https://a.example"}))).await.expect_problem(422, "invalid_field");
    let bare = s.put("/v1/shared/article/a-1", Some(&json!({"title": "t", "url": "https://a.example"}))).await.expect(200);
    assert_eq!(bare.json["image_url"], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_are_sent_and_shown_while_postgres_is_away() {
    let redis = PrivateRedis::start(RedisKind::Single).await;
    let mut fleet = Fleet::start_over(redis, TestDatabase::on_own_server().await, 2, 1, &[]).await;
    let (ann, bob, service) = (User::new("ann"), User::new("bob"), User::service());
    let (a, b, s) = (fleet.client(0, &ann), fleet.client(1, &bob), fleet.client(0, &service));
    let group = a.create_group("g", &["bob"]).await;
    tell(&s, "Red shoes").await.expect(200);
    share(&a, &group, "k1").await.expect(201);
    shown(&b, &group, &told("Red shoes")).await;
    let mut stream = b.stream().open().await;
    stream.wait_for("hello", PATIENCE).await;
    let pids = family(fleet.database_mut().server().process().pid().unwrap());
    signal("STOP", &pids);
    // Somebody who was never told of it sees the bare reference, somebody who was still sees it; nobody is refused.
    let other = json!({"client_id": "k2", "kind": "share", "share": {"type": "article", "id": "never-seen"}});
    let sent = a.send_message(&group, &other).await.expect(201);
    assert_eq!((&sent.json["share"]["title"], &sent.json["share"]["deleted"]), (&Value::Null, &json!(false)));
    assert_eq!(stream.next_message(PATIENCE).await["share"]["id"], "never-seen");
    assert_eq!(b.history(&group, "").await.expect(200).items()[0]["share"], told("Red shoes"));
    tell(&s, "Blue shoes").await.expect_problem(503, "unavailable");
    signal("CONT", &pids);
    shown_again(&b, &group, &s).await;
}

async fn shown_again(client: &Client, group: &str, service: &Client) {
    eventually_some("the host can tell again", PATIENCE, async || {
        let answer = tell(service, "Blue shoes").await;
        if answer.status == 200 { Ok(()) } else { Err(answer.text) }
    })
    .await;
    let first = format!("/v1/conversations/{group}/messages/1");
    eventually_some("the change shows", PATIENCE, async || {
        let one = client.get(&first).await.expect(200).json["share"].clone();
        if one == told("Blue shoes") { Ok(()) } else { Err(one) }
    })
    .await;
}
