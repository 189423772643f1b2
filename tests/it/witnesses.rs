//! Writers that do not give up and listeners that go on elsewhere, while harm is done; what they are told is noted in a trace.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};

use crate::harness::{Client, PATIENCE, TestDatabase, eventually};
use crate::trace::{Answered, Kept, Told, Trace};

/// What an application waits before it tries again.
const BACK_OFF: Duration = Duration::from_millis(20);
/// What a writer rests between two sends, so that nobody writes tens of thousands while a takeover is waited for.
const BREATH: Duration = Duration::from_millis(10);
/// What each writer asks for, turn by turn.
const ACKS: [&str; 8] = ["accepted", "accepted", "replicated", "accepted", "accepted", "archived", "accepted", "accepted"];

/// Sends with one key until there is a message for an answer, turn by turn at each gateway.
pub async fn send(at: &[Client], first: usize, conversation: &str, ack: &str, trace: &Trace) -> Answered {
    let path = format!("/v1/conversations/{conversation}/messages?ack={ack}");
    let body = json!({"client_id": uuid::Uuid::now_v7().to_string(), "body": "hi"}).to_string().into_bytes();
    let begun = Instant::now();
    for round in 0.. {
        if let Ok(answer) = at[(first + round) % at.len()].try_request(Method::POST, &path, &[], Some(body.clone())).await {
            if matches!(answer.status, 200..=202) {
                let (seq, id) = (answer.seq(), answer.json["id"].as_str().unwrap().to_owned());
                let level = answer.header("seqline-ack").unwrap().to_owned();
                let answered = Answered { conversation: conversation.to_owned(), seq, id, level, at: Instant::now() };
                trace.answer(answered.clone());
                return answered;
            }
            assert_eq!(answer.status, 503, "{}", answer.text);
        }
        assert!(begun.elapsed() < 2 * PATIENCE, "never stored");
        tokio::time::sleep(BACK_OFF).await;
    }
    unreachable!()
}

