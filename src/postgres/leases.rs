//! Leases: blocks of numbers that Redis may give out for one conversation in one epoch, and the voids that lost ones leave behind.
//!
//! ```text
//!            take_lease          mark_lease_installed            end_lease (cooling: head is known)
//!   (none) ───────────▶ proposed ───────────────────▶ installed ───────────────────────────────────▶ ended
//!                          │  asked again: the same block          │  asked again: `Installed`, nothing changes
//!                          └── another epoch asks: lost ───────────┴─ asked by one who says it is lost, or in another epoch: lost
//! ```
//! A lost lease's numbers above the archived head may have been seen by somebody, so they become a void, and the next block begins
//! above the whole block. A second asker before the mark gets the same block: two gateways racing on a first message would
//! otherwise start a chat at 10,001. One that asks after the mark may only be late: it found the conversation cold, another one
//! installed it meanwhile, and a void declared now would lie over numbers that are being given out. So it is told that there is a
//! lease, and must look for it in Redis once more; what is missing after the mark is lost, as it was installed before the mark.

use sqlx::{Connection, PgConnection};

use super::connection::{Archive, read, stored};
use super::error::{ArchiveError, Fault};
use super::imports::is_importing;
use crate::domain::ids::{ConversationId, Seq, ShardId};
use crate::metrics;

/// A block of numbers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The first number.
    pub from: Seq,
    /// The last number.
    pub to: Seq,
}

/// The answer to [`Archive::take_lease`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseGrant {
    /// These numbers; to be installed in Redis closed, marked with [`Archive::mark_lease_installed`], then opened.
    Granted(Lease),
    /// The lease that begins at this number was installed in this epoch. If it is not in Redis now, it is lost: ask again and say so.
    Installed(Seq),
    /// Old messages are being brought in; nobody gives out numbers meanwhile.
    Importing,
    /// The epoch is not the shard's living one.
    EpochClosed,
}

impl Archive {
    /// Takes a block of `block` numbers for a conversation that is not in Redis. `lost` names the lease that an earlier call found
    /// installed and that Redis did not have after that; whatever it may have given out above the archived head becomes a void.
    ///
    /// # Errors
    /// When the archive does not answer; asking again then gives the same block.
    pub async fn take_lease(
        &self,
        conversation: &ConversationId,
        shard: ShardId,
        epoch: u64,
        block: u64,
        lost: Option<Seq>,
    ) -> Result<LeaseGrant, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("take_lease", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                let (epoch, block) = (stored(epoch)?, stored(block.max(1))?);
                let mut tx = connection.begin().await?;
                if !epoch_lives(&mut tx, shard, epoch).await? {
                    return Ok(LeaseGrant::EpochClosed);
                }
                // A conversation without a lease has no row to lock. The seed keeps these locks apart from any others on hashes.
                sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1, 10001))")
                    .bind(conversation.as_str())
                    .execute(&mut *tx)
                    .await?;
                if is_importing(&mut tx, &conversation).await? {
                    return Ok(LeaseGrant::Importing);
                }
                let lost = lost.map(stored).transpose()?;
                let grant = propose(&mut tx, &conversation, (shard, epoch), block, lost).await?;
                tx.commit().await?;
                Ok(grant)
            })
        })
        .await
    }

    /// Notes that the block beginning at `from` stands in Redis. False when it was lost or ended meanwhile: then it must not be opened.
    /// Safe to repeat.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn mark_lease_installed(&self, conversation: &ConversationId, from: Seq) -> Result<bool, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("mark_lease_installed", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                let done = sqlx::query(
                    "UPDATE leases SET state = 'installed' WHERE conv_id = $1 AND from_seq = $2 AND state IN ('proposed', 'installed')",
                )
                .bind(conversation.as_str())
                .bind(stored(from)?)
                .execute(connection)
                .await?;
                Ok(done.rows_affected() == 1)
            })
        })
        .await
    }

    /// Lengthens the installed lease of `epoch` by `block` numbers and tells its new last number; `None` when there is no such lease
    /// any more. Run twice it lengthens twice, which wastes nothing: the numbers follow each other. Whether the epoch still lives
    /// does not matter: whoever closes it declares void up to the last number that stands here.
    ///
    /// # Errors
    /// When the archive does not answer; the lease in Redis stays as it is.
    pub async fn extend_lease(&self, conversation: &ConversationId, epoch: u64, block: u64) -> Result<Option<Seq>, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("extend_lease", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                let to: Option<(i64,)> = sqlx::query_as(
                    "UPDATE leases SET to_seq = to_seq + $3
                     WHERE conv_id = $1 AND state = 'installed' AND epoch = $2
                       AND from_seq = (SELECT max(from_seq) FROM leases WHERE conv_id = $1)
                     RETURNING to_seq",
                )
                .bind(conversation.as_str())
                .bind(stored(epoch)?)
                .bind(stored(block)?)
                .fetch_optional(connection)
                .await?;
                to.map(|(to,)| read(to)).transpose()
            })
        })
        .await
    }

    /// Ends the installed lease of `epoch` at `head`, the last number given out: the next one begins right above it. For a conversation
    /// that is closed in Redis and wholly archived. False when there is no such lease (it was lost meanwhile). Safe to repeat.
    ///
    /// # Errors
    /// When the archive does not answer; then the keys must stay.
    pub async fn end_lease(&self, conversation: &ConversationId, epoch: u64, head: Seq) -> Result<bool, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("end_lease", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                let (epoch, head) = (stored(epoch)?, stored(head)?);
                let mut tx = connection.begin().await?;
                // An ended one with the same end is this very call, run again.
                let ended = sqlx::query(
                    "UPDATE leases SET state = 'ended', end_seq = $3
                     WHERE conv_id = $1 AND epoch = $2 AND (state = 'installed' OR (state = 'ended' AND end_seq = $3))
                       AND from_seq = (SELECT max(from_seq) FROM leases WHERE conv_id = $1)",
                )
                .bind(conversation.as_str())
                .bind(epoch)
                .bind(head)
                .execute(&mut *tx)
                .await?
                .rows_affected()
                    == 1;
                if ended {
                    sqlx::query("UPDATE conversations SET head_seq = GREATEST(head_seq, $2) WHERE id = $1")
                        .bind(conversation.as_str())
                        .bind(head)
                        .execute(&mut *tx)
                        .await?;
                }
                tx.commit().await?;
                Ok(ended)
            })
        })
        .await
    }
}

