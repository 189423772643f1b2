//! Faults that others shipped, each as its small case: counters that drift, copies that are not cleared, pages over lists that move, rights
//! that are remembered too long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reqwest::Method;
use seqline::domain::ids::ConversationId;
use seqline::workers::cool_conversations::{Cooled, cool_conversation};
use serde_json::{Value, json};

use crate::crowd::{both, events_head, log_after, messages_in};
use crate::harness::{Client, Fleet, PATIENCE, User, eventually, on_both, stores};

/// For what must not come.
const QUIET: Duration = Duration::from_millis(600);

/// What every way to see it says is unread for this user: the conversation, the list, and all together.
async fn unread_everywhere(at: &[Client], conversation: &str) -> u64 {
    let mut said = BTreeSet::new();
    for client in at {
        said.insert(client.conversation(conversation).await.expect(200).json["me"]["unread"].as_u64().unwrap());
        said.insert(client.get("/v1/unread").await.expect(200).json["total"].as_u64().unwrap());
        let list = client.conversations().await.expect(200);
        let item = list.items().iter().find(|item| item["id"] == conversation).unwrap();
        said.insert(item["me"]["unread"].as_u64().unwrap());
    }
    assert_eq!(said.len(), 1, "{said:?}");
    said.pop_first().unwrap()
}

/// A group that is in everybody's list.
async fn group(owner: &Client, members: &[&Client]) -> String {
    let names: Vec<&str> = members.iter().map(|member| &*member.user().id).collect();
    let id = owner.create_group("talk", &names).await;
    for member in members {
        eventually("it is in the list", PATIENCE, async || member.conversations().await.items().iter().any(|item| item["id"] == *id)).await;
    }
    id
}

