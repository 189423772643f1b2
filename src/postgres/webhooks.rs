//! Events that wait to be posted to the host application: put here with what they tell about, taken one conversation at a time.
//!
//! | table | one row for | ends when |
//! |---|---|---|
//! | `webhook_queue` | an event | the host has it, or it is given up |
//! | `webhook_lines` | a conversation with events waiting | none waits any more |
//! | `webhook_dead` | an event that was given up | a month later |
//!
//! Whoever queues writes events first and then locks the line; whoever takes the last event out locks the line first and then looks for
//! more. So an event is never left behind without a line. All times are the database's: workers' clocks may disagree.

use std::collections::BTreeMap;

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::archive::BatchOutcome;
use super::connection::{Archive, bound, read, read_conversation, stored};
use super::error::{ArchiveError, Fault};
use crate::domain::event::EventType;
use crate::domain::ids::{ConversationId, Rev, Seq};

/// How long it is remembered what was given up, in ms: 30 days.
const DEAD_KEPT_MS: i64 = 30 * 86_400_000;
/// Rows up to which the queue is counted.
const COUNTED_MAX: u64 = 100_000;

/// An event to be queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookRow {
    /// Where it happened.
    pub conv: ConversationId,
    /// The change.
    pub rev: Rev,
    /// Its place among the change's events.
    pub place: u16,
    /// What happened.
    pub kind: EventType,
    /// The message it shows, 0 for none.
    pub seq: Seq,
    /// The message that came with the change: without it in the archive the event is not queued.
    pub message: Option<Uuid>,
    /// The event as JSON.
    pub body: String,
}

/// The next event of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingWebhook {
    /// The change.
    pub rev: Rev,
    /// Its place among the change's events.
    pub place: u16,
    /// What happened.
    pub kind: EventType,
    /// The message it shows, 0 for none.
    pub seq: Seq,
    /// The event as it was when it was queued.
    pub body: String,
    /// For how long it has waited, in ms.
    pub age_ms: i64,
    /// Whether the words of the message it shows are gone since.
    pub words_gone: bool,
}

/// A conversation that was claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookLine {
    /// Which.
    pub conv: ConversationId,
    /// How often its next event has failed.
    pub tries: u32,
}

/// What became of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookEnd {
    /// The host has it.
    Delivered,
    /// It was given up, for this reason.
    Dead(String),
}

/// What comes next in a claimed conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextWebhook {
    /// This.
    Event(Box<WaitingWebhook>),
    /// Nothing; the claim has ended.
    Empty,
    /// Somebody else has claimed it meanwhile.
    Lost,
}

/// How much waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WebhookBacklog {
    /// Events, counted up to 100,000.
    pub events: u64,
    /// For how long the oldest has waited, in ms.
    pub oldest_ms: u64,
    /// Events given up within the last month, counted alike.
    pub dead: u64,
}

/// Queues the events of a batch whose messages are written and whose conversations are not: a conversation's stored rev then tells what
/// of it was archived before, and is not queued again. With `late`, the batch holds what stood aside while its conversation went on.
pub(super) async fn queue(
    tx: &mut PgConnection,
    events: &BTreeMap<(ConversationId, Rev, u16), WebhookRow>,
    late: bool,
    outcome: &BatchOutcome,
) -> Result<(), Fault> {
    if events.is_empty() {
        return Ok(());
    }
    let mut ids: Vec<&str> = events.keys().map(|(conversation, ..)| conversation.as_str()).collect();
    ids.dedup();
    // Locked as the batch is going to write them anyway, in the same order; of two writers of one batch the second sees what the first did.
    let known: Vec<(String, i64)> = sqlx::query_as("SELECT id, rev FROM conversations WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE")
        .bind(&ids)
        .fetch_all(&mut *tx)
        .await?;
    let known: BTreeMap<&str, i64> = known.iter().map(|(id, rev)| (id.as_str(), *rev)).collect();
    // What shows a message that is not in the archive waits for it; of what else came with it there is no reason to wait.
    let lost = |row: &WebhookRow| row.seq > 0 && row.message.is_some_and(|id| outcome.is_lost(&row.conv, row.seq, id));
    let mut fresh = Vec::with_capacity(events.len());
    for row in events.values().filter(|row| !lost(row)) {
        if late || known.get(row.conv.as_str()).is_none_or(|archived| bound(row.rev) > *archived) {
            fresh.push(row);
        }
    }
    if fresh.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO webhook_queue (conv_id, rev, place, type, seq, body, queued_at_ms)
         SELECT e.*, (extract(epoch FROM statement_timestamp()) * 1000)::bigint
         FROM unnest($1::text[], $2::bigint[], $3::smallint[], $4::text[], $5::bigint[], $6::text[]) AS e
         ON CONFLICT DO NOTHING",
    )
    .bind(fresh.iter().map(|e| e.conv.as_str()).collect::<Vec<_>>())
    .bind(fresh.iter().map(|e| stored(e.rev)).collect::<Result<Vec<_>, _>>()?)
    .bind(fresh.iter().map(|e| place_stored(e.place)).collect::<Result<Vec<_>, _>>()?)
    .bind(fresh.iter().map(|e| e.kind.as_str()).collect::<Vec<_>>())
    .bind(fresh.iter().map(|e| stored(e.seq)).collect::<Result<Vec<_>, _>>()?)
    .bind(fresh.iter().map(|e| e.body.as_str()).collect::<Vec<_>>())
    .execute(&mut *tx)
    .await?;
    let mut lines: Vec<&str> = fresh.iter().map(|e| e.conv.as_str()).collect();
    lines.dedup();
    // The update changes nothing; it takes the line's lock, which is what keeps the line from being removed as empty.
    sqlx::query(
        "INSERT INTO webhook_lines AS l (conv_id, free_at_ms)
         SELECT id, (extract(epoch FROM statement_timestamp()) * 1000)::bigint FROM unnest($1::text[]) AS id
         ON CONFLICT (conv_id) DO UPDATE SET tries = l.tries",
    )
    .bind(&lines)
    .execute(tx)
    .await?;
    Ok(())
}

