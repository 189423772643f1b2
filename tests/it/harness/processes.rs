//! Gateways and workers as processes of their own, to be killed with -9, halted and asked for their metrics. They end with the test.

use std::fs;
use std::time::Duration;

use seqline::embedded::{Guarded, GuardedCommand, TempFolder, free_port};

use super::servers::{PrivateRedis, RedisKind, TestDatabase};
use super::user::SECRET;
use super::wait::eventually;
use super::{Client, MadeOn, User};

/// A process may take its time on a loaded machine.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// One running `seqline`.
#[derive(Debug)]
pub struct Process {
    process: Guarded,
    listen: u16,
    admin: u16,
    folder: TempFolder,
}

impl Process {
    /// Starts `seqline` with these words (`["serve"]`, `["work"]`, `["serve", "--with-worker"]`) against these stores. `envs` come on top and win.
    pub fn start(words: &[&str], redis_url: &str, database_url: &str, envs: &[(&str, &str)]) -> Self {
        let folder = TempFolder::new("test-process").unwrap();
        let (listen, admin) = (free_port().unwrap(), free_port().unwrap());
        let mut all: Vec<(String, String)> = vec![
            ("SEQLINE_LISTEN".into(), format!("127.0.0.1:{listen}")),
            ("SEQLINE_ADMIN_LISTEN".into(), format!("127.0.0.1:{admin}")),
            ("SEQLINE_REDIS_URL".into(), redis_url.into()),
            ("SEQLINE_DATABASE_URL".into(), database_url.into()),
            ("SEQLINE_JWT_HS256_SECRETS".into(), SECRET.into()),
            ("SEQLINE_SHARDS".into(), super::fleet::SHARDS.to_string()),
            ("SEQLINE_PARTITIONS".into(), super::fleet::PARTITIONS.to_string()),
            ("SEQLINE_DATABASE_CONNECTIONS".into(), "5".into()),
        ];
        all.extend(envs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let process = Guarded::start(GuardedCommand {
            name: "seqline",
            folder: folder.path().to_owned(),
            program: env!("CARGO_BIN_EXE_seqline").into(),
            args: words.iter().map(Into::into).collect(),
            envs: all,
            user: None,
            stop_signal: "TERM",
            stop_within: Duration::from_secs(40),
            stale_files: Vec::new(),
            remove_folder: Some(folder.path().to_owned()),
        })
        .unwrap();
        Self { process, listen, admin, folder }
    }

    /// The URL of its API.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.listen)
    }

    /// The URL of its health and metrics.
    pub fn admin_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.admin)
    }

    /// Waits until `/readyz` says 200; panics with its log when it ends before.
    pub async fn wait_ready(&mut self) {
        let url = format!("{}/readyz", self.admin_url());
        let begun = std::time::Instant::now();
        loop {
            if reqwest::get(&url).await.is_ok_and(|answer| answer.status() == 200) {
                return;
            }
            assert!(self.process.ended().is_none() && begun.elapsed() < READY_WITHIN, "not ready:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The value of one metric with all its labels, e.g. `seqline_streams_open`; `None` when it is not there.
    pub async fn metric(&self, row: &str) -> Option<f64> {
        let text = self.metrics().await;
        text.lines().find_map(|line| line.strip_prefix(row)?.strip_prefix(' ')?.trim().parse().ok())
    }

    /// All of `/metrics`.
    pub async fn metrics(&self) -> String {
        reqwest::get(format!("{}/metrics", self.admin_url())).await.unwrap().text().await.unwrap()
    }

    /// Kills it with -9 and waits until it is gone.
    pub async fn kill(&mut self) {
        self.process.kill().await;
    }

    /// Asks it to stop and waits until it is gone.
    pub async fn stop(&mut self) {
        self.process.signal("TERM");
        eventually("the process ends", Duration::from_secs(60), async || self.process.ended().is_some()).await;
    }

    /// Asks it to stop and goes on.
    pub fn begin_stop(&mut self) {
        self.process.signal("TERM");
    }

    /// Halts it as if its machine hung.
    pub fn halt(&mut self) {
        self.process.signal("STOP");
    }

    /// Lets a halted one go on.
    pub fn go_on(&mut self) {
        self.process.signal("CONT");
    }

    /// Starts it again, with the same ports and settings, after it was stopped or killed.
    pub async fn start_again(&mut self) {
        self.process.start_again().unwrap();
        self.wait_ready().await;
    }

    /// How it ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.process.ended()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid().unwrap()
    }

    /// Everything it wrote.
    pub fn log(&self) -> String {
        fs::read_to_string(self.process.log_path()).unwrap_or_default()
    }
}

/// Gateways and workers as processes, on a Redis that keeps its data and a database of their own.
#[derive(Debug)]
pub struct ProcessFleet {
    /// Its gateways.
    pub gateways: Vec<Process>,
    /// Its workers.
    pub workers: Vec<Process>,
    redis: PrivateRedis,
    database: TestDatabase,
    envs: Vec<(String, String)>,
}

impl ProcessFleet {
    /// So many gateways and workers on a Redis of this kind, all of them ready.
    pub async fn start(kind: RedisKind, gateways: usize, workers: usize) -> Self {
        Self::start_with(kind, gateways, workers, &[]).await
    }

    /// The same with further environment variables for all of them.
    pub async fn start_with(kind: RedisKind, gateways: usize, workers: usize, envs: &[(&str, &str)]) -> Self {
        Self::start_over(PrivateRedis::start_durable(kind).await, TestDatabase::migrated().await, gateways, workers, envs).await
    }

    /// The same on a Redis and a database that are there already.
    pub async fn start_over(redis: PrivateRedis, database: TestDatabase, gateways: usize, workers: usize, envs: &[(&str, &str)]) -> Self {
        let envs = envs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut fleet = Self { gateways: Vec::new(), workers: Vec::new(), redis, database, envs };
        for _ in 0..gateways {
            fleet.add_gateway();
        }
        for _ in 0..workers {
            fleet.add_worker();
        }
        for process in fleet.gateways.iter_mut().chain(&mut fleet.workers) {
            process.wait_ready().await;
        }
        fleet
    }

    /// One more gateway, which is starting; its number.
    pub fn add_gateway(&mut self) -> usize {
        self.gateways.push(self.spawn("serve"));
        self.gateways.len() - 1
    }

    /// One more worker, which is starting; its number.
    pub fn add_worker(&mut self) -> usize {
        self.workers.push(self.spawn("work"));
        self.workers.len() - 1
    }

    fn spawn(&self, word: &str) -> Process {
        let envs: Vec<(&str, &str)> = self.envs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Process::start(&[word], &self.redis.url(), self.database.url(), &envs)
    }

    /// A user at a gateway; numbers beyond the last begin again at the first.
    pub fn client(&self, number: usize, user: &User) -> Client {
        Client::new(self.gateways[number % self.gateways.len()].url(), user)
    }

    /// Its Redis, to kill and to halt nodes of it.
    pub fn redis(&mut self) -> &mut PrivateRedis {
        &mut self.redis
    }

    /// Its database.
    pub fn database(&self) -> &TestDatabase {
        &self.database
    }
}

impl MadeOn for ProcessFleet {
    /// Two gateways and two workers, so that each has who takes over.
    async fn made_on(kind: RedisKind) -> Self {
        Self::start(kind, 2, 2).await
    }
}
