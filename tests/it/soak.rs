//! A long evening under random faults, drawn from one seed: connections that are cut on both sides, processes that are killed and halted,
//! readers who stay away until their log has left them behind, replicas that take over. In the end nothing that was promised is missing,
//! doubled, out of order, or gone without a word.
//!
//! The suite plays a short one. `.ci/soak` plays a long one; its report is the last line printed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use sqlx::Connection as _;

use crate::crowd::{events_head, group_on_every_shard};
use crate::harness::standby::Standby;
use crate::harness::{Client, PATIENCE, PrivateRedis, ProcessFleet, RedisKind, TestDatabase, User, eventually};
use crate::trace::Trace;
use crate::witnesses::{Listener, Writers, settle};

const WRITERS: usize = 6;
/// Entries that a log keeps: few, so that a reader who stays away is left behind.
const LOG_ENTRIES: &str = "200";

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// A reader's connection is cut.
    ReaderCut,
    /// All connections to Redis are cut.
    RedisCut,
    /// All connections to Postgres are ended.
    PostgresCut,
    /// A reader stays away until its log has gone on.
    ReaderAway,
    /// A gateway is killed and started again.
    GatewayKilled,
    /// A worker is killed and started again.
    WorkerKilled,
    /// A worker is halted past its leases.
    WorkerHalted,
    /// The primary is killed, and a replica that was held back takes over.
    Takeover,
}

/// How long, and how bad.
#[derive(Clone, Copy, Debug)]
struct Measure {
    seed: u64,
    deliveries: usize,
    readers: usize,
    faults: usize,
    kills: usize,
    takeovers: usize,
}

impl Measure {
    /// Few of everything, unless the environment asks for more.
    fn asked() -> Self {
        let number = |name: &str, otherwise: usize| match std::env::var(name) {
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")),
            Err(_) => otherwise,
        };
        Self {
            seed: number("SOAK_SEED", 1) as u64,
            deliveries: number("SOAK_DELIVERIES", 4_000),
            readers: number("SOAK_READERS", 10),
            faults: number("SOAK_FAULTS", 50),
            kills: number("SOAK_KILLS", 2),
            takeovers: number("SOAK_TAKEOVERS", 1),
        }
    }

    /// All faults in the order in which they come.
    fn plan(&self) -> Vec<Fault> {
        let mut random = StdRng::seed_from_u64(self.seed);
        let mut plan = vec![Fault::Takeover; self.takeovers];
        for n in 0..self.kills {
            plan.push(if n % 2 == 0 { Fault::GatewayKilled } else { Fault::WorkerKilled });
        }
        plan.extend(vec![Fault::WorkerHalted; self.kills.div_ceil(20)]);
        plan.extend(vec![Fault::ReaderAway; self.faults.div_ceil(60)]);
        while plan.len() < self.faults {
            plan.push(match random.random_range(0..100) {
                0..80 => Fault::ReaderCut,
                80..95 => Fault::RedisCut,
                _ => Fault::PostgresCut,
            });
        }
        plan.shuffle(&mut random);
        plan
    }
}

/// The fleet and those who listen, under fault.
struct Stage {
    standby: Standby,
    fleet: ProcessFleet,
    listeners: Vec<Listener>,
    random: StdRng,
}

impl Stage {
    async fn strike(&mut self, fault: Fault, crowd: &Writers) {
        let someone = self.random.random_range(0..self.listeners.len());
        let which = self.random.random_range(0..2);
        match fault {
            Fault::ReaderCut => self.listeners[someone].cut(),
            Fault::ReaderAway => self.listeners[someone].stay_away(Duration::from_secs(3)),
            Fault::RedisCut => {
                let mut wire = self.standby.primary().wire().await.unwrap();
                wire.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await.unwrap();
            }
            Fault::PostgresCut => {
                let mut connection = self.fleet.database().connect().await;
                let ended =
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
                sqlx::query(ended).execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            }
            Fault::GatewayKilled => {
                self.fleet.gateways[which].kill().await;
                self.fleet.gateways[which].start_again().await;
            }
            Fault::WorkerKilled => {
                self.fleet.workers[which].kill().await;
                self.fleet.workers[which].start_again().await;
            }
            Fault::WorkerHalted => {
                self.fleet.workers[which].halt();
                // Longer than its leases last; the other one takes them.
                tokio::time::sleep(Duration::from_secs(8)).await;
                self.fleet.workers[which].go_on();
            }
            Fault::Takeover => {
                self.standby.hold_back().await;
                crowd.further(20).await;
                self.standby.take_over().await;
                crowd.further(20).await;
                self.standby.bring_back().await;
            }
        }
    }