impl Archive {
    /// Claims up to `limit` conversations that have events waiting, those first that have waited longest, for `hold_ms`. Each claim bears
    /// the token; after that time anybody may claim the conversation.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn claim_webhook_lines(&self, claim: Uuid, limit: u64, hold_ms: u64) -> Result<Vec<WebhookLine>, ArchiveError> {
        self.unit("claim_webhook_lines", move |connection| {
            Box::pin(async move {
                let lines: Vec<(String, i32)> = sqlx::query_as(
                    "WITH free AS (
                         SELECT conv_id FROM webhook_lines
                         WHERE free_at_ms <= (extract(epoch FROM statement_timestamp()) * 1000)::bigint
                         ORDER BY free_at_ms LIMIT $1 FOR UPDATE SKIP LOCKED)
                     UPDATE webhook_lines AS l
                     SET claim = $2, free_at_ms = (extract(epoch FROM statement_timestamp()) * 1000)::bigint + $3
                     FROM free WHERE l.conv_id = free.conv_id
                     RETURNING l.conv_id, l.tries",
                )
                .bind(bound(limit))
                .bind(claim)
                .bind(bound(hold_ms))
                .fetch_all(connection)
                .await?;
                let line = |(id, tries): (String, i32)| {
                    Ok(WebhookLine { conv: read_conversation(&id)?, tries: u32::try_from(tries).unwrap_or_default() })
                };
                lines.into_iter().map(line).collect()
            })
        })
        .await
    }

    /// Takes out of a claimed conversation the event that has ended, if one has, holds the claim for another `hold_ms`, and gives the
    /// event that comes next.
    ///
    /// # Errors
    /// When the archive does not answer: the event may have been taken out all the same.
    pub async fn next_webhook(
        &self,
        conversation: &ConversationId,
        claim: Uuid,
        hold_ms: u64,
        ended: Option<(Rev, u16, WebhookEnd)>,
    ) -> Result<NextWebhook, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("next_webhook", move |connection| {
            let (conversation, ended) = (conversation.clone(), ended.clone());
            Box::pin(async move {
                let mut tx = connection.begin().await?;
                let held = sqlx::query(
                    "UPDATE webhook_lines SET free_at_ms = (extract(epoch FROM statement_timestamp()) * 1000)::bigint + $3,
                                              tries = CASE WHEN $4 THEN 0 ELSE tries END
                     WHERE conv_id = $1 AND claim = $2",
                )
                .bind(conversation.as_str())
                .bind(claim)
                .bind(bound(hold_ms))
                .bind(ended.is_some())
                .execute(&mut *tx)
                .await?;
                if let Some((rev, place, end)) = ended {
                    // What was delivered is delivered, whoever holds the line by now.
                    take_out(&mut tx, &conversation, rev, place, &end).await?;
                }
                let next = if held.rows_affected() == 0 { NextWebhook::Lost } else { head(&mut tx, &conversation).await? };
                if next == NextWebhook::Empty {
                    sqlx::query("DELETE FROM webhook_lines WHERE conv_id = $1").bind(conversation.as_str()).execute(&mut *tx).await?;
                }
                tx.commit().await?;
                Ok(next)
            })
        })
        .await
    }

    /// Gives a claim back: after a failure the conversation's next event is tried after `wait_ms`, otherwise whenever its turn comes.
    ///
    /// # Errors
    /// When the archive does not answer; the claim then ends by itself.
    pub async fn give_back_webhook_line(
        &self,
        conversation: &ConversationId,
        claim: Uuid,
        failed: bool,
        wait_ms: u64,
    ) -> Result<(), ArchiveError> {
        let conversation = conversation.clone();
        self.unit("give_back_webhook_line", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                sqlx::query(
                    "UPDATE webhook_lines SET claim = NULL, tries = CASE WHEN $3 THEN tries + 1 ELSE tries END,
                                              free_at_ms = (extract(epoch FROM statement_timestamp()) * 1000)::bigint + $4
                     WHERE conv_id = $1 AND claim = $2",
                )
                .bind(conversation.as_str())
                .bind(claim)
                .bind(failed)
                .bind(bound(wait_ms))
                .execute(connection)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// Forgets what was given up more than a month ago.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn forget_dead_webhooks(&self) -> Result<(), ArchiveError> {
        self.unit("forget_dead_webhooks", |connection| {
            Box::pin(async move {
                sqlx::query("DELETE FROM webhook_dead WHERE dead_at_ms < (extract(epoch FROM statement_timestamp()) * 1000)::bigint - $1")
                    .bind(DEAD_KEPT_MS)
                    .execute(connection)
                    .await?;
                Ok(())
            })
        })
        .await
    }

    /// How much waits.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn webhook_backlog(&self) -> Result<WebhookBacklog, ArchiveError> {
        self.unit("webhook_backlog", |connection| {
            Box::pin(async move {
                let (events, oldest_ms, dead): (i64, i64, i64) = sqlx::query_as(
                    "SELECT (SELECT count(*) FROM (SELECT 1 FROM webhook_queue LIMIT $1) AS q),
                            COALESCE((SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint - min(queued_at_ms)
                                      FROM webhook_queue), 0),
                            (SELECT count(*) FROM (SELECT 1 FROM webhook_dead LIMIT $1) AS d)",
                )
                .bind(bound(COUNTED_MAX))
                .fetch_one(connection)
                .await?;
                Ok(WebhookBacklog { events: read(events)?, oldest_ms: read(oldest_ms.max(0))?, dead: read(dead)? })
            })
        })
        .await
    }
}

