//! What an audit asks of messages: whole pages of numbers in one statement, each seen in one snapshot, so that what is written meanwhile
//! is never half seen. Only what is wrong comes back.

use std::sync::Arc;

use super::connection::{Archive, bound, read, read_conversation};
use super::error::{ArchiveError, Fault};
use crate::domain::audit::{Code, Finding};
use crate::domain::ids::{ConversationId, Seq};

/// Findings that one statement gives at most.
pub const FINDINGS_MAX: i64 = 500;

/// A page of one conversation's numbers: above `after`, up to `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where.
    pub conversation: ConversationId,
    /// Below the first number.
    pub after: Seq,
    /// The last number.
    pub to: Seq,
}

/// A finding as one row; every statement of an audit names these columns.
#[derive(sqlx::FromRow)]
pub(super) struct FindingRow {
    code: String,
    conv_id: Option<String>,
    seq: Option<i64>,
    to_seq: Option<i64>,
    who: Option<String>,
    subject: Option<String>,
    note: Option<String>,
}

impl FindingRow {
    pub(super) fn into_finding(self) -> Result<Finding, Fault> {
        Ok(Finding {
            code: Code::parse(&self.code).ok_or(Fault::Data("a code that no audit knows"))?,
            conversation: self.conv_id.as_deref().map(read_conversation).transpose()?,
            seq: self.seq.map(|seq| read(seq.max(0))).transpose()?,
            to_seq: self.to_seq.map(|seq| read(seq.max(0))).transpose()?,
            user: self.who,
            subject: self.subject,
            note: self.note.unwrap_or_default(),
        })
    }
}

pub(super) fn into_findings(rows: Vec<FindingRow>) -> Result<Vec<Finding>, Fault> {
    rows.into_iter().map(FindingRow::into_finding).collect()
}

impl Archive {
    /// What is wrong with the messages of these pages. Holes are told without regard to what waits aside.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn audit_messages(&self, spans: &[Span]) -> Result<Vec<Finding>, ArchiveError> {
        let ids: Arc<[String]> = spans.iter().map(|span| span.conversation.to_string()).collect();
        let after: Arc<[i64]> = spans.iter().map(|span| bound(span.after)).collect();
        let to: Arc<[i64]> = spans.iter().map(|span| bound(span.to)).collect();
        self.unit("audit_messages", move |connection| {
            let (ids, after, to) = (Arc::clone(&ids), Arc::clone(&after), Arc::clone(&to));
            Box::pin(async move {
                let mut found = Vec::new();
                for sql in [NUMBERS, CONTENTS] {
                    let rows: Vec<FindingRow> =
                        sqlx::query_as(sql).bind(&*ids).bind(&*after).bind(&*to).bind(FINDINGS_MAX).fetch_all(&mut *connection).await?;
                    found.extend(into_findings(rows)?);
                }
                Ok(found)
            })
        })
        .await
    }
}

