//! What an audit asks of conversations: pages of them, what is wrong with their facts, and what Redis is compared with.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::Connection;

use super::audit_messages::{FINDINGS_MAX, FindingRow, into_findings};
use super::connection::{Archive, bound, read, read_conversation};
use super::error::{ArchiveError, Fault};
use crate::domain::audit::{Code, Finding};
use crate::domain::ids::{ConversationId, Kind, Rev, Seq, UserId};

/// A conversation as the archive has it, as far as an audit compares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditedConversation {
    /// Its id.
    pub id: ConversationId,
    /// The shard that its row names.
    pub shard: i32,
    /// The kind that its row names.
    pub kind: String,
    /// The highest number known, from its row or its messages.
    pub head: Seq,
    /// Its newest message, 0 for none.
    pub newest: Seq,
    /// Its rev.
    pub rev: Rev,
    /// Title.
    pub title: Option<String>,
    /// Owner.
    pub owner: Option<String>,
    /// The two of a single conversation.
    pub pair: Option<(String, String)>,
    /// Whether it has ended.
    pub dissolved: bool,
    /// Whether its facts are told.
    pub told: bool,
    /// Current members, with whether they own it.
    pub members: HashMap<String, bool>,
    /// Watermarks of current members, as they are read.
    pub marks: HashMap<String, Seq>,
    /// Void ranges.
    pub voids: Vec<(Seq, Seq)>,
    /// The lease that has not ended: from, to, whether it is marked installed, its epoch.
    pub lease: Option<(Seq, Seq, bool, u64)>,
    /// The shard's epoch.
    pub epoch: Option<u64>,
}

#[derive(sqlx::FromRow)]
struct Row {
    id: String,
    shard: i32,
    kind: String,
    head: i64,
    newest: i64,
    rev: i64,
    title: Option<String>,
    owner: Option<String>,
    pair_low: Option<String>,
    pair_high: Option<String>,
    dissolved: bool,
    told: bool,
    epoch: Option<i64>,
}

impl AuditedConversation {
    /// What is wrong with how it is named: the shard, the kind, the pair.
    #[must_use]
    pub fn misnamed(&self, shards: u16) -> Vec<Finding> {
        let mut found = Vec::new();
        let shard = self.id.shard(shards).0;
        if self.shard != i32::from(shard) || self.kind != self.id.kind().as_str() {
            found.push(
                Finding::of(Code::ShardWrong, &self.id).note(format!("row says {} of shard {}, it is of {shard}", self.kind, self.shard)),
            );
        }
        if self.told && self.id.kind() == Kind::Single {
            let of = |(low, high): &(String, String)| ConversationId::of_pair(&UserId::parse(low).ok()?, &UserId::parse(high).ok()?).ok();
            if self.pair.as_ref().and_then(of).as_ref() != Some(&self.id) {
                found.push(Finding::of(Code::PairWrong, &self.id).note("the pair has another id"));
            }
        }
        found
    }
}

