//! Erasing a user: whatever they said and were called is nowhere any more, and nobody else loses anything.

use std::sync::Arc;
use std::time::Duration;

use seqline::actions::Stores;
use seqline::actions::change_message::{ChangeRequest, change_message};
use seqline::actions::erase_user::erase_user;
use seqline::domain::event::EventType;
use seqline::domain::ids::ConversationId;
use seqline::domain::membership::Reader;
use seqline::domain::message::Message;
use seqline::domain::message_change::MessageCommand;
use seqline::domain::permission::Standing;
use seqline::redis::keys::wakeups;
use seqline::redis::wake_gateway::probe_wakeups;
use seqline::workers::erase_users::EraseUsers;
use seqline::workers::repeat::Worker as _;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::harness::client::{pair, path_segment};
use crate::harness::host_application::SECRETS;
use crate::harness::pictures::{PictureFleet, files};
use crate::harness::{
    Answer, Client, Fleet, HostApplication, PATIENCE, PrivateRedis, RedisKind, Reply, StorePair, TestDatabase, User, eventually,
    eventually_some, on_both,
};
use crate::scene::{archive_all, dispatch_all, group, log, redis, send_run, state, try_send, user};

/// What must be nowhere in the end. Lower case: names are kept folded, too.
const SECRETS_OF_EVE: [&str; 2] = ["zuckerwatte", "geheimrat"];

/// The tables in which one of these words stands.
async fn tables_with(database: &TestDatabase, words: &[&str]) -> Vec<String> {
    let mut connection = database.connect().await;
    let tables: Vec<(String,)> = sqlx::query_as("SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public'")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    assert!(tables.len() > 20, "{tables:?}");
    let mut found = Vec::new();
    for (table,) in tables {
        for word in words {
            let statement = format!("SELECT count(*) FROM {table} AS t WHERE lower(t::text) LIKE '%{word}%'");
            let count: i64 = sqlx::query_scalar(AssertSqlSafe(statement)).fetch_one(&mut connection).await.unwrap();
            if count > 0 {
                found.push(format!("{table}: {word}"));
            }
        }
    }
    found
}

/// The keys under which one of these words stands. Wake-ups are left out: they live for two minutes, whatever happens.
async fn keys_with(redis: &PrivateRedis, words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for key in redis.keys("*").await {
        if key.starts_with("wake:") {
            continue;
        }
        let commands: [&[&str]; 6] = [
            &["GET", &key],
            &["HGETALL", &key],
            &["LRANGE", &key, "0", "-1"],
            &["ZRANGE", &key, "0", "-1"],
            &["SMEMBERS", &key],
            &["XRANGE", &key, "-", "+"],
        ];
        for command in commands {
            let text = format!("{:?}", redis.on_every_node(command).await).to_lowercase();
            found.extend(words.iter().filter(|word| text.contains(*word)).map(|word| format!("{key}: {word}")));
        }
    }
    found
}

async fn erase(service: &Client, user: &str) -> Answer {
    service.delete(&format!("/v1/users/{}", path_segment(user))).await
}

/// Asks until it is done.
async fn erased(service: &Client, user: &str) -> Value {
    let path = format!("/v1/users/{}", path_segment(user));
    eventually_some("the user is erased", PATIENCE, async || {
        let answer = service.delete(&path).await;
        if answer.status == 200 { Ok(answer.json) } else { Err(answer.text) }
    })
    .await
}

async fn import(service: &Client, conversation: &Value, sender: &str, body: &str) {
    let message = json!({"id": "old-1", "sender": sender, "body": body, "at": "2020-01-01T00:00:00.000Z"});
    service.post("/v1/import", &json!({"conversation": conversation, "messages": [message]})).await.expect(200);
}

