//! Which browsers are to be woken for whom.

use sqlx::Connection;
use uuid::Uuid;

use super::connection::{Archive, bound};
use super::error::ArchiveError;
use crate::domain::ids::{Millis, UserId};

/// A browser as it is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushSubscriptionRow {
    /// Whose.
    pub user: UserId,
    /// The device that the token named.
    pub device: Option<String>,
    /// Where its push service takes pushes.
    pub endpoint: String,
    /// The endpoint's host and port.
    pub host: String,
    /// Its public key.
    pub p256dh: Vec<u8>,
    /// The secret that it shares with us.
    pub auth: Vec<u8>,
    /// Whether pushes say who wrote what.
    pub show_preview: bool,
}

/// What became of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Whether this user had it not before.
    pub made: bool,
    /// When this user first registered it.
    pub created_at: Millis,
}

impl Archive {
    /// Keeps a subscription: its user's from now on, whoever had it before. Of more than `most` of one user those go that were registered
    /// longest ago.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn put_push_subscription(&self, row: &PushSubscriptionRow, most: u64) -> Result<Registered, ArchiveError> {
        let row = row.clone();
        self.unit("put_push_subscription", move |connection| {
            let row = row.clone();
            Box::pin(async move {
                let mut tx = connection.begin().await?;
                // Two devices of one user that come at once would each see room for one more.
                sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('push subscriptions of ' || $1, 0))")
                    .bind(row.user.as_str())
                    .execute(&mut *tx)
                    .await?;
                let (made,): (bool,) = sqlx::query_as("SELECT NOT EXISTS (SELECT 1 FROM push_subscriptions WHERE endpoint = $1 AND user_id = $2)")
                    .bind(&row.endpoint)
                    .bind(row.user.as_str())
                    .fetch_one(&mut *tx)
                    .await?;
                let (id, created_at): (Uuid, Millis) = sqlx::query_as(
                    "INSERT INTO push_subscriptions AS s (id, endpoint, host, user_id, device, p256dh, auth, show_preview, created_at_ms, registered_at_ms)
                     SELECT $1, $2, $3, $4, $5, $6, $7, $8, n.at, n.at FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS at) AS n
                     ON CONFLICT (endpoint) DO UPDATE SET host = excluded.host, user_id = excluded.user_id, device = excluded.device,
                         p256dh = excluded.p256dh, auth = excluded.auth, show_preview = excluded.show_preview,
                         created_at_ms = CASE WHEN s.user_id = excluded.user_id THEN s.created_at_ms ELSE excluded.created_at_ms END,
                         registered_at_ms = GREATEST(excluded.registered_at_ms, s.registered_at_ms + 1)
                     RETURNING id, created_at_ms",
                )
                .bind(Uuid::now_v7())
                .bind(&row.endpoint)
                .bind(&row.host)
                .bind(row.user.as_str())
                .bind(row.device.as_deref())
                .bind(&row.p256dh)
                .bind(&row.auth)
                .bind(row.show_preview)
                .fetch_one(&mut *tx)
                .await?;
                // What waits was for whoever had it before.
                sqlx::query("DELETE FROM push_queue WHERE subscription_id = $1 AND user_id <> $2")
                    .bind(id)
                    .bind(row.user.as_str())
                    .execute(&mut *tx)
                    .await?;
                sqlx::query(
                    "DELETE FROM push_subscriptions WHERE id IN (
                         SELECT id FROM push_subscriptions WHERE user_id = $1 AND id <> $3 ORDER BY registered_at_ms DESC, id DESC OFFSET $2)",
                )
                .bind(row.user.as_str())
                .bind(bound(most.saturating_sub(1)))
                .bind(id)
                .execute(&mut *tx)
                .await?;
                tx.commit().await?;
                Ok(Registered { made, created_at })
            })
        })
        .await
    }

    /// Ends a user's subscription, if it is theirs.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn delete_push_subscription(&self, user: &UserId, endpoint: &str) -> Result<(), ArchiveError> {
        let (user, endpoint) = (user.clone(), endpoint.to_owned());
        self.unit("delete_push_subscription", move |connection| {
            let (user, endpoint) = (user.clone(), endpoint.clone());
            Box::pin(async move {
                sqlx::query("DELETE FROM push_subscriptions WHERE endpoint = $1 AND user_id = $2")
                    .bind(&endpoint)
                    .bind(user.as_str())
                    .execute(connection)
                    .await?;
                Ok(())
            })
        })
        .await
    }

    /// Ends a subscription that its push service does not know any more, unless it was registered again since.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn end_push_subscription(&self, id: Uuid, registered_at: Millis) -> Result<(), ArchiveError> {
        self.unit("end_push_subscription", move |connection| {
            Box::pin(async move {
                sqlx::query("DELETE FROM push_subscriptions WHERE id = $1 AND registered_at_ms = $2")
                    .bind(id)
                    .bind(registered_at)
                    .execute(connection)
                    .await?;
                Ok(())
            })
        })
        .await
    }

    /// Whether a subscription is still as it was: not ended, nobody else's, not registered again.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn push_subscription_stands(&self, id: Uuid, user: &UserId, registered_at: Millis) -> Result<bool, ArchiveError> {
        let user = user.clone();
        self.unit("push_subscription_stands", move |connection| {
            let user = user.clone();
            Box::pin(async move {
                let (stands,): (bool,) = sqlx::query_as(
                    "SELECT EXISTS (SELECT 1 FROM push_subscriptions WHERE id = $1 AND user_id = $2 AND registered_at_ms = $3)",
                )
                .bind(id)
                .bind(user.as_str())
                .bind(registered_at)
                .fetch_one(connection)
                .await?;
                Ok(stands)
            })
        })
        .await
    }
}
