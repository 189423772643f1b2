//! A private Redis Cluster of masters: nodes started, slots divided evenly, nodes introduced to each other.

use std::path::Path;
use std::time::{Duration, Instant};

use super::EmbeddedError;
use super::folder::random_word;
use super::redis_server::{RedisOptions, RedisServer};
use super::redis_wire::Wire;

/// Slots of every Redis Cluster.
const SLOTS: usize = 16_384;
/// Nodes learn of each other within a second or two.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// How often they are asked.
const LOOK: Duration = Duration::from_millis(50);

/// A running private Cluster. Dropping it stops its nodes in the background.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts `masters` new nodes in folders below `folder` and waits until each of them says that the Cluster is whole.
    ///
    /// # Errors
    /// When a node does not come up, or they do not agree in time.
    pub async fn start(folder: &Path, masters: usize, options: &RedisOptions) -> Result<Self, EmbeddedError> {
        let password = options.password.clone().unwrap_or_else(|| random_word(32));
        let options = RedisOptions { port: None, password: Some(password), cluster: true, ..options.clone() };
        let folders: Vec<_> = (0..masters).map(|node| folder.join(format!("node-{node}"))).collect();
        let started = futures_util::future::try_join_all(folders.iter().map(|folder| RedisServer::start(folder, &options))).await?;
        let cluster = Self { nodes: started };
        cluster.divide_slots().await?;
        cluster.introduce().await?;
        cluster.wait_whole().await?;
        Ok(cluster)
    }

    async fn divide_slots(&self) -> Result<(), EmbeddedError> {
        let count = self.nodes.len();
        for (place, node) in self.nodes.iter().enumerate() {
            let (first, last) = (SLOTS * place / count, SLOTS * (place + 1) / count - 1);
            let mut wire = node.wire().await?;
            wire.expect_ok(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]).await?;
            // Two new masters with the same epoch would first have to settle which is the newer one.
            wire.expect_ok(&["CLUSTER", "SET-CONFIG-EPOCH", &(place + 1).to_string()]).await?;
        }
        Ok(())
    }

    async fn introduce(&self) -> Result<(), EmbeddedError> {
        for (place, node) in self.nodes.iter().enumerate() {
            let mut wire = node.wire().await?;
            for other in &self.nodes[place + 1..] {
                let (port, bus_port) = (other.port().to_string(), other.bus_port().to_string());
                wire.expect_ok(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus_port]).await?;
            }
        }
        Ok(())
    }

    /// Waits until every node knows every other and all slots are served.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn wait_whole(&self) -> Result<(), EmbeddedError> {
        let begun = Instant::now();
        for node in &self.nodes {
            let mut wire = node.wire().await?;
            while !self.is_whole_for(&mut wire).await? {
                if begun.elapsed() > READY_WITHIN {
                    let log = super::process::log_tail(&node.log_path());
                    return Err(EmbeddedError::NotReady { server: "redis-server", why: "did not join its Cluster in time".into(), log });
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        Ok(())
    }

    async fn is_whole_for(&self, wire: &mut Wire) -> Result<bool, EmbeddedError> {
        let said = wire.command(&["CLUSTER", "INFO"]).await?;
        let info = said.text().unwrap_or_default();
        let size = format!("cluster_size:{}\r", self.nodes.len());
        Ok(info.contains("cluster_state:ok") && info.contains(&size) && info.contains(&format!("cluster_slots_ok:{SLOTS}\r")))
    }

    /// `redis-cluster://…` that names every node.
    #[must_use]
    pub fn url(&self) -> String {
        let mut others = self.nodes.iter().skip(1).map(|node| format!("node=127.0.0.1:{}", node.port()));
        let first = self.nodes.first().map(|node| format!("redis-cluster://:{}@127.0.0.1:{}", node.password(), node.port()));
        let first = first.unwrap_or_default();
        others.next().map_or(first.clone(), |second| others.fold(format!("{first}?{second}"), |url, node| format!("{url}&{node}")))
    }

    /// Its nodes.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// Its nodes, to halt or kill one.
    pub fn nodes_mut(&mut self) -> &mut [RedisServer] {
        &mut self.nodes
    }
}
