//! Old messages on their way in: rows above the head of a conversation that is not in Redis.
//!
//! Numbers are taken by the rows that bear them. Each chunk is one transaction under the lock that leases are taken under; it finds no
//! living lease and the head where the chunk before it left it, or writes nothing. So whatever dies in between, the next lease or the next
//! chunk begins right above what stands. An importer that shows signs of life keeps leases away; one that does not keeps nobody away.

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::connection::{Archive, read, stored};
use super::error::{ArchiveError, Fault};
use super::write_messages::write_messages;
use crate::domain::ids::{ClientKey, ConversationId, Millis, Seq, UserId};
use crate::domain::message::Message;

/// Age in ms, by the database's clock, at which an import's last sign of life counts for nothing any more.
pub const ABANDONED_AFTER_MS: i64 = 15_000;

/// What became of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkWritten {
    /// It stands.
    Written,
    /// The conversation went on meanwhile, or another import did: nothing was written.
    Lost,
}

impl Archive {
    /// Begins an import, or takes an abandoned one over; from now on no lease is given for the conversation. False while another
    /// import works on it.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn begin_import(&self, conversation: &ConversationId, token: Uuid) -> Result<bool, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("begin_import", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                let mut tx = connection.begin().await?;
                lock(&mut tx, &conversation).await?;
                let done = sqlx::query(
                    "INSERT INTO imports AS i (conv_id, token, touched_at_ms)
                     VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
                     ON CONFLICT (conv_id) DO UPDATE SET token = excluded.token, touched_at_ms = excluded.touched_at_ms
                     WHERE i.token = excluded.token OR i.touched_at_ms < excluded.touched_at_ms - $3",
                )
                .bind(conversation.as_str())
                .bind(token)
                .bind(ABANDONED_AFTER_MS)
                .execute(&mut *tx)
                .await?;
                tx.commit().await?;
                Ok(done.rows_affected() == 1)
            })
        })
        .await
    }

    /// The number above which the next chunk begins. To be asked once the conversation has left Redis.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn import_head(&self, conversation: &ConversationId) -> Result<Seq, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("import_head", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move { read(head(connection, &conversation).await?) })
        })
        .await
    }

    /// Writes messages that are numbered contiguously from `above` + 1; they get their revs here. Current members count as having read them.
    ///
    /// # Errors
    /// When the archive does not answer; it may have been written all the same, and doing it again tells [`ChunkWritten::Lost`] then.
    pub async fn import_chunk(
        &self,
        conversation: &ConversationId,
        token: Uuid,
        above: Seq,
        messages: Vec<Message>,
        now: Millis,
    ) -> Result<ChunkWritten, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("import_chunk", move |connection| {
            let (conversation, messages) = (conversation.clone(), messages.clone());
            Box::pin(async move {
                let mut tx = connection.begin().await?;
                lock(&mut tx, &conversation).await?;
                let written = write_chunk(&mut tx, &conversation, token, stored(above)?, messages, now).await?;
                match written {
                    ChunkWritten::Written => tx.commit().await?,
                    ChunkWritten::Lost => tx.rollback().await?,
                }
                Ok(written)
            })
        })
        .await
    }

    /// Lets the conversation go on. The import stays known until [`Archive::forget_import`].
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn open_after_import(&self, conversation: &ConversationId, token: Uuid) -> Result<(), ArchiveError> {
        let conversation = conversation.clone();
        self.unit("open_after_import", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                sqlx::query("UPDATE imports SET touched_at_ms = 0 WHERE conv_id = $1 AND token = $2")
                    .bind(conversation.as_str())
                    .bind(token)
                    .execute(connection)
                    .await?;
                Ok(())
            })
        })
        .await
    }

    /// Forgets an import whose members were told.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn forget_import(&self, conversation: &ConversationId, token: Uuid) -> Result<(), ArchiveError> {
        let conversation = conversation.clone();
        self.unit("forget_import", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                sqlx::query("DELETE FROM imports WHERE conv_id = $1 AND token = $2")
                    .bind(conversation.as_str())
                    .bind(token)
                    .execute(connection)
                    .await?;
                Ok(())
            })
        })
        .await
    }

    /// Whether an import of this conversation was begun and its members not told yet.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn import_is_open(&self, conversation: &ConversationId) -> Result<bool, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("import_is_open", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                let (open,): (bool,) = sqlx::query_as("SELECT EXISTS (SELECT 1 FROM imports WHERE conv_id = $1)")
                    .bind(conversation.as_str())
                    .fetch_one(connection)
                    .await?;
                Ok(open)
            })
        })
        .await
    }

    /// The numbers of those of these messages, by sender and old id, that the archive has.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn seqs_of_keys(
        &self,
        conversation: &ConversationId,
        keys: &[(UserId, ClientKey)],
    ) -> Result<Vec<(UserId, ClientKey, Seq)>, ArchiveError> {
        let (conversation, keys) = (conversation.clone(), keys.to_vec());
        self.unit("seqs_of_keys", move |connection| {
            let (conversation, keys) = (conversation.clone(), keys.clone());
            Box::pin(async move {
                let rows: Vec<(i64, i64)> = sqlx::query_as(
                    "SELECT u.place, m.seq FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS u (sender, client_id, place)
                     CROSS JOIN LATERAL (SELECT s.seq FROM messages AS s
                                         WHERE s.conv_id = $1 AND s.sender = u.sender AND s.client_id = u.client_id OFFSET 0) AS m",
                )
                .bind(conversation.as_str())
                .bind(keys.iter().map(|(sender, _)| sender.as_str()).collect::<Vec<_>>())
                .bind(keys.iter().map(|(_, key)| key.as_str()).collect::<Vec<_>>())
                .fetch_all(connection)
                .await?;
                let mut found = Vec::with_capacity(rows.len());
                for (place, seq) in rows {
                    let index = usize::try_from(place - 1).map_err(|_| Fault::Data("an ordinal below 1"))?;
                    let (sender, key) = keys.get(index).cloned().ok_or(Fault::Data("an ordinal beyond the batch"))?;
                    found.push((sender, key, read(seq)?));
                }
                Ok(found)
            })
        })
        .await
    }

    /// The numbers of messages by their old ids, whoever sent them; the lowest where several have one.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn seqs_of_old_ids(&self, conversation: &ConversationId, ids: &[ClientKey]) -> Result<Vec<(ClientKey, Seq)>, ArchiveError> {
        let (conversation, ids) = (conversation.clone(), ids.to_vec());
        self.unit("seqs_of_old_ids", move |connection| {
            let (conversation, ids) = (conversation.clone(), ids.clone());
            Box::pin(async move {
                let rows: Vec<(String, i64)> = sqlx::query_as(
                    "SELECT client_id, min(seq) FROM messages WHERE conv_id = $1 AND client_id = ANY($2) GROUP BY client_id",
                )
                .bind(conversation.as_str())
                .bind(ids.iter().map(ClientKey::as_str).collect::<Vec<_>>())
                .fetch_all(connection)
                .await?;
                let found = rows.into_iter().map(|(id, seq)| {
                    let id = ClientKey::parse(&id).map_err(|_| Fault::Data("a stored client id is none"))?;
                    Ok((id, read(seq)?))
                });
                found.collect()
            })
        })
        .await
    }
}

