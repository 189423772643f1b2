//! A clock of the stores' own: servers that are started with it take the time from it, and a test steps it under their feet.

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::process::Command;

use seqline::embedded::TempFolder;

/// How it is done; built with the compiler that links this test.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/harness/store_clock.c");

/// The time of day of whoever was started with [`StoreClock::envs`]; that of the machine until it is stepped.
pub struct StoreClock {
    file: File,
    folder: TempFolder,
}

impl StoreClock {
    /// Makes one.
    pub fn new() -> Self {
        let folder = TempFolder::new("test-clock").unwrap();
        let library = folder.path().join("store_clock.so");
        let built =
            Command::new("cc").args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]).arg(&library).arg(SOURCE).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let file = File::create(folder.path().join("offset")).unwrap();
        file.write_all_at(&0_i64.to_ne_bytes(), 0).unwrap();
        // Postgres runs as a user of its own where the test runs as root.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        Self { file, folder }
    }

    /// The environment of a server that is to go by it.
    pub fn envs(&self) -> Vec<(String, String)> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        vec![("LD_PRELOAD".to_owned(), path("store_clock.so")), ("STORE_CLOCK".to_owned(), path("offset"))]
    }

    /// From now on it shows this many seconds more than the machine's, or less.
    pub fn step(&self, seconds: i64) {
        self.file.write_all_at(&(seconds * 1_000).to_ne_bytes(), 0).unwrap();
    }
}
