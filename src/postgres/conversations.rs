//! Conversations as a whole: what a cold one needs to come back, who is in it, and which are somebody's.

use sqlx::{Connection, PgConnection};

use super::connection::{Archive, bound, effective_mark, read, read_conversation, read_user};
use super::error::{ArchiveError, Fault};
use super::messages::{MessageRow, into_messages};
use super::preferences::PreferencesColumns;
use crate::domain::block::Blocks;
use crate::domain::conversation::{Conversation, History};
use crate::domain::ids::{ConversationId, Millis, Seq, UserId};
use crate::domain::membership::{Member, Role};
use crate::domain::message::Message;

/// Mentions loaded for one member: at least one more than are ever counted.
const MENTIONS_MAX: i64 = 100_001;

/// Everything of a conversation that Redis holds while it is warm.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredWhole {
    /// The common facts, voids included; `head_seq` is the highest number known here.
    pub conversation: Conversation,
    /// Current members, by user id bytes.
    pub members: Vec<Member>,
    /// Watermarks of current members, with when they moved; who never read and joined at the start is left out. Of a group that has ended:
    /// those of everybody who was in it.
    pub marks: Vec<(UserId, Seq, Millis)>,
    /// The messages that never count as unread (timeline, deleted), ascending.
    pub uncounted: Vec<Seq>,
    /// Unread messages that name a current member, of each the newest `MENTIONS_MAX`, ascending.
    pub mentions: Vec<(UserId, Seq)>,
    /// The newest messages, ascending: every number from the first of them to the head is here or void.
    pub recent: Vec<Message>,
}

/// What a creator's idempotency key stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// It was new and stands for the given id now.
    New(ConversationId),
    /// The same request came before and reserved this id.
    Existing(ConversationId),
    /// It came before with other content.
    Conflict,
}

/// The facts of a conversation as one row; every SELECT names these columns.
#[derive(sqlx::FromRow)]
pub(super) struct FactsRow {
    id: String,
    title: Option<String>,
    owner: Option<String>,
    pair_low: Option<String>,
    pair_high: Option<String>,
    history: String,
    dissolved: bool,
    created_at_ms: i64,
    head_seq: i64,
    rev: i64,
    updated_at_ms: i64,
    member_count: i64,
    void_from: Vec<i64>,
    void_to: Vec<i64>,
    low_blocks_ms: Option<i64>,
    high_blocks_ms: Option<i64>,
}

impl FactsRow {
    pub(super) fn into_conversation(self) -> Result<Conversation, Fault> {
        let pair = match (self.pair_low, self.pair_high) {
            (Some(low), Some(high)) => Some((read_user(&low)?, read_user(&high)?)),
            _ => None,
        };
        let voids = self.void_from.into_iter().zip(self.void_to).map(|(from, to)| Ok((read(from)?, read(to)?)));
        Ok(Conversation {
            id: read_conversation(&self.id)?,
            title: self.title,
            owner: self.owner.as_deref().map(read_user).transpose()?,
            pair,
            history: History::parse(&self.history).ok_or(Fault::Data("a stored history is none"))?,
            member_count: read(self.member_count)?,
            head_seq: read(self.head_seq)?,
            rev: read(self.rev)?,
            created_at: self.created_at_ms,
            updated_at: self.updated_at_ms,
            dissolved: self.dissolved,
            voids: voids.collect::<Result<_, Fault>>()?,
            blocks: Blocks { by_low: self.low_blocks_ms, by_high: self.high_blocks_ms },
        })
    }
}

/// A membership as one row.
#[derive(sqlx::FromRow)]
pub(super) struct MemberColumns {
    user_id: String,
    role: String,
    pub(super) joined_at_ms: i64,
    pub(super) joined_seq: i64,
    joined_rev: i64,
    #[sqlx(flatten)]
    preferences: PreferencesColumns,
}

impl MemberColumns {
    pub(super) fn to_member(&self) -> Result<Member, Fault> {
        Ok(Member {
            user: read_user(&self.user_id)?,
            role: Role::parse(&self.role).ok_or(Fault::Data("a stored role is none"))?,
            joined_at: self.joined_at_ms,
            joined_seq: read(self.joined_seq)?,
            joined_rev: read(self.joined_rev)?,
            preferences: self.preferences.to_preferences()?,
        })
    }
}

