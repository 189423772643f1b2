//! Gateways whose clocks disagree by minutes, and stores whose clocks are stepped by minutes: numbers decide the order, everywhere.

use std::time::{SystemTime, UNIX_EPOCH};

use seqline::embedded::RedisOptions;

use crate::crowd::{Load, both, events_head, group_on_every_shard, listen, prove, prove_heard, seqs_up_to};
use crate::harness::{Fleet, PATIENCE, PrivateRedis, RedisKind, StoreClock, TestDatabase, User, on_both};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_disagree_change_no_order() {
    let mut fleet = Fleet::start(RedisKind::Single, 1, 1).await;
    fleet.add_gateway(&["--clock-offset-ms", "-120000"]).await;
    fleet.add_gateway(&["--clock-offset-ms", "120000"]).await;
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    let other = fleet.client(2, &bob).create_group("other", &["ann"]).await;
    fleet.client(2, &bob).send(&other, "k", "from the future").await.expect(201);
    let group = fleet.client(0, &ann).create_group("talk", &["bob"]).await;
    let mut streams = Vec::new();
    for gateway in 0..3 {
        let mut stream = fleet.client(gateway, &bob).stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        streams.push(stream);
    }
    for n in 0..30 {
        let key = uuid::Uuid::now_v7().to_string();
        let sent = fleet.client(n, &ann).send(&group, &key, &format!("m{n}")).await.expect(201);
        assert_eq!(sent.seq(), n as u64 + 1);
        assert_eq!(fleet.client(n + 1, &ann).send(&group, &key, &format!("m{n}")).await.expect(200).json["id"], sent.json["id"]);
    }
    for stream in &mut streams {
        assert_eq!(seqs_up_to(stream, 30).await, (1..=30).collect::<Vec<_>>());
    }
    for gateway in 0..3 {
        let history = fleet.client(gateway, &bob).whole_history(&group).await;
        assert_eq!(
            history.iter().map(|m| m["body"].as_str().unwrap().to_owned()).collect::<Vec<_>>(),
            (0..30).map(|n| format!("m{n}")).collect::<Vec<_>>()
        );
        // The last word was said at the slow gateway, or the fast one: either way it is the newest.
        let list = fleet.client(gateway, &bob).conversations().await.expect(200);
        assert_eq!(list.items()[0]["id"], *group, "the list does not sink");
    }
    let at = fleet.client(1, &ann).read(&group, 30).await.expect(200);
    assert_eq!(at.json["unread"], 0);
}

/// Where a store's clock is stepped to, in seconds from the right time, one after the other.
const STEPS: [i64; 6] = [120, -120, 0, -120, 120, 0];
const WRITERS: usize = 6;
const EACH: usize = 80;

/// Seconds from the right time that Redis and Postgres say it is.
async fn offsets(fleet: &Fleet) -> (i64, i64) {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
    let redis: i64 = fleet.redis_ref().on_every_node(&["TIME"]).await[0].items()[0].text().unwrap().parse().unwrap();
    let postgres: i64 = sqlx::query_scalar("SELECT extract(epoch FROM clock_timestamp())::bigint")
        .fetch_one(&mut fleet.database().connect().await)
        .await
        .unwrap();
    (redis - now, postgres - now)
}

on_both! {
    async fn stores_whose_clocks_are_stepped_by_minutes_number_and_keep_on(kind: RedisKind) {
        let (redis_clock, postgres_clock) = (StoreClock::new(), StoreClock::new());
        let options = RedisOptions { throw_away: true, envs: redis_clock.envs(), ..RedisOptions::default() };
        let redis = PrivateRedis::start_with(kind, &options).await;
        let database = TestDatabase::on_own_server_with(postgres_clock.envs()).await;
        let fleet = Fleet::start_over(redis, database, 2, 2, &[]).await;
        let (writers, bob) = (User::many(WRITERS), User::new("bob"));
        let names: Vec<&str> = writers.iter().skip(1).chain([&bob]).map(|user| user.id.as_str()).collect();
        let groups = group_on_every_shard(&fleet.client(0, &writers[0]), &names).await;
        let from = events_head(&fleet.client(0, &bob)).await;
        let heard = listen(vec![fleet.client(1, &bob)], from.clone(), WRITERS * EACH + 1);
        let first = fleet.client(0, &writers[1]).send(&groups[0], "before-it-all", "hi").await.expect(201);
        let load = Load::start(writers.iter().map(|user| both(&fleet, user)).collect(), &groups, EACH);
        for (number, step) in STEPS.iter().enumerate() {
            load.at(number * WRITERS * EACH / STEPS.len()).await;
            redis_clock.step(*step);
            // The two never agree but when both are right.
            postgres_clock.step(-*step);
            let (redis, postgres) = offsets(&fleet).await;
            assert!((redis - step).abs() <= 5 && (postgres + step).abs() <= 5, "{redis} and {postgres} instead of {step}");
            let again = fleet.client(number, &writers[1]).send(&groups[0], "before-it-all", "hi").await.expect(200);
            assert_eq!(again.json["id"], first.json["id"], "an idempotency key is for ever, whatever time it is");
        }
        let mut told = load.finish().await;
        let unlike: Vec<_> = told.iter().filter(|one| one.status != 201 || !one.refused.is_empty()).collect();
        assert!(unlike.is_empty(), "every send is answered 201 at once: {unlike:?}");
        told.push(crate::crowd::Told {
            conversation: groups[0].clone(),
            status: 201,
            seq: first.seq(),
            id: first.json["id"].as_str().unwrap().to_owned(),
            refused: Vec::new(),
        });
        prove_heard(&told, &heard.await.unwrap());
        prove(&told, &[fleet.client(1, &bob)], &[(fleet.client(0, &bob), from)], fleet.database()).await;
    }
}
