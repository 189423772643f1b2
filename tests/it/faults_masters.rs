//! A Redis server that is killed while a crowd writes: what was answered is there, each once, on every log too.

use std::collections::HashMap;
use std::time::Instant;

use seqline::domain::ids::ConversationId;

use crate::crowd::{Load, both, group_on_every_shard, send_for_sure};
use crate::faults_loss::kept_or_void;
use crate::harness::{Fleet, PATIENCE, PrivateRedis, RedisKind, User, eventually, stores};
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
    for group in &groups {
        let line: HashMap<u64, String> =
            told.iter().filter(|one| one.conversation == *group).map(|one| (one.seq, one.id.clone())).collect();
        assert_eq!(line.len(), told.iter().filter(|one| one.conversation == *group).count(), "no number twice");
        for client in [fleet.client(0, &bob), fleet.client(1, &writers[0])] {
            assert_eq!(client.whole_history(group).await.len(), line.len(), "no message twice");
            assert_eq!(kept_or_void(&client, group, &line).await, 0, "nothing that was answered is lost");
        }
        let id = ConversationId::parse(group).unwrap();
        let mut expected: Vec<u64> = line.into_keys().collect();
        expected.sort_unstable();
        for name in names.iter().copied().chain(["user-0"]) {
            let mut seen = Vec::new();
            eventually(&format!("{name}'s log is complete"), PATIENCE, async || {
                seen = scene::heard(&looking, name, &id).await;
                seen.len() >= expected.len()
            })
            .await;
            assert_eq!(seen, expected, "{name}'s log");
        }
    }
}

crate::harness::on_both! {
    async fn a_server_that_is_killed_in_the_middle_of_load_costs_a_pause_and_nothing_else(kind: RedisKind) {
        a_server_killed_in_the_middle_of_load(kind).await;
    }
}
