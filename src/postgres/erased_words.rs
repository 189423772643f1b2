//! What the archive holds of a user, found and blanked. The messages themselves are blanked where they are numbered, in the live state, and
//! come here as every change does; here goes what stands beside them.

use sqlx::Connection;
use uuid::Uuid;

use super::connection::{Archive, read, stored};
use super::error::ArchiveError;
use crate::domain::ids::{ConversationId, Rev, Seq, UserId};

/// A part of a conversation that was looked through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookedThrough {
    /// Messages that the user wrote or reacted to, the newest first.
    pub found: Vec<Seq>,
    /// The lowest number that was looked at; `None` when there was none.
    pub lowest: Option<Seq>,
}

/// An event for the host application that shows a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedWords {
    /// Rev of the change that it tells of.
    pub rev: Rev,
    /// Its place among the change's events.
    pub place: u16,
    /// As JSON.
    pub body: String,
}

impl Archive {
    /// Looks through the `rows` messages below a number for what a user wrote or reacted to.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn look_for_user(
        &self,
        conversation: &ConversationId,
        user: &UserId,
        below: Seq,
        rows: u64,
    ) -> Result<LookedThrough, ArchiveError> {
        let (conversation, user) = (conversation.clone(), user.clone());
        self.unit("look_for_user", move |connection| {
            let (conversation, user) = (conversation.clone(), user.clone());
            Box::pin(async move {
                let (lowest, found): (Option<i64>, Vec<i64>) = sqlx::query_as(
                    "WITH part AS MATERIALIZED (
                         SELECT m.seq, m.kind <> 'system' AND (m.sender = $2 OR EXISTS (
                                    SELECT 1 FROM jsonb_array_elements(m.content -> 'reactions') AS r WHERE r -> 1 ? $2)) AS is_found
                         FROM messages AS m WHERE m.conv_id = $1 AND m.seq < $3 ORDER BY m.seq DESC LIMIT $4)
                     SELECT min(seq), COALESCE(array_agg(seq ORDER BY seq DESC) FILTER (WHERE is_found), '{}') FROM part",
                )
                .bind(conversation.as_str())
                .bind(user.as_str())
                .bind(stored(below)?)
                .bind(stored(rows)?)
                .fetch_one(connection)
                .await?;
                let found = found.into_iter().map(read).collect::<Result<_, _>>()?;
                Ok(LookedThrough { found, lowest: lowest.map(read).transpose()? })
            })
        })
        .await
    }

    /// Forgets what stands beside messages of a user that were taken back: what they said before they were changed, what they are found
    /// by, and the fingerprints by which few words could be guessed. To be called when their last change is archived.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn forget_words(&self, conversation: &ConversationId, user: &UserId, seqs: &[Seq]) -> Result<(), ArchiveError> {
        let (conversation, user, seqs) = (conversation.clone(), user.clone(), seqs.to_vec());
        self.unit("forget_words", move |connection| {
            let (conversation, user) = (conversation.clone(), user.clone());
            let seqs = seqs.iter().map(|seq| stored(*seq)).collect::<Result<Vec<_>, _>>();
            Box::pin(async move {
                let seqs = seqs?;
                let mut tx = connection.begin().await?;
                // In the order of the key, as the archive's batches lock these rows; the messages first, as they do.
                let own: Vec<(i64,)> = sqlx::query_as(
                    "SELECT seq FROM messages WHERE conv_id = $1 AND seq = ANY($2) AND sender = $3 AND deleted_at_ms IS NOT NULL
                     ORDER BY seq FOR UPDATE",
                )
                .bind(conversation.as_str())
                .bind(&seqs)
                .bind(user.as_str())
                .fetch_all(&mut *tx)
                .await?;
                let own: Vec<i64> = own.into_iter().map(|(seq,)| seq).collect();
                sqlx::query("UPDATE messages SET fingerprint = NULL WHERE conv_id = $1 AND seq = ANY($2) AND fingerprint IS NOT NULL")
                    .bind(conversation.as_str())
                    .bind(&own)
                    .execute(&mut *tx)
                    .await?;
                sqlx::query("DELETE FROM message_versions WHERE conv_id = $1 AND seq = ANY($2)")
                    .bind(conversation.as_str())
                    .bind(&own)
                    .execute(&mut *tx)
                    .await?;
                // A row without terms, so that a slower round of the index cannot bring older ones back.
                sqlx::query(
                    "INSERT INTO message_terms AS t (conv_id, created_at_ms, seq, rev, terms)
                     SELECT conv_id, created_at_ms, seq, rev, ''::tsvector FROM messages WHERE conv_id = $1 AND seq = ANY($2)
                     ORDER BY conv_id, created_at_ms, seq
                     ON CONFLICT (conv_id, created_at_ms, seq) DO UPDATE SET rev = excluded.rev, terms = excluded.terms
                     WHERE t.rev <= excluded.rev",
                )
                .bind(conversation.as_str())
                .bind(&own)
                .execute(&mut *tx)
                .await?;
                tx.commit().await?;
                Ok(())
            })
        })
        .await
    }

    /// The queued events that show one of these messages.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn queued_words(&self, conversation: &ConversationId, seqs: &[Seq]) -> Result<Vec<(Seq, QueuedWords)>, ArchiveError> {
        let (conversation, seqs) = (conversation.clone(), seqs.to_vec());
        self.unit("queued_words", move |connection| {
            let conversation = conversation.clone();
            let seqs = seqs.iter().map(|seq| stored(*seq)).collect::<Result<Vec<_>, _>>();
            Box::pin(async move {
                let rows: Vec<(i64, i64, i16, String)> =
                    sqlx::query_as("SELECT seq, rev, place, body FROM webhook_queue WHERE conv_id = $1 AND seq = ANY($2)")
                        .bind(conversation.as_str())
                        .bind(seqs?)
                        .fetch_all(connection)
                        .await?;
                let words = |(seq, rev, place, body): (i64, i64, i16, String)| {
                    Ok((read(seq)?, QueuedWords { rev: read(rev)?, place: u16::try_from(place).unwrap_or_default(), body }))
                };
                rows.into_iter().map(words).collect()
            })
        })
        .await
    }

    /// Puts another body in the place of a queued event's, if it is still there.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn put_queued_words(&self, conversation: &ConversationId, words: &QueuedWords) -> Result<(), ArchiveError> {
        let (conversation, words) = (conversation.clone(), words.clone());
        self.unit("put_queued_words", move |connection| {
            let (conversation, words) = (conversation.clone(), words.clone());
            Box::pin(async move {
                sqlx::query("UPDATE webhook_queue SET body = $4 WHERE conv_id = $1 AND rev = $2 AND place = $3")
                    .bind(conversation.as_str())
                    .bind(stored(words.rev)?)
                    .bind(i16::try_from(words.place).unwrap_or_default())
                    .bind(words.body)
                    .execute(connection)
                    .await?;
                Ok(())
            })
        })
        .await
    }

    /// Pictures of a user that are being removed, at most `limit`; they are claimed for nothing any more.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn sweeping_media_of(&self, user: &UserId, limit: u64) -> Result<Vec<Uuid>, ArchiveError> {
        let user = user.clone();
        self.unit("sweeping_media_of", move |connection| {
            let user = user.clone();
            Box::pin(async move {
                let ids: Vec<(Uuid,)> = sqlx::query_as("SELECT id FROM media WHERE owner = $1 AND state = 'sweeping' ORDER BY id LIMIT $2")
                    .bind(user.as_str())
                    .bind(stored(limit)?)
                    .fetch_all(&mut *connection)
                    .await?;
                let ids: Vec<Uuid> = ids.into_iter().map(|(id,)| id).collect();
                sqlx::query("DELETE FROM media_claims WHERE media_id = ANY($1)").bind(&ids).execute(connection).await?;
                Ok(ids)
            })
        })
        .await
    }

    /// Whether anything of a user is here that erasing takes away.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn has_traces(&self, user: &UserId) -> Result<bool, ArchiveError> {
        let user = user.clone();
        self.unit("has_traces", move |connection| {
            let user = user.clone();
            Box::pin(async move {
                let (any,): (bool,) = sqlx::query_as(
                    "SELECT EXISTS (SELECT 1 FROM profiles WHERE user_id = $1)
                         OR EXISTS (SELECT 1 FROM push_subscriptions WHERE user_id = $1)
                         OR EXISTS (SELECT 1 FROM media WHERE owner = $1 AND state <> 'sweeping')
                         OR EXISTS (SELECT 1 FROM blocks WHERE blocker = $1 AND since_ms IS NOT NULL)
                         OR EXISTS (SELECT 1 FROM members AS m JOIN conversations AS c ON c.id = m.conv_id
                                    WHERE m.user_id = $1 AND m.left_rev IS NULL AND c.kind <> 'single')
                         OR EXISTS (SELECT 1 FROM (SELECT conv_id FROM members WHERE user_id = $1
                                                   UNION SELECT conv_id FROM read_marks WHERE user_id = $1
                                                   UNION SELECT conv_id FROM import_senders WHERE user_id = $1) AS u
                                    CROSS JOIN LATERAL (SELECT 1 FROM messages AS m
                                                        WHERE m.conv_id = u.conv_id AND m.sender = $1 AND m.kind <> 'system'
                                                          AND m.deleted_at_ms IS NULL LIMIT 1) AS said)",
                )
                .bind(user.as_str())
                .fetch_one(connection)
                .await?;
                Ok(any)
            })
        })
        .await
    }
}
