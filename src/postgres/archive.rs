//! The archive's batches: what Redis accepted, written for good in one transaction, any number of times with one result.
//!
//! A batch may come twice, overlap another, or arrive after a newer one: workers may be killed after a commit and before they moved
//! their cursor, and two may own one shard by accident. So every row says which version it is, and the higher version stands.
//!
//! | table | version | what a later lower one changes |
//! |---|---|---|
//! | messages | `rev` of the same `id` | nothing |
//! | conversations | head, rev, updated_at each by their own maximum; the facts by `facts_rev` | nothing |
//! | members | `rev` | nothing |
//! | read_marks | `seq` | nothing |
//! | preferences, blocks | `rev` | nothing |
//! | webhook_queue | the conversation's `rev` before the batch | nothing |
//! | push_lines | `head_seq` | nothing |
//!
//! The batch first locks the epochs it was read in. If one of them was closed meanwhile, nothing at all is written: the numbers above
//! the archived head may have been declared void, and a message must not appear in a void.

use std::collections::BTreeMap;
use std::sync::Arc;

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::blocks::{BlockRow, write_blocks};
use super::connection::{Archive, stored};
use super::error::{ArchiveError, Fault};
use super::message_versions::write_versions;
use super::preferences::{PreferencesRow, write_preferences};
use super::push_queue::PushRow;
use super::webhooks::WebhookRow;
use super::{push_queue, webhooks, write_facts, write_media, write_messages};
use crate::domain::conversation::History;
use crate::domain::ids::{ConversationId, Millis, Rev, Seq, ShardId, UserId};
use crate::domain::membership::Role;
use crate::domain::message::Message;

/// Where a part of a batch was read: the epoch and the live `master_replid` of the server then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The shard.
    pub shard: ShardId,
    /// Its epoch.
    pub epoch: u64,
    /// The server.
    pub server_id: String,
}

/// A conversation's facts as they were after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationFacts {
    /// Title.
    pub title: Option<String>,
    /// A group's owner.
    pub owner: Option<UserId>,
    /// A single conversation's users, bytewise ascending.
    pub pair: Option<(UserId, UserId)>,
    /// What new members see.
    pub history: History,
    /// When it was made.
    pub created_at: Millis,
    /// Whether it has ended.
    pub dissolved: bool,
}

/// How far a conversation has come; any number of rows of one conversation may stand in a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationRow {
    /// Its id.
    pub id: ConversationId,
    /// Its shard.
    pub shard: ShardId,
    /// Its facts, when the change told them; they are as new as `rev`.
    pub facts: Option<ConversationFacts>,
    /// The highest seq known at this change, 0 for none.
    pub head_seq: Seq,
    /// The change.
    pub rev: Rev,
    /// When.
    pub updated_at: Millis,
}

/// A membership interval after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRow {
    /// Where.
    pub conv: ConversationId,
    /// Who.
    pub user: UserId,
    /// Standing.
    pub role: Role,
    /// When the interval began.
    pub joined_at: Millis,
    /// Seq of the join.
    pub joined_seq: Seq,
    /// Rev of the join.
    pub joined_rev: Rev,
    /// Rev of the end; `None` while a member.
    pub left_rev: Option<Rev>,
    /// Rev of the change that brought this state: a new role keeps `joined_rev`, so that alone cannot tell which row is newer.
    pub rev: Rev,
}

/// A watermark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRow {
    /// Where.
    pub conv: ConversationId,
    /// Whose.
    pub user: UserId,
    /// Up to here.
    pub seq: Seq,
    /// Since when.
    pub at: Millis,
}

/// A message's words before they were changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRow {
    /// Where.
    pub conv: ConversationId,
    /// Which message.
    pub seq: Seq,
    /// Its id, where it is not certain yet that the number is its own; without it in the archive the version is not written.
    pub message: Option<Uuid>,
    /// Rev of the message then.
    pub rev: Rev,
    /// Since when these words had stood.
    pub at: Millis,
    /// The words.
    pub body: String,
    /// Ids of its pictures.
    pub media: Vec<Uuid>,
}

/// Numbers that will never hold a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoidRow {
    /// Where.
    pub conv: ConversationId,
    /// The first.
    pub from: Seq,
    /// The last.
    pub to: Seq,
}

/// What is written together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArchiveBatch {
    /// Where it was read.
    pub sources: Vec<Source>,
    /// Messages in their whole state; several versions of one are reduced to the newest.
    pub messages: Vec<Message>,
    /// Conversations.
    pub conversations: Vec<ConversationRow>,
    /// Memberships.
    pub members: Vec<MemberRow>,
    /// Watermarks; those that senders move by sending need not be named.
    pub reads: Vec<ReadRow>,
    /// Events for the host application; none when webhooks are off.
    pub events: Vec<WebhookRow>,
    /// Whether it holds what stood aside while its conversations went on: their revs do not tell then which events are new.
    pub late: bool,
    /// Messages that browsers may have to be woken for; none when push is off.
    pub pushes: Vec<PushRow>,
    /// Words that were changed since.
    pub versions: Vec<VersionRow>,
    /// Preferences that were set.
    pub preferences: Vec<PreferencesRow>,
    /// Blocks that were set or lifted.
    pub blocks: Vec<BlockRow>,
    /// Numbers that were passed.
    pub voids: Vec<VoidRow>,
}