impl Archive {
    /// A conversation as it must stand in Redis, with up to `recent` of its newest messages; `None` when it was never made.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn load_conversation(&self, conversation: &ConversationId, recent: u64) -> Result<Option<StoredWhole>, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("load_conversation", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                // One snapshot: members of one moment with marks of another would be a state that never was.
                let mut tx = connection.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
                let whole = load(&mut tx, &conversation, recent).await?;
                tx.commit().await?;
                Ok(whole)
            })
        })
        .await
    }

    /// The conversations that a user is a member of, with their last activity, newest first.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn conversation_ids_of(&self, user: &UserId) -> Result<Vec<(ConversationId, Millis)>, ArchiveError> {
        let user = user.clone();
        self.unit("conversation_ids_of", move |connection| {
            let user = user.clone();
            Box::pin(async move {
                let rows: Vec<(String, i64)> = sqlx::query_as(
                    "SELECT c.id, c.updated_at_ms FROM members AS m JOIN conversations AS c ON c.id = m.conv_id
                     WHERE m.user_id = $1 AND m.left_rev IS NULL AND c.facts_rev IS NOT NULL
                       -- What a block alone has made is not listed before there is a message.
                       AND NOT (c.head_seq = 0 AND c.pair_low IS NOT NULL AND EXISTS (
                           SELECT 1 FROM blocks AS b
                           WHERE (b.blocker, b.blocked) IN ((c.pair_low, c.pair_high), (c.pair_high, c.pair_low))))
                     ORDER BY c.updated_at_ms DESC, c.id DESC",
                )
                .bind(user.as_str())
                .fetch_all(connection)
                .await?;
                rows.into_iter().map(|(id, at)| Ok((read_conversation(&id)?, at))).collect()
            })
        })
        .await
    }

    /// A conversation's facts; `None` when it was never made.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn conversation(&self, conversation: &ConversationId) -> Result<Option<Conversation>, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("conversation", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move { facts_of(connection, &conversation).await })
        })
        .await
    }

    /// Whether there is such a conversation, made and archived.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn conversation_exists(&self, conversation: &ConversationId) -> Result<bool, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("conversation_exists", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                let row: Option<(i32,)> = sqlx::query_as("SELECT 1 FROM conversations WHERE id = $1 AND facts_rev IS NOT NULL")
                    .bind(conversation.as_str())
                    .fetch_optional(connection)
                    .await?;
                Ok(row.is_some())
            })
        })
        .await
    }

    /// A page of a conversation's current members by user id bytes, from the first above `after`.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn members_page(
        &self,
        conversation: &ConversationId,
        after: Option<&UserId>,
        limit: u64,
    ) -> Result<Vec<Member>, ArchiveError> {
        let (conversation, after) = (conversation.clone(), after.cloned());
        self.unit("members_page", move |connection| {
            let (conversation, after) = (conversation.clone(), after.clone());
            Box::pin(async move {
                let rows: Vec<MemberColumns> = sqlx::query_as(
                    "SELECT user_id, role, joined_at_ms, joined_seq, joined_rev FROM members
                     WHERE conv_id = $1 AND left_rev IS NULL AND user_id > $2 ORDER BY user_id LIMIT $3",
                )
                .bind(conversation.as_str())
                .bind(after.as_ref().map_or("", UserId::as_str))
                .bind(bound(limit))
                .fetch_all(connection)
                .await?;
                rows.iter().map(MemberColumns::to_member).collect()
            })
        })
        .await
    }

    /// Ties a creator's idempotency key to `fresh`, unless it is tied already.
    ///
    /// # Errors
    /// When the archive does not answer; asking again with the same `fresh` tells what was tied.
    pub async fn reserve_group(
        &self,
        creator: &UserId,
        key: &str,
        fingerprint: &str,
        fresh: ConversationId,
    ) -> Result<Reservation, ArchiveError> {
        let (creator, key, fingerprint) = (creator.clone(), key.to_owned(), fingerprint.to_owned());
        self.unit("reserve_group", move |connection| {
            let (creator, key, fingerprint, fresh) = (creator.clone(), key.clone(), fingerprint.clone(), fresh.clone());
            Box::pin(async move {
                sqlx::query(
                    "INSERT INTO group_reservations (creator, key, fingerprint, conv_id) VALUES ($1, $2, $3, $4)
                     ON CONFLICT (creator, key) DO NOTHING",
                )
                .bind(creator.as_str())
                .bind(&key)
                .bind(&fingerprint)
                .bind(fresh.as_str())
                .execute(&mut *connection)
                .await?;
                // Read by a statement of its own: it sees the row that the first one may have waited for.
                let (known, id): (String, String) =
                    sqlx::query_as("SELECT fingerprint, conv_id FROM group_reservations WHERE creator = $1 AND key = $2")
                        .bind(creator.as_str())
                        .bind(&key)
                        .fetch_one(&mut *connection)
                        .await?;
                Ok(if known != fingerprint {
                    Reservation::Conflict
                } else if id == fresh.as_str() {
                    Reservation::New(fresh)
                } else {
                    Reservation::Existing(read_conversation(&id)?)
                })
            })
        })
        .await
    }

    /// Whether this is a group that has ended and this user was in it.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn was_in_ended(&self, conversation: &ConversationId, user: &UserId) -> Result<bool, ArchiveError> {
        let (conversation, user) = (conversation.clone(), user.clone());
        self.unit("was_in_ended", move |connection| {
            let (conversation, user) = (conversation.clone(), user.clone());
            Box::pin(async move {
                let (was,): (bool,) = sqlx::query_as(
                    "SELECT EXISTS (SELECT 1 FROM conversations AS c JOIN members AS m ON m.conv_id = c.id
                                    WHERE c.id = $1 AND c.dissolved AND m.user_id = $2)",
                )
                .bind(conversation.as_str())
                .bind(user.as_str())
                .fetch_one(&mut *connection)
                .await?;
                Ok(was)
            })
        })
        .await
    }

    /// A conversation's facts and a current member of it; `None` when there is no such conversation or no such member.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn membership(&self, conversation: &ConversationId, user: &UserId) -> Result<Option<(Conversation, Member)>, ArchiveError> {
        let (conversation, user) = (conversation.clone(), user.clone());
        self.unit("membership", move |connection| {
            let (conversation, user) = (conversation.clone(), user.clone());
            Box::pin(async move {
                let member: Option<MemberColumns> = sqlx::query_as(
                    "SELECT m.user_id, m.role, m.joined_at_ms, m.joined_seq, m.joined_rev,
                            p.muted, p.pinned, p.hidden_to, p.marked_at, p.cleared_to
                     FROM members AS m
                     LEFT JOIN preferences AS p ON p.conv_id = m.conv_id AND p.user_id = m.user_id AND p.joined_rev = m.joined_rev
                     WHERE m.conv_id = $1 AND m.user_id = $2 AND m.left_rev IS NULL",
                )
                .bind(conversation.as_str())
                .bind(user.as_str())
                .fetch_optional(&mut *connection)
                .await?;
                let Some(member) = member else { return Ok(None) };
                let Some(facts) = facts_of(connection, &conversation).await? else { return Ok(None) };
                Ok(Some((facts, member.to_member()?)))
            })
        })
        .await
    }
}

