//! Signs of typing: they pass through whichever gateway, to members alone, seldom, and leave nothing behind.

use std::time::Duration;

use seqline::actions::tell_streams::tell_streams;
use seqline::domain::event::{EventType, Pointer};
use seqline::domain::ids::{ConversationId, UserId};
use seqline::workers::cool_conversations::{Cooled, cool_conversation};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

use crate::harness::client::pair;
use crate::harness::{Client, Event, EventStream, Fleet, PATIENCE, RedisKind, User, eventually, on_both, stores};

/// For what must not come: well above what it takes to come.
const QUIET: Duration = Duration::from_millis(600);

async fn types(client: &Client, conversation: &str, typing: bool) {
    client.post(&format!("/v1/conversations/{conversation}/typing"), &json!({"typing": typing})).await.expect(204);
}

/// A stream that is live: what was there before has been read.
async fn live(fleet: &Fleet, gateway: usize, user: &User) -> EventStream {
    let mut stream = fleet.client(gateway, user).stream().open().await;
    stream.wait_for("hello", PATIENCE).await;
    stream
}

/// A group that its members know of already: a stream that opens now has nothing to read first.
async fn known_group(owner: &Client, members: &[&str]) -> String {
    let group = owner.create_group("G", members).await;
    for member in members {
        let client = Client::new(owner.url(""), &User::new(*member));
        eventually("a member knows of the group", PATIENCE, async || {
            client.conversations().await.items().iter().any(|c| c["id"] == group.as_str())
        })
        .await;
    }
    group
}

#[track_caller]
fn check_sign(event: &Event, conversation: &str, user: &str, typing: bool) {
    assert_eq!((event.name.as_str(), &event.id), ("typing.updated", &None), "{event:?}");
    assert!(event.data.get("id").is_none(), "{event:?}");
    assert_eq!((&event.data["type"], &event.data["version"]), (&json!("typing.updated"), &json!(1)));
    assert_eq!((&event.data["conversation_id"], &event.data["data"]), (&json!(conversation), &json!({"user_id": user, "typing": typing})));
    assert!(event.data["rev"].as_u64().is_some() && event.data["occurred_at"].as_str().unwrap().ends_with('Z'), "{event:?}");
}

/// The signs among these.
fn signs(events: &[Event]) -> Vec<(&Value, &Value)> {
    let of = |event: &Event| event.name == "typing.updated";
    events.iter().filter(|event| of(event)).map(|event| (&event.data["data"]["user_id"], &event.data["data"]["typing"])).collect()
}