impl Archive {
    /// The ids of up to `limit` conversations above `after`, in the order of their bytes, each with the highest number it may have: those
    /// with a row and those with messages and no row.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn audit_page(&self, after: &str, limit: u64) -> Result<Vec<(ConversationId, Seq)>, ArchiveError> {
        let after = after.to_owned();
        self.unit("audit_page", move |connection| {
            let after = after.clone();
            Box::pin(async move {
                let rows: Vec<(String, i64)> = sqlx::query_as(
                    "SELECT c.id, GREATEST(c.head_seq, COALESCE((SELECT max(m.seq) FROM messages AS m WHERE m.conv_id = c.id), 0))
                     FROM conversations AS c WHERE c.id > $1 ORDER BY c.id LIMIT $2",
                )
                .bind(&after)
                .bind(bound(limit))
                .fetch_all(connection)
                .await?;
                rows.into_iter().map(|(id, head)| Ok((read_conversation(&id)?, read(head)?))).collect()
            })
        })
        .await
    }

    /// These conversations, in one snapshot; those without a row are left out.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn audited(&self, ids: &[ConversationId]) -> Result<Vec<AuditedConversation>, ArchiveError> {
        let ids: Arc<[String]> = ids.iter().map(ToString::to_string).collect();
        self.unit("audited", move |connection| {
            let ids = Arc::clone(&ids);
            Box::pin(async move {
                let mut tx = connection.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
                let rows: Vec<Row> = sqlx::query_as(
                    "SELECT c.id, c.shard, c.kind, GREATEST(c.head_seq, n.newest) AS head, n.newest, c.rev, c.title, c.owner, c.pair_low,
                            c.pair_high, c.dissolved, c.facts_rev IS NOT NULL AS told, e.epoch
                     FROM conversations AS c
                     CROSS JOIN LATERAL (SELECT COALESCE(max(m.seq), 0) AS newest FROM messages AS m WHERE m.conv_id = c.id) AS n
                     LEFT JOIN shard_epochs AS e ON e.shard = c.shard
                     WHERE c.id = ANY($1) ORDER BY c.id",
                )
                .bind(&*ids)
                .fetch_all(&mut *tx)
                .await?;
                let mut found = Vec::with_capacity(rows.len());
                let mut places = HashMap::new();
                for (place, row) in rows.into_iter().enumerate() {
                    places.insert(row.id.clone(), place);
                    found.push(into_conversation(row)?);
                }
                let members: Vec<(String, String, bool, i64)> = sqlx::query_as(
                    "SELECT m.conv_id, m.user_id, m.role = 'owner', GREATEST(COALESCE(r.seq, 0), m.joined_seq)
                     FROM members AS m LEFT JOIN read_marks AS r ON r.conv_id = m.conv_id AND r.user_id = m.user_id
                     WHERE m.conv_id = ANY($1) AND m.left_rev IS NULL",
                )
                .bind(&*ids)
                .fetch_all(&mut *tx)
                .await?;
                for (id, user, owns, mark) in members {
                    if let Some(conversation) = places.get(&id).and_then(|place| found.get_mut(*place)) {
                        conversation.members.insert(user.clone(), owns);
                        conversation.marks.insert(user, read(mark)?);
                    }
                }
                let voids: Vec<(String, i64, i64)> =
                    sqlx::query_as("SELECT conv_id, from_seq, to_seq FROM voids WHERE conv_id = ANY($1) ORDER BY conv_id, from_seq")
                        .bind(&*ids)
                        .fetch_all(&mut *tx)
                        .await?;
                for (id, from, to) in voids {
                    if let Some(conversation) = places.get(&id).and_then(|place| found.get_mut(*place)) {
                        conversation.voids.push((read(from)?, read(to)?));
                    }
                }
                let leases: Vec<(String, i64, i64, bool, i64)> = sqlx::query_as(
                    "SELECT conv_id, from_seq, to_seq, state = 'installed', epoch FROM leases
                     WHERE conv_id = ANY($1) AND state <> 'ended' ORDER BY conv_id, from_seq",
                )
                .bind(&*ids)
                .fetch_all(&mut *tx)
                .await?;
                for (id, from, to, installed, epoch) in leases {
                    if let Some(conversation) = places.get(&id).and_then(|place| found.get_mut(*place)) {
                        conversation.lease = Some((read(from)?, read(to)?, installed, read(epoch)?));
                    }
                }
                tx.commit().await?;
                Ok(found)
            })
        })
        .await
    }

    /// What is wrong with the facts of these conversations.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn audit_facts(&self, ids: &[ConversationId]) -> Result<Vec<Finding>, ArchiveError> {
        let ids: Arc<[String]> = ids.iter().map(ToString::to_string).collect();
        self.unit("audit_facts", move |connection| {
            let ids = Arc::clone(&ids);
            Box::pin(async move {
                let rows: Vec<FindingRow> = sqlx::query_as(FACTS).bind(&*ids).bind(FINDINGS_MAX).fetch_all(connection).await?;
                into_findings(rows)
            })
        })
        .await
    }
}

fn into_conversation(row: Row) -> Result<AuditedConversation, Fault> {
    Ok(AuditedConversation {
        id: read_conversation(&row.id)?,
        shard: row.shard,
        kind: row.kind,
        head: read(row.head)?,
        newest: read(row.newest)?,
        rev: read(row.rev)?,
        title: row.title,
        owner: row.owner,
        pair: row.pair_low.zip(row.pair_high),
        dissolved: row.dissolved,
        told: row.told,
        members: HashMap::new(),
        marks: HashMap::new(),
        voids: Vec::new(),
        lease: None,
        epoch: row.epoch.map(read).transpose()?,
    })
}