/// The lock under which leases are taken too.
async fn lock(tx: &mut PgConnection, conversation: &ConversationId) -> Result<(), Fault> {
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1, 10001))").bind(conversation.as_str()).execute(tx).await?;
    Ok(())
}

/// Whether an importer that shows signs of life works on the conversation. The caller holds the conversation's lock.
pub(super) async fn is_importing(tx: &mut PgConnection, conversation: &ConversationId) -> Result<bool, Fault> {
    let (importing,): (bool,) = sqlx::query_as(
        "SELECT EXISTS (SELECT 1 FROM imports WHERE conv_id = $1
                        AND touched_at_ms >= (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $2)",
    )
    .bind(conversation.as_str())
    .bind(ABANDONED_AFTER_MS)
    .fetch_one(tx)
    .await?;
    Ok(importing)
}

/// The highest number that anything has, or may have had.
async fn head(tx: &mut PgConnection, conversation: &ConversationId) -> Result<i64, Fault> {
    let (head,): (i64,) = sqlx::query_as(
        "SELECT GREATEST(COALESCE((SELECT max(seq) FROM messages WHERE conv_id = $1), 0),
                         COALESCE((SELECT head_seq FROM conversations WHERE id = $1), 0),
                         COALESCE((SELECT max(to_seq) FROM voids WHERE conv_id = $1), 0),
                         COALESCE((SELECT max(end_seq) FROM leases WHERE conv_id = $1), 0))",
    )
    .bind(conversation.as_str())
    .fetch_one(tx)
    .await?;
    Ok(head)
}

