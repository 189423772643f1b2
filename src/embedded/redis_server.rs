//! One private Redis server: append-only file flushed every second, nothing evicted, a random password, loopback only.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::folder::{make_private_folder, random_word, write_private};
use super::process::{Guarded, GuardedCommand};
use super::redis_wire::{Wire, WireReply};
use super::{EmbeddedError, free_port, programs};

/// A server with a large file may take a while to load it.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How often it is asked.
const LOOK: Duration = Duration::from_millis(20);
/// Ports tried when another process was quicker.
const PORTS_TRIED: usize = 10;

/// How a private Redis is set up.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    /// Its port; a free one when `None`.
    pub port: Option<u16>,
    /// Its password; a random one when `None`.
    pub password: Option<String>,
    /// Whether it keeps an append-only file, so that its data outlive it.
    pub append_only: bool,
    /// Whether it ends by `kill -9` and its folder is removed when we end: for tests.
    pub throw_away: bool,
    /// Whether it is a node of a Cluster.
    pub cluster: bool,
    /// The port of the server it is a replica of; both must have the same password.
    pub replica_of: Option<u16>,
    /// More lines of configuration, e.g. `("maxmemory", "10mb")`; they win.
    pub more: Vec<(String, String)>,
    /// Environment variables for it, e.g. a library that is to be loaded first.
    pub envs: Vec<(String, String)>,
}

/// A running private Redis. Dropping it stops it in the background.
#[derive(Debug)]
pub struct RedisServer {
    port: u16,
    bus_port: u16,
    password: String,
    process: Guarded,
}

impl RedisServer {
    /// Starts one in `folder` (which is made) and waits until it serves.
    ///
    /// # Errors
    /// When the program is missing or too old, or the server does not come up; the end of its log is in the error.
    pub async fn start(folder: &Path, options: &RedisOptions) -> Result<Self, EmbeddedError> {
        let program = programs::redis_server()?;
        make_private_folder(folder)?;
        let mut tries = PORTS_TRIED;
        loop {
            tries -= 1;
            let mut server = Self::spawn(folder, &program, options)?;
            match server.wait_ready().await {
                // Between the look for a free port and its use another process can take it.
                Err(EmbeddedError::NotReady { log, .. })
                    if tries > 0 && options.port.is_none() && log.contains("Address already in use") => {}
                Err(error) => return Err(error),
                Ok(()) => return Ok(server),
            }
        }
    }

    fn spawn(folder: &Path, program: &Path, options: &RedisOptions) -> Result<Self, EmbeddedError> {
        let port = options.port.map_or_else(free_port, Ok)?;
        let bus_port = if options.cluster { free_port()? } else { 0 };
        let password = options.password.clone().unwrap_or_else(|| random_word(32));
        // The password is in a file of ours, not among the arguments, which every user of the machine can list.
        write_private(&folder.join("redis.conf"), &configuration(options, port, bus_port, &password))?;
        let process = Guarded::start(GuardedCommand {
            name: "redis-server",
            folder: folder.to_owned(),
            program: program.to_owned(),
            args: vec!["redis.conf".into()],
            envs: options.envs.clone(),
            user: None,
            stop_signal: if options.throw_away { "KILL" } else { "TERM" },
            stop_within: Duration::from_secs(20),
            stale_files: Vec::new(),
            remove_folder: options.throw_away.then(|| folder.to_owned()),
        })?;
        Ok(Self { port, bus_port, password, process })
    }

    /// Waits until it answers with its data loaded.
    ///
    /// # Errors
    /// When it ends or stays silent; the end of its log is in the error.
    pub async fn wait_ready(&mut self) -> Result<(), EmbeddedError> {
        let begun = Instant::now();
        loop {
            if let Ok(mut wire) = self.wire().await
                && let Ok(WireReply::Text(pong)) = wire.command(&["PING"]).await
                && pong == "PONG"
            {
                return Ok(());
            }
            let ended = self.process.ended();
            if ended.is_some() || begun.elapsed() > READY_WITHIN {
                let why = ended.map_or("did not answer in time".into(), |status| format!("ended ({status})"));
                return Err(EmbeddedError::NotReady { server: "redis-server", why, log: self.process.log_tail() });
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port on which nodes of a Cluster talk to each other; 0 outside one.
    #[must_use]
    pub fn bus_port(&self) -> u16 {
        self.bus_port
    }

    /// Its password.
    #[must_use]
    pub fn password(&self) -> &str {
        &self.password
    }

    /// `redis://…` with the password in it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://:{}@127.0.0.1:{}", self.password, self.port)
    }

    /// A connection of one's own to it.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn wire(&self) -> Result<Wire, EmbeddedError> {
        Wire::connect(self.port, &self.password).await
    }

    /// The process, to halt (`STOP`), wake (`CONT`) or kill it.
    pub fn process(&mut self) -> &mut Guarded {
        &mut self.process
    }

    /// Where its log is.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.process.log_path()
    }

    /// Starts it again on the same port and folder, and waits until it serves.
    ///
    /// # Errors
    /// As [`RedisServer::start`].
    pub async fn start_again(&mut self) -> Result<(), EmbeddedError> {
        self.process.start_again()?;
        self.wait_ready().await
    }

    /// Stops it cleanly: everything it accepted is in its file afterwards.
    pub async fn stop(&mut self) {
        self.process.stop().await;
    }
}

fn configuration(options: &RedisOptions, port: u16, bus_port: u16, password: &str) -> String {
    let yes_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: String| lines.push((name.into(), value));
    add("bind", "127.0.0.1".into());
    add("port", port.to_string());
    add("requirepass", password.into());
    add("masterauth", password.into());
    add("daemonize", "no".into());
    add("dir", ".".into());
    add("save", "\"\"".into());
    add("appendonly", yes_no(options.append_only));
    add("appendfsync", "everysec".into());
    add("maxmemory-policy", "noeviction".into());
    add("always-show-logo", "no".into());
    if options.cluster {
        add("cluster-enabled", "yes".into());
        add("cluster-port", bus_port.to_string());
        add("cluster-config-file", "nodes.conf".into());
        add("cluster-node-timeout", "2000".into());
        // A shard whose master is away must not take the healthy ones with it.
        add("cluster-require-full-coverage", "no".into());
    }
    if let Some(master) = options.replica_of {
        add("replicaof", format!("127.0.0.1 {master}"));
        add("repl-diskless-sync-delay", "0".into());
    }
    options.more.iter().for_each(|(name, value)| add(name, value.clone()));
    lines.iter().map(|(name, value)| format!("{name} {value}\n")).collect()
}
