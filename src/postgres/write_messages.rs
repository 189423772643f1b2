//! Writes messages, and tells apart what an INSERT alone would not: a replay, an older version, a stolen number, a stolen key.
//!
//! 1. INSERT … ON CONFLICT DO NOTHING RETURNING: says what is new, and nothing about the rest.
//! 2. The rest is looked up in a second statement, whose snapshot sees what a concurrent writer committed while step 1 waited for it.
//! 3. What is neither new nor found was in conflict with a writer that rolled back: once more from 1.
//! 4. Rows that stand in an older version are locked in the order of the key, then updated.

use std::collections::{HashMap, HashSet};

use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::archive::{BatchOutcome, Conflict, KeyConflict};
use super::connection::{read, stored};
use super::error::Fault;
use super::messages::Content;
use crate::domain::message::Message;

/// How often rows that vanish between two statements are tried again; each time another writer must have rolled back.
const ROUNDS_MAX: usize = 5;

/// Writes messages that are sorted by (conversation, seq) and hold each (conversation, seq, id) once.
pub(super) async fn write_messages(tx: &mut PgConnection, messages: &[Message]) -> Result<BatchOutcome, Fault> {
    let mut outcome = BatchOutcome::default();
    let mut open: Vec<&Message> = messages.iter().collect();
    let mut older: Vec<&Message> = Vec::new();
    for _ in 0..ROUNDS_MAX {
        if open.is_empty() {
            break;
        }
        let new = insert(tx, &open).await?;
        outcome.inserted += new.len() as u64;
        // The archive is idle or the batch is new, nearly always.
        if new.len() == open.len() {
            open.clear();
            break;
        }
        open.retain(|m| !new.contains(&(m.conversation.to_string(), m.seq, m.id)));
        older.extend(sort_out(tx, &mut open, &mut outcome).await?);
    }
    if !open.is_empty() {
        return Err(Fault::Contended("rows came and went under other writers"));
    }
    if !older.is_empty() {
        outcome.updated = update(tx, &older).await?;
        outcome.replayed += (older.len() as u64).saturating_sub(outcome.updated);
    }
    Ok(outcome)
}

type Place = (String, u64, Uuid);

/// Inserts what collides with nothing and names it.
async fn insert(tx: &mut PgConnection, messages: &[&Message]) -> Result<HashSet<Place>, Fault> {
    let columns = Columns::of(messages)?;
    let new: Vec<(String, i64, Uuid)> = sqlx::query_as(
        "INSERT INTO messages (conv_id, seq, id, sender, client_id, kind, body, content, fingerprint, rev,
                               created_at_ms, edited_at_ms, deleted_at_ms)
         SELECT * FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::jsonb[],
                              $9::text[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[])
         ON CONFLICT DO NOTHING
         RETURNING conv_id, seq, id",
    )
    .bind(columns.conv_id)
    .bind(columns.seq)
    .bind(columns.id)
    .bind(columns.sender)
    .bind(columns.client_id)
    .bind(columns.kind)
    .bind(columns.body)
    .bind(columns.content)
    .bind(columns.fingerprint)
    .bind(columns.rev)
    .bind(columns.created_at)
    .bind(columns.edited_at)
    .bind(columns.deleted_at)
    .fetch_all(tx)
    .await?;
    new.into_iter().map(|(conversation, seq, id)| Ok((conversation, read(seq)?, id))).collect()
}

/// Takes out of `open` what is found and puts it where it belongs; returns what stands there in an older version.
async fn sort_out<'m>(tx: &mut PgConnection, open: &mut Vec<&'m Message>, outcome: &mut BatchOutcome) -> Result<Vec<&'m Message>, Fault> {
    let on_number = on_number(tx, open).await?;
    let mut older = Vec::new();
    let mut absent = Vec::new();
    for message in open.drain(..) {
        match on_number.get(&(message.conversation.as_str(), message.seq)) {
            Some((id, rev)) if *id == message.id && *rev < message.rev => older.push(message),
            Some((id, _)) if *id == message.id => outcome.replayed += 1,
            Some((theirs, _)) => {
                outcome.conflicts.push(Conflict { conv: message.conversation.clone(), seq: message.seq, ours: message.id, theirs: *theirs })
            }
            None => absent.push(message),
        }
    }
    if absent.is_empty() {
        return Ok(older);
    }
    let on_key = on_key(tx, &absent).await?;
    for message in absent {
        let key = message.client_id.as_ref().map(|key| (message.conversation.as_str(), message.sender.as_str(), key.as_str()));
        match key.and_then(|key| on_key.get(&key)) {
            Some((their_seq, theirs)) => outcome.key_conflicts.push(KeyConflict {
                conv: message.conversation.clone(),
                seq: message.seq,
                ours: message.id,
                their_seq: *their_seq,
                theirs: *theirs,
            }),
            None => open.push(message),
        }
    }
    Ok(older)
}

/// The id and rev that stand on each message's number. OFFSET 0 keeps the planner from reading all partitions into a hash table for a
/// batch: each row is one look into one partition's index, however large the table is thought to be.
async fn on_number<'m>(tx: &mut PgConnection, messages: &[&'m Message]) -> Result<HashMap<(&'m str, u64), (Uuid, u64)>, Fault> {
    let rows: Vec<(i64, Uuid, i64)> = sqlx::query_as(
        "SELECT u.place, m.id, m.rev
         FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS u (conv_id, seq, place)
         CROSS JOIN LATERAL (SELECT s.id, s.rev FROM messages AS s WHERE s.conv_id = u.conv_id AND s.seq = u.seq OFFSET 0) AS m",
    )
    .bind(messages.iter().map(|m| m.conversation.as_str()).collect::<Vec<_>>())
    .bind(messages.iter().map(|m| stored(m.seq)).collect::<Result<Vec<_>, _>>()?)
    .fetch_all(tx)
    .await?;
    let mut found = HashMap::with_capacity(rows.len());
    for (place, id, rev) in rows {
        let message = at_place(messages, place)?;
        found.insert((message.conversation.as_str(), message.seq), (id, read(rev)?));
    }
    Ok(found)
}