    fn deliveries(&self) -> usize {
        self.listeners.iter().map(Listener::events).sum()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evening_of_random_faults_breaks_no_promise() {
    let measure = Measure::asked();
    let standby = Standby::start(RedisKind::Single).await;
    let envs = [("SEQLINE_LOG_MAX_ENTRIES", LOG_ENTRIES), ("SEQLINE_REQUEST_DEADLINE_MS", "2500"), ("SEQLINE_HEARTBEAT_MS", "1000")];
    let redis = PrivateRedis::elsewhere(standby.url());
    let fleet = ProcessFleet::start_over(redis, TestDatabase::migrated().await, 2, 2, &envs).await;
    let (writers, readers) = (User::many(WRITERS), (0..measure.readers).map(|n| User::new(format!("reader-{n}"))).collect::<Vec<_>>());
    let members: Vec<&str> = writers.iter().skip(1).chain(&readers).map(|user| user.id.as_str()).collect();
    let at = |fleet: &ProcessFleet, user: &User, first: usize| -> Vec<Client> {
        (0..2).map(|number| fleet.client(first + number, user).kept_alive()).collect()
    };
    let groups = group_on_every_shard(&fleet.client(0, &writers[0]), &members).await;
    let trace = Arc::new(Trace::default());
    let mut listeners = Vec::new();
    for (number, user) in readers.iter().enumerate() {
        let from = events_head(&fleet.client(number, user)).await;
        listeners.push(Listener::start(at(&fleet, user, number), from, &trace));
    }
    let begun = Instant::now();
    let crowd = Writers::start(writers.iter().map(|user| at(&fleet, user, 0)).collect(), &groups, &trace);
    let mut stage = Stage { standby, fleet, listeners, random: StdRng::seed_from_u64(measure.seed) };
    let plan = measure.plan();
    let mut struck: BTreeMap<Fault, usize> = BTreeMap::new();
    for (number, fault) in plan.iter().enumerate() {
        let due = measure.deliveries * number / plan.len();
        eventually("deliveries go on", 4 * PATIENCE, async || stage.deliveries() >= due).await;
        stage.strike(*fault, &crowd).await;
        *struck.entry(*fault).or_default() += 1;
        if number % 500 == 499 {
            println!("{:?}: {} of {} faults, {} deliveries", begun.elapsed(), number + 1, plan.len(), stage.deliveries());
        }
    }
    eventually("deliveries go on", 4 * PATIENCE, async || stage.deliveries() >= measure.deliveries).await;
    let sends = crowd.count();
    crowd.finish().await;
    let deliveries = stage.deliveries();
    let readers = [stage.fleet.client(0, &readers[0]), stage.fleet.client(1, &writers[1])];
    let writer = at(&stage.fleet, &writers[2], 0);
    let gone = settle(&trace, &groups, &writer, &readers, stage.listeners, stage.fleet.database()).await;
    trace.assert_whole();
    println!(
        "seed {}: {deliveries} deliveries of {sends} sends under {} faults {struck:?} in {:?}: 0 lost, 0 doubled, 0 out of order, 0 gaps without \
         a word; {gone} sends that were answered 'accepted' went with a primary, each void and told",
        measure.seed,
        plan.len(),
        begun.elapsed()
    );
}
