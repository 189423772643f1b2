//! Profiles: what the service sets wins, what tokens claim serves otherwise, and nobody waits for either.

use serde_json::{Value, json};

use crate::faults_postgres::{family, signal};
use crate::harness::client::{pair, path_segment};
use crate::harness::{Client, Fleet, PATIENCE, PrivateRedis, RedisKind, TestDatabase, User, eventually_some, on_both};

/// Waits until the only entry of somebody's member list with this id looks like this.
async fn shown(client: &Client, group: &str, user: &str, name: Value, avatar_url: Value) {
    eventually_some(&format!("{user} is shown as {name}"), PATIENCE, async || {
        let members = client.get(&format!("/v1/conversations/{group}/members")).await.expect(200);
        let member = members.items().iter().find(|member| member["user_id"] == user).unwrap().clone();
        if member["name"] == name && member["avatar_url"] == avatar_url { Ok(()) } else { Err(member.to_string()) }
    })
    .await;
}

async fn put(client: &Client, user: &str, profile: &Value) -> crate::harness::Answer {
    client.put(&format!("/v1/users/{}", path_segment(user)), Some(profile)).await
}

on_both! {
    async fn a_profile_is_shown_at_every_gateway(fleet: Fleet) {
        let (ann, bob, service) = (User::new("ann"), User::new("bob"), User::service());
        let (a, b, s) = (fleet.client(0, &ann), fleet.client(1, &bob), fleet.client(1, &service));
        let group = a.create_group("titled", &["bob"]).await;
        let untitled = a.post("/v1/conversations", &json!({"kind": "group", "members": ["bob", "cy", "dan"]})).await.expect(201);
        assert_eq!(untitled.json["title"], Value::Null);
        assert_eq!(untitled.json["display_name"], "bob, cy, dan", "{}", untitled.text);
        a.send_to_peer("bob", "k", "hello").await.expect(201);

        let set = put(&s, "bob", &json!({"name": " Bob\u{202e} ", "avatar_url": "https://cdn.example/b.png"})).await.expect(200);
        assert_eq!((&set.json["user_id"], &set.json["name"]), (&json!("bob"), &json!("Bob\u{202e}")));
        assert_eq!(set.json["avatar_url"], "https://cdn.example/b.png");
        assert!(set.json["updated_at"].is_string());
        for client in [&a, &b] {
            shown(client, &group, "bob", json!("Bob\u{202e}"), json!("https://cdn.example/b.png")).await;
        }
        let single = a.conversation(&pair("ann", "bob")).await.expect(200);
        assert_eq!(single.json["peer"], "bob");
        assert_eq!(single.json["peer_profile"], json!({"name": "Bob\u{202e}", "avatar_url": "https://cdn.example/b.png"}));
        assert_eq!(single.json["display_name"], "Bob\u{202e}");
        assert_eq!(a.conversation(&group).await.json["display_name"], "titled");
        let id = untitled.json["id"].as_str().unwrap();
        assert_eq!(a.conversation(id).await.json["display_name"], "Bob\u{202e}, cy, dan");
        assert_eq!(b.conversation(id).await.json["display_name"], "ann, cy, dan");

        // Found by what people are called, not only by ids and titles; members' names are in the archive a moment later.
        put(&s, "cy", &json!({"name": "Cyrano ÉTOILE"})).await.expect(200);
        eventually_some("the group is found by a member's name", PATIENCE, async || {
            let found = a.get(&format!("/v1/conversations?q={}", path_segment("étoile"))).await.expect(200);
            let ids: Vec<&Value> = found.items().iter().map(|item| &item["id"]).collect();
            if ids == [id] { Ok(()) } else { Err(found.text.clone()) }
        })
        .await;
        let found = a.get("/v1/conversations?q=BOB").await.expect(200);
        assert_eq!(found.items().len(), 3, "{}", found.text);
        assert_eq!(a.get("/v1/conversations?q=ann").await.expect(200).items().len(), 0, "nobody is looking for oneself");

        // What is left out stays, null clears.
        let left = put(&s, "bob", &json!({"name": null})).await.expect(200);
        assert_eq!((&left.json["name"], &left.json["avatar_url"]), (&Value::Null, &json!("https://cdn.example/b.png")));
        shown(&a, &group, "bob", Value::Null, json!("https://cdn.example/b.png")).await;
        let seen = a.get("/v1/users/bob").await.expect(200);
        assert_eq!(seen.json, json!({"user_id": "bob", "name": null, "avatar_url": "https://cdn.example/b.png"}));
        assert_eq!(a.get("/v1/users/nobody").await.expect(200).json, json!({"user_id": "nobody", "name": null, "avatar_url": null}));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_s_claims_serve_until_the_service_speaks() {
    let fleet = Fleet::start(RedisKind::Single, 2, 1).await;
    let ann = User::with_claims("ann", &json!({"name": "Ann", "picture": "https://cdn.example/a.png"}));
    let renamed = User::with_claims("ann", &json!({"name": "Anna", "picture": "javascript:alert(1)"}));
    let (bob, service) = (User::new("bob"), User::service());
    let (a, b, s) = (fleet.client(0, &ann), fleet.client(1, &bob), fleet.client(0, &service));
    let group = a.create_group("g", &["bob"]).await;
    shown(&b, &group, "ann", json!("Ann"), json!("https://cdn.example/a.png")).await;
    fleet.client(1, &renamed).conversations().await.expect(200);
    shown(&b, &group, "ann", json!("Anna"), Value::Null).await;
    // A token that claims nothing says nothing.
    fleet.client(1, &User::new("ann")).conversations().await.expect(200);
    put(&s, "ann", &json!({"name": "A."})).await.expect(200);
    a.conversations().await.expect(200);
    // The name is the service's from now on; the picture is still the token's.
    shown(&b, &group, "ann", json!("A."), Value::Null).await;
    let other = User::with_claims("ann", &json!({"name": "Other", "picture": "https://cdn.example/2.png"}));
    fleet.client(0, &other).conversations().await.expect(200);
    shown(&b, &group, "ann", json!("A."), json!("https://cdn.example/2.png")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_a_profile_is_named() {
    let fleet = Fleet::start(RedisKind::Single, 2, 1).await;
    let (ann, service) = (User::new("ann"), User::service());
    let (a, s) = (fleet.client(0, &ann), fleet.client(0, &service));
    put(&a, "ann", &json!({"name": "Ann"})).await.expect_problem(403, "forbidden");
    for (body, field) in [
        (json!({"name": " "}), "name"),
        (json!({"name": "x".repeat(81)}), "name"),
        (json!({"name": "a\nb"}), "name"),
        (json!({"name": 5}), "name"),
        (json!({"avatar_url": "javascript:alert(1)"}), "avatar_url"),
        (json!({"avatar_url": format!("https://a.example/{}", "x".repeat(2_048))}), "avatar_url"),
    ] {
        let refused = put(&s, "ann", &body).await.expect_problem(422, "invalid_field");
        assert_eq!(refused.json["field"], field, "{body}");
    }
    put(&s, "ann", &json!({"nam": "Ann"})).await.expect_problem(422, "unknown_field");
    put(&s, &"x".repeat(129), &json!({"name": "Ann"})).await.expect_problem(422, "invalid_field");
    assert_eq!(put(&s, "ann", &json!({"name": "中".repeat(80)})).await.expect(200).json["avatar_url"], Value::Null);
    assert_eq!(put(&s, "ann", &json!({})).await.expect(200).json["name"], json!("中".repeat(80)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_go_on_without_names_while_postgres_is_away() {
    let redis = PrivateRedis::start(RedisKind::Single).await;
    let mut fleet = Fleet::start_over(redis, TestDatabase::on_own_server().await, 2, 1, &[]).await;
    let ann = User::with_claims("ann", &json!({"name": "Ann"}));
    let (a, b) = (fleet.client(0, &ann), fleet.client(1, &User::new("bob")));
    let group = a.post("/v1/conversations", &json!({"kind": "group", "members": ["bob"]})).await.expect(201);
    let id = group.json["id"].as_str().unwrap().to_owned();
    a.send_to_peer("bob", "k", "hello").await.expect(201);
    shown(&b, &id, "ann", json!("Ann"), Value::Null).await;
    // The list stands in Redis once it was read.
    b.conversations().await.expect(200);
    // Halted: connections stand, and nothing answers.
    let pids = family(fleet.database_mut().server().process().pid().unwrap());
    signal("STOP", &pids);
    for gateway in [0, 1] {
        let list = fleet.client(gateway, &User::new("bob")).conversations().await.expect(200);
        assert_eq!(list.items().len(), 2, "{}", list.text);
        assert!(list.items().iter().all(|item| item["display_name"] == "ann" || item["display_name"] == "Ann"), "{}", list.text);
    }
    b.get(&format!("/v1/conversations/{id}/members")).await.expect(200);
    assert_eq!(b.get("/v1/conversations?q=ann").await.expect(200).items().len(), 1, "by the peer's id");
    signal("CONT", &pids);
    shown(&b, &id, "ann", json!("Ann"), Value::Null).await;
}
