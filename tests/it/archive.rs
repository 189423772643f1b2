//! From the outbox to Postgres: exactly what was accepted, whoever archives and however often; one bad row costs itself alone.

use seqline::actions::archive_outbox::{Reach, conversations_aside, retry_aside};
use seqline::actions::change_conversation::change_conversation;
use seqline::actions::mark_read::mark_read;
use seqline::actions::read_messages::{Place, page};
use seqline::domain::change::Command;
use seqline::domain::refusal::Refusal;
use seqline::redis::keys;
use seqline::workers::WorkError;
use seqline::workers::trim::trim_conversation;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::harness::{RedisKind, StorePair, on_both};
use crate::scene::*;

/// Every row of every table of the archive, as text in a fixed order.
async fn everything(connection: &mut PgConnection) -> Vec<String> {
    let mut rows = Vec::new();
    for table in ["conversations", "members", "read_marks", "messages", "voids"] {
        let sql = AssertSqlSafe(format!("SELECT t::text FROM {table} AS t ORDER BY 1"));
        rows.extend(sqlx::query_scalar::<_, String>(sql).fetch_all(&mut *connection).await.unwrap());
    }
    rows
}

async fn run(connection: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await.unwrap();
}

on_both! {
    async fn postgres_holds_what_was_accepted_and_archiving_again_changes_nothing(pair: StorePair) {
        let id = group(&pair.one, "ann", &["bob", "cid"]).await;
        send_run(&pair.one, "ann", &id, 1..=20).await;
        change_conversation(&pair.one, &user("ann"), &id, &Command::Remove(user("cid"))).await.unwrap();
        change_conversation(&pair.one, &user("ann"), &id, &Command::Rename("Lake".into())).await.unwrap();
        send_run(&pair.two, "bob", &id, 21..=25).await;
        mark_read(&pair.two, &user("ann"), &id, 25, |at| at.to_string()).await.unwrap();
        archive_all(&pair.one).await;
        let whole = pair.one.archive.load_conversation(&id, 100).await.unwrap().unwrap();
        assert_eq!(whole.recent.iter().map(|m| m.seq).collect::<Vec<_>>(), (1..=27).collect::<Vec<_>>());
        assert_eq!(whole.conversation.title.as_deref(), Some("Lake"));
        assert_eq!((whole.conversation.head_seq, whole.members.len()), (27, 2));
        assert_eq!(head_field(&pair.one, &id, "rev").await.unwrap(), whole.conversation.rev.to_string());
        assert_eq!(head_field(&pair.one, &id, "updated_at").await.unwrap(), whole.conversation.updated_at.to_string());
        let marks: Vec<_> = whole.marks.iter().map(|(who, seq, _)| (who.as_str(), *seq)).collect();
        assert!(marks.contains(&("ann", 25)) && marks.contains(&("bob", 27)), "{marks:?}");

        let mut connection = pair.database.connect().await;
        let before = everything(&mut connection).await;
        // A worker that ended after the commit and before the cursor moved, and another one beside it.
        forget_cursor(&pair.one, "archived").await;
        tokio::join!(archive_all(&pair.one), archive_all(&pair.two));
        assert_eq!(everything(&mut connection).await, before);

        let shard = pair.one.keys.shard_of(&id);
        assert!(state(&pair.one, shard).await.entries > 0, "dispatch has not passed it");
        dispatch_all(&pair.one).await;
        for shard in shards(&pair.one) {
            assert_eq!(state(&pair.one, shard).await.entries, 0, "both have passed, so it is trimmed");
        }
    }

    async fn a_row_that_postgres_refuses_costs_its_neighbours_nothing_and_comes_back(pair: StorePair) {
        let mut connection = pair.database.connect().await;
        run(&mut connection, "ALTER TABLE messages ADD CONSTRAINT no_poison CHECK (body <> 'poison')").await;
        let id = group(&pair.one, "ann", &["bob"]).await;
        let other = group(&pair.one, "bob", &["ann"]).await;
        for n in 1..=30 {
            let body = if n == 11 || n == 12 { "poison" } else { "fine" };
            try_send(&pair.one, "ann", &id, &format!("k{n}"), body).await.unwrap();
            try_send(&pair.one, "bob", &other, &format!("k{n}"), "fine").await.unwrap();
        }
        archive_all(&pair.one).await;
        let seqs = |whole: seqline::postgres::StoredWhole| whole.recent.iter().map(|m| m.seq).collect::<Vec<_>>();
        let archived = sqlx::query_scalar::<_, i64>("SELECT seq FROM messages WHERE conv_id = $1 ORDER BY seq");
        let archived = archived.bind(id.as_str()).fetch_all(&mut connection).await.unwrap();
        assert_eq!(archived, (1..=30).filter(|n| *n != 11 && *n != 12).collect::<Vec<i64>>());
        assert_eq!(seqs(pair.one.archive.load_conversation(&other, 100).await.unwrap().unwrap()).len(), 30);
        let shard = pair.one.keys.shard_of(&id);
        let waiting = state(&pair.one, shard).await;
        assert_eq!((waiting.aside, waiting.archived), (2, waiting.last), "two stand aside, the cursor went on");

        // Sends go on, everything can be read, and what stands aside is not dropped from Redis.
        try_send(&pair.two, "ann", &id, "k31", "fine").await.unwrap();
        archive_all(&pair.one).await;
        let read = page(&pair.two, &user("bob"), &id, Place::Before(100), 100).await.unwrap();
        assert_eq!(read.messages.iter().map(|m| m.seq).collect::<Vec<_>>(), (1..=31).collect::<Vec<_>>());
        assert_eq!(read.messages[10].body, "poison");
        assert_eq!(retry_aside(&pair.one, shard).await.unwrap().len(), 1, "still refused");
        assert_eq!(conversations_aside(&pair.two, shard).await.unwrap(), [id.clone()].into());

        run(&mut connection, "ALTER TABLE messages DROP CONSTRAINT no_poison").await;
        assert!(retry_aside(&pair.one, shard).await.unwrap().is_empty());
        assert_eq!(seqs(pair.one.archive.load_conversation(&id, 100).await.unwrap().unwrap()), (1..=31).collect::<Vec<_>>());
        assert_eq!(state(&pair.one, shard).await.aside, 0);
    }

    async fn an_entry_that_cannot_be_read_stands_aside(pair: StorePair) {
        let id = group(&pair.one, "ann", &["bob"]).await;
        let shard = pair.one.keys.shard_of(&id);
        send_run(&pair.one, "ann", &id, 1..=2).await;
        let next = seqline::redis::outbox::OutboxId { n: state(&pair.one, shard).await.last.n + 1, ..state(&pair.one, shard).await.last };
        redis(&pair.one, "XADD", &[&keys::outbox(shard), &next.to_string(), "c", "no conversation"]).await;
        redis(&pair.one, "HSET", &[&keys::shard_info(shard), "n", &next.n.to_string()]).await;
        send_run(&pair.one, "ann", &id, 3..=4).await;
        archive_all(&pair.one).await;
        dispatch_all(&pair.one).await;
        assert_eq!(pair.one.archive.load_conversation(&id, 10).await.unwrap().unwrap().recent.len(), 4);
        assert_eq!(heard(&pair.one, "bob", &id).await, [1, 2, 3, 4]);
        assert_eq!(state(&pair.one, shard).await.aside, 1);
        assert!(retry_aside(&pair.one, shard).await.unwrap().is_empty());
        assert_eq!(state(&pair.one, shard).await.aside, 1, "kept for a look");
    }

    async fn a_batch_of_a_replaced_server_is_not_accepted(pair: StorePair) {
        let id = group(&pair.one, "ann", &["bob"]).await;
        send_run(&pair.one, "ann", &id, 1..=3).await;
        let shard = pair.one.keys.shard_of(&id);
        let mut connection = pair.database.connect().await;
        run(&mut connection, &format!("UPDATE shard_epochs SET server_id = 'another' WHERE shard = {}", shard.0)).await;
        archive_all(&pair.one).await;
        assert!(pair.one.archive.load_conversation(&id, 10).await.unwrap().is_none());
        assert!(state(&pair.one, shard).await.archived < state(&pair.one, shard).await.last);
    }

    async fn two_archivers_never_wait_for_each_other_in_a_circle(pair: StorePair) {
        let mut ids = Vec::new();
        for n in 0..50 {
            ids.push(group(&pair.one, &format!("ann{n}"), &["bob"]).await);
        }
        let mut connection = pair.database.connect().await;
        let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        let before: i64 = sqlx::query_scalar(deadlocks).fetch_one(&mut connection).await.unwrap();
        for round in 0..4 {
            let mut sends = tokio::task::JoinSet::new();
            for (n, id) in ids.iter().enumerate() {
                let (stores, id) = (pair.one.clone(), id.clone());
                sends.spawn(async move { send_run(&stores, &format!("ann{n}"), &id, round * 10 + 1..=round * 10 + 10).await });
            }
            sends.join_all().await;
            forget_cursor(&pair.one, "archived").await;
            tokio::join!(archive_all(&pair.one), archive_all(&pair.two), archive_all(&pair.one));
        }
        let total: i64 = sqlx::query_scalar("SELECT count(*) FROM messages").fetch_one(&mut connection).await.unwrap();
        assert_eq!(total, 50 * 40);
        let after: i64 = sqlx::query_scalar(deadlocks).fetch_one(&mut connection).await.unwrap();
        assert_eq!(after, before);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_postgres_is_blocked_nothing_is_lost_and_nothing_trimmed() {
    let pair = StorePair::with(RedisKind::Single, &[]).await;
    let id = group(&pair.one, "ann", &["bob"]).await;
    send_run(&pair.one, "ann", &id, 1..=5).await;
    dispatch_all(&pair.one).await;
    let mut connection = pair.database.connect().await;
    let mut blocking = connection.begin().await.unwrap();
    sqlx::raw_sql("LOCK TABLE messages").execute(&mut *blocking).await.unwrap();
    let mut archiver = archiver(&pair.one);
    let failed = archiver.archive_once(&shards(&pair.one)).await;
    assert!(matches!(failed, Err(WorkError::Archive(_))), "{failed:?}");
    send_run(&pair.one, "ann", &id, 6..=8).await;
    assert!(state(&pair.one, pair.one.keys.shard_of(&id)).await.entries >= 8);
    blocking.rollback().await.unwrap();
    while archiver.archive_once(&shards(&pair.one)).await.unwrap() {}
    assert_eq!(pair.one.archive.load_conversation(&id, 10).await.unwrap().unwrap().recent.len(), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_that_somebody_took_away_are_reported_and_the_line_goes_on() {
    let pair = StorePair::with(RedisKind::Single, &[]).await;
    let id = group(&pair.one, "ann", &["bob"]).await;
    send_run(&pair.one, "ann", &id, 1..=10).await;
    let shard = pair.one.keys.shard_of(&id);
    redis(&pair.one, "XTRIM", &[&keys::outbox(shard), "MAXLEN", "3"]).await;
    archive_all(&pair.one).await;
    let whole = sqlx::query_scalar::<_, i64>("SELECT seq FROM messages WHERE conv_id = $1 ORDER BY seq");
    assert_eq!(whole.bind(id.as_str()).fetch_all(&mut pair.database.connect().await).await.unwrap(), [8, 9, 10]);
    let after = state(&pair.one, shard).await;
    assert_eq!(after.archived, after.last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_window_keeps_what_is_recent_or_not_archived() {
    let pair = StorePair::with(RedisKind::Single, &["--window-messages", "10"]).await;
    let id = group(&pair.one, "ann", &["bob"]).await;
    send_run(&pair.one, "ann", &id, 1..=60).await;
    let keys = pair.one.keys.conversation(&id);
    let len = async || redis(&pair.one, "HLEN", &[&keys.window]).await.as_u64().unwrap();
    let rev = async || head_field(&pair.one, &id, "rev").await.unwrap().parse::<u64>().unwrap();
    let now = pair.one.clock.now();
    assert_eq!(trim_conversation(&pair.one, &id, Reach { seq: 20, rev: rev().await - 40 }, now).await.unwrap(), 20);
    assert_eq!(len().await, 40);
    // Message 25 was changed later, and that is not archived: it and what follows stays.
    let message = redis(&pair.one, "HGET", &[&keys.window, "25"]).await.as_str().unwrap().to_owned();
    let json = message.split_once(' ').unwrap().1;
    let later = rev().await + 5;
    redis(&pair.one, "HSET", &[&keys.window, "25", &format!("{later} {json}")]).await;
    assert_eq!(trim_conversation(&pair.one, &id, Reach { seq: 60, rev: rev().await }, now).await.unwrap(), 4);
    redis(&pair.one, "HSET", &[&keys.window, "25", &message]).await;
    // The worker trims what it has archived by itself.
    archive_all(&pair.one).await;
    assert_eq!(trim_conversation(&pair.one, &id, Reach { seq: 60, rev: rev().await }, now).await.unwrap(), 0);
    assert_eq!((len().await, redis(&pair.one, "ZCARD", &[&keys.revs]).await.as_u64().unwrap()), (10, 10));
    assert_eq!(head_field(&pair.one, &id, "floor").await.unwrap(), "51");
    let read = page(&pair.two, &user("bob"), &id, Place::Before(100), 100).await.unwrap();
    assert_eq!(read.messages.iter().map(|m| m.seq).collect::<Vec<_>>(), (1..=60).collect::<Vec<_>>());
    let mut archiver = archiver(&pair.one);
    for round in 0..20 {
        send_run(&pair.one, "ann", &id, 61 + round * 3..=63 + round * 3).await;
        archiver.archive_once(&shards(&pair.one)).await.unwrap();
    }
    assert!(len().await < 40, "{}", len().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_dropped_by_the_generation_and_decided_by_postgres_afterwards() {
    let pair = StorePair::with(RedisKind::Single, &["--key-window", "10"]).await;
    let id = group(&pair.one, "ann", &["bob"]).await;
    send_run(&pair.one, "ann", &id, 1..=3).await;
    archive_all(&pair.one).await;
    let reach = async || Reach { seq: 0, rev: head_field(&pair.one, &id, "rev").await.unwrap().parse().unwrap() };
    let begun: i64 = head_field(&pair.one, &id, "kgen_at").await.unwrap().parse().unwrap();
    // Within the window nothing turns; after it the generation in use becomes the older one, and nothing is forgotten.
    trim_conversation(&pair.one, &id, reach().await, begun + 9_000).await.unwrap();
    assert_eq!(head_field(&pair.one, &id, "kgen").await.unwrap(), "0");
    trim_conversation(&pair.one, &id, reach().await, begun + 11_000).await.unwrap();
    assert_eq!(
        (head_field(&pair.one, &id, "kgen").await.unwrap(), head_field(&pair.one, &id, "keys_all").await.unwrap()),
        ("1".into(), "1".into())
    );
    send_run(&pair.one, "ann", &id, 4..=5).await;
    let keys = pair.one.keys.conversation(&id);
    assert_eq!(redis(&pair.one, "HLEN", &[&keys.keys_0]).await.as_u64().unwrap(), 3);
    assert_eq!(redis(&pair.one, "HLEN", &[&keys.keys_1]).await.as_u64().unwrap(), 2);
    // What the older generation holds is archived, so it goes; the newer one stays.
    trim_conversation(&pair.one, &id, reach().await, begun + 22_000).await.unwrap();
    assert_eq!(redis(&pair.one, "EXISTS", &[&keys.keys_0]).await.as_u64().unwrap(), 0);
    assert_eq!(head_field(&pair.one, &id, "keys_all").await.unwrap(), "0");
    assert_eq!(head_field(&pair.one, &id, "keys_since").await.unwrap(), (begun + 11_000 + 60_000).to_string());
    // The generation of 4 and 5 is not archived yet, so it must stay however old.
    let unarchived = Reach { seq: 0, rev: reach().await.rev - 1 };
    trim_conversation(&pair.one, &id, unarchived, begun + 40_000).await.unwrap();
    assert_eq!(redis(&pair.one, "HLEN", &[&keys.keys_1]).await.as_u64().unwrap(), 2);
    archive_all(&pair.one).await;
    for n in 1..=5 {
        let again = try_send(&pair.two, "ann", &id, &format!("k{n}"), &format!("m{n}")).await;
        assert_eq!(again, Ok(u64::from(n as u32)), "a repetition finds what was sent first");
        let other = try_send(&pair.two, "ann", &id, &format!("k{n}"), "other words").await;
        assert_eq!(other, Err(Refusal::IdempotencyConflict));
    }
}
