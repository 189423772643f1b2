//! A system of the run's own for `--embedded`: Redis, Postgres, two gateways and a worker as processes, on scratch data that goes with the run.
//!
//! Processes and not tasks, so that what is measured is a gateway's memory and not the load generator's. However the run ends, none stays behind
//! (see [`crate::embedded`]).

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::LoadError;
use super::args::LoadArgs;
use crate::embedded::{
    EmbeddedError, Guarded, GuardedCommand, PostgresOptions, PostgresServer, RedisOptions, RedisServer, TempFolder, free_port, random_word,
};

/// Gateways that are started.
const GATEWAYS: usize = 2;
/// How long a gateway or the worker may take until it is ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long one of them may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(15);

/// The running system.
pub struct OwnSystem {
    /// Gateways.
    pub urls: Vec<String>,
    /// What signs tokens.
    pub secret: String,
    processes: Vec<Guarded>,
    redis: RedisServer,
    postgres: PostgresServer,
    /// Removed last.
    folder: TempFolder,
}

impl OwnSystem {
    /// Starts everything and waits until it is ready.
    ///
    /// # Errors
    /// [`LoadError::Setup`] when something does not come up, with the end of its log.
    pub async fn start(args: &LoadArgs) -> Result<Self, LoadError> {
        eprintln!("Starting Redis, Postgres, two gateways and a worker on scratch data ...");
        let failed = |error: EmbeddedError| LoadError::Setup(error.to_string());
        let folder = TempFolder::new("load").map_err(failed)?;
        // As in production: what is acknowledged is written. Only the folder is for one run.
        let (redis_folder, redis_options) = (folder.path().join("redis"), RedisOptions { append_only: true, ..RedisOptions::default() });
        let (postgres_folder, postgres_options) = (folder.path().join("postgres"), PostgresOptions::default());
        let (redis, postgres) =
            tokio::try_join!(RedisServer::start(&redis_folder, &redis_options), PostgresServer::start(&postgres_folder, &postgres_options))
                .map_err(failed)?;
        let mut system = Self { urls: Vec::new(), secret: random_word(64), processes: Vec::new(), redis, postgres, folder };
        if let Err(err) = system.start_processes(args).await {
            system.stop().await;
            return Err(err);
        }
        Ok(system)
    }

    async fn start_processes(&mut self, args: &LoadArgs) -> Result<(), LoadError> {
        let program = std::env::current_exe().map_err(|err| LoadError::Setup(format!("cannot find this program: {err}")))?;
        let database = self.postgres.url("postgres");
        let migrated = tokio::process::Command::new(&program)
            .arg("migrate")
            .env("SEQLINE_DATABASE_URL", &database)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .await
            .map_err(|err| LoadError::Setup(format!("cannot make the tables: {err}")))?;
        if !migrated.status.success() {
            return Err(LoadError::Setup(format!("cannot make the tables: {}", String::from_utf8_lossy(&migrated.stderr).trim())));
        }
        let mut admin_urls = Vec::new();
        for place in 0..=GATEWAYS {
            let word = if place < GATEWAYS { "serve" } else { "work" };
            let port = || free_port().map_err(|error| LoadError::Setup(error.to_string()));
            let (listen, admin) = (format!("127.0.0.1:{}", port()?), format!("127.0.0.1:{}", port()?));
            if place < GATEWAYS {
                self.urls.push(format!("http://{listen}"));
            }
            admin_urls.push(format!("http://{admin}/readyz"));
            let folder = self.folder.path().join(format!("{word}-{place}"));
            self.processes.push(self.start_process(args, &program, word, folder, listen, admin, &database)?);
        }
        for (place, url) in admin_urls.iter().enumerate() {
            self.wait_ready(place, url).await?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "each is a different thing, and this is their one use")]
    fn start_process(
        &self,
        args: &LoadArgs,
        program: &std::path::Path,
        word: &str,
        folder: PathBuf,
        listen: String,
        admin: String,
        database: &str,
    ) -> Result<Guarded, LoadError> {
        std::fs::create_dir_all(&folder).map_err(|err| LoadError::Setup(format!("{}: {err}", folder.display())))?;
        // Our own environment is theirs too; what would let them read other tokens than ours is emptied.
        let envs = [
            ("SEQLINE_LISTEN", listen),
            ("SEQLINE_ADMIN_LISTEN", admin),
            ("SEQLINE_REDIS_URL", self.redis.url()),
            ("SEQLINE_DATABASE_URL", database.to_owned()),
            ("SEQLINE_JWT_HS256_SECRETS", self.secret.clone()),
            ("SEQLINE_JWT_JWKS", String::new()),
            ("SEQLINE_JWT_ISSUER", args.issuer.clone().unwrap_or_default()),
            ("SEQLINE_JWT_AUDIENCE", args.audience.clone().unwrap_or_default()),
            ("SEQLINE_LOG", "warn".to_owned()),
            ("SEQLINE_DRAIN_MS", "5000".to_owned()),
        ];
        Guarded::start(GuardedCommand {
            name: "seqline",
            folder,
            program: program.to_owned(),
            args: vec![word.into()],
            envs: envs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            user: None,
            stop_signal: "TERM",
            stop_within: STOP_WITHIN,
            stale_files: Vec::new(),
            remove_folder: None,
        })
        .map_err(|error| LoadError::Setup(error.to_string()))
    }

    async fn wait_ready(&mut self, place: usize, url: &str) -> Result<(), LoadError> {
        let until = Instant::now() + READY_WITHIN;
        loop {
            if reqwest::get(url).await.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            let process = &mut self.processes[place];
            if process.ended().is_some() || Instant::now() > until {
                return Err(LoadError::Setup(format!(
                    "a seqline process is not ready\n--- the end of its log ---\n{}",
                    process.log_tail()
                )));
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Process ids of the gateways.
    #[must_use]
    pub fn gateway_pids(&self) -> Vec<u32> {
        self.processes.iter().take(GATEWAYS).filter_map(Guarded::pid).collect()
    }

    /// Stops everything, from the outside in, and removes its data.
    pub async fn stop(mut self) {
        for process in &mut self.processes {
            process.stop().await;
        }
        tokio::join!(self.redis.stop(), self.postgres.stop());
    }
}
