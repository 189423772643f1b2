//! What tests of faults have in common: crowds that write and do not give up, listeners that go on elsewhere, and the proof that nothing
//! is missing, doubled or out of order anywhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use seqline::domain::ids::ConversationId;
use serde_json::{Value, json};
use sqlx::Row as _;
use tokio::task::{JoinHandle, JoinSet};

use crate::harness::fleet::SHARDS;
use crate::harness::{Client, EventStream, Fleet, PATIENCE, TestDatabase, User, eventually, eventually_some};

/// What an application waits before it tries again.
const BACK_OFF: Duration = Duration::from_millis(30);
/// Groups made at most until every shard has one.
const GROUPS_MAX: usize = 400;

/// What became of one send.
#[derive(Clone, Debug)]
pub struct Told {
    pub conversation: String,
    pub status: u16,
    pub seq: u64,
    pub id: String,
    /// What was said to the tries before, each without a message.
    pub refused: Vec<String>,
}

/// Writers at work.
pub struct Load {
    tasks: JoinSet<Vec<Told>>,
    answered: Arc<AtomicUsize>,
}

impl Load {
    /// Each writer, given as the same user at several gateways, sends `count` messages, turn by turn to each conversation and through
    /// each gateway. A send without a message for an answer is tried again at the next gateway, with the same key.
    pub fn start(writers: Vec<Vec<Client>>, conversations: &[String], count: usize) -> Self {
        Self::start_with_body(writers, conversations, count, "hi")
    }

    /// The same with a body of one's own.
    pub fn start_with_body(writers: Vec<Vec<Client>>, conversations: &[String], count: usize, body: &str) -> Self {
        let answered = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for (number, at) in writers.into_iter().enumerate() {
            let (conversations, answered, body) = (conversations.to_vec(), Arc::clone(&answered), body.to_owned());
            tasks.spawn(async move {
                let mut told = Vec::with_capacity(count);
                for n in 0..count {
                    let conversation = &conversations[(number + n) % conversations.len()];
                    told.push(send_for_sure(&at, number + n, conversation, &uuid::Uuid::now_v7().to_string(), &body).await);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                told
            });
        }
        Self { tasks, answered }
    }

    /// Waits until so many sends were answered with a message.
    pub async fn at(&self, count: usize) {
        eventually("the crowd goes on", 2 * PATIENCE, async || self.answered.load(Ordering::Relaxed) >= count).await;
    }

    /// Waits until all have ended.
    pub async fn finish(self) -> Vec<Told> {
        self.tasks.join_all().await.into_iter().flatten().collect()
    }
}

/// Sends until there is a message for an answer: same key, next gateway.
pub async fn send_for_sure(at: &[Client], first: usize, conversation: &str, key: &str, body: &str) -> Told {
    let path = format!("/v1/conversations/{conversation}/messages");
    let message = json!({"client_id": key, "body": body}).to_string().into_bytes();
    let (begun, mut refused) = (Instant::now(), Vec::new());
    loop {
        let client = &at[(first + refused.len()) % at.len()];
        match client.try_request(Method::POST, &path, &[], Some(message.clone())).await {
            Ok(answer) if matches!(answer.status, 200 | 201) => {
                let id = answer.json["id"].as_str().unwrap().to_owned();
                let (status, seq) = (answer.status, answer.seq());
                return Told { conversation: conversation.to_owned(), status, seq, id, refused };
            }
            Ok(answer) => {
                assert_eq!(answer.status, 503, "{}", answer.text);
                assert!(answer.header("retry-after").is_some(), "{}", answer.text);
                refused.push(answer.text);
            }
            Err(error) => refused.push(format!("{error:?}")),
        }
        assert!(begun.elapsed() < 2 * PATIENCE, "never stored: {refused:?}");
        tokio::time::sleep(BACK_OFF).await;
    }
}

/// The same user at both gateways of a fleet, with connections that are used again.
pub fn both(fleet: &Fleet, user: &User) -> Vec<Client> {
    vec![fleet.client(0, user).kept_alive(), fleet.client(1, user).kept_alive()]
}

/// Makes groups until there is one on every shard.
pub async fn group_on_every_shard(client: &Client, members: &[&str]) -> Vec<String> {
    let mut found = BTreeMap::new();
    for n in 0..GROUPS_MAX {
        let id = client.create_group(&format!("group {n}"), members).await;
        found.insert(ConversationId::parse(&id).unwrap().shard(SHARDS), id);
        if found.len() == usize::from(SHARDS) {
            break;
        }
    }
    assert_eq!(found.len(), usize::from(SHARDS));
    found.into_values().collect()
}

/// Where a user's log ends now.
pub async fn events_head(client: &Client) -> String {
    client.conversations().await.expect(200).json["events_head"].as_str().unwrap().to_owned()
}

/// An event that a listener heard, and when.
pub struct Heard {
    pub at: Instant,
    pub message: Value,
}

/// Listens until it has heard `count` messages; whenever the stream ends or cannot be opened it goes on with its last id at the next
/// gateway. A resync fails it.
pub fn listen(at: Vec<Client>, after: String, count: usize) -> JoinHandle<Vec<Heard>> {
    tokio::spawn(async move {
        let (mut last, mut heard, mut number) = (after, Vec::with_capacity(count), 0);
        let begun = Instant::now();
        while heard.len() < count {
            assert!(begun.elapsed() < 3 * PATIENCE, "heard {} of {count}", heard.len());
            let opened = at[number % at.len()].stream().after(&last).try_open().await;
            number += 1;
            let Ok(mut stream) = opened else {
                tokio::time::sleep(BACK_OFF).await;
                continue;
            };
            hear(&mut stream, &mut heard, count).await;
            last = stream.last_id().unwrap().to_owned();
        }
        heard
    })
}

/// Hears messages until there are `count` or the stream ends.
pub async fn hear(stream: &mut EventStream, heard: &mut Vec<Heard>, count: usize) {
    while heard.len() < count {
        let Some(event) = stream.next_event(2 * PATIENCE).await else { return };
        assert_ne!(event.name, "resync", "{}", event.data);
        if event.name == "message.created" {
            heard.push(Heard { at: Instant::now(), message: event.data["data"]["message"].clone() });
        }
    }
}

/// Numbers of the messages that a stream tells up to the one with this seq.
pub async fn seqs_up_to(stream: &mut EventStream, last: u64) -> Vec<u64> {
    let mut seqs = Vec::new();
    while seqs.last() != Some(&last) {
        seqs.push(stream.next_message(2 * PATIENCE).await["seq"].as_u64().unwrap());
    }
    seqs
}

/// Everything on a log after a place, by polling.
pub async fn log_after(client: &Client, after: &str) -> Vec<Value> {
    let (mut events, mut next) = (Vec::new(), after.to_owned());
    loop {
        let page = client.get(&format!("/v1/events/poll?limit=200&after={next}")).await.expect(200);
        assert!(page.json["resync"].is_null(), "{}", page.text);
        let more = page.json["events"].as_array().unwrap();
        if more.is_empty() {
            return events;
        }
        events.extend(more.iter().cloned());
        next = page.json["next"].as_str().unwrap().to_owned();
    }
}

/// The messages among events of a log.
pub fn messages_in(events: &[Value]) -> Vec<Value> {
    events.iter().filter(|event| event["type"] == "message.created").map(|event| event["data"]["message"].clone()).collect()
}

type Lines = BTreeMap<String, Vec<(u64, String)>>;

/// Seq and id of messages, as they come, by conversation.
fn lines<'m>(messages: impl IntoIterator<Item = &'m Value>) -> Lines {
    let mut lines = Lines::new();
    for message in messages {
        let place = (message["seq"].as_u64().unwrap(), message["id"].as_str().unwrap().to_owned());
        lines.entry(message["conversation_id"].as_str().unwrap().to_owned()).or_default().push(place);
    }
    lines
}

