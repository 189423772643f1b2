//! What browsers still have to be woken for. Two steps, so that the archive's transaction costs one row for a conversation, however many
//! members it has:
//!
//! | table | one row for | waits while |
//! |---|---|---|
//! | `push_lines` | a conversation | `head_seq > done_seq`: its members' browsers were not looked for yet |
//! | `push_queue` | a browser and a conversation | `seq > sent_seq`: it was not woken for that yet |
//!
//! Everything moves forward by maxima, so any step may be done twice. All times are the database's: workers' clocks may disagree.

use std::collections::BTreeMap;

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::archive::BatchOutcome;
use super::connection::{Archive, bound, read, read_conversation, read_user, stored};
use super::error::{ArchiveError, Fault};
use crate::domain::ids::{ConversationId, Millis, Seq, UserId};

/// Pushes of one host that are claimed at a time.
pub const CLAIMED_OF_HOST_MAX: u64 = 8;
/// Rows up to which the queue is counted.
const COUNTED_MAX: u64 = 100_000;
/// Resting rows that are taken away at a time.
const TIDIED_MAX: i64 = 1_000;

/// A message that browsers may have to be woken for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushRow {
    /// Where.
    pub conv: ConversationId,
    /// Its number.
    pub seq: Seq,
    /// Its id: without it in the archive nobody is woken.
    pub message: Uuid,
}

/// A conversation in which something was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushLine {
    /// Which.
    pub conv: ConversationId,
    /// Up to here its members' browsers were looked for.
    pub done: Seq,
    /// The newest message.
    pub head: Seq,
}

/// A browser that was claimed to be woken, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedPush {
    /// The subscription.
    pub subscription: Uuid,
    /// Where something was said.
    pub conv: ConversationId,
    /// To whom.
    pub user: UserId,
    /// Whose the subscription is by now.
    pub owner: UserId,
    /// The endpoint's host and port.
    pub host: String,
    /// The newest message.
    pub seq: Seq,
    /// The newest that it was woken for before.
    pub sent_seq: Seq,
    /// Whether what waits names the user.
    pub named: bool,
    /// For how long it has waited, in ms.
    pub age_ms: i64,
    /// How often it has failed.
    pub tries: u32,
    /// How often it was woken in a row.
    pub sent: u32,
    /// Where its push service takes pushes.
    pub endpoint: String,
    /// Its public key.
    pub p256dh: Vec<u8>,
    /// The secret that it shares with us.
    pub auth: Vec<u8>,
    /// Whether pushes say who wrote what.
    pub show_preview: bool,
    /// When it was registered last.
    pub registered_at: Millis,
}

/// A push service for which something waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingHost {
    /// Host and port.
    pub host: String,
    /// For how long its oldest push could have gone, in ms; below 0 when none may go yet.
    pub late_ms: i64,
}

/// How many pushes may go to a push service now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRoom {
    /// Host and port.
    pub host: String,
    /// So many, of which [`CLAIMED_OF_HOST_MAX`] at a time.
    pub most: u64,
}

/// How much waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushBacklog {
    /// Pushes, counted up to 100,000.
    pub pushes: u64,
    /// For how long the oldest could have been worked on, in ms.
    pub late_ms: u64,
}

/// Notes where something was said, sorted by conversation. What comes below what was noted before, because it had stood aside, is noted no more:
/// its readers were woken for what came after it.
pub(super) async fn note(tx: &mut PgConnection, rows: &[PushRow], outcome: &BatchOutcome) -> Result<(), Fault> {
    let mut lines: BTreeMap<&str, (Seq, Seq)> = BTreeMap::new();
    for row in rows.iter().filter(|row| !outcome.is_lost(&row.conv, row.seq, row.message)) {
        let (first, last) = lines.entry(row.conv.as_str()).or_insert((row.seq, row.seq));
        (*first, *last) = ((*first).min(row.seq), (*last).max(row.seq));
    }
    if lines.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO push_lines AS l (conv_id, head_seq, done_seq, queued_at_ms)
         SELECT u.*, (extract(epoch FROM statement_timestamp()) * 1000)::bigint FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS u
         ON CONFLICT (conv_id) DO UPDATE SET head_seq = excluded.head_seq,
             queued_at_ms = CASE WHEN l.head_seq > l.done_seq THEN l.queued_at_ms ELSE excluded.queued_at_ms END
         WHERE excluded.head_seq > l.head_seq",
    )
    .bind(lines.keys().copied().collect::<Vec<_>>())
    .bind(lines.values().map(|(_, last)| stored(*last)).collect::<Result<Vec<_>, _>>()?)
    .bind(lines.values().map(|(first, _)| stored(first.saturating_sub(1))).collect::<Result<Vec<_>, _>>()?)
    .execute(tx)
    .await?;
    Ok(())
}

