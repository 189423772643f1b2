//! What a client makes of a snapshot and the events after it is what a fresh snapshot says: for random acts of several users through two
//! gateways, with streams that are cut and go on elsewhere.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::harness::{Answer, Client, Event, EventStream, Fleet, MadeOn, PATIENCE, RedisKind, User, path_segment};

const USERS: [&str; 4] = ["ann", "bob", "cid", "dan"];

/// One act of one user in one conversation; what is not allowed is refused, which is fine.
#[derive(Clone, Debug)]
enum Act {
    Send,
    Reply(u64),
    Edit(u64),
    Delete(u64),
    React(u64, bool),
    Read(u64),
    Invite(usize),
    Remove(usize),
    Rename,
    /// The user's stream is cut and goes on at the other gateway.
    Reconnect,
}

fn acts() -> impl Strategy<Value = Vec<(usize, usize, usize, Act)>> {
    let act = prop_oneof![
        6 => Just(Act::Send),
        2 => (1..20_u64).prop_map(Act::Reply),
        2 => (1..20_u64).prop_map(Act::Edit),
        2 => (1..20_u64).prop_map(Act::Delete),
        3 => (1..20_u64, any::<bool>()).prop_map(|(seq, put)| Act::React(seq, put)),
        3 => (1..30_u64).prop_map(Act::Read),
        2 => (0..USERS.len()).prop_map(Act::Invite),
        2 => (0..USERS.len()).prop_map(Act::Remove),
        1 => Just(Act::Rename),
        2 => Just(Act::Reconnect),
    ];
    prop::collection::vec((0..USERS.len(), 0..2_usize, 0..3_usize, act), 40..80)
}

async fn perform(client: &Client, conversation: &str, act: &Act, n: usize) -> Option<Answer> {
    let messages = format!("/v1/conversations/{conversation}/messages");
    Some(match act {
        Act::Send => client.send(conversation, &format!("k{n}"), &format!("words {n}")).await,
        Act::Reply(seq) => client.send_message(conversation, &json!({"client_id": format!("k{n}"), "body": "re", "reply_to": seq})).await,
        Act::Edit(seq) => client.patch(&format!("{messages}/{seq}"), &json!({"body": format!("other words {n}")})).await,
        Act::Delete(seq) => client.delete(&format!("{messages}/{seq}")).await,
        Act::React(seq, true) => client.put(&format!("{messages}/{seq}/reactions/{}", path_segment("\u{1F44D}")), None).await,
        Act::React(seq, false) => client.delete(&format!("{messages}/{seq}/reactions/{}", path_segment("\u{1F44D}"))).await,
        Act::Read(seq) => client.read(conversation, *seq).await,
        Act::Invite(who) => client.invite(conversation, USERS[*who]).await,
        Act::Remove(who) => client.remove(conversation, USERS[*who]).await,
        Act::Rename => client.patch(&format!("/v1/conversations/{conversation}"), &json!({"title": format!("title {n}")})).await,
        Act::Reconnect => return None,
    })
}

/// What a client holds of one conversation.
#[derive(Clone, Debug, Default, PartialEq)]
struct Held {
    /// Events up to this rev are in what was read.
    rev: u64,
    title: Value,
    owner: Value,
    members: BTreeMap<String, String>,
    messages: BTreeMap<u64, Value>,
    read_seq: u64,
}

impl Held {
    /// What is compared: what a user sees.
    fn shown(&self, me: &str) -> Value {
        let unread = self
            .messages
            .range(self.read_seq + 1..)
            .filter(|(_, m)| m["sender"] != me && m["deleted_at"].is_null() && m["kind"] != "system");
        json!({"title": self.title, "owner": self.owner, "members": self.members, "read_seq": self.read_seq, "unread": unread.count(),
            "messages": self.messages.values().map(shown_message).collect::<Vec<_>>()})
    }
}

fn shown_message(message: &Value) -> Value {
    let mut shown = message.clone();
    // A quote is shown as it is now; an edit of what is quoted stands for it.
    if !shown["reply_to"].is_null() {
        shown["reply_to"] = shown["reply_to"]["seq"].clone();
    }
    for reaction in shown["reactions"].as_array_mut().into_iter().flatten() {
        reaction.as_object_mut().unwrap().remove("me");
    }
    shown
}