/// Whether `epoch` is the shard's living one; holds it until the transaction ends, so that a new one cannot be opened meanwhile.
async fn epoch_lives(tx: &mut PgConnection, shard: ShardId, epoch: i64) -> Result<bool, Fault> {
    let living: Option<(i64,)> =
        sqlx::query_as("SELECT epoch FROM shard_epochs WHERE shard = $1 FOR SHARE").bind(i32::from(shard.0)).fetch_optional(tx).await?;
    Ok(living.is_some_and(|(living,)| living == epoch))
}

/// The block that a conversation gets now: proposed already or newly. The caller holds the conversation's lock.
async fn propose(
    tx: &mut PgConnection,
    conversation: &ConversationId,
    (shard, epoch): (ShardId, i64),
    block: i64,
    lost: Option<i64>,
) -> Result<LeaseGrant, Fault> {
    let newest: Option<(i64, i64, i64, String, Option<i64>)> = sqlx::query_as(
        "SELECT from_seq, to_seq, epoch, state, end_seq FROM leases WHERE conv_id = $1 ORDER BY from_seq DESC LIMIT 1 FOR UPDATE",
    )
    .bind(conversation.as_str())
    .fetch_optional(&mut *tx)
    .await?;
    // A message that stands aside is in no table, but the head that came with its batch is: its number is taken. So are those of a void,
    // above which nothing may have been said before the lease ended.
    let (head, void_end): (i64, i64) = sqlx::query_as(
        "SELECT GREATEST(COALESCE((SELECT max(seq) FROM messages WHERE conv_id = $1), 0),
                         COALESCE((SELECT head_seq FROM conversations WHERE id = $1), 0)),
                COALESCE((SELECT max(to_seq) FROM voids WHERE conv_id = $1), 0)",
    )
    .bind(conversation.as_str())
    .fetch_one(&mut *tx)
    .await?;
    let from = match newest {
        None => head.max(void_end) + 1,
        Some((_, _, _, _, Some(end))) => head.max(end).max(void_end) + 1,
        Some((from, to, of_epoch, state, _)) if state == "proposed" && of_epoch == epoch => return granted(from, to),
        Some((from, _, of_epoch, _, _)) if of_epoch == epoch && lost != Some(from) => return Ok(LeaseGrant::Installed(read(from)?)),
        Some((from, to, _, _, None)) => {
            close_lost(tx, conversation, from, to, head).await?;
            head.max(to).max(void_end) + 1
        }
    };
    let to = from.checked_add(block - 1).ok_or(Fault::Data("a lease beyond all numbers"))?;
    // A lease that ended before its first number was used leaves that number, and its row, to the next one.
    sqlx::query(
        "INSERT INTO leases AS l (conv_id, from_seq, to_seq, shard, epoch, state) VALUES ($1, $2, $3, $4, $5, 'proposed')
         ON CONFLICT (conv_id, from_seq) DO UPDATE
         SET to_seq = excluded.to_seq, shard = excluded.shard, epoch = excluded.epoch, state = 'proposed', end_seq = NULL
         WHERE l.state = 'ended'",
    )
    .bind(conversation.as_str())
    .bind(from)
    .bind(to)
    .bind(i32::from(shard.0))
    .bind(epoch)
    .execute(&mut *tx)
    .await?;
    granted(from, to)
}

fn granted(from: i64, to: i64) -> Result<LeaseGrant, Fault> {
    Ok(LeaseGrant::Granted(Lease { from: read(from)?, to: read(to)? }))
}

/// Declares void what a lost lease may have given out above the archived head, and ends it.
async fn close_lost(tx: &mut PgConnection, conversation: &ConversationId, from: i64, to: i64, head: i64) -> Result<(), Fault> {
    let void_from = from.max(head + 1);
    if void_from <= to {
        sqlx::query("INSERT INTO voids (conv_id, from_seq, to_seq) VALUES ($1, $2, $3)")
            .bind(conversation.as_str())
            .bind(void_from)
            .bind(to)
            .execute(&mut *tx)
            .await?;
        metrics::VOIDS.add(&[], 1);
    }
    sqlx::query("UPDATE leases SET state = 'ended', end_seq = $3 WHERE conv_id = $1 AND from_seq = $2")
        .bind(conversation.as_str())
        .bind(from)
        .bind(void_from - 1)
        .execute(tx)
        .await?;
    Ok(())
}
