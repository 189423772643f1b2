//! Whole conversations come out: all of it, to the host application and to moderators alone, up to one moment.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::harness::{Client, Fleet, User, on_both};
use crate::imports::{import_lines, recorded};

/// Lines of an export; the first and the last have been proven to be what they have to be.
struct Export {
    conversation: Value,
    messages: Vec<Value>,
    end: Value,
}

fn moderator() -> User {
    User::with_claims("mod", &json!({"scope": "admin"}))
}

async fn export(client: &Client, conversation: &str, query: &str) -> Export {
    let answer = client.get(&format!("/v1/export/conversations/{conversation}{query}")).await.expect(200);
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    assert!(answer.text.ends_with('\n'));
    let mut lines: Vec<Value> = answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let end = lines.pop().unwrap()["end"].take();
    let conversation = lines.remove(0)["conversation"].take();
    assert_eq!(end["messages"], lines.len(), "the end says how many there were");
    Export { conversation, messages: lines, end }
}

/// Messages in the form in which they are brought in.
fn as_imported(messages: &[Value]) -> Vec<Value> {
    let old_ids: HashMap<u64, &Value> = messages.iter().map(|m| (m["seq"].as_u64().unwrap(), &m["client_id"])).collect();
    let old = |message: &Value| {
        let mut old =
            json!({"id": message["client_id"], "sender": message["sender"], "body": message["body"], "at": message["created_at"]});
        if !message["reply_to"].is_null() {
            old["reply_to"] = old_ids[&message["reply_to"]["seq"].as_u64().unwrap()].clone();
        }
        old
    };
    messages.iter().map(old).collect()
}

