//! Requests to erase users, and how far each has come.
//!
//! A claim is a time in a row under a token that nobody else has. It is only there so that workers do not do each other's work: every step
//! may be done twice, at once or again, and what a worker leaves half done is begun again from the last place that was written down.

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::connection::{Archive, bound, read, read_conversation, read_user, stored};
use super::error::{ArchiveError, Fault};
use crate::domain::erasure::Erasure;
use crate::domain::ids::{ConversationId, Millis, Seq, UserId};

/// A request that a worker has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedErasure {
    /// The request.
    pub erasure: Erasure,
    /// Whether the conversations were written down that are to be gone through.
    pub listed: bool,
    /// The claim.
    pub claim: Uuid,
}

/// A conversation that is still to be gone through, and how far that has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErasureStep {
    /// Where.
    pub conversation: ConversationId,
    /// Whether the user is out of it.
    pub has_left: bool,
    /// Messages from here up are done.
    pub below: Seq,
    /// Messages of which readers were told one by one.
    pub told: u64,
    /// One of the others.
    pub untold: Option<Seq>,
}

type Row = (String, String, Millis, Option<Millis>, i64);

fn into_erasure((user, asked_by, asked_at, finished_at, messages): Row) -> Result<Erasure, Fault> {
    Ok(Erasure { user: read_user(&user)?, asked_by: read_user(&asked_by)?, asked_at, finished_at, messages: read(messages)? })
}

