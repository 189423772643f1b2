//! Web Push, what browsers ask for: who may register what, whose it is, and when it ends.

use std::process::Command;

use futures_util::future::join_all;
use reqwest::Method;
use seqline::settings::Settings;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::harness::push_service::{Browser, FLAGS, PushService};
use crate::harness::{Fleet, PATIENCE, RedisKind, TestDatabase, User, eventually, eventually_some, on_both};

const PATH: &str = "/v1/push/subscriptions";

pub async fn count(database: &TestDatabase, of: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(format!("SELECT count(*) FROM {of}"))).fetch_one(&mut database.connect().await).await.unwrap()
}

/// Waits until everything that was said is archived and every browser was woken that had to be.
pub async fn nothing_waits(database: &TestDatabase, lines: i64) {
    eventually("nothing waits", PATIENCE, async || {
        count(database, "push_lines WHERE head_seq <= done_seq").await == lines
            && count(database, "push_lines").await == lines
            && count(database, "push_queue WHERE seq > sent_seq").await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_key_there_are_no_pushes_and_nothing_else_is_missing() {
    let fleet = Fleet::start(RedisKind::Single, 1, 1).await;
    let ann = fleet.client(0, &User::new("ann"));
    let service = PushService::willing().await;
    for (method, path, body) in [
        (Method::GET, "/v1/push/key", None),
        (Method::PUT, PATH, Some(Browser::new(&service, "a").subscription(true))),
        (Method::DELETE, PATH, Some(json!({"endpoint": "https://push.app/x"}))),
    ] {
        let answer = ann.request(method, path, &[], body.as_ref()).await.expect_problem(404, "not_found");
        assert!(answer.json["detail"].as_str().unwrap().contains("switched off"), "{}", answer.text);
    }
    let ready = reqwest::get(format!("{}/readyz", fleet.admin_url(0))).await.unwrap();
    assert_eq!(ready.status(), 200);
    let group = ann.create_group("Lake", &["bob"]).await;
    ann.send(&group, "k", "words").await.expect(201);
    eventually("it is archived", PATIENCE, async || count(fleet.database(), "messages WHERE body = 'words'").await == 1).await;
    assert_eq!(count(fleet.database(), "push_lines").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_browsers_may_register() {
    let service = PushService::willing().await;
    let fleet = Fleet::start_with(RedisKind::Single, 2, 0, &FLAGS).await;
    let ann = fleet.client(0, &User::with_claims("ann", &json!({"device": "phone"})));
    let key = ann.get("/v1/push/key").await.expect(200);
    assert_eq!(key.json, json!({"key": "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8"}));
    let browser = Browser::new(&service, "a");
    let made = browser.register(&ann, false).await.expect(201);
    assert_eq!(made.json["device"], "phone");
    assert_eq!((&made.json["endpoint"], &made.json["show_preview"]), (&json!(browser.endpoint()), &json!(false)));
    let again = browser.register(&fleet.client(1, ann.user()), true).await.expect(200);
    assert_eq!((&again.json["created_at"], &again.json["show_preview"]), (&made.json["created_at"], &json!(true)));
    assert_eq!(count(fleet.database(), "push_subscriptions WHERE show_preview").await, 1);

    let with = |path: &[&str], value: Value| {
        let mut body = browser.subscription(true);
        let mut place = &mut body;
        for part in path {
            place = &mut place[*part];
        }
        *place = value;
        body
    };
    for endpoint in [
        "http://push.app/x",
        "https://10.0.0.1/x",
        "https://[fd00::1]/x",
        "https://169.254.169.254/latest/meta-data",
        "https://192.168.1.1/",
        "https://user:pass@push.app/",
        "https://push.app:8443/",
        "https://redis/",
        "https://db.internal/",
        "ftp://push.app",
        "",
        "x",
    ] {
        let refused = ann.put(PATH, Some(&with(&["endpoint"], endpoint.into()))).await.expect_problem(422, "invalid_field");
        assert_eq!(refused.json["field"], "endpoint", "{endpoint}");
    }
    let point = browser.subscription(true)["keys"]["p256dh"].as_str().unwrap().to_owned();
    let other = if point.ends_with('A') { "Q" } else { "A" };
    for (path, value, field) in [
        (&["keys", "p256dh"][..], json!(format!("{}{other}", &point[..point.len() - 1])), "keys.p256dh"),
        (&["keys", "p256dh"], json!(&point[..40]), "keys.p256dh"),
        (&["keys", "auth"], json!("AAAA"), "keys.auth"),
    ] {
        let refused = ann.put(PATH, Some(&with(path, value))).await.expect_problem(422, "invalid_field");
        assert_eq!(refused.json["field"], field);
    }
    ann.put(PATH, Some(&with(&["expirationTime"], Value::Null))).await.expect_problem(422, "unknown_field");
    ann.put(PATH, Some(&with(&["keys", "more"], Value::Null))).await.expect_problem(422, "unknown_field");
    ann.put(PATH, Some(&json!({"endpoint": "https://push.app/x"}))).await.expect_problem(422, "invalid_field");
    let mut nobody = User::new("zoe");
    nobody.token = "x".into();
    fleet.client(0, &nobody).get("/v1/push/key").await.expect_problem(401, "unauthenticated");

    // Somebody else's is not hers to end; one's own is ended once and for all.
    let bob = fleet.client(1, &User::new("bob"));
    bob.request(Method::DELETE, PATH, &[], Some(&json!({"endpoint": browser.endpoint()}))).await.expect(204);
    assert_eq!(count(fleet.database(), "push_subscriptions").await, 1);
    for _ in 0..2 {
        ann.request(Method::DELETE, PATH, &[], Some(&json!({"endpoint": browser.endpoint()}))).await.expect(204);
    }
    assert_eq!(count(fleet.database(), "push_subscriptions").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_has_twenty_browsers_and_the_oldest_goes() {
    let service = PushService::willing().await;
    let fleet = Fleet::start_with(RedisKind::Single, 2, 0, &FLAGS).await;
    let ann = User::new("ann");
    let browsers: Vec<Browser> = (0..26).map(|n| Browser::new(&service, &format!("b{n}"))).collect();
    for browser in &browsers[..20] {
        browser.register(&fleet.client(0, &ann), false).await.expect(201);
    }
    // The first is used again, so it is not the oldest any more.
    browsers[0].register(&fleet.client(1, &ann), false).await.expect(200);
    let more = browsers[20..].iter().enumerate().map(|(n, browser)| {
        let client = fleet.client(n, &ann);
        async move { browser.register(&client, false).await.expect(201) }
    });
    join_all(more).await;
    let kept: Vec<String> =
        sqlx::query_scalar("SELECT endpoint FROM push_subscriptions").fetch_all(&mut fleet.database().connect().await).await.unwrap();
    assert_eq!(kept.len(), 20);
    for (n, browser) in browsers.iter().enumerate() {
        assert_eq!(kept.contains(&browser.endpoint()), n == 0 || n > 6, "{n}");
    }
}

on_both! {
    async fn a_browser_belongs_to_who_registered_it_last(kind: RedisKind) {
        let service = PushService::willing().await;
        let fleet = Fleet::start_with(kind, 2, 1, &FLAGS).await;
        let (ann, bob) = (fleet.client(0, &User::new("ann")), fleet.client(1, &User::new("bob")));
        let browser = Browser::new(&service, "shared");
        browser.register(&ann, true).await.expect(201);
        browser.register(&bob, true).await.expect(201);
        let cid = fleet.client(0, &User::new("cid"));
        let (to_ann, to_bob) = (cid.create_group("A", &["ann"]).await, cid.create_group("B", &["bob"]).await);
        cid.send(&to_ann, "k1", "for ann").await.expect(201);
        cid.send(&to_bob, "k2", "for bob").await.expect(201);
        let said = service.has_taken(&browser, 1, PATIENCE).await;
        nothing_waits(fleet.database(), 2).await;
        assert_eq!(said.len(), 1);
        assert_eq!((&said[0]["message"]["preview"], &said[0]["conversation_id"]), (&json!("for bob"), &json!(to_bob)));
        // And back, while something waits for the one who has it.
        service.behave(|_| crate::harness::Reply::Later(503, 1));
        let before = service.pushed().len();
        cid.send(&to_bob, "k3", "for bob again").await.expect(201);
        eventually("it was tried", PATIENCE, async || service.pushed().len() > before).await;
        browser.register(&ann, true).await.expect(201);
        service.behave(|_| crate::harness::Reply::Status(201));
        cid.send(&to_ann, "k4", "for ann again").await.expect(201);
        let said = service.has_taken(&browser, 2, PATIENCE).await;
        nothing_waits(fleet.database(), 2).await;
        assert_eq!(said[1]["message"]["preview"], "for ann again");
        assert_eq!(service.taken(&browser).len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_erased_is_not_pushed_to_any_more() {
    let push_service = PushService::willing().await;
    let fleet = Fleet::start_with(RedisKind::Single, 1, 1, &FLAGS).await;
    let (ann, service) = (fleet.client(0, &User::new("ann")), fleet.client(0, &User::service()));
    let browser = Browser::new(&push_service, "a");
    browser.register(&ann, true).await.expect(201);
    service.delete("/v1/users/ann").await.expect(202);
    assert_eq!(count(fleet.database(), "push_subscriptions").await, 0);
    let done = async || {
        eventually_some("she is erased", PATIENCE, async || {
            let answer = service.delete("/v1/users/ann").await;
            if answer.status == 200 { Ok(answer.json) } else { Err(answer.text) }
        })
        .await
    };
    done().await;
    // Who comes back leaves a trace again.
    browser.register(&ann, true).await.expect(201);
    service.delete("/v1/users/ann").await.expect(202);
    done().await;
    assert_eq!(count(fleet.database(), "push_subscriptions").await, 0);
}

#[test]
fn a_key_is_made_that_the_settings_take() {
    let made = Command::new(env!("CARGO_BIN_EXE_seqline")).env_clear().arg("vapid").output().unwrap();
    assert!(made.status.success() && made.stderr.is_empty());
    let printed = String::from_utf8(made.stdout).unwrap();
    let private = printed.lines().find_map(|line| line.strip_prefix("SEQLINE_VAPID_PRIVATE_KEY=")).unwrap();
    let public = printed.lines().next().unwrap().rsplit(' ').next().unwrap();
    let settings: Settings = crate::harness::stores::settings(
        "redis://x",
        "postgres://x",
        &["--vapid-private-key", private, "--vapid-subject", "mailto:a@chat.app"],
    );
    assert_eq!(settings.vapid_key().unwrap().unwrap().public_text(), public);
}