async fn fetch(client: &Client, conversation: &str) -> Option<(Held, u64)> {
    let answer = client.conversation(conversation).await;
    if answer.status != 200 {
        return None;
    }
    let messages: BTreeMap<u64, Value> = {
        let page = client.history(conversation, "after=0&limit=200").await;
        if page.status != 200 {
            return None;
        }
        page.items().iter().map(|m| (m["seq"].as_u64().unwrap(), m.clone())).collect()
    };
    let list = client.get(&format!("/v1/conversations/{conversation}/members?limit=200")).await;
    if list.status != 200 {
        return None;
    }
    let members =
        list.items().iter().map(|m| (m["user_id"].as_str().unwrap().to_owned(), m["role"].as_str().unwrap().to_owned())).collect();
    let c = answer.json;
    let held = Held {
        rev: c["rev"].as_u64().unwrap(),
        title: c["title"].clone(),
        owner: c["owner"].clone(),
        members,
        messages,
        read_seq: c["me"]["read_seq"].as_u64().unwrap(),
    };
    Some((held, c["me"]["unread"].as_u64().unwrap()))
}

type State = Arc<Mutex<BTreeMap<String, Held>>>;

/// Applies one event as a client would.
async fn fold(client: &Client, state: &State, event: &Event) {
    let me = client.user().id.as_str();
    let (Some(id), rev, data) = (event.data["conversation_id"].as_str(), event.data["rev"].as_u64().unwrap_or(0), &event.data["data"])
    else {
        assert!(matches!(event.name.as_str(), "hello" | "goodbye"), "{event:?}");
        return;
    };
    let about_me = data["user_id"] == me;
    let mut known = state.lock().unwrap().get(id).cloned();
    if known.as_ref().is_some_and(|held| rev <= held.rev) {
        return;
    }
    if matches!(event.name.as_str(), "member.left" | "member.removed") && about_me {
        state.lock().unwrap().remove(id);
        return;
    }
    if known.is_none() || (event.name == "member.joined" && about_me) {
        // Something new to this client: read as it is now. What is read later than this event holds it.
        match fetch(client, id).await {
            Some((held, _)) => state.lock().unwrap().insert(id.to_owned(), held),
            None => state.lock().unwrap().remove(id),
        };
        return;
    }
    let held = known.as_mut().unwrap();
    match event.name.as_str() {
        "message.resequenced" => {
            let (message, old) = (&data["message"], data["old_seq"].as_u64().unwrap());
            // What stands there now follows, if it did not come before.
            if held.messages.get(&old).is_some_and(|known| known["id"] == message["id"]) {
                held.messages.remove(&old);
            }
            let seq = message["seq"].as_u64().unwrap();
            held.messages.insert(seq, message.clone());
            if message["sender"] == me && !message["client_id"].is_null() {
                held.read_seq = held.read_seq.max(seq);
            }
        }
        "message.created" | "message.edited" | "message.deleted" => {
            let message = &data["message"];
            let seq = message["seq"].as_u64().unwrap();
            if held.messages.get(&seq).is_none_or(|old| old["rev"].as_u64() < message["rev"].as_u64()) {
                held.messages.insert(seq, message.clone());
            }
            if message["sender"] == me && !message["client_id"].is_null() {
                held.read_seq = held.read_seq.max(seq);
            }
        }
        "reaction.changed" => {
            let seq = data["seq"].as_u64().unwrap();
            if let Some(message) = held.messages.get_mut(&seq)
                && message["rev"].as_u64() < Some(rev)
            {
                message["reactions"] = data["reactions"].clone();
                message["rev"] = json!(rev);
            }
        }
        "member.joined" => drop(held.members.insert(data["user_id"].as_str().unwrap().to_owned(), "member".to_owned())),
        "member.left" | "member.removed" => drop(held.members.remove(data["user_id"].as_str().unwrap())),
        "owner.changed" => {
            held.owner = data["owner"].clone();
            held.members.insert(data["owner"].as_str().unwrap().to_owned(), "owner".to_owned());
        }
        "conversation.renamed" => held.title = data["title"].clone(),
        "read.advanced" if about_me => held.read_seq = held.read_seq.max(data["read_seq"].as_u64().unwrap()),
        "read.advanced" | "conversation.created" | "conversation.dissolved" => {}
        other => panic!("an event that no act of this test makes: {other}"),
    }
    state.lock().unwrap().insert(id.to_owned(), known.unwrap());
}

/// A user's device: a stream that is folded into a state, cut when told so.
struct Device {
    state: State,
    cut: mpsc::UnboundedSender<String>,
    task: JoinHandle<()>,
}

