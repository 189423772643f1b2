//! Where sends of one shard gather while an earlier call is under way: together they cost Redis and us a fraction of what they cost alone
//! (16 a call doubled the throughput and divided the client's work by five). A lone send never waits for company.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::domain::ids::{ConversationId, ShardId};
use crate::domain::rate_limit::Rate;
use crate::redis::error::RedisError;
use crate::redis::keys::Keys;
use crate::redis::link::{Link, LinkError};
use crate::redis::send_message::{Send, Sent, Terms, send_messages};

/// Sends in one call: enough to share its cost, few enough to keep the server's other callers waiting for less than a millisecond.
const SENDS_PER_CALL_MAX: usize = 32;
/// Sends that may wait for one shard; beyond it the shard is overloaded and says so at once.
const SENDS_WAITING_MAX: usize = 4_096;

type Answer = Result<Sent, RedisError>;

#[derive(Debug, Default)]
struct Lane {
    waiting: Vec<(Send, oneshot::Sender<Answer>)>,
    under_way: bool,
}

/// One lane for each shard.
#[derive(Debug)]
pub(crate) struct SendLanes {
    lanes: Arc<Vec<Mutex<Lane>>>,
    link: Link,
    keys: Keys,
    clock: Clock,
    outbox_max: u64,
    conversation_rate: Option<Rate>,
    /// Conversations for which numbers are being fetched ahead.
    fetching: Mutex<HashSet<ConversationId>>,
}

impl SendLanes {
    pub(crate) fn new(link: Link, keys: Keys, clock: Clock, outbox_max: u64, conversation_rate: Option<Rate>) -> Self {
        let lanes = Arc::new((0..keys.shards).map(|_| Mutex::default()).collect());
        Self { lanes, link, keys, clock, outbox_max, conversation_rate, fetching: Mutex::default() }
    }

    /// Sends one message, together with whatever else waits for its shard.
    pub(crate) async fn send(&self, send: Send) -> Answer {
        let shard = self.keys.shard_of(&send.conversation);
        let (tell, told) = oneshot::channel();
        let start = {
            let Some(lane) = self.lanes.get(usize::from(shard.0)) else {
                return Err(LinkError::NotSent("no such shard".into()).into());
            };
            let mut lane = lane.lock().unwrap_or_else(PoisonError::into_inner);
            if lane.waiting.len() >= SENDS_WAITING_MAX {
                return Ok(Sent::Overloaded);
            }
            lane.waiting.push((send, tell));
            !std::mem::replace(&mut lane.under_way, true)
        };
        if start {
            // A task of its own: a client that hangs up must not take the others' call with it.
            let clock = self.clock;
            let (outbox_max, conversation_rate) = (self.outbox_max, self.conversation_rate);
            let terms = move || Terms { now: clock.now(), outbox_max, conversation_rate };
            tokio::spawn(drain(Arc::clone(&self.lanes), shard, self.link.clone(), self.keys, terms));
        }
        told.await.unwrap_or_else(|_| Err(LinkError::NoAnswer("the call was given up".into()).into()))
    }

    /// Whether the caller is the one to fetch numbers for this conversation now; it must say when it has ended.
    pub(crate) fn begin_fetch(&self, id: &ConversationId) -> bool {
        self.fetching.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone())
    }

    /// The fetch has ended, one way or the other.
    pub(crate) fn end_fetch(&self, id: &ConversationId) {
        self.fetching.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

async fn drain(lanes: Arc<Vec<Mutex<Lane>>>, shard: ShardId, link: Link, keys: Keys, terms: impl Fn() -> Terms) {
    loop {
        let (sends, tells): (Vec<Send>, Vec<_>) = {
            let mut lane = lanes[usize::from(shard.0)].lock().unwrap_or_else(PoisonError::into_inner);
            if lane.waiting.is_empty() {
                lane.under_way = false;
                return;
            }
            let count = lane.waiting.len().min(SENDS_PER_CALL_MAX);
            lane.waiting.drain(..count).unzip()
        };
        match send_messages(&link, &keys, shard, &terms(), &sends).await {
            Ok(answers) => {
                for (tell, answer) in tells.into_iter().zip(answers) {
                    // Whoever hung up does not want the answer any more.
                    let _ = tell.send(Ok(answer));
                }
            }
            Err(error) => {
                for tell in tells {
                    let _ = tell.send(Err(error.clone()));
                }
            }
        }
    }
}
