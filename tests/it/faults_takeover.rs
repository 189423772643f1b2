//! A replica that was held back takes over from a primary that had gone on: again and again under load, on Sentinel and on Cluster. And an
//! old primary that still takes writes while the new one does. No number names two messages, what was answered `archived` or `replicated`
//! stays, what is lost is told.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use reqwest::Method;
use seqline::embedded::{RedisOptions, RedisServer, TempFolder};
use serde_json::json;
use sqlx::{Connection as _, Row as _};

use crate::crowd::{both, events_head, group_on_every_shard};
use crate::faults_loss::kept_or_void;
use crate::harness::standby::{Standby, info};
use crate::harness::{Client, Fleet, PATIENCE, PrivateRedis, RedisKind, TestDatabase, User, eventually, on_both};

/// What each writer asks for, turn by turn.
const ACKS: [&str; 8] = ["accepted", "accepted", "replicated", "accepted", "accepted", "archived", "accepted", "accepted"];
/// A gateway says what is not reached by then; short, so that a writer who waits for a replica that is held back goes on.
const FLAGS: &[&str] = &["--request-deadline-ms", "1500"];
/// What sends may take after a takeover, and open streams to be told: ten times what is promised.
const SENDS_AGAIN: Duration = Duration::from_secs(20);
const STREAMS_TOLD: Duration = Duration::from_secs(30);

/// Stands among what a stream told for a `resync`, after which what the new server still has to tell may come again.
const ANEW: u64 = 0;

/// A send that was answered with a message.
#[derive(Clone, Debug)]
struct Answered {
    conversation: String,
    seq: u64,
    id: String,
    /// What was reached at least: the highest that any answer to it said.
    level: String,
    at: Instant,
}

/// Everything that anybody was told: which message bears which number.
#[derive(Debug, Default)]
struct Names(Mutex<HashMap<(String, u64), String>>);

impl Names {
    #[track_caller]
    fn note(&self, conversation: &str, seq: u64, id: &str) {
        let mut names = self.0.lock().unwrap();
        let known = names.entry((conversation.to_owned(), seq)).or_insert_with(|| id.to_owned());
        assert_eq!(known, id, "{seq} of {conversation} names two messages");
    }
}

