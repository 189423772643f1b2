//! Groups under random acts that cross at two gateways, against a model read off the timeline: always exactly one owner, nobody speaks who
//! does not belong, and no stream holds anything
//! that was said while its user did not belong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::harness::{Client, EventStream, Fleet, MadeOn, PATIENCE, RedisKind, User};

/// The first makes the group; the last is never removed and never leaves, so that somebody sees everything.
const USERS: [&str; 6] = ["ann", "bob", "cid", "dan", "eve", "obs"];
const OBSERVER: usize = USERS.len() - 1;

#[derive(Clone, Debug)]
enum Act {
    Send,
    Invite(usize),
    Remove(usize),
    Leave,
    Rename,
}

fn acts() -> impl Strategy<Value = Vec<(usize, usize, Act)>> {
    let act = prop_oneof![
        6 => Just(Act::Send),
        4 => (0..OBSERVER).prop_map(Act::Invite),
        2 => (0..OBSERVER).prop_map(Act::Remove),
        2 => Just(Act::Leave),
        1 => Just(Act::Rename),
    ];
    prop::collection::vec((0..USERS.len(), 0..2_usize, act), 60..120)
}

/// The members, and the owner, as the timeline tells them.
struct Model {
    members: BTreeSet<String>,
    owner: String,
    /// For each user the seqs that were said while they belonged, their own joining included, their own going not.
    heard: BTreeMap<String, BTreeSet<u64>>,
    /// For each member the seq of the last joining, 0 for founders.
    joined: BTreeMap<String, u64>,
}

impl Model {
    /// Reads a timeline that begins with the founders.
    fn of(timeline: &[Value], founders: &[&str]) -> Self {
        let mut model = Self {
            members: founders.iter().map(ToString::to_string).collect(),
            owner: founders[0].to_owned(),
            heard: BTreeMap::new(),
            joined: founders.iter().map(|name| (name.to_string(), 0)).collect(),
        };
        let mut ownerless = false;
        for (message, n) in timeline.iter().zip(1_u64..) {
            assert_eq!(message["seq"], n, "no hole, no repeat");
            let sender = message["sender"].as_str().unwrap();
            assert!(
                !ownerless || message["data"]["type"] == "owner.changed",
                "between an owner's going and the next owner nothing happens"
            );
            let user = message["data"]["user_id"].as_str().unwrap_or_default().to_owned();
            // Who takes over is told of in the name of who left, in the very step.
            if !ownerless {
                assert!(model.members.contains(sender), "{sender} acts in {n} and is no member");
            }
            match message["data"]["type"].as_str() {
                Some("member.joined") => {
                    assert!(model.members.insert(user.clone()), "who is in does not join in {n}");
                    model.joined.insert(user, n);
                }
                Some("member.left") => {
                    assert_eq!(user, sender);
                    assert!(model.members.remove(&user), "who is out does not leave in {n}");
                    ownerless = user == model.owner;
                }
                Some("member.removed") => {
                    assert_eq!(sender, model.owner, "only the owner removes, in {n}");
                    assert!(user != model.owner && model.members.remove(&user), "who is out is not removed in {n}");
                }
                Some("owner.changed") => {
                    assert!(ownerless, "an owner is made only when one has left, in {n}");
                    message["data"]["owner"].as_str().unwrap().clone_into(&mut model.owner);
                    assert!(model.members.contains(&model.owner), "the owner of {n} is a member");
                    ownerless = false;
                }
                Some("conversation.renamed") => assert_eq!(sender, model.owner, "only the owner renames, in {n}"),
                Some(other) => panic!("{other} in the timeline"),
                None => {}
            }
            for member in &model.members {
                model.heard.entry(member.clone()).or_default().insert(n);
            }
        }
        assert!(!ownerless, "the group has an owner at the end");
        model
    }
}

async fn perform(client: &Client, group: &str, who: usize, act: &Act, n: usize) -> u16 {
    match act {
        Act::Send => client.send(group, &format!("k{n}"), "words").await.status,
        Act::Invite(whom) => client.invite(group, USERS[*whom]).await.status,
        Act::Remove(whom) => client.remove(group, USERS[*whom]).await.status,
        // The observer stays.
        Act::Leave if who == OBSERVER => 204,
        Act::Leave => client.remove(group, USERS[who]).await.status,
        Act::Rename => client.patch(&format!("/v1/conversations/{group}"), &json!({"title": format!("title {n}")})).await.status,
    }
}

