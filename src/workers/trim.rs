//! Drops from Redis what Postgres has and what is no longer recent: messages beyond the window, idempotency keys beyond theirs.
//!
//! Safe to run twice, and to forget what was to be trimmed: the script looks at the conversation itself, drops nothing that is not
//! archived, and whatever stays is dropped after the conversation's next messages or when it is cooled.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::WorkError;
use crate::actions::Stores;
use crate::actions::archive_outbox::Reach;
use crate::domain::ids::{ConversationId, Millis, ShardId};
use crate::redis::trim_window::{Trim, Trimmed, trim_window};

/// Batches after which a conversation that is in all of them is trimmed; between two trims its window grows by as many messages as those
/// batches brought.
const BATCHES_PER_TRIM: u32 = 8;
/// Conversations remembered between two trims.
const REMEMBERED_MAX: usize = 10_000;
/// Calls for one conversation in a row.
const CALLS_MAX: u32 = 100;

#[derive(Clone, Copy, Debug, Default)]
struct Due {
    reach: Reach,
    batches: u32,
}

/// Remembers which conversations are due.
#[derive(Debug)]
pub struct Trimmer {
    stores: Arc<Stores>,
    due: HashMap<ConversationId, Due>,
    /// Conversations of which something stands aside.
    aside: BTreeMap<ShardId, BTreeSet<ConversationId>>,
}

impl Trimmer {
    /// Nothing is due yet.
    #[must_use]
    pub fn new(stores: Arc<Stores>) -> Self {
        Self { stores, due: HashMap::new(), aside: BTreeMap::new() }
    }

    /// These, and no others of the shard, have something aside.
    pub fn set_aside(&mut self, shard: ShardId, conversations: BTreeSet<ConversationId>) {
        self.aside.insert(shard, conversations);
    }

    /// Something of these was set aside: they keep all they have.
    pub fn keep(&mut self, conversations: BTreeSet<ConversationId>) {
        for conversation in conversations {
            self.due.remove(&conversation);
            self.aside.entry(self.stores.keys.shard_of(&conversation)).or_default().insert(conversation);
        }
    }

    /// These are archived so far; those that are due are trimmed.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn reached(&mut self, reached: BTreeMap<ConversationId, Reach>) -> Result<(), WorkError> {
        for (conversation, reach) in reached {
            if self.aside.get(&self.stores.keys.shard_of(&conversation)).is_some_and(|aside| aside.contains(&conversation)) {
                continue;
            }
            let due = self.due.entry(conversation.clone()).or_default();
            let fresh = reach.seq.saturating_sub(due.reach.seq);
            due.reach = Reach { seq: due.reach.seq.max(reach.seq), rev: due.reach.rev.max(reach.rev) };
            due.batches += 1;
            if due.batches >= BATCHES_PER_TRIM || fresh >= self.stores.settings.window_messages.max(1) {
                let reach = due.reach;
                self.due.remove(&conversation);
                trim_conversation(&self.stores, &conversation, reach, self.stores.clock.now()).await?;
            }
        }
        if self.due.len() > REMEMBERED_MAX {
            self.trim_some(REMEMBERED_MAX / 10).await?;
        }
        Ok(())
    }

    /// Trims up to `count` conversations that are remembered.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn trim_some(&mut self, count: usize) -> Result<(), WorkError> {
        let some: Vec<ConversationId> = self.due.keys().take(count).cloned().collect();
        for conversation in some {
            if let Some(due) = self.due.remove(&conversation) {
                trim_conversation(&self.stores, &conversation, due.reach, self.stores.clock.now()).await?;
            }
        }
        Ok(())
    }
}

/// Trims one conversation that is archived up to `reach`. Returns how many messages left the window.
///
/// # Errors
/// When Redis does not answer.
pub async fn trim_conversation(stores: &Stores, conversation: &ConversationId, reach: Reach, now: Millis) -> Result<u64, WorkError> {
    let trim = Trim {
        archived_seq: reach.seq,
        archived_rev: reach.rev,
        window_messages: stores.settings.window_messages,
        now,
        key_window_ms: stores.settings.key_window.saturating_mul(1_000),
    };
    let mut dropped = 0;
    for _ in 0..CALLS_MAX {
        match trim_window(&stores.link, &stores.keys, conversation, &trim).await? {
            Trimmed::Dropped { messages, more, .. } => {
                dropped += messages;
                if !more {
                    break;
                }
            }
            Trimmed::Absent => break,
        }
    }
    Ok(dropped)
}
