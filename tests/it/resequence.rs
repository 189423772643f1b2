//! Another message stands in the archive on the number that one of ours was given: both are kept, ours is numbered anew and everybody is told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seqline::actions::archive_outbox::retry_aside;
use serde_json::{Value, json};

use crate::harness::host_application::SECRETS;
use crate::harness::{
    Client, EventStream, Fleet, HostApplication, PATIENCE, ProcessFleet, RedisKind, Reply, StorePair, TestDatabase, User, eventually,
    eventually_some, on_both, stores,
};
use crate::scene;

/// Puts messages of somebody else on these numbers, behind everybody's back, and gives their ids.
pub async fn intrude(database: &TestDatabase, conversation: &str, seqs: impl IntoIterator<Item = u64>) -> Vec<String> {
    let mut connection = database.connect().await;
    let mut ids = Vec::new();
    for seq in seqs {
        let sql = "INSERT INTO messages (conv_id, seq, id, sender, kind, body, rev, created_at_ms)
                   VALUES ($1, $2, gen_random_uuid(), 'eve', 'text', 'foreign', 1, 1) RETURNING id::text";
        let query = sqlx::query_scalar::<_, String>(sql).bind(conversation).bind(i64::try_from(seq).unwrap());
        ids.push(query.fetch_one(&mut connection).await.unwrap());
    }
    ids
}

/// Number and id of every message in Postgres.
async fn archived(database: &TestDatabase, conversation: &str) -> BTreeMap<u64, String> {
    let rows = sqlx::query_as::<_, (i64, String)>("SELECT seq, id::text FROM messages WHERE conv_id = $1").bind(conversation);
    let rows = rows.fetch_all(&mut database.connect().await).await.unwrap();
    rows.into_iter().map(|(seq, id)| (u64::try_from(seq).unwrap(), id)).collect()
}

fn place(message: &Value) -> (u64, String) {
    (message["seq"].as_u64().unwrap(), message["id"].as_str().unwrap().to_owned())
}

async fn shown(client: &Client, conversation: &str) -> BTreeMap<u64, String> {
    client.whole_history(conversation).await.iter().map(place).collect()
}

/// Waits until both gateways and Postgres say the same, with all of these ids, each once; gives it.
async fn settled(fleet: &Fleet, user: &User, conversation: &str, ids: &BTreeSet<String>) -> BTreeMap<u64, String> {
    eventually_some("everything stands", PATIENCE, async || {
        let (one, two) = (shown(&fleet.client(0, user), conversation).await, shown(&fleet.client(1, user), conversation).await);
        let stored = archived(fleet.database(), conversation).await;
        let all: BTreeSet<String> = one.values().cloned().collect();
        if one == two && one == stored && all == *ids && all.len() == one.len() { Ok(one) } else { Err((one, two, stored)) }
    })
    .await
}

/// What a client makes of events: who stands where, and which messages were moved.
#[derive(Default, Debug, Clone)]
struct Folded {
    standing: BTreeMap<u64, String>,
    moved: Vec<(u64, String, u64)>,
    /// Numbers on which something is still to follow.
    owed: BTreeSet<u64>,
}

impl Folded {
    fn take(&mut self, name: &str, data: &Value) {
        if name == "message.resequenced" {
            let ((seq, id), old) = (place(&data["message"]), data["old_seq"].as_u64().unwrap());
            assert!(seq > old, "{data}");
            if self.standing.get(&old) == Some(&id) {
                self.standing.remove(&old);
            }
            self.owed.insert(old);
            self.moved.push((old, id.clone(), seq));
            self.standing.insert(seq, id);
        } else if matches!(name, "message.created" | "message.edited") {
            let (seq, id) = place(&data["message"]);
            self.owed.remove(&seq);
            self.standing.insert(seq, id);
        }
    }
}

async fn follow(stream: &mut EventStream, folded: &mut Folded, wanted: &BTreeMap<u64, String>) {
    while folded.standing != *wanted || !folded.owed.is_empty() {
        let Ok(event) = tokio::time::timeout(Duration::from_secs(30), stream.next_event(PATIENCE)).await else {
            panic!("heard {folded:?}, wanted {wanted:?}");
        };
        let event = event.unwrap();
        folded.take(&event.name, &event.data["data"]);
    }
}

