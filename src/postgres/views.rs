//! Conversations as one member sees them, for those that are not in Redis.

use sqlx::{Connection, PgConnection};

use super::connection::{Archive, bound, effective_mark, read};
use super::conversations::{FactsRow, MemberColumns};
use super::error::{ArchiveError, Fault};
use super::messages::{MessageRow, into_messages};
use crate::domain::conversation::{ConversationView, Names, Unread};
use crate::domain::ids::{ConversationId, UserId};
use crate::domain::quote::ShownMessage;

/// One row for each conversation: facts, membership and what hangs on the member.
#[derive(sqlx::FromRow)]
struct ViewRow {
    #[sqlx(flatten)]
    facts: FactsRow,
    #[sqlx(flatten)]
    member: MemberColumns,
    mark_seq: Option<i64>,
    mark_at_ms: Option<i64>,
    unread: i64,
    mentions: i64,
    last_seq: Option<i64>,
}

impl Archive {
    /// The views of those of `conversations` that `user` is a member of, in the order asked for. Unread messages are counted exactly up
    /// to `unread_max`: those above the watermark that the member may see and that are not the member's own, deleted or timeline.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn views_of(
        &self,
        user: &UserId,
        conversations: &[ConversationId],
        unread_max: u64,
    ) -> Result<Vec<ConversationView>, ArchiveError> {
        if conversations.is_empty() {
            return Ok(Vec::new());
        }
        let (user, conversations) = (user.clone(), conversations.to_vec());
        self.unit("views_of", move |connection| {
            let (user, conversations) = (user.clone(), conversations.clone());
            Box::pin(async move {
                let mut tx = connection.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
                let views = views(&mut tx, &user, &conversations, unread_max).await?;
                tx.commit().await?;
                Ok(views)
            })
        })
        .await
    }
}

async fn views(
    tx: &mut PgConnection,
    user: &UserId,
    conversations: &[ConversationId],
    unread_max: u64,
) -> Result<Vec<ConversationView>, Fault> {
    let ids: Vec<&str> = conversations.iter().map(ConversationId::as_str).collect();
    let rows: Vec<ViewRow> = sqlx::query_as(
        "SELECT c.id, c.title, c.owner, c.pair_low, c.pair_high, c.history, c.dissolved, c.created_at_ms, c.rev, c.updated_at_ms,
                GREATEST(c.head_seq, COALESCE(newest.seq, 0)) AS head_seq,
                (SELECT count(*) FROM members AS o WHERE o.conv_id = c.id AND o.left_rev IS NULL) AS member_count,
                ARRAY(SELECT v.from_seq FROM voids AS v WHERE v.conv_id = c.id ORDER BY v.from_seq) AS void_from,
                ARRAY(SELECT v.to_seq FROM voids AS v WHERE v.conv_id = c.id ORDER BY v.from_seq) AS void_to,
                (SELECT b.since_ms FROM blocks AS b WHERE b.blocker = c.pair_low AND b.blocked = c.pair_high) AS low_blocks_ms,
                (SELECT b.since_ms FROM blocks AS b WHERE b.blocker = c.pair_high AND b.blocked = c.pair_low) AS high_blocks_ms,
                m.user_id, m.role, m.joined_at_ms, m.joined_seq, m.joined_rev,
                p.muted, p.pinned, p.hidden_to, p.marked_at, p.cleared_to,
                r.seq AS mark_seq, r.at_ms AS mark_at_ms,
                (SELECT count(*) FROM (
                    SELECT 1 FROM messages AS u
                    WHERE u.conv_id = c.id AND u.seq > GREATEST(COALESCE(r.seq, 0), m.joined_seq) AND u.seq >= seen.lowest
                      AND u.sender <> m.user_id AND u.deleted_at_ms IS NULL AND u.kind <> 'system'
                    LIMIT $3) AS counted) AS unread,
                (SELECT count(*) FROM (
                    SELECT 1 FROM messages AS u
                    WHERE u.conv_id = c.id AND u.seq > GREATEST(COALESCE(r.seq, 0), m.joined_seq) AND u.seq >= seen.lowest
                      AND u.content ? 'mentions' AND u.deleted_at_ms IS NULL AND u.content -> 'mentions' ? m.user_id
                      AND u.sender <> m.user_id
                    LIMIT $3) AS naming) AS mentions,
                CASE WHEN newest.seq >= seen.lowest THEN newest.seq END AS last_seq
         FROM unnest($2::text[]) WITH ORDINALITY AS asked (id, place)
         JOIN conversations AS c ON c.id = asked.id
         JOIN members AS m ON m.conv_id = c.id AND m.user_id = $1 AND m.left_rev IS NULL
         LEFT JOIN preferences AS p ON p.conv_id = m.conv_id AND p.user_id = m.user_id AND p.joined_rev = m.joined_rev
         LEFT JOIN read_marks AS r ON r.conv_id = c.id AND r.user_id = m.user_id
         LEFT JOIN LATERAL (SELECT max(n.seq) AS seq FROM messages AS n WHERE n.conv_id = c.id) AS newest ON true
         CROSS JOIN LATERAL (SELECT GREATEST(COALESCE(p.cleared_to, 0) + 1,
                                             CASE WHEN c.kind = 'group' AND c.history = 'from_join' THEN m.joined_seq END) AS lowest) AS seen
         WHERE c.facts_rev IS NOT NULL
         ORDER BY asked.place",
    )
    .bind(user.as_str())
    .bind(&ids)
    .bind(bound(unread_max.saturating_add(1)))
    .fetch_all(&mut *tx)
    .await?;
    let mut views = Vec::with_capacity(rows.len());
    let mut newest: Vec<(String, i64)> = Vec::new();
    for row in rows {
        let mark = effective_mark(row.mark_seq.zip(row.mark_at_ms), row.member.joined_seq, row.member.joined_at_ms);
        let conversation = row.facts.into_conversation()?;
        newest.extend(row.last_seq.map(|seq| (conversation.id.to_string(), seq)));
        let unread = read(row.unread)?;
        let me = row.member.to_member()?;
        let read_seq = mark.map(|(seq, _)| read(seq)).transpose()?.unwrap_or(0);
        views.push(ConversationView {
            unread_mentions: read(row.mentions)?.min(unread_max),
            preferences: me.preferences.shown(conversation.head_seq, read_seq),
            me,
            conversation,
            outside: false,
            read_seq,
            read_at: mark.map(|(_, at)| at),
            unread: Unread { count: unread.min(unread_max), more: unread > unread_max },
            last_message: None,
            names: Names::default(),
        });
    }
    let (in_conversations, on_numbers): (Vec<String>, Vec<i64>) = newest.into_iter().unzip();
    let rows: Vec<MessageRow> = sqlx::query_as(
        "SELECT m.conv_id, m.seq, m.id, m.sender, m.client_id, m.kind, m.body, m.content, m.fingerprint, m.rev,
                m.created_at_ms, m.edited_at_ms, m.deleted_at_ms
         FROM unnest($1::text[], $2::bigint[]) AS u (conv_id, seq)
         JOIN messages AS m ON m.conv_id = u.conv_id AND m.seq = u.seq",
    )
    .bind(in_conversations)
    .bind(on_numbers)
    .fetch_all(tx)
    .await?;
    for message in into_messages(rows)? {
        if let Some(view) = views.iter_mut().find(|view| view.conversation.id == message.conversation) {
            view.last_message = Some(ShownMessage { message, quote: None, shared: None, reader: Some(user.clone()) });
        }
    }
    Ok(views)
}
