//! The audit of a living system: silent while nothing is wrong, whatever goes on; it says where it stopped and goes on from there; and
//! moderators see one conversation's state.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use seqline::actions::rebuild_redis::rebuild_conversation;
use seqline::domain::audit::Code;
use seqline::domain::ids::ConversationId;
use serde_json::json;
use sqlx::PgConnection;

use crate::audit_scene::{People, audit, beside, codes, command, cool, run, settled};
use crate::crowd::{Load, both};
use crate::harness::fleet::SHARDS;
use crate::harness::pictures::PictureFleet;
use crate::harness::{Fleet, PATIENCE, RedisKind, User, eventually, on_both};

on_both! {
    async fn nothing_is_found_while_everything_is_well(fleet: PictureFleet) {
        let stores = beside(&fleet).await;
        let people = People::of(&fleet);
        let (one, two) = (people.talk(&[]).await, people.talk(&["dan"]).await);
        let service = fleet.client(0, &User::service());
        service.post("/v1/conversations", &json!({"kind": "system", "key": "news", "members": ["ann", "bob"]})).await.expect(201);
        service.send("system:news", "n1", "Good news").await.expect(201);
        people.bob.send_to_peer("cid", "p1", "hello").await.expect(201);
        people.cid.put("/v1/blocks/bob", None).await.expect(200);
        let (dan, left) = (fleet.client(0, &User::new("dan")), two.to_string());
        dan.remove(&left, "dan").await.expect(204);
        people.ann.remove(&left, "ann").await.expect(204);
        people.bob.invite(&left, "dan").await.expect(201);
        people.cid.put(&format!("/v1/conversations/{left}/preferences"), Some(&json!({"muted": true, "cleared_to": 3}))).await.expect(200);
        // A message that met another one on its number stands on another one now.
        let foreign = "INSERT INTO messages (conv_id, seq, id, sender, kind, body, rev, created_at_ms)
                       VALUES ($1, 10, gen_random_uuid(), 'eve', 'text', 'foreign', 1, 1)";
        sqlx::query(foreign).bind(one.as_str()).execute(&mut fleet.database().connect().await).await.unwrap();
        people.ann.send(one.as_str(), "k10", "ten words").await.expect(201);
        people.bob.send(one.as_str(), "k12", "twelve words").await.expect(201);
        settled(&fleet, &stores).await;
        assert_eq!(audit(&stores).await, []);
        cool(&stores, &one).await;

        // Writers and readers at both gateways, and one conversation that goes and comes back.
        let busy: Vec<String> = [one.to_string(), people.talk(&[]).await.to_string(), people.talk(&[]).await.to_string()].into();
        let writers = ["ann", "bob", "cid"].map(|name| both(&fleet, &User::new(name))).into();
        let load = Load::start(writers, &busy, 150);
        let (ann, group) = (people.ann.clone(), busy[1].clone());
        let changes = tokio::spawn(async move {
            for n in 0..40 {
                ann.invite(&group, &format!("guest-{}", n % 3)).await.expect(201);
                ann.put(&format!("/v1/conversations/{group}/messages/2/reactions/%F0%9F%91%8D"), None).await.expect(200);
                ann.send_message(&group, &json!({"client_id": format!("c{n}"), "body": "hey", "mentions": ["cid"], "reply_to": 2})).await.expect(201);
                ann.delete(&format!("/v1/conversations/{group}/messages/2/reactions/%F0%9F%91%8D")).await.expect(200);
                ann.remove(&group, &format!("guest-{}", n % 3)).await.expect(204);
            }
        });
        rebuild_conversation(&stores, &ConversationId::parse(&busy[2]).unwrap(), PATIENCE).await.unwrap();
        let mut looks = 0;
        while !changes.is_finished() || looks == 0 {
            assert_eq!(audit(&stores).await, []);
            looks += 1;
        }
        changes.await.unwrap();
        load.finish().await;
        assert_eq!(audit(&stores).await, []);
        eventually("Cid is erased", PATIENCE, async || service.delete("/v1/users/cid").await.status == 200).await;
        settled(&fleet, &stores).await;
        let output = run(&fleet, &["--json"]).await;
        let (found, summary) = codes(&output);
        assert_eq!((output.status.code(), found), (Some(0), vec![]), "{output:?}");
        assert!(summary["complete"] == json!(true) && summary["conversations"].as_u64() >= Some(6), "{summary}");
        assert!(summary["messages"].as_u64() >= Some(450) && summary["users"].as_u64() >= Some(4), "{summary}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moderators_see_the_state_of_a_conversation() {
    let fleet = PictureFleet::with_workers(RedisKind::Single, 1, &[]).await;
    let stores = beside(&fleet).await;
    let people = People::of(&fleet);
    let id = people.talk(&[]).await;
    settled(&fleet, &stores).await;
    let admin = fleet.client(0, &User::with_claims("mia", &json!({"scope": "admin"})));
    let path = format!("/v1/audit/conversations/{id}");
    let state = admin.get(&path).await.expect(200).json;
    let good = json!({"conversation_id": id.as_str(), "head_seq": 9, "archived_to": 9, "contiguous": true, "duplicates": [], "voids": [],
        "backlog": 0, "findings": []});
    assert_eq!(state, good);
    people.ann.get(&path).await.expect_problem(403, "forbidden");
    admin.get("/v1/audit/conversations/group:0193c1ef-11aa-7d10-9b1d-0b8f3a6a2c11").await.expect_problem(404, "not_found");

    let mut connection = fleet.database().connect().await;
    sqlx::query("DELETE FROM messages WHERE conv_id = $1 AND seq = 3").bind(id.as_str()).execute(&mut connection).await.unwrap();
    sqlx::query("UPDATE messages SET id = gen_random_uuid() WHERE conv_id = $1 AND seq = 2")
        .bind(id.as_str())
        .execute(&mut connection)
        .await
        .unwrap();
    let state = admin.get(&path).await.expect(200).json;
    assert_eq!((&state["contiguous"], &state["duplicates"]), (&json!(false), &json!([2])), "{state}");
    let found: Vec<&str> = state["findings"].as_array().unwrap().iter().map(|f| f["code"].as_str().unwrap()).collect();
    assert!(found.contains(&"hole") && found.contains(&"number-twice"), "{state}");
    let one = run(&fleet, &["--json", "--conversation", id.as_str()]).await;
    assert_eq!(one.status.code(), Some(1), "{one:?}");
    assert_eq!(codes(&one).0.len(), found.len(), "{one:?}");
    let none = run(&fleet, &["--conversation", "group:0193c1ef-11aa-7d10-9b1d-0b8f3a6a2c11"]).await;
    assert_eq!(none.status.code(), Some(2), "a mistyped id is not a sound conversation: {none:?}");
}

/// Empty conversations of the host application, as many as fill a page of the audit and more.
async fn fill(connection: &mut PgConnection) -> Vec<String> {
    let ids: Vec<String> = (0..150).map(|n| format!("system:many-{n:03}")).collect();
    for id in &ids {
        let shard = ConversationId::parse(id).unwrap().shard(SHARDS);
        sqlx::query(
            "INSERT INTO conversations (id, shard, kind, facts_rev, created_at_ms, head_seq, rev, updated_at_ms)
             VALUES ($1, $2, 'system', 1, 1, 0, 1, 1)",
        )
        .bind(id)
        .bind(i32::from(shard.0))
        .execute(&mut *connection)
        .await
        .unwrap();
    }
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_that_was_stopped_says_where_to_go_on() {
    let fleet = Fleet::start(RedisKind::Single, 1, 1).await;
    let stores = beside(&fleet).await;
    settled(&fleet, &stores).await;
    let mut connection = fleet.database().connect().await;
    let ids = fill(&mut connection).await;
    let spoil = |id: String| sqlx::query("UPDATE conversations SET owner = 'eve' WHERE id = $1").bind(id);
    spoil(ids[1].clone()).execute(&mut connection).await.unwrap();
    spoil(ids[140].clone()).execute(&mut connection).await.unwrap();
    let mut command = command(&fleet, &["--json"]);
    let (first, output) = tokio::task::spawn_blocking(move || {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        // The first page is done and told; the second one holds something that is looked at for seconds.
        let pid = i32::try_from(child.id()).unwrap();
        // SAFETY: sends a signal to the child, which is ours and not yet waited for.
        unsafe { libc::kill(pid, libc::SIGINT) };
        (line, child.wait_with_output().unwrap())
    })
    .await
    .unwrap();
    assert!(first.contains("owner-mismatch") && first.contains(&ids[1]), "{first} {output:?}");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let (more, summary) = codes(&output);
    assert_eq!((more.len(), &summary["complete"]), (0, &json!(false)), "{output:?}");
    let place = summary["after"].as_str().unwrap().to_owned();
    assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("--after {place}")), "{output:?}");
    assert!(place > ids[1] && place < ids[140], "{place}");

    let rest = run(&fleet, &["--json", "--after", &place]).await;
    let text = String::from_utf8_lossy(&rest.stdout).into_owned();
    assert_eq!((rest.status.code(), codes(&rest).0.len()), (Some(1), 1), "{text}");
    assert!(text.contains(&ids[140]), "{text}");
    // What cannot be done at all.
    for args in [["--after", "nowhere"], ["--conversation", "nowhere"], ["--shards", "9"]] {
        let output = run(&fleet, &args).await;
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{output:?}");
    }
    let words = run(&fleet, &["--conversation", &ids[1]]).await;
    let text = String::from_utf8(words.stdout).unwrap();
    assert!(text.starts_with(Code::OwnerMismatch.as_str()) && text.contains(Code::OwnerMismatch.what_to_do()), "{text}");
}
