//! The senders of a run. Each waits for the answer to its last message before it sends the next one, as a phone does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::args::MESSAGES_MAX;
use super::gateways::Sent;
use super::play::{Stage, progress};
use super::record::{Room, hold};
use super::scenarios::{Due, Traffic, small_talk};

/// How often the bar moves.
const GLANCE: Duration = Duration::from_millis(100);

/// Sends everything, and returns when the last send has ended.
pub async fn send(stage: &Arc<Stage>, traffic: &Traffic) {
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    let (bar, total_ms) = match traffic {
        Traffic::AtTimes(dues) => {
            let mut own: Vec<Vec<Due>> = vec![Vec::new(); stage.users.len()];
            for due in dues {
                own[due.sender].push(due.clone());
            }
            for dues in own.into_iter().filter(|dues| !dues.is_empty()) {
                tasks.spawn(at_times(stage.clone(), dues, start));
            }
            (progress(dues.len() as u64, "{msg:>9} [{bar:40}] {pos}/{len} messages, {elapsed}", "sending"), None)
        }
        Traffic::ClosedLoop { clients, seconds } => {
            let left = Arc::new(AtomicU64::new(MESSAGES_MAX));
            let until = start + Duration::from_secs(*seconds);
            for client in 0..*clients {
                let rooms = (client..stage.record.rooms.len()).step_by(*clients).collect();
                tasks.spawn(closed_loop(stage.clone(), rooms, until, left.clone()));
            }
            (progress(seconds * 1_000, "{msg:>9} [{bar:40}] {elapsed}", "sending"), Some(seconds * 1_000))
        }
    };
    loop {
        let done = tokio::select! {
            ended = tasks.join_next() => ended.is_none(),
            () = sleep(GLANCE) => false,
        };
        bar.set_position(match total_ms {
            Some(ms) => ms.min(u64::try_from(start.elapsed().as_millis()).unwrap_or(ms)),
            None => stage.record.ended.load(Ordering::Relaxed),
        });
        if done {
            bar.finish_and_clear();
            return;
        }
    }
}

async fn at_times(stage: Arc<Stage>, dues: Vec<Due>, start: Instant) {
    for due in dues {
        let time = start + Duration::from_micros(due.at_us);
        sleep_until(time).await;
        let behind = u64::try_from(time.elapsed().as_micros()).unwrap_or(u64::MAX);
        stage.record.behind_us.fetch_max(behind, Ordering::Relaxed);
        send_one(&stage, due.room, due.sender, &due.body).await;
    }
}

/// Goes round its own conversations; in each, the members take turns.
async fn closed_loop(stage: Arc<Stage>, rooms: Vec<usize>, until: Instant, left: Arc<AtomicU64>) {
    let mut chance = StdRng::seed_from_u64(rooms.first().map_or(0, |room| *room as u64));
    for round in 0_usize.. {
        for room in &rooms {
            let may = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
            if !may || Instant::now() >= until {
                return;
            }
            let members = &stage.record.rooms[*room].members;
            send_one(&stage, *room, members[round % members.len()], &small_talk(&mut chance)).await;
        }
    }
}

async fn send_one(stage: &Stage, room: usize, sender: usize, body: &str) {
    let record = &stage.record;
    let Room { id, members, ledger } = &record.rooms[room];
    let peer = if id.starts_with("single:") { members.iter().find(|member| **member != sender) } else { None };
    let peer = peer.map(|place| stage.users[*place].id.as_str());
    let began_us = record.now_us();
    let sent = stage.gateways.send(&stage.users[sender], id, peer, body).await;
    let ended_us = record.now_us();
    match sent {
        Sent::Taken { seq, id, replayed, below } => {
            hold(ledger).answered(sender, seq, id, ended_us);
            record.sends.add(ended_us - began_us);
            record.taken.fetch_add(1, Ordering::Relaxed);
            record.replayed.fetch_add(u64::from(replayed), Ordering::Relaxed);
            record.below.fetch_add(u64::from(below), Ordering::Relaxed);
        }
        Sent::NotTaken(why) => {
            let mut unsent = hold(&record.unsent);
            unsent.0 += 1;
            unsent.1.get_or_insert(why);
        }
    }
    record.ended.fetch_add(1, Ordering::Relaxed);
}
