//! Servers of tests: a fresh Redis for whoever asks, and one Postgres for the whole test process with a fresh database for whoever asks.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use seqline::embedded::{PostgresOptions, PostgresServer, RedisCluster, RedisOptions, RedisServer, TempFolder};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::OnceCell;

use super::wait::eventually;

/// What kind of Redis a test runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisKind {
    /// One server.
    Single,
    /// Three masters.
    Cluster,
}

/// A Redis of a test's own; gone when dropped.
#[derive(Debug)]
pub struct PrivateRedis {
    servers: Servers,
    /// Dropped last.
    _folder: TempFolder,
}

#[derive(Debug)]
enum Servers {
    Single(Box<RedisServer>),
    Cluster(RedisCluster),
    /// Kept by somebody else; only where they are is known.
    Elsewhere(String),
}

impl PrivateRedis {
    /// Starts one that forgets everything when it ends.
    pub async fn start(kind: RedisKind) -> Self {
        Self::start_with(kind, &RedisOptions { throw_away: true, ..RedisOptions::default() }).await
    }

    /// Starts one that keeps an append-only file, so that it can be killed and started again with its data.
    pub async fn start_durable(kind: RedisKind) -> Self {
        Self::start_with(kind, &RedisOptions { throw_away: true, append_only: true, ..RedisOptions::default() }).await
    }

    /// Starts one set up like this.
    pub async fn start_with(kind: RedisKind, options: &RedisOptions) -> Self {
        let folder = TempFolder::new("test-redis").unwrap();
        let servers = match kind {
            RedisKind::Single => Servers::Single(Box::new(RedisServer::start(folder.path(), options).await.unwrap())),
            RedisKind::Cluster => Servers::Cluster(RedisCluster::start(folder.path(), 3, options).await.unwrap()),
        };
        Self { servers, _folder: folder }
    }

    /// Servers that somebody else keeps, at this URL.
    pub fn elsewhere(url: String) -> Self {
        Self { servers: Servers::Elsewhere(url), _folder: TempFolder::new("test-redis").unwrap() }
    }

    /// The URL that the product is given.
    pub fn url(&self) -> String {
        match &self.servers {
            Servers::Elsewhere(url) => url.clone(),
            Servers::Single(server) => server.url(),
            Servers::Cluster(cluster) => cluster.url(),
        }
    }

    /// The kind it is.
    pub fn kind(&self) -> RedisKind {
        match &self.servers {
            Servers::Single(_) | Servers::Elsewhere(_) => RedisKind::Single,
            Servers::Cluster(_) => RedisKind::Cluster,
        }
    }

    /// Its masters, to look into them, to kill and to halt them.
    pub fn nodes(&mut self) -> &mut [RedisServer] {
        match &mut self.servers {
            Servers::Single(server) => std::slice::from_mut(&mut **server),
            Servers::Cluster(cluster) => cluster.nodes_mut(),
            Servers::Elsewhere(_) => &mut [],
        }
    }

    /// Where a single server keeps its files.
    pub fn folder(&self) -> std::path::PathBuf {
        match &self.servers {
            Servers::Single(server) => server.log_path().parent().unwrap().to_owned(),
            Servers::Cluster(_) | Servers::Elsewhere(_) => panic!("there is no one folder"),
        }
    }

    /// Runs one command on every master and gives the answers, e.g. `["SCRIPT", "FLUSH"]`.
    pub async fn on_every_node(&self, words: &[&str]) -> Vec<seqline::embedded::WireReply> {
        let nodes = match &self.servers {
            Servers::Single(server) => std::slice::from_ref(&**server),
            Servers::Cluster(cluster) => cluster.nodes(),
            Servers::Elsewhere(_) => &[],
        };
        let mut answers = Vec::new();
        for node in nodes {
            answers.push(node.wire().await.unwrap().command(words).await.unwrap());
        }
        answers
    }

    /// Every key on every master that matches, sorted.
    pub async fn keys(&self, pattern: &str) -> Vec<String> {
        let answers = self.on_every_node(&["KEYS", pattern]).await;
        let mut keys: Vec<String> =
            answers.iter().flat_map(|answer| answer.items()).filter_map(|key| key.text().map(str::to_owned)).collect();
        keys.sort();
        keys
    }
}

/// The one Postgres of this process, with the migrations applied to the database that others are copied from.
static POSTGRES: OnceCell<PostgresServer> = OnceCell::const_new();
static DATABASES: AtomicU32 = AtomicU32::new(0);
/// Databases whose test is over; the next test that makes one drops them.
static FINISHED: Mutex<Vec<String>> = Mutex::new(Vec::new());
const TEMPLATE: &str = "migrated";

/// A migrated database of a test's own.
#[derive(Debug)]
pub struct TestDatabase {
    name: String,
    url: String,
    /// The server, when it is nobody else's.
    server: Option<PostgresServer>,
}

impl TestDatabase {
    /// Makes one, with the migrations applied.
    pub async fn migrated() -> Self {
        Self::copy_of(TEMPLATE).await
    }

    /// Makes one with nothing in it.
    pub async fn empty() -> Self {
        Self::copy_of("template1").await
    }