/// The seq and id that each message's key names.
async fn on_key<'m>(tx: &mut PgConnection, messages: &[&'m Message]) -> Result<HashMap<(&'m str, &'m str, &'m str), (u64, Uuid)>, Fault> {
    let rows: Vec<(i64, i64, Uuid)> = sqlx::query_as(
        "SELECT u.place, m.seq, m.id
         FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS u (conv_id, sender, client_id, place)
         CROSS JOIN LATERAL (SELECT s.seq, s.id FROM messages AS s
                             WHERE s.conv_id = u.conv_id AND s.sender = u.sender AND s.client_id = u.client_id OFFSET 0) AS m",
    )
    .bind(messages.iter().map(|m| m.conversation.as_str()).collect::<Vec<_>>())
    .bind(messages.iter().map(|m| m.sender.as_str()).collect::<Vec<_>>())
    .bind(messages.iter().map(|m| m.client_id.as_ref().map(|k| k.as_str())).collect::<Vec<_>>())
    .fetch_all(tx)
    .await?;
    let mut found = HashMap::with_capacity(rows.len());
    for (place, seq, id) in rows {
        let message = at_place(messages, place)?;
        if let Some(key) = &message.client_id {
            found.insert((message.conversation.as_str(), message.sender.as_str(), key.as_str()), (read(seq)?, id));
        }
    }
    Ok(found)
}

/// The message that UNNEST gave this ordinal, counted from 1.
fn at_place<'m>(messages: &[&'m Message], place: i64) -> Result<&'m Message, Fault> {
    let index = usize::try_from(place - 1).map_err(|_| Fault::Data("an ordinal below 1"))?;
    messages.get(index).copied().ok_or(Fault::Data("an ordinal beyond the batch"))
}

/// Brings rows to a newer version and tells how many had not been brought there by another writer meanwhile. What was first sent
/// (sender, key, kind, fingerprint, time) never changes.
async fn update(tx: &mut PgConnection, messages: &[&Message]) -> Result<u64, Fault> {
    let columns = Columns::of(messages)?;
    // An UPDATE takes its locks in the order of whatever plan it gets; a SELECT that sorts first takes them in the order of the key.
    sqlx::query(
        "SELECT 1 FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS u (conv_id, seq, rev)
         JOIN messages AS m ON m.conv_id = u.conv_id AND m.seq = u.seq AND m.rev < u.rev
         ORDER BY m.conv_id, m.seq FOR UPDATE OF m",
    )
    .bind(&columns.conv_id)
    .bind(&columns.seq)
    .bind(&columns.rev)
    .execute(&mut *tx)
    .await?;
    let done = sqlx::query(
        "UPDATE messages AS m
         SET body = u.body, content = u.content, rev = u.rev, edited_at_ms = u.edited_at_ms, deleted_at_ms = u.deleted_at_ms
         FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::text[], $5::jsonb[], $6::bigint[], $7::bigint[], $8::bigint[])
              AS u (conv_id, seq, id, body, content, rev, edited_at_ms, deleted_at_ms)
         WHERE m.conv_id = u.conv_id AND m.seq = u.seq AND m.id = u.id AND m.rev < u.rev",
    )
    .bind(columns.conv_id)
    .bind(columns.seq)
    .bind(columns.id)
    .bind(columns.body)
    .bind(columns.content)
    .bind(columns.rev)
    .bind(columns.edited_at)
    .bind(columns.deleted_at)
    .execute(tx)
    .await?;
    Ok(done.rows_affected())
}

/// Messages turned into one array for each column, as UNNEST takes them: one statement text, and one plan, for every batch size.
struct Columns<'m> {
    conv_id: Vec<&'m str>,
    seq: Vec<i64>,
    id: Vec<Uuid>,
    sender: Vec<&'m str>,
    client_id: Vec<Option<&'m str>>,
    kind: Vec<&'static str>,
    body: Vec<&'m str>,
    content: Vec<Option<Json<Content>>>,
    fingerprint: Vec<Option<&'m str>>,
    rev: Vec<i64>,
    created_at: Vec<i64>,
    edited_at: Vec<Option<i64>>,
    deleted_at: Vec<Option<i64>>,
}

impl<'m> Columns<'m> {
    fn of(messages: &[&'m Message]) -> Result<Self, Fault> {
        Ok(Self {
            conv_id: messages.iter().map(|m| m.conversation.as_str()).collect(),
            seq: messages.iter().map(|m| stored(m.seq)).collect::<Result<_, _>>()?,
            id: messages.iter().map(|m| m.id).collect(),
            sender: messages.iter().map(|m| m.sender.as_str()).collect(),
            client_id: messages.iter().map(|m| m.client_id.as_ref().map(|k| k.as_str())).collect(),
            kind: messages.iter().map(|m| m.kind.as_str()).collect(),
            body: messages.iter().map(|m| m.body.as_str()).collect(),
            content: messages.iter().map(|m| Content::of(m).map(Json)).collect(),
            fingerprint: messages.iter().map(|m| m.fingerprint.as_deref()).collect(),
            rev: messages.iter().map(|m| stored(m.rev)).collect::<Result<_, _>>()?,
            created_at: messages.iter().map(|m| m.created_at).collect(),
            edited_at: messages.iter().map(|m| m.edited_at).collect(),
            deleted_at: messages.iter().map(|m| m.deleted_at).collect(),
        })
    }
}
