//! What a killed run left behind. The lock of a server's log says whether anything of that server still lives; what does is found by its
//! current folder (each server stays in its own), asked to stop, and after a while killed. Nothing outside that folder is ever touched.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::EmbeddedError;
use super::process::{GuardedCommand, send_signal};

/// The shell of a killed run is stopping its server already: it gets this long before we do it again.
const OWN_STOP: Duration = Duration::from_secs(3);
/// Then the server gets this long before it is killed.
const ASKED_STOP: Duration = Duration::from_secs(20);
/// Then the kernel gets this long to take it away.
const KILLED: Duration = Duration::from_secs(5);
/// How often we look.
const LOOK: Duration = Duration::from_millis(50);
/// A log is begun anew at a start when it has grown beyond this.
const LOG_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Waits until nothing of an earlier run lives in this folder any more, and ends what does not end by itself; so its port is free again.
/// A folder that is not there yet is clear.
///
/// # Errors
/// When something in it does not end.
pub fn clear(folder: &Path, stop_signal: &'static str) -> Result<(), EmbeddedError> {
    if folder.join("server.log").exists() { take_lock(folder, "server", stop_signal).map(drop) } else { Ok(()) }
}

/// Opens the log of a server and takes its lock, ending leftovers of an earlier run first.
pub(super) fn lock_log(command: &GuardedCommand) -> Result<File, EmbeddedError> {
    take_lock(&command.folder, command.name, command.stop_signal)
}

fn take_lock(folder: &Path, name: &str, stop_signal: &'static str) -> Result<File, EmbeddedError> {
    let path = folder.join("server.log");
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    let log = opened.map_err(EmbeddedError::io(format!("opening {}", path.display())))?;
    for (wait, signal) in [(OWN_STOP, Some(stop_signal)), (ASKED_STOP, Some("KILL")), (KILLED, None)] {
        if wait_for_lock(&log, wait) {
            if log.metadata().is_ok_and(|found| found.len() > LOG_BYTES_MAX) {
                let _ = log.set_len(0);
            }
            return Ok(log);
        }
        if let Some(signal) = signal {
            processes_in(folder).into_iter().for_each(|pid| send_signal(signal, pid));
        }
    }
    let folder = folder.display().to_string();
    Err(EmbeddedError::InUse { folder, why: format!("a {name} of an earlier run does not end") })
}

fn wait_for_lock(log: &File, longest: Duration) -> bool {
    let begun = Instant::now();
    loop {
        if log.try_lock().is_ok() {
            return true;
        }
        if begun.elapsed() > longest {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

/// Processes whose current folder is this one or below it (Linux; elsewhere none is found).
fn processes_in(folder: &Path) -> Vec<u32> {
    let Ok(folder) = folder.canonicalize() else { return Vec::new() };
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        if let (Some(pid), Ok(current)) = (pid, fs::read_link(entry.path().join("cwd")))
            && current.starts_with(&folder)
            && pid != std::process::id()
            && is_server(&entry.path())
        {
            found.push(pid);
        }
    }
    found
}

/// A person's shell or editor may stand in the folder too: only servers are ended.
fn is_server(process: &Path) -> bool {
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    ["redis-server", "valkey-server", "postgres", "seqline"].iter().any(|server| name.trim().starts_with(server))
}