async fn write_chunk(
    tx: &mut PgConnection,
    conversation: &ConversationId,
    token: Uuid,
    above: i64,
    mut messages: Vec<Message>,
    now: Millis,
) -> Result<ChunkWritten, Fault> {
    let mine = sqlx::query(
        "UPDATE imports SET touched_at_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint
         WHERE conv_id = $1 AND token = $2
           AND NOT EXISTS (SELECT 1 FROM leases WHERE conv_id = $1 AND state <> 'ended')",
    )
    .bind(conversation.as_str())
    .bind(token)
    .execute(&mut *tx)
    .await?
    .rows_affected()
        == 1;
    if !mine || head(tx, conversation).await? != above {
        return Ok(ChunkWritten::Lost);
    }
    let rev: Option<(i64,)> = sqlx::query_as("SELECT rev FROM conversations WHERE id = $1 AND facts_rev IS NOT NULL FOR UPDATE")
        .bind(conversation.as_str())
        .fetch_optional(&mut *tx)
        .await?;
    let Some((rev,)) = rev else { return Ok(ChunkWritten::Lost) };
    let mut last_rev = read(rev)?;
    for message in &mut messages {
        last_rev += 1;
        message.rev = last_rev;
    }
    let outcome = write_messages(tx, &messages).await?;
    if outcome.inserted != messages.len() as u64 {
        return Ok(ChunkWritten::Lost);
    }
    let last = above.saturating_add(i64::try_from(messages.len()).unwrap_or(i64::MAX));
    sqlx::query("UPDATE conversations SET head_seq = $2, rev = $3 WHERE id = $1")
        .bind(conversation.as_str())
        .bind(last)
        .bind(stored(last_rev)?)
        .execute(&mut *tx)
        .await?;
    sqlx::query(
        "INSERT INTO read_marks AS r (conv_id, user_id, seq, at_ms)
         SELECT conv_id, user_id, $2, $3 FROM members WHERE conv_id = $1 AND left_rev IS NULL ORDER BY user_id
         ON CONFLICT (conv_id, user_id) DO UPDATE SET seq = excluded.seq, at_ms = excluded.at_ms WHERE r.seq < excluded.seq",
    )
    .bind(conversation.as_str())
    .bind(last)
    .bind(now)
    .execute(&mut *tx)
    .await?;
    sqlx::query("INSERT INTO import_senders (user_id, conv_id) SELECT DISTINCT u, $1 FROM unnest($2::text[]) AS u ON CONFLICT DO NOTHING")
        .bind(conversation.as_str())
        .bind(messages.iter().map(|m| m.sender.as_str()).collect::<Vec<_>>())
        .execute(tx)
        .await?;
    Ok(ChunkWritten::Written)
}
