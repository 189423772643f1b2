//! The pre-send hook: the host application may refuse what users write, is asked once for each new message, and costs little while it is
//! away.

use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::json;

use crate::harness::client::pair;
use crate::harness::host_application::SECRETS;
use crate::harness::{Call, Fleet, HostApplication, PATIENCE, RedisKind, Reply, User, on_both};

/// Refuses what has a link in it.
fn no_links(call: &Call) -> Reply {
    let words = call.json["message"]["body"].as_str().unwrap();
    if words.contains("http") {
        Reply::Json(json!({"allow": false, "reason": "No links,\r\n please\u{7}."}))
    } else {
        Reply::Json(json!({"allow": true}))
    }
}

on_both! {
    async fn the_host_decides_what_is_sent_and_is_not_asked_about_what_was(kind: RedisKind) {
        let host = HostApplication::start(no_links).await;
        let url = host.url();
        let flags = ["--pre-send-hook-url", &url, "--webhook-secrets", SECRETS, "--pre-send-hook-deadline-ms", "4000"];
        let fleet = Fleet::start_with(kind, 2, 1, &flags).await;
        let (ann, bob, eve) = (User::new("ann"), User::new("bob"), User::new("eve"));
        let group = fleet.client(0, &ann).create_group("Lake", &["bob"]).await;
        assert_eq!(host.calls().len(), 0, "making a group is no message");
        fleet.client(0, &ann).send(&group, "k1", "hello").await.expect(201);
        for gateway in [0, 1] {
            let refused = fleet.client(gateway, &bob).send(&group, "k2", "see http://spam.example").await.expect_problem(403, "forbidden");
            assert_eq!(refused.json["detail"], "No links,   please.");
        }
        assert_eq!(fleet.client(1, &bob).send(&group, "k3", "fine").await.expect(201).seq(), 2, "no number was used up");
        let asked = host.calls();
        assert_eq!(asked.len(), 4);
        assert_eq!(asked[0].json, json!({
            "type": "message.send", "conversation_id": group, "kind": "group", "sender": "ann",
            "message": {
                "client_id": "k1", "kind": "text", "body": "hello", "media": [], "reply_to": null, "share": null, "mentions": [],
                "client_sent_at": null,
            },
        }));
        let key = base64::engine::general_purpose::STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed = seqline::hooks::signature::signatures(&[key], &asked[0].id, asked[0].timestamp.parse().unwrap(), asked[0].text.as_bytes());
        assert!(asked[0].signature.ends_with(&signed));

        // What stands, stands; and it is nobody's business what strangers try, what is no message, or what the host itself posts.
        host.behave(|_| Reply::Json(json!({"allow": false})));
        let replayed = fleet.client(1, &ann).send(&group, "k1", "hello").await.expect(200);
        assert_eq!(replayed.header("idempotency-replayed"), Some("true"));
        fleet.client(0, &ann).send(&group, "k1", "something else").await.expect_problem(409, "idempotency_conflict");
        fleet.client(0, &eve).send(&group, "k1", "hello").await.expect_problem(404, "not_found");
        fleet.client(0, &ann).send(&group, "k4", " ").await.expect_problem(422, "invalid_field");
        assert_eq!(host.calls().len(), 4);
        let silent = fleet.client(0, &ann).send(&group, "k5", "hm").await.expect_problem(403, "forbidden");
        assert_eq!(silent.json["detail"], "The application does not allow this message.");
    }

    async fn the_host_decides_about_edits_too(kind: RedisKind) {
        let host = HostApplication::start(no_links).await;
        let url = host.url();
        let flags = ["--pre-send-hook-url", &url, "--webhook-secrets", SECRETS, "--pre-send-hook-deadline-ms", "4000"];
        let fleet = Fleet::start_with(kind, 2, 1, &flags).await;
        let (ann, bob) = (fleet.client(0, &User::new("ann")), fleet.client(1, &User::new("bob")));
        let group = ann.create_group("Lake", &["bob"]).await;
        let sent = ann.send(&group, "k1", "helo").await.expect(201);
        let message = format!("/v1/conversations/{group}/messages/1");
        let edit = json!({"body": "see http://spam.example"});
        ann.patch(&message, &edit).await.expect_problem(403, "forbidden");
        assert_eq!(bob.get(&message).await.expect(200).json["body"], "helo");
        ann.patch(&message, &json!({"body": "hello"})).await.expect(200);
        let asked = host.calls();
        assert_eq!(asked.len(), 3);
        assert_eq!(asked[1].json, json!({
            "type": "message.edit", "conversation_id": group, "kind": "group", "sender": "ann",
            "message": {"seq": 1, "id": sent.json["id"], "kind": "text", "body": "see http://spam.example", "media": []},
        }));
        // What is no edit, or nobody's right, is not the host's to judge.
        ann.patch(&message, &json!({"body": "hello"})).await.expect(200);
        bob.patch(&message, &edit).await.expect_problem(403, "forbidden");
        ann.patch(&message, &json!({"body": ""})).await.expect_problem(422, "invalid_field");
        bob.put(&format!("{message}/reactions/%F0%9F%91%8D"), None).await.expect(200);
        ann.delete(&message).await.expect(200);
        assert_eq!(host.calls().len(), 3);
    }

    async fn a_refused_first_message_makes_no_conversation(kind: RedisKind) {
        let host = HostApplication::start(no_links).await;
        let url = host.url();
        let flags = ["--pre-send-hook-url", &url, "--webhook-secrets", SECRETS, "--pre-send-hook-deadline-ms", "4000"];
        let fleet = Fleet::start_with(kind, 2, 1, &flags).await;
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        fleet.client(0, &ann).send_to_peer("bob", "k1", "http://spam.example").await.expect_problem(403, "forbidden");
        fleet.client(1, &bob).conversation(&pair("ann", "bob")).await.expect_problem(404, "not_found");
        assert_eq!(fleet.client(1, &bob).send_to_peer("ann", "k1", "hello").await.expect(201).seq(), 1);
        assert_eq!(fleet.client(0, &ann).whole_history(&pair("ann", "bob")).await.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_host_is_away_messages_go_through_or_not_as_the_setting_says() {
    let host = HostApplication::start(|_| Reply::Json(json!({"allow": true}))).await;
    let url = host.url();
    let flags = ["--pre-send-hook-url", &url, "--webhook-secrets", SECRETS, "--pre-send-hook-deadline-ms", "300"];
    let mut fleet = Fleet::start_with(RedisKind::Single, 1, 1, &flags).await;
    let strict = fleet.add_gateway(&["--pre-send-hook-away", "refuse"]).await;
    let ann = User::new("ann");
    let (lenient, strict) = (fleet.client(0, &ann), fleet.client(strict, &ann));
    let group = lenient.create_group("Lake", &["bob"]).await;
    let mut sent = 0;
    let mut away = async |what: &str| {
        sent += 1;
        let begun = Instant::now();
        assert_eq!(lenient.send(&group, &format!("k{sent}"), what).await.expect(201).seq(), sent + 1, "{what}");
        let refused = strict.send(&group, &format!("strict {sent}"), what).await.expect_problem(503, "unavailable");
        assert!(refused.header("retry-after").is_some());
        assert!(begun.elapsed() < Duration::from_secs(5), "{what}: {:?}", begun.elapsed());
        // Nor does a known key depend on the host.
        strict.send(&group, &format!("k{sent}"), what).await.expect(200);
    };
    // One that hangs up and then answers is not away.
    let mut first = true;
    host.behave(move |_| if std::mem::take(&mut first) { Reply::HangUp } else { Reply::Json(json!({"allow": true})) });
    strict.send(&group, "once more", "hello").await.expect(201);
    host.behave(|_| Reply::Silence);
    away("it hangs").await;
    host.behave(|_| Reply::Status(500));
    away("it fails").await;
    host.behave(|_| Reply::Status(302));
    away("it points elsewhere").await;
    host.behave(|_| Reply::Json(json!({"allow": "perhaps"})));
    away("it talks nonsense").await;
    // After five in a row nobody asks for a moment, and then the hook is found to be back.
    let mut asked = 0;
    for _ in 0..20 {
        away("it rests").await;
        asked = host.calls().len();
    }
    assert!(asked < 40, "{asked} of about 50 questions were asked");
    host.behave(|_| Reply::Json(json!({"allow": true})));
    crate::harness::eventually("the hook is asked again", PATIENCE, async || {
        strict.send(&group, "back", "hello again").await.status == 201
    })
    .await;
    assert!(host.calls().iter().any(|call| call.status == 200 && call.text.contains("hello again")));
    host.stop();
    lenient.send(&group, "gone", "it is gone").await.expect(201);
    strict.send(&group, "strict gone", "it is gone").await.expect_problem(503, "unavailable");
}
