//! Processes that die, sleep, and leave in order, in the middle of load: what was answered stays, everybody hears it once, others take over.

use std::time::{Duration, Instant};

use crate::crowd::{Load, Told, events_head, group_on_every_shard, listen, prove, prove_heard, send_for_sure};
use crate::harness::{Client, Fleet, PATIENCE, ProcessFleet, RedisKind, User, eventually};

const WRITERS: usize = 8;
/// What another one may take to go on with a dead worker's shards: its lease lasts 6 s; the rest is a loaded machine.
const TAKE_OVER: Duration = Duration::from_secs(40);

/// With this no send is refused because the machine is busy: who has to wait longer has been forgotten.
const LONG_DEADLINE: &[(&str, &str)] = &[("SEQLINE_REQUEST_DEADLINE_MS", "25000"), ("SEQLINE_DRAIN_MS", "26000")];

/// Writers, one who listens, and all their names but the first.
fn people() -> (Vec<User>, User, Vec<String>) {
    let (writers, bob) = (User::many(WRITERS), User::new("bob"));
    let names = writers.iter().skip(1).chain([&bob]).map(|user| user.id.clone()).collect();
    (writers, bob, names)
}

/// The same user at each of these gateways.
fn at(fleet: &ProcessFleet, user: &User) -> Vec<Client> {
    (0..fleet.gateways.len()).map(|number| fleet.client(number, user).kept_alive()).collect()
}

