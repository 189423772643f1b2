//! Where the servers' programs are, and whether they are new enough.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::EmbeddedError;

/// Scripts with flags and `CLUSTER ADDSLOTSRANGE` came with Redis 7.
const REDIS_MAJOR_MIN: u32 = 7;
/// The oldest Postgres that the archive is tested with.
const POSTGRES_MAJOR_MIN: u32 = 14;
/// Debian and Ubuntu keep `postgres` and `initdb` off the PATH, one folder per version.
const DEBIAN_POSTGRES: &str = "/usr/lib/postgresql";

/// The programs of one Postgres version.
#[derive(Clone, Debug)]
pub(super) struct PostgresPrograms {
    pub postgres: PathBuf,
    pub initdb: PathBuf,
}

/// `redis-server` (or Valkey's) from the PATH.
pub(super) fn redis_server() -> Result<PathBuf, EmbeddedError> {
    for name in ["redis-server", "valkey-server"] {
        // "Redis server v=7.0.15 sha=…"
        let Some(said) = ask_version(Path::new(name)) else { continue };
        let found = said.split("v=").nth(1).map_or(0, leading_number);
        if found < REDIS_MAJOR_MIN {
            return Err(EmbeddedError::TooOld { program: name.into(), found, needed: REDIS_MAJOR_MIN });
        }
        return Ok(name.into());
    }
    Err(EmbeddedError::Missing { program: "redis-server", package: "redis-server" })
}

/// The Postgres of version `major` if a data folder asks for one, else the newest one installed.
pub(super) fn postgres(major: Option<u32>) -> Result<PostgresPrograms, EmbeddedError> {
    let mut found: Vec<(u32, PostgresPrograms)> = Vec::new();
    for entry in std::fs::read_dir(DEBIAN_POSTGRES).into_iter().flatten().flatten() {
        let bin = entry.path().join("bin");
        let programs = PostgresPrograms { postgres: bin.join("postgres"), initdb: bin.join("initdb") };
        if programs.postgres.is_file() && programs.initdb.is_file() {
            found.push((leading_number(&entry.file_name().to_string_lossy()), programs));
        }
    }
    // "postgres (PostgreSQL) 15.18 (Debian …)"
    let on_path = PostgresPrograms { postgres: "postgres".into(), initdb: "initdb".into() };
    if let (Some(said), Some(_)) = (ask_version(&on_path.postgres), ask_version(&on_path.initdb)) {
        found.push((said.split(") ").nth(1).map_or(0, leading_number), on_path));
    }
    if let Some(major) = major {
        let fitting = found.into_iter().find(|(version, _)| *version == major);
        return fitting
            .map(|(_, programs)| programs)
            .ok_or(EmbeddedError::Missing { program: "the version of postgres that made this data folder", package: "postgresql" });
    }
    let Some((version, programs)) = found.into_iter().max_by_key(|(version, _)| *version) else {
        return Err(EmbeddedError::Missing { program: "postgres", package: "postgresql" });
    };
    if version < POSTGRES_MAJOR_MIN {
        return Err(EmbeddedError::TooOld { program: "postgres".into(), found: version, needed: POSTGRES_MAJOR_MIN });
    }
    Ok(programs)
}

/// Name or number of the user that may run Postgres, which refuses to run as root; `None` when we are not root.
///
/// A folder made before keeps its owner.
pub(super) fn postgres_user(cluster: &Path) -> Result<Option<u32>, EmbeddedError> {
    use std::os::unix::fs::MetadataExt as _;
    if own_user()? != 0 {
        return Ok(None);
    }
    if let Ok(made) = std::fs::metadata(cluster)
        && made.uid() != 0
    {
        return Ok(Some(made.uid()));
    }
    let said = ask(Command::new("id").args(["-u", "postgres"]));
    let user = said.and_then(|text| text.trim().parse::<u32>().ok()).filter(|user| *user != 0);
    user.map(Some).ok_or(EmbeddedError::Missing { program: "the user postgres, as which Postgres runs for root,", package: "postgresql" })
}

/// The user that owns this process.
fn own_user() -> Result<u32, EmbeddedError> {
    let said = ask(Command::new("id").arg("-u"));
    said.and_then(|text| text.trim().parse().ok()).ok_or(EmbeddedError::Missing { program: "id", package: "coreutils" })
}

fn ask_version(program: &Path) -> Option<String> {
    ask(Command::new(program).arg("--version"))
}

fn ask(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

fn leading_number(text: &str) -> u32 {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}