async fn facts_of(connection: &mut PgConnection, conversation: &ConversationId) -> Result<Option<Conversation>, Fault> {
    let row: Option<FactsRow> = sqlx::query_as(
        "SELECT c.id, c.title, c.owner, c.pair_low, c.pair_high, c.history, c.dissolved, c.created_at_ms, c.rev, c.updated_at_ms,
                GREATEST(c.head_seq, COALESCE((SELECT max(seq) FROM messages WHERE conv_id = $1), 0)) AS head_seq,
                (SELECT count(*) FROM members AS m WHERE m.conv_id = c.id AND m.left_rev IS NULL) AS member_count,
                ARRAY(SELECT v.from_seq FROM voids AS v WHERE v.conv_id = c.id ORDER BY v.from_seq) AS void_from,
                ARRAY(SELECT v.to_seq FROM voids AS v WHERE v.conv_id = c.id ORDER BY v.from_seq) AS void_to,
                (SELECT b.since_ms FROM blocks AS b WHERE b.blocker = c.pair_low AND b.blocked = c.pair_high) AS low_blocks_ms,
                (SELECT b.since_ms FROM blocks AS b WHERE b.blocker = c.pair_high AND b.blocked = c.pair_low) AS high_blocks_ms
         FROM conversations AS c WHERE c.id = $1 AND c.facts_rev IS NOT NULL",
    )
    .bind(conversation.as_str())
    .fetch_optional(connection)
    .await?;
    row.map(FactsRow::into_conversation).transpose()
}

