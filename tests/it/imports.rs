//! Old messages come in: in order, once, with their answers, while others talk.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Client, Fleet, PATIENCE, User, eventually, on_both};

/// Two evenings of a busy channel, not in order of time.
const RECORDED: &str = include_str!("../data/irc-two-evenings.ndjson");

pub fn recorded() -> Vec<Value> {
    let lines = RECORDED.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .map(|old| {
            let mut message = json!({"id": format!("irc-{}", old["n"]), "sender": old["sender"], "body": old["body"], "at": old["at"]});
            if !old["reply_to_n"].is_null() {
                message["reply_to"] = json!(format!("irc-{}", old["reply_to_n"]));
            }
            message
        })
        .collect()
}

pub async fn import_lines(client: &Client, conversation: &Value, messages: &[Value]) -> Answer {
    let mut body = json!({"conversation": conversation}).to_string();
    for message in messages {
        body.push('\n');
        body.push_str(&message.to_string());
    }
    let headers = [("content-type", "application/x-ndjson")];
    client.try_request(Method::POST, "/v1/import", &headers, Some(body.into_bytes())).await.unwrap()
}

fn old(id: &str, at: &str, body: &str) -> Value {
    json!({"id": id, "sender": "zoe", "body": body, "at": at})
}

on_both! {
    async fn a_recorded_chat_comes_in_whole_and_once(fleet: Fleet) {
        let (host, ann) = (User::service(), User::new("ann"));
        let (s, s2, a, a2) = (fleet.client(0, &host), fleet.client(1, &host), fleet.client(0, &ann), fleet.client(1, &ann));
        let group = json!({"kind": "group", "key": "irc", "owner": "ann", "members": ["u0001"], "title": "Old evenings"});
        let messages = recorded();
        let mut stream = a2.stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        let first = import_lines(&s, &group, &messages[..1_000]).await;
        // The first thousand answers nothing outside of itself, or says which line does.
        let id = if first.status == 200 { first.json["conversation_id"].as_str().unwrap().to_owned() } else { String::new() };
        let report = import_lines(&s2, &group, &messages).await.expect(200);
        let id = if id.is_empty() { report.json["conversation_id"].as_str().unwrap().to_owned() } else { id };
        assert_eq!(report.json["imported"].as_u64().unwrap() + report.json["skipped"].as_u64().unwrap(), 3_000);
        assert_eq!(report.json["last_seq"], 3_000);
        let imported = stream.wait_for("conversation.imported", PATIENCE).await;
        assert_eq!(imported.data["conversation_id"], *id);

        let history = a.whole_history(&id).await;
        assert_eq!(history.iter().map(|m| m["seq"].as_u64().unwrap()).collect::<Vec<_>>(), (1..=3_000).collect::<Vec<_>>());
        let of_old = |old: &Value| history.iter().find(|m| m["client_id"] == old["id"]).unwrap();
        for message in messages.iter().step_by(37) {
            let new = of_old(message);
            assert_eq!((&new["body"], &new["sender"]), (&message["body"], &message["sender"]));
            match message.get("reply_to") {
                Some(answered) => assert_eq!(new["reply_to"]["seq"], of_old(&json!({"id": answered}))["seq"]),
                None => assert_eq!(new["reply_to"], Value::Null),
            }
        }
        if first.status != 200 {
            let times: Vec<&str> = history.iter().map(|m| m["created_at"].as_str().unwrap()).collect();
            assert!(times.is_sorted(), "in order of time");
        }
        let seen = a.conversation(&id).await.expect(200);
        assert_eq!((seen.json["head_seq"].as_u64(), seen.json["me"]["unread"].as_u64()), (Some(3_000), Some(0)));

        let again = import_lines(&s, &group, &messages).await.expect(200);
        assert_eq!((&again.json["imported"], &again.json["skipped"], &again.json["first_seq"]), (&json!(0), &json!(3_000), &Value::Null));
        assert_eq!(a2.send(&id, "k1", "and on it goes").await.expect(201).seq(), 3_001);
        let known = fleet.client(1, &User::new("u0001")).send_message(&id, &json!({"client_id": "irc-0", "body": "else"})).await;
        known.expect_problem(409, "idempotency_conflict");
        // One event for members, whatever else comes after it.
        let next = stream.wait_for("message.created", PATIENCE).await;
        assert_eq!(next.data["data"]["message"]["seq"], 3_001);
        eventually("what is old is found", PATIENCE, async || {
            let found = a.get("/v1/search?q=macintosh&limit=5").await;
            let other = a.get("/v1/search?q=fstab&limit=5").await;
            !found.items().is_empty() || !other.items().is_empty()
        })
        .await;
    }

    async fn it_goes_above_what_is_being_said(fleet: Fleet) {
        let (host, ann, bob) = (User::service(), User::new("ann"), User::new("bob"));
        let (s, a, b) = (fleet.client(0, &host), fleet.client(0, &ann), fleet.client(1, &bob));
        let group = a.create_group("live", &["bob"]).await;
        a.send(&group, "k1", "now").await.expect(201);
        b.send(&group, "k2", "also now").await.expect(201);
        let talk = async {
            let mut got = Vec::new();
            for n in 0..30 {
                got.push(b.send_until_stored(&group, &format!("b{n}"), "still talking", PATIENCE).await.seq());
            }
            got
        };
        let target = json!({"id": group});
        let messages: Vec<Value> = (0..1_200).map(|n| old(&format!("o{n}"), "2009-01-01T00:00:00Z", "long ago")).collect();
        let (report, mut got) = tokio::join!(import_lines(&s, &target, &messages), talk);
        let report = report.expect(200);
        assert_eq!((&report.json["imported"], &report.json["skipped"]), (&json!(1_200), &json!(0)));
        let history = a.whole_history(&group).await;
        assert_eq!(history.len(), 1_232);
        assert_eq!(history.iter().map(|m| m["seq"].as_u64().unwrap()).collect::<Vec<_>>(), (1..=1_232).collect::<Vec<_>>());
        got.sort_unstable();
        got.dedup();
        assert_eq!(got.len(), 30);
    }

    async fn nothing_comes_into_a_group_that_has_just_ended(fleet: Fleet) {
        let (s, a) = (fleet.client(0, &User::service()), fleet.client(1, &User::new("ann")));
        for _ in 0..5 {
            let id = a.create_group("short", &[]).await;
            a.remove(&id, "ann").await.expect(204);
            import_lines(&s, &json!({"id": id}), &[old("o1", "2009-01-01T00:00:00Z", "late")]).await.expect_problem(410, "dissolved");
        }
    }

    async fn what_cannot_be_accepted_is_named_and_nothing_is_written(fleet: Fleet) {
        let (host, ann) = (User::service(), User::new("ann"));
        let (s, a) = (fleet.client(0, &host), fleet.client(1, &ann));
        let system = json!({"kind": "system", "key": "old", "members": ["ann"]});
        import_lines(&a, &system, &[]).await.expect_problem(403, "forbidden");
        let good = old("o1", "2009-01-01T00:00:00Z", "fine");
        for (bad, field) in [
            (old("o2", "2009-01-01T00:00:00Z", "  "), "lines[3].body"),
            (old("o1", "2009-01-01T00:00:00Z", "twice"), "lines[3].id"),
            (old("o2", "2999-01-01T00:00:00Z", "not yet"), "lines[3].at"),
            (json!({"id": "o2", "sender": "a/b", "body": "x", "at": "2009-01-01T00:00:00Z"}), "lines[3].sender"),
            (json!({"id": "o2", "sender": "zoe", "body": "x"}), "lines[3].at"),
            (json!({"id": "o2", "sender": "zoe", "body": "x", "at": "2009-01-01T00:00:00Z", "reply_to": "gone"}), "lines[3].reply_to"),
        ] {
            let answer = import_lines(&s, &system, &[good.clone(), bad]).await.expect_problem(422, "invalid_field");
            assert_eq!(answer.json["field"], field, "{}", answer.text);
        }
        let unknown = json!({"id": "o2", "sender": "zoe", "body": "x", "at": "2009-01-01T00:00:00Z", "seq": 5});
        import_lines(&s, &system, &[unknown]).await.expect_problem(422, "unknown_field");
        import_lines(&s, &json!({"id": "group:0193c1ef-11aa-7d10-9b1d-0b8f3a6a2c11"}), std::slice::from_ref(&good)).await.expect_problem(404, "not_found");
        if a.conversation("system:old").await.status == 200 {
            assert_eq!(a.conversation("system:old").await.json["head_seq"], 0, "nothing was written");
        }
        let body = json!({"conversation": system, "messages": [good]});
        let report = s.post("/v1/import", &body).await.expect(200);
        assert_eq!((&report.json["imported"], &report.json["conversation_id"]), (&json!(1), &json!("system:old")));
        assert_eq!(a.history("system:old", "").await.expect(200).items()[0]["created_at"], "2009-01-01T00:00:00.000Z");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_was_cut_off_goes_on_where_it_ended() {
    let fleet = Fleet::start(crate::harness::RedisKind::Single, 2, 1).await;
    let (s, a) = (fleet.client(0, &User::service()), fleet.client(1, &User::new("ann")));
    let group = a.create_group("cut", &["bob"]).await;
    a.send(&group, "k1", "first").await.expect(201);
    let messages: Vec<Value> = (0..1_200).map(|n| old(&format!("o{n:04}"), "2009-01-01T00:00:00Z", "long ago")).collect();
    let mut connection = fleet.database().connect().await;
    sqlx::raw_sql("ALTER TABLE messages ADD CONSTRAINT no_further CHECK (seq <> 800)").execute(&mut connection).await.unwrap();
    import_lines(&s, &json!({"id": group}), &messages).await.expect_problem(503, "unavailable");
    sqlx::raw_sql("ALTER TABLE messages DROP CONSTRAINT no_further").execute(&mut connection).await.unwrap();
    assert_eq!(a.send(&group, "k2", "meanwhile").await.expect(201).seq(), 502, "above the chunk that stands");
    let report = import_lines(&s, &json!({"id": group}), &messages).await.expect(200);
    assert_eq!((&report.json["imported"], &report.json["skipped"], &report.json["first_seq"]), (&json!(700), &json!(500), &json!(503)));
    assert_eq!(a.send(&group, "k3", "after").await.expect(201).seq(), 1_203);
    let history = a.whole_history(&group).await;
    assert_eq!(history.iter().map(|m| m["seq"].as_u64().unwrap()).collect::<Vec<_>>(), (1..=1_203).collect::<Vec<_>>());
}
