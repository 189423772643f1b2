//! What messages said before they were edited or taken back.

use std::sync::Arc;

use sqlx::PgConnection;
use uuid::Uuid;

use super::archive::VersionRow;
use super::connection::{Archive, bound, read, stored};
use super::error::{ArchiveError, Fault};
use crate::domain::ids::{ConversationId, Millis, Seq};

/// Most versions of one message that are read.
const VERSIONS_MAX: i64 = 1_000;

/// Writes versions; one that is there already stays as it is. Of a message that was erased with its sender nothing is kept, however late an
/// edit of it arrives.
pub(super) async fn write_versions(tx: &mut PgConnection, versions: impl Iterator<Item = &VersionRow>) -> Result<(), Fault> {
    // Most batches have none, and edits are rare enough for a statement each.
    for version in versions {
        sqlx::query(
            "INSERT INTO message_versions (conv_id, seq, rev, at_ms, body, media) SELECT $1, $2, $3, $4, $5, $6
             WHERE NOT EXISTS (SELECT 1 FROM messages AS m JOIN erasures AS e ON e.user_id = m.sender
                               WHERE m.conv_id = $1 AND m.seq = $2 AND m.deleted_at_ms IS NOT NULL
                                 AND (e.finished_at_ms IS NULL OR m.created_at_ms <= e.finished_at_ms))
             ON CONFLICT (conv_id, seq, rev) DO NOTHING",
        )
        .bind(version.conv.as_str())
        .bind(stored(version.seq)?)
        .bind(stored(version.rev)?)
        .bind(version.at)
        .bind(&version.body)
        .bind(&version.media)
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

impl Archive {
    /// Keeps versions of a message apart from any batch. Safe to repeat.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn keep_versions(&self, versions: &[VersionRow]) -> Result<(), ArchiveError> {
        if versions.is_empty() {
            return Ok(());
        }
        let versions = Arc::new(versions.to_vec());
        self.unit("keep_versions", move |connection| {
            let versions = Arc::clone(&versions);
            Box::pin(async move { write_versions(connection, versions.iter()).await })
        })
        .await
    }

    /// What a message said before, oldest first, at most a thousand versions.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn versions_of(&self, conversation: &ConversationId, seq: Seq) -> Result<Vec<VersionRow>, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("versions_of", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                let rows: Vec<(i64, Millis, String, Vec<Uuid>)> = sqlx::query_as(
                    "SELECT rev, at_ms, body, media FROM message_versions WHERE conv_id = $1 AND seq = $2 ORDER BY rev LIMIT $3",
                )
                .bind(conversation.as_str())
                .bind(bound(seq))
                .bind(VERSIONS_MAX)
                .fetch_all(connection)
                .await?;
                let version = |(rev, at, body, media)| {
                    Ok(VersionRow { conv: conversation.clone(), seq, message: None, rev: read(rev)?, at, body, media })
                };
                rows.into_iter().map(version).collect()
            })
        })
        .await
    }
}
