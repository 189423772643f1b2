//! Redis servers of which one takes over from the other: a primary and a replica under a Sentinel, or a Cluster whose first master has a
//! replica. The replica can be held back, so that what the primary takes then is lost with it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use seqline::embedded::{RedisCluster, RedisOptions, RedisServer, TempFolder, Wire, free_port};

use super::servers::RedisKind;
use super::wait::eventually;

/// A server that takes over, or comes back as a replica, may take its time on a loaded machine.
const WITHIN: Duration = Duration::from_secs(60);
/// The password of Sentinels.
const WATCH: &str = "watch";

/// A Sentinel, killed when dropped.
#[derive(Debug)]
pub struct Sentinel {
    /// Its port.
    pub port: u16,
    child: std::process::Child,
}

impl Sentinel {
    /// Watches this server under the name `main`, alone.
    pub fn start(folder: PathBuf, master: &RedisServer) -> Self {
        std::fs::create_dir_all(&folder).unwrap();
        let port = free_port().unwrap();
        let text = format!(
            "port {port}\nbind 127.0.0.1\nrequirepass {WATCH}\ndir {}\nsentinel monitor main 127.0.0.1 {} 1\nsentinel auth-pass main {}\n\
             sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 5000\n",
            folder.display(),
            master.port(),
            master.password()
        );
        let path = folder.join("sentinel.conf");
        std::fs::write(&path, text).unwrap();
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let child = std::process::Command::new("redis-server").arg(path).arg("--sentinel").stdout(log).spawn().unwrap();
        Self { port, child }
    }

    /// A connection to it.
    pub async fn wire(&self) -> Wire {
        Wire::connect(self.port, WATCH).await.unwrap()
    }

