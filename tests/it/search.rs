//! Search: what is found, what is shown, in which order, and what is not.

use std::collections::BTreeSet;

use seqline::domain::conversation::History;
use seqline::domain::ids::{ConversationId, Seq};
use seqline::domain::message::Message;
use seqline::domain::search_terms::SearchText;
use seqline::postgres::search::FoundAt;
use seqline::postgres::{Archive, ArchiveBatch};
use serde_json::{Value, json};

use crate::harness::client::path_segment;
use crate::harness::{Answer, Client, Fleet, PATIENCE, PrivateRedis, RedisKind, TestDatabase, User, eventually, on_both};
use crate::postgres_database::{batch_of, conversation, conversation_row, database, member_row, text, user};

async fn search(client: &Client, q: &str, more: &str) -> Answer {
    client.get(&format!("/v1/search?q={}{more}", path_segment(q))).await
}

/// The bodies found, the newest first.
async fn bodies(client: &Client, q: &str) -> Vec<String> {
    let answer = search(client, q, "").await.expect(200);
    assert_eq!(answer.json["next_cursor"], json!(null), "{}", answer.text);
    answer.items().iter().map(|item| item["body"].as_str().unwrap().to_owned()).collect()
}

async fn found(client: &Client, q: &str, count: usize) {
    eventually("what was archived is found", PATIENCE, async || search(client, q, "&limit=200").await.items().len() == count).await;
}

