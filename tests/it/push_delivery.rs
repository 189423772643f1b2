//! Web Push, what is pushed: to whom, when, and what it says. Every push is decrypted by the browser it is for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use seqline::workers::cool_all;
use seqline::workers::repeat::Worker as _;
use seqline::workers::send_pushes::SendPushes;
use serde_json::{Value, json};

use crate::harness::push_service::{Browser, FLAGS, PushService};
use crate::harness::{Fleet, PATIENCE, RedisKind, Reply, StorePair, User, eventually, on_both, pair};
use crate::push::{count, nothing_waits};
use crate::resequence::intrude;
use crate::scene::{archive_all, dispatch_all, forget_cursor, group, send_run};

/// The flags of all tests, and these.
fn flags<'a>(more: &[&'a str]) -> Vec<&'a str> {
    FLAGS.iter().copied().chain(more.iter().copied()).collect()
}

on_both! {
    async fn unread_messages_wake_those_who_are_to_read_them(kind: RedisKind) {
        let service = PushService::willing().await;
        let fleet = Fleet::start_with(kind, 2, 2, &FLAGS).await;
        let (ann, bob, cid) = (fleet.client(0, &User::new("ann")), fleet.client(1, &User::new("bob")), fleet.client(0, &User::new("cid")));
        let host = fleet.client(1, &User::service());
        host.put("/v1/users/ann", Some(&json!({"name": "Ann of Green Gables"}))).await.expect(200);
        let browsers = [Browser::new(&service, "ann"), Browser::new(&service, "bob1"), Browser::new(&service, "bob2"), Browser::new(&service, "cid")];
        for (browser, client, preview) in [(0, &ann, true), (1, &bob, true), (2, &bob, true), (3, &cid, false)].map(|(n, c, p)| (&browsers[n], c, p)) {
            browser.register(client, preview).await.expect(201);
        }
        let lake = ann.create_group("Lake", &["bob", "cid"]).await;
        let message = ann.send(&lake, "k1", "a walk around it?").await.expect(201);
        for browser in &browsers[1..3] {
            let said = service.has_taken(browser, 1, PATIENCE).await;
            assert_eq!(said[0], json!({
                "type": "message", "conversation_id": lake, "seq": 1, "unread": 1, "unread_more": false, "mentions": 0,
                "message": {
                    "id": message.json["id"], "title": "Lake", "sender": "ann", "sender_name": "Ann of Green Gables", "kind": "text",
                    "preview": "a walk around it?", "created_at": message.json["created_at"],
                },
            }));
        }
        let said = service.has_taken(&browsers[3], 1, PATIENCE).await;
        assert_eq!(said[0], json!({"type": "message", "conversation_id": lake, "seq": 1, "unread": 1, "unread_more": false, "mentions": 0}));
        assert_eq!(service.taken(&browsers[3])[0].header("urgency"), "normal");

        // Who is named, and who is alone with the other one, is woken at once.
        let naming = json!({"client_id": "k2", "body": "you there?", "mentions": ["cid"]});
        bob.send_message(&lake, &naming).await.expect(201);
        let said = service.has_taken(&browsers[3], 2, PATIENCE).await;
        assert_eq!((&said[1]["seq"], &said[1]["mentions"], &said[1]["unread"]), (&json!(2), &json!(1), &json!(2)));
        assert_eq!(service.taken(&browsers[3])[1].header("urgency"), "high");
        ann.send_to_peer("bob", "k3", "between us").await.expect(201);
        let said = service.has_taken(&browsers[1], 2, PATIENCE).await;
        assert_eq!((&said[1]["conversation_id"], &said[1]["message"]["title"]), (&json!(pair("ann", "bob")), &json!("Ann of Green Gables")));
        assert_eq!(service.taken(&browsers[1])[1].header("urgency"), "high");

        // The service's own conversations count like any other; the timeline does not.
        let order = json!({"kind": "system", "key": "order.7", "members": ["cid"], "title": "Your order"});
        host.post("/v1/conversations", &order).await.expect(201);
        host.send("system:order.7", "k4", "It is on its way").await.expect(201);
        let said = service.has_taken(&browsers[3], 3, PATIENCE).await;
        assert_eq!((&said[2]["conversation_id"], &said[2]["seq"]), (&json!("system:order.7"), &json!(1)));
        ann.patch(&format!("/v1/conversations/{lake}"), &json!({"title": "Sea"})).await.expect(200);
        ann.invite(&lake, "dan").await.expect(201);
        // An edit of what everybody was told already is no news.
        ann.patch(&format!("/v1/conversations/{lake}/messages/1"), &json!({"body": "a swim?"})).await.expect(200);
        eventually("the archive has it", PATIENCE, async || count(fleet.database(), "messages WHERE body = 'a swim?'").await == 1).await;
        nothing_waits(fleet.database(), 3).await;
        // To Ann what Bob wrote, and nothing of her own.
        let said = service.has_taken(&browsers[0], 1, PATIENCE).await;
        assert_eq!((said.len(), &said[0]["message"]["preview"]), (1, &json!("you there?")));
        assert_eq!([1, 2, 3].map(|n| service.taken(&browsers[n]).len()), [2, 2, 3]);
        // One topic for one conversation at one browser, and another one everywhere else.
        let topic = |browser: usize, push: usize| service.taken(&browsers[browser])[push].header("topic").to_owned();
        assert_eq!(topic(3, 0), topic(3, 1));
        assert!(topic(3, 0) != topic(3, 2) && topic(1, 0) != topic(2, 0));
    }

    async fn what_is_not_so_any_more_when_a_push_is_sent_is_not_pushed(kind: RedisKind) {
        let service = PushService::start(|_| Reply::Status(503)).await;
        let fleet = Fleet::start_with(kind, 2, 1, &FLAGS).await;
        let ann = fleet.client(0, &User::new("ann"));
        let names = ["reads", "mutes", "leaves", "removed", "clears", "blocks", "stays"];
        let browsers: Vec<Browser> = names.iter().map(|name| Browser::new(&service, name)).collect();
        let clients: Vec<_> = names.iter().enumerate().map(|(n, name)| fleet.client(n, &User::new(*name))).collect();
        for (browser, client) in browsers.iter().zip(&clients) {
            browser.register(client, true).await.expect(201);
        }
        let lake = ann.create_group("Lake", &names[..5]).await;
        let deleted = ann.create_group("Deleted", &names[6..]).await;
        ann.send(&lake, "k1", "one").await.expect(201);
        ann.send_to_peer("blocks", "k1", "one").await.expect(201);
        ann.send(&deleted, "k1", "taken back").await.expect(201);
        eventually("all were tried", PATIENCE, async || {
            let pushed = service.pushed();
            names.iter().all(|name| pushed.iter().any(|one| one.path.ends_with(name)))
        })
        .await;
        clients[0].read(&lake, 1).await.expect(200);
        let preferences = format!("/v1/conversations/{lake}/preferences");
        clients[1].put(&preferences, Some(&json!({"muted": true}))).await.expect(200);
        clients[2].remove(&lake, "leaves").await.expect(204);
        ann.remove(&lake, "removed").await.expect(204);
        clients[4].put(&preferences, Some(&json!({"cleared_to": 1}))).await.expect(200);
        clients[5].put("/v1/blocks/ann", None).await.expect(200);
        ann.delete(&format!("/v1/conversations/{deleted}/messages/1")).await.expect(200);
        let kept = ann.create_group("Kept", &names[6..]).await;
        service.behave(|_| Reply::Status(201));
        ann.send(&kept, "k1", "kept").await.expect(201);
        let said = service.has_taken(&browsers[6], 1, PATIENCE).await;
        nothing_waits(fleet.database(), 4).await;
        assert_eq!((said.len(), &said[0]["message"]["preview"]), (1, &json!("kept")));
        for browser in &browsers[..6] {
            assert_eq!(service.taken(browser).len(), 0, "{}", browser.name);
        }
        assert_eq!(service.taken(&browsers[6]).len(), 1);

        // Of two messages of which the newer was taken back, the older is told of.
        service.behave(|_| Reply::Status(503));
        let before = service.pushed().len();
        ann.send(&kept, "k2", "older").await.expect(201);
        ann.send(&kept, "k3", "newer").await.expect(201);
        eventually("it was tried", PATIENCE, async || service.pushed().len() > before).await;
        ann.delete(&format!("/v1/conversations/{kept}/messages/3")).await.expect(200);
        service.behave(|_| Reply::Status(201));
        let said = service.has_taken(&browsers[6], 2, PATIENCE).await;
        assert_eq!((&said[1]["message"]["preview"], &said[1]["seq"], &said[1]["unread"]), (&json!("older"), &json!(2), &json!(2)));
        // And who wants silence from the beginning, gets it.
        clients[6].put(&format!("/v1/conversations/{kept}/preferences"), Some(&json!({"muted": true}))).await.expect(200);
        ann.send_message(&kept, &json!({"client_id": "k4", "body": "psst", "mentions": ["stays"]})).await.expect(201);
        eventually("it is archived", PATIENCE, async || count(fleet.database(), "messages WHERE body = 'psst'").await == 1).await;
        nothing_waits(fleet.database(), 4).await;
        assert_eq!(service.taken(&browsers[6]).len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_at_once_is_not_woken() {
    let service = PushService::willing().await;
    let fleet = Fleet::start_with(RedisKind::Single, 2, 1, &flags(&["--push-delay-ms", "1500"])).await;
    let (ann, bob, cid) = (fleet.client(0, &User::new("ann")), fleet.client(1, &User::new("bob")), fleet.client(0, &User::new("cid")));
    let (of_bob, of_cid) = (Browser::new(&service, "bob"), Browser::new(&service, "cid"));
    of_bob.register(&bob, true).await.expect(201);
    of_cid.register(&cid, true).await.expect(201);
    let lake = ann.create_group("Lake", &["bob", "cid"]).await;
    let begun = Instant::now();
    ann.send(&lake, "k1", "one").await.expect(201);
    bob.read(&lake, 1).await.expect(200);
    service.has_taken(&of_cid, 1, PATIENCE).await;
    assert!(begun.elapsed() > Duration::from_millis(1_400), "{:?}", begun.elapsed());
    nothing_waits(fleet.database(), 1).await;
    assert_eq!(service.taken(&of_bob).len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_group_makes_few_pushes_and_the_last_one_tells_of_all() {
    let service = PushService::willing().await;
    let fleet = Fleet::start_with(RedisKind::Single, 2, 2, &flags(&["--push-delay-ms", "300", "--push-interval-ms", "1500"])).await;
    let (ann, bob) = (fleet.client(0, &User::new("ann")), fleet.client(1, &User::new("bob")));
    let browser = Browser::new(&service, "bob");
    browser.register(&bob, true).await.expect(201);
    let lake = ann.create_group("Lake", &["bob", "cid"]).await;
    for n in 1..=60 {
        fleet.client(n, ann.user()).send(&lake, &format!("k{n}"), &format!("m{n}")).await.expect(201);
    }
    let mut last = Value::Null;
    eventually("all are told of", PATIENCE, async || {
        last = service.taken(&browser).last().map_or(Value::Null, |pushed| browser.decrypt(pushed));
        last["seq"] == 60
    })
    .await;
    nothing_waits(fleet.database(), 1).await;
    assert_eq!((&last["unread"], &last["message"]["preview"]), (&json!(60), &json!("m60")));
    let pushes = service.taken(&browser).len();
    assert!((1..=6).contains(&pushes), "{pushes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_looked_is_told_at_once_of_what_comes_next() {
    let service = PushService::willing().await;
    let fleet = Fleet::start_with(RedisKind::Single, 2, 1, &flags(&["--push-interval-ms", "3600000"])).await;
    let (ann, bob) = (fleet.client(0, &User::new("ann")), fleet.client(1, &User::new("bob")));
    let browser = Browser::new(&service, "bob");
    browser.register(&bob, true).await.expect(201);
    let lake = ann.create_group("Lake", &["bob"]).await;
    ann.send(&lake, "k1", "one").await.expect(201);
    service.has_taken(&browser, 1, PATIENCE).await;
    ann.send(&lake, "k2", "two").await.expect(201);
    eventually("the second waits", PATIENCE, async || count(fleet.database(), "push_queue WHERE seq = 2 AND sent_seq = 1").await == 1)
        .await;
    bob.read(&lake, 2).await.expect(200);
    eventually("it is known", PATIENCE, async || count(fleet.database(), "read_marks WHERE user_id = 'bob' AND seq = 2").await == 1).await;
    ann.send(&lake, "k3", "three").await.expect(201);
    let said = service.has_taken(&browser, 2, PATIENCE).await;
    assert_eq!((&said[1]["seq"], &said[1]["unread"]), (&json!(3), &json!(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_numbered_anew_wakes_its_readers() {
    let service = PushService::willing().await;
    let fleet = Fleet::start_with(RedisKind::Single, 2, 1, &FLAGS).await;
    let (ann, bob) = (fleet.client(0, &User::new("ann")), fleet.client(1, &User::new("bob")));
    let browser = Browser::new(&service, "bob");
    browser.register(&bob, true).await.expect(201);
    let group = ann.create_group("Lake", &["bob"]).await;
    let head = ann.conversation(&group).await.json["head_seq"].as_u64().unwrap();
    intrude(fleet.database(), &group, [head + 1]).await;
    let sent = ann.send(&group, "k1", "whisper").await.expect(201);
    let said = service.has_taken(&browser, 1, PATIENCE).await;
    let again = ann.send(&group, "k1", "whisper").await.expect(200);
    assert!(again.seq() > sent.seq());
    assert_eq!((&said[0]["message"]["preview"], &said[0]["seq"]), (&json!("whisper"), &again.json["seq"]));
    nothing_waits(fleet.database(), 1).await;
    assert_eq!(service.pushed().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_message_makes_a_push_that_is_taken_everywhere() {
    let service = PushService::willing().await;
    let fleet = Fleet::start_with(RedisKind::Single, 1, 1, &FLAGS).await;
    let (ann, bob) = (fleet.client(0, &User::new("ann")), fleet.client(0, &User::new("bob")));
    let browser = Browser::new(&service, "bob");
    browser.register(&bob, true).await.expect(201);
    let family = "\u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467}";
    for (n, (character, count)) in [("中", 4_000), ("\u{1F600}", 4_000), (family, 800)].into_iter().enumerate() {
        ann.send_to_peer("bob", &format!("k{n}"), &character.repeat(count)).await.expect(201);
        let said = service.has_taken(&browser, n + 1, PATIENCE).await;
        let preview = said[n]["message"]["preview"].as_str().unwrap().strip_suffix('…').unwrap();
        assert!(preview.len() > 100 && preview.replace(character, "").is_empty(), "{preview}");
        assert!(service.taken(&browser)[n].body.len() <= 3_010, "aimed at by far fewer than 4,096");
    }
}

async fn push_all(stores: &Arc<seqline::actions::Stores>, pair: &StorePair) {
    let mut worker = SendPushes::new(Arc::clone(stores));
    eventually("nothing waits", PATIENCE, async || {
        worker.run_once().await.unwrap();
        count(&pair.database, "push_lines WHERE head_seq > done_seq").await == 0
            && count(&pair.database, "push_queue WHERE seq > sent_seq").await == 0
    })
    .await;
    worker.finish().await;
}

on_both! {
    async fn archiving_again_pushes_nothing_again_and_cold_conversations_are_pushed_as_well(kind: RedisKind) {
        let service = PushService::willing().await;
        let pair = StorePair::with(kind, &FLAGS).await;
        let gateway = Fleet::start_over(
            crate::harness::PrivateRedis::elsewhere(pair.redis.url()), pair.database.at(pair.database.url()), 1, 0, &FLAGS).await;
        let browser = Browser::new(&service, "bob");
        browser.register(&gateway.client(0, &User::new("bob")), true).await.expect(201);
        let id = group(&pair.one, "ann", &["bob"]).await;
        send_run(&pair.one, "ann", &id, 1..=5).await;
        tokio::join!(archive_all(&pair.one), archive_all(&pair.two));
        tokio::join!(push_all(&pair.one, &pair), push_all(&pair.two, &pair));
        assert_eq!(service.taken(&browser).len(), 1, "two workers at once, one push");
        // As if it were long ago.
        sqlx::raw_sql("DELETE FROM push_queue").execute(&mut pair.database.connect().await).await.unwrap();
        forget_cursor(&pair.one, "archived").await;
        tokio::join!(archive_all(&pair.one), archive_all(&pair.two));
        push_all(&pair.two, &pair).await;
        assert_eq!(service.taken(&browser).len(), 1);
        send_run(&pair.one, "ann", &id, 6..=7).await;
        dispatch_all(&pair.one).await;
        archive_all(&pair.one).await;
        assert_eq!(cool_all(&pair.one).await.unwrap(), 0);
        push_all(&pair.one, &pair).await;
        let said = service.has_taken(&browser, 2, PATIENCE).await;
        assert_eq!((&said[1]["seq"], &said[1]["unread"], &said[1]["message"]["preview"]), (&json!(7), &json!(7), &json!("m7")));
    }
}