/// Groups on all shards, with everybody in them.
async fn groups(client: &Client, names: &[String]) -> Vec<String> {
    group_on_every_shard(client, &names.iter().map(String::as_str).collect::<Vec<_>>()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_killed_takes_nothing_with_it() {
    const EACH: usize = 125;
    let mut fleet = ProcessFleet::start(RedisKind::Single, 2, 1).await;
    let (writers, bob, names) = people();
    let groups = groups(&fleet.client(1, &writers[0]), &names).await;
    let from = events_head(&fleet.client(1, &bob)).await;
    let heard = listen(vec![fleet.client(0, &bob), fleet.client(1, &bob)], from.clone(), WRITERS * EACH);
    let load = Load::start(writers.iter().map(|user| at(&fleet, user)).collect(), &groups, EACH);
    // Twice, at different moments of the load.
    for part in [1, 2] {
        load.at(part * WRITERS * EACH / 4).await;
        fleet.gateways[0].kill().await;
        fleet.gateways[0].start_again().await;
    }
    let told = load.finish().await;
    let tried_again = told.iter().filter(|one| !one.refused.is_empty()).count();
    println!("{} sends, {tried_again} of them tried again, {} replays", told.len(), told.iter().filter(|one| one.status == 200).count());
    assert!(tried_again > 0, "the load ran into the kill");
    let readers = [fleet.client(1, &bob), fleet.client(0, &writers[0])];
    prove(&told, &readers, &[(fleet.client(1, &bob), from)], fleet.database()).await;
    prove_heard(&told, &heard.await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_is_replaced_within_seconds() {
    const EACH: usize = 60;
    let mut fleet = ProcessFleet::start_with(RedisKind::Single, 2, 2, LONG_DEADLINE).await;
    let (writers, bob, names) = people();
    both_work(&fleet).await;
    let groups = groups(&fleet.client(0, &writers[0]), &names).await;
    let from = events_head(&fleet.client(1, &bob)).await;
    let heard = listen(vec![fleet.client(1, &bob)], from.clone(), WRITERS * EACH);
    let load = Load::start(writers.iter().map(|user| at(&fleet, user)).collect(), &groups, EACH);
    load.at(WRITERS * EACH / 3).await;
    fleet.workers[0].kill().await;
    let killed = Instant::now();
    let told = load.finish().await;
    no_send_notices(&told);
    let heard = heard.await.unwrap();
    let longest = heard.windows(2).map(|pair| pair[1].at - pair[0].at).max().unwrap();
    println!("killed a worker: all is heard {:?} after; longest silence {longest:?}", killed.elapsed());
    assert!(longest < TAKE_OVER, "{longest:?}");
    prove_heard(&told, &heard);
    prove(&told, &[fleet.client(0, &bob)], &[(fleet.client(0, &bob), from)], fleet.database()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_sleeps_past_its_lease_does_nothing_twice_when_it_wakes() {
    const EACH: usize = 40;
    let mut fleet = ProcessFleet::start_with(RedisKind::Single, 2, 2, LONG_DEADLINE).await;
    let (writers, bob, names) = people();
    both_work(&fleet).await;
    let groups = groups(&fleet.client(0, &writers[0]), &names).await;
    let from = events_head(&fleet.client(1, &bob)).await;
    let start = |fleet: &ProcessFleet| Load::start(writers.iter().map(|user| at(fleet, user)).collect(), &groups, EACH);
    let count = WRITERS * EACH;
    let heard = listen(vec![fleet.client(1, &bob)], from.clone(), 3 * count);

    let first = start(&fleet);
    first.at(count / 2).await;
    fleet.workers[0].halt();
    let mut told = first.finish().await;
    // The other one has taken its shards when it owns all of them and has delivered everything.
    owns(&fleet, 1, 8.0).await;
    let second = start(&fleet);
    second.at(count / 2).await;
    fleet.workers[0].go_on();
    told.extend(second.finish().await);
    both_work(&fleet).await;
    told.extend(start(&fleet).finish().await);
    no_send_notices(&told);
    prove_heard(&told, &heard.await.unwrap());
    prove(&told, &[fleet.client(0, &bob)], &[(fleet.client(0, &bob), from)], fleet.database()).await;
}

fn no_send_notices(told: &[Told]) {
    let refused: Vec<&String> = told.iter().flat_map(|one| &one.refused).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

/// Waits until a worker owns so many shards.
async fn owns(fleet: &ProcessFleet, worker: usize, shards: f64) {
    eventually("the shards have this owner", PATIENCE, async || fleet.workers[worker].metric("seqline_shards_owned").await == Some(shards))
        .await;
}

/// Waits until each of two workers owns its half.
async fn both_work(fleet: &ProcessFleet) {
    for worker in 0..2 {
        owns(fleet, worker, 4.0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_and_workers_come_and_go_and_nobody_notices() {
    const EACH: usize = 150;
    let mut fleet = Fleet::start(RedisKind::Single, 2, 1).await;
    let (writers, bob, names) = people();
    let groups = groups(&fleet.client(1, &writers[0]), &names).await;
    let from = events_head(&fleet.client(1, &bob)).await;
    let heard = listen(vec![fleet.client(0, &bob), fleet.client(1, &bob)], from.clone(), WRITERS * EACH);
    let mut leaving = fleet.client(0, &bob).stream().open().await;
    leaving.wait_for("hello", PATIENCE).await;
    let everywhere = |user: &User| vec![fleet.client(0, user).kept_alive(), fleet.client(1, user).kept_alive()];
    let load = Load::start(writers.iter().map(everywhere).collect(), &groups, EACH);
    let step = WRITERS * EACH / 6;
    load.at(step).await;
    let begun = Instant::now();
    fleet.stop_gateway(0).await;
    println!("a gateway left within {:?}", begun.elapsed());
    leaving.wait_for("goodbye", PATIENCE).await;
    assert_eq!(leaving.next_event(PATIENCE).await, None, "nothing follows a goodbye");
    load.at(2 * step).await;
    let one = fleet.add_worker().await;
    load.at(3 * step).await;
    fleet.stop_worker(0).await;
    load.at(4 * step).await;
    fleet.add_worker().await;
    fleet.stop_worker(one).await;
    let added = fleet.add_gateway(&[]).await;
    let told = load.finish().await;
    let said: Vec<&String> = told.iter().flat_map(|one| &one.refused).collect();
    println!("{} tries had to be repeated elsewhere", said.len());
    // A connection that is refused or closed is tried elsewhere; an answer that says no is not what a client sees of a rolling update.
    assert!(said.iter().all(|text| !text.contains("\"status\"")), "{said:?}");
    prove_heard(&told, &heard.await.unwrap());
    prove(&told, &[fleet.client(1, &bob), fleet.client(added, &bob)], &[(fleet.client(added, &bob), from)], fleet.database()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_sleeps_and_wakes_doubles_nothing() {
    let mut fleet = ProcessFleet::start(RedisKind::Single, 2, 1).await;
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    let anns = at(&fleet, &ann);
    let group = anns[1].create_group("talk", &["bob"]).await;
    let from = events_head(&fleet.client(1, &bob)).await;
    let mut told = Vec::new();
    for round in 0..5 {
        let keys: Vec<String> = (0..20).map(|_| uuid::Uuid::now_v7().to_string()).collect();
        let pending: Vec<_> = keys
            .iter()
            .map(|key| {
                let (client, group, key) = (anns[0].clone(), group.clone(), key.clone());
                tokio::spawn(async move { client.send(&group, &key, "hi").await })
            })
            .collect();
        // Somewhere in the middle of them, another place each time.
        tokio::time::sleep(Duration::from_millis(round * 7)).await;
        fleet.gateways[0].halt();
        for key in &keys {
            told.push(send_for_sure(&anns[1..], 0, &group, key, "hi").await);
        }
        fleet.gateways[0].go_on();
        for (pending, one) in pending.into_iter().zip(&told[told.len() - keys.len()..]) {
            let answer = pending.await.unwrap();
            assert!(matches!(answer.status, 200 | 201), "{}", answer.text);
            assert_eq!((answer.seq(), answer.json["id"].as_str()), (one.seq, Some(&*one.id)));
        }
    }
    prove(&told, &[fleet.client(0, &bob)], &[(fleet.client(0, &bob), from)], fleet.database()).await;
}
