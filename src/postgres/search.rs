//! Finds messages by their terms, newest first, in the conversations that a user belongs to.
//!
//! Two ways lead to a page, and each is slow where the other is fast:
//!
//! 1. *Walk.* The conversations are read backwards together, always those whose next message may be the newest, until the page is full or
//!    `WALK_ROWS_MAX` messages were looked at. What half of the messages say fills a page at once, however many there are.
//! 2. *Look up.* What the walk did not fill the page with is rare: the index names all of it, and sorting that is nothing. It goes on where
//!    the walk stopped.
//!
//! Without the walk a common word would be sorted in all its occurrences; without the index a rare one would be looked for in all messages.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use sqlx::PgConnection;

use super::connection::{Archive, bound, read, read_conversation};
use super::error::{ArchiveError, Fault};
use crate::domain::ids::{ConversationId, Millis, Seq, UserId};
use crate::domain::search_terms::SearchText;

/// Messages that are looked at before the index is asked.
const WALK_ROWS_MAX: usize = 2_000;
/// Messages looked at in one round of the walk.
const ROUND_ROWS: usize = 500;
/// Conversations read in one round of the walk.
const ROUND_CONVERSATIONS: usize = 50;
/// Letters that stand for a conversation before its terms: one in 2^30. Two that share them only cost each other a look.
const TAG_CHARS: usize = 5;

/// One round of the walk.
pub const WALK: &str = "SELECT c.place, t.created_at_ms, t.seq, t.seq >= c.lowest AND t.terms @@ c.query
     FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[]::tsquery[])
          WITH ORDINALITY AS c (conv_id, lowest, before_ms, before_seq, query, place)
     CROSS JOIN LATERAL (SELECT s.created_at_ms, s.seq, s.terms FROM message_terms AS s
                         WHERE s.conv_id = c.conv_id AND (s.created_at_ms, s.seq) < (c.before_ms, c.before_seq)
                         ORDER BY s.conv_id DESC, s.created_at_ms DESC, s.seq DESC LIMIT $6) AS t";
/// The look into the index. The conversation is compared in a way that no index serves: the planner would otherwise walk the key
/// backwards in the hope of an early end, which for a rare term is the whole conversation.
pub const LOOK_UP: &str = "SELECT c.conv_id, t.created_at_ms, t.seq
     FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[]::tsquery[])
          AS c (conv_id, lowest, before_ms, before_seq, query)
     CROSS JOIN LATERAL (SELECT s.created_at_ms, s.seq FROM message_terms AS s
                         WHERE s.terms @@ c.query AND s.conv_id || '' = c.conv_id
                           AND s.seq >= c.lowest AND (s.created_at_ms, s.seq) < (c.before_ms, c.before_seq)
                         ORDER BY s.created_at_ms DESC, s.seq DESC LIMIT $6) AS t
     ORDER BY t.created_at_ms DESC, c.conv_id COLLATE \"C\" DESC, t.seq DESC LIMIT $6";

/// Where a message stands in a search: later created first, then the greater conversation id, then the greater seq. A total order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundAt {
    /// When it was created.
    pub created_at: Millis,
    /// Where.
    pub conversation: ConversationId,
    /// Its number there.
    pub seq: Seq,
}

/// The letters before every term of a conversation.
#[must_use]
pub fn conversation_tag(conversation: &str) -> String {
    let mut tag = URL_SAFE_NO_PAD.encode(&Sha256::digest(conversation.as_bytes())[..4]);
    tag.truncate(TAG_CHARS);
    tag
}

/// A conversation that is searched, and how far it has been.
#[derive(Clone, Debug)]
struct Line {
    id: ConversationId,
    /// The lowest seq that the user may see.
    lowest: i64,
    /// Only what is below this created_at_ms and seq is still to be looked at.
    before: (i64, i64),
    query: String,
}

impl Line {
    /// Whether something that is still to be looked at can come before `place`.
    fn reaches(&self, place: &FoundAt) -> bool {
        (self.before.0, &self.id, self.before.1) > (place.created_at, &place.conversation, bound(place.seq))
    }
}

impl Archive {
    /// The newest `limit` messages below `before` that have all terms of `text`, in the user's conversations or in one of them. It may be
    /// that one or the other was edited or deleted a moment ago, or does not match letter by letter: who shows them looks at each as it is now.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn find_messages(
        &self,
        user: &UserId,
        conversation: Option<&ConversationId>,
        text: &SearchText,
        before: Option<&FoundAt>,
        limit: usize,
    ) -> Result<Vec<FoundAt>, ArchiveError> {
        let (user, conversation, text, before) = (user.clone(), conversation.cloned(), text.clone(), before.cloned());
        self.unit("find_messages", move |connection| {
            let (user, conversation, text, before) = (user.clone(), conversation.clone(), text.clone(), before.clone());
            Box::pin(async move {
                let lines = lines(connection, &user, conversation.as_ref(), &text, before.as_ref()).await?;
                search(connection, lines, limit).await
            })
        })
        .await
    }
}