on_both! {
    async fn what_was_brought_in_comes_out_and_goes_in_again_as_it_was(fleet: Fleet) {
        let (host, moderator) = (User::service(), moderator());
        let (s, s2, m) = (fleet.client(0, &host), fleet.client(1, &host), fleet.client(1, &moderator));
        let group = |key: &str| json!({"kind": "group", "key": key, "owner": "ann", "members": ["u0001"], "title": "Old evenings"});
        let messages = recorded();
        let id = import_lines(&s, &group("irc"), &messages).await.expect(200).json["conversation_id"].as_str().unwrap().to_owned();
        let first = export(&s2, &id, "").await;
        assert_eq!(first.messages.iter().map(|m| m["seq"].as_u64().unwrap()).collect::<Vec<_>>(), (1..=3_000).collect::<Vec<_>>());
        assert_eq!(first.end, json!({"messages": 3_000, "head_seq": 3_000, "voids": []}));
        let mut expected = messages.clone();
        let time = |old: &Value| old["at"].as_str().unwrap().trim_end_matches('Z').split('.').next().unwrap().to_owned();
        expected.sort_by_key(|old| (time(old), old["id"].as_str().unwrap().to_owned()));
        let place = |old: &Value| json!([old["id"], old["sender"], old["body"], time(old), old.get("reply_to")]);
        assert_eq!(as_imported(&first.messages).iter().map(place).collect::<Vec<_>>(), expected.iter().map(place).collect::<Vec<_>>());

        let copy = import_lines(&s2, &group("copy"), &as_imported(&first.messages)).await.expect(200);
        let second = export(&m, copy.json["conversation_id"].as_str().unwrap(), "").await;
        assert_eq!(as_imported(&second.messages), as_imported(&first.messages), "as it was");
    }

    async fn everything_is_in_it_and_nobody_elses_business(fleet: Fleet) {
        let (host, moderator, ann, bob) = (User::service(), moderator(), User::new("ann"), User::new("bob"));
        let (s, m) = (fleet.client(0, &host), fleet.client(1, &moderator));
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
        let made = json!({"kind": "group", "title": "talk", "members": ["zoe"], "history": "from_join"});
        let id = a.post("/v1/conversations", &made).await.expect(201).json["id"].as_str().unwrap().to_owned();
        a.send(&id, "k1", "before bob").await.expect(201);
        a.invite(&id, "bob").await.expect(201);
        let said = b.send(&id, "k2", "helo").await.expect(201).seq();
        b.patch(&format!("/v1/conversations/{id}/messages/{said}"), &json!({"body": "hello"})).await.expect(200);
        a.put(&format!("/v1/conversations/{id}/messages/{said}/reactions/👍"), None).await.expect(200);
        let gone = a.send(&id, "k3", "a slip").await.expect(201).seq();
        a.delete(&format!("/v1/conversations/{id}/messages/{gone}")).await.expect(200);
        let answer = a.send_message(&id, &json!({"client_id": "k4", "body": "so", "reply_to": 1})).await.expect(201).seq();

        for reader in [&s, &m] {
            let all = export(reader, &id, "").await;
            assert_eq!(all.messages.iter().map(|m| m["seq"].as_u64().unwrap()).collect::<Vec<_>>(), (1..=answer).collect::<Vec<_>>());
            let at = |seq: u64| &all.messages[usize::try_from(seq).unwrap() - 1];
            assert_eq!((&at(1)["body"], &at(2)["kind"], &at(2)["data"]["type"]), (&json!("before bob"), &json!("system"), &json!("member.joined")));
            assert_eq!((&at(said)["body"], &at(said)["reactions"]), (&json!("hello"), &json!([{"emoji": "👍", "count": 1}])));
            assert!(at(said)["edited_at"].is_string() && at(gone)["deleted_at"].is_string());
            assert_eq!(at(gone)["body"], "");
            assert_eq!(at(answer)["reply_to"]["preview"], "before bob", "whatever one member may see");
            let facts = &all.conversation;
            assert_eq!((&facts["id"], &facts["owner"], &facts["history"], &facts["dissolved"]), (&json!(id), &json!("ann"), &json!("from_join"), &json!(false)));
            let members: Vec<&str> = facts["members"].as_array().unwrap().iter().map(|m| m["user_id"].as_str().unwrap()).collect();
            assert_eq!(members, ["ann", "bob", "zoe"]);
            let rest = export(reader, &id, &format!("?after={said}")).await;
            assert_eq!(rest.messages, all.messages[usize::try_from(said).unwrap()..], "it goes on where it was cut off");
        }
        let path = format!("/v1/export/conversations/{id}");
        a.get(&path).await.expect_problem(403, "forbidden");
        a.get("/v1/export/conversations/group:0193c1ef-11aa-7d10-9b1d-0b8f3a6a2c11").await.expect_problem(403, "forbidden");
        s.get("/v1/export/conversations/group:0193c1ef-11aa-7d10-9b1d-0b8f3a6a2c11").await.expect_problem(404, "not_found");
        s.get(&format!("{path}?after=-1")).await.expect(400);
        s.request(reqwest::Method::GET, &path, &[("accept", "application/json")], None).await.expect_problem(406, "not_acceptable");

        for user in [&b, &fleet.client(0, &User::new("zoe")), &a] {
            user.remove(&id, &user.user().id).await.expect(204);
        }
        let ended = export(&s, &id, "").await;
        assert_eq!((&ended.conversation["dissolved"], ended.conversation["members"].as_array().unwrap().len()), (&json!(true), 0));
        assert_eq!(ended.messages[0]["body"], "before bob");
    }

    async fn it_ends_at_the_head_of_the_moment_it_began(fleet: Fleet) {
        let (s, a, b) = (fleet.client(0, &User::service()), fleet.client(0, &User::new("ann")), fleet.client(1, &User::new("bob")));
        let id = a.create_group("talk", &["bob"]).await;
        let talk = async {
            for n in 0..300 {
                b.send(&id, &format!("k{n}"), "on and on").await.expect(201);
            }
        };
        let look = async {
            let mut last = 0;
            while last < 200 {
                let seen = export(&s, &id, "").await;
                let head = seen.end["head_seq"].as_u64().unwrap();
                assert_eq!(seen.messages.iter().map(|m| m["seq"].as_u64().unwrap()).collect::<Vec<_>>(), (1..=head).collect::<Vec<_>>());
                assert!(head >= last);
                last = head;
            }
        };
        tokio::join!(talk, look);
    }
}