/// Another message stands on this number already. Nothing was overwritten.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// Where.
    pub conv: ConversationId,
    /// The number.
    pub seq: Seq,
    /// The message of the batch.
    pub ours: Uuid,
    /// The message that stands there.
    pub theirs: Uuid,
}

/// The sender's key names a message on another number already. Nothing was overwritten.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyConflict {
    /// Where.
    pub conv: ConversationId,
    /// The number in the batch.
    pub seq: Seq,
    /// The message of the batch.
    pub ours: Uuid,
    /// The number that the key names.
    pub their_seq: Seq,
    /// The message that the key names.
    pub theirs: Uuid,
}

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchOutcome {
    /// Shards whose epoch is not the batch's; nothing was written when there is one.
    pub stale: Vec<ShardId>,
    /// Messages that were new.
    pub inserted: u64,
    /// Messages that stood there in this version or a newer one.
    pub replayed: u64,
    /// Messages that stood there in an older version.
    pub updated: u64,
    /// Messages whose number another one has.
    pub conflicts: Vec<Conflict>,
    /// Messages whose key another one has.
    pub key_conflicts: Vec<KeyConflict>,
}

impl BatchOutcome {
    /// Whether this message of the batch was not written on this number, because the number or its key is another one's.
    #[must_use]
    pub fn is_lost(&self, conversation: &ConversationId, seq: Seq, id: Uuid) -> bool {
        self.conflicts.iter().any(|c| c.conv == *conversation && c.seq == seq && c.ours == id)
            || self.key_conflicts.iter().any(|c| c.conv == *conversation && c.seq == seq && c.ours == id)
    }
}

impl Archive {
    /// Writes a batch in one transaction. Safe to repeat.
    ///
    /// # Errors
    /// [`ArchiveError::Refused`] when a row cannot be stored (nothing was written; halve the batch to find it),
    /// [`ArchiveError::Unavailable`] when the archive does not answer (it may have been written all the same).
    pub async fn write_batch(&self, batch: &ArchiveBatch) -> Result<BatchOutcome, ArchiveError> {
        let plan = Arc::new(Reduced::of(batch.clone()));
        self.unit("write_batch", move |connection| {
            let plan = Arc::clone(&plan);
            Box::pin(async move { write(connection, &plan).await })
        })
        .await
    }
}

async fn write(connection: &mut PgConnection, plan: &Reduced) -> Result<BatchOutcome, Fault> {
    let mut tx = connection.begin().await?;
    let stale = stale_sources(&mut tx, &plan.sources).await?;
    if !stale.is_empty() {
        tx.rollback().await?;
        return Ok(BatchOutcome { stale, ..BatchOutcome::default() });
    }
    // The same order of tables and of rows in every transaction: two writers can wait for each other, but never in a circle.
    let outcome = write_messages::write_messages(&mut tx, &plan.messages).await?;
    write_media::write_references(&mut tx, &plan.messages).await?;
    let moved = plan.marks_after(&outcome);
    webhooks::queue(&mut tx, &plan.events, plan.late, &outcome).await?;
    push_queue::note(&mut tx, &plan.pushes, &outcome).await?;
    write_facts::write_conversations(&mut tx, plan.conversations.values()).await?;
    write_facts::write_members(&mut tx, plan.members.values()).await?;
    write_facts::write_reads(&mut tx, &moved).await?;
    write_preferences(&mut tx, plan.preferences.values()).await?;
    write_blocks(&mut tx, plan.blocks.values()).await?;
    write_versions(&mut tx, plan.versions.iter().filter(|v| v.message.is_none_or(|id| !outcome.is_lost(&v.conv, v.seq, id)))).await?;
    write_facts::write_voids(&mut tx, &plan.voids).await?;
    tx.commit().await?;
    Ok(outcome)
}

/// Locks the epochs of the sources against being closed before this transaction ends, and names the shards that are not as expected.
async fn stale_sources(tx: &mut PgConnection, sources: &[Source]) -> Result<Vec<ShardId>, Fault> {
    let shards: Vec<i32> = sources.iter().map(|s| i32::from(s.shard.0)).collect();
    let living: Vec<(i32, i64, String)> =
        sqlx::query_as("SELECT shard, epoch, server_id FROM shard_epochs WHERE shard = ANY($1) ORDER BY shard FOR SHARE")
            .bind(shards)
            .fetch_all(tx)
            .await?;
    let mut stale = Vec::new();
    for source in sources {
        let epoch = stored(source.epoch)?;
        let lives =
            living.iter().any(|(shard, e, server)| *shard == i32::from(source.shard.0) && *e == epoch && *server == source.server_id);
        if !lives && !stale.contains(&source.shard) {
            stale.push(source.shard);
        }
    }
    Ok(stale)
}

