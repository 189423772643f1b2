//! Between a process and Postgres stands a pooler that hands out a connection for each transaction: the process says so and does not start.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Child, Command, Output, Stdio};

use seqline::embedded::{TempFolder, free_port};
use sqlx::postgres::PgConnectOptions;

use crate::harness::fleet::{PARTITIONS, SHARDS};
use crate::harness::user::SECRET;
use crate::harness::{PATIENCE, PrivateRedis, RedisKind, TestDatabase, eventually};

/// A PgBouncer in transaction mode, killed when dropped.
struct Pooler {
    port: u16,
    child: Child,
    /// Dropped last.
    _folder: TempFolder,
}

impl Pooler {
    /// One before this server. `more` is added to its settings.
    async fn start(database_url: &str, more: &str) -> Self {
        let target: PgConnectOptions = database_url.parse().unwrap();
        let password = url::Url::parse(database_url).unwrap().password().unwrap_or_default().to_owned();
        let folder = TempFolder::new("test-pooler").unwrap();
        let port = free_port().unwrap();
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={} user={} password={password}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             auth_type = any\npool_mode = transaction\nunix_socket_dir =\n{more}\n",
            target.get_port(),
            target.get_username(),
        );
        let path = folder.path().join("pgbouncer.ini");
        std::fs::write(&path, text).unwrap();
        // Debian keeps it out of the path of those who are not root.
        let program = ["/usr/sbin/pgbouncer"].into_iter().find(|path| std::path::Path::new(path).exists()).unwrap_or("pgbouncer");
        let mut command = Command::new(program);
        if std::fs::metadata(folder.path()).unwrap().uid() == 0 {
            // It does not run as root, and reads its settings as somebody else.
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
            command.args(["-u", "nobody"]);
        }
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = command.arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let pooler = Self { port, child, _folder: folder };
        eventually("it listens", PATIENCE, async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()).await;
        pooler
    }

    fn url(&self, database_url: &str) -> String {
        let mut url = url::Url::parse(database_url).unwrap();
        url.set_port(Some(self.port)).unwrap();
        url.into()
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn run(words: &[&str], redis_url: &str, database_url: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seqline"));
    command.env_clear().args(words).env("SEQLINE_REDIS_URL", redis_url).env("SEQLINE_DATABASE_URL", database_url);
    command.env("SEQLINE_JWT_HS256_SECRETS", SECRET).env("SEQLINE_LISTEN", "127.0.0.1:0").env("SEQLINE_ADMIN_LISTEN", "127.0.0.1:0");
    command.env("SEQLINE_SHARDS", SHARDS.to_string()).env("SEQLINE_PARTITIONS", PARTITIONS.to_string());
    let ended = tokio::task::spawn_blocking(move || command.output().unwrap());
    tokio::time::timeout(2 * PATIENCE, ended).await.expect("it ends").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_hands_out_a_connection_for_each_transaction_is_refused() {
    let (redis, database) = (PrivateRedis::start(RedisKind::Single).await, TestDatabase::migrated().await);
    // As it comes, and as somebody sets it who was told that it does not know a parameter.
    for more in ["", "ignore_startup_parameters = options,extra_float_digits"] {
        let pooler = Pooler::start(database.url(), more).await;
        let url = pooler.url(database.url());
        for words in [&["serve"][..], &["work"], &["migrate"], &["doctor"]] {
            let output = run(words, &redis.url(), &url).await;
            let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{words:?} {more}: {said}");
            assert!(said.contains("transaction mode") && said.contains("name Postgres itself"), "{words:?} {more}: {said}");
        }
    }
}
