//! Batches: replays change nothing, conflicts are told apart, nothing of a closed epoch gets in, and writers never wait in a circle.

use seqline::domain::conversation::History;
use seqline::domain::ids::{ClientKey, ShardId};
use seqline::domain::message::MessageKind;
use seqline::postgres::{ArchiveBatch, ArchiveError, BatchOutcome, Conflict, EpochGrant, KeyConflict, ReadRow, Source};
use sqlx::Executor as _;
use uuid::Uuid;

use crate::postgres_database::{batch_of, conversation, conversation_row, database, member_row, text, user};

#[tokio::test]
async fn a_message_comes_back_as_it_was_and_a_replay_changes_nothing() {
    let db = database().await;
    let source = db.open_shard(0).await;
    let conv = conversation("c");
    let mut full = text(&conv, 1, "ann", "k\u{1}\u{7f} \u{FFFF}");
    full.data = Some(serde_json::json!({"b": [], "a": {"n": 99_999_999_999_999_u64, "x": null}, "s": "\u{FEFF}"}));
    full.client_sent_at = Some(-5);
    full.edited_at = Some(7);
    let mut timeline = text(&conv, 2, "ann", "x");
    timeline.client_id = None;
    timeline.fingerprint = None;
    timeline.kind = MessageKind::System;
    timeline.body = String::new();
    let mut second_timeline = timeline.clone();
    second_timeline.seq = 3;
    second_timeline.id = Uuid::now_v7();
    let all = vec![full.clone(), timeline.clone(), second_timeline.clone()];
    let batch = batch_of(&source, all.clone());
    assert_eq!(db.archive.write_batch(&batch).await.unwrap(), BatchOutcome { inserted: 3, ..BatchOutcome::default() });
    for _ in 0..2 {
        assert_eq!(db.archive.write_batch(&batch).await.unwrap(), BatchOutcome { replayed: 3, ..BatchOutcome::default() });
        assert_eq!(db.archive.messages_after(&conv, 0, u64::MAX, 10).await.unwrap(), all);
    }
    assert_eq!(db.archive.find_by_key(&conv, &full.sender, full.client_id.as_ref().unwrap()).await.unwrap(), Some(full.clone()));
    assert_eq!(db.archive.find_by_key(&conv, &user("bob"), full.client_id.as_ref().unwrap()).await.unwrap(), None);
    assert!(db.archive.is_archived(&conv, 1, full.id).await.unwrap());
    assert!(!db.archive.is_archived(&conv, 1, timeline.id).await.unwrap());
    assert!(!db.archive.is_archived(&conv, 9, full.id).await.unwrap());
}

#[tokio::test]
async fn a_newer_version_replaces_an_older_one_and_never_the_other_way() {
    let db = database().await;
    let source = db.open_shard(0).await;
    let conv = conversation("c");
    let first = text(&conv, 1, "ann", "k1");
    let mut edited = first.clone();
    edited.rev = 10;
    edited.body = "edited".into();
    edited.edited_at = Some(3);
    let mut deleted = edited.clone();
    deleted.rev = 11;
    deleted.body = String::new();
    deleted.deleted_at = Some(4);
    deleted.deleted_by = Some(user("mod"));
    let write = async |messages: Vec<_>| db.archive.write_batch(&batch_of(&source, messages)).await.unwrap();
    // Two versions in one batch are one row, the newer.
    let outcome = write(vec![edited.clone(), first.clone()]).await;
    assert_eq!((outcome.inserted, outcome.updated, outcome.replayed), (1, 0, 0));
    let outcome = write(vec![first.clone()]).await;
    assert_eq!((outcome.inserted, outcome.updated, outcome.replayed), (0, 0, 1));
    let outcome = write(vec![deleted.clone(), text(&conv, 2, "ann", "k2")]).await;
    assert_eq!((outcome.inserted, outcome.updated, outcome.replayed), (1, 1, 0));
    let outcome = write(vec![edited]).await;
    assert_eq!((outcome.inserted, outcome.updated, outcome.replayed), (0, 0, 1));
    assert_eq!(db.archive.messages_at(&conv, &[1]).await.unwrap(), [deleted]);
}

