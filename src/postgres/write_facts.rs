//! Writes what is not a message: conversations, memberships, watermarks. Each row stands where its version is the highest seen.

use sqlx::PgConnection;

use super::archive::{ConversationState, Marks, MemberRow, VoidRow};
use super::connection::stored;
use super::error::Fault;
use crate::metrics;

/// Writes conversations, sorted by id: head, rev and time by their own maximum, the facts when they are newer.
pub(super) async fn write_conversations(tx: &mut PgConnection, states: impl Iterator<Item = &ConversationState>) -> Result<(), Fault> {
    let states: Vec<&ConversationState> = states.collect();
    if states.is_empty() {
        return Ok(());
    }
    let facts = |s: &&ConversationState| s.facts.clone();
    let pair = |s: &&ConversationState| facts(s).and_then(|(_, f)| f.pair);
    sqlx::query(
        "INSERT INTO conversations AS c (id, shard, kind, facts_rev, title, owner, pair_low, pair_high, history, dissolved,
                                         created_at_ms, head_seq, rev, updated_at_ms)
         SELECT * FROM unnest($1::text[], $2::integer[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[],
                              $9::text[], $10::boolean[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[])
         ON CONFLICT (id) DO UPDATE SET
             head_seq = GREATEST(c.head_seq, excluded.head_seq),
             rev = GREATEST(c.rev, excluded.rev),
             updated_at_ms = GREATEST(c.updated_at_ms, excluded.updated_at_ms),
             facts_rev = GREATEST(c.facts_rev, excluded.facts_rev),
             title = CASE WHEN COALESCE(excluded.facts_rev > COALESCE(c.facts_rev, -1), false) THEN excluded.title ELSE c.title END,
             owner = CASE WHEN COALESCE(excluded.facts_rev > COALESCE(c.facts_rev, -1), false) THEN excluded.owner ELSE c.owner END,
             pair_low = CASE WHEN COALESCE(excluded.facts_rev > COALESCE(c.facts_rev, -1), false) THEN excluded.pair_low ELSE c.pair_low END,
             pair_high = CASE WHEN COALESCE(excluded.facts_rev > COALESCE(c.facts_rev, -1), false) THEN excluded.pair_high ELSE c.pair_high END,
             history = CASE WHEN COALESCE(excluded.facts_rev > COALESCE(c.facts_rev, -1), false) THEN excluded.history ELSE c.history END,
             dissolved = CASE WHEN COALESCE(excluded.facts_rev > COALESCE(c.facts_rev, -1), false) THEN excluded.dissolved ELSE c.dissolved END,
             created_at_ms = CASE WHEN COALESCE(excluded.facts_rev > COALESCE(c.facts_rev, -1), false)
                                  THEN excluded.created_at_ms ELSE c.created_at_ms END",
    )
    .bind(states.iter().map(|s| s.id.as_str()).collect::<Vec<_>>())
    .bind(states.iter().map(|s| i32::from(s.shard.0)).collect::<Vec<_>>())
    .bind(states.iter().map(|s| s.id.kind().as_str()).collect::<Vec<_>>())
    .bind(states.iter().map(|s| s.facts.as_ref().map(|(rev, _)| stored(*rev)).transpose()).collect::<Result<Vec<_>, _>>()?)
    .bind(states.iter().map(|s| facts(s).and_then(|(_, f)| f.title)).collect::<Vec<_>>())
    .bind(states.iter().map(|s| facts(s).and_then(|(_, f)| f.owner).map(|u| u.to_string())).collect::<Vec<_>>())
    .bind(states.iter().map(|s| pair(s).map(|(low, _)| low.to_string())).collect::<Vec<_>>())
    .bind(states.iter().map(|s| pair(s).map(|(_, high)| high.to_string())).collect::<Vec<_>>())
    .bind(states.iter().map(|s| facts(s).map_or("all", |(_, f)| f.history.as_str())).collect::<Vec<_>>())
    .bind(states.iter().map(|s| facts(s).is_some_and(|(_, f)| f.dissolved)).collect::<Vec<_>>())
    .bind(states.iter().map(|s| facts(s).map(|(_, f)| f.created_at)).collect::<Vec<_>>())
    .bind(states.iter().map(|s| stored(s.head_seq)).collect::<Result<Vec<_>, _>>()?)
    .bind(states.iter().map(|s| stored(s.rev)).collect::<Result<Vec<_>, _>>()?)
    .bind(states.iter().map(|s| s.updated_at).collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(())
}

/// Writes ranges of numbers that will never hold a message; one that is there already stays as it is.
pub(super) async fn write_voids(tx: &mut PgConnection, voids: &[VoidRow]) -> Result<(), Fault> {
    // Nearly every batch has none, and no batch has many.
    for void in voids {
        let done =
            sqlx::query("INSERT INTO voids (conv_id, from_seq, to_seq) VALUES ($1, $2, $3) ON CONFLICT (conv_id, from_seq) DO NOTHING")
                .bind(void.conv.as_str())
                .bind(stored(void.from)?)
                .bind(stored(void.to)?)
                .execute(&mut *tx)
                .await?;
        metrics::VOIDS.add(&[], done.rows_affected());
    }
    Ok(())
}

/// Writes memberships, sorted by (conversation, user).
pub(super) async fn write_members(tx: &mut PgConnection, rows: impl Iterator<Item = &MemberRow>) -> Result<(), Fault> {
    let rows: Vec<&MemberRow> = rows.collect();
    if rows.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO members AS m (conv_id, user_id, role, joined_at_ms, joined_seq, joined_rev, left_rev, rev)
         SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
         ON CONFLICT (conv_id, user_id) DO UPDATE SET
             role = excluded.role, joined_at_ms = excluded.joined_at_ms, joined_seq = excluded.joined_seq,
             joined_rev = excluded.joined_rev, left_rev = excluded.left_rev, rev = excluded.rev
         WHERE m.rev < excluded.rev",
    )
    .bind(rows.iter().map(|r| r.conv.as_str()).collect::<Vec<_>>())
    .bind(rows.iter().map(|r| r.user.as_str()).collect::<Vec<_>>())
    .bind(rows.iter().map(|r| r.role.as_str()).collect::<Vec<_>>())
    .bind(rows.iter().map(|r| r.joined_at).collect::<Vec<_>>())
    .bind(rows.iter().map(|r| stored(r.joined_seq)).collect::<Result<Vec<_>, _>>()?)
    .bind(rows.iter().map(|r| stored(r.joined_rev)).collect::<Result<Vec<_>, _>>()?)
    .bind(rows.iter().map(|r| r.left_rev.map(stored).transpose()).collect::<Result<Vec<_>, _>>()?)
    .bind(rows.iter().map(|r| stored(r.rev)).collect::<Result<Vec<_>, _>>()?)
    .execute(tx)
    .await?;
    Ok(())
}

/// Raises watermarks; of two times for one place the earlier stands.
pub(super) async fn write_reads(tx: &mut PgConnection, marks: &Marks) -> Result<(), Fault> {
    if marks.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO read_marks AS r (conv_id, user_id, seq, at_ms)
         SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])
         ON CONFLICT (conv_id, user_id) DO UPDATE SET seq = excluded.seq, at_ms = excluded.at_ms
         WHERE r.seq < excluded.seq OR (r.seq = excluded.seq AND r.at_ms > excluded.at_ms)",
    )
    .bind(marks.keys().map(|(conversation, _)| conversation.as_str()).collect::<Vec<_>>())
    .bind(marks.keys().map(|(_, user)| user.as_str()).collect::<Vec<_>>())
    .bind(marks.values().map(|(seq, _)| stored(*seq)).collect::<Result<Vec<_>, _>>()?)
    .bind(marks.values().map(|(_, at)| *at).collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(())
}
