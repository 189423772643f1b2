//! Who gets an event: the members whose interval contains its rev, whoever is a member when it is dispatched.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::WorkError;
use crate::actions::Stores;
use crate::domain::ids::{ConversationId, Rev, UserId};
use crate::redis::read_intervals::{Intervals, read_intervals};

/// Intervals that a process remembers, over all conversations; about 100 bytes each.
const REMEMBERED_MAX: u64 = 200_000;
/// Members asked for in one step when a conversation has left Redis.
const PAGE: u64 = 1_000;

#[derive(Clone, Debug)]
struct ByMembers;

impl Weighter<ConversationId, Arc<Intervals>> for ByMembers {
    fn weight(&self, _: &ConversationId, intervals: &Arc<Intervals>) -> u64 {
        intervals.intervals.len() as u64 + 4
    }
}

/// Intervals by conversation, remembered as long as no later change of membership is dispatched.
#[derive(Debug)]
pub struct Recipients {
    stores: Arc<Stores>,
    known: Cache<ConversationId, Arc<Intervals>, ByMembers>,
}

/// Who gets an entry's events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Each once.
    pub users: Vec<UserId>,
    /// Whether ended intervals of this conversation wait to be forgotten.
    pub has_ended: bool,
}

impl Recipients {
    /// An empty memory.
    #[must_use]
    pub fn new(stores: Arc<Stores>) -> Self {
        Self { stores, known: Cache::with_weighter(4_096, REMEMBERED_MAX, ByMembers) }
    }

    /// The users whose interval contains `rev`, an entry made at membership version `members_version`.
    ///
    /// What was read at a version serves every entry up to that version: later joins begin above its rev, and whoever left since
    /// stands among the ended ones until dispatch has passed the leaving.
    ///
    /// # Errors
    /// When a store does not answer.
    pub async fn of(&self, conversation: &ConversationId, rev: Rev, members_version: u64) -> Result<Found, WorkError> {
        if let Some(known) = self.known.get(conversation)
            && known.members_version >= members_version
        {
            return Ok(pick(&known, rev));
        }
        if let Some(read) = read_intervals(&self.stores.link, &self.stores.keys, conversation).await? {
            let read = Arc::new(read);
            self.known.insert(conversation.clone(), Arc::clone(&read));
            return Ok(pick(&read, rev));
        }
        // The keys are gone although not all was dispatched (a server that lost them, an epoch that began anew): the archive still knows
        // who belongs to the conversation.
        let mut users: Vec<UserId> = Vec::new();
        loop {
            let page = self.stores.archive.members_page(conversation, users.last(), PAGE).await?;
            let full = page.len() as u64 >= PAGE;
            users.extend(page.into_iter().map(|member| member.user));
            if !full {
                return Ok(Found { users, has_ended: false });
            }
        }
    }
}

fn pick(intervals: &Intervals, rev: Rev) -> Found {
    let mut users: Vec<UserId> =
        intervals.intervals.iter().filter(|interval| interval.contains(rev)).map(|interval| interval.user.clone()).collect();
    if intervals.has_ended {
        users.sort_unstable();
        users.dedup();
    }
    Found { users, has_ended: intervals.has_ended }
}
