//! What the archive does when Postgres is away, slow or stopped, and when callers go away in the middle.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use seqline::domain::conversation::History;
use seqline::domain::ids::{Kind, ShardId};
use seqline::domain::membership::Role;
use seqline::domain::message::MessageKind;
use seqline::embedded::{PostgresOptions, PostgresServer, TempFolder};
use seqline::postgres::{Archive, ArchiveError};
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::postgres_database::{batch_of, conversation, database, text};

#[tokio::test]
async fn callers_that_go_away_leave_no_transaction_behind() {
    let db = database().await;
    let source = db.open_shard(0).await;
    let conv = conversation("c");
    // Drop calls at every stage of their way: before they began, while they wait for a lock, and in between.
    let mut blocker = db.connection().await;
    for round in 0..60_u64 {
        if round % 10 == 0 {
            blocker.execute("BEGIN; LOCK TABLE messages IN ACCESS EXCLUSIVE MODE").await.unwrap();
        }
        let batch = batch_of(&source, vec![text(&conv, round + 1, "ann", &format!("k{round}"))]);
        let patience = Duration::from_micros(round * 150);
        let _ = tokio::time::timeout(patience, db.archive.write_batch(&batch)).await;
        let _ = tokio::time::timeout(patience, db.archive.take_lease(&conv, ShardId(0), 0, 10, None)).await;
        let _ = tokio::time::timeout(patience, db.archive.load_conversation(&conv, 10)).await;
        if round % 10 == 4 {
            blocker.execute("ROLLBACK").await.unwrap();
        }
    }
    // What was begun ends by itself, and what is in the pool then is clean.
    let begun = Instant::now();
    loop {
        let open = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'";
        if db.number(open).await == 0 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "transactions stay open");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for _ in 0..20 {
        db.archive.write_batch(&batch_of(&source, vec![text(&conv, 1000, "ann", "last")])).await.unwrap();
    }
    assert!(db.archive.connections().0 <= 8);
}

#[tokio::test]
async fn a_lock_that_somebody_holds_is_waited_for_within_a_limit() {
    let db = database().await;
    let source = db.open_shard(0).await;
    let batch = batch_of(&source, vec![text(&conversation("c"), 1, "ann", "k")]);
    let mut blocker = db.connection().await;
    blocker.execute("BEGIN; LOCK TABLE messages IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let begun = Instant::now();
    let error = db.archive.write_batch(&batch).await.unwrap_err();
    assert!(matches!(error, ArchiveError::Unavailable(_)), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    blocker.execute("ROLLBACK").await.unwrap();
    assert_eq!(db.archive.write_batch(&batch).await.unwrap().inserted, 1);
}

async fn private_server() -> (TempFolder, PostgresServer, Archive) {
    let folder = TempFolder::new("faults").unwrap();
    let options = PostgresOptions { throw_away: true, ..PostgresOptions::default() };
    let server = PostgresServer::start(folder.path(), &options).await.unwrap();
    let archive = Archive::connect(&server.url("postgres"), 4).unwrap();
    archive.migrate().await.unwrap();
    (folder, server, archive)
}

#[tokio::test]
async fn after_a_restart_of_the_server_no_call_fails_on_an_old_connection() {
    let folder = TempFolder::new("restart").unwrap();
    let mut server = PostgresServer::start(folder.path(), &PostgresOptions::default()).await.unwrap();
    let archive = Archive::connect(&server.url("postgres"), 4).unwrap();
    archive.migrate().await.unwrap();
    let everyone = || futures_util::future::join_all((0..16).map(|_| archive.ping()));
    assert!(everyone().await.iter().all(Result::is_ok));
    assert!(archive.connections().0 > 1);
    server.stop().await;
    let begun = Instant::now();
    assert!(matches!(archive.ping().await, Err(ArchiveError::Unavailable(_))));
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    server.start_again().await.unwrap();
    assert!(everyone().await.iter().all(Result::is_ok));
    // And once more, with every connection idle and broken when the first call comes.
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.stop().await;
    server.start_again().await.unwrap();
    archive.ping().await.unwrap();
}

#[tokio::test]
async fn a_stopped_server_hangs_nobody_and_all_is_well_when_it_goes_on() {
    let (_folder, server, archive) = private_server().await;
    archive.claim_installation(64, 256).await.unwrap();
    let pids = backends(server.port(), &server).await;
    signal("-STOP", &pids);
    let begun = Instant::now();
    let calls = futures_util::future::join_all((0..8).map(|_| archive.claim_installation(64, 256))).await;
    let took = begun.elapsed();
    signal("-CONT", &pids);
    assert!(calls.iter().all(|c| matches!(c, Err(ArchiveError::Unavailable(_)) | Ok(_))), "{calls:?}");
    assert!(calls.iter().any(Result::is_err), "nothing was stopped");
    assert!(took < Duration::from_secs(30), "{took:?}");
    let begun = Instant::now();
    while archive.claim_installation(64, 256).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(30), "does not recover");
    }
}

/// The processes that serve clients other than the one that asks.
async fn backends(_port: u16, server: &PostgresServer) -> Vec<String> {
    let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
    let sql = "SELECT pid::text FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    sqlx::query_scalar(sql).fetch_all(&mut connection).await.unwrap()
}

