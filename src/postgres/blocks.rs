//! Who has blocked whom.

use sqlx::PgConnection;

use super::connection::{Archive, bound, read_user, stored};
use super::error::{ArchiveError, Fault};
use crate::domain::ids::{ConversationId, Millis, Rev, UserId};

/// A block after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRow {
    /// Who blocks.
    pub blocker: UserId,
    /// Whom.
    pub blocked: UserId,
    /// The pair's conversation.
    pub conv: ConversationId,
    /// Since when; `None` when it was lifted.
    pub since: Option<Millis>,
    /// The change.
    pub rev: Rev,
}

impl Archive {
    /// Writes one block ahead of the batch that will bring it, so that whoever set it finds it in the list at once. Safe to repeat, in any
    /// order: the newest change stands.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn write_block(&self, row: &BlockRow) -> Result<(), ArchiveError> {
        let row = row.clone();
        self.unit("write_block", move |connection| {
            let row = row.clone();
            Box::pin(async move { write_blocks(connection, std::iter::once(&row)).await })
        })
        .await
    }

    /// A page of those whom a user blocks and since when, by user id bytes, from the first above `after`.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn blocks_page(&self, user: &UserId, after: Option<&UserId>, limit: u64) -> Result<Vec<(UserId, Millis)>, ArchiveError> {
        let (user, after) = (user.clone(), after.cloned());
        self.unit("blocks_page", move |connection| {
            let (user, after) = (user.clone(), after.clone());
            Box::pin(async move {
                let rows: Vec<(String, i64)> = sqlx::query_as(
                    "SELECT blocked, since_ms FROM blocks WHERE blocker = $1 AND blocked > $2 AND since_ms IS NOT NULL
                     ORDER BY blocked LIMIT $3",
                )
                .bind(user.as_str())
                .bind(after.as_ref().map_or("", UserId::as_str))
                .bind(bound(limit))
                .fetch_all(connection)
                .await?;
                rows.into_iter().map(|(blocked, since)| Ok((read_user(&blocked)?, since))).collect()
            })
        })
        .await
    }
}

/// Writes blocks, sorted by (blocker, blocked).
pub(super) async fn write_blocks(tx: &mut PgConnection, rows: impl Iterator<Item = &BlockRow>) -> Result<(), Fault> {
    let rows: Vec<&BlockRow> = rows.collect();
    if rows.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO blocks AS b (blocker, blocked, conv_id, since_ms, rev)
         SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[])
         ON CONFLICT (blocker, blocked) DO UPDATE SET since_ms = excluded.since_ms, rev = excluded.rev WHERE b.rev < excluded.rev",
    )
    .bind(rows.iter().map(|r| r.blocker.as_str()).collect::<Vec<_>>())
    .bind(rows.iter().map(|r| r.blocked.as_str()).collect::<Vec<_>>())
    .bind(rows.iter().map(|r| r.conv.as_str()).collect::<Vec<_>>())
    .bind(rows.iter().map(|r| r.since).collect::<Vec<_>>())
    .bind(rows.iter().map(|r| stored(r.rev)).collect::<Result<Vec<_>, _>>()?)
    .execute(tx)
    .await?;
    Ok(())
}
