//! A fleet: a Redis and a database of its own, and gateways and workers on them, all in this process.

use std::time::Duration;

use seqline::startup::{Running, RunningWorker, start_gateway, start_worker};

use super::servers::{PrivateRedis, RedisKind, TestDatabase};
use super::{Client, MadeOn, User, stores};

/// Shards of conversations in tests: several to each owner, few to wait for.
pub const SHARDS: u16 = 8;
/// Partitions of users in tests.
pub const PARTITIONS: u16 = 16;
/// How long a test waits for what should come at once; reached only when it fails.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// A port that the system chooses.
const ANY_PORT: &str = "127.0.0.1:0";

/// Gateways and workers on stores of their own.
pub struct Fleet {
    redis: PrivateRedis,
    database: TestDatabase,
    flags: Vec<String>,
    gateways: Vec<Option<Running>>,
    workers: Vec<Option<RunningWorker>>,
}

impl Fleet {
    /// So many gateways and workers on a Redis of this kind.
    pub async fn start(kind: RedisKind, gateways: usize, workers: usize) -> Self {
        Self::start_with(kind, gateways, workers, &[]).await
    }

    /// The same with flags, as on the command line, for all of them.
    pub async fn start_with(kind: RedisKind, gateways: usize, workers: usize, flags: &[&str]) -> Self {
        Self::start_on(PrivateRedis::start(kind).await, gateways, workers, flags).await
    }

    /// The same on a Redis that is there already.
    pub async fn start_on(redis: PrivateRedis, gateways: usize, workers: usize, flags: &[&str]) -> Self {
        Self::start_over(redis, TestDatabase::migrated().await, gateways, workers, flags).await
    }

    /// The same on a Redis and a database that are there already.
    pub async fn start_over(redis: PrivateRedis, database: TestDatabase, gateways: usize, workers: usize, flags: &[&str]) -> Self {
        let flags = flags.iter().map(ToString::to_string).collect();
        let mut fleet = Self { redis, database, flags, gateways: Vec::new(), workers: Vec::new() };
        for _ in 0..gateways {
            fleet.add_gateway(&[]).await;
        }
        for _ in 0..workers {
            fleet.add_worker().await;
        }
        fleet
    }

    /// One more gateway, with further flags; gives its number.
    pub async fn add_gateway(&mut self, more: &[&str]) -> usize {
        let running = start_gateway(self.settings(more)).await.unwrap();
        self.gateways.push(Some(running));
        self.gateways.len() - 1
    }

    /// One more worker; gives its number.
    pub async fn add_worker(&mut self) -> usize {
        let running = start_worker(self.settings(&[])).await.unwrap();
        self.workers.push(Some(running));
        self.workers.len() - 1
    }

    /// Stops a gateway as SIGTERM would; its number stays empty.
    pub async fn stop_gateway(&mut self, number: usize) {
        if let Some(running) = self.gateways[number].take() {
            running.stop.cancel();
            running.join().await;
        }
    }

    /// Stops a worker as SIGTERM would; its number stays empty.
    pub async fn stop_worker(&mut self, number: usize) {
        if let Some(running) = self.workers[number].take() {
            running.stop.cancel();
            running.join().await;
        }
    }

    fn settings(&self, more: &[&str]) -> seqline::settings::Settings {
        let mut flags = vec!["--listen", ANY_PORT, "--admin-listen", ANY_PORT, "--drain-ms", "3000", "--heartbeat-ms", "1000"];
        flags.extend(self.flags.iter().map(String::as_str));
        flags.extend(more);
        stores::settings(&self.redis.url(), self.database.url(), &flags)
    }

    /// The URL of a gateway; numbers beyond the last begin again at the first.
    pub fn url(&self, number: usize) -> String {
        let running = self.gateways[number % self.gateways.len()].as_ref().expect("this gateway was stopped");
        format!("http://{}", running.api_addr)
    }

    /// The URL of a gateway's second port.
    pub fn admin_url(&self, number: usize) -> String {
        let running = self.gateways[number % self.gateways.len()].as_ref().expect("this gateway was stopped");
        format!("http://{}", running.admin_addr)
    }

    /// A user at a gateway; numbers beyond the last begin again at the first.
    pub fn client(&self, number: usize, user: &User) -> Client {
        Client::new(self.url(number), user)
    }

    /// Its Redis.
    pub fn redis(&mut self) -> &mut PrivateRedis {
        &mut self.redis
    }

    /// The URL of its Redis.
    pub fn redis_url(&self) -> String {
        self.redis.url()
    }

    /// Its Redis, to talk to its nodes.
    pub fn redis_ref(&self) -> &PrivateRedis {
        &self.redis
    }

    /// Its database.
    pub fn database(&self) -> &TestDatabase {
        &self.database
    }

    /// Its database, to halt and to stop the server of one that has its own.
    pub fn database_mut(&mut self) -> &mut TestDatabase {
        &mut self.database
    }
}

impl MadeOn for Fleet {
    async fn made_on(kind: RedisKind) -> Self {
        Self::start(kind, 2, 1).await
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.gateways.iter().flatten().for_each(|g| g.stop.cancel());
        self.workers.iter().flatten().for_each(|w| w.stop.cancel());
    }
}