async fn load(tx: &mut PgConnection, id: &ConversationId, recent: u64) -> Result<Option<StoredWhole>, Fault> {
    let Some(conversation) = facts_of(tx, id).await? else { return Ok(None) };
    let columns: Vec<MemberColumns> = sqlx::query_as(
        "SELECT m.user_id, m.role, m.joined_at_ms, m.joined_seq, m.joined_rev,
                p.muted, p.pinned, p.hidden_to, p.marked_at, p.cleared_to
         FROM members AS m
         LEFT JOIN preferences AS p ON p.conv_id = m.conv_id AND p.user_id = m.user_id AND p.joined_rev = m.joined_rev
         WHERE m.conv_id = $1 AND m.left_rev IS NULL ORDER BY m.user_id",
    )
    .bind(id.as_str())
    .fetch_all(&mut *tx)
    .await?;
    let read_marks: Vec<(String, i64, i64)> =
        sqlx::query_as("SELECT user_id, seq, at_ms FROM read_marks WHERE conv_id = $1").bind(id.as_str()).fetch_all(&mut *tx).await?;
    let read_marks: std::collections::HashMap<String, (i64, i64)> = read_marks.into_iter().map(|(u, seq, at)| (u, (seq, at))).collect();
    let uncounted: Vec<(i64,)> =
        sqlx::query_as("SELECT seq FROM messages WHERE conv_id = $1 AND (kind = 'system' OR deleted_at_ms IS NOT NULL) ORDER BY seq")
            .bind(id.as_str())
            .fetch_all(&mut *tx)
            .await?;
    let named: Vec<(String, i64)> = sqlx::query_as(
        "SELECT user_id, seq FROM (
            SELECT m.user_id, u.seq, row_number() OVER (PARTITION BY m.user_id ORDER BY u.seq DESC) AS place
            FROM messages AS u
            CROSS JOIN LATERAL jsonb_array_elements_text(u.content -> 'mentions') AS n (user_id)
            JOIN members AS m ON m.conv_id = u.conv_id AND m.user_id = n.user_id COLLATE \"C\" AND m.left_rev IS NULL
            LEFT JOIN read_marks AS r ON r.conv_id = m.conv_id AND r.user_id = m.user_id
            WHERE u.conv_id = $1 AND u.content ? 'mentions' AND u.deleted_at_ms IS NULL AND u.sender <> m.user_id
              AND u.seq > GREATEST(COALESCE(r.seq, 0), m.joined_seq)) AS named
         WHERE place <= $2 ORDER BY seq, user_id",
    )
    .bind(id.as_str())
    .bind(MENTIONS_MAX)
    .fetch_all(&mut *tx)
    .await?;
    let rows: Vec<MessageRow> = sqlx::query_as(
        "SELECT conv_id, seq, id, sender, client_id, kind, body, content, fingerprint, rev,
                created_at_ms, edited_at_ms, deleted_at_ms
         FROM messages WHERE conv_id = $1 ORDER BY seq DESC LIMIT $2",
    )
    .bind(id.as_str())
    .bind(bound(recent))
    .fetch_all(&mut *tx)
    .await?;
    let mut members = Vec::with_capacity(columns.len());
    let mut marks = Vec::new();
    for row in &columns {
        let member = row.to_member()?;
        if let Some((seq, at)) = effective_mark(read_marks.get(&row.user_id).copied(), row.joined_seq, row.joined_at_ms) {
            marks.push((member.user.clone(), read(seq)?, at));
        }
        members.push(member);
    }
    if conversation.dissolved {
        // Nobody belongs to it any more; whoever did is told that it has ended, and the marks tell them from strangers.
        let left: Vec<(String,)> = sqlx::query_as("SELECT DISTINCT user_id FROM members WHERE conv_id = $1 AND left_rev IS NOT NULL")
            .bind(id.as_str())
            .fetch_all(&mut *tx)
            .await?;
        for (user,) in left {
            let (seq, at) = read_marks.get(&user).copied().unwrap_or_default();
            marks.push((read_user(&user)?, read(seq)?, at));
        }
    }
    Ok(Some(StoredWhole {
        recent: contiguous_tail(conversation.head_seq, &conversation.voids, into_messages(rows)?),
        conversation,
        members,
        marks,
        mentions: named.into_iter().map(|(user, seq)| Ok((read_user(&user)?, read(seq)?))).collect::<Result<_, Fault>>()?,
        uncounted: uncounted.into_iter().map(|(seq,)| read(seq)).collect::<Result<_, _>>()?,
    }))
}

/// Of messages in descending order, those from the head down to the first number that is neither there nor void; ascending. A hole is
/// a message that stands aside: whoever took what lies below it for complete would never look for it.
fn contiguous_tail(head: Seq, voids: &[(Seq, Seq)], descending: Vec<Message>) -> Vec<Message> {
    let mut expected = head;
    let mut tail = Vec::new();
    for message in descending {
        while expected > message.seq {
            match voids.iter().find(|(from, to)| *from <= expected && expected <= *to) {
                // Never below the message itself, should it stand inside a void.
                Some((from, _)) => expected = (from.saturating_sub(1)).max(message.seq),
                None => break,
            }
        }
        if expected != message.seq {
            break;
        }
        expected = message.seq.saturating_sub(1);
        tail.push(message);
    }
    tail.reverse();
    tail
}