impl Archive {
    /// Claims for `hold_ms` up to `limit` conversations in which something was said at least `delay_ms` ago.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn claim_push_lines(&self, limit: u64, delay_ms: u64, hold_ms: u64) -> Result<Vec<PushLine>, ArchiveError> {
        self.unit("claim_push_lines", move |connection| {
            Box::pin(async move {
                let lines: Vec<(String, i64, i64)> = sqlx::query_as(
                    "WITH free AS (
                         SELECT conv_id FROM push_lines
                         WHERE head_seq > done_seq AND queued_at_ms <= (extract(epoch FROM statement_timestamp()) * 1000)::bigint - $2
                           AND free_at_ms <= (extract(epoch FROM statement_timestamp()) * 1000)::bigint
                         ORDER BY queued_at_ms LIMIT $1 FOR UPDATE SKIP LOCKED)
                     UPDATE push_lines AS l SET free_at_ms = (extract(epoch FROM statement_timestamp()) * 1000)::bigint + $3
                     FROM free WHERE l.conv_id = free.conv_id
                     RETURNING l.conv_id, l.done_seq, l.head_seq",
                )
                .bind(bound(limit))
                .bind(bound(delay_ms))
                .bind(bound(hold_ms))
                .fetch_all(connection)
                .await?;
                let line = |(conv, done, head): (String, i64, i64)| {
                    Ok(PushLine { conv: read_conversation(&conv)?, done: read(done)?, head: read(head)? })
                };
                lines.into_iter().map(line).collect()
            })
        })
        .await
    }

    /// Looks for the browsers of a conversation's members and notes for each the newest message that it is to be woken for: said by somebody
    /// else, not before `since` (ms), not read, not deleted, visible, and not where the member wants silence. What names somebody waits no
    /// longer than `interval_ms` after their last push. Gives how many were noted.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn expand_push_line(&self, line: &PushLine, since: Millis, interval_ms: u64) -> Result<u64, ArchiveError> {
        let line = line.clone();
        self.unit("expand_push_line", move |connection| {
            let line = line.clone();
            Box::pin(async move {
                let mut tx = connection.begin().await?;
                // Who has looked since the last push is told at once of what comes now.
                sqlx::query(
                    "UPDATE push_queue AS q SET sent = 0, free_at_ms = LEAST(q.free_at_ms, (extract(epoch FROM statement_timestamp()) * 1000)::bigint)
                     FROM read_marks AS r
                     WHERE q.conv_id = $1 AND r.conv_id = q.conv_id AND r.user_id = q.user_id
                       AND q.sent_seq > 0 AND r.seq >= q.sent_seq AND q.tries = 0 AND q.claim IS NULL AND q.sent > 0",
                )
                .bind(line.conv.as_str())
                .execute(&mut *tx)
                .await?;
                let noted = sqlx::query(
                    // Who is named is worked out once, not for each member: a backlog may be long.
                    "WITH named AS MATERIALIZED (
                         SELECT name, max(n.seq) AS seq
                         FROM messages AS n CROSS JOIN LATERAL jsonb_array_elements_text(n.content -> 'mentions') AS name
                         WHERE n.conv_id = $1 AND n.seq > $2 AND n.seq <= $3 AND n.content ? 'mentions' AND n.deleted_at_ms IS NULL
                         GROUP BY name)
                     INSERT INTO push_queue AS q (subscription_id, conv_id, user_id, host, seq, named, queued_at_ms, free_at_ms)
                     SELECT s.id, m.conv_id, s.user_id, s.host, newest.seq, COALESCE(named.seq > seen.seq, false), now_is.ms, now_is.ms
                     FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS ms) AS now_is
                     CROSS JOIN members AS m
                     JOIN push_subscriptions AS s ON s.user_id = m.user_id
                     LEFT JOIN preferences AS p ON p.conv_id = m.conv_id AND p.user_id = m.user_id AND p.joined_rev = m.joined_rev
                     LEFT JOIN read_marks AS r ON r.conv_id = m.conv_id AND r.user_id = m.user_id
                     CROSS JOIN LATERAL (SELECT GREATEST($2, COALESCE(r.seq, 0), m.joined_seq, COALESCE(p.cleared_to, 0)) AS seq) AS seen
                     CROSS JOIN LATERAL (
                         SELECT n.seq FROM messages AS n
                         WHERE n.conv_id = $1 AND n.seq > seen.seq AND n.seq <= $3 AND n.sender <> m.user_id AND n.kind <> 'system'
                           AND n.deleted_at_ms IS NULL AND n.created_at_ms >= $4
                         ORDER BY n.seq DESC LIMIT 1) AS newest
                     LEFT JOIN named ON named.name = m.user_id
                     WHERE m.conv_id = $1 AND m.left_rev IS NULL AND NOT COALESCE(p.muted, false)
                     ORDER BY s.id
                     ON CONFLICT (subscription_id, conv_id) DO UPDATE SET
                         seq = excluded.seq, user_id = excluded.user_id, host = excluded.host,
                         named = excluded.named OR (q.named AND q.seq > q.sent_seq),
                         queued_at_ms = CASE WHEN q.seq > q.sent_seq THEN q.queued_at_ms ELSE excluded.queued_at_ms END,
                         free_at_ms = CASE WHEN excluded.named AND q.tries = 0 AND q.claim IS NULL
                                           THEN LEAST(q.free_at_ms, GREATEST(excluded.free_at_ms, q.sent_at_ms + $5)) ELSE q.free_at_ms END
                     WHERE q.seq < excluded.seq",
                )
                .bind(line.conv.as_str())
                .bind(stored(line.done)?)
                .bind(stored(line.head)?)
                .bind(since)
                .bind(bound(interval_ms))
                .execute(&mut *tx)
                .await?;
                sqlx::query(
                    "UPDATE push_lines SET done_seq = GREATEST(done_seq, $2), free_at_ms = 0,
                                           queued_at_ms = (extract(epoch FROM statement_timestamp()) * 1000)::bigint
                     WHERE conv_id = $1",
                )
                .bind(line.conv.as_str())
                .bind(stored(line.head)?)
                .execute(&mut *tx)
                .await?;
                tx.commit().await?;
                Ok(noted.rows_affected())
            })
        })
        .await
    }

    /// The next `limit` hosts after this one, in the order of their names, for which something waits. Each costs one look into an index, however
    /// much waits for it.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn waiting_push_hosts(&self, after: &str, limit: u64) -> Result<Vec<WaitingHost>, ArchiveError> {
        let after = after.to_owned();
        self.unit("waiting_push_hosts", move |connection| {
            let after = after.clone();
            Box::pin(async move {
                let hosts: Vec<(String, i64)> = sqlx::query_as(
                    "WITH RECURSIVE walk AS (
                         (SELECT q.host, q.free_at_ms, 1::bigint AS place FROM push_queue AS q
                          WHERE q.seq > q.sent_seq AND q.host > $1 ORDER BY q.host, q.free_at_ms LIMIT 1)
                         UNION ALL
                         SELECT next.host, next.free_at_ms, walk.place + 1 FROM walk CROSS JOIN LATERAL (
                             SELECT q.host, q.free_at_ms FROM push_queue AS q
                             WHERE q.seq > q.sent_seq AND q.host > walk.host ORDER BY q.host, q.free_at_ms LIMIT 1) AS next
                         WHERE walk.place < $2)
                     SELECT host, (extract(epoch FROM statement_timestamp()) * 1000)::bigint - free_at_ms FROM walk ORDER BY place",
                )
                .bind(after)
                .bind(bound(limit))
                .fetch_all(connection)
                .await?;
                Ok(hosts.into_iter().map(|(host, late_ms)| WaitingHost { host, late_ms }).collect())
            })
        })
        .await
    }

    /// The hosts that took a push within the last `within_ms`, at most `limit`.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn willing_push_hosts(&self, within_ms: u64, limit: u64) -> Result<Vec<String>, ArchiveError> {
        self.unit("willing_push_hosts", move |connection| {
            Box::pin(async move {
                let hosts = sqlx::query_scalar(
                    "SELECT DISTINCT host FROM push_queue
                     WHERE sent_at_ms > (extract(epoch FROM statement_timestamp()) * 1000)::bigint - $1 LIMIT $2",
                );
                Ok(hosts.bind(bound(within_ms)).bind(bound(limit)).fetch_all(connection).await?)
            })
        })
        .await
    }

    /// Claims for `hold_ms` up to `limit` browsers that wait to be woken, those first that have waited longest, at hosts that have room for them.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn claim_pushes(&self, claim: Uuid, limit: u64, rooms: &[HostRoom], hold_ms: u64) -> Result<Vec<ClaimedPush>, ArchiveError> {
        let (hosts, most): (Vec<String>, Vec<i64>) = rooms.iter().map(|room| (room.host.clone(), bound(room.most))).unzip();
        self.unit("claim_pushes", move |connection| {
            let (hosts, most) = (hosts.clone(), most.clone());
            Box::pin(async move {
                let rows: Vec<ClaimedRow> = sqlx::query_as(
                    // The 8 is CLAIMED_OF_HOST_MAX: a number that is not known beforehand would be taken for a tenth of the table.
                    "WITH now_is AS (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS ms),
                     waiting AS (
                         SELECT w.* FROM unnest($3::text[], $4::bigint[]) AS room (host, most) CROSS JOIN LATERAL (
                             SELECT f.*, row_number() OVER (ORDER BY f.free_at_ms) AS place
                             FROM (SELECT subscription_id, conv_id, free_at_ms FROM push_queue
                                   WHERE host = room.host AND seq > sent_seq AND free_at_ms <= (SELECT ms FROM now_is)
                                   ORDER BY free_at_ms LIMIT 8) AS f) AS w
                         WHERE w.place <= room.most),
                     free AS (
                         SELECT q.subscription_id, q.conv_id FROM push_queue AS q
                         JOIN waiting AS w ON w.subscription_id = q.subscription_id AND w.conv_id = q.conv_id
                         WHERE q.seq > q.sent_seq AND q.free_at_ms <= (SELECT ms FROM now_is)
                         ORDER BY w.free_at_ms LIMIT $2 FOR UPDATE OF q SKIP LOCKED)
                     UPDATE push_queue AS q SET claim = $1, free_at_ms = (extract(epoch FROM statement_timestamp()) * 1000)::bigint + $5
                     FROM free JOIN push_subscriptions AS s ON s.id = free.subscription_id
                     WHERE q.subscription_id = free.subscription_id AND q.conv_id = free.conv_id
                     RETURNING q.subscription_id, q.conv_id, q.user_id, s.user_id AS owner, q.host, q.seq, q.sent_seq, q.named,
                               (extract(epoch FROM statement_timestamp()) * 1000)::bigint - q.queued_at_ms AS age_ms, q.tries, q.sent,
                               s.endpoint, s.p256dh, s.auth, s.show_preview, s.registered_at_ms",
                )
                .bind(claim)
                .bind(bound(limit))
                .bind(hosts)
                .bind(most)
                .bind(bound(hold_ms))
                .fetch_all(connection)
                .await?;
                rows.into_iter().map(ClaimedRow::into_push).collect()
            })
        })
        .await
    }

    /// Ends a claim: nothing up to `seq` has to be told any more. With `sent` the browser was woken, and is left alone for `wait_ms`.
    ///
    /// # Errors
    /// When the archive does not answer; the claim then ends by itself, and the browser is woken again.
    pub async fn finish_push(&self, push: &ClaimedPush, claim: Uuid, seq: Seq, sent: bool, wait_ms: u64) -> Result<(), ArchiveError> {
        let push = push.clone();
        self.unit("finish_push", move |connection| {
            let push = push.clone();
            Box::pin(async move {
                sqlx::query(
                    "UPDATE push_queue SET claim = NULL, tries = 0, sent_seq = GREATEST(sent_seq, $4), named = named AND seq > $4,
                         sent = CASE WHEN $5 THEN sent + 1 ELSE 0 END,
                         sent_at_ms = CASE WHEN $5 THEN (extract(epoch FROM statement_timestamp()) * 1000)::bigint ELSE sent_at_ms END,
                         queued_at_ms = (extract(epoch FROM statement_timestamp()) * 1000)::bigint,
                         free_at_ms = (extract(epoch FROM statement_timestamp()) * 1000)::bigint + $6
                     WHERE subscription_id = $1 AND conv_id = $2 AND claim = $3",
                )
                .bind(push.subscription)
                .bind(push.conv.as_str())
                .bind(claim)
                .bind(stored(seq)?)
                .bind(sent)
                .bind(bound(wait_ms))
                .execute(connection)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// Ends a claim after a failure: this push is tried again after `wait_ms`, and nothing else goes to that browser before. A failure that
    /// was ours and not the push service's is not counted.
    ///
    /// # Errors
    /// As [`Archive::finish_push`].
    pub async fn put_off_push(&self, push: &ClaimedPush, claim: Uuid, counted: bool, wait_ms: u64) -> Result<(), ArchiveError> {
        let push = push.clone();
        self.unit("put_off_push", move |connection| {
            let push = push.clone();
            Box::pin(async move {
                sqlx::query(
                    "WITH those AS (
                         SELECT conv_id FROM push_queue
                         WHERE subscription_id = $1 AND ((conv_id = $2 AND claim = $3) OR ($4 AND claim IS NULL AND seq > sent_seq))
                         ORDER BY conv_id FOR UPDATE)
                     UPDATE push_queue AS q SET
                         tries = CASE WHEN q.claim IS NOT NULL AND $4 THEN q.tries + 1 ELSE q.tries END, claim = NULL,
                         free_at_ms = CASE WHEN q.claim IS NOT NULL THEN (extract(epoch FROM statement_timestamp()) * 1000)::bigint + $5
                                           ELSE GREATEST(q.free_at_ms, (extract(epoch FROM statement_timestamp()) * 1000)::bigint + $5) END
                     FROM those WHERE q.subscription_id = $1 AND q.conv_id = those.conv_id",
                )
                .bind(push.subscription)
                .bind(push.conv.as_str())
                .bind(claim)
                .bind(counted)
                .bind(bound(wait_ms))
                .execute(connection)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// Takes away rows of browsers that have nothing to be told and were left alone long enough.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn tidy_pushes(&self) -> Result<(), ArchiveError> {
        self.unit("tidy_pushes", |connection| {
            Box::pin(async move {
                sqlx::query(
                    "DELETE FROM push_queue WHERE (subscription_id, conv_id) IN (
                         SELECT subscription_id, conv_id FROM push_queue
                         WHERE seq <= sent_seq AND free_at_ms <= (extract(epoch FROM statement_timestamp()) * 1000)::bigint
                         ORDER BY subscription_id, conv_id LIMIT $1 FOR UPDATE SKIP LOCKED)",
                )
                .bind(TIDIED_MAX)
                .execute(connection)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// How much waits, where nothing is looked for before `delay_ms` have passed.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn push_backlog(&self, delay_ms: u64) -> Result<PushBacklog, ArchiveError> {
        self.unit("push_backlog", move |connection| {
            Box::pin(async move {
                let (pushes, late_ms): (i64, i64) = sqlx::query_as(
                    "SELECT (SELECT count(*) FROM (SELECT 1 FROM push_queue WHERE seq > sent_seq LIMIT $1) AS q),
                            (extract(epoch FROM statement_timestamp()) * 1000)::bigint
                            - LEAST((SELECT min(free_at_ms) FROM push_queue WHERE seq > sent_seq),
                                    (SELECT min(queued_at_ms) FROM push_lines WHERE head_seq > done_seq) + $2,
                                    (extract(epoch FROM statement_timestamp()) * 1000)::bigint)",
                )
                .bind(bound(COUNTED_MAX))
                .bind(bound(delay_ms))
                .fetch_one(connection)
                .await?;
                Ok(PushBacklog { pushes: read(pushes)?, late_ms: read(late_ms.max(0))? })
            })
        })
        .await
    }
}

#[derive(sqlx::FromRow)]
struct ClaimedRow {
    subscription_id: Uuid,
    conv_id: String,
    user_id: String,
    owner: String,
    host: String,
    seq: i64,
    sent_seq: i64,
    named: bool,
    age_ms: i64,
    tries: i32,
    sent: i32,
    endpoint: String,
    p256dh: Vec<u8>,
    auth: Vec<u8>,
    show_preview: bool,
    registered_at_ms: i64,
}

impl ClaimedRow {
    fn into_push(self) -> Result<ClaimedPush, Fault> {
        Ok(ClaimedPush {
            subscription: self.subscription_id,
            conv: read_conversation(&self.conv_id)?,
            user: read_user(&self.user_id)?,
            owner: read_user(&self.owner)?,
            host: self.host,
            seq: read(self.seq)?,
            sent_seq: read(self.sent_seq)?,
            named: self.named,
            age_ms: self.age_ms,
            tries: u32::try_from(self.tries).unwrap_or_default(),
            sent: u32::try_from(self.sent).unwrap_or_default(),
            endpoint: self.endpoint,
            p256dh: self.p256dh,
            auth: self.auth,
            show_preview: self.show_preview,
            registered_at: self.registered_at_ms,
        })
    }
}
