//! Who has read a message: told to its sender, from watermarks, of those who were there.

use seqline::domain::ids::ConversationId;
use serde_json::Value;

use crate::harness::{Answer, Client, Fleet, PATIENCE, User, eventually, on_both, stores};

async fn readers(client: &Client, group: &str, seq: u64) -> Answer {
    client.get(&format!("/v1/conversations/{group}/messages/{seq}/readers")).await
}

fn names(answer: &Answer) -> Vec<&str> {
    let mut names: Vec<&str> = answer.items().iter().map(|item| item["user_id"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(answer.json["count"].as_u64().unwrap(), names.len() as u64);
    names
}

on_both! {
    async fn a_sender_learns_who_has_read(fleet: Fleet) {
        let users: Vec<User> = ["ann", "bob", "cid", "dan", "eve"].into_iter().map(User::new).collect();
        let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|n| fleet.client(n, &users[n]));
        let group = a.create_group("readers", &["bob", "cid"]).await;
        a.send(&group, "k1", "one").await.expect(201);
        a.send(&group, "k2", "two").await.expect(201);
        assert_eq!(readers(&a, &group, 1).await.expect(200).json, serde_json::json!({"count": 0, "items": []}));
        b.read(&group, 1).await.expect(200);
        // Who answers has read what stands before.
        c.send(&group, "k3", "three").await.expect(201);
        a.invite(&group, "dan").await.expect(201);
        d.read(&group, 99).await.expect(200);
        let first = readers(&a, &group, 1).await.expect(200);
        assert_eq!(names(&first), ["bob", "cid"], "neither the sender nor who joined later");
        assert!(first.items().iter().all(|item| item["read_at"].as_str().is_some_and(|at| at.ends_with('Z'))));
        assert_eq!(names(&readers(&a, &group, 2).await.expect(200)), ["cid"]);
        assert_eq!(names(&readers(&c, &group, 3).await.expect(200)), Vec::<&str>::new());
        b.remove(&group, "bob").await.expect(204);
        assert_eq!(names(&readers(&a, &group, 1).await.expect(200)), ["cid"], "who has left is no reader");
        a.invite(&group, "bob").await.expect(201);
        b.read(&group, 99).await.expect(200);
        assert_eq!(names(&readers(&a, &group, 1).await.expect(200)), ["cid"], "the last joining counts");
        readers(&b, &group, 1).await.expect_problem(403, "forbidden");
        readers(&c, &group, 1).await.expect_problem(403, "forbidden");
        readers(&e, &group, 1).await.expect_problem(404, "not_found");
        readers(&a, &group, 99).await.expect_problem(404, "not_found");

        // The same from the archive.
        let hot: Vec<Value> = readers(&a, &group, 2).await.items().clone();
        let looking = stores::open(&fleet.redis_url(), fleet.database().url(), &[]).await;
        eventually("the archive says the same", PATIENCE, async || {
            let id = ConversationId::parse(&group).unwrap();
            looking.archive.readers_of(&id, 2).await.unwrap().iter().any(|(user, _)| user.as_str() == "cid")
                && looking.archive.readers_of(&id, 1).await.unwrap().iter().filter(|(user, _)| user.as_str() != "ann").count() == 1
        })
        .await;
        assert_eq!(hot.len(), 1);
    }
}