#[tokio::test]
async fn conflicts_are_told_apart_and_overwrite_nothing() {
    let db = database().await;
    let source = db.open_shard(0).await;
    let conv = conversation("c");
    let other_conv = conversation("d");
    let standing = vec![text(&conv, 1, "ann", "k1"), text(&conv, 2, "bob", "k2")];
    db.archive.write_batch(&batch_of(&source, standing.clone())).await.unwrap();
    let number_taken = text(&conv, 2, "ann", "k3");
    let key_taken = text(&conv, 3, "bob", "k2");
    let mut higher_rev = text(&conv, 1, "ann", "k1");
    higher_rev.rev = 99;
    let neighbours = vec![text(&conv, 4, "cid", "k2"), text(&other_conv, 1, "bob", "k2"), text(&conv, 5, "ann", "k3")];
    let mut batch = batch_of(&source, vec![number_taken.clone(), key_taken.clone(), higher_rev.clone(), standing[1].clone()]);
    batch.messages.extend(neighbours.clone());
    // Within the batch: a second message for number 6, and one for cid's key.
    let (six, also_six) = (text(&conv, 6, "cid", "k6"), text(&conv, 6, "cid", "k6b"));
    let again_k2 = text(&conv, 7, "cid", "k2");
    batch.messages.extend([six.clone(), also_six.clone(), again_k2.clone()]);
    for round in 0..2 {
        let outcome = db.archive.write_batch(&batch).await.unwrap();
        let (inserted, replayed) = if round == 0 { (4, 1) } else { (0, 5) };
        assert_eq!((outcome.inserted, outcome.replayed, outcome.updated), (inserted, replayed, 0), "round {round}");
        let mut conflicts = outcome.conflicts.clone();
        conflicts.sort();
        let conflict = |seq, ours, theirs| Conflict { conv: conv.clone(), seq, ours, theirs };
        let (winner, loser) = if six.id < also_six.id { (six.id, also_six.id) } else { (also_six.id, six.id) };
        let expected =
            [conflict(1, higher_rev.id, standing[0].id), conflict(2, number_taken.id, standing[1].id), conflict(6, loser, winner)];
        assert_eq!(conflicts, expected, "round {round}");
        let mut key_conflicts = outcome.key_conflicts.clone();
        key_conflicts.sort();
        let key_conflict = |seq, ours, their_seq, theirs| KeyConflict { conv: conv.clone(), seq, ours, their_seq, theirs };
        assert_eq!(
            key_conflicts,
            [key_conflict(3, key_taken.id, 2, standing[1].id), key_conflict(7, again_k2.id, 4, neighbours[0].id)],
            "round {round}"
        );
    }
    assert_eq!(db.archive.messages_at(&conv, &[1, 2]).await.unwrap(), standing);
    assert_eq!(db.archive.messages_at(&conv, &[3, 7]).await.unwrap(), []);
    // Who lost a number has not read up to it.
    let marks: Vec<(String, i64)> = sqlx::query_as("SELECT user_id, seq FROM read_marks WHERE conv_id = 'system:c' ORDER BY 1")
        .fetch_all(&mut db.connection().await)
        .await
        .unwrap();
    assert_eq!(marks, [("ann".to_owned(), 5), ("bob".to_owned(), 2), ("cid".to_owned(), 6)]);
}

#[tokio::test]
async fn nothing_of_a_closed_epoch_gets_in() {
    let db = database().await;
    let lives = db.open_shard(0).await;
    let closed = db.open_shard(1).await;
    let conv = conversation("c");
    assert_eq!(db.new_epoch(1, "s2").await, 1);
    let never = Source { shard: ShardId(9), epoch: 0, server_id: "s1".into() };
    let other_server = Source { server_id: "s0".into(), ..lives.clone() };
    for (sources, stale) in [
        (vec![lives.clone(), closed.clone()], vec![ShardId(1)]),
        (vec![closed.clone(), lives.clone(), never.clone()], vec![ShardId(1), ShardId(9)]),
        (vec![other_server], vec![ShardId(0)]),
    ] {
        let batch = ArchiveBatch {
            sources,
            messages: vec![text(&conv, 1, "ann", "k1")],
            conversations: vec![conversation_row(&conv, History::All, 1)],
            members: vec![member_row(&conv, "ann", 0)],
            reads: vec![ReadRow { conv: conv.clone(), user: user("ann"), seq: 1, at: 1 }],
            ..ArchiveBatch::default()
        };
        assert_eq!(db.archive.write_batch(&batch).await.unwrap(), BatchOutcome { stale, ..BatchOutcome::default() });
    }
    let rows = "SELECT (SELECT count(*) FROM messages) + (SELECT count(*) FROM conversations) + (SELECT count(*) FROM members)
                     + (SELECT count(*) FROM read_marks)";
    assert_eq!(db.number(rows).await, 0);
    assert!(db.archive.write_batch(&batch_of(&lives, vec![text(&conv, 1, "ann", "k1")])).await.unwrap().stale.is_empty());
}