/// A conversation's rows of a batch, united.
#[derive(Clone, Debug)]
pub(super) struct ConversationState {
    pub(super) id: ConversationId,
    pub(super) shard: ShardId,
    pub(super) facts: Option<(Rev, ConversationFacts)>,
    pub(super) head_seq: Seq,
    pub(super) rev: Rev,
    pub(super) updated_at: Millis,
}

/// A watermark by whose it is.
pub(super) type Marks = BTreeMap<(ConversationId, UserId), (Seq, Millis)>;

/// A batch with one row for each thing, sorted by the tables' keys, which is the order in which they are locked.
struct Reduced {
    sources: Vec<Source>,
    messages: Vec<Message>,
    conversations: BTreeMap<ConversationId, ConversationState>,
    members: BTreeMap<(ConversationId, UserId), MemberRow>,
    reads: Marks,
    events: BTreeMap<(ConversationId, Rev, u16), WebhookRow>,
    late: bool,
    pushes: Vec<PushRow>,
    versions: Vec<VersionRow>,
    preferences: BTreeMap<(ConversationId, UserId), PreferencesRow>,
    blocks: BTreeMap<(UserId, UserId), BlockRow>,
    voids: Vec<VoidRow>,
}

impl Reduced {
    fn of(batch: ArchiveBatch) -> Self {
        let mut messages: BTreeMap<(ConversationId, Seq, Uuid), Message> = BTreeMap::new();
        for message in batch.messages {
            let key = (message.conversation.clone(), message.seq, message.id);
            match messages.get(&key) {
                Some(known) if known.rev >= message.rev => {}
                _ => drop(messages.insert(key, message)),
            }
        }
        let mut conversations: BTreeMap<ConversationId, ConversationState> = BTreeMap::new();
        for row in batch.conversations {
            let facts = row.facts.map(|facts| (row.rev, facts));
            let state = conversations.entry(row.id.clone()).or_insert_with(|| ConversationState {
                id: row.id,
                shard: row.shard,
                facts: None,
                head_seq: 0,
                rev: 0,
                updated_at: row.updated_at,
            });
            state.head_seq = state.head_seq.max(row.head_seq);
            state.rev = state.rev.max(row.rev);
            state.updated_at = state.updated_at.max(row.updated_at);
            if let Some((rev, facts)) = facts
                && state.facts.as_ref().is_none_or(|(known, _)| *known < rev)
            {
                state.facts = Some((rev, facts));
            }
        }
        let members = newest(batch.members, |row: &MemberRow| (row.conv.clone(), row.user.clone()), |row| row.rev);
        let mut reads = Marks::new();
        for row in batch.reads {
            raise(&mut reads, row.conv, row.user, row.seq, row.at);
        }
        let events = batch.events.into_iter().map(|row| ((row.conv.clone(), row.rev, row.place), row)).collect();
        let messages = messages.into_values().collect();
        // In the order of the table's key, like everything else: two writers of the same edits must not wait for each other in a circle.
        let mut versions = batch.versions;
        versions.sort_by(|a, b| (&a.conv, a.seq, a.rev).cmp(&(&b.conv, b.seq, b.rev)));
        let preferences = newest(batch.preferences, |row| (row.conv.clone(), row.user.clone()), |row| row.rev);
        let blocks = newest(batch.blocks, |row| (row.blocker.clone(), row.blocked.clone()), |row| row.rev);
        let mut voids = batch.voids;
        voids.sort_by(|a, b| (&a.conv, a.from).cmp(&(&b.conv, b.from)));
        let (sources, late, pushes) = (batch.sources, batch.late, batch.pushes);
        Self { sources, messages, conversations, members, reads, events, late, pushes, versions, preferences, blocks, voids }
    }

    /// The batch's watermarks and those that its senders moved by sending what now stands in the archive.
    fn marks_after(&self, outcome: &BatchOutcome) -> Marks {
        let mut marks = self.reads.clone();
        let lost = |message: &Message| outcome.is_lost(&message.conversation, message.seq, message.id);
        for message in &self.messages {
            // Who sends has read up to there; the timeline has no key and is nobody's sending.
            if message.client_id.is_some() && !lost(message) {
                raise(&mut marks, message.conversation.clone(), message.sender.clone(), message.seq, message.created_at);
            }
        }
        marks
    }
}

/// Of several rows about one thing the newest.
fn newest<K: Ord, R>(rows: Vec<R>, key_of: impl Fn(&R) -> K, rev_of: impl Fn(&R) -> Rev) -> BTreeMap<K, R> {
    let mut newest: BTreeMap<K, R> = BTreeMap::new();
    for row in rows {
        let key = key_of(&row);
        match newest.get(&key) {
            Some(known) if rev_of(known) >= rev_of(&row) => {}
            _ => drop(newest.insert(key, row)),
        }
    }
    newest
}

fn raise(marks: &mut Marks, conversation: ConversationId, user: UserId, seq: Seq, at: Millis) {
    let mark = marks.entry((conversation, user)).or_insert((seq, at));
    // Of two times for one place the earlier stands, so that the result does not hang on the order of arrival.
    if seq > mark.0 || (seq == mark.0 && at < mark.1) {
        *mark = (seq, at);
    }
}
