//! Epochs and leases: who may give out which numbers, and what a loss leaves behind.

use seqline::domain::ids::ShardId;
use seqline::postgres::{Archive, Claim, EpochGrant, Lease, LeaseGrant};

use crate::postgres_database::{Database, batch_of, conversation, database, text};

const SHARD: ShardId = ShardId(3);

#[tokio::test]
async fn an_installation_keeps_its_numbers() {
    let db = database().await;
    for (shards, partitions, expected) in [
        (64, 256, Claim::Ours),
        (64, 256, Claim::Ours),
        (32, 256, Claim::Mismatch { shards: 64, partitions: 256 }),
        (64, 255, Claim::Mismatch { shards: 64, partitions: 256 }),
    ] {
        assert_eq!(db.archive.claim_installation(shards, partitions).await.unwrap(), expected);
    }
}

enum Ask {
    /// Server, the epoch it holds, the expected epoch and whether it is fresh.
    Grant(&'static str, Option<u64>, u64, bool),
    /// Server, the epoch it holds, the epoch it lost, the expected new one.
    Lost(&'static str, Option<u64>, u64, u64),
    /// Server, the epoch it holds, the one that is found standing.
    Late(&'static str, Option<u64>, u64),
    Mark(u64, bool),
}

#[tokio::test]
async fn an_epoch_is_granted_once_and_kept_only_by_who_holds_it() {
    use Ask::{Grant, Late, Lost, Mark};
    let steps = [
        // The first server, asking twice before it installed; a gateway that crashed in between changes nothing.
        Grant("a", None, 0, true),
        Grant("a", None, 0, true),
        Mark(0, true),
        Mark(0, true),
        Grant("a", Some(0), 0, false),
        // Late: it looked before the first one installed.
        Late("a", None, 0),
        Grant("a", Some(0), 0, false),
        // The same server that forgot, looking twice: what it holds went back in time.
        Late("a", None, 0),
        Lost("a", None, 0, 1),
        Mark(0, false),
        // A second one with the same loss gets the same epoch; one that comes later is late again.
        Lost("a", None, 0, 1),
        Mark(1, true),
        Late("a", Some(0), 1),
        Lost("a", Some(0), 1, 2),
        Mark(2, true),
        // Another server, which brought the epoch along in its copy of the data.
        Grant("b", Some(2), 3, true),
        // A third one before the second installed.
        Grant("c", Some(2), 4, true),
        Mark(3, false),
        Mark(4, true),
        Grant("c", Some(4), 4, false),
        Late("c", Some(u64::MAX), 4),
    ];
    let db = database().await;
    for (place, step) in steps.into_iter().enumerate() {
        let grant = async |server, held, lost| db.archive.grant_epoch(SHARD, server, held, lost, 1).await.unwrap();
        match step {
            Grant(server, held, epoch, fresh) => {
                assert_eq!(grant(server, held, None).await, EpochGrant::Granted { epoch, fresh }, "step {place}");
            }
            Lost(server, held, lost, epoch) => {
                assert_eq!(grant(server, held, Some(lost)).await, EpochGrant::Granted { epoch, fresh: true }, "step {place}");
            }
            Late(server, held, standing) => {
                assert_eq!(grant(server, held, None).await, EpochGrant::Standing(standing), "step {place}");
                assert_eq!(grant(server, held, Some(standing + 7)).await, EpochGrant::Standing(standing), "step {place}");
            }
            Mark(epoch, expected) => {
                assert_eq!(db.archive.mark_epoch_installed(SHARD, epoch).await.unwrap(), expected, "step {place}");
            }
        }
    }
}

#[tokio::test]
async fn askers_at_once_agree_on_an_epoch() {
    let db = database().await;
    let ask = |lost: Option<u64>| {
        let archive = db.archive.clone();
        async move { archive.grant_epoch(SHARD, "a", None, lost, 1).await.unwrap() }
    };
    for (lost, epoch) in [(None, 0), (Some(0), 1)] {
        let tasks: Vec<_> = (0..8).map(|_| tokio::spawn(ask(lost))).collect();
        for task in tasks {
            assert_eq!(task.await.unwrap(), EpochGrant::Granted { epoch, fresh: true });
        }
        assert!(db.archive.mark_epoch_installed(SHARD, epoch).await.unwrap());
    }
}

enum Step {
    /// Epoch, block, expected from and to.
    Take(u64, u64, u64, u64),
    /// Epoch, the lease that is said to be lost, expected from and to of a block of 50.
    Lost(u64, u64, u64, u64),
    /// Epoch, the lease that is said to be lost, the first number of the one that is found installed.
    Late(u64, Option<u64>, u64),
    Closed(u64),
    Mark(u64, bool),
    Extend(u64, u64, Option<u64>),
    End(u64, u64, bool),
    /// Archives messages of `from..=to` in this epoch.
    Write(u64, u64, u64),
    NewEpoch(&'static str),
}

async fn run(name: &str, steps: Vec<Step>, voids: &[(u64, u64)]) {
    let db = database().await;
    let conv = conversation(name);
    let mut source = db.open_shard(SHARD.0).await;
    for (place, step) in steps.into_iter().enumerate() {
        let at = format!("{name}, step {place}");
        match step {
            Step::Take(epoch, block, from, to) => {
                let grant = db.archive.take_lease(&conv, SHARD, epoch, block, None).await.unwrap();
                assert_eq!(grant, LeaseGrant::Granted(Lease { from, to }), "{at}");
            }
            Step::Lost(epoch, lost, from, to) => {
                let grant = db.archive.take_lease(&conv, SHARD, epoch, 50, Some(lost)).await.unwrap();
                assert_eq!(grant, LeaseGrant::Granted(Lease { from, to }), "{at}");
            }
            Step::Late(epoch, lost, from) => {
                assert_eq!(db.archive.take_lease(&conv, SHARD, epoch, 50, lost).await.unwrap(), LeaseGrant::Installed(from), "{at}");
            }
            Step::Closed(epoch) => {
                assert_eq!(db.archive.take_lease(&conv, SHARD, epoch, 10, None).await.unwrap(), LeaseGrant::EpochClosed, "{at}");
            }
            Step::Mark(from, expected) => assert_eq!(db.archive.mark_lease_installed(&conv, from).await.unwrap(), expected, "{at}"),
            Step::Extend(epoch, block, to) => assert_eq!(db.archive.extend_lease(&conv, epoch, block).await.unwrap(), to, "{at}"),
            Step::End(epoch, head, expected) => assert_eq!(db.archive.end_lease(&conv, epoch, head).await.unwrap(), expected, "{at}"),
            Step::Write(epoch, from, to) => {
                source.epoch = epoch;
                let messages = (from..=to).map(|seq| text(&conv, seq, "ann", &format!("k{seq}"))).collect();
                assert!(db.archive.write_batch(&batch_of(&source, messages)).await.unwrap().stale.is_empty(), "{at}");
            }
            Step::NewEpoch(server) => {
                let epoch = db.new_epoch(SHARD.0, server).await;
                assert!(db.archive.mark_epoch_installed(SHARD, epoch).await.unwrap(), "{at}");
                source.server_id = server.into();
            }
        }
    }
    assert_eq!(voids_of(&db).await, voids, "{name}: voids");
}

async fn voids_of(db: &Database) -> Vec<(u64, u64)> {
    let rows: Vec<(i64, i64)> =
        sqlx::query_as("SELECT from_seq, to_seq FROM voids ORDER BY from_seq").fetch_all(&mut db.connection().await).await.unwrap();
    rows.into_iter().map(|(from, to)| (u64::try_from(from).unwrap(), u64::try_from(to).unwrap())).collect()
}

#[tokio::test]
async fn before_the_mark_the_same_block_and_after_it_a_second_look() {
    use Step::{Late, Lost, Mark, Take};
    let steps = vec![
        Take(0, 100, 1, 100),
        Take(0, 500, 1, 100),
        // Said to be lost, but not even installed.
        Lost(0, 1, 1, 100),
        Mark(1, true),
        Mark(1, true),
        // Late: found the conversation cold before the other one installed it. Nothing becomes void.
        Late(0, None, 1),
        Late(0, Some(7), 1),
    ];
    run("late", steps, &[]).await;
    let steps = vec![
        Take(0, 100, 1, 100),
        Mark(1, true),
        Lost(0, 1, 101, 150),
        // A second one that lost the same: the same block.
        Lost(0, 1, 101, 150),
        Mark(1, false),
        Mark(101, true),
        // A third one that comes late with the old loss.
        Late(0, Some(1), 101),
    ];
    run("missing", steps, &[(1, 100)]).await;
}

#[tokio::test]
async fn a_lost_lease_leaves_a_void_above_the_archived_head() {
    use Step::{Mark, NewEpoch, Take, Write};
    let steps = vec![Take(0, 100, 1, 100), Mark(1, true), Write(0, 1, 5), NewEpoch("s2"), Take(1, 100, 101, 200), Mark(101, true)];
    run("lost", steps, &[(6, 100)]).await;
    // Nothing archived, and a lease that was proposed only: nobody can know whether it was opened.
    run("lost-early", vec![Take(0, 10, 1, 10), NewEpoch("s2"), Take(1, 10, 11, 20)], &[(1, 10)]).await;
    // Used up to its last number: nothing is lost.
    run("used-up", vec![Take(0, 3, 1, 3), Mark(1, true), Write(0, 1, 3), NewEpoch("s2"), Take(1, 5, 4, 8)], &[]).await;
    // Two losses leave two voids.
    let twice = vec![
        Take(0, 10, 1, 10),
        Mark(1, true),
        NewEpoch("s2"),
        Take(1, 10, 11, 20),
        Mark(11, true),
        Write(1, 11, 12),
        NewEpoch("s3"),
        Take(2, 1, 21, 21),
    ];
    run("lost-twice", twice, &[(1, 10), (13, 20)]).await;
}

#[tokio::test]
async fn a_cooled_conversation_goes_on_right_above_its_head() {
    use Step::{End, Mark, NewEpoch, Take, Write};
    let steps = vec![
        Take(0, 100, 1, 100),
        End(0, 0, false),
        Mark(1, true),
        Write(0, 1, 7),
        End(9, 7, false),
        End(0, 7, true),
        End(0, 7, true),
        End(0, 8, false),
        Take(0, 100, 8, 107),
        Mark(8, true),
        // Cooled without a word said, twice, the second time after its shard's server changed.
        End(0, 7, true),
        NewEpoch("s2"),
        Take(1, 10, 8, 17),
        Mark(8, true),
        End(1, 7, true),
        Take(1, 20, 8, 27),
    ];
    run("cooled", steps, &[]).await;
    // After a loss, and without a word said above the void: its numbers were given out once and stay void.
    let after_a_loss = vec![
        Take(0, 100, 1, 100),
        Mark(1, true),
        Write(0, 1, 5),
        NewEpoch("s2"),
        Take(1, 10, 101, 110),
        Mark(101, true),
        End(1, 5, true),
        Take(1, 10, 101, 110),
        Mark(101, true),
        End(1, 5, true),
        NewEpoch("s3"),
        Take(2, 10, 101, 110),
    ];
    run("cooled-after-a-loss", after_a_loss, &[(6, 100)]).await;
}

#[tokio::test]
async fn a_lease_grows_only_where_it_lives() {
    use Step::{End, Extend, Mark, NewEpoch, Take};
    let steps = vec![
        Extend(0, 10, None),
        Take(0, 100, 1, 100),
        Extend(0, 10, None),
        Mark(1, true),
        Extend(0, 50, Some(150)),
        Extend(1, 50, None),
        NewEpoch("s2"),
        // The old server may still ask; whatever it gets is declared void when the lease is found lost.
        Extend(0, 50, Some(200)),
        Take(1, 10, 201, 210),
        Extend(0, 50, None),
        Mark(201, true),
        Extend(1, 5, Some(215)),
        End(1, 0, true),
        Extend(1, 5, None),
    ];
    run("growing", steps, &[(1, 200)]).await;
}

#[tokio::test]
async fn no_lease_in_a_closed_or_unknown_epoch() {
    use Step::{Closed, NewEpoch, Take};
    run("closed", vec![Closed(1), Take(0, 10, 1, 10), NewEpoch("s2"), Closed(0), Closed(2), Take(1, 10, 11, 20)], &[(1, 10)]).await;
}

#[tokio::test]
async fn a_number_that_stands_aside_is_taken() {
    use seqline::domain::conversation::History;
    let db = database().await;
    let conv = conversation("aside");
    let source = db.open_shard(SHARD.0).await;
    let mut batch = batch_of(&source, vec![text(&conv, 1, "ann", "k1")]);
    batch.conversations = vec![crate::postgres_database::conversation_row(&conv, History::All, 2)];
    db.archive.write_batch(&batch).await.unwrap();
    let grant = db.archive.take_lease(&conv, SHARD, 0, 10, None).await.unwrap();
    assert_eq!(grant, LeaseGrant::Granted(Lease { from: 3, to: 12 }));
}

#[tokio::test]
async fn racing_askers_get_one_block_before_the_mark_and_one_next_when_it_is_lost() {
    let db = database().await;
    db.open_shard(SHARD.0).await;
    let conv = conversation("race");
    let race = |archive: Archive, lost: Option<u64>| {
        let conv = conv.clone();
        async move {
            let tasks: Vec<_> = (0..12)
                .map(|_| {
                    let (archive, conv) = (archive.clone(), conv.clone());
                    tokio::spawn(async move { archive.take_lease(&conv, SHARD, 0, 10_000, lost).await.unwrap() })
                })
                .collect();
            let mut got = Vec::new();
            for task in tasks {
                got.push(task.await.unwrap());
            }
            got
        }
    };
    let granted = |from, to| LeaseGrant::Granted(Lease { from, to });
    assert!(race(db.archive.clone(), None).await.iter().all(|g| *g == granted(1, 10_000)));
    assert!(db.archive.mark_lease_installed(&conv, 1).await.unwrap());
    assert!(race(db.archive.clone(), None).await.iter().all(|g| *g == LeaseGrant::Installed(1)));
    assert!(race(db.archive.clone(), Some(1)).await.iter().all(|g| *g == granted(10_001, 20_000)));
}

#[tokio::test]
async fn an_epoch_cannot_be_closed_under_a_lease_that_is_being_taken() {
    let db = database().await;
    db.open_shard(SHARD.0).await;
    // Rounds of a lease and a new epoch at once: whatever the order, no lease of a closed epoch is left open when the dust settles.
    for round in 0..20_u64 {
        let conv = conversation(&format!("r{round}"));
        let server: &'static str = if round % 2 == 0 { "s2" } else { "s3" };
        let (a, b, c) = (db.archive.clone(), db.archive.clone(), conv.clone());
        let lease = tokio::spawn(async move { a.take_lease(&c, SHARD, round, 10, None).await.unwrap() });
        let grant = tokio::spawn(async move { b.grant_epoch(SHARD, server, None, None, 1).await.unwrap() });
        let (lease, grant) = (lease.await.unwrap(), grant.await.unwrap());
        assert_eq!(grant, EpochGrant::Granted { epoch: round + 1, fresh: true });
        assert!(db.archive.mark_epoch_installed(SHARD, round + 1).await.unwrap());
        let next = db.archive.take_lease(&conv, SHARD, round + 1, 10, None).await.unwrap();
        let from = if lease == LeaseGrant::EpochClosed { 1 } else { 11 };
        assert_eq!(next, LeaseGrant::Granted(Lease { from, to: from + 9 }), "{lease:?}");
    }
}