on_both! {
    async fn nothing_that_a_user_said_or_was_called_is_left(kind: RedisKind) {
        // A host application that takes nothing: what waits for it holds words, too.
        let host = HostApplication::start(|_| Reply::Status(500)).await;
        let url = host.url();
        let fleet = PictureFleet::start_with(kind, &["--webhook-url", &url, "--webhook-secrets", SECRETS]).await;
        let eve_user = User::with_claims("eve", &json!({"name": "Geheimrat Eve", "picture": "https://cdn.example/geheimrat.png"}));
        let (ann, bob, service) = (User::new("ann"), User::new("bob"), User::service());
        let (e, a, b, s) = (fleet.client(0, &eve_user), fleet.client(1, &ann), fleet.client(0, &bob), fleet.client(1, &service));
        let moderator = fleet.client(0, &User::with_claims("mod", &json!({"scope": "admin"})));

        // A group of hers: words, other words, pictures, a share, a mention, a reaction, an answer of somebody else's.
        let group = e.create_group("club", &["ann", "bob"]).await;
        e.send(&group, "k1", "zuckerwatte one").await.expect(201);
        e.patch(&format!("/v1/conversations/{group}/messages/1"), &json!({"body": "zuckerwatte two"})).await.expect(200);
        a.send_message(&group, &json!({"client_id": "k", "body": "answer", "reply_to": 1})).await.expect(201);
        let thumb = path_segment("\u{1F44D}");
        e.put(&format!("/v1/conversations/{group}/messages/2/reactions/{thumb}"), None).await.expect(200);
        b.put(&format!("/v1/conversations/{group}/messages/2/reactions/{thumb}"), None).await.expect(200);
        let picture = e.upload_picture().await;
        let image = json!({"client_id": "k3", "kind": "image", "media": [picture], "body": "zuckerwatte three"});
        e.send_message(&group, &image).await.expect(201);
        let share = json!({"client_id": "k4", "kind": "share", "share": {"type": "recipe", "id": "zuckerwatte"}});
        e.send_message(&group, &share).await.expect(201);
        e.send_message(&group, &json!({"client_id": "k5", "body": "zuckerwatte five", "mentions": ["bob"]})).await.expect(201);
        e.send(&group, "k6", "zuckerwatte six").await.expect(201);
        e.patch(&format!("/v1/conversations/{group}/messages/6"), &json!({"body": "zuckerwatte 6"})).await.expect(200);
        e.delete(&format!("/v1/conversations/{group}/messages/6")).await.expect(200);
        s.send_message(&group, &json!({"client_id": "bot", "body": "zuckerwatte bot", "sender": "eve"})).await.expect(201);
        b.send(&group, "k", "stays").await.expect(201);
        // One that she left, one of her alone, one of the service's, one in which she only ever stood as the sender of old messages.
        let former = a.create_group("former", &["eve", "bob"]).await;
        e.send(&former, "k1", "zuckerwatte former").await.expect(201);
        e.remove(&former, "eve").await.expect(204);
        let alone = e.create_group("alone", &["bob"]).await;
        e.send(&alone, "k1", "zuckerwatte alone").await.expect(201);
        b.remove(&alone, "bob").await.expect(204);
        let news = json!({"kind": "system", "key": "news", "members": ["eve", "ann"]});
        s.post("/v1/conversations", &news).await.expect(201);
        let old = json!({"kind": "group", "key": "old", "owner": "ann", "members": ["bob"], "title": "old"});
        import(&s, &old, "eve", "zuckerwatte old").await;
        // Pairs.
        let single = pair("ann", "eve");
        e.send_to_peer("ann", "k1", "zuckerwatte to ann").await.expect(201);
        a.send(&single, "k1", "hello eve").await.expect(201);
        e.put("/v1/blocks/bob", None).await.expect(200);

        eventually("everything is found", PATIENCE, async || a.get("/v1/search?q=zuckerwatte").await.expect(200).items().len() >= 6).await;
        let versions = format!("/v1/audit/conversations/{group}/messages/1/versions");
        eventually("versions are kept", PATIENCE, async || moderator.get(&versions).await.expect(200).items().len() == 1).await;
        assert_eq!(a.sees(&picture).await, 200);
        let rev = a.conversation(&group).await.json["rev"].as_u64().unwrap();
        let unread = b.conversation(&group).await.json["me"].clone();
        assert_eq!((&unread["unread"], &unread["unread_mentions"]), (&json!(0), &json!(0)), "an own message moves one's watermark");
        assert!(tables_with(fleet.database(), &SECRETS_OF_EVE).await.len() >= 5);

        let (mut of_eve, mut of_ann) = (e.stream().open().await, a.stream().open().await);
        of_eve.wait_for("hello", PATIENCE).await;
        of_ann.wait_for("hello", PATIENCE).await;
        for somebody in [&a, &e, &moderator] {
            erase(somebody, "eve").await.expect_problem(403, "forbidden");
            erase(somebody, "nobody").await.expect_problem(403, "forbidden");
        }
        let begun = erase(&s, "eve").await.expect(202);
        assert_eq!((&begun.json["state"], &begun.json["user_id"]), (&json!("running"), &json!("eve")));
        // Asked on every side, it is still one.
        for (client, _) in [(&s, 0), (&fleet.client(0, &service), 1)] {
            assert_eq!(erase(client, "eve").await.json["asked_at"], begun.json["asked_at"]);
        }
        of_eve.wait_for("token_expired", PATIENCE).await;
        assert_eq!(of_eve.next_event(PATIENCE).await, None, "the stream ends");
        let done = erased(&s, "eve").await;
        assert_eq!((&done["state"], &done["asked_at"]), (&json!("done"), &begun.json["asked_at"]));
        assert_eq!(done["messages"], 9, "{done}");

        // The others learn it as it happens, each at its place.
        let events = of_ann.until_quiet(Duration::from_secs(2)).await;
        let told = |name: &str, id: &str| {
            events.iter().filter(|event| event.name == name && event.data["conversation_id"] == id).map(|event| event.data["data"].clone()).collect::<Vec<_>>()
        };
        let deleted: Vec<u64> = told("message.deleted", &group).iter().map(|data| data["message"]["seq"].as_u64().unwrap()).collect();
        assert_eq!(deleted, [7, 5, 4, 3, 1], "the newest first");
        assert_eq!(told("message.deleted", &single).len(), 1);
        assert_eq!(told("member.left", &group)[0]["user_id"], "eve");
        assert_eq!(told("owner.changed", &group).len(), 1);
        assert_eq!(told("member.removed", "system:news")[0]["user_id"], "eve");
        assert_eq!(told("reaction.changed", &group)[0]["reactions"], json!([{"emoji": "\u{1F44D}", "count": 1}]));

        for client in [&a, &b] {
            let page = client.whole_history(&group).await;
            assert_eq!(page.iter().map(|m| m["seq"].as_u64().unwrap()).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>(), "no hole");
            for message in page.iter().filter(|m| m["sender"] == "eve" && m["kind"] != "system") {
                assert_eq!((&message["body"], &message["media"], &message["share"]), (&json!(""), &json!([]), &Value::Null));
                assert!(message["deleted_at"].is_string() && message["mentions"] == json!([]), "{message}");
            }
            let quote = &page[1]["reply_to"];
            assert_eq!((&quote["deleted"], &quote["preview"]), (&json!(true), &json!("")));
            assert_eq!((&page[1]["body"], &page[7]["body"]), (&json!("answer"), &json!("stays")), "what others said stays");
            let changed = client.history(&group, &format!("since_rev={rev}")).await.expect(200);
            assert!(changed.items().len() >= 6 && !changed.text.contains("zuckerwatte"), "{}", changed.text);
            let members = client.get(&format!("/v1/conversations/{group}/members")).await.expect(200);
            assert!(members.items().iter().all(|member| member["user_id"] != "eve"), "{}", members.text);
            assert!(!client.conversations().await.expect(200).text.to_lowercase().contains("zuckerwatte"));
            assert_eq!(client.get("/v1/search?q=zuckerwatte").await.expect(200).items().len(), 0);
            assert_eq!(client.sees(&picture).await, 404);
            assert_eq!(client.get("/v1/users/eve").await.expect(200).json, json!({"user_id": "eve", "name": null, "avatar_url": null}));
        }
        assert_eq!(moderator.get(&versions).await.expect(200).items().len(), 0);
        let of_pair = a.whole_history(&single).await;
        assert_eq!((&of_pair[0]["body"], &of_pair[1]["body"]), (&json!(""), &json!("hello eve")));
        b.send_to_peer("eve", "k", "no block stands").await.expect(201);
        assert_eq!(files(fleet.folder()), 0);
        assert_eq!(e.conversation(&group).await.status, 404);
        assert_eq!(e.conversation("system:news").await.status, 404);

        // Nowhere: not in a table, nor in a key once lines and windows have let go of what is archived.
        assert_eq!(tables_with(fleet.database(), &SECRETS_OF_EVE).await, [""; 0]);
        eventually_some("no key holds it", PATIENCE, async || {
            let found = keys_with(fleet.redis_ref(), &SECRETS_OF_EVE).await;
            if found.is_empty() { Ok(()) } else { Err(found) }
        })
        .await;
        assert_eq!(erase(&s, "eve").await.expect(200).json, done, "nothing begins anew when nothing is left");
    }

    async fn whoever_comes_back_is_new_and_can_be_erased_again(fleet: Fleet) {
        let (ann, service) = (User::new("ann"), User::service());
        let eve_user = User::with_claims("eve", &json!({"name": "Geheimrat Eve"}));
        let (e, a, s) = (fleet.client(0, &eve_user), fleet.client(1, &ann), fleet.client(1, &service));
        let single = pair("ann", "eve");
        e.send_to_peer("ann", "k1", "zuckerwatte one").await.expect(201);
        a.send(&single, "k1", "between us").await.expect(201);
        // Somebody of whom nothing is known can be erased, too.
        assert_eq!(erase(&s, "nobody").await.expect(202).json["messages"], 0);
        let first = erased(&s, "eve").await;
        assert_eq!(first["messages"], 1);
        // The token is the host application's: whoever has one is somebody, and sees nothing of before.
        assert_eq!(e.conversations().await.expect(200).items().len(), 0);
        assert_eq!(e.whole_history(&single).await, [Value::Null; 0]);
        e.send(&single, "k2", "zuckerwatte two").await.expect(201);
        assert_eq!(e.whole_history(&single).await.len(), 1);
        let again = erase(&s, "eve").await.expect(202);
        assert_ne!(again.json["asked_at"], first["asked_at"]);
        let second = erased(&s, "eve").await;
        assert_eq!((&second["asked_at"], &second["messages"]), (&again.json["asked_at"], &json!(1)));
        let bodies: Vec<Value> = a.whole_history(&single).await.iter().map(|m| m["body"].clone()).collect();
        assert_eq!(bodies, [json!(""), json!("between us"), json!("")]);
        assert_eq!(tables_with(fleet.database(), &SECRETS_OF_EVE).await, [""; 0]);
        assert_eq!(erased(&s, "nobody").await["state"], "done");
    }
}

