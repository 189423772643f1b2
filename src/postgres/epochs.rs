//! Which Redis server may give out numbers of a shard: decided once, here.
//!
//! Without it: server A is paused, B is promoted and goes on from 100 to 110, A wakes up and gives out 101 to 110 once more. So a
//! server gives out numbers in an epoch that this table granted to it, and archives them only while the table still says so.

use sqlx::Connection;

use super::connection::{Archive, read, stored};
use super::error::{ArchiveError, Fault};
use crate::domain::ids::{Millis, ShardId};

/// The answer to [`Archive::grant_epoch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochGrant {
    /// The epoch in which the server may give out numbers.
    Granted {
        /// The epoch.
        epoch: u64,
        /// Whether it is still to be installed in Redis: everything the shard's server holds of older epochs is not to be trusted.
        fresh: bool,
    },
    /// This epoch was installed on this very server. If the server does not hold it now, it is lost: ask again and say so.
    Standing(u64),
}

impl Archive {
    /// Grants an epoch of a shard to the server `server_id` (its live `master_replid`), whose memory names `redis_epoch`. `lost` is the
    /// epoch that an earlier call found standing and that the server did not hold after that.
    ///
    /// The same server asking again before [`Archive::mark_epoch_installed`] gets the same epoch; afterwards it keeps it if it still
    /// holds it. Who asks after the mark without it may only be late: it looked before another one installed it, and an epoch opened now
    /// would make every lease of the living one a void. So it is told to look once more; what is missing after the mark is lost, as it
    /// was installed before. In every other case the next epoch is opened, and the one before is closed from that moment on.
    ///
    /// # Errors
    /// When the archive does not answer; then nothing is decided that a later call would not tell.
    pub async fn grant_epoch(
        &self,
        shard: ShardId,
        server_id: &str,
        redis_epoch: Option<u64>,
        lost: Option<u64>,
        at: Millis,
    ) -> Result<EpochGrant, ArchiveError> {
        let server_id = server_id.to_owned();
        self.unit("grant_epoch", move |connection| {
            let server_id = server_id.clone();
            Box::pin(async move {
                let mut tx = connection.begin().await?;
                sqlx::query(
                    "INSERT INTO shard_epochs (shard, epoch, server_id, state, opened_at_ms) VALUES ($1, 0, $2, 'opening', $3)
                     ON CONFLICT (shard) DO NOTHING",
                )
                .bind(i32::from(shard.0))
                .bind(&server_id)
                .bind(at)
                .execute(&mut *tx)
                .await?;
                let (epoch, holder, state): (i64, String, String) =
                    sqlx::query_as("SELECT epoch, server_id, state FROM shard_epochs WHERE shard = $1 FOR UPDATE")
                        .bind(i32::from(shard.0))
                        .fetch_one(&mut *tx)
                        .await?;
                let installed = state == "installed";
                let is_it = |named: Option<u64>| named.is_some_and(|named| i64::try_from(named).is_ok_and(|named| named == epoch));
                let grant = match (holder == server_id, installed) {
                    (true, false) => EpochGrant::Granted { epoch: read(epoch)?, fresh: true },
                    (true, true) if is_it(redis_epoch) => EpochGrant::Granted { epoch: read(epoch)?, fresh: false },
                    (true, true) if !is_it(lost) => EpochGrant::Standing(read(epoch)?),
                    _ => {
                        sqlx::query(
                            "UPDATE shard_epochs SET epoch = $2, server_id = $3, state = 'opening', opened_at_ms = $4 WHERE shard = $1",
                        )
                        .bind(i32::from(shard.0))
                        .bind(epoch + 1)
                        .bind(&server_id)
                        .bind(at)
                        .execute(&mut *tx)
                        .await?;
                        EpochGrant::Granted { epoch: read(epoch + 1)?, fresh: true }
                    }
                };
                tx.commit().await?;
                Ok(grant)
            })
        })
        .await
    }

    /// Notes that `epoch` stands in Redis. False when another epoch has been opened meanwhile. Safe to repeat.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn mark_epoch_installed(&self, shard: ShardId, epoch: u64) -> Result<bool, ArchiveError> {
        self.unit("mark_epoch_installed", move |connection| {
            Box::pin(async move {
                let done = sqlx::query("UPDATE shard_epochs SET state = 'installed' WHERE shard = $1 AND epoch = $2")
                    .bind(i32::from(shard.0))
                    .bind(stored(epoch)?)
                    .execute(connection)
                    .await?;
                Ok::<_, Fault>(done.rows_affected() == 1)
            })
        })
        .await
    }
}
