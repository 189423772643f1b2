//! Which server has which slot.
//!
//! One map, replaced whole when it changes: calls read it without a lock. It is filled from `CLUSTER SLOTS`, and corrected by every
//! `MOVED`; a single server, or one behind Sentinels, is a map with one node that has everything.

use std::sync::Arc;

use super::link::LinkError;
use super::node::{Node, Way};
use super::reply::Reply;
use super::stored_form::Unreadable;

/// Slots of a Redis Cluster.
pub(super) const SLOTS: usize = 16_384;
const NOBODY: u16 = u16::MAX;

/// Nodes and their slots.
#[derive(Clone, Debug)]
pub(super) struct Topology {
    nodes: Vec<Arc<Node>>,
    /// Index into `nodes` by slot; empty when the first node has them all.
    slots: Vec<u16>,
}

/// Slots `from ..= to` belong to `address`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotRange {
    pub(super) from: u16,
    pub(super) to: u16,
    pub(super) address: String,
}

impl Topology {
    /// One node that has everything.
    pub(super) fn one(node: Arc<Node>) -> Self {
        Self { nodes: vec![node], slots: Vec::new() }
    }

    /// No node yet.
    pub(super) fn empty() -> Self {
        Self { nodes: Vec::new(), slots: vec![NOBODY; SLOTS] }
    }

    pub(super) fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// The node that has a slot, as far as is known.
    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Node>> {
        match self.slots.get(usize::from(slot)) {
            None => self.nodes.first(),
            Some(index) => self.nodes.get(usize::from(*index)),
        }
    }

    pub(super) fn node_at(&self, address: &str) -> Option<&Arc<Node>> {
        self.nodes.iter().find(|node| node.address == address)
    }

    /// A new map from what a server said. Nodes that it names keep their connections, others get some, and those no longer named lose
    /// theirs as soon as their last call has ended.
    pub(super) fn replaced_by(&self, way: &Arc<Way>, ranges: &[SlotRange]) -> Result<Self, LinkError> {
        let mut next = Self::empty();
        for range in ranges {
            let index = next.index_of(self, way, &range.address)?;
            for slot in range.from..=range.to {
                if let Some(owner) = next.slots.get_mut(usize::from(slot)) {
                    *owner = index;
                }
            }
        }
        Ok(next)
    }

    /// The same map with one slot at another node.
    pub(super) fn with_slot(&self, way: &Arc<Way>, slot: u16, address: &str) -> Result<Self, LinkError> {
        let mut next = self.clone();
        let index = next.index_of(self, way, address)?;
        if let Some(owner) = next.slots.get_mut(usize::from(slot)) {
            *owner = index;
        }
        Ok(next)
    }

    /// The same map with a new node in place of one that is worn.
    pub(super) fn with_node(&self, node: Arc<Node>) -> Self {
        let mut next = self.clone();
        for old in next.nodes.iter_mut().filter(|old| old.address == node.address) {
            *old = node.clone();
        }
        next
    }

    fn index_of(&mut self, known: &Self, way: &Arc<Way>, address: &str) -> Result<u16, LinkError> {
        if let Some(index) = self.nodes.iter().position(|node| node.address == address) {
            return Ok(u16::try_from(index).unwrap_or(NOBODY));
        }
        let node = match known.node_at(address) {
            Some(node) => node.clone(),
            None => Node::open(way, address)?,
        };
        self.nodes.push(node);
        Ok(u16::try_from(self.nodes.len() - 1).unwrap_or(NOBODY))
    }
}

/// Reads the answer to `CLUSTER SLOTS`: `[from, to, [host, port, …], replicas…]` for each range. A node that does not know its own
/// address leaves the host empty; it is the one that was asked.
pub(super) fn read_slots(reply: &Reply, asked: &str) -> Result<Vec<SlotRange>, Unreadable> {
    let mut ranges = Vec::new();
    for entry in reply.as_list()? {
        let mut items = entry.items()?;
        let from = slot(items.u64()?)?;
        let to = slot(items.u64()?)?;
        let mut master = items.item()?.items()?;
        let host = match master.item()?.present() {
            Some(host) => host.as_str()?,
            None => "",
        };
        let port = master.u64()?;
        ranges.push(SlotRange { from, to, address: full_address(&format!("{host}:{port}"), asked) });
    }
    Ok(ranges)
}

/// `host:port` with the host of the node that was asked in place of an empty (or unknown, `?`) one.
pub(super) fn full_address(address: &str, asked: &str) -> String {
    match address.rsplit_once(':') {
        Some(("" | "?", port)) => format!("{}:{port}", asked.rsplit_once(':').map_or(asked, |(host, _)| host)),
        _ => address.to_owned(),
    }
}

fn slot(number: u64) -> Result<u16, Unreadable> {
    u16::try_from(number).ok().filter(|n| usize::from(*n) < SLOTS).ok_or(Unreadable("a slot"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn entry(from: i64, to: i64, host: Reply, port: i64) -> Reply {
        let node = |host, port| Reply::List(vec![host, Reply::Int(port), Reply::Bulk(Bytes::from_static(b"id")), Reply::List(vec![])]);
        Reply::List(vec![Reply::Int(from), Reply::Int(to), node(host, port), node(Reply::Bulk(Bytes::from_static(b"replica")), 9)])
    }

    #[test]
    fn slots_are_read_and_an_unknown_host_is_the_one_that_was_asked() {
        let reply = Reply::List(vec![
            entry(0, 5460, Reply::Bulk(Bytes::from_static(b"10.0.0.1")), 7000),
            entry(5461, 16_383, Reply::Nil, 7001),
            entry(7, 7, Reply::Bulk(Bytes::new()), 7002),
        ]);
        let ranges = read_slots(&reply, "seed:7001").unwrap();
        assert_eq!(ranges[0], SlotRange { from: 0, to: 5460, address: "10.0.0.1:7000".into() });
        assert_eq!(ranges[1].address, "seed:7001");
        assert_eq!(ranges[2].address, "seed:7002");
    }

    #[test]
    fn what_is_no_slot_map_is_refused() {
        assert!(read_slots(&Reply::Int(1), "a:1").is_err());
        assert!(read_slots(&Reply::List(vec![entry(0, 16_384, Reply::Nil, 1)]), "a:1").is_err());
        assert_eq!(read_slots(&Reply::List(vec![]), "a:1"), Ok(vec![]));
    }

    #[test]
    fn an_address_without_a_host_is_completed() {
        assert_eq!(full_address(":7001", "::1:7000"), "::1:7001");
        assert_eq!(full_address("h:7001", "x:1"), "h:7001");
    }
}