async fn messages_of(stores: &Arc<Stores>, id: &ConversationId) -> Vec<Message> {
    let reader = user("ann");
    let mut all = Vec::new();
    loop {
        let from = all.last().map_or(0, |message: &Message| message.seq);
        let place = seqline::actions::read_messages::Place::After(from);
        let reader = Reader::of_everything(&reader, Standing::Service);
        let page = seqline::actions::read_messages::page(stores, reader, id, place, 200).await.unwrap();
        all.extend(page.messages);
        if !page.has_more_after {
            return all;
        }
    }
}

/// Ends the claim of a worker that was cut off, as time would.
async fn free(database: &TestDatabase) {
    sqlx::query("UPDATE erasures SET free_at_ms = 0").execute(&mut database.connect().await).await.unwrap();
}

async fn is_done(stores: &Stores, name: &str) -> bool {
    stores.archive.erasure_of(&user(name)).await.unwrap().unwrap().finished_at.is_some()
}

/// Dispatches and archives on the second stores until it is dropped.
struct Line(tokio::task::JoinHandle<()>);

impl Line {
    fn of(pair: &StorePair) -> Self {
        let stores = Arc::clone(&pair.two);
        Self(tokio::spawn(async move {
            loop {
                dispatch_all(&stores).await;
                archive_all(&stores).await;
            }
        }))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn kinds_told(stores: &Stores, name: &str, kind: EventType) -> usize {
    log(stores, name).await.iter().filter(|(told, ..)| *told == kind).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_are_told_one_by_one_and_the_others_once() {
    let pair = StorePair::with(RedisKind::Single, &[]).await;
    let id = group(&pair.one, "ann", &["eve", "bob"]).await;
    send_run(&pair.one, "eve", &id, 1..=330).await;
    let _line = Line::of(&pair);
    erase_user(&pair.one, true, &user("host"), &user("eve")).await.unwrap();
    let mut worker = EraseUsers::new(Arc::clone(&pair.one));
    eventually("she is erased", PATIENCE, async || {
        worker.run_once().await.unwrap();
        is_done(&pair.one, "eve").await
    })
    .await;
    assert_eq!(kinds_told(&pair.one, "ann", EventType::MessageDeleted).await, 200);
    assert_eq!(kinds_told(&pair.one, "ann", EventType::Resync).await, 1);
    let told: Vec<u64> = log(&pair.one, "bob").await.iter().filter(|one| one.0 == EventType::MessageDeleted).map(|one| one.2).collect();
    assert_eq!(told, (131..=330).rev().collect::<Vec<_>>());
    let messages = messages_of(&pair.one, &id).await;
    assert_eq!(messages.len(), 331);
    assert!(messages.iter().all(|message| message.body.is_empty()));
    assert!(log(&pair.one, "eve").await.is_empty(), "her own log is gone");
}

on_both! {
    async fn a_worker_that_is_cut_off_anywhere_is_followed_by_another(pair: StorePair) {
        let groups = [group(&pair.one, "eve", &["ann"]).await, group(&pair.one, "ann", &["eve"]).await];
        for id in &groups {
            send_run(&pair.one, "eve", id, 1..=60).await;
            try_send(&pair.one, "ann", id, "k", "stays").await.unwrap();
            let request = ChangeRequest {
                user: user("eve"),
                service: false,
                admin: false,
                conversation: id.clone(),
                seq: 30,
                command: MessageCommand::Edit { body: Some("other".into()), media: None },
                pictures: None,
            };
            change_message(&pair.one, &request).await.unwrap();
        }
        let _line = Line::of(&pair);
        erase_user(&pair.one, true, &user("host"), &user("eve")).await.unwrap();
        // Two at once, each cut off after some time, a little later with each round.
        let mut round = 0_u64;
        eventually("she is erased", PATIENCE, async || {
            round += 1;
            for stores in [&pair.one, &pair.two] {
                free(&pair.database).await;
                let mut worker = EraseUsers::new(Arc::clone(stores));
                let other = async {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    free(&pair.database).await;
                    let mut worker = EraseUsers::new(Arc::clone(&pair.two));
                    let _ = worker.run_once().await;
                };
                let cut = Duration::from_millis(10 + 15 * round);
                let _ = tokio::time::timeout(cut, async { tokio::join!(worker.run_once(), other) }).await;
            }
            is_done(&pair.one, "eve").await
        })
        .await;
        for id in &groups {
            let messages = messages_of(&pair.one, id).await;
            let left: Vec<u64> = messages.iter().filter(|m| !m.body.is_empty()).map(|m| m.seq).collect();
            assert_eq!(left, [61]);
            assert_eq!(messages.iter().map(|m| m.seq).collect::<Vec<_>>(), (1..=messages.len() as u64).collect::<Vec<_>>());
            assert_eq!(pair.one.archive.versions_of(id, 30).await.unwrap(), []);
            assert!(pair.one.archive.membership(id, &user("eve")).await.unwrap().is_none());
        }
        // However often a step was begun anew, nobody was told twice.
        assert_eq!(kinds_told(&pair.one, "ann", EventType::MessageDeleted).await, 120);
        assert_eq!(kinds_told(&pair.one, "ann", EventType::MemberLeft).await, 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_archive_refuses_is_erased_as_well() {
    let pair = StorePair::with(RedisKind::Single, &[]).await;
    let id = group(&pair.one, "ann", &["eve"]).await;
    for statement in [
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$",
        "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON messages FOR EACH ROW WHEN (NEW.body = 'zuckerwatte') EXECUTE FUNCTION refuse()",
    ] {
        sqlx::query(statement).execute(&mut pair.database.connect().await).await.unwrap();
    }
    try_send(&pair.one, "eve", &id, "k1", "zuckerwatte").await.unwrap();
    try_send(&pair.one, "ann", &id, "k", "stays").await.unwrap();
    archive_all(&pair.one).await;
    let shard = pair.one.keys.shard_of(&id);
    assert_eq!(state(&pair.one, shard).await.aside, 1);
    let _line = Line::of(&pair);
    erase_user(&pair.one, true, &user("host"), &user("eve")).await.unwrap();
    let mut worker = EraseUsers::new(Arc::clone(&pair.one));
    eventually("she is erased", PATIENCE, async || {
        let _ = worker.run_once().await;
        is_done(&pair.one, "eve").await
    })
    .await;
    assert_eq!(state(&pair.one, shard).await.aside, 0);
    let messages = messages_of(&pair.one, &id).await;
    assert_eq!(messages.iter().map(|m| (m.seq, m.body.as_str())).collect::<Vec<_>>()[..2], [(1, ""), (2, "stays")]);
    assert_eq!(tables_with(&pair.database, &["zuckerwatte"]).await, [""; 0]);
    assert!(keys_with(&pair.redis, &["zuckerwatte"]).await.iter().all(|key| key.starts_with("outbox:")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_wake_ups_are_not_kept() {
    let pair = StorePair::with(RedisKind::Single, &[]).await;
    let key = wakeups("somewhere");
    redis(&pair.one, "XADD", &[&key, "1-1", "w", "zuckerwatte"]).await;
    probe_wakeups(&pair.one.link, "somewhere").await.unwrap();
    assert_eq!(redis(&pair.one, "XLEN", &[&key]).await.as_u64(), Ok(1));
}