async fn polled(client: &Client, from: &str) -> Folded {
    let (mut folded, mut after) = (Folded::default(), from.to_owned());
    loop {
        let answer = client.get(&format!("/v1/events/poll?after={after}&limit=100")).await.expect(200).json;
        let events = answer["events"].as_array().unwrap();
        events.iter().for_each(|event| folded.take(event["type"].as_str().unwrap(), &event["data"]));
        let next = answer["next"].as_str().unwrap().to_owned();
        if events.is_empty() && next == after {
            return folded;
        }
        after = next;
    }
}

on_both! {
    async fn both_are_kept_ours_moves_and_everybody_is_told_alike(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
        let start = b.conversations().await.expect(200).json["events_head"].as_str().unwrap().to_owned();
        let group = a.create_group("lake", &["bob"]).await;
        let (mut at_ann, mut at_bob) = (a.stream().open().await, b.stream().open().await);
        at_ann.wait_for("hello", PATIENCE).await;
        at_bob.wait_for("hello", PATIENCE).await;
        let (mut folded_ann, mut folded_bob, mut ids) = (Folded::default(), Folded::default(), BTreeSet::new());
        let (mut n, mut moved) = (0, 0);
        for round in 0..12_u64 {
            // Now one, now several, now more than are sent.
            let (intruders, sends) = [(1, 1), (5, 2), (1, 6), (3, 6)][usize::try_from(round % 4).unwrap()];
            let head = a.conversation(&group).await.json["head_seq"].as_u64().unwrap();
            ids.extend(intrude(fleet.database(), &group, head + 1..=head + intruders).await);
            let sent = futures_util::future::join_all((0..sends).map(|i| {
                let (client, key) = (if i % 2 == 0 { &a } else { &b }, format!("k{}", n + i));
                let group = &group;
                async move { (client, client.send(group, &key, "whisper").await.expect(201), key) }
            }))
            .await;
            n += sends;
            ids.extend(sent.iter().map(|(_, answer, _)| place(&answer.json).1));
            let standing = settled(&fleet, &ann, &group, &ids).await;
            assert_eq!(standing.keys().copied().collect::<Vec<_>>(), (1..=standing.len() as u64).collect::<Vec<_>>(), "no gap, no repeat");
            follow(&mut at_ann, &mut folded_ann, &standing).await;
            follow(&mut at_bob, &mut folded_bob, &standing).await;
            // A resend is answered with the final number, by either gateway.
            for (client, first, key) in &sent {
                let (old, id) = place(&first.json);
                let again = Client::new(fleet.url(usize::from(old % 2 == 0)), client.user()).send(&group, key, "whisper").await.expect(200);
                assert_eq!(again.header("idempotency-replayed"), Some("true"));
                assert_eq!(standing[&again.seq()], id);
                assert_eq!(again.json["id"], json!(id));
                moved += u64::from(again.seq() != old);
                let state = client.get(&format!("/v1/conversations/{group}/messages/by-client-id/{key}")).await.expect(200);
                assert_eq!((&state.json["state"], place(&state.json["message"])), (&json!("archived"), (again.seq(), id)));
            }
        }
        assert!(moved >= 12, "{moved}");
        assert_eq!(folded_ann.moved.len() as u64, moved);
        assert_eq!(folded_bob.moved, folded_ann.moved);
        // Who comes later hears what the others heard.
        let standing = settled(&fleet, &ann, &group, &ids).await;
        let mut late = Folded::default();
        follow(&mut b.stream().after(&start).open().await, &mut late, &standing).await;
        let polled = polled(&b, &start).await;
        assert_eq!((&polled.standing, &polled.moved), (&standing, &folded_bob.moved));
        // The archive went on, and nothing waits aside.
        let own = stores::open(&fleet.redis_url(), fleet.database().url(), &[]).await;
        let id = seqline::domain::ids::ConversationId::parse(&group).unwrap();
        let state = scene::state(&own, own.keys.shard_of(&id)).await;
        assert_eq!((state.archived, state.aside), (state.last, 0));
        let rev = a.conversation(&group).await.json["rev"].as_u64().unwrap();
        let changed = a.history(&group, &format!("since_rev={}&limit=200", rev - 1)).await.expect(200);
        assert!(changed.items().len() <= 1, "nothing goes on changing");
    }
}

