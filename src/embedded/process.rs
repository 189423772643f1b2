//! Child processes that never outlive us. Each runs below a small shell (`keep_server.sh`) that waits on a pipe held by us: when we end,
//! even by `kill -9`, the kernel closes the pipe and the shell stops the server. (The kernel's own death signal is bound to the thread that
//! started a child, and threads of a runtime come and go.) They are a process group of their own, so that Ctrl-C at a terminal
//! reaches us alone and we stop them in the right order.
//!
//! The server's log file is locked, and whoever inherited it holds that lock: it is free exactly when nothing of the server lives any more.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::EmbeddedError;
use super::leftover::lock_log;

const KEEP_SERVER: &str = include_str!("keep_server.sh");
/// How often an ending process is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// What the shell gets beyond the server's own time to stop.
const SHELL_GRACE: Duration = Duration::from_secs(5);
/// Bytes at the end of a log that are shown.
const TAIL_BYTES: u64 = 3_000;

/// What to run, and how to stop it.
#[derive(Clone, Debug)]
pub struct GuardedCommand {
    /// What it is called in messages.
    pub name: &'static str,
    /// The folder it runs in; its log is `server.log` there, its process id `server.pid`.
    pub folder: PathBuf,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Environment variables set for it beside our own.
    pub envs: Vec<(String, String)>,
    /// The user it runs as, if not ours.
    pub user: Option<u32>,
    /// The signal that stops it cleanly, e.g. `TERM`.
    pub stop_signal: &'static str,
    /// How long it may take to stop before it is killed.
    pub stop_within: Duration,
    /// Files in its folder that only a run before can have left, removed before it starts.
    pub stale_files: Vec<&'static str>,
    /// A folder that is removed after a stop.
    pub remove_folder: Option<PathBuf>,
}

/// A running child. Dropping it stops the child in the background; [`Guarded::stop`] waits for the end.
#[derive(Debug)]
pub struct Guarded {
    command: GuardedCommand,
    child: Option<Child>,
    pipe: Option<ChildStdin>,
}

impl Guarded {
    /// Clears what an earlier run left in the folder and starts the child.
    ///
    /// # Errors
    /// When the folder is in use and cannot be cleared, or the shell cannot be started.
    pub fn start(command: GuardedCommand) -> Result<Self, EmbeddedError> {
        let log = lock_log(&command)?;
        for stale in command.stale_files.iter().chain(&["server.pid"]) {
            let _ = fs::remove_file(command.folder.join(stale));
        }
        let mut shell = match command.user {
            // Not `Command::uid`: it changes the user before the folder, and the folders above may be closed to that user.
            Some(user) => {
                let mut setpriv = Command::new("setpriv");
                setpriv.arg(format!("--reuid={user}")).arg(format!("--regid={}", group_of(user))).arg("--clear-groups").arg("sh");
                setpriv
            }
            None => Command::new("sh"),
        };
        let tenths = (command.stop_within.as_millis() / 100).max(1);
        // Without its comments, for the eyes of who lists processes.
        let script: String = KEEP_SERVER.split_inclusive('\n').filter(|line| !line.trim_start().starts_with('#')).collect();
        shell.args(["-c", &script, command.name, command.stop_signal]).arg(tenths.to_string());
        shell.arg(command.remove_folder.as_deref().unwrap_or(Path::new("")));
        shell.arg(&command.program).args(&command.args).current_dir(&command.folder).process_group(0);
        shell.envs(command.envs.iter().map(|(name, value)| (name, value)));
        let log_again = log.try_clone().map_err(EmbeddedError::io("sharing a log file"))?;
        shell.stdin(Stdio::piped()).stdout(log).stderr(log_again);
        let mut child = shell.spawn().map_err(EmbeddedError::io(format!("starting {}", command.name)))?;
        let pipe = child.stdin.take();
        Ok(Self { command, child: Some(child), pipe })
    }

    /// How it ended, or `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().map_or(Some(ExitStatus::default()), |child| child.try_wait().unwrap_or(Some(ExitStatus::default())))
    }

    /// The server's process id; `None` in its first moment.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        fs::read_to_string(self.command.folder.join("server.pid")).ok()?.trim().parse().ok()
    }

    /// The last lines of the server's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        log_tail(&self.log_path())
    }

    /// Where the server's log is.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.command.folder.join("server.log")
    }

    /// Sends the server a signal, e.g. `KILL`, `STOP`, `CONT`. Nothing happens when it has ended.
    pub fn signal(&mut self, signal: &str) {
        if self.ended().is_none()
            && let Some(pid) = self.pid()
        {
            send_signal(signal, pid);
        }
    }

    /// Kills the server as `kill -9` does and waits until it is gone.
    pub async fn kill(&mut self) {
        self.signal("KILL");
        self.wait(SHELL_GRACE).await;
    }

    /// Stops the server cleanly and waits until it is gone; it is killed when it takes longer than it may.
    pub async fn stop(&mut self) {
        self.pipe = None;
        self.wait(self.command.stop_within + SHELL_GRACE).await;
    }

    /// Starts the same command again, after it was stopped, killed or ended by itself.
    ///
    /// # Errors
    /// As [`Guarded::start`].
    pub fn start_again(&mut self) -> Result<(), EmbeddedError> {
        *self = Self::start(self.command.clone())?;
        Ok(())
    }

    async fn wait(&mut self, longest: Duration) {
        let begun = Instant::now();
        let mut killed = false;
        while self.ended().is_none() && begun.elapsed() < longest + SHELL_GRACE {
            if begun.elapsed() > longest && !killed {
                self.signal("KILL");
                killed = true;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.pipe = None;
        if self.ended().is_none()
            && let Some(mut child) = self.child.take()
        {
            // Only to collect its exit status; when we end before, the system's first process does.
            std::thread::spawn(move || child.wait());
        }
    }
}

/// Sends a signal by process id. By the shell's own `kill`, because a bare system need not have the program.
pub(super) fn send_signal(signal: &str, pid: u32) {
    let _ = Command::new("sh").args(["-c", "kill -s \"$1\" \"$2\" 2>/dev/null", "sh", signal]).arg(pid.to_string()).status();
}

/// The last lines of a log file, or a word that there is none.
pub(super) fn log_tail(path: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    };
    read().unwrap_or_else(|error| format!("(no log: {error})"))
}

/// The main group of a user.
pub(super) fn group_of(user: u32) -> String {
    let said = Command::new("id").args(["-g", &user.to_string()]).output().ok().filter(|said| said.status.success());
    said.map_or_else(|| user.to_string(), |said| String::from_utf8_lossy(&said.stdout).trim().to_owned())
}