async fn take_out(tx: &mut PgConnection, conversation: &ConversationId, rev: Rev, place: u16, end: &WebhookEnd) -> Result<(), Fault> {
    let (rev, place) = (stored(rev)?, place_stored(place)?);
    if let WebhookEnd::Dead(reason) = end {
        sqlx::query(
            "INSERT INTO webhook_dead (conv_id, rev, place, type, queued_at_ms, dead_at_ms, reason)
             SELECT conv_id, rev, place, type, queued_at_ms, (extract(epoch FROM statement_timestamp()) * 1000)::bigint, $4
             FROM webhook_queue WHERE conv_id = $1 AND rev = $2 AND place = $3
             ON CONFLICT DO NOTHING",
        )
        .bind(conversation.as_str())
        .bind(rev)
        .bind(place)
        .bind(reason)
        .execute(&mut *tx)
        .await?;
    }
    sqlx::query("DELETE FROM webhook_queue WHERE conv_id = $1 AND rev = $2 AND place = $3")
        .bind(conversation.as_str())
        .bind(rev)
        .bind(place)
        .execute(tx)
        .await?;
    Ok(())
}

/// A row of the queue as it is read.
type HeadRow = (i64, i16, String, i64, String, i64, bool);

async fn head(tx: &mut PgConnection, conversation: &ConversationId) -> Result<NextWebhook, Fault> {
    // Words are gone when the message was deleted, or blanked as when a user is erased, after the event.
    let row: Option<HeadRow> = sqlx::query_as(
        "SELECT q.rev, q.place, q.type, q.seq, q.body, (extract(epoch FROM statement_timestamp()) * 1000)::bigint - q.queued_at_ms,
                EXISTS (SELECT 1 FROM messages AS m WHERE m.conv_id = q.conv_id AND m.seq = q.seq AND m.rev > q.rev
                                                    AND (m.deleted_at_ms IS NOT NULL OR m.body = ''))
         FROM webhook_queue AS q WHERE q.conv_id = $1 ORDER BY q.rev, q.place LIMIT 1",
    )
    .bind(conversation.as_str())
    .fetch_optional(tx)
    .await?;
    let Some((rev, place, kind, seq, body, age_ms, words_gone)) = row else { return Ok(NextWebhook::Empty) };
    Ok(NextWebhook::Event(Box::new(WaitingWebhook {
        rev: read(rev)?,
        place: u16::try_from(place).map_err(|_| Fault::Data("a stored place is negative"))?,
        kind: EventType::parse(&kind).ok_or(Fault::Data("a stored event type is none"))?,
        seq: read(seq)?,
        body,
        age_ms,
        words_gone,
    })))
}

fn place_stored(place: u16) -> Result<i16, Fault> {
    i16::try_from(place).map_err(|_| Fault::Data("a change has too many events"))
}