on_both! {
    async fn it_reaches_the_others_everywhere_and_leaves_nothing_behind(fleet: Fleet) {
        let (ann, bob, eve) = (User::new("ann"), User::new("bob"), User::new("eve"));
        let owner = fleet.client(0, &ann);
        let group = known_group(&owner, &["bob", "cid"]).await;
        let start = fleet.client(0, &bob).conversations().await.json["events_head"].as_str().unwrap().to_owned();
        let (mut own, mut stranger) = (live(&fleet, 1, &ann).await, live(&fleet, 1, &eve).await);
        let (mut here, mut there) = (live(&fleet, 0, &bob).await, live(&fleet, 1, &bob).await);
        let place = there.last_id().unwrap().to_owned();
        let waits = tokio::spawn({
            let client = fleet.client(1, &bob);
            let path = format!("/v1/events/poll?after={place}&wait=2");
            async move { client.get(&path).await.expect(200).json }
        });
        types(&owner, &group, true).await;
        for stream in [&mut here, &mut there] {
            check_sign(&stream.next_event(PATIENCE).await.unwrap(), &group, "ann", true);
        }
        types(&owner, &group, false).await;
        for stream in [&mut here, &mut there] {
            check_sign(&stream.next_event(PATIENCE).await.unwrap(), &group, "ann", false);
        }
        assert_eq!(own.until_quiet(QUIET).await, vec![], "not to oneself");
        assert_eq!(stranger.until_quiet(QUIET).await, vec![], "not to strangers");
        assert_eq!(there.last_id(), Some(place.as_str()), "nobody's place moves by it");
        assert_eq!(waits.await.unwrap()["events"], json!([]), "a poll that waits is not woken by it");
        // Nor is it replayed, to a stream or to a poll.
        owner.send(&group, "k1", "hi").await.expect(201);
        there.next_message(PATIENCE).await;
        for gateway in [0, 1] {
            let replayed = fleet.client(gateway, &bob).stream().after(&start).open().await.until_quiet(QUIET).await;
            assert!(signs(&replayed).is_empty() && replayed.iter().any(|e| e.name == "message.created"), "{replayed:?}");
        }
        let polled = fleet.client(1, &bob).get(&format!("/v1/events/poll?after={start}&limit=200")).await.expect(200).json;
        assert!(!polled.to_string().contains("typing"), "{polled}");
    }

    async fn few_of_many_pass_whatever_the_gateway(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let at = [fleet.client(0, &ann), fleet.client(1, &ann)];
        let group = known_group(&at[0], &["bob"]).await;
        let other = known_group(&at[0], &["bob"]).await;
        let mut stream = live(&fleet, 1, &bob).await;
        let burst = async |typing: bool| {
            futures_util::future::join_all((0..20).map(|n| types(&at[n % 2], &group, typing))).await;
        };
        types(&at[1], &group, false).await;
        burst(true).await;
        burst(true).await;
        // By its own measure in each conversation.
        types(&at[1], &other, true).await;
        let mut seen = stream.until_quiet(QUIET).await;
        seen.retain(|event| event.name == "typing.updated" || event.name == "message.created");
        assert_eq!(seen.iter().map(|e| e.data["conversation_id"].as_str().unwrap()).collect::<Vec<_>>(), [&group, &other], "{seen:?}");
        burst(false).await;
        burst(false).await;
        assert_eq!(signs(&stream.until_quiet(QUIET).await), [(&json!("ann"), &json!(false))], "one stop, and not when there is nothing to stop");
        // Somebody else's measure is another; and after three seconds the next one passes.
        types(&fleet.client(0, &bob), &group, true).await;
        let mut next = Vec::new();
        eventually("the next one passes", PATIENCE, async || {
            types(&at[0], &group, true).await;
            next.extend(stream.until_quiet(Duration::from_millis(100)).await);
            !next.is_empty()
        }).await;
        assert_eq!(signs(&next), [(&json!("ann"), &json!(true))]);
    }

    async fn who_was_removed_neither_shows_nor_sees_it(fleet: Fleet) {
        let (ann, bob, cid) = (User::new("ann"), User::new("bob"), User::new("cid"));
        let owner = fleet.client(0, &ann);
        let group = known_group(&owner, &["bob", "cid"]).await;
        let (mut at_bob, mut at_cid) = (live(&fleet, 1, &bob).await, live(&fleet, 0, &cid).await);
        types(&fleet.client(1, &bob), &group, true).await;
        check_sign(&at_cid.wait_for("typing.updated", PATIENCE).await, &group, "bob", true);
        owner.remove(&group, "bob").await.expect(204);
        let path = format!("/v1/conversations/{group}/typing");
        for (gateway, sign) in [(0, true), (1, false)] {
            fleet.client(gateway, &bob).post(&path, &json!({"typing": sign})).await.expect_problem(404, "not_found");
        }
        types(&owner, &group, true).await;
        check_sign(&at_cid.wait_for("typing.updated", PATIENCE).await, &group, "ann", true);
        at_bob.wait_for("member.removed", PATIENCE).await;
        assert_eq!(at_bob.until_quiet(QUIET).await, vec![]);
        assert!(signs(&at_cid.until_quiet(QUIET).await).is_empty());
        // One that was under way to bob when the removal overtook it is not shown; what is of elsewhere is.
        let stores = stores::open(&fleet.redis_url(), fleet.database().url(), &[]).await;
        let elsewhere = fleet.client(0, &bob).send_to_peer("cid", "k1", "hi").await.expect(201).json["conversation_id"].clone();
        at_bob.next_message(PATIENCE).await;
        for conversation in [group.as_str(), elsewhere.as_str().unwrap()] {
            let late = Pointer {
                kind: EventType::TypingUpdated,
                conversation: ConversationId::parse(conversation).unwrap(),
                rev: 1,
                seq: 0,
                at: stores.clock.now(),
                data: Some(json!({"user_id": "cid", "typing": true}).to_string()),
            };
            tell_streams(&stores, &late, &[UserId::parse("bob").unwrap()]).await;
        }
        check_sign(&at_bob.next_event(PATIENCE).await.unwrap(), elsewhere.as_str().unwrap(), "cid", true);
        // Back again, bob is a member like any other.
        owner.invite(&group, "bob").await.expect(201);
        at_bob.wait_for("member.joined", PATIENCE).await;
        types(&fleet.client(1, &cid), &group, true).await;
        check_sign(&at_bob.wait_for("typing.updated", PATIENCE).await, &group, "cid", true);
    }

    async fn where_a_conversation_has_left_redis_it_stays_there(fleet: Fleet) {
        let (ann, bob, eve) = (User::new("ann"), User::new("bob"), User::new("eve"));
        let owner = fleet.client(0, &ann);
        let group = known_group(&owner, &["bob"]).await;
        let stores = stores::open(&fleet.redis_url(), fleet.database().url(), &[]).await;
        let id = ConversationId::parse(&group).unwrap();
        eventually("it is cold", PATIENCE, async || {
            cool_conversation(&stores, &id, "w", stores.clock.now() + 1_000_000).await.unwrap() == Cooled::Gone
        }).await;
        let mut stream = live(&fleet, 1, &bob).await;
        let path = format!("/v1/conversations/{group}/typing");
        fleet.client(1, &eve).post(&path, &json!({"typing": true})).await.expect_problem(404, "not_found");
        types(&owner, &group, true).await;
        types(&fleet.client(1, &ann), &group, true).await;
        check_sign(&stream.next_event(PATIENCE).await.unwrap(), &group, "ann", true);
        types(&owner, &group, false).await;
        check_sign(&stream.next_event(PATIENCE).await.unwrap(), &group, "ann", false);
        assert_eq!(stream.until_quiet(QUIET).await, vec![]);
        assert_eq!(fleet.redis_ref().keys(&format!("*}}:{group}")).await, Vec::<String>::new(), "nobody loaded it");
    }
}

