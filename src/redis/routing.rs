//! Which call goes to which server, and what follows when that server says no or says nothing.
//!
//! A redirection is followed at once, because it promises that nothing was executed; so is a call that found no connection, for a short
//! time. Any other fault goes to the caller, and only makes the map be asked for anew, at most every 100 ms.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::future::join_all;

use super::link::LinkError;
use super::link_url::Kind;
use super::node::{Connection, Fault, Node, Purpose, Way};
use super::reply::Reply;
use super::topology::{SlotRange, Topology, full_address, read_slots};

/// Redirections that one call follows.
pub(super) const REDIRECTS_MAX: usize = 16;
/// How long a call goes on looking for a server that takes it.
const SEARCH_MAX: Duration = Duration::from_millis(500);
/// Pause before a call tries again.
const SEARCH_PAUSE: Duration = Duration::from_millis(20);
/// How long a call waits for the connection to the node it found before it looks at the map again.
const CONNECT_WAIT: Duration = Duration::from_millis(100);
/// How long a server is given to answer what the map is.
const MAP_WAIT: Duration = Duration::from_millis(500);
/// Least time between two questions for the map.
const REFRESH_PAUSE: Duration = Duration::from_millis(100);

/// Argument of `CLUSTER`.
const SLOTS_ARG: [Bytes; 1] = [Bytes::from_static(b"SLOTS")];

/// The slot of a key.
pub(super) fn slot_of(key: &str) -> u16 {
    fred::util::redis_keyslot(key.as_bytes())
}

/// The map of servers and what changes it.
#[derive(Debug)]
pub(super) struct Routing {
    way: Arc<Way>,
    topology: ArcSwap<Topology>,
    /// Held while the map is replaced, so that no change is lost.
    changing: Mutex<()>,
    /// When the map was last asked for; held while it is asked for.
    refreshed: Arc<tokio::sync::Mutex<Option<Instant>>>,
}

impl Routing {
    /// Connects to whatever servers the URL leads to.
    pub(super) async fn connect(way: Way, wait: Duration) -> Result<Arc<Self>, LinkError> {
        let deadline = Instant::now() + wait;
        let way = Arc::new(way);
        let topology = match way.url().kind {
            Kind::Cluster => Topology::empty(),
            _ => Topology::one(Node::open(&way, &way.only_address())?),
        };
        let routing = Arc::new(Self {
            way,
            topology: ArcSwap::from_pointee(topology),
            changing: Mutex::new(()),
            refreshed: Arc::new(tokio::sync::Mutex::new(None)),
        });
        while routing.is_cluster() {
            match routing.refresh("").await {
                Ok(()) => break,
                Err(LinkError::Refused(text)) if text.contains("cluster support disabled") => {
                    return Err(LinkError::NotSent(format!("SEQLINE_REDIS_URL names a Cluster, but: {text}")));
                }
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => tokio::time::sleep(SEARCH_PAUSE).await,
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let nodes = routing.nodes();
        let ready = join_all(nodes.iter().map(|node| node.ready(left))).await;
        if ready.contains(&true) {
            return Ok(routing);
        }
        let why = nodes.iter().find_map(|node| node.why()).unwrap_or_else(|| "no answer".to_owned());
        Err(LinkError::NotSent(format!("no connection to {} within {} ms: {why}", routing.way.only_address(), wait.as_millis())))
    }

    pub(super) fn way(&self) -> &Arc<Way> {
        &self.way
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.way.url().kind == Kind::Cluster
    }

    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.topology.load().nodes().to_vec()
    }

    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        self.topology.load().owner(slot).cloned()
    }

    /// Sends a command to whoever has the slot.
    pub(super) async fn call(self: &Arc<Self>, slot: u16, name: &'static str, args: &[Bytes]) -> Result<Reply, LinkError> {
        let deadline = Instant::now() + SEARCH_MAX;
        let mut ask: Option<Arc<Node>> = None;
        let mut last = LinkError::NotSent("no node has the slot".to_owned());
        let mut redirects = 0;
        loop {
            let (node, outcome) = match (ask.take(), self.owner(slot)) {
                (Some(node), _) => {
                    let outcome = node.send_asking(name, args).await;
                    (node, outcome)
                }
                (None, Some(node)) => {
                    let outcome = node.send(name, args, CONNECT_WAIT).await;
                    (node, outcome)
                }
                (None, None) => {
                    self.refresh_soon("");
                    if Instant::now() >= deadline {
                        return Err(last);
                    }
                    tokio::time::sleep(SEARCH_PAUSE).await;
                    continue;
                }
            };
            match outcome {
                Ok(reply) => return Ok(reply),
                Err(Fault::Moved { slot, address }) if self.is_cluster() => {
                    self.moved(slot, &address, &node.address)?;
                    redirects += 1;
                    last = LinkError::NotSent(format!("slot {slot} was redirected too often"));
                }
                Err(Fault::Ask { address }) if self.is_cluster() => {
                    ask = Some(self.node_at(&address, &node.address)?);
                    redirects += 1;
                    last = LinkError::NotSent(format!("slot {slot} was redirected too often"));
                }
                Err(fault @ (Fault::TryAgain(_) | Fault::Unsent(_))) => {
                    let unsent = matches!(fault, Fault::Unsent(_));
                    last = fault.into();
                    if unsent {
                        self.failed(&node, &last);
                    }
                    tokio::time::sleep(SEARCH_PAUSE).await;
                }
                Err(fault) => {
                    let error = LinkError::from(fault);
                    if matches!(error, LinkError::NoAnswer(_) | LinkError::NotServing(_)) {
                        self.failed(&node, &error);
                    }
                    return Err(error);
                }
            }
            if redirects > REDIRECTS_MAX || Instant::now() >= deadline {
                return Err(last);
            }
        }
    }