    /// The URL by which the product finds the server that it watches, whose password is this.
    pub fn url(&self, password: &str) -> String {
        format!("redis-sentinel://:{password}@127.0.0.1:{}?sentinelServiceName=main&sentinelPassword={WATCH}", self.port)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
enum Watch {
    Sentinel(Box<RedisServer>, Sentinel),
    Cluster(RedisCluster),
}

/// Two servers that take over from each other.
#[derive(Debug)]
pub struct Standby {
    watch: Watch,
    other: RedisServer,
    /// Whether `other` is the primary now.
    swapped: bool,
    /// Dropped last.
    _folder: TempFolder,
}

impl Standby {
    /// Starts them and waits until the replica follows.
    pub async fn start(kind: RedisKind) -> Self {
        let folder = TempFolder::new("test-standby").unwrap();
        let options = RedisOptions { throw_away: true, append_only: true, ..RedisOptions::default() };
        let (watch, other) = match kind {
            RedisKind::Single => {
                let primary = RedisServer::start(&folder.path().join("one"), &options).await.unwrap();
                let follow = RedisOptions { replica_of: Some(primary.port()), password: Some(primary.password().to_owned()), ..options };
                let replica = RedisServer::start(&folder.path().join("other"), &follow).await.unwrap();
                let sentinel = Sentinel::start(folder.path().join("sentinel"), &primary);
                (Watch::Sentinel(Box::new(primary), sentinel), replica)
            }
            RedisKind::Cluster => {
                let cluster = RedisCluster::start(folder.path(), 3, &options).await.unwrap();
                let first = &cluster.nodes()[0];
                let more = RedisOptions { cluster: true, password: Some(first.password().to_owned()), ..options };
                let replica = RedisServer::start(&folder.path().join("other"), &more).await.unwrap();
                let id = first.wire().await.unwrap().command(&["CLUSTER", "MYID"]).await.unwrap().text().unwrap().to_owned();
                let mut wire = replica.wire().await.unwrap();
                let (port, bus) = (first.port().to_string(), first.bus_port().to_string());
                wire.expect_ok(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await.unwrap();
                // Refused until the two have met.
                eventually("the replica has its master", WITHIN, async || wire.expect_ok(&["CLUSTER", "REPLICATE", &id]).await.is_ok())
                    .await;
                (Watch::Cluster(cluster), replica)
            }
        };
        let mut standby = Self { watch, other, swapped: false, _folder: folder };
        standby.wait_following().await;
        standby
    }

    /// The URL that the product is given.
    pub fn url(&self) -> String {
        match &self.watch {
            Watch::Sentinel(one, sentinel) => sentinel.url(one.password()),
            Watch::Cluster(cluster) => cluster.url(),
        }
    }

    fn pair(&mut self) -> (&mut RedisServer, &mut RedisServer) {
        let one = match &mut self.watch {
            Watch::Sentinel(one, _) => &mut **one,
            Watch::Cluster(cluster) => &mut cluster.nodes_mut()[0],
        };
        if self.swapped { (&mut self.other, one) } else { (one, &mut self.other) }
    }

    /// The one that takes writes.
    pub fn primary(&mut self) -> &mut RedisServer {
        self.pair().0
    }

    /// The one that follows, or the one that is dead.
    pub fn replica(&mut self) -> &mut RedisServer {
        self.pair().1
    }

    /// From now on the replica gets nothing.
    pub async fn hold_back(&mut self) {
        self.replica().process().signal("STOP");
        // What stands in the sockets' buffers would still reach it.
        self.primary().wire().await.unwrap().command(&["CLIENT", "KILL", "TYPE", "replica"]).await.unwrap();
    }

    /// Kills the primary; the other one takes over. Gives the moment at which it had.
    pub async fn take_over(&mut self) -> Instant {
        self.primary().process().kill().await;
        self.replica().process().signal("CONT");
        self.swapped = !self.swapped;
        let primary = self.primary();
        eventually("the other one has taken over", WITHIN, async || info(primary, "role").await.as_deref() == Some("master")).await;
        Instant::now()
    }

    /// Brings the dead one back and waits until it follows.
    pub async fn bring_back(&mut self) {
        self.replica().start_again().await.unwrap();
        self.wait_following().await;
    }

    async fn wait_following(&mut self) {
        let replica = self.replica();
        eventually("the replica follows", WITHIN, async || {
            info(replica, "role").await.as_deref() == Some("slave") && info(replica, "master_link_status").await.as_deref() == Some("up")
        })
        .await;
        match &self.watch {
            Watch::Sentinel(_, sentinel) => {
                let mut wire = sentinel.wire().await;
                eventually("the Sentinel would let it take over", WITHIN, async || {
                    let known = wire.command(&["SENTINEL", "REPLICAS", "main"]).await.unwrap();
                    let facts = |replica: &seqline::embedded::WireReply| {
                        let words: Vec<String> = replica.items().iter().map(|w| w.text().unwrap_or_default().to_owned()).collect();
                        words.chunks(2).any(|pair| pair[0] == "flags" && pair[1] == "slave")
                            && words.chunks(2).any(|pair| pair[0] == "master-link-status" && pair[1] == "ok")
                    };
                    known.items().len() == 1 && facts(&known.items()[0])
                })
                .await;
            }
            Watch::Cluster(cluster) => {
                for node in &cluster.nodes()[1..] {
                    let mut wire = node.wire().await.unwrap();
                    eventually("the others know it", WITHIN, async || {
                        let said = wire.command(&["CLUSTER", "NODES"]).await.unwrap();
                        let nodes = said.text().unwrap_or_default();
                        nodes.lines().any(|line| line.contains("slave") && !line.contains("fail") && line.ends_with("connected"))
                    })
                    .await;
                }
            }
        }
    }
}

/// One line of a server's `INFO replication`; `None` when it cannot be asked.
pub async fn info(server: &RedisServer, name: &str) -> Option<String> {
    let said = server.wire().await.ok()?.command(&["INFO", "replication"]).await.ok()?;
    let text = said.text()?.to_owned();
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(|value| value.trim().to_owned()))
}