/// Facts, members, watermarks, voids and leases. Owners are told without regard to what waits in Redis.
const FACTS: &str = "
    WITH c AS MATERIALIZED (
        SELECT c.id, c.kind, c.facts_rev, c.owner, c.pair_low, c.pair_high, c.dissolved, c.head_seq, c.rev,
               n.newest, n.newest_rev, GREATEST(c.head_seq, n.newest) AS head, o.owners, o.owner AS by_role, o.members, o.of_pair
        FROM conversations AS c
        CROSS JOIN LATERAL (SELECT COALESCE((SELECT max(m.seq) FROM messages AS m WHERE m.conv_id = c.id), 0) AS newest,
                                   COALESCE((SELECT max(m.rev) FROM messages AS m WHERE m.conv_id = c.id), 0) AS newest_rev) AS n
        CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE b.role = 'owner') AS owners, min(b.user_id) FILTER (WHERE b.role = 'owner') AS owner,
                                   count(*) AS members, count(*) FILTER (WHERE b.user_id IN (c.pair_low, c.pair_high)) AS of_pair
                            FROM members AS b WHERE b.conv_id = c.id AND b.left_rev IS NULL) AS o
        WHERE c.id = ANY($1)
    )
    (SELECT 'facts-missing' AS code, c.id AS conv_id, NULL::bigint AS seq, NULL::bigint AS to_seq, NULL::text AS who, NULL::text AS subject,
            NULL::text AS note FROM c WHERE c.facts_rev IS NULL LIMIT $2)
    UNION ALL
    (SELECT 'facts-missing', x.id, NULL, NULL, NULL, NULL, 'no row' FROM unnest($1::text[]) AS x (id)
     WHERE NOT EXISTS (SELECT 1 FROM c WHERE c.id = x.id) AND EXISTS (SELECT 1 FROM messages AS m WHERE m.conv_id = x.id) LIMIT $2)
    UNION ALL
    (SELECT 'head-behind', c.id, c.newest, NULL, NULL, NULL, 'head_seq is ' || c.head_seq FROM c WHERE c.newest > c.head_seq LIMIT $2)
    UNION ALL
    (SELECT 'rev-behind', c.id, NULL, NULL, NULL, NULL, c.rev || ' below ' || c.newest_rev FROM c WHERE c.newest_rev > c.rev LIMIT $2)
    UNION ALL
    (SELECT 'owner-count', c.id, NULL, NULL, NULL, NULL, c.owners || ' owners among ' || c.members || ' members'
     FROM c WHERE c.kind = 'group' AND c.facts_rev IS NOT NULL AND NOT c.dissolved AND c.owners <> 1 LIMIT $2)
    UNION ALL
    (SELECT 'owner-mismatch', c.id, NULL, NULL, NULL, NULL, NULL FROM c
     WHERE c.facts_rev IS NOT NULL
       AND CASE WHEN c.kind = 'group' AND NOT c.dissolved THEN c.owners = 1 AND c.owner IS DISTINCT FROM c.by_role
                ELSE c.owner IS NOT NULL OR c.owners > 0 OR (c.dissolved AND c.members > 0) END LIMIT $2)
    UNION ALL
    (SELECT 'pair-wrong', c.id, NULL, NULL, NULL, NULL, c.members || ' members, ' || c.of_pair || ' of the pair'
     FROM c WHERE c.kind = 'single' AND c.facts_rev IS NOT NULL AND (c.members <> 2 OR c.of_pair <> 2) LIMIT $2)
    UNION ALL
    (SELECT 'mark-beyond-head', r.conv_id, r.seq, NULL, r.user_id, NULL, 'archive; head ' || c.head
     FROM c JOIN read_marks AS r ON r.conv_id = c.id WHERE r.seq > c.head LIMIT $2)
    UNION ALL
    (SELECT 'join-beyond-head', b.conv_id, b.joined_seq, NULL, b.user_id, NULL, 'head ' || c.head
     FROM c JOIN members AS b ON b.conv_id = c.id WHERE b.joined_seq > c.head LIMIT $2)
    UNION ALL
    (SELECT 'cleared-beyond-head', p.conv_id, p.cleared_to, NULL, p.user_id, NULL, 'head ' || c.head
     FROM c JOIN preferences AS p ON p.conv_id = c.id WHERE p.cleared_to > c.head LIMIT $2)
    UNION ALL
    (SELECT 'void-overlap', v.conv_id, w.from_seq, LEAST(v.to_seq, w.to_seq), NULL, NULL, NULL
     FROM voids AS v JOIN voids AS w ON w.conv_id = v.conv_id AND w.from_seq > v.from_seq AND w.from_seq <= v.to_seq
     WHERE v.conv_id = ANY($1) LIMIT $2)
    UNION ALL
    (SELECT 'message-in-void', v.conv_id, m.seq, NULL, NULL, NULL, NULL
     FROM voids AS v CROSS JOIN LATERAL (
        SELECT s.seq FROM messages AS s WHERE s.conv_id = v.conv_id AND s.seq BETWEEN v.from_seq AND v.to_seq ORDER BY s.seq LIMIT 20) AS m
     WHERE v.conv_id = ANY($1) LIMIT $2)
    UNION ALL
    (SELECT 'lease-overlap', l.conv_id, k.from_seq, NULL, NULL, 'lease', NULL
     FROM leases AS l JOIN leases AS k ON k.conv_id = l.conv_id AND k.from_seq > l.from_seq AND k.from_seq <= COALESCE(l.end_seq, l.to_seq)
     WHERE l.conv_id = ANY($1) LIMIT $2)
    UNION ALL
    (SELECT 'lease-overlap', l.conv_id, max(l.from_seq), NULL, NULL, 'living', count(*) || ' leases have not ended'
     FROM leases AS l WHERE l.conv_id = ANY($1) AND l.state <> 'ended' GROUP BY l.conv_id HAVING count(*) > 1 LIMIT $2)
    UNION ALL
    (SELECT 'lease-overlap', l.conv_id, v.from_seq, v.to_seq, NULL, 'void', NULL
     FROM c JOIN leases AS l ON l.conv_id = c.id AND l.state <> 'ended'
     JOIN voids AS v ON v.conv_id = l.conv_id AND v.from_seq <= l.to_seq AND v.to_seq >= l.from_seq AND v.to_seq > c.head LIMIT $2)";