/// Two gateways and no worker yet: what is done before the archive sees anything is done for certain.
async fn before_the_archive(kind: RedisKind, flags: &[&str]) -> (Fleet, Client, Client, String) {
    let fleet = Fleet::start_with(kind, 2, 0, flags).await;
    let (a, b) = (fleet.client(0, &User::new("ann")), fleet.client(1, &User::new("bob")));
    let group = a.create_group("lake", &["bob", "cid"]).await;
    (fleet, a, b, group)
}

on_both! {
    async fn everything_that_hangs_on_a_message_goes_with_it(kind: RedisKind) {
        let (mut fleet, a, b, group) = before_the_archive(kind, &[]).await;
        let path = |seq: u64| format!("/v1/conversations/{group}/messages/{seq}");
        let first = a.send_message(&group, &json!({"client_id": "k1", "body": "shall we meet?", "mentions": ["cid"]})).await.expect(201);
        let answer = b.send_message(&group, &json!({"client_id": "k1", "body": "yes", "reply_to": 1})).await.expect(201);
        a.patch(&path(1), &json!({"body": "shall we meet at noon?"})).await.expect(200);
        b.put(&format!("{}/reactions/%F0%9F%91%8D", path(1)), None).await.expect(200);
        let gone = a.send(&group, "k3", "not this").await.expect(201);
        assert!(a.delete(&path(3)).await.status < 300);
        let c = fleet.client(0, &User::new("cid"));
        c.read(&group, 1).await.expect(200);
        let foreign = intrude(fleet.database(), &group, [1, 3, 4]).await;
        fleet.add_worker().await;
        let ids = [&first, &answer, &gone].map(|sent| place(&sent.json).1).into_iter().chain(foreign.clone()).collect();
        let standing = settled(&fleet, a.user(), &group, &ids).await;
        assert_eq!(standing[&1], foreign[0]);
        assert_eq!((&standing[&5], &standing[&6]), (&place(&first.json).1, &place(&gone.json).1));
        let now = b.get(&path(5)).await.expect(200).json;
        assert_eq!((&now["body"], now["edited_at"].is_string()), (&json!("shall we meet at noon?"), true));
        assert_eq!(now["reactions"][0]["count"], 1);
        assert!(b.get(&path(6)).await.expect(200).json["deleted_at"].is_string());
        let quoting = b.get(&path(2)).await.expect(200).json;
        assert_eq!((&quoting["reply_to"]["seq"], &quoting["reply_to"]["preview"]), (&json!(5), &json!("shall we meet at noon?")));
        // What cid had read stays read, and what stands higher now is unread once more.
        let me = |client: Client, group: String| async move {
            let mut me = client.conversation(&group).await.expect(200).json["me"].clone();
            me.as_object_mut().unwrap().remove("read_at");
            me
        };
        let warm = [me(a.clone(), group.clone()).await, me(b.clone(), group.clone()).await, me(c.clone(), group.clone()).await];
        assert_eq!((&warm[2]["read_seq"], &warm[2]["unread"]), (&json!(1), &json!(4)), "the answer, two foreign ones, the moved one");
        assert_eq!(warm[2]["unread_mentions"], 1, "it names cid where it stands now");
        assert_eq!(warm[0]["unread"], 0, "one's own is read");
        // Redis and Postgres say the same of it all.
        let own = stores::open(&fleet.redis_url(), fleet.database().url(), &[]).await;
        let id = seqline::domain::ids::ConversationId::parse(&group).unwrap();
        let whole = own.archive.load_conversation(&id, 100).await.unwrap().unwrap();
        assert_eq!(whole.uncounted, [6]);
        eventually("it is cooled", PATIENCE, async || {
            use seqline::actions::cool_conversation::{Cooled, cool_conversation};
            cool_conversation(&own, &id, "test", i64::MAX / 2).await.unwrap() == Cooled::Gone
        })
        .await;
        let cold = [me(a.clone(), group.clone()).await, me(b.clone(), group.clone()).await, me(c, group.clone()).await];
        assert_eq!(cold, warm);
        let versions = own.archive.versions_of(&id, 5).await.unwrap();
        assert_eq!(versions.first().map(|v| v.body.as_str()), Some("shall we meet?"));
        assert_eq!((own.archive.versions_of(&id, 1).await.unwrap().len(), own.archive.versions_of(&id, 6).await.unwrap().len()), (0, 1));
    }

    async fn numbers_far_above_are_passed_at_once_and_what_is_between_is_void(kind: RedisKind) {
        let (mut fleet, a, b, group) = before_the_archive(kind, &["--lease-block", "20"]).await;
        let first = a.send(&group, "k1", "one").await.expect(201);
        let foreign = intrude(fleet.database(), &group, [1, 2, 9].into_iter().chain(100..330)).await;
        fleet.add_worker().await;
        let ids = foreign.into_iter().chain([place(&first.json).1]).collect();
        let standing = settled(&fleet, a.user(), &group, &ids).await;
        assert_eq!(standing.last_key_value(), Some((&330, &place(&first.json).1)));
        let page = b.history(&group, "after=0&limit=10").await.expect(200).json;
        assert_eq!(page["voids"], json!([[3, 8], [10, 99]]));
        assert_eq!(b.send(&group, "k2", "two").await.expect(201).seq(), 331, "never a number that is known");
        eventually("the voids are kept", PATIENCE, async || {
            let rows = sqlx::query_as::<_, (i64, i64)>("SELECT from_seq, to_seq FROM voids WHERE conv_id = $1 ORDER BY 1").bind(&group);
            rows.fetch_all(&mut fleet.database().connect().await).await.unwrap() == [(3, 8), (10, 99)]
        })
        .await;
    }

    async fn the_host_application_and_late_readers_hear_of_each_message_once(kind: RedisKind) {
        let host = HostApplication::start(|_| Reply::Status(204)).await;
        let url = host.url();
        let (mut fleet, a, b, group) = before_the_archive(kind, &["--webhook-url", &url, "--webhook-secrets", SECRETS]).await;
        let start = b.get("/v1/events/poll?wait=0").await.expect(200).json["next"].as_str().unwrap().to_owned();
        let first = a.send(&group, "k1", "ours").await.expect(201);
        let foreign = intrude(fleet.database(), &group, [1]).await;
        fleet.add_worker().await;
        let ids = [place(&first.json).1, foreign[0].clone()].into();
        settled(&fleet, a.user(), &group, &ids).await;
        let wanted = [("message.resequenced", 2, place(&first.json).1), ("message.created", 1, foreign[0].clone())];
        let told = host.has_taken(3, PATIENCE).await;
        let of = |kind: &str, data: &Value| (kind.to_owned(), data["message"]["seq"].as_u64().unwrap(), data["message"]["id"].as_str().unwrap().to_owned());
        let wanted = wanted.map(|(kind, seq, id)| (kind.to_owned(), seq, id));
        assert_eq!(told[1..].iter().map(|call| of(call.kind(), &call.json["data"])).collect::<Vec<_>>(), wanted);
        assert_eq!((&told[1].json["data"]["old_seq"], told[1].json["data"].as_object().unwrap().len()), (&json!(1), 2));
        let polled = eventually_some("all is on the log", PATIENCE, async || {
            let answer = b.get(&format!("/v1/events/poll?after={start}")).await.expect(200).json;
            if answer["events"].as_array().unwrap().len() >= 3 { Ok(answer) } else { Err(answer) }
        })
        .await;
        let polled = polled["events"].as_array().unwrap();
        assert_eq!(polled[0]["type"], "conversation.created");
        assert_eq!(polled[1..].iter().map(|event| of(event["type"].as_str().unwrap(), &event["data"])).collect::<Vec<_>>(), wanted);
    }

    async fn a_send_that_waits_for_the_archive_is_answered_with_the_final_number(fleet: Fleet) {
        let (a, b) = (fleet.client(0, &User::new("ann")), fleet.client(1, &User::new("bob")));
        let group = a.create_group("lake", &["bob"]).await;
        for round in 0..5 {
            let head = a.conversation(&group).await.json["head_seq"].as_u64().unwrap();
            let foreign = intrude(fleet.database(), &group, [head + 1]).await;
            let path = format!("/v1/conversations/{group}/messages?ack=archived");
            let sent = b.post(&path, &json!({"client_id": format!("k{round}"), "body": "wait"})).await.expect(201);
            assert_eq!((sent.seq(), sent.header("seqline-ack")), (head + 2, Some("archived")));
            let ids: BTreeSet<String> = archived(fleet.database(), &group).await.into_values().collect();
            assert!(ids.contains(&foreign[0]));
            settled(&fleet, a.user(), &group, &ids).await;
        }
    }

    async fn a_key_that_names_an_archived_message_goes_on_naming_it(kind: RedisKind) {
        let (mut fleet, a, b, group) = before_the_archive(kind, &[]).await;
        a.send(&group, "k0", "before").await.expect(201);
        let (same, other) = (a.send(&group, "k1", "one").await.expect(201), a.send(&group, "k2", "two").await.expect(201));
        // The archive knows both keys: one with these very words, one with others.
        let mut connection = fleet.database().connect().await;
        for (seq, key, print) in [(11_i64, "k1", "one"), (12, "k2", "something else")] {
            let draft = seqline::domain::message::Draft::text(seqline::domain::ids::ClientKey::parse(key).unwrap(), print.to_owned());
            let sql = "INSERT INTO messages (conv_id, seq, id, sender, client_id, kind, body, fingerprint, rev, created_at_ms)
                       VALUES ($1, $2, gen_random_uuid(), 'ann', $3, 'text', $4, $5, 1, 1)";
            let query = sqlx::query(sql).bind(&group).bind(seq).bind(key).bind(print).bind(draft.fingerprint());
            query.execute(&mut connection).await.unwrap();
        }
        fleet.add_worker().await;
        let at = |seq: u64| format!("/v1/conversations/{group}/messages/{seq}");
        eventually("both are settled", PATIENCE, async || {
            let (two, three) = (b.get(&at(2)).await.expect(200).json, b.get(&at(3)).await.expect(200).json);
            two["client_id"].is_null() && three["client_id"].is_null() && archived(fleet.database(), &group).await.len() == 5
        })
        .await;
        let gone = b.get(&at(2)).await.expect(200).json;
        assert_eq!((&gone["id"], &gone["body"], gone["deleted_at"].is_string()), (&same.json["id"], &json!(""), true), "said once is enough");
        let kept = b.get(&at(3)).await.expect(200).json;
        assert_eq!((&kept["id"], &kept["body"], &kept["deleted_at"]), (&other.json["id"], &json!("two"), &Value::Null), "nothing is lost");
        for gateway in 0..2 {
            let a = fleet.client(gateway, a.user());
            assert_eq!(a.send(&group, "k1", "one").await.expect(200).seq(), 11);
            a.send(&group, "k2", "two").await.expect_problem(409, "idempotency_conflict");
            assert_eq!(a.send(&group, "k2", "something else").await.expect(200).seq(), 12);
        }
        assert_eq!(a.conversation(&group).await.json["me"]["read_seq"], 3);
    }

    async fn what_left_redis_in_between_is_numbered_anew_when_it_is_back(pair: StorePair) {
        let id = scene::group(&pair.one, "ann", &["bob"]).await;
        scene::send_run(&pair.one, "ann", &id, 1..=3).await;
        scene::archive_all(&pair.one).await;
        scene::send_run(&pair.one, "ann", &id, 4..=5).await;
        let foreign = intrude(&pair.database, id.as_str(), [4]).await;
        // Its keys are lost before the archive comes to it.
        for key in pair.one.keys.conversation(&id).all() {
            scene::redis(&pair.one, "DEL", &[&key]).await;
        }
        scene::archive_all(&pair.one).await;
        let shard = pair.one.keys.shard_of(&id);
        assert_eq!(scene::state(&pair.one, shard).await.aside, 1);
        assert_eq!(archived(&pair.database, id.as_str()).await[&4], foreign[0]);
        // Two at once, and once more.
        let (one, two) = tokio::join!(retry_aside(&pair.one, shard), retry_aside(&pair.two, shard));
        assert_eq!((one.unwrap().len(), two.unwrap().len()), (0, 0));
        assert!(retry_aside(&pair.two, shard).await.unwrap().is_empty());
        scene::archive_all(&pair.one).await;
        let whole = pair.one.archive.load_conversation(&id, 100).await.unwrap().unwrap();
        let bodies: Vec<&str> = whole.recent.iter().map(|m| m.body.as_str()).collect();
        assert_eq!(bodies, ["m1", "m2", "m3", "foreign", "m5", "m4"]);
        let again = scene::try_send(&pair.two, "ann", &id, "k4", "m4").await.unwrap();
        assert_eq!(again, whole.conversation.head_seq, "the final number");
        assert_eq!(scene::state(&pair.one, shard).await.aside, 0);
        scene::dispatch_all(&pair.one).await;
        let told = scene::log(&pair.one, "bob").await;
        assert_eq!(told.iter().filter(|(kind, ..)| kind.as_str() == "message.resequenced").count(), 1);
    }

    async fn doing_it_again_changes_nothing(pair: StorePair) {
        let id = scene::group(&pair.one, "ann", &["bob"]).await;
        scene::send_run(&pair.one, "ann", &id, 1..=6).await;
        intrude(&pair.database, id.as_str(), [2, 3, 7, 8]).await;
        // A worker that ended after it had moved them and before the cursor passed, and another one beside it.
        tokio::join!(scene::archive_all(&pair.one), scene::archive_all(&pair.two));
        let once = archived(&pair.database, id.as_str()).await;
        assert_eq!(once.keys().copied().collect::<Vec<_>>(), (1..=once.len() as u64).collect::<Vec<_>>());
        assert_eq!(once.len(), 10);
        scene::forget_cursor(&pair.one, "archived").await;
        tokio::join!(scene::archive_all(&pair.one), scene::archive_all(&pair.two));
        assert_eq!(archived(&pair.database, id.as_str()).await, once);
        assert_eq!(scene::state(&pair.one, pair.one.keys.shard_of(&id)).await.aside, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_names_the_place_and_not_the_words() {
    let mut fleet = ProcessFleet::start(RedisKind::Single, 1, 0).await;
    let a = fleet.client(0, &User::new("ann"));
    let group = a.create_group("lake", &["bob"]).await;
    let sent = a.send(&group, "k1", "a-very-private-word").await.expect(201);
    intrude(fleet.database(), &group, [1]).await;
    let worker = fleet.add_worker();
    eventually("it is moved", PATIENCE, async || a.send(&group, "k1", "a-very-private-word").await.expect(200).seq() == 2).await;
    let id = sent.json["id"].as_str().unwrap();
    eventually("it is logged", PATIENCE, async || fleet.workers[worker].log().contains(id)).await;
    assert!(!fleet.workers[worker].log().contains("a-very-private-word"));
    assert_eq!(fleet.workers[worker].metric("seqline_seq_conflicts_total").await, Some(1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_are_killed_in_between_move_nothing_twice() {
    let mut fleet = ProcessFleet::start(RedisKind::Single, 2, 2).await;
    let (a, b) = (fleet.client(0, &User::new("ann")), fleet.client(1, &User::new("bob")));
    let group = a.create_group("lake", &["bob"]).await;
    let mut stream = b.stream().open().await;
    stream.wait_for("hello", PATIENCE).await;
    let (mut ids, mut head) = (BTreeSet::new(), 0);
    for round in 0..6_u64 {
        ids.extend(intrude(fleet.database(), &group, head + 1..=head + 3).await);
        for n in 0..4 {
            let client = if n % 2 == 0 { &a } else { &b };
            ids.insert(place(&client.send(&group, &format!("k{round}-{n}"), "word").await.expect(201).json).1);
        }
        let victim = usize::try_from(round % 2).unwrap();
        fleet.workers[victim].kill().await;
        fleet.workers[victim].start_again().await;
        let standing = eventually_some("everything stands", PATIENCE, async || {
            let (one, two) = (shown(&a, &group).await, shown(&b, &group).await);
            let stored = archived(fleet.database(), &group).await;
            let all: BTreeSet<String> = one.values().cloned().collect();
            if one == two && one == stored && all == ids && all.len() == one.len() { Ok(one) } else { Err((one, two, stored)) }
        })
        .await;
        head = *standing.last_key_value().unwrap().0;
        assert_eq!(head, standing.len() as u64, "no gap");
    }
    let mut folded = Folded::default();
    follow(&mut stream, &mut folded, &shown(&b, &group).await).await;
    let moved: BTreeSet<&(u64, String, u64)> = folded.moved.iter().collect();
    assert_eq!(moved.len(), folded.moved.len(), "each once");
    // Three where all were sent before the first was archived, one where that came between.
    assert!(folded.moved.len() >= 6, "{}", folded.moved.len());
}
