//! Private servers: they keep their data, end with their holder however it ends, and a killed run does not block the next.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use seqline::embedded::{PostgresOptions, PostgresServer, RedisCluster, RedisOptions, RedisServer, TempFolder, WireReply};
use sqlx::Connection as _;

fn keeping() -> RedisOptions {
    RedisOptions { append_only: true, ..RedisOptions::default() }
}

async fn sql(server: &PostgresServer, text: &'static str) -> Vec<String> {
    let mut connection = sqlx::PgConnection::connect(&server.url("postgres")).await.unwrap();
    sqlx::query_scalar(text).fetch_all(&mut connection).await.unwrap()
}

fn listens(port: u16) -> bool {
    std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(40), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test]
async fn redis_keeps_its_data_over_stop_and_kill() {
    let folder = TempFolder::new("redis").unwrap();
    let mut server = RedisServer::start(folder.path(), &keeping()).await.unwrap();
    server.wire().await.unwrap().expect_ok(&["SET", "a", "1"]).await.unwrap();
    server.stop().await;
    assert!(!listens(server.port()));
    server.start_again().await.unwrap();
    assert_eq!(server.wire().await.unwrap().command(&["GET", "a"]).await.unwrap(), WireReply::Text("1".into()));
    // Longer than the flush every second.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    server.process().kill().await;
    assert!(!listens(server.port()));
    server.start_again().await.unwrap();
    assert_eq!(server.wire().await.unwrap().command(&["GET", "a"]).await.unwrap(), WireReply::Text("1".into()));
    let strict = server.wire().await.unwrap().command(&["CONFIG", "GET", "maxmemory-policy"]).await.unwrap();
    assert_eq!(strict.items()[1].text(), Some("noeviction"));
}

#[tokio::test]
async fn redis_lets_nobody_in_without_the_password() {
    let folder = TempFolder::new("redis").unwrap();
    let server = RedisServer::start(folder.path(), &RedisOptions::default()).await.unwrap();
    seqline::embedded::Wire::connect(server.port(), "wrong").await.unwrap_err();
}

#[tokio::test]
async fn a_cluster_is_whole_when_it_is_handed_out() {
    let folder = TempFolder::new("cluster").unwrap();
    let cluster = RedisCluster::start(folder.path(), 3, &RedisOptions { throw_away: true, ..RedisOptions::default() }).await.unwrap();
    for node in cluster.nodes() {
        let slots = node.wire().await.unwrap().command(&["CLUSTER", "SLOTS"]).await.unwrap();
        assert_eq!(slots.items().len(), 3, "{slots:?}");
    }
    assert_eq!(cluster.url().matches("127.0.0.1").count(), 3, "{}", cluster.url());
}

#[tokio::test]
async fn postgres_keeps_its_data_over_stop_and_kill() {
    let folder = TempFolder::new("postgres").unwrap();
    let mut server = PostgresServer::start(folder.path(), &PostgresOptions::default()).await.unwrap();
    sql(&server, "create table kept as select 'here' as word").await;
    server.stop().await;
    assert!(!listens(server.port()));
    drop(server);
    let mut server = PostgresServer::start(folder.path(), &PostgresOptions::default()).await.unwrap();
    assert_eq!(sql(&server, "select word from kept").await, ["here"]);
    server.process().kill().await;
    server.start_again().await.unwrap();
    assert_eq!(sql(&server, "select word from kept").await, ["here"]);
    assert_eq!(
        sql(&server, "select current_setting('listen_addresses') || current_setting('unix_socket_directories')").await,
        ["127.0.0.1"]
    );
}

#[tokio::test]
async fn a_server_that_cannot_start_shows_its_log() {
    let folder = TempFolder::new("redis").unwrap();
    let options = RedisOptions { more: vec![("no-such-setting".into(), "1".into())], ..RedisOptions::default() };
    let error = RedisServer::start(folder.path(), &options).await.unwrap_err().to_string();
    assert!(error.contains("no-such-setting"), "{error}");
}

#[tokio::test]
async fn a_thrown_away_server_takes_its_folder_along() {
    let folder = TempFolder::new("thrown").unwrap();
    let (redis, postgres) = (folder.path().join("redis"), TempFolder::new("thrown-postgres").unwrap());
    let first = RedisServer::start(&redis, &RedisOptions { throw_away: true, ..RedisOptions::default() }).await.unwrap();
    let second = PostgresServer::start(postgres.path(), &PostgresOptions { throw_away: true, ..PostgresOptions::default() }).await.unwrap();
    drop((first, second));
    wait_until("folders are removed", || !redis.exists() && !postgres.path().exists());
}

