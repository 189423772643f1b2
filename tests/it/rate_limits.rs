//! Limits: they hold over all gateways, they take no number, and they never stand between a sender and a message that stands already.

use futures_util::future::join_all;
use serde_json::json;

use crate::harness::client::pair;
use crate::harness::{Answer, Fleet, PATIENCE, PrivateRedis, RedisKind, TestDatabase, User, eventually, on_both};

/// A rate at which nothing comes back while a test runs.
const SLOW: &str = "0.001";

async fn fleet(kind: RedisKind, flags: &[&str]) -> Fleet {
    Fleet::start_with(kind, 2, 1, flags).await
}

/// Sends that many messages at once, at both gateways by turns.
async fn burst(fleet: &Fleet, user: &User, group: &str, count: usize, prefix: &str) -> Vec<Answer> {
    let clients = [fleet.client(0, user).kept_alive(), fleet.client(1, user).kept_alive()];
    let sends = (0..count).map(|n| {
        let client = clients[n % 2].clone();
        let (group, key) = (group.to_owned(), format!("{prefix}{n}"));
        async move { client.send(&group, &key, "hi").await }
    });
    join_all(sends).await
}

fn count(answers: &[Answer], status: u16) -> usize {
    answers.iter().filter(|answer| answer.status == status).count()
}

#[track_caller]
fn assert_limited(answer: &Answer, limit: &str, quota: u64) {
    let answer = answer.clone().expect_problem(429, "rate_limited");
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!(wait >= 1);
    assert_eq!(answer.header("ratelimit"), Some(&*format!("\"{limit}\";r=0;t={wait}")));
    let policy = answer.header("ratelimit-policy").unwrap();
    assert!(policy.starts_with(&format!("\"{limit}\";q={quota};w=")), "{policy}");
}