async fn the_model_holds(fleet: &Fleet, case: usize, acts: &[(usize, usize, Act)]) {
    let users: Vec<User> = USERS.iter().map(|name| User::new(*name)).collect();
    let founders = ["ann", "bob", "obs"];
    let observer = fleet.client(0, &users[OBSERVER]);
    let mut streams: Vec<EventStream> = Vec::new();
    for (number, user) in users.iter().enumerate() {
        let client = fleet.client(number, user);
        let head = client.conversations().await.expect(200).json["events_head"].as_str().unwrap().to_owned();
        streams.push(client.stream().after(head).open().await);
    }
    let group = fleet.client(1, &users[0]).create_group(&format!("model {case}"), &founders[1..]).await;
    for (round, three) in acts.chunks(3).enumerate() {
        let crossing = three.iter().enumerate().map(|(place, (who, gateway, act))| {
            let client = fleet.client(*gateway, &users[*who]);
            let (group, n) = (&group, case * 10_000 + round * 3 + place);
            async move {
                let status = perform(&client, group, *who, act, n).await;
                assert!(status < 500, "{act:?} is answered {status}");
            }
        });
        futures_util::future::join_all(crossing).await;
    }
    let end = observer.send(&group, "end", "the end").await.expect(201).seq();
    // Once the members have the end, what those who left still get comes with something said later.
    let mut heard: Vec<BTreeSet<u64>> = vec![BTreeSet::new(); USERS.len()];
    let timeline = observer.whole_history(&group).await;
    assert_eq!(timeline.last().unwrap()["seq"], end);
    let model = Model::of(&timeline, &founders);
    for (number, name) in USERS.iter().enumerate().filter(|(_, name)| model.members.contains(**name)) {
        while !heard[number].contains(&end) {
            take(&mut streams[number], &group, &mut heard[number], name).await;
        }
    }
    let flush = observer.create_group(&format!("flush {case}"), &USERS[..OBSERVER]).await;
    for (number, name) in USERS.iter().enumerate() {
        while take(&mut streams[number], &group, &mut heard[number], name).await != Some(flush.clone()) {}
        // What was under way to somebody who left is passed over: it is shown to members only. Whoever is one now has everything since.
        let meant = model.heard.get(*name).cloned().unwrap_or_default();
        assert!(heard[number].is_subset(&meant), "{name} was told {:?} of {meant:?}", heard[number]);
        if model.members.contains(*name) {
            let since = model.joined[*name];
            let (told, meant): (Vec<_>, Vec<_>) = (heard[number].range(since..).collect(), meant.range(since..).collect());
            assert_eq!(told, meant, "what {name} was told since {since}");
        }
    }
    let list = observer.get(&format!("/v1/conversations/{group}/members?limit=200")).await.expect(200);
    let members: BTreeSet<String> = list.items().iter().map(|m| m["user_id"].as_str().unwrap().to_owned()).collect();
    let owners: Vec<&Value> = list.items().iter().filter(|m| m["role"] == "owner").map(|m| &m["user_id"]).collect();
    assert_eq!((members, owners), (model.members, vec![&json!(model.owner)]));
    assert_eq!(observer.conversation(&group).await.json["owner"], model.owner);
}

/// Takes the next event: a message of the group is noted, in order; the conversation of any other is given back.
async fn take(stream: &mut EventStream, group: &str, heard: &mut BTreeSet<u64>, name: &str) -> Option<String> {
    let event = stream.next_event(PATIENCE).await.unwrap();
    let conversation = event.data["conversation_id"].as_str()?;
    if conversation != group {
        return Some(conversation.to_owned());
    }
    if event.name == "message.created" {
        let seq = event.data["data"]["message"]["seq"].as_u64().unwrap();
        assert!(heard.last().is_none_or(|last| *last < seq), "{name} is told of {seq} after {:?}", heard.last());
        heard.insert(seq);
    }
    None
}

fn check(kind: RedisKind, cases: u32) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let fleet = runtime.block_on(Fleet::made_on(kind));
    let case = AtomicUsize::new(0);
    // Shrinking would run against a fleet that has a past; the failing acts are short enough to be read.
    let config = Config { cases, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&acts(), |acts| {
        runtime.block_on(the_model_holds(&fleet, case.fetch_add(1, Ordering::Relaxed), &acts));
        Ok(())
    });
    let _entered = runtime.enter();
    drop(fleet);
    outcome.unwrap();
}

#[test]
fn groups_keep_their_rules_when_acts_cross_single() {
    check(RedisKind::Single, 6);
}

#[test]
fn groups_keep_their_rules_when_acts_cross_cluster() {
    check(RedisKind::Cluster, 3);
}
