//! What an audit mends in Postgres: what can be worked out from what stands beside it. Each is safe to repeat, and changes nothing that
//! was mended meanwhile.

use uuid::Uuid;

use super::connection::{Archive, stored};
use super::error::ArchiveError;
use crate::domain::ids::{ConversationId, Seq};

/// What can be mended here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mend {
    /// Head and rev of a conversation are raised to those of its messages.
    Head,
    /// Watermarks beyond the head are set to it.
    Marks,
    /// References to pictures are written anew from the message.
    References,
    /// A message waits for its terms.
    Terms,
    /// A deleted message has no terms.
    NoTerms,
    /// A line leads to the events that wait.
    Line,
}

impl Mend {
    /// Whole statements, in their order; each takes the conversation and the seq.
    fn statements(self) -> &'static [&'static str] {
        match self {
            Self::Head => &["UPDATE conversations AS c
                SET head_seq = GREATEST(c.head_seq, n.seq), rev = GREATEST(c.rev, n.rev)
                FROM (SELECT max(seq) AS seq, max(rev) AS rev, count($2::bigint) FROM messages WHERE conv_id = $1) AS n WHERE c.id = $1"],
            Self::Marks => &["UPDATE read_marks AS r SET seq = n.head
                FROM (SELECT GREATEST(c.head_seq, COALESCE((SELECT max(m.seq) FROM messages AS m WHERE m.conv_id = $1), 0)) AS head
                      FROM conversations AS c WHERE c.id = $1) AS n
                WHERE r.conv_id = $1 AND r.seq > n.head AND $2::bigint >= 0"],
            Self::References => &[
                "UPDATE media AS d SET check_at_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint
                 FROM message_media AS r WHERE r.conv_id = $1 AND r.seq = $2 AND d.id = r.media_id AND d.check_at_ms IS NULL
                   AND NOT EXISTS (SELECT 1 FROM messages AS m WHERE m.conv_id = $1 AND m.seq = $2 AND m.deleted_at_ms IS NULL
                                   AND m.content->'media' @> jsonb_build_array(jsonb_build_array(r.media_id::text)))",
                "DELETE FROM message_media AS r WHERE r.conv_id = $1 AND r.seq = $2
                   AND NOT EXISTS (SELECT 1 FROM messages AS m WHERE m.conv_id = $1 AND m.seq = $2 AND m.deleted_at_ms IS NULL
                                   AND m.content->'media' @> jsonb_build_array(jsonb_build_array(r.media_id::text)))",
                "INSERT INTO message_media (conv_id, seq, media_id)
                 SELECT m.conv_id, m.seq, d.id FROM messages AS m
                 CROSS JOIN LATERAL jsonb_array_elements(
                    CASE WHEN jsonb_typeof(m.content->'media') = 'array' THEN m.content->'media' ELSE '[]'::jsonb END) AS p
                 JOIN media AS d ON d.id::text = p.value->>0
                 WHERE m.conv_id = $1 AND m.seq = $2 AND m.deleted_at_ms IS NULL
                 ON CONFLICT (conv_id, seq, media_id) DO NOTHING",
            ],
            Self::Terms => &["INSERT INTO search_queue (conv_ids, seqs) VALUES (ARRAY[$1::text], ARRAY[$2::bigint])"],
            Self::NoTerms => &["UPDATE message_terms AS t SET terms = ''::tsvector, rev = GREATEST(t.rev, m.rev)
                FROM messages AS m
                WHERE m.conv_id = $1 AND m.seq = $2 AND m.deleted_at_ms IS NOT NULL
                  AND t.conv_id = m.conv_id AND t.created_at_ms = m.created_at_ms AND t.seq = m.seq"],
            Self::Line => &["INSERT INTO webhook_lines (conv_id, free_at_ms)
                SELECT $1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint WHERE $2::bigint >= 0
                ON CONFLICT (conv_id) DO NOTHING"],
        }
    }
}

impl Archive {
    /// Mends one thing.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn mend(&self, what: Mend, conversation: &ConversationId, seq: Seq) -> Result<(), ArchiveError> {
        let conversation = conversation.clone();
        self.unit("mend", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                for statement in what.statements() {
                    sqlx::query(*statement).bind(conversation.as_str()).bind(stored(seq)?).execute(&mut *connection).await?;
                }
                Ok(())
            })
        })
        .await
    }

    /// Has the sweeper look at a picture that nothing shows.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn watch_media(&self, id: Uuid) -> Result<(), ArchiveError> {
        self.unit("watch_media", move |connection| {
            Box::pin(async move {
                sqlx::query(
                    "UPDATE media AS d SET check_at_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint
                     WHERE d.id = $1 AND d.check_at_ms IS NULL AND NOT EXISTS (SELECT 1 FROM message_media AS r WHERE r.media_id = d.id)",
                )
                .bind(id)
                .execute(connection)
                .await?;
                Ok(())
            })
        })
        .await
    }
}
