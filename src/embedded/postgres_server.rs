//! One private Postgres server: made once by `initdb`, loopback only, no Unix socket, a random password kept in its folder.
//!
//! Postgres refuses to run as root; root starts it as the user `postgres`. The folders above its own may be closed to that user (`/root`
//! usually is), so it reaches its folder through an open descriptor, `/proc/self/fd/9`, which the shell that starts it opens.

use std::ffi::OsString;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::folder::{make_private_folder, random_word, write_private};
use super::process::{Guarded, GuardedCommand, group_of};
use super::{EmbeddedError, free_port, programs};

/// Recovery after a crash may take a while.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// How often it is asked.
const LOOK: Duration = Duration::from_millis(30);
/// Ports tried when another process was quicker.
const PORTS_TRIED: usize = 10;
/// Opens the current folder as descriptor 9 and runs the rest from a folder that everybody may enter.
const THROUGH_DESCRIPTOR: &str = "exec 9<.; cd /; exec \"$@\"";
const DESCRIPTOR: &str = "/proc/self/fd/9";

/// How a private Postgres is set up.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    /// Its port; a free one when `None`.
    pub port: Option<u16>,
    /// Whether it may lose everything in a crash, ends at once and its folder is removed when we end: for tests.
    pub throw_away: bool,
    /// Most connections at a time; 100 when `None`.
    pub connections: Option<u32>,
    /// More settings, e.g. `("log_statement", "all")`; they win.
    pub more: Vec<(String, String)>,
    /// Environment variables for it, e.g. a library that is to be loaded first.
    pub envs: Vec<(String, String)>,
}

/// A running private Postgres. Dropping it stops it in the background.
#[derive(Debug)]
pub struct PostgresServer {
    port: u16,
    password: String,
    process: Guarded,
}

impl PostgresServer {
    /// Starts one in `folder`, making folder and database cluster if they are not there, and waits until it serves.
    ///
    /// # Errors
    /// When the programs are missing or too old, or the server does not come up; the end of its log is in the error.
    pub async fn start(folder: &Path, options: &PostgresOptions) -> Result<Self, EmbeddedError> {
        make_private_folder(folder)?;
        let cluster = folder.join("cluster");
        let user = programs::postgres_user(&cluster)?;
        let made_by = fs::read_to_string(cluster.join("PG_VERSION")).ok().and_then(|text| text.trim().parse().ok());
        let found = programs::postgres(made_by)?;
        if let Some(user) = user {
            std::os::unix::fs::chown(folder, Some(user), None)
                .map_err(EmbeddedError::io(format!("handing {} to postgres", folder.display())))?;
        }
        if made_by.is_none() {
            make_cluster(folder, &found.initdb, user)?;
        }
        let password_path = folder.join("password");
        let password = fs::read_to_string(&password_path).map_err(EmbeddedError::io(format!("reading {}", password_path.display())))?;
        let mut tries = PORTS_TRIED;
        loop {
            tries -= 1;
            let port = options.port.map_or_else(free_port, Ok)?;
            let process = spawn(folder, &found.postgres, user, port, options)?;
            let mut server = Self { port, password: password.trim().to_owned(), process };
            match server.wait_ready().await {
                // Between the look for a free port and its use another process can take it.
                Err(EmbeddedError::NotReady { log, .. })
                    if tries > 0 && options.port.is_none() && log.contains("could not create any TCP/IP") => {}
                Err(error) => return Err(error),
                Ok(()) => return Ok(server),
            }
        }
    }

