//! Writes to users' logs as the owner of a shard does, without a conversation behind it: as fast as Redis takes it.

use seqline::domain::event::{EventType, Pointer};
use seqline::domain::ids::{ConversationId, ShardId, UserId};
use seqline::redis::deliver_events::{Delivered, Delivery, IndexChange, deliver_events};
use seqline::redis::event_log::LogBounds;
use seqline::redis::keys::Keys;
use seqline::redis::link::Link;
use seqline::redis::outbox::OutboxId;
use seqline::redis::wake_gateway::{Wake, Woken, wake_gateway};
use serde_json::json;

use super::fleet::{PARTITIONS, SHARDS};

/// The conversation of what it writes, which is not as the contract has it.
pub const MADE_UP: &str = "system:flood";

/// A writer; its events are numbered from 1.
pub struct LogWriter {
    link: Link,
    user: UserId,
    shard: ShardId,
    next: u64,
    /// What is added to each event.
    pub padding: String,
    /// Whether gateways are woken.
    pub wakes: bool,
    /// Entries that the log keeps.
    pub entries_max: u64,
    /// The clock, when it stands still.
    pub now: Option<i64>,
}

impl LogWriter {
    /// Writes to this user's log.
    pub async fn new(redis_url: &str, user: &str) -> Self {
        let link = Link::connect(redis_url, 5_000).await.unwrap();
        // A shard that no worker has: its marks are ours.
        let shard = ShardId(SHARDS + 1_000);
        Self {
            link,
            user: UserId::parse(user).unwrap(),
            shard,
            next: 1,
            padding: String::new(),
            wakes: true,
            entries_max: 1_000_000,
            now: None,
        }
    }

    /// As the owner of another shard, which numbers for itself.
    pub fn in_shard(mut self, shard: u16) -> Self {
        self.shard = ShardId(shard);
        self
    }

    /// How many events were written.
    pub fn written(&self) -> u64 {
        self.next - 1
    }

    /// Writes so many events and wakes who listens. Each is `member.left` about the user, which needs no conversation to be shown.
    pub async fn write(&mut self, count: u64) -> Vec<Delivered> {
        let keys = Keys { shards: SHARDS, partitions: PARTITIONS };
        let now = self.now.unwrap_or_else(|| seqline::clock::Clock::default().now());
        let deliveries: Vec<Delivery> = (self.next..self.next + count)
            .map(|n| Delivery {
                outbox_id: OutboxId { epoch: 0, n },
                pointer: Pointer {
                    kind: EventType::MemberLeft,
                    conversation: ConversationId::parse(MADE_UP).unwrap(),
                    rev: n,
                    seq: n,
                    at: now,
                    data: Some(json!({"user_id": self.user.as_str(), "n": n, "padding": self.padding}).to_string()),
                },
                recipients: vec![self.user.clone()],
                index: IndexChange::Leave,
            })
            .collect();
        self.next += count;
        let bounds = LogBounds { entries_max: self.entries_max, age_max_ms: 3_600_000 };
        let outcome = deliver_events(&self.link, &keys, self.shard, &deliveries, now, bounds).await;
        assert!(outcome.error.is_none(), "{outcome:?}");
        if self.wakes {
            for delivered in &outcome.delivered {
                let wake = Wake {
                    pointer: deliveries[delivered.delivery].pointer.clone(),
                    message: None,
                    recipients: vec![Woken {
                        user: delivered.user.clone(),
                        position: delivered.position.clone(),
                        previous: delivered.previous,
                    }],
                };
                for gateway in &delivered.gateways {
                    wake_gateway(&self.link, gateway, std::slice::from_ref(&wake)).await.unwrap();
                }
            }
        }
        outcome.delivered
    }
}
