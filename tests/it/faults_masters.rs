//! A Redis server that is killed while a crowd writes: what was answered is there, each once, on every log too.

use std::collections::HashMap;
use std::time::Instant;

use seqline::actions::Stores;
use seqline::domain::ids::ConversationId;
use seqline::embedded::WireReply;

use crate::crowd::{Load, Told, both, group_on_every_shard, send_for_sure};
use crate::faults_loss::kept_or_void;
use crate::harness::{Client, Fleet, PATIENCE, PrivateRedis, RedisKind, User, eventually, stores};
use crate::scene;

async fn a_server_killed_in_the_middle_of_load(kind: RedisKind) {
    const EACH: usize = 60;
    let mut fleet = Fleet::start_on(PrivateRedis::start_durable(kind).await, 2, 1, &[]).await;
    let (writers, bob) = (User::many(8), User::new("bob"));
    let names: Vec<&str> = writers.iter().skip(1).chain([&bob]).map(|user| user.id.as_str()).collect();
    let groups = group_on_every_shard(&fleet.client(0, &writers[0]), &names).await;
    let looking = stores::open(&fleet.redis_url(), fleet.database().url(), &[]).await;
    let load = Load::start(writers.iter().map(|user| both(&fleet, user)).collect(), &groups, EACH);
    load.at(writers.len() * EACH / 3).await;
    let mut healthy = None;
    for group in &groups {
        let head = looking.keys.conversation(&ConversationId::parse(group).unwrap()).head;
        let answers = fleet.redis_ref().on_every_node(&["TYPE", &head]).await;
        if answers[0].text().is_none_or(|text| text.starts_with("MOVED")) {
            healthy = Some(group.clone());
        }
    }
    assert_eq!(healthy.is_some(), kind == RedisKind::Cluster);
    fleet.redis().nodes()[0].process().kill().await;
    let bobs = both(&fleet, &bob);
    let mut told = Vec::new();
    for (n, healthy) in healthy.iter().cycle().take(20).enumerate() {
        let one = send_for_sure(&bobs, n, healthy, &uuid::Uuid::now_v7().to_string(), "hi").await;
        assert_eq!(one.status, 201);
        assert!(one.refused.is_empty(), "others' conversations go on: {:?}", one.refused);
        told.push(one);
    }
    fleet.redis().nodes()[0].start_again().await.unwrap();
    let back = Instant::now();
    told.extend(load.finish().await);
    println!(
        "the load ended {:?} after the restart; {} tries in vain",
        back.elapsed(),
        told.iter().map(|one| one.refused.len()).sum::<usize>()
    );
    let everybody: Vec<&str> = names.iter().copied().chain(["user-0"]).collect();
    prove_with_voids(&told, &groups, &[fleet.client(0, &bob), fleet.client(1, &writers[0])], &everybody, &looking).await;
}

/// Proves that every answer is in history, nothing else is, and everybody's log tells the same, once and in order. Numbers may jump: over
/// voids.
async fn prove_with_voids(told: &[Told], groups: &[String], readers: &[Client], names: &[&str], looking: &Stores) {
    for group in groups {
        let line: HashMap<u64, String> =
            told.iter().filter(|one| one.conversation == *group).map(|one| (one.seq, one.id.clone())).collect();
        assert_eq!(line.len(), told.iter().filter(|one| one.conversation == *group).count(), "no number twice");
        for client in readers {
            assert_eq!(client.whole_history(group).await.len(), line.len(), "no message twice");
            assert_eq!(kept_or_void(client, group, &line).await, 0, "nothing that was answered is lost");
        }
        let id = ConversationId::parse(group).unwrap();
        let mut expected: Vec<u64> = line.into_keys().collect();
        expected.sort_unstable();
        for name in names.iter().copied() {
            let mut seen = Vec::new();
            eventually(&format!("{name}'s log is complete"), PATIENCE, async || {
                seen = scene::heard(looking, name, &id).await;
                seen.len() >= expected.len()
            })
            .await;
            assert_eq!(seen, expected, "{name}'s log");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_to_another_master_costs_a_pause_and_nothing_else() {
    const EACH: usize = 100;
    let mut fleet = Fleet::start(RedisKind::Cluster, 2, 1).await;
    let (writers, bob) = (User::many(4), User::new("bob"));
    let names: Vec<&str> = writers.iter().skip(1).chain([&bob]).map(|user| user.id.as_str()).collect();
    let group = fleet.client(0, &writers[0]).create_group("talk", &names).await;
    let looking = stores::open(&fleet.redis_url(), fleet.database().url(), &[]).await;
    let head = looking.keys.conversation(&ConversationId::parse(&group).unwrap()).head;
    let load = Load::start(writers.iter().map(|user| both(&fleet, user)).collect(), std::slice::from_ref(&group), EACH);
    load.at(EACH).await;

    let nodes = fleet.redis().nodes();
    let mut wires = Vec::new();
    for node in nodes.iter() {
        wires.push(node.wire().await.unwrap());
    }
    let mut ids = Vec::new();
    let mut from = 0;
    for (number, wire) in wires.iter_mut().enumerate() {
        ids.push(wire.command(&["CLUSTER", "MYID"]).await.unwrap().text().unwrap().to_owned());
        if wire.command(&["TYPE", &head]).await.unwrap().text() == Some("hash") {
            from = number;
        }
    }
    let to = (from + 1) % nodes.len();
    let WireReply::Int(slot) = wires[from].command(&["CLUSTER", "KEYSLOT", &head]).await.unwrap() else { panic!("no slot") };
    let slot = slot.to_string();
    let (port, password) = (nodes[to].port().to_string(), nodes[to].password().to_owned());
    wires[to].expect_ok(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[from]]).await.unwrap();
    wires[from].expect_ok(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[to]]).await.unwrap();
    let mut moved = 0;
    loop {
        // A few at a time, so that sends come while keys are on both sides.
        let found = wires[from].command(&["CLUSTER", "GETKEYSINSLOT", &slot, "3"]).await.unwrap();
        let keys: Vec<&str> = found.items().iter().filter_map(|key| key.text()).collect();
        if keys.is_empty() {
            break;
        }
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "AUTH", &password, "KEYS"];
        words.extend(&keys);
        let answer = wires[from].command(&words).await.unwrap();
        assert!(matches!(answer.text(), Some("OK" | "NOKEY")), "{answer:?}");
        moved += keys.len();
    }
    for number in [to, from, 3 - to - from] {
        wires[number].expect_ok(&["CLUSTER", "SETSLOT", &slot, "NODE", &ids[to]]).await.unwrap();
    }
    let begun = Instant::now();
    let told = load.finish().await;
    println!(
        "{moved} keys moved; the load ended {:?} after it; {} tries in vain",
        begun.elapsed(),
        told.iter().map(|one| one.refused.len()).sum::<usize>()
    );
    let everybody: Vec<&str> = names.iter().copied().chain(["user-0"]).collect();
    let readers = [fleet.client(0, &bob), fleet.client(1, &writers[0])];
    prove_with_voids(&told, std::slice::from_ref(&group), &readers, &everybody, &looking).await;
}

crate::harness::on_both! {
    async fn a_server_that_is_killed_in_the_middle_of_load_costs_a_pause_and_nothing_else(kind: RedisKind) {
        a_server_killed_in_the_middle_of_load(kind).await;
    }
}
