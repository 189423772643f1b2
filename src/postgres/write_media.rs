//! Which messages show which pictures, brought in line with messages in the transaction that wrote them.
//!
//! A batch without a message of pictures costs nothing: what never showed one cannot show one after an edit, and what was deleted is still of
//! that kind. For the others, only those are looked at whose row now stands in the batch's version (and its lock is held until the end): what
//! another writer has brought further has that one's references.

use std::collections::BTreeSet;

use sqlx::PgConnection;
use uuid::Uuid;

use super::connection::stored;
use super::error::Fault;
use crate::domain::message::{Message, MessageKind};

/// Writes the references of messages that were just written. Safe to repeat.
pub(super) async fn write_references(tx: &mut PgConnection, messages: &[Message]) -> Result<(), Fault> {
    let showing: Vec<&Message> = messages.iter().filter(|m| m.kind == MessageKind::Image).collect();
    if showing.is_empty() {
        return Ok(());
    }
    let standing = standing(tx, &showing).await?;
    let removed = remove(tx, &standing).await?;
    if !removed.is_empty() {
        let at = standing.iter().filter_map(|m| m.deleted_at.or(m.edited_at)).max().unwrap_or_default();
        look_again(tx, &removed, at).await?;
    }
    add(tx, &standing).await
}

/// Those that stand in this very version, locked.
async fn standing<'m>(tx: &mut PgConnection, messages: &[&'m Message]) -> Result<Vec<&'m Message>, Fault> {
    let rows: Vec<(i64,)> = sqlx::query_as(
        "SELECT u.place FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::bigint[]) WITH ORDINALITY AS u (conv_id, seq, id, rev, place)
         JOIN messages AS m ON m.conv_id = u.conv_id AND m.seq = u.seq AND m.id = u.id AND m.rev = u.rev
         ORDER BY m.conv_id, m.seq FOR UPDATE OF m",
    )
    .bind(messages.iter().map(|m| m.conversation.as_str()).collect::<Vec<_>>())
    .bind(messages.iter().map(|m| stored(m.seq)).collect::<Result<Vec<_>, _>>()?)
    .bind(messages.iter().map(|m| m.id).collect::<Vec<_>>())
    .bind(messages.iter().map(|m| stored(m.rev)).collect::<Result<Vec<_>, _>>()?)
    .fetch_all(tx)
    .await?;
    let at = |place: i64| usize::try_from(place - 1).ok().and_then(|index| messages.get(index).copied());
    rows.into_iter().map(|(place,)| at(place).ok_or(Fault::Data("an ordinal beyond the batch"))).collect()
}

/// Takes away what these messages do not show any more, and names the pictures.
async fn remove(tx: &mut PgConnection, messages: &[&Message]) -> Result<Vec<Uuid>, Fault> {
    // What was just sent has shown nothing before.
    let changed: Vec<&Message> = messages.iter().copied().filter(|m| m.edited_at.is_some() || m.deleted_at.is_some()).collect();
    if changed.is_empty() {
        return Ok(Vec::new());
    }
    let shown = References::of(&changed)?;
    let removed: Vec<(Uuid,)> = sqlx::query_as(
        "DELETE FROM message_media AS r USING unnest($1::text[], $2::bigint[]) AS u (conv_id, seq)
         WHERE r.conv_id = u.conv_id AND r.seq = u.seq
           AND NOT EXISTS (SELECT 1 FROM unnest($3::text[], $4::bigint[], $5::uuid[]) AS n (conv_id, seq, media_id)
                           WHERE n.conv_id = r.conv_id AND n.seq = r.seq AND n.media_id = r.media_id)
         RETURNING r.media_id",
    )
    .bind(changed.iter().map(|m| m.conversation.as_str()).collect::<Vec<_>>())
    .bind(changed.iter().map(|m| stored(m.seq)).collect::<Result<Vec<_>, _>>()?)
    .bind(shown.conv_id)
    .bind(shown.seq)
    .bind(shown.media_id)
    .fetch_all(tx)
    .await?;
    let removed: BTreeSet<Uuid> = removed.into_iter().map(|(id,)| id).collect();
    Ok(removed.into_iter().collect())
}

/// Has the sweeper look at pictures that it had no more reason to look at.
async fn look_again(tx: &mut PgConnection, ids: &[Uuid], at: i64) -> Result<(), Fault> {
    // In the order of the key, as everybody locks these rows.
    sqlx::query("SELECT 1 FROM media WHERE id = ANY($1) ORDER BY id FOR UPDATE").bind(ids).execute(&mut *tx).await?;
    sqlx::query("UPDATE media SET check_at_ms = $2 WHERE id = ANY($1) AND check_at_ms IS NULL").bind(ids).bind(at).execute(tx).await?;
    Ok(())
}

/// Puts references in the place of claims.
async fn add(tx: &mut PgConnection, messages: &[&Message]) -> Result<(), Fault> {
    let shown = References::of(messages)?;
    if shown.media_id.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO message_media (conv_id, seq, media_id) SELECT * FROM unnest($1::text[], $2::bigint[], $3::uuid[])
         ON CONFLICT (conv_id, seq, media_id) DO NOTHING",
    )
    .bind(shown.conv_id)
    .bind(shown.seq)
    .bind(&shown.media_id)
    .execute(&mut *tx)
    .await?;
    sqlx::query(
        "DELETE FROM media_claims AS c USING unnest($1::uuid[], $2::uuid[]) AS u (media_id, message_id)
         WHERE c.media_id = u.media_id AND c.message_id = u.message_id",
    )
    .bind(shown.media_id)
    .bind(shown.message_id)
    .execute(tx)
    .await?;
    Ok(())
}

/// Each picture of each message, one array a column; of deleted messages none.
struct References<'m> {
    conv_id: Vec<&'m str>,
    seq: Vec<i64>,
    media_id: Vec<Uuid>,
    message_id: Vec<Uuid>,
}

impl<'m> References<'m> {
    fn of(messages: &[&'m Message]) -> Result<Self, Fault> {
        let mut all = Self { conv_id: Vec::new(), seq: Vec::new(), media_id: Vec::new(), message_id: Vec::new() };
        for message in messages.iter().filter(|m| m.deleted_at.is_none()) {
            for item in &message.media {
                all.conv_id.push(message.conversation.as_str());
                all.seq.push(stored(message.seq)?);
                all.media_id.push(item.id);
                all.message_id.push(message.id);
            }
        }
        Ok(all)
    }
}