    async fn copy_of(template: &str) -> Self {
        let server = POSTGRES.get_or_init(|| start_postgres(Vec::new())).await;
        let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
        let finished = std::mem::take(&mut *FINISHED.lock().unwrap());
        for old in finished {
            run(&mut connection, format!("DROP DATABASE IF EXISTS {old} WITH (FORCE)")).await;
        }
        let name = format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        run(&mut connection, format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
        connection.close().await.unwrap();
        let url = server.url(&name);
        Self { name, url, server: None }
    }

    /// Makes one with the migrations applied on a server of its own, which can be halted and stopped without harm to other tests.
    pub async fn on_own_server() -> Self {
        Self::on_own_server_with(Vec::new()).await
    }

    /// The same on a server with these environment variables.
    pub async fn on_own_server_with(envs: Vec<(String, String)>) -> Self {
        let server = start_postgres(envs).await;
        let url = server.url(TEMPLATE);
        Self { name: TEMPLATE.to_owned(), url, server: Some(server) }
    }

    /// The server of one that was made with [`TestDatabase::on_own_server`].
    pub fn server(&mut self) -> &mut PostgresServer {
        self.server.as_mut().expect("this database is on everybody's server")
    }

    /// The migrated database that is at this URL, on a server that somebody else keeps.
    pub fn elsewhere(url: String) -> Self {
        Self { name: String::new(), url, server: None }
    }

    /// The same database at this URL, for another fleet or through a proxy; this one must outlive it.
    pub fn at(&self, url: impl Into<String>) -> Self {
        Self { name: String::new(), url: url.into(), server: None }
    }

    /// The URL that the product is given.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its name on its server.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A connection of the test's own.
    pub async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        if self.server.is_none() && !self.name.is_empty() {
            FINISHED.lock().unwrap().push(std::mem::take(&mut self.name));
        }
    }
}

async fn start_postgres(envs: Vec<(String, String)>) -> PostgresServer {
    let folder = TempFolder::new("test-postgres").unwrap();
    let options = PostgresOptions { throw_away: true, connections: Some(400), envs, ..PostgresOptions::default() };
    let server = PostgresServer::start(folder.path(), &options).await.unwrap();
    // The folder is removed by the shell that keeps the server: what is static is never dropped.
    std::mem::forget(folder);
    make_template(&server).await;
    server
}

async fn make_template(server: &PostgresServer) {
    let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
    run(&mut connection, format!("CREATE DATABASE {TEMPLATE}")).await;
    connection.close().await.unwrap();
    let mut connection = PgConnection::connect(&server.url(TEMPLATE)).await.unwrap();
    let migrations = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    sqlx::migrate::Migrator::new(migrations).await.unwrap().run(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// Copies a running server's files, to follow it. What is run is run as the owner of the one's files; folders above them are entered before,
/// because they are nobody else's to pass.
const COPY: &str = "exec 9<.; cd /
set -- \"$1\" \"$2\" -D /proc/self/fd/9/cluster -R -X stream -c fast --no-sync -h 127.0.0.1 -U postgres -p \"$3\"
owner=$1; shift
[ \"$(id -u)\" = \"$owner\" ] || exec setpriv --reuid=\"$owner\" --clear-groups \"$@\"
exec \"$@\"";

/// Two Postgres servers with the migrated database, of which the second follows the first: a commit is answered when both have it.
pub async fn postgres_pair() -> (PostgresServer, PostgresServer, TempFolder) {
    let folder = TempFolder::new("test-postgres-pair").unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    let more = vec![("synchronous_commit".to_owned(), "on".to_owned())];
    let options = PostgresOptions { throw_away: true, more, ..PostgresOptions::default() };
    let primary = PostgresServer::start(&one, &options).await.unwrap();
    make_template(&primary).await;
    std::fs::create_dir_all(&other).unwrap();
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(one.join("cluster")).unwrap());
    std::os::unix::fs::chown(&other, Some(owner), None).unwrap();
    // Whoever keeps the server writes its log beside its files.
    for file in std::fs::read_dir(one.join("cluster")).unwrap().flatten() {
        std::os::unix::fs::chown(file.path(), Some(owner), None).unwrap();
    }
    let url = url::Url::parse(&primary.url("postgres")).unwrap();
    let output = tokio::process::Command::new("sh")
        .args(["-c", COPY, "sh", &owner.to_string(), &base_backup(), &primary.port().to_string()])
        .env("PGPASSWORD", url.password().unwrap())
        .current_dir(&other)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::copy(one.join("password"), other.join("password")).unwrap();
    let standby = PostgresServer::start(&other, &options).await.unwrap();
    let mut connection = PgConnection::connect(&primary.url("postgres")).await.unwrap();
    run(&mut connection, "ALTER SYSTEM SET synchronous_standby_names = '*'".to_owned()).await;
    run(&mut connection, "SELECT pg_reload_conf()".to_owned()).await;
    eventually("the standby is synchronous", Duration::from_secs(60), async || {
        let states: Vec<String> =
            sqlx::query_scalar("SELECT sync_state FROM pg_stat_replication").fetch_all(&mut connection).await.unwrap();
        states == ["sync"]
    })
    .await;
    (primary, standby, folder)
}

/// Where `pg_basebackup` is.
fn base_backup() -> String {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin/pg_basebackup")).find(|path| path.exists());
    found.map_or_else(|| "pg_basebackup".to_owned(), |path| path.display().to_string())
}

async fn run(connection: &mut PgConnection, statement: String) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(connection).await.unwrap();
}

super::on_both! {
    async fn a_private_redis_serves(redis: PrivateRedis) {
        let kind = redis.kind();
        let answers = redis.on_every_node(&["PING"]).await;
        assert_eq!(answers.len(), if kind == RedisKind::Single { 1 } else { 3 });
        assert!(redis.keys("*").await.is_empty());
    }
}

#[tokio::test]
async fn databases_are_apart() {
    let (one, two) = (TestDatabase::empty().await, TestDatabase::migrated().await);
    assert_ne!(one.url(), two.url());
    let mut connection = one.connect().await;
    sqlx::raw_sql("create table here (x int)").execute(&mut connection).await.unwrap();
    let found: Option<String> = sqlx::query_scalar("select to_regclass('here')::text").fetch_one(&mut two.connect().await).await.unwrap();
    assert_eq!(found, None);
    drop(one);
    TestDatabase::empty().await;
}
