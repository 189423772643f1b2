//! `seqline rebuild`: what Redis holds is made anew from Postgres while everybody goes on, and nobody is told anything else afterwards.

use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use seqline::domain::ids::ConversationId;
use serde_json::{Value, json};

use crate::harness::fleet::{PARTITIONS, SHARDS};
use crate::harness::{Client, Event, EventStream, Fleet, PATIENCE, RedisKind, User, eventually, on_both, pair, stores};
use crate::scene;

async fn rebuild(fleet: &Fleet, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seqline"));
    command.env_clear().arg("rebuild").args(more);
    command.env("SEQLINE_REDIS_URL", fleet.redis_url()).env("SEQLINE_DATABASE_URL", fleet.database().url());
    command.env("SEQLINE_SHARDS", SHARDS.to_string()).env("SEQLINE_PARTITIONS", PARTITIONS.to_string());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[track_caller]
fn ended(output: &Output, code: i32, words: &str) {
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(words), "{said}");
}

/// What a user is answered, but for places in a log that is begun anew, and for when a send moved one's own position: that is one gateway's
/// clock in Redis and the message's time in Postgres.
async fn answers(client: &Client) -> Value {
    let mut all = BTreeMap::new();
    let list = client.conversations().await.expect(200);
    for item in list.items() {
        let id = item["id"].as_str().unwrap();
        all.insert(format!("{id} itself"), client.conversation(id).await.json);
        all.insert(format!("{id} messages"), json!(client.whole_history(id).await));
        all.insert(format!("{id} changes"), client.history(id, "since_rev=0&limit=200").await.json);
        all.insert(format!("{id} members"), client.get(&format!("/v1/conversations/{id}/members?limit=200")).await.json);
        all.insert(format!("{id} sent"), client.get(&format!("/v1/conversations/{id}/messages/by-client-id/k1")).await.json);
    }
    all.insert("list".into(), json!(list.items()));
    all.insert("unread".into(), client.get("/v1/unread").await.json);
    all.insert("found".into(), client.get("/v1/search?q=harbour").await.json);
    let mut all = json!(all);
    forget_read_at(&mut all);
    all
}

fn forget_read_at(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("read_at");
            fields.values_mut().for_each(forget_read_at);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_read_at),
        _ => {}
    }
}

/// Conversations with a little of everything, archived and found by the search.
async fn a_past(fleet: &Fleet) -> (Client, Client, String) {
    let (a, b) = (fleet.client(0, &User::new("ann")), fleet.client(1, &User::new("bob")));
    let group = a.create_group("lake", &["bob", "cid"]).await;
    let at = |seq: u64| format!("/v1/conversations/{group}/messages/{seq}");
    for n in 1..=6 {
        a.send(&group, &format!("k{n}"), &format!("harbour {n}")).await.expect(201);
    }
    b.send_message(&group, &json!({"client_id": "k1", "body": "harbour?", "reply_to": 2, "mentions": ["ann", "cid"]})).await.expect(201);
    a.patch(&at(3), &json!({"body": "harbour, at noon"})).await.expect(200);
    assert!(a.delete(&at(4)).await.status < 300);
    b.put(&format!("{}/reactions/%F0%9F%91%8D", at(1)), None).await.expect(200);
    b.invite(&group, "dan").await;
    b.remove(&group, "bob").await;
    a.invite(&group, "bob").await;
    a.send(&group, "k7", "welcome back").await.expect(201);
    b.read(&group, 8).await;
    a.send_to_peer("bob", "k1", "hello").await.expect(201);
    b.send_to_peer("ann", "k1", "hello to you").await.expect(201);
    b.create_group("empty", &["ann"]).await;
    let state = format!("/v1/conversations/{}/messages/by-client-id/k1", pair("ann", "bob"));
    eventually("all is archived and found", PATIENCE, async || {
        b.get(&state).await.json["state"] == "archived" && b.get("/v1/search?q=harbour").await.expect(200).items().len() == 6
    })
    .await;
    (a, b, group)
}

async fn listening(client: &Client) -> EventStream {
    let mut stream = client.stream().open().await;
    stream.wait_for("hello", PATIENCE).await;
    stream
}

fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

on_both! {
    async fn everybody_is_answered_as_before_and_told_once_to_read_again(fleet: Fleet) {
        let (a, b, group) = a_past(&fleet).await;
        let users = [User::new("ann"), User::new("bob"), User::new("cid")];
        let mut before = Vec::new();
        for (user, gateway) in users.iter().flat_map(|user| [(user, 0), (user, 1)]) {
            before.push(answers(&fleet.client(gateway, user)).await);
        }
        let mut streams = vec![listening(&a).await, listening(&b).await, listening(&fleet.client(1, &users[0])).await];
        // What Redis holds has gone wrong, in a way that its own steps would never find.
        let own = stores::open(&fleet.redis_url(), fleet.database().url(), &[]).await;
        let keys = own.keys.conversation(&ConversationId::parse(&group).unwrap());
        scene::redis(&own, "ZADD", &[&keys.uncounted, "6", "6"]).await;
        scene::redis(&own, "HDEL", &[&keys.window, "2"]).await;
        scene::redis(&own, "HDEL", &[&keys.marks, "bob"]).await;
        assert_ne!(answers(&b).await, before[3]);

        ended(&rebuild(&fleet, &[]).await, 0, "Rebuilt from Postgres: 3 conversations");
        for (number, (user, gateway)) in users.iter().flat_map(|user| [(user, 0), (user, 1)]).enumerate() {
            let now = answers(&fleet.client(gateway, user)).await;
            for (what, answer) in before[number].as_object().unwrap() {
                assert_eq!(&now[what], answer, "{what} of {} at {gateway}", user.id);
            }
        }
        for stream in &mut streams {
            assert_eq!(stream.wait_for("resync", PATIENCE).await.data["reason"], "lost");
        }
        let sent = a.send(&group, "k8", "after").await.expect(201);
        for stream in &mut streams {
            let event = stream.next_event(PATIENCE).await.unwrap();
            assert_eq!((event.name.as_str(), &event.data["data"]["message"]["id"]), ("message.created", &sent.json["id"]));
            let more = stream.until_quiet(Duration::from_millis(700)).await;
            assert!(!names(&more).contains(&"resync"), "told once: {more:?}");
        }
        // A key from before is still the same message.
        assert_eq!(b.send_to_peer("ann", "k1", "hello to you").await.expect(200).seq(), 2);
        assert_eq!(fleet.client(1, a.user()).send(&group, "k1", "harbour 1").await.expect(200).seq(), 1);
    }

    async fn of_one_conversation_nobody_sees_anything(fleet: Fleet) {
        let (a, b, group) = a_past(&fleet).await;
        let before = [answers(&a).await, answers(&b).await];
        let mut streams = [listening(&a).await, listening(&b).await];
        let own = stores::open(&fleet.redis_url(), fleet.database().url(), &[]).await;
        let keys = own.keys.conversation(&ConversationId::parse(&group).unwrap());
        scene::redis(&own, "HDEL", &[&keys.window, "5"]).await;
        for _ in 0..2 {
            ended(&rebuild(&fleet, &["--conversation", &group]).await, 0, "is rebuilt");
        }
        assert_eq!([answers(&a).await, answers(&b).await], before);
        for stream in &mut streams {
            assert_eq!(names(&stream.until_quiet(Duration::from_millis(700)).await), Vec::<&str>::new());
        }
        let sent = b.send(&group, "k8", "after").await.expect(201);
        for stream in &mut streams {
            assert_eq!(stream.wait_for("message.created", PATIENCE).await.data["data"]["message"]["id"], sent.json["id"]);
        }
    }

    async fn while_everybody_writes_nothing_is_lost_or_doubled(fleet: Fleet) {
        let a = fleet.client(0, &User::new("ann"));
        let groups = [a.create_group("one", &["bob"]).await, a.create_group("two", &["bob"]).await];
        let stream = listening(&fleet.client(1, &User::new("bob"))).await;
        let (stop, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
        let writing = futures_util::future::join_all((0..4).map(|writer| {
            let client = fleet.client(writer, &User::new(if writer < 2 { "ann" } else { "bob" }));
            let (group, stop, sent) = (&groups[writer % 2], &stop, &sent);
            async move {
                let mut stored = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let key = format!("w{writer}-{}", stored.len());
                    let answer = client.send_until_stored(group, &key, "on and on", PATIENCE).await;
                    sent.fetch_add(1, Ordering::Relaxed);
                    stored.push((group, answer.seq(), answer.json["id"].clone()));
                }
                stored
            }
        }));
        let rebuilding = async {
            eventually("they write", PATIENCE, async || sent.load(Ordering::Relaxed) > 20).await;
            for _ in 0..3 {
                ended(&rebuild(&fleet, &[]).await, 0, "Rebuilt from Postgres");
            }
            stop.store(true, Ordering::Relaxed);
        };
        // One that takes what it gets: for one that does not, a resync stands for all that is rebuilt until it takes it.
        let hearing = stream.hear_until(|| stop.load(Ordering::Relaxed), Duration::from_secs(2));
        let (stored, (), heard) = tokio::join!(writing, rebuilding, hearing);
        let stored: Vec<_> = stored.into_iter().flatten().collect();
        let mut count = 0;
        for (number, group) in groups.iter().enumerate() {
            let shown = fleet.client(number, a.user()).whole_history(group).await;
            let wanted: BTreeMap<u64, Value> =
                stored.iter().filter(|(at, ..)| *at == group).map(|(_, seq, id)| (*seq, id.clone())).collect();
            let got: BTreeMap<u64, Value> = shown.iter().map(|m| (m["seq"].as_u64().unwrap(), m["id"].clone())).collect();
            assert_eq!(got, wanted);
            assert_eq!(got.keys().copied().collect::<Vec<_>>(), (1..=shown.len() as u64).collect::<Vec<_>>(), "no gap");
            count += shown.len();
        }
        assert_eq!(count, stored.len());
        // The stream of somebody who listened all the time: each message once, in order, but for what a resync stands for.
        let mut last: BTreeMap<String, u64> = BTreeMap::new();
        let mut resyncs = 0;
        for event in heard {
            match event.name.as_str() {
                "resync" => resyncs += 1,
                "message.created" => {
                    let (group, seq) = (event.data["conversation_id"].as_str().unwrap(), event.data["data"]["message"]["seq"].as_u64().unwrap());
                    let before = last.insert(group.to_owned(), seq).unwrap_or(0);
                    assert!(seq > before, "{seq} after {before}");
                }
                _ => {}
            }
        }
        assert_eq!(resyncs, 3, "one each time");
    }

    async fn what_is_not_in_postgres_yet_stops_it(kind: RedisKind) {
        let mut fleet = Fleet::start(kind, 2, 0).await;
        let (a, b) = (fleet.client(0, &User::new("ann")), fleet.client(1, &User::new("bob")));
        let group = a.create_group("lake", &["bob"]).await;
        let sent = a.send(&group, "k1", "not yet").await.expect(201);
        ended(&rebuild(&fleet, &["--wait", "1"]).await, 1, "Nothing was changed");
        ended(&rebuild(&fleet, &["--wait", "1", "--conversation", &group]).await, 1, "are not in Postgres");
        assert_eq!(b.history(&group, "").await.expect(200).items()[0]["id"], sent.json["id"]);
        assert_eq!(b.send(&group, "k2", "it takes messages").await.expect(201).seq(), 2);
        ended(&rebuild(&fleet, &["--conversation", "lake"]).await, 2, "no conversation's id");
        ended(&rebuild(&fleet, &["--from-shard", "9"]).await, 2, "there are 8 shards");
        fleet.add_worker().await;
        ended(&rebuild(&fleet, &[]).await, 0, "Rebuilt from Postgres: 1 conversations; 2 users' logs");
        // With nothing new in the logs nobody is told again, and it can begin where it was cut off.
        ended(&rebuild(&fleet, &["--from-shard", "8"]).await, 0, "0 conversations; 0 users' logs");
        ended(&rebuild(&fleet, &["--conversation", "system:nowhere"]).await, 1, "Postgres knows no conversation");
        assert_eq!(a.whole_history(&group).await.len(), 2);
    }
}
