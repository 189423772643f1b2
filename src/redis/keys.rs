//! The only place that spells a Redis key. Type and lifetime stand beside each.
//!
//! A conversation's keys all carry its shard's hash tag, a user's keys the tag of the user's partition, so that one script can touch
//! everything it needs in one slot, on one server and on Cluster alike.

use crate::domain::ids::{ConversationId, PartitionId, ShardId, UserId};
use crate::domain::rate_limit::Limited;

/// Key names of one installation: they depend on how many shards and partitions it was made with.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// Shards of conversations.
    pub shards: u16,
    /// Partitions of users.
    pub partitions: u16,
}

impl Keys {
    /// The shard of a conversation.
    #[must_use]
    pub fn shard_of(&self, conversation: &ConversationId) -> ShardId {
        conversation.shard(self.shards)
    }

    /// The partition of a user.
    #[must_use]
    pub fn partition_of(&self, user: &UserId) -> PartitionId {
        user.partition(self.partitions)
    }

    /// The keys of a conversation.
    #[must_use]
    pub fn conversation(&self, id: &ConversationId) -> ConversationKeys {
        let shard = self.shard_of(id);
        let key = |noun: &str| format!("{noun}:{{s{}}}:{id}", shard.0);
        ConversationKeys {
            head: key("conv"),
            members: key("members"),
            marks: key("marks"),
            window: key("window"),
            revs: key("revs"),
            uncounted: key("uncounted"),
            keys_0: key("keys0"),
            keys_1: key("keys1"),
            left: key("left"),
            amended: key("amended"),
            mentions: key("mentions"),
        }
    }

    /// String with a time to live: the last sign of typing of a user in a conversation that passed, `1`, or `0` once it was stopped.
    #[must_use]
    pub fn typing(&self, id: &ConversationId, user: &UserId) -> String {
        // Neither name holds a slash, so no two pairs share a key.
        format!("typing:{{s{}}}:{id}/{user}", self.shard_of(id).0)
    }

    /// The keys of a user.
    #[must_use]
    pub fn user(&self, user: &UserId) -> UserKeys {
        let partition = self.partition_of(user);
        let key = |noun: &str| format!("{noun}:{{u{}}}:{user}", partition.0);
        UserKeys { log: key("log"), log_info: key("loginfo"), cursors: key("cursors"), index: key("index") }
    }

    /// String that lives until the bucket is full: `<tokens> <at ms>` of one of a user's limits.
    #[must_use]
    pub fn bucket(&self, user: &UserId, limited: Limited) -> String {
        format!("bucket:{{u{}}}:{}:{user}", self.partition_of(user).0, limited.as_str())
    }

    /// A ticket's record: string, JSON claims, lives until the ticket ends. `digest` is hex of the secret's SHA-256.
    #[must_use]
    pub fn ticket(&self, partition: PartitionId, digest: &str) -> String {
        format!("ticket:{{u{}}}:{digest}", partition.0)
    }
}

/// The keys of one conversation; they live until it is cooled.
#[derive(Clone, Debug)]
pub struct ConversationKeys {
    /// Hash: head, next, lease, rev, state and the common facts (see `stored_form.rs`).
    pub head: String,
    /// Hash: user id → `<o|m> <joined_at> <joined_seq> <joined_rev>`, and once something was set, ` <m|-><p|-> <hidden_to|-> <marked_at|->
    /// <cleared_to>` (see `domain/preferences.rs`).
    pub members: String,
    /// Hash: user id → `<read_seq> <read_at>`.
    pub marks: String,
    /// Hash: seq → `<rev> <message json>`, the recent messages from `floor` to `head`.
    pub window: String,
    /// Sorted set: seq scored by rev, for the messages in the window.
    pub revs: String,
    /// Sorted set: seqs that never count as unread (timeline, deleted), scored by themselves.
    pub uncounted: String,
    /// Hash: `<sender>\0<client id>` → `<seq> <fingerprint>`, one of two generations.
    pub keys_0: String,
    /// The other generation.
    pub keys_1: String,
    /// List: `<joined_rev> <left_rev> <user id>`, ended membership intervals that dispatch may still need.
    pub left: String,
    /// Sorted set: seqs below `floor` that were changed and stand in the window until the archive has the change, scored by themselves.
    pub amended: String,
    /// Sorted set, all scores 0: `<user id>\0<seq, 16 digits>`, unread messages that name a member, so that a range of one user's names is
    /// counted and taken away by its ends.
    pub mentions: String,
}

impl ConversationKeys {
    /// All of them, in the order in which scripts that install or take away a whole conversation expect them.
    #[must_use]
    pub fn all(self) -> [String; 11] {
        [
            self.head,
            self.members,
            self.marks,
            self.window,
            self.revs,
            self.uncounted,
            self.keys_0,
            self.keys_1,
            self.left,
            self.amended,
            self.mentions,
        ]
    }
}

/// The keys of one user.
#[derive(Clone, Debug)]
pub struct UserKeys {
    /// Stream of pointers, bounded by `log_max_entries`.
    pub log: String,
    /// Hash: `nonce` (birth), `last`, `trimmed` (entry ids), `g:<gateway>` → time in ms until which that gateway wants wake-ups.
    pub log_info: String,
    /// Hash: device → `<entry id> <used at ms>`.
    pub cursors: String,
    /// Sorted set: conversation ids scored by last activity (log ms × 4096 + n).
    pub index: String,
}

/// Keys of a shard; they live for ever.
#[must_use]
pub fn shard_info(shard: ShardId) -> String {
    // Hash: epoch, replid, state (closed|open), n (outbox counter), dispatched and archived (outbox ids).
    format!("shard:{{s{}}}", shard.0)
}

/// Stream: the shard's outbox, ids `<epoch>-<n>`, trimmed behind the slower of dispatch and archive.
#[must_use]
pub fn outbox(shard: ShardId) -> String {
    format!("outbox:{{s{}}}", shard.0)
}

/// String with a time to live: the worker that owns the shard.
#[must_use]
pub fn shard_lease(shard: ShardId) -> String {
    format!("lease:{{s{}}}", shard.0)
}

/// Hash: outbox id → entry that Postgres refused.
#[must_use]
pub fn aside(shard: ShardId) -> String {
    format!("aside:{{s{}}}", shard.0)
}

/// Sorted set: conversations whose keys are in Redis, scored by last use in ms.
#[must_use]
pub fn warm(shard: ShardId) -> String {
    format!("warm:{{s{}}}", shard.0)
}

/// String: the last outbox id of `shard` that was applied to this partition's logs; lives for ever.
#[must_use]
pub fn delivered_mark(partition: PartitionId, shard: ShardId) -> String {
    format!("mark:{{u{}}}:{}", partition.0, shard.0)
}

/// Stream of wake-ups for one gateway, bounded and short-lived.
#[must_use]
pub fn wakeups(gateway: &str) -> String {
    format!("wake:{{g{gateway}}}")
}

/// Set of the ids of all workers.
#[must_use]
pub fn workers() -> String {
    "workers:{w}".to_owned()
}

/// String with a time to live: one worker's sign of life.
#[must_use]
pub fn worker_alive(worker: &str) -> String {
    format!("worker:{{w}}:{worker}")
}

/// String that lives one minute: the write behind which `WAIT` waits, in the slot of `key`.
#[must_use]
pub fn wait_mark(key: &str) -> String {
    // As Redis reads it: what stands between the first { and the next }, if anything, else the whole key.
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag).filter(|tag| !tag.is_empty());
    format!("wait:{{{}}}", tag.unwrap_or(key))
}