/// The conversations in which the user may find something. What one may see in each is decided once more, on the live state, by who asks;
/// a floor that is too low here costs time and shows nothing.
async fn lines(
    connection: &mut PgConnection,
    user: &UserId,
    conversation: Option<&ConversationId>,
    text: &SearchText,
    before: Option<&FoundAt>,
) -> Result<Vec<Line>, Fault> {
    let rows: Vec<(String, i64, i64)> = sqlx::query_as(
        "SELECT c.id, GREATEST(COALESCE(p.cleared_to, 0) + 1, CASE WHEN c.kind = 'group' AND c.history = 'from_join' THEN m.joined_seq END),
                newest.created_at_ms
         FROM members AS m
         LEFT JOIN preferences AS p ON p.conv_id = m.conv_id AND p.user_id = m.user_id AND p.joined_rev = m.joined_rev
         JOIN conversations AS c ON c.id = m.conv_id
         CROSS JOIN LATERAL (SELECT t.created_at_ms FROM message_terms AS t WHERE t.conv_id = c.id
                             ORDER BY t.conv_id DESC, t.created_at_ms DESC LIMIT 1) AS newest
         WHERE m.user_id = $1 AND m.left_rev IS NULL AND ($2::text IS NULL OR m.conv_id = $2) AND c.facts_rev IS NOT NULL AND NOT c.dissolved",
    )
    .bind(user.as_str())
    .bind(conversation.map(ConversationId::as_str))
    .fetch_all(connection)
    .await?;
    let mut lines = Vec::with_capacity(rows.len());
    for (id, lowest, newest) in rows {
        let id = read_conversation(&id)?;
        let from_cursor = before.map(|place| match id.cmp(&place.conversation) {
            std::cmp::Ordering::Less => (place.created_at, i64::MAX),
            std::cmp::Ordering::Equal => (place.created_at, bound(place.seq)),
            std::cmp::Ordering::Greater => (place.created_at, 0),
        });
        let from_newest = (newest, i64::MAX);
        let before = from_cursor.map_or(from_newest, |place| place.min(from_newest));
        lines.push(Line { query: tsquery(text, &conversation_tag(id.as_str())), id, lowest, before });
    }
    Ok(lines)
}

/// All needed terms of one conversation. Terms hold letters, digits and symbols only; quoted all the same.
fn tsquery(text: &SearchText, tag: &str) -> String {
    let quoted = text.needed().iter().map(|need| {
        let term = need.term.replace('\\', "\\\\").replace('\'', "''");
        format!("'{tag}{term}'{}", if need.beginning { ":*" } else { "" })
    });
    quoted.collect::<Vec<_>>().join(" & ")
}

async fn search(connection: &mut PgConnection, mut lines: Vec<Line>, limit: usize) -> Result<Vec<FoundAt>, Fault> {
    let mut found: BTreeSet<FoundAt> = BTreeSet::new();
    let mut walked = 0;
    loop {
        while found.len() > limit {
            found.pop_first();
        }
        if found.len() == limit
            && let Some(last) = found.first()
        {
            lines.retain(|line| line.reaches(last));
        }
        if lines.is_empty() || limit == 0 {
            break;
        }
        if walked >= WALK_ROWS_MAX {
            found.extend(look_up(connection, &lines, limit).await?);
            lines.clear();
            continue;
        }
        lines.sort_by_key(|line| std::cmp::Reverse(line.before));
        walked += walk(connection, &mut lines, &mut found).await?;
    }
    Ok(found.into_iter().rev().collect())
}

/// One round backwards through the conversations that come first; those that are at their end leave. Gives the number of messages seen.
async fn walk(connection: &mut PgConnection, lines: &mut Vec<Line>, found: &mut BTreeSet<FoundAt>) -> Result<usize, Fault> {
    let chosen = lines.len().min(ROUND_CONVERSATIONS);
    let each = ROUND_ROWS / chosen.max(1);
    let columns = Columns::of(&lines[..chosen]);
    let rows: Vec<(i64, i64, i64, bool)> = sqlx::query_as(WALK)
        .bind(columns.conv_id)
        .bind(columns.lowest)
        .bind(columns.before_ms)
        .bind(columns.before_seq)
        .bind(columns.query)
        .bind(i64::try_from(each).unwrap_or(i64::MAX))
        .fetch_all(connection)
        .await?;
    let mut seen = vec![0_usize; chosen];
    for (place, created_at, seq, hit) in &rows {
        let index = usize::try_from(place - 1).map_err(|_| Fault::Data("an ordinal below 1"))?;
        let (Some(line), Some(count)) = (lines.get_mut(index), seen.get_mut(index)) else {
            return Err(Fault::Data("an ordinal beyond the batch"));
        };
        *count += 1;
        line.before = line.before.min((*created_at, *seq));
        if *hit {
            found.insert(FoundAt { created_at: *created_at, conversation: line.id.clone(), seq: read(*seq)? });
        }
    }
    let mut seen = seen.into_iter();
    lines.retain(|_| seen.next().is_none_or(|count| count == each));
    Ok(rows.len())
}

/// All that the index names in these conversations, the newest `limit` of it.
async fn look_up(connection: &mut PgConnection, lines: &[Line], limit: usize) -> Result<Vec<FoundAt>, Fault> {
    let columns = Columns::of(lines);
    let rows: Vec<(String, i64, i64)> = sqlx::query_as(LOOK_UP)
        .bind(columns.conv_id)
        .bind(columns.lowest)
        .bind(columns.before_ms)
        .bind(columns.before_seq)
        .bind(columns.query)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(connection)
        .await?;
    rows.into_iter()
        .map(|(id, created_at, seq)| Ok(FoundAt { created_at, conversation: read_conversation(&id)?, seq: read(seq)? }))
        .collect()
}

/// Lines turned into one array for each column.
struct Columns<'l> {
    conv_id: Vec<&'l str>,
    lowest: Vec<i64>,
    before_ms: Vec<i64>,
    before_seq: Vec<i64>,
    query: Vec<&'l str>,
}

impl<'l> Columns<'l> {
    fn of(lines: &'l [Line]) -> Self {
        Self {
            conv_id: lines.iter().map(|l| l.id.as_str()).collect(),
            lowest: lines.iter().map(|l| l.lowest).collect(),
            before_ms: lines.iter().map(|l| l.before.0).collect(),
            before_seq: lines.iter().map(|l| l.before.1).collect(),
            query: lines.iter().map(|l| l.query.as_str()).collect(),
        }
    }
}