on_both! {
    async fn words_of_any_script_are_found(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
        let group = a.create_group("words", &["bob"]).await;
        let said = [
            "Hello, World", "the Café is closed", "今天天气好", "气象台说今天下雨", "昨日ラーメンを食べた", "ｱﾆﾒ and ＭＡＮＧＡ", "party 🎉👍🏽 tonight",
            "100% of a_b \\ c's \"x\"", "1000 ways", "초등학교에서 만나요", "STRASSE", "it’s late; DROP TABLE messages",
        ];
        for (n, body) in said.iter().enumerate() {
            a.send(&group, &format!("k{n}"), body).await.expect(201);
        }
        a.send(&group, "last", "sentinel").await.expect(201);
        found(&b, "sentinel", 1).await;
        for (q, expected) in [
            ("hello", &[0][..]), ("WORLD hel", &[0]), ("ello", &[]), ("cafe", &[1]), ("CAFÉ closed", &[1]),
            ("天气", &[2]), ("气", &[3, 2]), ("今天", &[3, 2]), ("气今天", &[]), ("天气好", &[2]),
            ("食べた", &[4]), ("らーめん", &[4]), ("ラーメン", &[4]), ("アニメ", &[5]), ("manga", &[5]), ("🎉", &[6]), ("👍", &[6]), ("🎉👍", &[6]),
            ("100%", &[7]), ("100", &[8, 7]), ("a_b", &[7]), ("aXb", &[]), ("\\ c's", &[7]), ("\"x\"", &[7]), ("'x'", &[]), ("학교", &[9]), ("straße", &[10]),
            ("it's", &[11]), ("messages; drop", &[11]), ("ways' | 'hello", &[]), ("hello:*", &[]),
        ] {
            let expected: Vec<&str> = expected.iter().map(|n| said[*n]).collect();
            for client in [&a, &b] {
                assert_eq!(bodies(client, q).await, expected, "{q}");
            }
        }
        let one = search(&b, "cafe", "").await;
        assert_eq!(one.items()[0], b.get(&format!("/v1/conversations/{group}/messages/2")).await.json, "as everywhere else");
    }

    async fn pages_go_on_where_they_ended_while_messages_arrive(fleet: Fleet) {
        let ann = User::new("ann");
        let clients = [fleet.client(0, &ann).kept_alive(), fleet.client(1, &ann).kept_alive()];
        let mut groups = Vec::new();
        for n in 0..3 {
            groups.push(clients[0].create_group(&format!("group {n}"), &["bob"]).await);
        }
        let mut sent: Vec<Value> = Vec::new();
        for n in 0..30 {
            let group = &groups[n * n % 3];
            sent.push(clients[n % 2].send(group, &format!("k{n}"), &format!("boat {n}")).await.expect(201).json);
            clients[n % 2].send(group, &format!("x{n}"), "nothing of that kind").await.expect(201);
        }
        found(&clients[1], "boat", 30).await;
        // By when they were made, then by conversation, then by number.
        let place = |m: &Value| (m["created_at"].to_string(), m["conversation_id"].to_string(), m["seq"].as_u64());
        sent.sort_by_key(|m| std::cmp::Reverse(place(m)));
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        for n in 0.. {
            let page = search(&clients[n % 2], "boat", &format!("&limit=7{cursor}")).await.expect(200);
            seen.extend(page.items().iter().cloned());
            let Some(next) = page.json["next_cursor"].as_str() else { break };
            assert_eq!(page.items().len(), 7);
            cursor = format!("&cursor={next}");
            clients[0].send(&groups[n % 3], &format!("new{n}"), "boat of today").await.expect(201);
            found(&clients[1], "boat today", n + 1).await;
        }
        assert_eq!(seen, sent);
        let here: Vec<Value> = sent.into_iter().filter(|m| m["conversation_id"] == *groups[0]).collect();
        let page = search(&clients[1], "boat", &format!("&limit={}&conversation={}{}", here.len(), groups[0], &cursor[..0])).await.expect(200);
        assert!(page.items().iter().all(|m| m["conversation_id"] == *groups[0]));
        assert!(page.json["next_cursor"].is_string(), "new ones pushed old ones to the next page");
    }

    async fn nobody_finds_what_is_not_to_be_seen(fleet: Fleet) {
        let mut fleet = fleet;
        let (ann, bob, cid, eve) = (User::new("ann"), User::new("bob"), User::new("cid"), User::new("eve"));
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
        let (c, e) = (fleet.client(0, &cid), fleet.client(1, &eve));
        let open = a.create_group("whale watching", &["bob", "cid"]).await;
        let wish = json!({"kind": "group", "title": "whale", "members": ["bob"], "history": "from_join"});
        let later = a.post("/v1/conversations", &wish).await.expect(201).json["id"].as_str().unwrap().to_owned();
        a.send(&open, "k1", "whale one").await.expect(201);
        a.send(&later, "k2", "whale two").await.expect(201);
        b.invite(&later, "cid").await.expect(201);
        a.patch(&format!("/v1/conversations/{later}"), &json!({"title": "whale renamed"})).await.expect(200);
        a.send(&later, "k3", "whale three").await.expect(201);
        found(&b, "whale", 3).await;
        found(&c, "whale", 2).await;
        assert_eq!(bodies(&c, "whale").await, ["whale three", "whale one"], "from the join on, and no timeline");
        assert!(bodies(&e, "whale").await.is_empty());
        search(&e, "whale", &format!("&conversation={open}")).await.expect_problem(404, "not_found");
        search(&e, "whale", "&conversation=group:nonsense").await.expect_problem(404, "not_found");
        // Nothing reaches Postgres any more: what counts is what is so now.
        fleet.stop_worker(0).await;
        a.remove(&open, "cid").await.expect(204);
        b.remove(&later, "bob").await.expect(204);
        assert_eq!(bodies(&c, "whale").await, ["whale three"]);
        assert_eq!(bodies(&b, "whale").await, ["whale one"]);
        search(&c, "whale", &format!("&conversation={open}")).await.expect_problem(404, "not_found");
        // Back again: only what comes after the new join.
        b.invite(&open, "cid").await.expect(201);
        assert_eq!(bodies(&c, "one").await, ["whale one"]);
        c.remove(&later, "cid").await.expect(204);
        a.invite(&later, "cid").await.expect(201);
        assert!(bodies(&c, "three").await.is_empty());
    }

    async fn edits_and_deletions_count_at_once_and_stay_so(fleet: Fleet) {
        let mut fleet = fleet;
        let ann = User::new("ann");
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &User::new("bob")));
        let group = a.create_group("edits", &["bob"]).await;
        for (n, body) in ["first draft", "second draft", "third draft", "fourth draft"].iter().enumerate() {
            a.send(&group, &format!("k{n}"), body).await.expect(201);
        }
        a.send_message(&group, &json!({"client_id": "quote", "body": "as said", "reply_to": 4})).await.expect(201);
        found(&b, "draft", 4).await;
        found(&b, "said", 1).await;
        let message = |seq: u64| format!("/v1/conversations/{group}/messages/{seq}");
        a.patch(&message(1), &json!({"body": "first version 決定"})).await.expect(200);
        a.delete(&message(2)).await.expect(200);
        found(&b, "決定", 1).await;
        found(&b, "draft", 2).await;
        assert_eq!(search(&b, "said", "").await.items()[0]["reply_to"]["preview"], "fourth draft", "shown as in the history");
        // Nothing reaches Postgres any more, and its index still knows the old words.
        fleet.stop_worker(0).await;
        a.patch(&message(3), &json!({"body": "third version"})).await.expect(200);
        a.delete(&message(4)).await.expect(200);
        for client in [&a, &b] {
            assert!(bodies(client, "draft").await.is_empty());
            assert_eq!(search(client, "said", "").await.items()[0]["reply_to"]["deleted"], true);
        }
        fleet.add_worker().await;
        found(&b, "version", 2).await;
        assert_eq!(bodies(&b, "version").await, ["third version", "first version 決定"]);
        let indexed = "SELECT count(*) FROM message_terms WHERE terms::text LIKE '%draft%'";
        let mut connection = fleet.database().connect().await;
        eventually("no term is left of what was said", PATIENCE, async || {
            sqlx::query_scalar::<_, i64>(indexed).fetch_one(&mut connection).await.unwrap() == 0
        })
        .await;
    }

    async fn what_cannot_be_asked_is_refused_by_name(fleet: Fleet) {
        let a = fleet.client(0, &User::new("ann"));
        let long = format!("q={}", "x".repeat(201));
        for (query, field) in [
            ("", "q"), ("q=", "q"), ("q=%20%20", "q"), ("q=%25", "q"), ("q=%E2%80%8B", "q"), (&long, "q"), ("q=a&q=b", "q"), ("q=%00", "q"),
            ("q=a&limit=0", "limit"), ("q=a&limit=201", "limit"), ("q=a&sort=old", "sort"),
        ] {
            assert_eq!(a.get(&format!("/v1/search?{query}")).await.expect_problem(400, "invalid_parameter").json["field"], field, "{query}");
        }
        use base64::Engine as _;
        let forged = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
        for cursor in ["abc", "%2B", "", &forged("1 1 nonsense"), &forged("1 +1 system:a"), &forged("01 1 system:a"), &forged("1 system:a"), &forged("99999999999999999999 1 system:a")] {
            a.get(&format!("/v1/search?q=a&cursor={cursor}")).await.expect_problem(400, "invalid_cursor");
        }
        assert!(a.get(&format!("/v1/search?q=a&cursor={}", forged("1 1 system:a"))).await.expect(200).items().is_empty());
        assert!(search(&a, &"天".repeat(200), "").await.expect(200).items().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_without_postgres_is_told_to_come_again() {
    let redis = PrivateRedis::start(RedisKind::Single).await;
    let mut fleet = Fleet::start_over(redis, TestDatabase::on_own_server().await, 1, 1, &[]).await;
    let a = fleet.client(0, &User::new("ann"));
    let group = a.create_group("g", &["bob"]).await;
    a.send(&group, "k", "hello").await.expect(201);
    found(&a, "hello", 1).await;
    fleet.database_mut().server().process().signal("INT");
    eventually("Postgres has ended", PATIENCE, async || fleet.database_mut().server().process().ended().is_some()).await;
    let answer = search(&a, "hello", "").await.expect_problem(503, "unavailable");
    assert!(answer.header("retry-after").is_some());
    fleet.database_mut().server().start_again().await.unwrap();
    eventually("it is found again", PATIENCE, async || search(&a, "hello", "").await.status == 200).await;
}

fn said(conv: &ConversationId, seq: Seq, body: &str) -> Message {
    Message { body: body.into(), ..text(conv, seq, "ann", &format!("k{seq}")) }
}

async fn seqs(archive: &Archive, q: &str) -> Vec<Seq> {
    let text = SearchText::parse(q).unwrap();
    archive.find_messages(&user("ann"), None, &text, None, 100).await.unwrap().into_iter().map(|place| place.seq).collect()
}

async fn index_all(archive: &Archive) {
    while archive.index_messages().await.unwrap().more {}
}

#[tokio::test]
async fn an_edit_changes_what_is_found_and_a_deletion_ends_it_whoever_indexes_when() {
    let db = database().await;
    let source = db.open_shard(0).await;
    let conv = conversation("c");
    let room = ArchiveBatch {
        conversations: vec![conversation_row(&conv, History::All, 0)],
        members: vec![member_row(&conv, "ann", 0)],
        ..batch_of(&source, vec![said(&conv, 1, "old words"), said(&conv, 2, "other words")])
    };
    db.archive.write_batch(&room).await.unwrap();
    assert!(seqs(&db.archive, "words").await.is_empty(), "found once it is indexed");
    index_all(&db.archive).await;
    assert_eq!(seqs(&db.archive, "words").await, [2, 1]);
    let write = async |message: Message| db.archive.write_batch(&batch_of(&source, vec![message])).await.unwrap();
    let edited = Message { rev: 10, edited_at: Some(5), ..said(&conv, 1, "new speech") };
    let first = db.archive.messages_at(&conv, &[1]).await.unwrap().remove(0);
    write(Message { id: first.id, client_id: first.client_id.clone(), ..edited.clone() }).await;
    index_all(&db.archive).await;
    assert_eq!((seqs(&db.archive, "old").await, seqs(&db.archive, "speech").await), (vec![], vec![1]));
    // Only a reaction, say: nothing to index.
    let noted = async || db.number("SELECT count(*) FROM search_queue").await;
    write(Message { id: first.id, client_id: first.client_id.clone(), rev: 11, ..edited.clone() }).await;
    assert_eq!(noted().await, 0);
    write(Message { id: first.id, client_id: first.client_id.clone(), rev: 12, body: String::new(), deleted_at: Some(6), ..edited }).await;
    assert_eq!(noted().await, 1);
    // Several at once, one of them with an old note.
    let again = "INSERT INTO search_queue (conv_ids, seqs) SELECT ARRAY['system:c'], ARRAY[1] FROM generate_series(1, 20)";
    sqlx::raw_sql(again).execute(&mut db.connection().await).await.unwrap();
    tokio::join!(index_all(&db.archive), index_all(&db.archive), index_all(&db.archive));
    assert!(seqs(&db.archive, "speech").await.is_empty());
    assert_eq!(noted().await, 0);
    // A slower worker's older version, written last.
    let late = "INSERT INTO message_terms AS t SELECT conv_id, created_at_ms, seq, 1, 'x'::tsvector FROM messages WHERE seq = 1
                ON CONFLICT (conv_id, created_at_ms, seq) DO UPDATE SET terms = excluded.terms WHERE t.rev < excluded.rev";
    sqlx::raw_sql(late).execute(&mut db.connection().await).await.unwrap();
    assert_eq!(db.number("SELECT count(*) FROM message_terms WHERE terms = ''::tsvector AND rev = 12").await, 1);
    assert_eq!(seqs(&db.archive, "words").await, [2]);
}

/// Walk and index together give what reading everything would give: common, rare and absent words, in every order of times, page by page.
#[tokio::test]
async fn pages_are_what_reading_everything_would_give() {
    const EACH: u64 = 1_200;
    let db = database().await;
    let source = db.open_shard(0).await;
    let rooms: Vec<ConversationId> = ["a", "b", "c", "hidden"].map(conversation).to_vec();
    let mut all: Vec<Message> = Vec::new();
    for (n, conv) in rooms.iter().enumerate() {
        let members = if n < 3 { vec![member_row(conv, "ann", 0)] } else { vec![member_row(conv, "bob", 0)] };
        let room = ArchiveBatch { conversations: vec![conversation_row(conv, History::All, 0)], members, ..batch_of(&source, vec![]) };
        db.archive.write_batch(&room).await.unwrap();
        let messages: Vec<Message> = (1..=EACH)
            .map(|seq| {
                let dice = seq * 7_919 + n as u64 * 104_729;
                let rare = if dice.is_multiple_of(397) { "鲸鱼 zebra" } else { "" };
                let half = if dice.is_multiple_of(2) { "天气" } else { "common" };
                let aged = if seq < 300 { "aged" } else { "" };
                // Times that many share, and that do not always rise with the number.
                let created_at = 1_764_500_000_000 + i64::try_from((seq / 3 * 10).saturating_sub(dice % 11)).unwrap() * [1, 5, 1, 1][n];
                Message { created_at, ..said(conv, seq, &format!("{half} {rare} {aged}")) }
            })
            .collect();
        db.archive.write_batch(&batch_of(&source, messages.clone())).await.unwrap();
        all.extend(messages);
    }
    index_all(&db.archive).await;
    sqlx::raw_sql("ANALYZE").execute(&mut db.connection().await).await.unwrap();
    for (q, limit) in
        [("天气", 97), ("common", 1_000), ("zebra", 2), ("鱼", 50), ("aged", 97), ("鲸鱼 common", 3), ("com aged zebra", 1), ("鲸气", 5)]
    {
        let text = SearchText::parse(q).unwrap();
        let visible = all.iter().filter(|m| m.conversation != rooms[3] && text.matches(&m.body));
        let expected: BTreeSet<FoundAt> =
            visible.map(|m| FoundAt { created_at: m.created_at, conversation: m.conversation.clone(), seq: m.seq }).collect();
        let mut read: Vec<FoundAt> = Vec::new();
        loop {
            let page = db.archive.find_messages(&user("ann"), None, &text, read.last(), limit).await.unwrap();
            read.extend(page.iter().cloned());
            if page.len() < limit {
                break;
            }
        }
        assert_eq!(read, expected.iter().rev().cloned().collect::<Vec<_>>(), "{q} by {limit}");
        let one = db.archive.find_messages(&user("ann"), Some(&rooms[1]), &text, None, 10_000).await.unwrap();
        assert_eq!(one, expected.into_iter().rev().filter(|place| place.conversation == rooms[1]).collect::<Vec<_>>(), "{q} in one");
    }
}