/// Numbers: holes (islands of messages and voids), ids that come twice, and terms of search.
const NUMBERS: &str = "
    WITH u AS (SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS u (conv_id, lo, hi)),
    unindexed AS MATERIALIZED (
        SELECT u.conv_id, m.seq FROM u CROSS JOIN LATERAL (
            SELECT s.seq FROM messages AS s
            WHERE s.conv_id = u.conv_id AND s.seq > u.lo AND s.seq <= u.hi AND s.kind <> 'system' AND s.deleted_at_ms IS NULL
              AND NOT EXISTS (SELECT 1 FROM message_terms AS t
                              WHERE t.conv_id = s.conv_id AND t.created_at_ms = s.created_at_ms AND t.seq = s.seq)
            OFFSET 0) AS m
    )
    (SELECT 'hole' AS code, u.conv_id, g.prev + 1 AS seq, g.a - 1 AS to_seq, NULL::text AS who, NULL::text AS subject, NULL::text AS note
     FROM u CROSS JOIN LATERAL (
        SELECT i.a, GREATEST(u.lo, max(i.b) OVER (ORDER BY i.a, i.b ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS prev
        FROM (SELECT m.seq AS a, m.seq AS b FROM messages AS m WHERE m.conv_id = u.conv_id AND m.seq > u.lo AND m.seq <= u.hi
              UNION ALL
              SELECT v.from_seq, v.to_seq FROM voids AS v WHERE v.conv_id = u.conv_id AND v.to_seq > u.lo AND v.from_seq <= u.hi
              UNION ALL
              SELECT u.hi + 1, u.hi + 1) AS i
     ) AS g WHERE g.a > g.prev + 1 LIMIT $4)
    UNION ALL
    (SELECT 'message-twice', u.conv_id, d.seq, NULL, NULL, d.id::text, d.others || ' numbers'
     FROM u CROSS JOIN LATERAL (
        SELECT max(m.seq) AS seq, m.id, count(*) AS others FROM messages AS m
        WHERE m.conv_id = u.conv_id AND m.seq > u.lo AND m.seq <= u.hi GROUP BY m.id HAVING count(*) > 1
     ) AS d LIMIT $4)
    UNION ALL
    (SELECT 'search-missing', x.conv_id, x.seq, NULL, NULL, NULL, NULL FROM unindexed AS x
     WHERE NOT EXISTS (SELECT 1 FROM (SELECT unnest(q.conv_ids) AS conv_id, unnest(q.seqs) AS seq FROM search_queue AS q) AS w
                       WHERE w.conv_id = x.conv_id AND w.seq = x.seq)
     LIMIT $4)";

/// Contents: of the few messages that have more than words, what it leads to. Casts stand behind proofs of the form: what is corrupt must
/// not stop the audit.
const CONTENTS: &str = "
    WITH u AS (SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS u (conv_id, lo, hi)),
    m AS MATERIALIZED (
        SELECT u.conv_id, s.seq, s.kind, s.deleted, s.has_words, s.content, s.created_at_ms
        FROM u CROSS JOIN LATERAL (
            SELECT r.seq, r.kind, r.deleted_at_ms IS NOT NULL AS deleted, r.body <> '' AS has_words, r.created_at_ms,
                   CASE WHEN jsonb_typeof(r.content) = 'object' THEN r.content ELSE '{}'::jsonb END AS content
            FROM messages AS r
            WHERE r.conv_id = u.conv_id AND r.seq > u.lo AND r.seq <= u.hi
              AND (r.content IS NOT NULL OR r.deleted_at_ms IS NOT NULL OR r.kind = 'image') OFFSET 0) AS s
    ),
    shown AS MATERIALIZED (
        SELECT m.conv_id, m.seq, CASE WHEN p.value->>0 ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN (p.value->>0)::uuid END AS media_id
        FROM m CROSS JOIN LATERAL jsonb_array_elements(
            CASE WHEN jsonb_typeof(m.content->'media') = 'array' THEN m.content->'media' ELSE '[]'::jsonb END) AS p
        WHERE NOT m.deleted
    ),
    answers AS MATERIALIZED (
        SELECT m.conv_id, m.seq,
               CASE WHEN m.content->>'reply_to' ~ '^[0-9]{1,15}$' THEN (m.content->>'reply_to')::bigint ELSE 0 END AS answered
        FROM m WHERE m.content ? 'reply_to'
    )
    (SELECT 'deleted-with-words' AS code, m.conv_id, m.seq, NULL::bigint AS to_seq, NULL::text AS who, NULL::text AS subject, NULL::text AS note
     FROM m WHERE m.deleted AND (m.has_words OR m.content ?| ARRAY['media', 'reply_to', 'share', 'mentions', 'reactions']) LIMIT $4)
    UNION ALL
    (SELECT 'quote-broken', a.conv_id, a.seq, a.answered, NULL, NULL, NULL
     FROM answers AS a
     LEFT JOIN LATERAL (SELECT q.kind FROM messages AS q WHERE q.conv_id = a.conv_id AND q.seq = a.answered OFFSET 0) AS q ON true
     WHERE q.kind IS NULL OR q.kind = 'system' OR a.answered = a.seq LIMIT $4)
    UNION ALL
    (SELECT 'reactions-wrong', m.conv_id, m.seq, NULL, NULL, NULL, NULL
     FROM m CROSS JOIN LATERAL (
        SELECT count(*) AS kinds, count(DISTINCT r.value->>0) AS different,
               bool_or(l.users = '[]'::jsonb) AS nobody,
               bool_or((SELECT count(*) <> count(DISTINCT x) FROM jsonb_array_elements_text(l.users) AS x)) AS twice,
               bool_or(EXISTS (SELECT 1 FROM jsonb_array_elements_text(l.users) AS x
                               WHERE NOT EXISTS (SELECT 1 FROM members AS b WHERE b.conv_id = m.conv_id AND b.user_id = x))) AS stranger
        FROM jsonb_array_elements(
                CASE WHEN jsonb_typeof(m.content->'reactions') = 'array' THEN m.content->'reactions' ELSE '[[]]'::jsonb END) AS r
        CROSS JOIN LATERAL (SELECT CASE WHEN jsonb_typeof(r.value->1) = 'array' THEN r.value->1 ELSE '[]'::jsonb END AS users) AS l
     ) AS e
     WHERE m.content ? 'reactions'
       AND (m.kind = 'system' OR e.kinds > 20 OR e.kinds <> e.different OR e.nobody OR e.twice OR e.stranger) LIMIT $4)
    UNION ALL
    (SELECT 'media-missing', s.conv_id, s.seq, NULL, NULL, s.media_id::text, d.state
     FROM shown AS s LEFT JOIN media AS d ON d.id = s.media_id WHERE d.id IS NULL OR d.state <> 'ready' LIMIT $4)
    UNION ALL
    (SELECT 'media-missing', m.conv_id, m.seq, NULL, NULL, NULL, 'shows none'
     FROM m WHERE m.kind = 'image' AND NOT m.deleted AND NOT EXISTS (SELECT 1 FROM shown AS s WHERE s.conv_id = m.conv_id AND s.seq = m.seq)
     LIMIT $4)
    UNION ALL
    (SELECT 'media-reference-missing', s.conv_id, s.seq, NULL, NULL, s.media_id::text, NULL
     FROM shown AS s WHERE s.media_id IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM message_media AS r WHERE r.conv_id = s.conv_id AND r.seq = s.seq AND r.media_id = s.media_id) LIMIT $4)
    UNION ALL
    (SELECT 'media-reference-stale', r.conv_id, r.seq, NULL, NULL, r.media_id::text, NULL
     FROM u CROSS JOIN LATERAL (SELECT x.conv_id, x.seq, x.media_id FROM message_media AS x
                                WHERE x.conv_id = u.conv_id AND x.seq > u.lo AND x.seq <= u.hi OFFSET 0) AS r
     WHERE NOT EXISTS (SELECT 1 FROM shown AS s WHERE s.conv_id = r.conv_id AND s.seq = r.seq AND s.media_id = r.media_id) LIMIT $4)
    UNION ALL
    (SELECT 'version-wrong', v.conv_id, v.seq, NULL, NULL, v.rev::text, NULL
     FROM u CROSS JOIN LATERAL (SELECT x.conv_id, x.seq, x.rev FROM message_versions AS x
                                WHERE x.conv_id = u.conv_id AND x.seq > u.lo AND x.seq <= u.hi OFFSET 0) AS v
     LEFT JOIN LATERAL (SELECT y.rev FROM messages AS y WHERE y.conv_id = v.conv_id AND y.seq = v.seq OFFSET 0) AS n ON true
     WHERE n.rev IS NULL OR n.rev <= v.rev LIMIT $4)
    UNION ALL
    (SELECT 'search-stale', m.conv_id, m.seq, NULL, NULL, NULL, NULL
     FROM m JOIN message_terms AS t ON t.conv_id = m.conv_id AND t.created_at_ms = m.created_at_ms AND t.seq = m.seq
     WHERE m.deleted AND t.terms <> ''::tsvector
       AND NOT EXISTS (SELECT 1 FROM (SELECT unnest(q.conv_ids) AS conv_id, unnest(q.seqs) AS seq FROM search_queue AS q) AS w
                       WHERE w.conv_id = m.conv_id AND w.seq = m.seq) LIMIT $4)";