#[tokio::test]
async fn an_epoch_is_not_opened_under_a_batch() {
    let db = database().await;
    let source = db.open_shard(0).await;
    let conv = conversation("c");
    // Somebody holds what the batch needs, so that the batch stands in the middle.
    let mut blocker = db.connection().await;
    blocker.execute("BEGIN; LOCK TABLE messages IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let (archive, batch) = (db.archive.clone(), batch_of(&source, vec![text(&conv, 1, "ann", "k1")]));
    let writing = tokio::spawn(async move { archive.write_batch(&batch).await });
    wait_for(&db, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'", 1).await;
    let archive = db.archive.clone();
    let opening = tokio::spawn(async move { archive.grant_epoch(ShardId(0), "s2", None, None, 1).await });
    wait_for(&db, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'", 2).await;
    blocker.execute("ROLLBACK").await.unwrap();
    assert_eq!(writing.await.unwrap().unwrap().inserted, 1);
    assert_eq!(opening.await.unwrap().unwrap(), EpochGrant::Granted { epoch: 1, fresh: true });
}

async fn wait_for(db: &crate::postgres_database::Database, sql: &'static str, at_least: i64) {
    for _ in 0..500 {
        if db.number(sql).await >= at_least {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("never came true: {sql}");
}

#[tokio::test]
async fn a_row_that_cannot_be_stored_is_refused_and_its_batch_can_be_halved() {
    let db = database().await;
    let source = db.open_shard(0).await;
    let conv = conversation("c");
    db.connection()
        .await
        .execute(
            "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
             CREATE TRIGGER no BEFORE INSERT ON messages FOR EACH ROW WHEN (NEW.body = 'poison') EXECUTE FUNCTION no()",
        )
        .await
        .unwrap();
    let good = text(&conv, 1, "ann", "k1");
    let mut by_trigger = text(&conv, 2, "ann", "k2");
    by_trigger.body = "poison".into();
    let mut nul = text(&conv, 3, "ann", "k3");
    nul.body = "a\0b".into();
    let mut nul_in_data = text(&conv, 4, "ann", "k4");
    nul_in_data.data = Some(serde_json::json!({"x": "\0"}));
    let mut number = text(&conv, 1 << 53, "ann", "k5");
    number.rev = 5;
    let mut rev = text(&conv, 6, "ann", "k6");
    rev.rev = u64::MAX;
    for bad in [by_trigger, nul, nul_in_data, number, rev] {
        let seq = bad.seq;
        let error = db.archive.write_batch(&batch_of(&source, vec![good.clone(), bad.clone()])).await.unwrap_err();
        assert!(matches!(&error, ArchiveError::Refused(text) if !text.contains("poison")), "{seq}: {error}");
        assert_eq!(db.number("SELECT count(*) FROM messages").await, 0);
        assert!(matches!(db.archive.write_batch(&batch_of(&source, vec![bad])).await, Err(ArchiveError::Refused(_))));
    }
    assert_eq!(db.archive.write_batch(&batch_of(&source, vec![good])).await.unwrap().inserted, 1);
}

async fn write_one(archive: &seqline::postgres::Archive, batch: &ArchiveBatch) {
    let outcome = archive.write_batch(batch).await.unwrap();
    assert!(outcome.conflicts.is_empty() && outcome.key_conflicts.is_empty() && outcome.stale.is_empty(), "{outcome:?}");
}

#[tokio::test]
async fn writers_of_overlapping_batches_never_wait_in_a_circle() {
    let db = database().await;
    let source = db.open_shard(0).await;
    let convs: Vec<_> = (0..50).map(|n| conversation(&format!("c{n}"))).collect();
    let mut all = Vec::new();
    for seq in 1..=200 {
        for conv in &convs {
            all.push(text(conv, seq, "ann", &format!("k{seq}")));
        }
    }
    let before = db.number("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").await;
    let write = |reversed: bool| {
        let (archive, source, mut all, convs) = (db.archive.clone(), source.clone(), all.clone(), convs.clone());
        if reversed {
            all.reverse();
        }
        tokio::spawn(async move {
            for (round, chunk) in all.chunks(500).enumerate() {
                let mut batch = batch_of(&source, chunk.to_vec());
                batch.conversations = convs.iter().map(|c| conversation_row(c, History::All, round as u64)).collect();
                batch.members = convs.iter().map(|c| member_row(c, "ann", round as u64)).collect();
                if reversed {
                    batch.conversations.reverse();
                    batch.members.reverse();
                }
                write_one(&archive, &batch).await;
                // And what stands there by now, in a newer version.
                for message in &mut batch.messages {
                    message.rev += 1000;
                }
                write_one(&archive, &batch).await;
            }
        })
    };
    let writers = [write(false), write(true), write(false)];
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(db.number("SELECT count(*) FROM messages").await, 10_000);
    assert_eq!(db.number("SELECT count(*) FROM messages WHERE rev > 1000").await, 10_000);
    // The statistics come with a delay of their own.
    tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    assert_eq!(db.number("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").await, before);
}

#[tokio::test]
async fn a_writer_waits_for_the_other_and_then_sees_what_it_did() {
    let db = database().await;
    let source = db.open_shard(0).await;
    let conv = conversation("c");
    let message = text(&conv, 1, "ann", "k1");
    for committed in [false, true] {
        let mut other = db.connection().await;
        other.execute("BEGIN").await.unwrap();
        // The same number, another message, not committed yet.
        sqlx::query(
            "INSERT INTO messages (conv_id, seq, id, sender, kind, body, rev, created_at_ms) VALUES ($1, 1, $2, 'x', 'text', '', 1, 1)",
        )
        .bind(conv.as_str())
        .bind(Uuid::nil())
        .execute(&mut other)
        .await
        .unwrap();
        let (archive, batch) = (db.archive.clone(), batch_of(&source, vec![message.clone()]));
        let writing = tokio::spawn(async move { archive.write_batch(&batch).await });
        wait_for(&db, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'", 1).await;
        other.execute(if committed { "COMMIT" } else { "ROLLBACK" }).await.unwrap();
        let outcome = writing.await.unwrap().unwrap();
        if committed {
            assert_eq!(outcome.conflicts.len(), 1, "{outcome:?}");
        } else {
            assert_eq!(outcome.inserted, 1, "{outcome:?}");
            db.connection().await.execute("DELETE FROM messages").await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_group_key_is_tied_once() {
    use seqline::domain::ids::ConversationId;
    use seqline::postgres::Reservation;
    let db = database().await;
    let group = || ConversationId::of_group(Uuid::now_v7());
    let (first, second) = (group(), group());
    let ann = user("ann");
    let reserve = async |creator, key: &str, print: &str, fresh: &ConversationId| {
        db.archive.reserve_group(creator, key, print, fresh.clone()).await.unwrap()
    };
    assert_eq!(reserve(&ann, "k", "p", &first).await, Reservation::New(first.clone()));
    assert_eq!(reserve(&ann, "k", "p", &first).await, Reservation::New(first.clone()));
    assert_eq!(reserve(&ann, "k", "p", &second).await, Reservation::Existing(first.clone()));
    assert_eq!(reserve(&ann, "k", "q", &second).await, Reservation::Conflict);
    assert_eq!(reserve(&user("bob"), "k", "q", &second).await, Reservation::New(second));
    // A race ends with one id for all.
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let (archive, ann, fresh) = (db.archive.clone(), ann.clone(), group());
            tokio::spawn(async move { archive.reserve_group(&ann, "race", "p", fresh).await.unwrap() })
        })
        .collect();
    let mut ids = std::collections::HashSet::new();
    let mut news = 0;
    for task in tasks {
        match task.await.unwrap() {
            Reservation::New(id) => {
                news += 1;
                ids.insert(id);
            }
            Reservation::Existing(id) => drop(ids.insert(id)),
            Reservation::Conflict => panic!("same content"),
        }
    }
    assert_eq!((news, ids.len()), (1, 1));
}

#[tokio::test]
async fn keys_are_compared_byte_by_byte() {
    let db = database().await;
    let source = db.open_shard(0).await;
    let conv = conversation("c");
    let keys = ["\u{e9}", "e\u{301}", "E\u{301}", "K", "k", " k", "k "];
    let messages = keys.iter().zip(1..).map(|(key, seq)| text(&conv, seq, "ann", key)).collect();
    assert_eq!(db.archive.write_batch(&batch_of(&source, messages)).await.unwrap().inserted, 7);
    for (key, seq) in keys.iter().zip(1..) {
        let found = db.archive.find_by_key(&conv, &user("ann"), &ClientKey::parse(key).unwrap()).await.unwrap().unwrap();
        assert_eq!(found.seq, seq);
    }
}
