//! Who has read a message of a conversation that is not in Redis.

use super::connection::{Archive, bound, read_user};
use super::error::ArchiveError;
use crate::domain::ids::{ConversationId, Millis, Seq, UserId};

impl Archive {
    /// The members whose watermark is at `seq` or above and whose joining lies before it, with when it last moved. Nobody where
    /// one of a pair blocks the other.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn readers_of(&self, conversation: &ConversationId, seq: Seq) -> Result<Vec<(UserId, Millis)>, ArchiveError> {
        let conversation = conversation.clone();
        self.unit("readers_of", move |connection| {
            let conversation = conversation.clone();
            Box::pin(async move {
                let rows: Vec<(String, Millis)> = sqlx::query_as(
                    "SELECT m.user_id, r.at_ms
                     FROM members AS m
                     JOIN read_marks AS r ON r.conv_id = m.conv_id AND r.user_id = m.user_id
                     WHERE m.conv_id = $1 AND m.left_rev IS NULL AND m.joined_seq < $2 AND r.seq >= $2
                       AND NOT EXISTS (SELECT 1 FROM conversations AS c
                                       JOIN blocks AS b ON (b.blocker, b.blocked) IN ((c.pair_low, c.pair_high), (c.pair_high, c.pair_low))
                                       WHERE c.id = $1 AND b.since_ms IS NOT NULL)",
                )
                .bind(conversation.as_str())
                .bind(bound(seq))
                .fetch_all(connection)
                .await?;
                rows.into_iter().map(|(user, at)| Ok((read_user(&user)?, at))).collect()
            })
        })
        .await
    }
}