impl Device {
    async fn start(fleet: &Fleet, number: usize, user: &User) -> Self {
        let client = fleet.client(number, user);
        let list = client.get("/v1/conversations?limit=200").await.expect(200);
        let state = State::default();
        let mut stream: EventStream = client.stream().after(list.json["events_head"].as_str().unwrap()).open().await;
        for item in list.items() {
            let id = item["id"].as_str().unwrap();
            if let Some((held, _)) = fetch(&client, id).await {
                state.lock().unwrap().insert(id.to_owned(), held);
            }
        }
        let (cut, mut cuts) = mpsc::unbounded_channel::<String>();
        let folded = Arc::clone(&state);
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    url = cuts.recv() => match url {
                        Some(url) => stream = stream.reconnect(&url).await,
                        None => return,
                    },
                    event = stream.next_event(PATIENCE * 10) => match event {
                        Some(event) => fold(&client, &folded, &event).await,
                        None => stream = stream.again().open().await,
                    },
                }
            }
        });
        Self { state, cut, task }
    }
}

async fn fresh(client: &Client) -> BTreeMap<String, (Held, u64)> {
    let list = client.get("/v1/conversations?limit=200").await.expect(200);
    let mut all = BTreeMap::new();
    for item in list.items() {
        let id = item["id"].as_str().unwrap();
        if let Some(found) = fetch(client, id).await {
            all.insert(id.to_owned(), found);
        }
    }
    all
}

async fn folding_equals_reading(fleet: &Fleet, case: usize, acts: &[(usize, usize, usize, Act)]) {
    // Users of their own for each case, so that every list is short.
    let users: Vec<User> = USERS.iter().map(|name| User::new(*name)).collect();
    let ann = fleet.client(0, &users[0]);
    let group = |history: &'static str| json!({"kind": "group", "title": format!("{history} {case}"), "members": ["bob", "cid"], "history": history});
    let all = ann.post("/v1/conversations", &group("all")).await.expect(201).json["id"].as_str().unwrap().to_owned();
    let late = ann.post("/v1/conversations", &group("from_join")).await.expect(201).json["id"].as_str().unwrap().to_owned();
    let pair = crate::harness::pair("ann", "bob");
    ann.send_to_peer("bob", &format!("first {case}"), "hello").await;
    let places = [all, late, pair];
    let mut devices = Vec::new();
    for (number, user) in users.iter().enumerate() {
        devices.push(Device::start(fleet, number, user).await);
    }
    for (n, pairwise) in acts.chunks(2).enumerate() {
        // Two at a time, through whichever gateways, so that acts cross.
        let running = pairwise.iter().enumerate().map(|(half, (who, gateway, place, act))| {
            let client = fleet.client(*gateway, &users[*who]);
            let (devices, places) = (&devices, &places);
            async move {
                match perform(&client, &places[*place], act, case * 10_000 + n * 2 + half).await {
                    Some(answer) => assert!(answer.status < 500, "{act:?}: {} {}", answer.status, answer.text),
                    None => devices[*who].cut.send(fleet.url(*gateway)).unwrap(),
                }
            }
        });
        futures_util::future::join_all(running).await;
    }
    for (number, user) in users.iter().enumerate() {
        let client = fleet.client(number + 1, user);
        let mut differs = Value::Null;
        let same = tokio::time::timeout(PATIENCE, async {
            loop {
                let read = fresh(&client).await;
                let held = devices[number].state.lock().unwrap().clone();
                let fresh: BTreeMap<&String, Value> = read.iter().map(|(id, (held, _))| (id, held.shown(&user.id))).collect();
                let folded: BTreeMap<&String, Value> = held.iter().map(|(id, held)| (id, held.shown(&user.id))).collect();
                for (id, (held, unread)) in &read {
                    assert_eq!(held.shown(&user.id)["unread"], *unread, "{} counts its own way in {id}", user.id);
                }
                if fresh == folded {
                    return;
                }
                differs = json!({"fresh": fresh, "folded": folded});
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert!(same.is_ok(), "{} holds something else than what is there: {differs:#}", user.id);
        assert!(!devices[number].task.is_finished(), "the stream of {} ended in a panic", user.id);
    }
    devices.iter().for_each(|device| device.task.abort());
}

fn check(kind: RedisKind, cases: u32) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let fleet = runtime.block_on(Fleet::made_on(kind));
    let case = std::sync::atomic::AtomicUsize::new(0);
    // Shrinking would run against a fleet that has a past; the failing acts are short enough to be read.
    let config = Config { cases, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&acts(), |acts| {
        let case = case.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        runtime.block_on(folding_equals_reading(&fleet, case, &acts));
        Ok(())
    });
    let _entered = runtime.enter();
    drop(fleet);
    outcome.unwrap();
}

#[test]
fn a_snapshot_and_the_events_after_it_are_the_next_snapshot_single() {
    check(RedisKind::Single, 6);
}

#[test]
fn a_snapshot_and_the_events_after_it_are_the_next_snapshot_cluster() {
    check(RedisKind::Cluster, 3);
}