/// The process that other tests start and kill; by itself it has nothing to do.
#[tokio::test]
async fn holder() {
    let Ok(folder) = std::env::var("HELD_FOLDER") else { return };
    let folder = PathBuf::from(folder);
    let redis = RedisServer::start(&folder.join("redis"), &keeping()).await.unwrap();
    let postgres = PostgresServer::start(&folder.join("postgres"), &PostgresOptions::default()).await.unwrap();
    redis.wire().await.unwrap().expect_ok(&["SET", "a", "1"]).await.unwrap();
    sql(&postgres, "create table kept as select 'here' as word").await;
    std::fs::write(folder.join("ports.new"), format!("{} {}", redis.port(), postgres.port())).unwrap();
    std::fs::rename(folder.join("ports.new"), folder.join("ports")).unwrap();
    std::future::pending::<()>().await;
}

/// Starts [`holder`], waits until its servers run, kills it with -9 after `before` had its way; its servers' ports.
fn kill_a_holder(folder: &Path, before: impl FnOnce()) -> (u16, u16) {
    let mut holder = Command::new(std::env::current_exe().unwrap());
    holder.args(["--exact", "embedded::holder"]).env("HELD_FOLDER", folder);
    let mut holder = holder.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ports = folder.join("ports");
    wait_until("the holder's servers run", || ports.exists());
    before();
    holder.kill().unwrap();
    holder.wait().unwrap();
    let text = std::fs::read_to_string(ports).unwrap();
    let (redis, postgres) = text.split_once(' ').unwrap();
    (redis.parse().unwrap(), postgres.parse().unwrap())
}

/// The parent of a process (Linux).
fn parent(pid: &str) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(1).map(str::to_owned)
}

async fn everything_is_still_there(folder: &Path) {
    let redis = RedisServer::start(&folder.join("redis"), &keeping()).await.unwrap();
    let postgres = PostgresServer::start(&folder.join("postgres"), &PostgresOptions::default()).await.unwrap();
    assert_eq!(redis.wire().await.unwrap().command(&["GET", "a"]).await.unwrap(), WireReply::Text("1".into()));
    assert_eq!(sql(&postgres, "select word from kept").await, ["here"]);
}

#[tokio::test]
async fn servers_end_when_their_holder_is_killed_and_the_next_start_finds_the_data() {
    let folder = TempFolder::new("killed").unwrap();
    let (redis, postgres) = kill_a_holder(folder.path(), || {});
    wait_until("servers end", || !listens(redis) && !listens(postgres));
    everything_is_still_there(folder.path()).await;
}

#[tokio::test]
async fn the_next_start_waits_for_the_servers_of_a_killed_holder() {
    let folder = TempFolder::new("killed").unwrap();
    kill_a_holder(folder.path(), || {});
    everything_is_still_there(folder.path()).await;
}

#[tokio::test]
async fn servers_that_lost_their_shell_too_are_stopped_by_the_next_start() {
    let folder = TempFolder::new("orphans").unwrap();
    let path = folder.path().to_owned();
    let (redis, postgres) = kill_a_holder(folder.path(), || {
        for server in ["redis", "postgres/cluster"] {
            let pid = std::fs::read_to_string(path.join(server).join("server.pid")).unwrap();
            let shell = parent(pid.trim()).unwrap();
            // The shell that waits, and the one that listens for our end: they are the group but for the server itself.
            let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
            let others = processes.filter(|other| other != pid.trim() && parent(other).as_deref() == Some(&shell));
            let doomed: Vec<String> = others.chain([shell.clone()]).collect();
            // The shell's own `kill`: a bare system has no program of that name.
            assert!(Command::new("sh").args(["-c", "kill -9 \"$@\"", "sh"]).args(doomed).status().unwrap().success());
        }
    });
    std::thread::sleep(Duration::from_millis(300));
    assert!(listens(redis) && listens(postgres), "nobody is left to stop them");
    everything_is_still_there(folder.path()).await;
    assert!(!listens(redis));
}

#[tokio::test]
async fn an_old_process_number_does_not_keep_postgres_from_starting() {
    let folder = TempFolder::new("stale").unwrap();
    let mut server = PostgresServer::start(folder.path(), &PostgresOptions::default()).await.unwrap();
    server.stop().await;
    // As after a power cut: the number now belongs to another living process, this one.
    std::fs::write(folder.path().join("cluster/postmaster.pid"), format!("{}\n/nowhere\n", std::process::id())).unwrap();
    PostgresServer::start(folder.path(), &PostgresOptions::default()).await.unwrap();
}
