//! Gateways and workers as processes of their own, to be killed with -9, halted and asked for their metrics. They end with the test.

use std::fs;
use std::time::Duration;

use seqline::embedded::{Guarded, GuardedCommand, TempFolder, free_port};

use super::user::SECRET;
use super::wait::eventually;

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