/// Writers that go on until they are told to stop.
struct Writers {
    tasks: tokio::task::JoinSet<Vec<Answered>>,
    count: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Writers {
    fn start(writers: Vec<Vec<Client>>, groups: &[String], names: &Arc<Names>) -> Self {
        let (count, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let mut tasks = tokio::task::JoinSet::new();
        for (number, at) in writers.into_iter().enumerate() {
            let (groups, names, count, stop) = (groups.to_vec(), Arc::clone(names), Arc::clone(&count), Arc::clone(&stop));
            tasks.spawn(async move {
                let mut told = Vec::new();
                let mut n = number;
                while !stop.load(Ordering::Relaxed) {
                    let answered = send(&at, n, &groups[n % groups.len()], ACKS[n % ACKS.len()], &names).await;
                    told.push(answered);
                    count.fetch_add(1, Ordering::Relaxed);
                    n += 1;
                }
                told
            });
        }
        Self { tasks, count, stop }
    }

    /// Waits until so many more were answered.
    async fn further(&self, more: usize) {
        let from = self.count.load(Ordering::Relaxed);
        eventually("the crowd goes on", 2 * PATIENCE, async || self.count.load(Ordering::Relaxed) >= from + more).await;
    }

    async fn finish(self) -> Vec<Answered> {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.join_all().await.into_iter().flatten().collect()
    }
}

/// Sends with one key until there is a message for an answer, turn by turn at each gateway.
async fn send(at: &[Client], first: usize, conversation: &str, ack: &str, names: &Names) -> Answered {
    let path = format!("/v1/conversations/{conversation}/messages?ack={ack}");
    let body = json!({"client_id": uuid::Uuid::now_v7().to_string(), "body": "hi"}).to_string().into_bytes();
    let begun = Instant::now();
    for round in 0.. {
        if let Ok(answer) = at[(first + round) % at.len()].try_request(Method::POST, &path, &[], Some(body.clone())).await {
            if matches!(answer.status, 200..=202) {
                let (seq, id) = (answer.seq(), answer.json["id"].as_str().unwrap().to_owned());
                names.note(conversation, seq, &id);
                let level = answer.header("seqline-ack").unwrap().to_owned();
                return Answered { conversation: conversation.to_owned(), seq, id, level, at: Instant::now() };
            }
            assert_eq!(answer.status, 503, "{}", answer.text);
        }
        assert!(begun.elapsed() < 2 * PATIENCE, "never stored");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    unreachable!()
}

/// A stream that is kept open, wherever it can be.
struct Listener {
    resyncs: Arc<Mutex<Vec<Instant>>>,
    heard: Arc<Mutex<BTreeMap<String, Vec<u64>>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Listener {
    fn start(at: Vec<Client>, after: String, names: &Arc<Names>) -> Self {
        let (resyncs, heard) = (Arc::<Mutex<Vec<Instant>>>::default(), Arc::<Mutex<BTreeMap<String, Vec<u64>>>>::default());
        let (names, told, lines) = (Arc::clone(names), Arc::clone(&resyncs), Arc::clone(&heard));
        let task = tokio::spawn(async move {
            let mut last = after;
            for number in 0.. {
                let Ok(mut stream) = at[number % at.len()].stream().after(&last).try_open().await else {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                };
                while let Some(event) = stream.next_event(4 * PATIENCE).await {
                    match event.name.as_str() {
                        "resync" => {
                            told.lock().unwrap().push(Instant::now());
                            lines.lock().unwrap().values_mut().for_each(|line| line.push(ANEW));
                        }
                        "message.created" => {
                            let message = &event.data["data"]["message"];
                            let (conversation, seq) = (message["conversation_id"].as_str().unwrap(), message["seq"].as_u64().unwrap());
                            names.note(conversation, seq, message["id"].as_str().unwrap());
                            lines.lock().unwrap().entry(conversation.to_owned()).or_default().push(seq);
                        }
                        _ => {}
                    }
                }
                last = stream.last_id().unwrap().to_owned();
            }
        });
        Self { resyncs, heard, task }
    }

    async fn told_since(&self, moment: Instant) -> Duration {
        let since = || self.resyncs.lock().unwrap().iter().find(|at| **at >= moment).map(|at| *at - moment);
        eventually("the stream is told", STREAMS_TOLD, async || since().is_some()).await;
        since().unwrap()
    }

    fn has_heard(&self, conversation: &str, seq: u64) -> bool {
        self.heard.lock().unwrap().get(conversation).is_some_and(|line| line.contains(&seq))
    }
}

/// What Postgres names, too; and that it has each number once is its index's promise.
async fn note_archive(database: &TestDatabase, names: &Names) {
    let rows = sqlx::query("SELECT conv_id, seq, id::text FROM messages").fetch_all(&mut database.connect().await).await.unwrap();
    for row in rows {
        names.note(&row.get::<String, _>(0), u64::try_from(row.get::<i64, _>(1)).unwrap(), &row.get::<String, _>(2));
    }
}

/// What became of what was answered. Gives how many are gone.
async fn account(told: &[Answered], groups: &[String], readers: &[Client], names: &Names) -> usize {
    let mut lost = 0;
    for group in groups {
        let line: HashMap<u64, String> =
            told.iter().filter(|one| one.conversation == *group).map(|one| (one.seq, one.id.clone())).collect();
        for reader in readers {
            let history = reader.whole_history(group).await;
            let there: BTreeSet<&str> = history.iter().map(|message| message["id"].as_str().unwrap()).collect();
            for message in &history {
                names.note(group, message["seq"].as_u64().unwrap(), message["id"].as_str().unwrap());
            }
            for one in told.iter().filter(|one| one.conversation == *group && one.level != "accepted") {
                assert!(there.contains(&*one.id), "{} was answered '{}' and is gone", one.seq, one.level);
            }
            lost += kept_or_void(reader, group, &line).await;
        }
    }
    lost / readers.len()
}

on_both! {
    async fn a_replica_that_was_held_back_takes_over_again_and_again(kind: RedisKind) {
        const ROUNDS: usize = 3;
        let mut standby = Standby::start(kind).await;
        let fleet = Fleet::start_over(PrivateRedis::elsewhere(standby.url()), TestDatabase::migrated().await, 2, 1, FLAGS).await;
        let (writers, bob) = (User::many(4), User::new("bob"));
        let members: Vec<&str> = writers.iter().skip(1).chain([&bob]).map(|user| user.id.as_str()).collect();
        let groups = group_on_every_shard(&fleet.client(0, &writers[0]), &members).await;
        let names = Arc::new(Names::default());
        let listeners: Vec<Listener> = {
            let mut all = Vec::new();
            for user in [&bob, &writers[0]] {
                let at = both(&fleet, user);
                let from = events_head(&at[0]).await;
                all.push(Listener::start(at, from, &names));
            }
            all
        };
        let crowd = Writers::start(writers.iter().map(|user| both(&fleet, user)).collect(), &groups, &names);
        let mut moments = Vec::new();
        let mut connection = fleet.database().connect().await;
        for _ in 0..ROUNDS {
            crowd.further(60).await;
            standby.hold_back().await;
            // Nor does Postgres get what is said now.
            let mut barrier = connection.begin().await.unwrap();
            sqlx::query("LOCK TABLE messages IN SHARE MODE").execute(&mut *barrier).await.unwrap();
            crowd.further(40).await;
            let moment = standby.take_over().await;
            barrier.rollback().await.unwrap();
            moments.push(moment);
            for listener in &listeners {
                println!("{kind:?}: a stream was told {:?} after the takeover", listener.told_since(moment).await);
            }
            crowd.further(40).await;
            standby.bring_back().await;
        }
        let told = crowd.finish().await;
        for moment in moments {
            let slowest = groups.iter().map(|group| {
                let after = told.iter().filter(|one| one.conversation == *group && one.at > moment).map(|one| one.at - moment);
                after.min().unwrap()
            });
            let slowest = slowest.max().unwrap();
            println!("{kind:?}: every conversation takes sends {slowest:?} after the takeover");
            assert!(slowest < SENDS_AGAIN, "{slowest:?}");
        }
        let readers = [fleet.client(0, &bob), fleet.client(1, &writers[1])];
        let lost = account(&told, &groups, &readers, &names).await;
        let by_level = |level: &str| told.iter().filter(|one| one.level == level).count();
        println!("{kind:?}: {lost} of {} lost; {} archived, {} replicated, none of these", told.len(), by_level("archived"), by_level("replicated"));
        assert!(lost >= ROUNDS, "the takeovers lost nothing, so this proves nothing");
        assert!(by_level("archived") > 0 && by_level("replicated") > 0);
        // And on it goes, also on the streams that were open all the time.
        for group in &groups {
            let last = send(&both(&fleet, &writers[2]), 0, group, "accepted", &names).await;
            for listener in &listeners {
                eventually("what is said now is heard", PATIENCE, async || listener.has_heard(group, last.seq)).await;
            }
        }
        for listener in &listeners {
            for line in listener.heard.lock().unwrap().values() {
                for part in line.split(|seq| *seq == ANEW) {
                    assert!(part.is_sorted_by(|one, next| one < next), "out of order, or twice: {part:?}");
                }
            }
            listener.task.abort();
        }
        note_archive(fleet.database(), &names).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_primary_that_still_takes_writes_gives_no_number_again() {
    let folder = TempFolder::new("test-split").unwrap();
    let options = RedisOptions { throw_away: true, append_only: true, ..RedisOptions::default() };
    let mut old = RedisServer::start(&folder.path().join("old"), &options).await.unwrap();
    let follow = RedisOptions { replica_of: Some(old.port()), password: Some(old.password().to_owned()), ..options };
    let new = RedisServer::start(&folder.path().join("new"), &follow).await.unwrap();
    eventually("it follows", PATIENCE, async || info(&new, "master_link_status").await.as_deref() == Some("up")).await;
    let database = TestDatabase::migrated().await;
    let at_new = PrivateRedis::elsewhere(new.url());
    let before = Fleet::start_over(PrivateRedis::elsewhere(old.url()), database, 2, 1, FLAGS).await;
    let (writers, bob) = (User::many(4), User::new("bob"));
    let members: Vec<&str> = writers.iter().skip(1).chain([&bob]).map(|user| user.id.as_str()).collect();
    let groups = group_on_every_shard(&before.client(0, &writers[0]), &members).await;
    let names = Arc::new(Names::default());
    let crowd = Writers::start(writers.iter().map(|user| both(&before, user)).collect(), &groups, &names);
    crowd.further(100).await;
    // From here on there are two that take writes; neither knows of the other.
    new.wire().await.unwrap().expect_ok(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    let after = Fleet::start_over(at_new, before.database().at(before.database().url()), 2, 1, FLAGS).await;
    let second = Writers::start(writers.iter().map(|user| both(&after, user)).collect(), &groups, &names);
    second.further(200).await;
    crowd.further(100).await;
    let mut told = crowd.finish().await;
    old.process().kill().await;
    told.extend(second.finish().await);
    let each: BTreeSet<(&str, u64)> = told.iter().map(|one| (&*one.conversation, one.seq)).collect();
    assert_eq!(each.len(), told.len());
    let last = send(&both(&after, &writers[0]), 0, &groups[0], "archived", &names).await;
    assert!(told.iter().filter(|one| one.conversation == groups[0]).all(|one| one.seq < last.seq));
    let lost = account(&told, &groups, &[after.client(0, &bob), after.client(1, &writers[1])], &names).await;
    println!("{lost} of {} were taken by the old primary alone, and are told void", told.len());
    note_archive(after.database(), &names).await;
}