/// Puts one into the archive, with this member.
async fn put_system_conversation(fleet: &Fleet, id: &str, member: &str) {
    let mut connection = PgConnection::connect(fleet.database().url()).await.unwrap();
    let statements = [
        "INSERT INTO conversations (id, shard, kind, facts_rev, created_at_ms, head_seq, rev, updated_at_ms) VALUES ($1, 0, 'system', 1, 1, 0, 1, 1)",
        "INSERT INTO members (conv_id, user_id, role, joined_at_ms, joined_seq, joined_rev, rev) VALUES ($1, $2, 'member', 1, 0, 1, 1)",
    ];
    sqlx::query(statements[0]).bind(id).execute(&mut connection).await.unwrap();
    sqlx::query(statements[1]).bind(id).bind(member).execute(&mut connection).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_is_refused_in_order() {
    let mut fleet = Fleet::start(RedisKind::Single, 1, 1).await;
    let (ann, eve) = (fleet.client(0, &User::new("ann")), fleet.client(0, &User::new("eve")));
    let group = ann.create_group("G", &["bob"]).await;
    put_system_conversation(&fleet, "system:order:1", "ann").await;
    let path = |conversation: &str| format!("/v1/conversations/{conversation}/typing");
    let system = path("system:order:1");
    let sign = json!({"typing": true});
    for (body, code, field) in [
        (json!({}), "invalid_field", "typing"),
        (json!({"typing": "yes"}), "invalid_field", "typing"),
        (json!({"typing": null}), "invalid_field", "typing"),
        (json!({"typing": true, "to": "bob"}), "unknown_field", "to"),
    ] {
        let refused = ann.post(&path(&group), &body).await.expect_problem(422, code);
        assert_eq!(refused.json["field"], field, "{body}");
        eve.post(&path(&group), &body).await.expect_problem(404, "not_found");
        eve.post(&system, &body).await.expect_problem(404, "not_found");
    }
    ann.post(&system, &sign).await.expect_problem(403, "read_only");
    eve.post(&system, &sign).await.expect_problem(404, "not_found");
    ann.post(&path(&pair("ann", "zoe")), &sign).await.expect_problem(404, "not_found");
    ann.post(&path("system:order:2"), &sign).await.expect_problem(404, "not_found");
    ann.post(&path("nowhere"), &sign).await.expect_problem(404, "not_found");
    fleet.redis().nodes().iter_mut().for_each(|node| node.process().signal("STOP"));
    let away = ann.post(&path(&group), &sign).await;
    fleet.redis().nodes().iter_mut().for_each(|node| node.process().signal("CONT"));
    assert!(away.header("retry-after").is_some());
    away.expect_problem(503, "unavailable");
}
