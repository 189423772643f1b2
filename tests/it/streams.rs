//! Streams: how they open, what they carry, how they are kept alive, and how they end.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::fleet::PATIENCE;
use crate::harness::user::now_s;
use crate::harness::{Fleet, PrivateRedis, RedisKind, StreamRequest, TestDatabase, User, eventually, on_both};
use crate::harness::{log_writer::LogWriter, lone_gateway::LoneGateway};

on_both! {
    async fn a_stream_opens_with_its_place_and_hello(fleet: Fleet) {
        let ann = User::new("ann");
        let mut stream = fleet.client(0, &ann).stream().with("device", "phone 1").open().await;
        assert_eq!(stream.headers["content-type"], "text/event-stream");
        assert_eq!(stream.headers["cache-control"], "no-cache, no-transform");
        assert_eq!(stream.headers["x-accel-buffering"], "no");
        assert!(stream.headers.get("content-encoding").is_none());
        let first = stream.next_frame(PATIENCE).await.unwrap();
        assert!((1_000..=5_000).contains(&first.retry.unwrap()) && first.event.is_none() && first.data.is_none(), "{first:?}");
        let place = first.id.unwrap();
        let hello = stream.next_frame(PATIENCE).await.unwrap();
        assert_eq!((hello.event.as_deref(), hello.id), (Some("hello"), None));
        let data: Value = serde_json::from_str(&hello.data.unwrap()).unwrap();
        assert_eq!((&data["device"], &data["resumed_from"], &data["head"]), (&json!("phone 1"), &Value::Null, &json!(place)));
        assert!(data["server_time"].as_str().unwrap().ends_with('Z'));
    }

    async fn a_message_reaches_both_on_other_gateways_byte_for_byte(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (mut at_ann, mut at_bob) = (fleet.client(0, &ann).stream().open().await, fleet.client(1, &bob).stream().open().await);
        at_ann.wait_for("hello", PATIENCE).await;
        at_bob.wait_for("hello", PATIENCE).await;
        let body = "x\r\nid: 9-9\r\nevent: member.removed\r\n\r\ndata: {}\n\u{2028} 北 end";
        let sent = fleet.client(0, &ann).send_to_peer("bob", "k1", body).await.expect(201);
        for stream in [&mut at_ann, &mut at_bob] {
            let event = loop {
                let event = stream.next_event(PATIENCE).await.unwrap();
                assert_ne!(event.name, "member.removed");
                if event.name == "message.created" { break event; }
            };
            assert_eq!(event.data["id"], json!(event.id.clone().unwrap()), "the id inside and outside");
            assert_eq!((&event.data["type"], &event.data["version"]), (&json!("message.created"), &json!(1)));
            assert_eq!(event.data["data"]["message"], sent.json, "the same message as the answer's");
            assert_eq!((&event.data["conversation_id"], &event.data["rev"]), (&sent.json["conversation_id"], &sent.json["rev"]));
            assert_eq!(event.data["data"]["message"]["body"], json!(body));
        }
        assert!(at_bob.until_quiet(Duration::from_millis(700)).await.is_empty());
    }

    async fn who_is_removed_gets_that_and_nothing_after_it(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let owner = fleet.client(0, &ann);
        let mut at_bob = fleet.client(1, &bob).stream().open().await;
        at_bob.wait_for("hello", PATIENCE).await;
        let group = owner.create_group("G", &["bob", "cid"]).await;
        let made = at_bob.wait_for("conversation.created", PATIENCE).await;
        assert_eq!(made.data["data"]["conversation"]["id"], json!(group), "{made:?}");
        owner.send(&group, "k1", "one").await.expect(201);
        assert_eq!(at_bob.next_message(PATIENCE).await["body"], "one");
        owner.remove(&group, "bob").await;
        let removed = at_bob.wait_for("member.removed", PATIENCE).await;
        assert_eq!(removed.data["data"]["user_id"], "bob");
        owner.send(&group, "k2", "two").await.expect(201);
        assert_eq!(at_bob.until_quiet(Duration::from_millis(900)).await, vec![]);
        // Read again from before: what one may not see any more is passed over, the removal is not.
        let again: Vec<_> = fleet.client(0, &bob).stream().after(made.id.unwrap()).open().await.until_quiet(Duration::from_millis(900)).await;
        let names: Vec<_> = again.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["hello", "member.removed"]);
    }

    async fn what_is_replayed_is_as_it_is_now(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let mut stream = fleet.client(0, &bob).stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        let start = stream.last_id().unwrap().to_owned();
        for n in 0..5 {
            fleet.client(0, &ann).send_to_peer("bob", &format!("k{n}"), &format!("m{n}")).await.expect(201);
        }
        for n in 0..5 {
            assert_eq!(stream.next_message(PATIENCE).await["body"], format!("m{n}"));
        }
        let mut replay = fleet.client(1, &bob).stream().after(start.clone()).open().await;
        let hello = replay.wait_for("hello", PATIENCE).await;
        assert_eq!(hello.data["resumed_from"], json!(start));
        for n in 0..5 {
            assert_eq!(replay.next_message(PATIENCE).await["body"], format!("m{n}"));
        }
    }

    async fn a_hung_redis_does_not_end_streams_and_nothing_is_missing_after(fleet: Fleet) {
        let mut fleet = fleet;
        let mut writer = LogWriter::new(&fleet.redis().url(), "ann").await;
        let ann = User::new("ann");
        let mut stream = fleet.client(0, &ann).stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        writer.write(3).await;
        for n in 1..=3 {
            assert_eq!(stream.next_event(PATIENCE).await.unwrap().data["data"]["n"], n);
        }
        fleet.redis().nodes().iter_mut().for_each(|node| node.process().signal("STOP"));
        let mut said = false;
        for _ in 0..20 {
            let frame = stream.next_frame(PATIENCE).await.expect("the stream stays open");
            said |= frame.comments.iter().any(|c| c.contains("redis is away"));
            if said { break; }
        }
        assert!(said, "and says so");
        let refused = fleet.client(1, &User::new("bob")).stream().open().await.until_quiet(Duration::from_secs(8)).await;
        assert_eq!(refused.iter().map(|e| (e.name.as_str(), e.data["code"].as_str().unwrap())).collect::<Vec<_>>(), [("unavailable", "unavailable")]);
        fleet.redis().nodes().iter_mut().for_each(|node| node.process().signal("CONT"));
        writer = LogWriter::new(&fleet.redis().url(), "ann").await.in_shard(2_000);
        writer.write(2).await;
        for n in 1..=2 {
            let event = stream.next_event(PATIENCE).await.unwrap();
            assert_eq!((event.name.as_str(), &event.data["data"]["n"]), ("member.left", &json!(n)));
        }
    }

    async fn a_lost_wake_up_is_found(fleet: Fleet) {
        let mut fleet = fleet;
        let mut writer = LogWriter::new(&fleet.redis().url(), "ann").await;
        writer.wakes = false;
        let mut stream = fleet.client(0, &User::new("ann")).stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        writer.write(5).await;
        for n in 1..=5 {
            assert_eq!(stream.next_event(PATIENCE).await.unwrap().data["data"]["n"], n);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quiet_streams_are_heard_and_repeat_their_own_place() {
    let fleet = Fleet::start_with(RedisKind::Single, 1, 0, &["--heartbeat-ms", "200"]).await;
    let mut stream = fleet.client(0, &User::new("ann")).stream().open().await;
    let place = stream.next_frame(PATIENCE).await.unwrap().id.unwrap();
    stream.wait_for("hello", PATIENCE).await;
    let (mut beats, mut places) = (0, 0);
    while places < 2 {
        let frame = stream.next_frame(Duration::from_secs(5)).await.unwrap();
        assert_eq!((frame.event.as_ref(), frame.data.as_ref()), (None, None), "{frame:?}");
        match &frame.id {
            Some(id) => {
                assert_eq!(*id, place);
                places += 1;
            }
            None => beats += 1,
        }
    }
    assert!((4..=12).contains(&beats), "{beats} heartbeats");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_are_spread() {
    let fleet = Fleet::start(RedisKind::Single, 1, 0).await;
    let mut retries = HashSet::new();
    for n in 0..20 {
        let mut stream = fleet.client(0, &User::new(format!("u{n}"))).stream().open().await;
        retries.insert(stream.next_frame(PATIENCE).await.unwrap().retry.unwrap());
    }
    assert!(retries.len() >= 5, "{retries:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_end_with_a_word_for_why() {
    let mut fleet = Fleet::start(RedisKind::Single, 2, 0).await;
    // The leeway is 30 s: this token counts for two more seconds.
    let short = User::with_claims("ann", &json!({"exp": now_s() - 28}));
    let mut stream = fleet.client(0, &short).stream().open().await;
    let last = stream.wait_for("token_expired", PATIENCE).await;
    assert_eq!(last.id, None);
    assert_eq!(stream.next_event(PATIENCE).await, None, "and then nothing");
    let refused = stream.again().try_open().await.map(|_| ()).unwrap_err();
    refused.expect_problem(401, "token_expired");

    let mut stream = fleet.client(0, &User::new("bob")).stream().open().await;
    stream.wait_for("hello", PATIENCE).await;
    let place = stream.last_id().unwrap().to_owned();
    let base = fleet.url(1);
    let (frames, ()) = tokio::join!(
        async {
            let mut frames = vec![];
            while let Some(frame) = stream.next_frame(PATIENCE).await {
                frames.push(frame);
            }
            frames
        },
        fleet.stop_gateway(0)
    );
    let goodbye = frames.iter().find(|f| f.event.as_deref() == Some("goodbye")).expect("goodbye");
    assert!((1_000..=5_000).contains(&goodbye.retry.unwrap()) && goodbye.id.is_none());
    let mut elsewhere = stream.reconnect(&base).await;
    assert_eq!(elsewhere.wait_for("hello", PATIENCE).await.data["resumed_from"], json!(place));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_lives_for_a_random_time_below_the_maximum() {
    let fleet = Fleet::start_with(RedisKind::Single, 1, 0, &["--stream-life-max-ms", "3000"]).await;
    let begun = std::time::Instant::now();
    let mut stream = fleet.client(0, &User::new("ann")).stream().open().await;
    stream.wait_for("goodbye", PATIENCE).await;
    let lived = begun.elapsed();
    assert!((Duration::from_millis(2_350)..Duration::from_millis(6_000)).contains(&lived), "{lived:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tickets_open_the_stream_of_their_user_and_nothing_else() {
    let fleet = Fleet::start(RedisKind::Single, 2, 0).await;
    let ann = User::new("ann");
    let made = fleet.client(0, &ann).post("/v1/events/ticket", &json!({})).await.expect(200);
    let ticket = made.json["ticket"].as_str().unwrap().to_owned();
    assert!((200..=300).contains(&made.json["expires_in"].as_u64().unwrap()), "{}", made.json);
    for gateway in [0, 1, 1] {
        let mut stream = StreamRequest::new(&fleet.url(gateway), &ann).without_token().with("ticket", &ticket).open().await;
        stream.wait_for("hello", PATIENCE).await;
    }
    for (name, value) in [("ticket", "0.00"), ("ticket", ""), ("ticket", ann.token.as_str()), ("token", ann.token.as_str())] {
        let refused = StreamRequest::new(&fleet.url(0), &ann).without_token().with(name, value).try_open().await.map(|_| ()).unwrap_err();
        refused.expect_problem(401, "unauthenticated");
    }
    let with_both = StreamRequest::new(&fleet.url(0), &ann).with("token", &ann.token).try_open().await.map(|_| ()).unwrap_err();
    with_both.expect_problem(400, "invalid_parameter");
    let ending = User::with_claims("ann", &json!({"exp": now_s() - 27}));
    let short = fleet.client(0, &ending).post("/v1/events/ticket", &json!({})).await.expect(200);
    assert!(short.json["expires_in"].as_u64().unwrap() <= 3, "it dies with its token: {}", short.json);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_cannot_be_is_refused_before_it_begins() {
    let fleet = Fleet::start(RedisKind::Single, 1, 0).await;
    let ann = User::new("ann");
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = |path: &str| client.get(format!("{}{path}", fleet.url(0)));
    assert_eq!(get("/v1/events").send().await.unwrap().status(), 401);
    let html = get("/v1/events").bearer_auth(&ann.token).header("accept", "text/html").send().await.unwrap();
    assert_eq!(html.status(), 406);
    let unknown = get("/v1/events?devise=x").bearer_auth(&ann.token).send().await.unwrap();
    assert_eq!((unknown.status().as_u16(), unknown.headers()["content-type"].to_str().unwrap()), (400, "application/problem+json"));
    let device = get(&format!("/v1/events?device={}", "x".repeat(129))).bearer_auth(&ann.token).send().await.unwrap();
    assert_eq!(device.status(), 400);
    let zipped = get("/v1/events").bearer_auth(&ann.token).header("accept-encoding", "gzip, br, zstd").send().await.unwrap();
    assert!(zipped.status() == 200 && zipped.headers().get("content-encoding").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_is_forgotten_and_who_comes_back_is_not() {
    let (redis, database) = (PrivateRedis::start(RedisKind::Single).await, TestDatabase::migrated().await);
    let gateway = LoneGateway::start(&redis.url(), database.url(), &["--heartbeat-ms", "1000"]).await;
    let ann = User::new("ann");
    let registered = async || {
        let key = redis.keys("loginfo:*").await.pop().unwrap();
        redis.on_every_node(&["HKEYS", &key]).await[0].items().iter().filter(|f| f.text().is_some_and(|t| t.starts_with("g:"))).count()
    };
    let mut first = StreamRequest::new(&gateway.url(), &ann).open().await;
    first.wait_for("hello", PATIENCE).await;
    let mut second = StreamRequest::new(&gateway.url(), &ann).open().await;
    second.wait_for("hello", PATIENCE).await;
    assert_eq!((gateway.hub.count(), registered().await), (2, 1));
    drop(first);
    eventually("one stream is gone", PATIENCE, async || gateway.hub.count() == 1).await;
    drop(second);
    eventually("both are gone", PATIENCE, async || gateway.hub.count() == 0).await;
    eventually("the registration too", PATIENCE, async || registered().await == 0).await;
    let mut writer = LogWriter::new(&redis.url(), "ann").await;
    let mut third = StreamRequest::new(&gateway.url(), &ann).open().await;
    third.wait_for("hello", PATIENCE).await;
    writer.write(1).await;
    assert_eq!(third.next_event(PATIENCE).await.unwrap().data["data"]["n"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_come_and_go_do_not_touch_the_one_that_stays() {
    let fleet = Fleet::start(RedisKind::Single, 1, 0).await;
    let mut writer = LogWriter::new(&fleet.redis_url(), "ann").await;
    let ann = User::new("ann");
    let mut stays = fleet.client(0, &ann).stream().open().await;
    stays.wait_for("hello", PATIENCE).await;
    let coming = async {
        for _ in 0..60 {
            let mut stream = fleet.client(0, &ann).stream().open().await;
            stream.wait_for("hello", PATIENCE).await;
        }
    };
    let writing = async {
        for _ in 0..300 {
            writer.write(1).await;
        }
    };
    let reading = async {
        for n in 1..=300 {
            assert_eq!(stays.next_event(PATIENCE).await.unwrap().data["data"]["n"], n);
        }
    };
    tokio::join!(coming, writing, reading);
}