    /// Does what a fault of a node calls for: its connection is made anew when it is worn, and the map is asked for.
    pub(super) fn failed(self: &Arc<Self>, node: &Arc<Node>, error: &LinkError) {
        if node.worn() || node.deposed(error) {
            let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
            let topology = self.topology.load();
            let current = topology.node_at(&node.address).is_some_and(|current| Arc::ptr_eq(current, node));
            if current && let Ok(fresh) = Node::open(&self.way, &node.address) {
                self.topology.store(Arc::new(topology.with_node(fresh)));
            }
        }
        self.refresh_soon(&node.address);
    }

    /// A slot has moved, as the node at `told_by` says.
    pub(super) fn moved(self: &Arc<Self>, slot: u16, address: &str, told_by: &str) -> Result<(), LinkError> {
        {
            let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
            let next = self.topology.load().with_slot(&self.way, slot, &full_address(address, told_by))?;
            self.topology.store(Arc::new(next));
        }
        self.refresh_soon("");
        Ok(())
    }

    /// The node at an address that the node at `told_by` named; it need not own a slot yet.
    pub(super) fn node_at(&self, address: &str, told_by: &str) -> Result<Arc<Node>, LinkError> {
        let address = full_address(address, told_by);
        match self.topology.load().node_at(&address) {
            Some(node) => Ok(node.clone()),
            None => Node::open(&self.way, &address),
        }
    }

    /// Asks for the map in the background, unless that is going on already; `avoid` is asked last.
    pub(super) fn refresh_soon(self: &Arc<Self>, avoid: &str) {
        if !self.is_cluster() {
            return;
        }
        let Ok(mut refreshed) = self.refreshed.clone().try_lock_owned() else { return };
        let (routing, avoid) = (self.clone(), avoid.to_owned());
        tokio::spawn(async move {
            if let Some(pause) = refreshed.and_then(|at| REFRESH_PAUSE.checked_sub(at.elapsed())) {
                tokio::time::sleep(pause).await;
            }
            if let Err(error) = routing.refresh(&avoid).await {
                tracing::debug!(%error, "no node names the slots");
            }
            *refreshed = Some(Instant::now());
        });
    }

    /// Asks one node after another for the map until one answers, those of the URL last.
    async fn refresh(&self, avoid: &str) -> Result<(), LinkError> {
        let mut nodes = self.nodes();
        nodes.sort_by_key(|node| node.address == avoid);
        let mut last = LinkError::NotSent("no node is known".to_owned());
        for node in &nodes {
            match tokio::time::timeout(MAP_WAIT, node.send("CLUSTER", &SLOTS_ARG, CONNECT_WAIT)).await {
                Ok(Ok(reply)) => match self.take_map(&reply, &node.address) {
                    Ok(()) => return Ok(()),
                    Err(error) => last = error,
                },
                Ok(Err(fault)) => last = fault.into(),
                Err(_) => last = LinkError::NoAnswer(format!("no answer from {}", node.address)),
            }
        }
        for (host, port) in &self.way.url().hosts {
            let address = format!("{host}:{port}");
            if nodes.iter().any(|node| node.address == address) {
                continue;
            }
            let seed = Connection::open(&self.way, &address, Purpose::Calls)?;
            if !seed.ready(MAP_WAIT).await {
                last = LinkError::NotSent(format!("no connection to {address}: {}", seed.why().unwrap_or_else(|| "no answer".to_owned())));
                continue;
            }
            match seed.send("CLUSTER", &SLOTS_ARG).await {
                Ok(reply) => match self.take_map(&reply, &address) {
                    Ok(()) => return Ok(()),
                    Err(error) => last = error,
                },
                Err(fault) => last = fault.into(),
            }
        }
        Err(last)
    }

    fn take_map(&self, reply: &Reply, asked: &str) -> Result<(), LinkError> {
        let ranges: Vec<SlotRange> = read_slots(reply, asked).map_err(|e| LinkError::Refused(e.to_string()))?;
        if ranges.is_empty() {
            // A node that was reset or has not joined yet; others know more.
            return Err(LinkError::NotServing(format!("CLUSTERDOWN {asked} knows of no slots")));
        }
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.topology.load().replaced_by(&self.way, &ranges)?;
        self.topology.store(Arc::new(next));
        Ok(())
    }
}