/// Writers that go on until they are told to stop.
pub struct Writers {
    tasks: JoinSet<()>,
    count: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Writers {
    /// Each is the same user at several gateways.
    pub fn start(writers: Vec<Vec<Client>>, groups: &[String], trace: &Arc<Trace>) -> Self {
        let (count, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let mut tasks = JoinSet::new();
        for (number, at) in writers.into_iter().enumerate() {
            let (groups, trace, count, stop) = (groups.to_vec(), Arc::clone(trace), Arc::clone(&count), Arc::clone(&stop));
            tasks.spawn(async move {
                let mut n = number;
                while !stop.load(Ordering::Relaxed) {
                    send(&at, n, &groups[n % groups.len()], ACKS[n % ACKS.len()], &trace).await;
                    count.fetch_add(1, Ordering::Relaxed);
                    n += 1;
                    tokio::time::sleep(BREATH).await;
                }
            });
        }
        Self { tasks, count, stop }
    }

    /// How many were answered.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits until so many more were answered.
    pub async fn further(&self, more: usize) {
        let from = self.count();
        eventually("the crowd goes on", 2 * PATIENCE, async || self.count() >= from + more).await;
    }

    /// Waits until all have ended.
    pub async fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.join_all().await;
    }
}

/// A stream that is kept open, wherever it can be.
pub struct Listener {
    pub name: String,
    told: Arc<Mutex<Told>>,
    /// Cuts the connection, from the client's side.
    cut: Arc<tokio::sync::Notify>,
    /// ms that it stays away before it goes on.
    away: Arc<AtomicU64>,
    /// Recoveries under way.
    reading: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Listener {
    /// The same user at several gateways, from this place on.
    pub fn start(at: Vec<Client>, after: String, trace: &Arc<Trace>) -> Self {
        let (told, cut) = (Arc::<Mutex<Told>>::default(), Arc::<tokio::sync::Notify>::default());
        let away = Arc::<AtomicU64>::default();
        let gone = Arc::clone(&away);
        let reading = Arc::<AtomicUsize>::default();
        let under_way = Arc::clone(&reading);
        let name = at[0].user().id.clone();
        let (trace, notes, cuts) = (Arc::clone(trace), Arc::clone(&told), Arc::clone(&cut));
        let task = tokio::spawn(async move {
            let mut last = after;
            for number in 0.. {
                let Ok(mut stream) = at[number % at.len()].stream().after(&last).try_open().await else {
                    tokio::time::sleep(BACK_OFF).await;
                    continue;
                };
                loop {
                    let event = tokio::select! {
                        event = stream.next_event(4 * PATIENCE) => event,
                        () = cuts.notified() => None,
                    };
                    let Some(event) = event else { break };
                    let mut told = notes.lock().unwrap();
                    told.events += 1;
                    match event.name.as_str() {
                        "resync" => {
                            told.resync();
                            under_way.fetch_add(1, Ordering::SeqCst);
                            let number = told.resyncs.len();
                            tokio::spawn(recover(at.clone(), number, Arc::clone(&notes), Arc::clone(&under_way)));
                        }
                        "message.created" => {
                            let message = &event.data["data"]["message"];
                            let (conversation, seq) = (message["conversation_id"].as_str().unwrap(), message["seq"].as_u64().unwrap());
                            trace.note(conversation, seq, message["id"].as_str().unwrap());
                            told.message(conversation, seq);
                        }
                        _ => {}
                    }
                }
                last = stream.last_id().unwrap_or(&last).to_owned();
                drop(stream);
                tokio::time::sleep(Duration::from_millis(gone.swap(0, Ordering::Relaxed))).await;
            }
        });
        Self { name, told, cut, away, reading, task }
    }

    /// Cuts its connection; it goes on at the next gateway.
    pub fn cut(&self) {
        self.cut.notify_one();
    }

    /// Cuts its connection; it goes on after so long.
    pub fn stay_away(&self, how_long: Duration) {
        self.away.store(u64::try_from(how_long.as_millis()).unwrap(), Ordering::Relaxed);
        self.cut();
    }

    /// Events that it was told.
    pub fn events(&self) -> usize {
        self.told.lock().unwrap().events
    }

    /// Waits until it is told of a loss, and says how long after this moment that was.
    pub async fn told_since(&self, moment: Instant, within: Duration) -> Duration {
        let since = || self.told.lock().unwrap().resyncs.iter().find(|at| **at >= moment).map(|at| *at - moment);
        eventually("the stream is told", within, async || since().is_some()).await;
        since().unwrap()
    }

    /// Waits until it has heard this one.
    pub async fn heard(&self, conversation: &str, seq: u64) {
        eventually(&format!("{} hears {seq} of {conversation}", self.name), 2 * PATIENCE, async || {
            self.reading.load(Ordering::SeqCst) == 0 && self.told.lock().unwrap().known_to(conversation) >= Some(seq)
        })
        .await;
    }

    /// Ends it, and gives what it was told.
    pub fn end(self) -> (String, Told) {
        self.task.abort();
        (self.name.clone(), std::mem::take(&mut *self.told.lock().unwrap()))
    }
}

/// Does what a `resync` asks for: reads the list again, as soon as there is an answer.
async fn recover(at: Vec<Client>, number_of_resync: usize, told: Arc<Mutex<Told>>, under_way: Arc<AtomicUsize>) {
    for number in 0.. {
        let answer = at[number % at.len()].try_request(Method::GET, "/v1/conversations?limit=200", &[], None).await;
        let Some(answer) = answer.ok().filter(|answer| answer.status == 200) else {
            tokio::time::sleep(BACK_OFF).await;
            continue;
        };
        let heads = answer.items().iter().map(|item| (item["id"].as_str().unwrap().to_owned(), item["head_seq"].as_u64().unwrap()));
        told.lock().unwrap().read(number_of_resync, heads);
        break;
    }
    under_way.fetch_sub(1, Ordering::SeqCst);
}

/// Says something in every conversation and waits until everybody has heard it; then holds all that was told against what is there, at
/// each reader, and in Postgres. Gives how many answered sends are gone.
pub async fn settle(
    trace: &Trace,
    groups: &[String],
    writer: &[Client],
    readers: &[Client],
    listeners: Vec<Listener>,
    database: &TestDatabase,
) -> usize {
    for group in groups {
        let last = send(writer, 0, group, "archived", trace).await;
        for listener in &listeners {
            listener.heard(group, last.seq).await;
        }
    }
    let ended: Vec<(String, Told)> = listeners.into_iter().map(Listener::end).collect();
    let told: Vec<(&str, &Told)> = ended.iter().map(|(name, told)| (name.as_str(), told)).collect();
    let mut gone = 0;
    for group in groups {
        for (number, reader) in readers.iter().enumerate() {
            let kept = Kept::read(reader, group).await;
            trace.compare(group, &kept, &told);
            if number == 0 {
                let ids: BTreeSet<&String> = kept.messages.values().collect();
                gone += trace.answered().iter().filter(|one| one.conversation == *group && !ids.contains(&one.id)).count();
            }
        }
    }
    trace.note_archive(database).await;
    gone
}
