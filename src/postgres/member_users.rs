//! Everybody who belongs to some conversation.

use super::connection::{Archive, bound, read_user};
use super::error::ArchiveError;
use crate::domain::ids::UserId;

impl Archive {
    /// A page of the users who are members of anything, by their ids' bytes, from the first above `after`.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn member_users(&self, after: Option<&UserId>, limit: u64) -> Result<Vec<UserId>, ArchiveError> {
        let after = after.map(ToString::to_string).unwrap_or_default();
        self.unit("member_users", move |connection| {
            let after = after.clone();
            Box::pin(async move {
                let users: Vec<String> = sqlx::query_scalar(
                    "SELECT DISTINCT user_id FROM members WHERE left_rev IS NULL AND user_id > $1 ORDER BY user_id LIMIT $2",
                )
                .bind(after)
                .bind(bound(limit))
                .fetch_all(connection)
                .await?;
                users.iter().map(|user| read_user(user)).collect()
            })
        })
        .await
    }
}