on_both! {
    async fn a_user_s_limit_holds_over_all_gateways(kind: RedisKind) {
        let fleet = fleet(kind, &["--user-sends-per-second", SLOW, "--user-sends-burst", "10"]).await;
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let group = fleet.client(0, &ann).create_group("g", &["bob"]).await;
        let other = fleet.client(0, &ann).create_group("other", &["bob"]).await;
        let answers = burst(&fleet, &ann, &group, 100, "k").await;
        assert_eq!((count(&answers, 201), count(&answers, 429)), (10, 90));
        for limited in answers.iter().filter(|answer| answer.status == 429) {
            assert_limited(limited, "user", 10);
        }
        let mut left: Vec<String> =
            answers.iter().filter(|a| a.status == 201).map(|a| a.header("ratelimit").unwrap().split(';').nth(1).unwrap().to_owned()).collect();
        left.sort();
        assert_eq!(left, (0..10).map(|n| format!("r={n}")).collect::<Vec<_>>());
        // No number was used by what was refused.
        assert_eq!(fleet.client(1, &bob).conversation(&group).await.json["head_seq"], 10);
        // It is the user's, wherever the user sends; others have their own.
        assert_limited(&fleet.client(1, &ann).send(&other, "x", "hi").await, "user", 10);
        fleet.client(1, &bob).send(&group, "x", "hi").await.expect(201);

        // What stands is answered, at either gateway, however often; and it costs nothing.
        let sent = answers.iter().position(|answer| answer.status == 201).unwrap();
        for gateway in [0, 1] {
            let again = fleet.client(gateway, &ann).send(&group, &format!("k{sent}"), "hi").await.expect(200);
            assert_eq!((again.seq(), again.header("idempotency-replayed")), (answers[sent].seq(), Some("true")));
            fleet.client(gateway, &ann).send(&group, &format!("k{sent}"), "other").await.expect_problem(409, "idempotency_conflict");
        }
        // The limit is the last thing one is told.
        fleet.client(0, &ann).send(&group, "empty", "").await.expect_problem(422, "invalid_field");
        fleet.client(0, &ann).send(&pair("cy", "dan"), "k", "hi").await.expect_problem(404, "not_found");
        // A pair that never wrote is no way around it.
        assert_limited(&fleet.client(0, &ann).send_to_peer("eve", "k", "hi").await, "user", 10);
        // The host's own server is not a user.
        let service = User::with_claims("ann", &json!({"scope": "service"}));
        fleet.client(0, &service).send(&group, "service", "hi").await.expect(201);
    }

    async fn a_conversation_s_limit_holds_for_all_its_members(kind: RedisKind) {
        let fleet = fleet(kind, &["--conversation-sends-per-second", SLOW, "--conversation-sends-burst", "7"]).await;
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let group = fleet.client(0, &ann).create_group("g", &["bob"]).await;
        let (by_ann, by_bob) = tokio::join!(burst(&fleet, &ann, &group, 30, "k"), burst(&fleet, &bob, &group, 30, "k"));
        let answers = [by_ann, by_bob].concat();
        assert_eq!((count(&answers, 201), count(&answers, 429)), (7, 53));
        answers.iter().filter(|answer| answer.status == 429).for_each(|answer| assert_limited(answer, "conversation", 7));
        assert_eq!(fleet.client(0, &bob).conversation(&group).await.json["head_seq"], 7);
        let history = fleet.client(1, &bob).whole_history(&group).await;
        let key = history[3]["client_id"].as_str().unwrap();
        let sender = if history[3]["sender"] == "ann" { &ann } else { &bob };
        assert_eq!(fleet.client(1, sender).send(&group, key, "hi").await.expect(200).seq(), 4);
        fleet.client(1, &ann).send(&group, "empty", "").await.expect_problem(422, "invalid_field");
        let other = fleet.client(0, &ann).create_group("other", &["bob"]).await;
        let first = fleet.client(0, &ann).send(&other, "k", "hi").await.expect(201);
        assert_eq!(first.header("ratelimit"), Some("\"conversation\";r=6;t=1000"));
        assert_eq!(first.header("ratelimit-policy"), Some("\"conversation\";q=7;w=7000"));
    }

    async fn replays_give_the_token_back(kind: RedisKind) {
        let fleet = fleet(kind, &["--user-sends-per-second", SLOW, "--user-sends-burst", "5", "--conversation-sends-per-second", SLOW, "--conversation-sends-burst", "3"]).await;
        let ann = User::new("ann");
        let clients = [fleet.client(0, &ann), fleet.client(1, &ann)];
        let group = clients[0].create_group("g", &["bob"]).await;
        clients[0].send(&group, "k", "hi").await.expect(201);
        for n in 0..12 {
            clients[n % 2].send(&group, "k", "hi").await.expect(200);
        }
        let second = clients[1].send(&group, "k2", "hi").await.expect(201);
        assert_eq!(second.header("ratelimit"), Some("\"user\";r=3;t=2000, \"conversation\";r=1;t=2000"));
        clients[1].send(&group, "k3", "hi").await.expect(201);
        // What the conversation does not take costs the sender nothing either.
        for n in 0..4 {
            assert_limited(&clients[n % 2].send(&group, &format!("full{n}"), "hi").await, "conversation", 3);
        }
        let other = clients[0].create_group("other", &["bob"]).await;
        let last = clients[0].send(&other, "k", "hi").await.expect(201);
        assert!(last.header("ratelimit").unwrap().starts_with("\"user\";r=1;"), "{:?}", last.headers);
    }

    async fn clocks_that_disagree_neither_open_nor_block_a_bucket(kind: RedisKind) {
        let redis = PrivateRedis::start(kind).await;
        // One token a second; the second gateway is two seconds behind.
        let flags = ["--user-sends-per-second", "1", "--user-sends-burst", "5"];
        let mut fleet = Fleet::start_over(redis, TestDatabase::migrated().await, 1, 1, &flags).await;
        fleet.add_gateway(&["--clock-offset-ms", "-2000"]).await;
        let ann = User::new("ann");
        let group = fleet.client(0, &ann).create_group("g", &["bob"]).await;
        let begun = std::time::Instant::now();
        let answers = burst(&fleet, &ann, &group, 60, "k").await;
        // What the clocks disagree by is granted once, when the one behind asks first.
        let most = 5 + 2 + begun.elapsed().as_secs() as usize + 1;
        let sent = count(&answers, 201);
        assert!((5..=most).contains(&sent), "{sent} of at most {most}");
        // The one behind is let through as soon as its own clock has come so far, at the latest.
        eventually("a token comes back", PATIENCE, async || {
            fleet.client(1, &ann).send(&group, "late", "hi").await.status != 429
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn making_and_inviting_have_a_budget() {
    let fleet = fleet(RedisKind::Single, &["--user-writes-per-second", SLOW, "--user-writes-burst", "3"]).await;
    let (ann, eve) = (User::new("ann"), User::new("eve"));
    let (a, b) = (fleet.client(0, &ann), fleet.client(1, &ann));
    let group = a.create_group("g", &["bob"]).await;
    b.invite(&group, "cy").await.expect(201);
    for _ in 0..5 {
        // What was done already costs nothing.
        b.invite(&group, "cy").await.expect(200);
    }
    a.post("/v1/conversations", &json!({"kind": "single", "peer": "bob"})).await.expect(201);
    assert_limited(&b.post("/v1/conversations", &json!({"kind": "single", "peer": "dan"})).await, "writes", 3);
    assert_limited(&a.invite(&group, "dan").await, "writes", 3);
    b.post("/v1/conversations", &json!({"kind": "single", "peer": "ann"})).await.expect_problem(422, "invalid_field");
    let e = fleet.client(0, &eve);
    for name in ["one", "two", "three"] {
        e.create_group(name, &["bob"]).await;
    }
    e.invite(&group, "eve").await.expect_problem(404, "not_found");
    a.send(&group, "k", "sending is counted apart").await.expect(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_has_so_many_streams_at_a_gateway_and_no_more() {
    let fleet = fleet(RedisKind::Single, &["--user-streams-max", "2"]).await;
    let ann = User::new("ann");
    let client = fleet.client(0, &ann);
    let mut open = Vec::new();
    for gateway in [0, 0, 1] {
        let mut stream = fleet.client(gateway, &ann).stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        open.push(stream);
    }
    // Not a status that would end a browser's reconnecting for good.
    let mut refused = client.stream().open().await;
    assert_eq!(refused.wait_for("unavailable", PATIENCE).await.data["code"], "rate_limited");
    let mut others = fleet.client(0, &User::new("bob")).stream().open().await;
    others.wait_for("hello", PATIENCE).await;
    // A poll is no stream, and an ended stream makes room.
    client.get("/v1/events/poll").await.expect(200);
    open.remove(0);
    eventually("there is room again", PATIENCE, async || {
        let mut stream = client.stream().open().await;
        stream.next_event(PATIENCE).await.is_some_and(|event| event.name == "hello")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_has_so_many_streams_at_a_gateway_and_no_more() {
    let fleet = fleet(RedisKind::Single, &["--address-streams-max", "2", "--trusted-proxies", "1"]).await;
    let users = User::many(3);
    let from = |gateway: usize, user: &User, address: &str| fleet.client(gateway, user).stream().forwarded_for(address);
    let mut open = Vec::new();
    // What a client claims of itself stands left of what the proxy noted.
    for (gateway, noted) in [(0, "198.51.100.1"), (0, "203.0.113.7, 198.51.100.1"), (1, "198.51.100.1"), (0, "198.51.100.2")] {
        let mut stream = from(gateway, &users[gateway], noted).open().await;
        stream.wait_for("hello", PATIENCE).await;
        open.push(stream);
    }
    let mut refused = from(0, &users[2], "198.51.100.9, 198.51.100.1").open().await;
    assert_eq!(refused.wait_for("unavailable", PATIENCE).await.data["code"], "rate_limited");
    open.remove(0);
    eventually("there is room again", PATIENCE, async || {
        let mut stream = from(0, &users[2], "198.51.100.1").open().await;
        stream.next_event(PATIENCE).await.is_some_and(|event| event.name == "hello")
    })
    .await;
}