    /// Waits until it lets clients in.
    ///
    /// # Errors
    /// When it ends or stays silent; the end of its log is in the error.
    pub async fn wait_ready(&mut self) -> Result<(), EmbeddedError> {
        let begun = Instant::now();
        loop {
            if asks_for_password(self.port).await.unwrap_or(false) && self.process.ended().is_none() {
                return Ok(());
            }
            let ended = self.process.ended();
            if ended.is_some() || begun.elapsed() > READY_WITHIN {
                let why = ended.map_or("did not answer in time".into(), |status| format!("ended ({status})"));
                return Err(EmbeddedError::NotReady { server: "postgres", why, log: self.process.log_tail() });
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `postgres://…` of one of its databases, with the password in it. The database `postgres` always exists.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres:{}@127.0.0.1:{}/{database}?sslmode=disable", self.password, self.port)
    }

    /// The process, to halt (`STOP`), wake (`CONT`) or kill it.
    pub fn process(&mut self) -> &mut Guarded {
        &mut self.process
    }

    /// Starts it again on the same port and folder, and waits until it serves.
    ///
    /// # Errors
    /// As [`PostgresServer::start`].
    pub async fn start_again(&mut self) -> Result<(), EmbeddedError> {
        self.process.start_again()?;
        self.wait_ready().await
    }

    /// Stops it cleanly ("fast": sessions are ended, everything committed is on disk).
    pub async fn stop(&mut self) {
        self.process.stop().await;
    }
}

/// Runs `initdb`. It works in a folder aside, so that one that was killed in the middle leaves nothing that looks finished.
fn make_cluster(folder: &Path, initdb: &Path, user: Option<u32>) -> Result<(), EmbeddedError> {
    let (password, fresh, cluster) = (folder.join("password"), folder.join("cluster.new"), folder.join("cluster"));
    write_private(&password, &random_word(32))?;
    if let Some(user) = user {
        std::os::unix::fs::chown(&password, Some(user), None).map_err(EmbeddedError::io("handing a file to postgres"))?;
    }
    if fresh.exists() {
        fs::remove_dir_all(&fresh).map_err(EmbeddedError::io(format!("removing {}", fresh.display())))?;
    }
    let mut command = match user {
        Some(user) => {
            let mut setpriv = Command::new("setpriv");
            setpriv.args([format!("--reuid={user}"), format!("--regid={}", group_of(user)), "--clear-groups".into(), "sh".into()]);
            setpriv
        }
        None => Command::new("sh"),
    };
    command.args(["-c", THROUGH_DESCRIPTOR, "sh"]).arg(initdb);
    command.arg(format!("--pgdata={DESCRIPTOR}/cluster.new")).arg(format!("--pwfile={DESCRIPTOR}/password"));
    command.args(["--username=postgres", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"]);
    let output = command.current_dir(folder).stdin(std::process::Stdio::null()).output().map_err(EmbeddedError::io("starting initdb"))?;
    if !output.status.success() {
        let log = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        return Err(EmbeddedError::NotReady { server: "initdb", why: format!("ended ({})", output.status), log });
    }
    // A cluster folder without PG_VERSION is the rest of something else; an empty one may be replaced.
    let _ = fs::remove_dir(&cluster);
    fs::rename(&fresh, &cluster).map_err(EmbeddedError::io(format!("naming {}", cluster.display())))
}

fn spawn(folder: &Path, program: &Path, user: Option<u32>, port: u16, options: &PostgresOptions) -> Result<Guarded, EmbeddedError> {
    let mut settings: Vec<(String, String)> = vec![
        ("listen_addresses".into(), "127.0.0.1".into()),
        ("port".into(), port.to_string()),
        ("unix_socket_directories".into(), String::new()),
        ("max_connections".into(), options.connections.unwrap_or(100).to_string()),
    ];
    if options.throw_away {
        for name in ["fsync", "synchronous_commit", "full_page_writes", "autovacuum"] {
            settings.push((name.into(), "off".into()));
        }
    }
    settings.extend(options.more.iter().cloned());
    let mut args: Vec<OsString> = vec!["-c".into(), THROUGH_DESCRIPTOR.into(), "sh".into(), program.into(), "-D".into(), DESCRIPTOR.into()];
    for (name, value) in settings {
        args.extend(["-c".into(), format!("{name}={value}").into()]);
    }
    let cluster = folder.join("cluster");
    Guarded::start(GuardedCommand {
        name: "postgres",
        folder: cluster.clone(),
        program: PathBuf::from("sh"),
        args,
        envs: options.envs.clone(),
        user,
        stop_signal: if options.throw_away { "QUIT" } else { "INT" },
        stop_within: Duration::from_secs(30),
        // Postgres would take any process that has meanwhile got the number in it for a living server.
        stale_files: vec!["postmaster.pid"],
        remove_folder: options.throw_away.then(|| folder.to_owned()),
    })
}

/// Whether a client that names itself is asked to prove it, which a server that is still starting does not do.
async fn asks_for_password(port: u16) -> std::io::Result<bool> {
    let body = b"user\0postgres\0database\0postgres\0\0";
    let length = u32::try_from(body.len() + 8).unwrap_or(0);
    // Length of the whole, protocol 3.0, then names and values.
    let mut hello = length.to_be_bytes().to_vec();
    hello.extend_from_slice(&196_608_u32.to_be_bytes());
    hello.extend_from_slice(body);
    let ask = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(&hello).await?;
        stream.read_u8().await
    };
    let first = tokio::time::timeout(Duration::from_secs(5), ask).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))?;
    Ok(first == b'R')
}