impl Archive {
    /// Notes a request, unless one about this user is under way. Profile, pictures and subscriptions to pushes are gone with it.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn begin_erasure(&self, user: &UserId, asked_by: &UserId, now: Millis) -> Result<Erasure, ArchiveError> {
        let (user, asked_by) = (user.clone(), asked_by.clone());
        self.unit("begin_erasure", move |connection| {
            let (user, asked_by) = (user.clone(), asked_by.clone());
            Box::pin(async move {
                let mut tx = connection.begin().await?;
                sqlx::query(
                    "INSERT INTO erasures AS e (user_id, asked_by, asked_at_ms, free_at_ms) VALUES ($1, $2, $3, 0)
                     ON CONFLICT (user_id) DO UPDATE SET asked_by = excluded.asked_by, asked_at_ms = excluded.asked_at_ms,
                         finished_at_ms = NULL, listed = false, messages = 0, free_at_ms = 0, claim = NULL
                     WHERE e.finished_at_ms IS NOT NULL",
                )
                .bind(user.as_str())
                .bind(asked_by.as_str())
                .bind(now)
                .execute(&mut *tx)
                .await?;
                sqlx::query("DELETE FROM profiles WHERE user_id = $1").bind(user.as_str()).execute(&mut *tx).await?;
                sqlx::query("DELETE FROM push_subscriptions WHERE user_id = $1").bind(user.as_str()).execute(&mut *tx).await?;
                sweep_pictures(&mut tx, &user, now).await?;
                let row: Row =
                    sqlx::query_as("SELECT user_id, asked_by, asked_at_ms, finished_at_ms, messages FROM erasures WHERE user_id = $1")
                        .bind(user.as_str())
                        .fetch_one(&mut *tx)
                        .await?;
                tx.commit().await?;
                into_erasure(row)
            })
        })
        .await
    }

    /// The newest request about a user.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn erasure_of(&self, user: &UserId) -> Result<Option<Erasure>, ArchiveError> {
        let user = user.clone();
        self.unit("erasure_of", move |connection| {
            let user = user.clone();
            Box::pin(async move {
                let row: Option<Row> =
                    sqlx::query_as("SELECT user_id, asked_by, asked_at_ms, finished_at_ms, messages FROM erasures WHERE user_id = $1")
                        .bind(user.as_str())
                        .fetch_optional(connection)
                        .await?;
                row.map(into_erasure).transpose()
            })
        })
        .await
    }

    /// Claims for `hold_ms` the request that has waited longest.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn claim_erasure(&self, claim: Uuid, hold_ms: u64) -> Result<Option<ClaimedErasure>, ArchiveError> {
        self.unit("claim_erasure", move |connection| {
            Box::pin(async move {
                let row: Option<(String, String, Millis, i64, bool)> = sqlx::query_as(
                    "WITH free AS (
                         SELECT user_id FROM erasures
                         WHERE finished_at_ms IS NULL AND free_at_ms <= (extract(epoch FROM statement_timestamp()) * 1000)::bigint
                         ORDER BY free_at_ms LIMIT 1 FOR UPDATE SKIP LOCKED)
                     UPDATE erasures AS e SET claim = $1, free_at_ms = (extract(epoch FROM statement_timestamp()) * 1000)::bigint + $2
                     FROM free WHERE e.user_id = free.user_id
                     RETURNING e.user_id, e.asked_by, e.asked_at_ms, e.messages, e.listed",
                )
                .bind(claim)
                .bind(bound(hold_ms))
                .fetch_optional(connection)
                .await?;
                let Some((user, asked_by, asked_at, messages, listed)) = row else { return Ok(None) };
                let erasure = into_erasure((user, asked_by, asked_at, None, messages))?;
                Ok(Some(ClaimedErasure { erasure, listed, claim }))
            })
        })
        .await
    }

    /// Holds a claim for another `hold_ms` and counts messages that were blanked; false when somebody else has the request by now.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn hold_erasure(&self, user: &UserId, claim: Uuid, hold_ms: u64, blanked: u64) -> Result<bool, ArchiveError> {
        let user = user.clone();
        self.unit("hold_erasure", move |connection| {
            let user = user.clone();
            Box::pin(async move {
                let done = sqlx::query(
                    "UPDATE erasures SET free_at_ms = (extract(epoch FROM statement_timestamp()) * 1000)::bigint + $3, messages = messages + $4
                     WHERE user_id = $1 AND claim = $2 AND finished_at_ms IS NULL",
                )
                .bind(user.as_str())
                .bind(claim)
                .bind(bound(hold_ms))
                .bind(stored(blanked)?)
                .execute(connection)
                .await?;
                Ok(done.rows_affected() == 1)
            })
        })
        .await
    }

    /// Writes down every conversation in which something of the user may be: where they are or were a member, where they have a watermark
    /// (as whoever sends does), and where old messages of theirs were brought in.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn list_erasure_steps(&self, user: &UserId, claim: Uuid) -> Result<(), ArchiveError> {
        let user = user.clone();
        self.unit("list_erasure_steps", move |connection| {
            let user = user.clone();
            Box::pin(async move {
                let mut tx = connection.begin().await?;
                let mine = sqlx::query("UPDATE erasures SET listed = true WHERE user_id = $1 AND claim = $2 AND finished_at_ms IS NULL")
                    .bind(user.as_str())
                    .bind(claim)
                    .execute(&mut *tx)
                    .await?;
                if mine.rows_affected() == 1 {
                    sqlx::query(
                        "INSERT INTO erasure_steps (user_id, conv_id)
                         SELECT $1, conv_id FROM members WHERE user_id = $1
                         UNION SELECT $1, conv_id FROM read_marks WHERE user_id = $1
                         UNION SELECT $1, conv_id FROM import_senders WHERE user_id = $1
                         ON CONFLICT DO NOTHING",
                    )
                    .bind(user.as_str())
                    .execute(&mut *tx)
                    .await?;
                }
                tx.commit().await?;
                Ok(())
            })
        })
        .await
    }

    /// The conversation that comes next: first those that failed the least, of these those that the user is still to leave.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn next_erasure_step(&self, user: &UserId) -> Result<Option<ErasureStep>, ArchiveError> {
        let user = user.clone();
        self.unit("next_erasure_step", move |connection| {
            let user = user.clone();
            Box::pin(async move {
                let row: Option<(String, bool, i64, i64, Option<i64>)> = sqlx::query_as(
                    "SELECT conv_id, has_left, below_seq, told, untold_seq FROM erasure_steps
                     WHERE user_id = $1 ORDER BY failures, has_left, conv_id LIMIT 1",
                )
                .bind(user.as_str())
                .fetch_optional(connection)
                .await?;
                let Some((conversation, has_left, below, told, untold)) = row else { return Ok(None) };
                Ok(Some(ErasureStep {
                    conversation: read_conversation(&conversation)?,
                    has_left,
                    below: read(below)?,
                    told: read(told)?,
                    untold: untold.map(read).transpose()?,
                }))
            })
        })
        .await
    }

    /// Writes down how far a conversation has come. Only ever downwards, so that a slower worker takes nothing back.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn put_erasure_step(&self, user: &UserId, step: &ErasureStep) -> Result<(), ArchiveError> {
        let (user, step) = (user.clone(), step.clone());
        self.unit("put_erasure_step", move |connection| {
            let (user, step) = (user.clone(), step.clone());
            Box::pin(async move {
                sqlx::query(
                    "UPDATE erasure_steps SET has_left = has_left OR $3, below_seq = LEAST(below_seq, $4), told = GREATEST(told, $5),
                                              untold_seq = COALESCE($6, untold_seq)
                     WHERE user_id = $1 AND conv_id = $2",
                )
                .bind(user.as_str())
                .bind(step.conversation.as_str())
                .bind(step.has_left)
                .bind(stored(step.below)?)
                .bind(stored(step.told)?)
                .bind(step.untold.map(stored).transpose()?)
                .execute(connection)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// Puts a conversation behind the others, because it cannot be changed for the time.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn put_off_erasure_step(&self, user: &UserId, conversation: &ConversationId) -> Result<(), ArchiveError> {
        let (user, conversation) = (user.clone(), conversation.clone());
        self.unit("put_off_erasure_step", move |connection| {
            let (user, conversation) = (user.clone(), conversation.clone());
            Box::pin(async move {
                sqlx::query("UPDATE erasure_steps SET failures = failures + 1 WHERE user_id = $1 AND conv_id = $2")
                    .bind(user.as_str())
                    .bind(conversation.as_str())
                    .execute(connection)
                    .await?;
                Ok(())
            })
        })
        .await
    }

    /// Takes a conversation off the list that was gone through.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn end_erasure_step(&self, user: &UserId, conversation: &ConversationId) -> Result<(), ArchiveError> {
        let (user, conversation) = (user.clone(), conversation.clone());
        self.unit("end_erasure_step", move |connection| {
            let (user, conversation) = (user.clone(), conversation.clone());
            Box::pin(async move {
                // Of a pair the floor below which somebody who comes back sees nothing stays.
                sqlx::query(
                    "DELETE FROM preferences AS p WHERE p.conv_id = $1 AND p.user_id = $2
                     AND NOT EXISTS (SELECT 1 FROM members AS m WHERE m.conv_id = $1 AND m.user_id = $2 AND m.left_rev IS NULL)",
                )
                .bind(conversation.as_str())
                .bind(user.as_str())
                .execute(&mut *connection)
                .await?;
                sqlx::query("DELETE FROM erasure_steps WHERE conv_id = $1 AND user_id = $2")
                    .bind(conversation.as_str())
                    .bind(user.as_str())
                    .execute(connection)
                    .await?;
                Ok(())
            })
        })
        .await
    }

    /// Notes that everything is done, if nothing is left on the list. What tokens claimed meanwhile goes with it; what the service set
    /// after the request stays.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn finish_erasure(&self, user: &UserId, claim: Uuid, now: Millis) -> Result<bool, ArchiveError> {
        let user = user.clone();
        self.unit("finish_erasure", move |connection| {
            let user = user.clone();
            Box::pin(async move {
                let mut tx = connection.begin().await?;
                sqlx::query("DELETE FROM profiles WHERE user_id = $1 AND NOT name_set AND NOT avatar_set")
                    .bind(user.as_str())
                    .execute(&mut *tx)
                    .await?;
                // A device that came back meanwhile.
                sqlx::query("DELETE FROM push_subscriptions WHERE user_id = $1").bind(user.as_str()).execute(&mut *tx).await?;
                sqlx::query("DELETE FROM group_reservations WHERE creator = $1").bind(user.as_str()).execute(&mut *tx).await?;
                let done = sqlx::query(
                    "UPDATE erasures SET finished_at_ms = $3, claim = NULL WHERE user_id = $1 AND claim = $2 AND finished_at_ms IS NULL
                     AND NOT EXISTS (SELECT 1 FROM erasure_steps WHERE user_id = $1)",
                )
                .bind(user.as_str())
                .bind(claim)
                .bind(now)
                .execute(&mut *tx)
                .await?;
                tx.commit().await?;
                Ok(done.rows_affected() == 1)
            })
        })
        .await
    }
}

/// Marks the user's pictures as being removed: nobody sees or sends them any more.
async fn sweep_pictures(tx: &mut PgConnection, user: &UserId, now: Millis) -> Result<(), Fault> {
    // In the order of the key, as everybody locks these rows.
    sqlx::query("SELECT 1 FROM media WHERE owner = $1 AND state <> 'sweeping' ORDER BY id FOR UPDATE")
        .bind(user.as_str())
        .execute(&mut *tx)
        .await?;
    sqlx::query("UPDATE media SET state = 'sweeping', check_at_ms = $2 WHERE owner = $1 AND state <> 'sweeping'")
        .bind(user.as_str())
        .bind(now)
        .execute(tx)
        .await?;
    Ok(())
}
