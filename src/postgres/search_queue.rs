//! Works out the terms of messages that were written, after they were: the archive's transactions only leave a note in `search_queue`.
//!
//! A round takes notes that nobody else holds, reads the messages as they are now, writes their terms and takes the notes away, all in one
//! transaction. Any number of workers may do so at once, and a round may be cut off anywhere: then its notes are there again. Two that
//! hold notes of the same message cannot bring it back to an older version: the higher rev stands, and a deleted one keeps a row without terms.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{Connection, PgConnection};

use super::connection::Archive;
use super::error::{ArchiveError, Fault};
use super::search::conversation_tag;
use crate::domain::ids::Millis;
use crate::domain::search_terms::terms_of;

/// Notes taken in one round; a note has as many messages as a batch of the archive.
const NOTES_MAX: i64 = 8;
/// Messages whose terms one round works out, unless a single note has more.
const MESSAGES_MAX: usize = 1_000;

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Indexed {
    /// Messages whose terms were written.
    pub messages: u64,
    /// When the oldest note taken was left.
    pub oldest: Option<Millis>,
    /// Whether there may be more notes.
    pub more: bool,
}

/// A message as far as its terms go.
#[derive(sqlx::FromRow)]
struct Written {
    conv_id: String,
    created_at_ms: i64,
    seq: i64,
    rev: i64,
    body: String,
    found: bool,
}

impl Archive {
    /// Takes some notes and works out what they name. Safe to repeat, and to run at once in several processes.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn index_messages(&self) -> Result<Indexed, ArchiveError> {
        self.unit("index_messages", |connection| Box::pin(index_messages(connection))).await
    }
}

async fn index_messages(connection: &mut PgConnection) -> Result<Indexed, Fault> {
    let mut tx = connection.begin().await?;
    let notes: Vec<(i64, i64, Vec<String>, Vec<i64>)> =
        sqlx::query_as("SELECT id, queued_at_ms, conv_ids, seqs FROM search_queue ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED")
            .bind(NOTES_MAX)
            .fetch_all(&mut *tx)
            .await?;
    let mut indexed = Indexed { oldest: notes.first().map(|note| note.1), more: !notes.is_empty(), messages: 0 };
    let (mut taken, mut places) = (Vec::new(), BTreeSet::new());
    for (id, _, conversations, seqs) in notes {
        if !taken.is_empty() && places.len() + seqs.len() > MESSAGES_MAX {
            break;
        }
        taken.push(id);
        places.extend(conversations.into_iter().zip(seqs));
    }
    if taken.is_empty() {
        return Ok(indexed);
    }
    let (conversations, seqs): (Vec<String>, Vec<i64>) = places.into_iter().unzip();
    let messages: Vec<Written> = sqlx::query_as(
        "SELECT m.conv_id, m.created_at_ms, m.seq, m.rev, m.body, m.kind <> 'system' AND m.deleted_at_ms IS NULL AS found
         FROM unnest($1::text[], $2::bigint[]) AS u (conv_id, seq)
         CROSS JOIN LATERAL (SELECT s.conv_id, s.created_at_ms, s.seq, s.rev, s.body, s.kind, s.deleted_at_ms
                             FROM messages AS s WHERE s.conv_id = u.conv_id AND s.seq = u.seq OFFSET 0) AS m
         ORDER BY m.conv_id, m.created_at_ms, m.seq",
    )
    .bind(conversations)
    .bind(seqs)
    .fetch_all(&mut *tx)
    .await?;
    indexed.messages = messages.len() as u64;
    write_terms(&mut tx, &messages).await?;
    sqlx::query("DELETE FROM search_queue WHERE id = ANY($1)").bind(taken).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(indexed)
}

/// Writes terms in the order of the key, in which every round locks its rows.
async fn write_terms(tx: &mut PgConnection, messages: &[Written]) -> Result<(), Fault> {
    let mut tags: BTreeMap<&str, String> = BTreeMap::new();
    // One text for each message: an array of arrays would have to be a rectangle. Spaces stand in no term.
    let mut lists: Vec<String> = Vec::with_capacity(messages.len());
    for message in messages {
        let tag = tags.entry(&message.conv_id).or_insert_with(|| conversation_tag(&message.conv_id));
        let terms = if message.found { terms_of(&message.body) } else { BTreeSet::new() };
        let tagged: Vec<String> = terms.into_iter().map(|term| format!("{tag}{term}")).collect();
        lists.push(tagged.join(" "));
    }
    sqlx::query(
        "INSERT INTO message_terms AS t (conv_id, created_at_ms, seq, rev, terms)
         SELECT u.conv_id, u.created_at_ms, u.seq, u.rev, array_to_tsvector(array_remove(string_to_array(u.terms, ' '), ''))
         FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[]) AS u (conv_id, created_at_ms, seq, rev, terms)
         ON CONFLICT (conv_id, created_at_ms, seq) DO UPDATE SET rev = excluded.rev, terms = excluded.terms WHERE t.rev < excluded.rev",
    )
    .bind(messages.iter().map(|m| m.conv_id.as_str()).collect::<Vec<_>>())
    .bind(messages.iter().map(|m| m.created_at_ms).collect::<Vec<_>>())
    .bind(messages.iter().map(|m| m.seq).collect::<Vec<_>>())
    .bind(messages.iter().map(|m| m.rev).collect::<Vec<_>>())
    .bind(lists)
    .execute(tx)
    .await?;
    Ok(())
}