/// Proves that what was told is all there is, numbered 1, 2, 3 …, and the same in the answers, in history through each of `readers`,
/// once and in order on the log of each of `logs` (a client and the place to read from), and in Postgres.
pub async fn prove(told: &[Told], readers: &[Client], logs: &[(Client, String)], database: &TestDatabase) {
    let mut expected = Lines::new();
    for one in told {
        expected.entry(one.conversation.clone()).or_default().push((one.seq, one.id.clone()));
    }
    for (conversation, line) in &mut expected {
        line.sort_unstable();
        let seqs: Vec<u64> = line.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(seqs, (1..=line.len() as u64).collect::<Vec<_>>(), "each number once in {conversation}");
        for reader in readers {
            let history = reader.whole_history(conversation).await;
            assert_eq!(lines(&history).get(conversation), Some(&*line), "history");
        }
    }
    for (reader, from) in logs {
        let name = &reader.user().id;
        let messages = eventually_some(&format!("the log of {name} is complete"), 2 * PATIENCE, async || {
            let messages = messages_in(&log_after(reader, from).await);
            if messages.len() >= told.len() { Ok(messages) } else { Err(messages.len()) }
        })
        .await;
        assert_eq!(lines(&messages), expected, "the log of {name}");
    }
    prove_archived(&expected, database).await;
}

/// Proves that a listener heard every message once, each conversation's in order.
pub fn prove_heard(told: &[Told], heard: &[Heard]) {
    let mut expected = Lines::new();
    for one in told {
        expected.entry(one.conversation.clone()).or_default().push((one.seq, one.id.clone()));
    }
    expected.values_mut().for_each(|line| line.sort_unstable());
    assert_eq!(lines(heard.iter().map(|one| &one.message)), expected);
}

async fn prove_archived(expected: &Lines, database: &TestDatabase) {
    let mut connection = database.connect().await;
    for (conversation, line) in expected {
        let rows = eventually_some("everything is archived", 2 * PATIENCE, async || {
            let rows = sqlx::query("SELECT seq, id::text FROM messages WHERE conv_id = $1 ORDER BY seq")
                .bind(conversation)
                .fetch_all(&mut connection)
                .await
                .unwrap();
            if rows.len() >= line.len() { Ok(rows) } else { Err(rows.len()) }
        })
        .await;
        let kept: Vec<(u64, String)> = rows.iter().map(|row| (u64::try_from(row.get::<i64, _>(0)).unwrap(), row.get(1))).collect();
        assert_eq!(&kept, line, "Postgres");
    }
}

/// What `/readyz` of a gateway says.
pub async fn readiness(fleet: &Fleet, gateway: usize) -> (u16, String) {
    let answer = reqwest::get(format!("{}/readyz", fleet.admin_url(gateway))).await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// Waits until both gateways say so.
pub async fn until_ready(fleet: &Fleet, status: u16) {
    eventually("readiness has changed", PATIENCE, async || readiness(fleet, 0).await.0 == status && readiness(fleet, 1).await.0 == status)
        .await;
}
