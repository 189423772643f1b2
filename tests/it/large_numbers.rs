//! Numbers beyond what a double prints plainly: the same in Redis's scripts, in answers, on streams and in Postgres.

use seqline::domain::ids::ConversationId;
use seqline::redis::keys::Keys;
use sqlx::Row as _;

use crate::harness::fleet::{PARTITIONS, SHARDS};
use crate::harness::{Fleet, PATIENCE, RedisKind, User, eventually};

const NEXT: u64 = 99_999_999_999_999;
/// So far off that no more numbers are fetched ahead.
const LEASE_TO: u64 = 100_000_000_020_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifteen_digits_are_exact_everywhere() {
    let fleet = Fleet::start(RedisKind::Single, 2, 1).await;
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
    let group = a.create_group("old", &["bob"]).await;
    let mut stream = b.stream().open().await;
    stream.wait_for("hello", PATIENCE).await;
    // As if all numbers before had been lost.
    let head = Keys { shards: SHARDS, partitions: PARTITIONS }.conversation(&ConversationId::parse(&group).unwrap()).head;
    let voids = format!("[[1,{}]]", NEXT - 1);
    let (next, to) = (NEXT.to_string(), LEASE_TO.to_string());
    fleet.redis_ref().on_every_node(&["HSET", &head, "next", &next, "lease_to", &to, "voids", &voids]).await;
    let mut database = fleet.database().connect().await;
    sqlx::query("UPDATE leases SET to_seq = $2 WHERE conv_id = $1")
        .bind(&group)
        .bind(LEASE_TO as i64)
        .execute(&mut database)
        .await
        .unwrap();
    sqlx::query("INSERT INTO voids VALUES ($1, 1, $2)").bind(&group).bind(NEXT as i64 - 1).execute(&mut database).await.unwrap();

    for n in 0..3 {
        let sent = fleet.client(n, &ann).send(&group, &format!("k{n}"), "hi").await.expect(201);
        assert_eq!(sent.seq(), NEXT + n as u64);
        assert!(sent.text.contains(&format!("\"seq\":{}", NEXT + n as u64)), "{}", sent.text);
        assert_eq!(stream.next_message(PATIENCE).await["seq"], NEXT + n as u64);
    }
    let expected = [NEXT, NEXT + 1, NEXT + 2];
    let seqs = |page: &crate::harness::Answer| page.items().iter().map(|m| m["seq"].as_u64().unwrap()).collect::<Vec<_>>();
    let page = b.history(&group, "limit=10").await.expect(200);
    assert_eq!(seqs(&page), expected);
    assert_eq!(page.json["head_seq"], NEXT + 2);
    assert_eq!(seqs(&b.history(&group, &format!("after={NEXT}")).await.expect(200)), expected[1..]);
    assert_eq!(seqs(&b.history(&group, &format!("before={}", NEXT + 2)).await.expect(200)), expected[..2]);
    assert_eq!(b.conversation(&group).await.json["me"]["unread"], 3);
    // Beyond 2^53: clamped to the head.
    let read = b.read(&group, 9_007_199_254_740_993).await.expect(200);
    assert_eq!((read.json["read_seq"].as_u64(), read.json["unread"].as_u64()), (Some(NEXT + 2), Some(0)));
    eventually("all three are archived", PATIENCE, async || {
        let rows =
            sqlx::query("SELECT seq FROM messages WHERE conv_id = $1 ORDER BY seq").bind(&group).fetch_all(&mut database).await.unwrap();
        rows.iter().map(|row| u64::try_from(row.get::<i64, _>(0)).unwrap()).collect::<Vec<_>>() == expected
    })
    .await;
    // Forgotten by Redis and loaded again: above everything that may have been given out.
    fleet.redis_ref().on_every_node(&["DEL", &head]).await;
    let sent = b.send(&group, &uuid::Uuid::now_v7().to_string(), "hi").await.expect(201);
    assert_eq!(sent.seq(), LEASE_TO + 1);
    assert_eq!(seqs(&a.history(&group, "limit=10").await.expect(200)), [NEXT, NEXT + 1, NEXT + 2, LEASE_TO + 1]);
    assert_eq!(a.history(&group, "limit=10").await.json["voids"][1], serde_json::json!([NEXT + 3, LEASE_TO]));
}
