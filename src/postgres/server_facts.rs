//! What kind of server the archive is, for `seqline doctor`. Reads settings and nothing of the product.

use super::connection::{Archive, Claim, insist_on_limits};
use super::error::{ArchiveError, Fault};

/// Facts about the server and the installation in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// `server_version_num`, e.g. 150018.
    pub version: i32,
    /// Whether it only follows another server and takes no writes.
    pub follows: bool,
    /// `synchronous_standby_names`; empty when no standby is waited for.
    pub synchronous_standbys: String,
    /// `synchronous_commit`, e.g. `on`.
    pub synchronous_commit: String,
    /// Standbys that are connected; 0 also when we may not see them.
    pub standbys: i64,
    /// Shards and partitions of the installation; `None` before the tables are there or before the first start.
    pub installation: Option<(i32, i32)>,
    /// Whether the tables are there.
    pub migrated: bool,
}

impl ServerFacts {
    /// Whether the installation's fixed numbers are these.
    #[must_use]
    pub fn claim(&self, shards: u16, partitions: u16) -> Option<Claim> {
        let (fixed_shards, fixed_partitions) = self.installation?;
        if (fixed_shards, fixed_partitions) == (i32::from(shards), i32::from(partitions)) {
            return Some(Claim::Ours);
        }
        Some(Claim::Mismatch { shards: u16::try_from(fixed_shards).ok()?, partitions: u16::try_from(fixed_partitions).ok()? })
    }
}

impl Archive {
    /// Asks the server about itself.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn server_facts(&self) -> Result<ServerFacts, ArchiveError> {
        self.unit("server_facts", |connection| {
            Box::pin(async move {
                insist_on_limits(connection).await?;
                let (version, follows, synchronous_standbys, synchronous_commit, standbys, migrated): (i32, bool, String, String, i64, bool) =
                    sqlx::query_as(
                        "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('synchronous_standby_names'),
                                current_setting('synchronous_commit'), (SELECT count(*) FROM pg_stat_replication), to_regclass('installation') IS NOT NULL",
                    )
                    .fetch_one(&mut *connection)
                    .await?;
                let installation = if migrated {
                    sqlx::query_as("SELECT shards, partitions FROM installation").fetch_optional(&mut *connection).await?
                } else {
                    None
                };
                Ok::<_, Fault>(ServerFacts { version, follows, synchronous_standbys, synchronous_commit, standbys, installation, migrated })
            })
        })
        .await
    }
}
