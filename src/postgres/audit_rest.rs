//! What an audit asks about the rest: users, pictures, search, webhooks, places that logs point to.

use std::sync::Arc;

use uuid::Uuid;

use super::audit_messages::{FINDINGS_MAX, FindingRow, into_findings};
use super::connection::{Archive, bound, read, read_user};
use super::error::ArchiveError;
use crate::domain::audit::Finding;
use crate::domain::ids::{ConversationId, Millis, Rev, Seq, UserId};

impl Archive {
    /// Up to `limit` users above `after` who belong to some conversation, in the order of their bytes.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn audit_users(&self, after: &str, limit: u64) -> Result<Vec<UserId>, ArchiveError> {
        let after = after.to_owned();
        self.unit("audit_users", move |connection| {
            let after = after.clone();
            Box::pin(async move {
                let rows: Vec<(String,)> = sqlx::query_as(
                    "SELECT DISTINCT user_id FROM members WHERE left_rev IS NULL AND user_id > $1 ORDER BY user_id LIMIT $2",
                )
                .bind(&after)
                .bind(bound(limit))
                .fetch_all(connection)
                .await?;
                rows.into_iter().map(|(user,)| read_user(&user)).collect()
            })
        })
        .await
    }

    /// Of these places the numbers (their ordinals from 0) at which the archive has neither a message nor a void, nor a lost lease whose
    /// rest becomes one when the conversation is next used.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn nowhere(&self, places: &[(ConversationId, Seq)]) -> Result<Vec<usize>, ArchiveError> {
        let ids: Arc<[String]> = places.iter().map(|(id, _)| id.to_string()).collect();
        let seqs: Arc<[i64]> = places.iter().map(|(_, seq)| bound(*seq)).collect();
        self.unit("nowhere", move |connection| {
            let (ids, seqs) = (Arc::clone(&ids), Arc::clone(&seqs));
            Box::pin(async move {
                let rows: Vec<(i64,)> = sqlx::query_as(
                    "SELECT u.place - 1 FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS u (conv_id, seq, place)
                     WHERE NOT EXISTS (SELECT 1 FROM messages AS m WHERE m.conv_id = u.conv_id AND m.seq = u.seq)
                       AND NOT EXISTS (SELECT 1 FROM voids AS v WHERE v.conv_id = u.conv_id AND u.seq BETWEEN v.from_seq AND v.to_seq)
                       AND NOT EXISTS (SELECT 1 FROM leases AS l JOIN shard_epochs AS e ON e.shard = l.shard
                                       WHERE l.conv_id = u.conv_id AND l.state <> 'ended' AND l.epoch < e.epoch
                                         AND u.seq BETWEEN l.from_seq AND l.to_seq)",
                )
                .bind(&*ids)
                .bind(&*seqs)
                .fetch_all(connection)
                .await?;
                Ok(rows.into_iter().filter_map(|(place,)| usize::try_from(place).ok()).collect())
            })
        })
        .await
    }

    /// The first message between these numbers, both ends included, that is in no void.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn message_between(&self, conversation: &ConversationId, from: Seq, to: Seq) -> Result<Option<Seq>, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("message_between", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                let (seq,): (Option<i64>,) = sqlx::query_as(
                    "SELECT min(m.seq) FROM messages AS m WHERE m.conv_id = $1 AND m.seq BETWEEN $2 AND $3
                       AND NOT EXISTS (SELECT 1 FROM voids AS v WHERE v.conv_id = $1 AND m.seq BETWEEN v.from_seq AND v.to_seq)",
                )
                .bind(conversation.as_str())
                .bind(bound(from))
                .bind(bound(to))
                .fetch_one(connection)
                .await?;
                seq.map(read).transpose()
            })
        })
        .await
    }

    /// The unread messages of this conversation, at most `limit` of the newest, that name a current member: user, seq, rev.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn audited_mentions(&self, conversation: &ConversationId, limit: u64) -> Result<Vec<(String, Seq, Rev)>, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("audited_mentions", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                let rows: Vec<(String, i64, i64)> = sqlx::query_as(
                    "SELECT b.user_id, m.seq, m.rev FROM messages AS m
                     CROSS JOIN LATERAL jsonb_array_elements_text(
                        CASE WHEN jsonb_typeof(m.content->'mentions') = 'array' THEN m.content->'mentions' ELSE '[]'::jsonb END) AS n (named)
                     JOIN members AS b ON b.conv_id = m.conv_id AND b.user_id = n.named AND b.left_rev IS NULL
                     LEFT JOIN read_marks AS r ON r.conv_id = m.conv_id AND r.user_id = b.user_id
                     WHERE m.conv_id = $1 AND m.content ? 'mentions' AND m.deleted_at_ms IS NULL AND m.sender <> b.user_id
                       AND m.seq > GREATEST(COALESCE(r.seq, 0), b.joined_seq)
                     ORDER BY m.seq DESC LIMIT $2",
                )
                .bind(conversation.as_str())
                .bind(bound(limit))
                .fetch_all(connection)
                .await?;
                rows.into_iter().map(|(user, seq, rev)| Ok((user, read(seq)?, read(rev)?))).collect()
            })
        })
        .await
    }

    /// The numbers above `after`, at most `limit` ascending, that never count as unread.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn uncounted_after(&self, conversation: &ConversationId, after: Seq, limit: u64) -> Result<Vec<Seq>, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("uncounted_after", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                let rows: Vec<(i64,)> = sqlx::query_as(
                    "SELECT seq FROM messages WHERE conv_id = $1 AND seq > $2 AND (kind = 'system' OR deleted_at_ms IS NOT NULL)
                     ORDER BY seq LIMIT $3",
                )
                .bind(conversation.as_str())
                .bind(bound(after))
                .bind(bound(limit))
                .fetch_all(connection)
                .await?;
                rows.into_iter().map(|(seq,)| read(seq)).collect()
            })
        })
        .await
    }

    /// What is wrong with up to `limit` pictures above `after`, and the last one looked at.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn audit_media(&self, after: Uuid, limit: u64) -> Result<(Vec<Finding>, Option<Uuid>), ArchiveError> {
        self.unit("audit_media", move |connection| {
            Box::pin(async move {
                let (last,): (Option<Uuid>,) = sqlx::query_as(
                    "SELECT (array_agg(id ORDER BY id DESC))[1] FROM (SELECT id FROM media WHERE id > $1 ORDER BY id LIMIT $2) AS page",
                )
                .bind(after)
                .bind(bound(limit))
                .fetch_one(&mut *connection)
                .await?;
                let Some(last) = last else { return Ok((Vec::new(), None)) };
                let rows: Vec<FindingRow> = sqlx::query_as(
                    "SELECT 'media-unwatched' AS code, NULL::text AS conv_id, NULL::bigint AS seq, NULL::bigint AS to_seq, d.owner AS who,
                            d.id::text AS subject, NULL::text AS note
                     FROM media AS d WHERE d.id > $1 AND d.id <= $2 AND d.check_at_ms IS NULL
                       AND NOT EXISTS (SELECT 1 FROM message_media AS r WHERE r.media_id = d.id) LIMIT $3",
                )
                .bind(after)
                .bind(last)
                .bind(FINDINGS_MAX)
                .fetch_all(connection)
                .await?;
                Ok((into_findings(rows)?, Some(last)))
            })
        })
        .await
    }

    /// What waits and should not: events without a line, terms that nobody works out (older than `behind_ms`).
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn audit_queues(&self, behind_ms: Millis) -> Result<Vec<Finding>, ArchiveError> {
        self.unit("audit_queues", move |connection| {
            Box::pin(async move {
                let rows: Vec<FindingRow> = sqlx::query_as(
                    "(SELECT 'webhook-stuck' AS code, q.conv_id, NULL::bigint AS seq, NULL::bigint AS to_seq, NULL::text AS who,
                             NULL::text AS subject, count(*) || ' events' AS note
                      FROM webhook_queue AS q WHERE NOT EXISTS (SELECT 1 FROM webhook_lines AS l WHERE l.conv_id = q.conv_id)
                      GROUP BY q.conv_id LIMIT $2)
                     UNION ALL
                     (SELECT 'search-behind', NULL, NULL, NULL, NULL, NULL, count(*) || ' notes, the oldest for ' || max(n.age_ms) / 1000 || ' s'
                      FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint - queued_at_ms AS age_ms FROM search_queue) AS n
                      HAVING max(n.age_ms) > $1)",
                )
                .bind(behind_ms)
                .bind(FINDINGS_MAX)
                .fetch_all(connection)
                .await?;
                into_findings(rows)
            })
        })
        .await
    }

    /// The epochs that were granted: shard, epoch, server, whether it is installed.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn granted_epochs(&self) -> Result<Vec<(i32, u64, String, bool)>, ArchiveError> {
        self.unit("granted_epochs", move |connection| {
            Box::pin(async move {
                let rows: Vec<(i32, i64, String, bool)> =
                    sqlx::query_as("SELECT shard, epoch, server_id, state = 'installed' FROM shard_epochs ORDER BY shard")
                        .fetch_all(connection)
                        .await?;
                rows.into_iter().map(|(shard, epoch, server, installed)| Ok((shard, read(epoch)?, server, installed))).collect()
            })
        })
        .await
    }
}