fn signal(which: &str, pids: &[String]) {
    assert!(!pids.is_empty());
    assert!(std::process::Command::new("sh").args(["-c", "kill \"$@\"", "sh", which]).args(pids).status().unwrap().success());
}

#[tokio::test]
async fn several_processes_migrate_at_once_and_an_older_one_after_a_newer() {
    let folder = TempFolder::new("migrate").unwrap();
    let options = PostgresOptions { throw_away: true, ..PostgresOptions::default() };
    let server = PostgresServer::start(folder.path(), &options).await.unwrap();
    let archives: Vec<_> = (0..6).map(|_| Archive::connect(&server.url("postgres"), 2).unwrap()).collect();
    for done in futures_util::future::join_all(archives.iter().map(Archive::migrate)).await {
        done.unwrap();
    }
    // A release to come has applied more.
    let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
    connection
        .execute(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (9999, 'later', true, '\\x00', 1)",
        )
        .await
        .unwrap();
    archives[0].migrate().await.unwrap();
}

#[tokio::test]
async fn an_archive_that_is_away_or_empty_says_which() {
    let archive = Archive::connect("postgres://nobody:secret@127.0.0.1:1/none", 2).unwrap();
    let error = archive.ping().await.unwrap_err();
    assert!(matches!(&error, ArchiveError::Unavailable(text) if !text.contains("secret")), "{error}");
    let error = Archive::connect("postgres://user:secret@[bad", 2).unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
    let folder = TempFolder::new("empty").unwrap();
    let options = PostgresOptions { throw_away: true, ..PostgresOptions::default() };
    let server = PostgresServer::start(folder.path(), &options).await.unwrap();
    let archive = Archive::connect(&server.url("postgres"), 2).unwrap();
    assert!(matches!(archive.claim_installation(1, 1).await, Err(ArchiveError::Unexpected(_))));
}

#[tokio::test]
async fn a_column_added_by_a_later_release_disturbs_nothing() {
    let db = database().await;
    let source = db.open_shard(0).await;
    let conv = conversation("c");
    let message = text(&conv, 1, "ann", "k");
    db.archive.write_batch(&batch_of(&source, vec![message.clone()])).await.unwrap();
    assert_eq!(db.archive.messages_at(&conv, &[1]).await.unwrap(), std::slice::from_ref(&message));
    db.connection().await.execute("ALTER TABLE messages ADD COLUMN zz int; ALTER TABLE conversations ADD COLUMN zz int").await.unwrap();
    for _ in 0..10 {
        assert_eq!(db.archive.messages_at(&conv, &[1]).await.unwrap(), std::slice::from_ref(&message));
        assert_eq!(db.archive.write_batch(&batch_of(&source, vec![message.clone()])).await.unwrap().replayed, 1);
    }
}

/// The words that a CHECK allows, read off the database itself.
async fn allowed(connection: &mut PgConnection, constraint: &str) -> BTreeSet<String> {
    let text: String = sqlx::query_scalar("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = $1 AND conparentid = 0")
        .bind(constraint)
        .fetch_one(connection)
        .await
        .unwrap();
    text.split('\'').skip(1).step_by(2).map(str::to_owned).collect()
}

#[tokio::test]
async fn the_words_of_checks_are_the_words_of_the_domain() {
    // A new variant does not compile until it is listed here.
    let message_kinds = [MessageKind::Text, MessageKind::Image, MessageKind::Share, MessageKind::System];
    let listed = |k: MessageKind| match k {
        MessageKind::Text | MessageKind::Image | MessageKind::Share | MessageKind::System => k.as_str(),
    };
    let kinds = [Kind::Single, Kind::Group, Kind::System].map(|k| match k {
        Kind::Single | Kind::Group | Kind::System => k.as_str(),
    });
    let roles = [Role::Owner, Role::Member].map(|r| match r {
        Role::Owner | Role::Member => r.as_str(),
    });
    let histories = [History::All, History::FromJoin].map(|h| match h {
        History::All | History::FromJoin => h.as_str(),
    });
    let db = database().await;
    let mut connection = db.connection().await;
    let words = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect::<BTreeSet<_>>();
    for (constraint, expected) in [
        ("messages_kind_known", words(&message_kinds.map(listed))),
        ("conversations_kind_known", words(&kinds)),
        ("members_role_known", words(&roles)),
        ("conversations_history_known", words(&histories)),
    ] {
        assert_eq!(allowed(&mut connection, constraint).await, expected, "{constraint}");
    }
}

#[tokio::test]
async fn a_number_and_a_key_are_unique_over_all_partitions() {
    let db = database().await;
    let source = db.open_shard(0).await;
    let conv = conversation("c");
    db.archive.write_batch(&batch_of(&source, vec![text(&conv, 1, "ann", "k")])).await.unwrap();
    for (seq, key, constraint) in [(1_i64, "other", "_pkey"), (2, "k", "_conv_id_sender_client_id_key")] {
        let sql = "INSERT INTO messages (conv_id, seq, id, sender, client_id, kind, body, rev, created_at_ms)
                   VALUES ('system:c', $1, gen_random_uuid(), 'ann', $2, 'text', '', 1, 999)";
        let error = sqlx::query(sql).bind(seq).bind(key).execute(&mut db.connection().await).await.unwrap_err();
        let error = error.into_database_error().unwrap();
        assert!(error.is_unique_violation() && error.constraint().unwrap().ends_with(constraint), "{error:?}");
    }
}
