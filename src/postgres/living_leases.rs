//! Which conversations could have been written to in an epoch that is over.

use super::connection::{Archive, bound, read_conversation, stored};
use super::error::ArchiveError;
use crate::domain::ids::{ConversationId, ShardId};

impl Archive {
    /// Up to `limit` conversations of a shard, by id from the first above `after`, that hold a lease of an epoch before `epoch` which was
    /// not ended in order.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn leased_before(
        &self,
        shard: ShardId,
        epoch: u64,
        after: Option<&ConversationId>,
        limit: u64,
    ) -> Result<Vec<ConversationId>, ArchiveError> {
        let after = after.map(ToString::to_string).unwrap_or_default();
        self.unit("leased_before", move |connection| {
            let after = after.clone();
            Box::pin(async move {
                let ids: Vec<String> = sqlx::query_scalar(
                    "SELECT DISTINCT conv_id FROM leases
                     WHERE shard = $1 AND state = 'installed' AND epoch < $2 AND conv_id > $3 ORDER BY conv_id LIMIT $4",
                )
                .bind(i32::from(shard.0))
                .bind(stored(epoch)?)
                .bind(after)
                .bind(bound(limit))
                .fetch_all(connection)
                .await?;
                ids.iter().map(|id| read_conversation(id)).collect()
            })
        })
        .await
    }
}