on_both! {
    async fn unread_is_the_same_wherever_it_is_shown(fleet: Fleet) {
        let (anns, bobs) = (both(&fleet, &User::new("ann")), both(&fleet, &User::new("bob")));
        let id = group(&anns[0], &[&bobs[0]]).await;
        for key in ["k1", "k2", "k3"] {
            anns[0].send(&id, key, "hi").await.expect(201);
        }
        assert_eq!(unread_everywhere(&bobs, &id).await, 3);
        anns[1].delete(&format!("/v1/conversations/{id}/messages/3")).await.expect(200);
        assert_eq!(unread_everywhere(&bobs, &id).await, 2);
        anns[0].send(&id, "k4", "hi").await.expect(201);
        assert_eq!(unread_everywhere(&bobs, &id).await, 3);
        // Only what is deleted, and the timeline, is left to read.
        bobs[0].read(&id, 4).await.expect(200);
        anns[0].send(&id, "k5", "a slip").await.expect(201);
        anns[0].delete(&format!("/v1/conversations/{id}/messages/5")).await.expect(200);
        anns[0].invite(&id, "cid").await.expect(201);
        assert_eq!(unread_everywhere(&bobs, &id).await, 0);
        let read = bobs[1].read(&id, 6).await.expect(200);
        assert_eq!((&read.json["read_seq"], &read.json["unread"]), (&json!(6), &json!(0)));
        assert_eq!(unread_everywhere(&bobs, &id).await, 0);
    }

    async fn the_last_message_is_cleared_where_it_is_copied(fleet: Fleet) {
        let (anns, bobs) = (both(&fleet, &User::new("ann")), both(&fleet, &User::new("bob")));
        let id = group(&anns[0], &[&bobs[0]]).await;
        anns[0].send(&id, "k1", "words").await.expect(201);
        anns[0].delete(&format!("/v1/conversations/{id}/messages/1")).await.expect(200);
        for client in anns.iter().chain(&bobs) {
            let list = client.conversations().await.expect(200);
            let one = client.conversation(&id).await.expect(200);
            for last in [&list.items()[0]["last_message"], &one.json["last_message"]] {
                assert_eq!((&last["seq"], &last["body"]), (&json!(1), &json!("")));
                assert!(last["deleted_at"].is_string());
            }
        }
    }

    async fn a_counter_that_is_lost_changes_nothing_that_is_shown(fleet: Fleet) {
        let (anns, bobs) = (both(&fleet, &User::new("ann")), both(&fleet, &User::new("bob")));
        let id = group(&anns[0], &[&bobs[0]]).await;
        for n in 0..5 {
            anns[0].send(&id, &format!("k{n}"), "hi").await.expect(201);
        }
        bobs[0].read(&id, 5).await.expect(200);
        let looking = stores::open(&fleet.redis_url(), fleet.database().url(), &[]).await;
        let conversation = ConversationId::parse(&id).unwrap();
        let later = looking.clock.now() + 1_000_000_000;
        eventually("it leaves Redis", PATIENCE, async || {
            matches!(cool_conversation(&looking, &conversation, "the test", later).await, Ok(Cooled::Gone))
        })
        .await;
        for client in &bobs {
            let seen = client.conversation(&id).await.expect(200).json;
            assert_eq!((&seen["head_seq"], &seen["me"]["unread"], &seen["me"]["read_seq"]), (&json!(5), &json!(0), &json!(5)));
        }
        let read = bobs[1].read(&id, 5).await.expect(200);
        assert_eq!((&read.json["read_seq"], &read.json["unread"]), (&json!(5), &json!(0)));
        assert_eq!(anns[1].conversation(&id).await.expect(200).json["head_seq"], 5);
    }

    async fn a_group_that_has_ended_is_so_wherever_it_stands(fleet: Fleet) {
        let (anns, stranger) = (both(&fleet, &User::new("ann")), fleet.client(1, &User::new("eve")));
        let id = anns[0].create_group("short", &["bob"]).await;
        anns[0].send(&id, "k1", "hi").await.expect(201);
        fleet.client(1, &User::new("bob")).remove(&id, "bob").await.expect(204);
        anns[0].remove(&id, "ann").await.expect(204);
        let looking = stores::open(&fleet.redis_url(), fleet.database().url(), &[]).await;
        let conversation = ConversationId::parse(&id).unwrap();
        let later = looking.clock.now() + 1_000_000_000;
        for cold in [false, true] {
            for client in &anns {
                client.conversation(&id).await.expect_problem(410, "dissolved");
                client.history(&id, "").await.expect_problem(410, "dissolved");
                client.history(&id, "since_rev=0").await.expect_problem(410, "dissolved");
                client.get(&format!("/v1/conversations/{id}/messages/1")).await.expect_problem(410, "dissolved");
                client.get(&format!("/v1/conversations/{id}/members")).await.expect_problem(410, "dissolved");
            }
            stranger.conversation(&id).await.expect_problem(404, "not_found");
            stranger.history(&id, "").await.expect_problem(404, "not_found");
            if !cold {
                eventually("it leaves Redis", PATIENCE, async || {
                    matches!(cool_conversation(&looking, &conversation, "the test", later).await, Ok(Cooled::Gone))
                })
                .await;
            }
        }
        anns[1].send(&id, "k2", "hi").await.expect_problem(410, "dissolved");
        stranger.send(&id, "k3", "hi").await.expect_problem(404, "not_found");
        anns[0].conversation(&id).await.expect_problem(410, "dissolved");
    }

    async fn who_is_removed_is_so_at_every_gateway_at_once(fleet: Fleet) {
        let (ann, bobs, cid) = (fleet.client(0, &User::new("ann")), both(&fleet, &User::new("bob")), fleet.client(1, &User::new("cid")));
        let made = json!({"kind": "group", "members": ["bob", "cid"], "history": "from_join"});
        let id = ann.post("/v1/conversations", &made).await.expect(201).json["id"].as_str().unwrap().to_owned();
        ann.send(&id, "k1", "early").await.expect(201);
        bobs[1].history(&id, "").await.expect(200);
        let mut stream = cid.stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        ann.remove(&id, "bob").await.expect(204);
        bobs[1].history(&id, "").await.expect_problem(404, "not_found");
        // Side doors are closed too, and make no sound.
        stream.wait_for("member.removed", PATIENCE).await;
        stream.until_quiet(QUIET).await;
        bobs[1].read(&id, 1).await.expect_problem(404, "not_found");
        bobs[0].post(&format!("/v1/conversations/{id}/typing"), &json!({"typing": true})).await.expect_problem(404, "not_found");
        bobs[1].put(&format!("/v1/conversations/{id}/messages/1/reactions/%F0%9F%91%8D"), None).await.expect_problem(404, "not_found");
        assert!(stream.until_quiet(QUIET).await.is_empty());
        ann.invite(&id, "bob").await.expect(201);
        ann.send(&id, "k2", "late").await.expect(201);
        for client in &bobs {
            let seen: Vec<String> = client.whole_history(&id).await.iter().map(|m| m["body"].as_str().unwrap().to_owned()).collect();
            assert!(seen.contains(&"late".to_owned()) && !seen.contains(&"early".to_owned()), "{seen:?}");
        }
    }

    async fn inviting_a_member_again_changes_nothing_and_makes_no_sound(fleet: Fleet) {
        let (ann, bob) = (fleet.client(0, &User::new("ann")), fleet.client(1, &User::new("bob")));
        let id = group(&ann, &[&bob]).await;
        let record = async || {
            let members = bob.get(&format!("/v1/conversations/{id}/members")).await.expect(200);
            members.items().iter().find(|member| member["user_id"] == "ann").cloned().unwrap()
        };
        ann.put(&format!("/v1/conversations/{id}/preferences"), Some(&json!({"muted": true}))).await.expect(200);
        let before = (record().await, ann.conversation(&id).await.json["me"].clone());
        let mut stream = ann.stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        stream.until_quiet(QUIET).await;
        bob.invite(&id, "ann").await.expect(200);
        assert_eq!((record().await, ann.conversation(&id).await.json["me"].clone()), before);
        assert!(stream.until_quiet(QUIET).await.is_empty());
        assert_eq!(bob.conversation(&id).await.json["head_seq"], 0);
    }

    async fn all_are_told_of_the_new_owner_in_the_same_order(fleet: Fleet) {
        let people = ["ann", "bob", "cid"].map(User::new);
        let clients: Vec<Client> = people.iter().enumerate().map(|(number, user)| fleet.client(number % 2, user)).collect();
        let id = group(&clients[0], &[&clients[1], &clients[2]]).await;
        let mut from = Vec::new();
        for client in &clients[1..] {
            from.push(events_head(client).await);
        }
        clients[0].remove(&id, "ann").await.expect(204);
        let seen = clients[2].conversation(&id).await.expect(200).json;
        assert_eq!(seen["owner"], "bob");
        let members = clients[2].get(&format!("/v1/conversations/{id}/members")).await.expect(200);
        let roles: Vec<(&str, &str)> =
            members.items().iter().map(|m| (m["user_id"].as_str().unwrap(), m["role"].as_str().unwrap())).collect();
        assert_eq!(roles, [("bob", "owner"), ("cid", "member")]);
        let mut heard = Vec::new();
        for (client, from) in clients[1..].iter().zip(&from) {
            let mut types = Vec::new();
            eventually("it is told", PATIENCE, async || {
                let events = log_after(client, from).await;
                types = events.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
                types.iter().any(|kind| kind == "owner.changed") && types.iter().any(|kind| kind == "member.left")
            })
            .await;
            heard.push(types);
        }
        assert_eq!(heard[0], heard[1]);
    }

    async fn pages_over_lists_that_move_have_no_hole_and_no_repeat(fleet: Fleet) {
        let (anns, bob) = (both(&fleet, &User::new("ann")), fleet.client(1, &User::new("bob")));
        let mut ids = Vec::new();
        for n in 0..12 {
            let id = anns[0].create_group(&format!("group {n}"), &["bob"]).await;
            anns[0].send(&id, "first", "hi").await.expect(201);
            ids.push(id);
        }
        let busy = &ids[0];
        for n in 0..60 {
            anns[0].send(busy, &format!("k{n}"), "hi").await.expect(201);
        }
        let (mut seqs, mut before, mut more) = (Vec::new(), 62_u64, 0);
        loop {
            let page = bob.history(busy, &format!("before={before}&limit=20")).await.expect(200);
            let part: Vec<u64> = page.items().iter().map(|m| m["seq"].as_u64().unwrap()).collect();
            seqs.splice(0..0, part.iter().copied());
            if page.json["has_more_before"] == false {
                break;
            }
            before = part[0];
            for _ in 0..10 {
                more += 1;
                anns[more % 2].send(busy, &format!("more{more}"), "hi").await.expect(201);
            }
        }
        assert_eq!(seqs, (1..=61).collect::<Vec<_>>());

        eventually("all are in the list", PATIENCE, async || bob.conversations().await.items().len() == 12).await;
        let (mut seen, mut cursor, mut from) = (Vec::new(), None::<String>, String::new());
        loop {
            let query = cursor.as_ref().map_or_else(String::new, |cursor| format!("&cursor={cursor}"));
            let page = bob.get(&format!("/v1/conversations?limit=5{query}")).await.expect(200);
            if from.is_empty() {
                page.json["events_head"].as_str().unwrap().clone_into(&mut from);
            }
            seen.extend(page.items().iter().map(|item| item["id"].as_str().unwrap().to_owned()));
            match page.json["next_cursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => break,
            }
            // Some of those that are not listed yet move up.
            anns[0].send(&ids[seen.len() / 5], &format!("up{}", seen.len()), "hi").await.expect(201);
        }
        let each: BTreeSet<&String> = seen.iter().collect();
        assert_eq!(each.len(), seen.len(), "none twice: {seen:?}");
        eventually("what moved up is in the events", PATIENCE, async || {
            let moved = messages_in(&log_after(&bob, &from).await);
            ids.iter().all(|id| seen.contains(id) || moved.iter().any(|message| message["conversation_id"] == **id))
        })
        .await;
    }

    async fn changes_of_several_conversations_come_once_each(fleet: Fleet) {
        let (anns, bob) = (both(&fleet, &User::new("ann")), fleet.client(1, &User::new("bob")));
        let from = events_head(&bob).await;
        let mut expected = BTreeMap::new();
        for (n, count) in [120_u64, 1, 1].into_iter().enumerate() {
            let id = anns[0].create_group(&format!("group {n}"), &["bob"]).await;
            for k in 0..count {
                anns[n % 2].send(&id, &format!("k{k}"), "hi").await.expect(201);
            }
            expected.insert(id, (1..=count).collect::<Vec<u64>>());
        }
        for (id, seqs) in &expected {
            let (mut found, mut since) = (Vec::new(), 0);
            loop {
                let page = bob.history(id, &format!("since_rev={since}&limit=50")).await.expect(200);
                found.extend(page.items().iter().map(|m| m["seq"].as_u64().unwrap()));
                since = page.json["next_rev"].as_u64().unwrap();
                if page.json["has_more"] == false {
                    break;
                }
            }
            assert_eq!(found, *seqs);
        }
        let mut told = BTreeMap::<String, Vec<u64>>::new();
        eventually("all is polled", PATIENCE, async || {
            told.clear();
            for message in messages_in(&log_after(&bob, &from).await) {
                told.entry(message["conversation_id"].as_str().unwrap().to_owned()).or_default().push(message["seq"].as_u64().unwrap());
            }
            told.values().map(Vec::len).sum::<usize>() >= 122
        })
        .await;
        assert_eq!(told, expected);
    }

    async fn what_the_archive_would_refuse_is_refused_at_the_door(fleet: Fleet) {
        let (ann, service) = (fleet.client(0, &User::new("ann")), fleet.client(1, &User::service()));
        let id = ann.create_group("talk", &["bob"]).await;
        let nul = "a\u{0}b";
        let messages = format!("/v1/conversations/{id}/messages");
        let refused: [(Method, &Client, String, Value); 9] = [
            (Method::POST, &ann, "/v1/conversations".into(), json!({"kind": "group", "title": nul, "members": ["bob"]})),
            (Method::POST, &ann, "/v1/conversations".into(), json!({"kind": "group", "members": [nul]})),
            (Method::PATCH, &ann, format!("/v1/conversations/{id}"), json!({"title": nul})),
            (Method::POST, &ann, messages.clone(), json!({"client_id": nul, "body": "x"})),
            (Method::POST, &ann, messages.clone(), json!({"client_id": "n1", "body": nul})),
            (Method::POST, &ann, messages.clone(), json!({"client_id": "n2", "body": "x", "mentions": [nul]})),
            (Method::POST, &ann, messages.clone(), json!({"client_id": "n3", "kind": "share", "share": {"type": "article", "id": nul}})),
            (Method::PUT, &service, "/v1/users/ann".into(), json!({"name": nul})),
            (Method::PUT, &service, "/v1/shared/article/1".into(), json!({"title": nul, "url": "https://a.example"})),
        ];
        for (method, client, path, body) in refused {
            let answer = client.request(method, &path, &[], Some(&body)).await;
            assert!(matches!(answer.status, 400 | 422), "{path} {body}: {} {}", answer.status, answer.text);
        }
        ann.put(&format!("{messages}/1/reactions/%00"), None).await;
        ann.get("/v1/search?q=%00").await.expect(400);
        ann.send(&id, "fine", "a normal one").await.expect(201);
        eventually("the archive has it", Duration::from_secs(100), async || {
            ann.get(&format!("{messages}/by-client-id/fine")).await.json["state"] == "archived"
        })
        .await;
    }
}
