//! Connections to Postgres, and the one way in which work is done on them.
//!
//! A request's future is dropped when its client goes away. Dropped in the middle of a transaction it would hand a connection with an
//! open transaction back to the pool, and the next borrower would write into it. So a unit of work runs in a task of its own: the
//! caller may go, the unit ends. Four limits see to it that it does end, the last one even when the server answers nothing at all
//! (a stopped process holds its TCP connections open):
//!
//! | limit | ms | what it ends |
//! |---|---|---|
//! | [`ACQUIRE_MS_MAX`] | 3,000 | waiting for a connection |
//! | [`LOCK_MS_MAX`] | 3,000 | waiting for a lock that somebody holds |
//! | [`STATEMENT_MS_MAX`] | 8,000 | one statement |
//! | [`UNIT_MS_MAX`] | 12,000 | the whole unit; its connection is closed, which rolls it back |

use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection, PgConnection, PgPool, Postgres, Row as _};

use super::error::{ArchiveError, Fault};
use crate::domain::ids::{ConversationId, Millis, UserId};
use crate::metrics;

/// Longest wait for a connection, in milliseconds.
pub const ACQUIRE_MS_MAX: u64 = 3_000;
/// Longest wait for a lock, in milliseconds.
pub const LOCK_MS_MAX: u64 = 3_000;
/// Longest time of one statement, in milliseconds.
pub const STATEMENT_MS_MAX: u64 = 8_000;
/// Longest time of a unit of work, in milliseconds.
pub const UNIT_MS_MAX: u64 = 12_000;
/// Longest time for which a transaction may stand open without a statement, in milliseconds: a process that is stopped in the middle
/// of one must not hold its locks for ever.
const IDLE_IN_TRANSACTION_MS_MAX: u64 = 15_000;
/// Longest time of one migration's statements, and of waiting for another process that migrates, in milliseconds.
const MIGRATION_MS_MAX: &str = "600000";

/// Forward only, in the order of their numbers. A newer release may have applied more than this one knows.
static MIGRATIONS: Migrator = {
    let mut migrations = sqlx::migrate!("./migrations");
    migrations.ignore_missing = true;
    migrations
};

/// The archive, cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct Archive {
    pool: PgPool,
}

/// Whether this installation's fixed numbers are the configured ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// They are, or they were not fixed until now.
    Ours,
    /// They were fixed otherwise; nothing may be written with the configured ones.
    Mismatch {
        /// Shards of the installation.
        shards: u16,
        /// User partitions of the installation.
        partitions: u16,
    },
}

impl Archive {
    /// Prepares up to `connections` connections; none is opened before it is needed, so this succeeds while Postgres is away.
    ///
    /// # Errors
    /// [`ArchiveError::Unexpected`] when the URL cannot be read.
    pub fn connect(url: &str, connections: u32) -> Result<Self, ArchiveError> {
        // The text of a URL error can quote the password.
        let options = PgConnectOptions::from_str(url).map_err(|_| ArchiveError::Unexpected("the database URL cannot be read".into()))?;
        let options = options.application_name("seqline").options([
            ("statement_timeout", STATEMENT_MS_MAX),
            ("lock_timeout", LOCK_MS_MAX),
            ("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION_MS_MAX),
        ]);
        // Compiling a plan takes longer than any statement here runs.
        let options = options.options([("jit", "off")]);
        let pool = PgPoolOptions::new()
            .max_connections(connections.max(1))
            .acquire_timeout(Duration::from_millis(ACQUIRE_MS_MAX))
            // It would cost every unit a round trip; a connection that turns out broken is replaced and the unit run again.
            .test_before_acquire(false)
            .connect_lazy_with(options);
        Ok(Self { pool })
    }

    /// Applies what is missing of the migrations. Several processes may do so at once: one does, the others wait.
    ///
    /// # Errors
    /// [`ArchiveError::Unavailable`] when Postgres is away, [`ArchiveError::Unexpected`] when a migration fails or was changed after
    /// it had been applied.
    pub async fn migrate(&self) -> Result<(), ArchiveError> {
        let options = self.pool.connect_options();
        let migrated = tokio::spawn(async move {
            let mut connection = PgConnection::connect_with(&options).await.map_err(|e| Fault::from(e).into_error("migrate"))?;
            insist_on_limits(&mut connection).await.map_err(|e| e.into_error("migrate"))?;
            for setting in ["statement_timeout", "lock_timeout"] {
                let set = sqlx::query("SELECT set_config($1, $2, false)").bind(setting).bind(MIGRATION_MS_MAX);
                set.execute(&mut connection).await.map_err(|e| Fault::from(e).into_error("migrate"))?;
            }
            let applied = MIGRATIONS.run_direct(None, &mut connection, false).await;
            // Ending the session also frees the migration lock, whatever happened.
            let _ = connection.close().await;
            applied.map_err(|error| match error {
                sqlx::migrate::MigrateError::Execute(error) => Fault::from(error).into_error("migrate"),
                other => ArchiveError::Unexpected(format!("migrate: {other}")),
            })
        });
        finished("migrate", migrated.await)
    }

    /// One round trip.
    ///
    /// # Errors
    /// [`ArchiveError::Unavailable`] when Postgres does not answer.
    pub async fn ping(&self) -> Result<(), ArchiveError> {
        self.unit("ping", |connection| {
            Box::pin(async move {
                sqlx::query("SELECT 1").execute(connection).await?;
                Ok(())
            })
        })
        .await
    }

    /// Closes the connections, each when its unit has ended; later calls get [`ArchiveError::Unavailable`].
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// Connections open and, of these, idle.
    #[must_use]
    pub fn connections(&self) -> (u32, usize) {
        (self.pool.size(), self.pool.num_idle())
    }

    /// Fixes the installation's numbers on first use and compares them ever after.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn claim_installation(&self, shards: u16, partitions: u16) -> Result<Claim, ArchiveError> {
        self.unit("claim_installation", move |connection| {
            Box::pin(async move {
                insist_on_limits(connection).await?;
                sqlx::query("INSERT INTO installation (shards, partitions) VALUES ($1, $2) ON CONFLICT (only_one) DO NOTHING")
                    .bind(i32::from(shards))
                    .bind(i32::from(partitions))
                    .execute(&mut *connection)
                    .await?;
                let (fixed_shards, fixed_partitions): (i32, i32) =
                    sqlx::query_as("SELECT shards, partitions FROM installation").fetch_one(&mut *connection).await?;
                if (fixed_shards, fixed_partitions) == (i32::from(shards), i32::from(partitions)) {
                    return Ok(Claim::Ours);
                }
                let narrow = |n: i32| u16::try_from(n).map_err(|_| Fault::Data("installation"));
                Ok(Claim::Mismatch { shards: narrow(fixed_shards)?, partitions: narrow(fixed_partitions)? })
            })
        })
        .await
    }

    /// Runs one unit of work to its end, whether the caller waits or not. When the connection breaks, the unit is run once more on
    /// another: its first run may have been committed all the same, so a unit must be safe to run twice.
    pub(super) async fn unit<T, W>(&self, what: &'static str, work: W) -> Result<T, ArchiveError>
    where
        T: Send + 'static,
        W: for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Result<T, Fault>> + Send + Sync + 'static,
    {
        let pool = self.pool.clone();
        let work = Arc::new(work);
        let task = tokio::spawn(async move {
            let asked = Instant::now();
            let acquired = pool.acquire().await;
            metrics::POSTGRES_WAIT_SECONDS.since(&[], asked);
            let connection = acquired.map_err(|e| Fault::from(e).into_error(what))?;
            match attempt(what, connection, &*work).await {
                Err(Attempted::Gone) => {
                    let connection = proven(what, &pool).await?;
                    attempt(what, connection, &*work).await.map_err(|e| e.into_error(what))
                }
                other => other.map_err(|e| e.into_error(what)),
            }
        });
        let result = finished(what, task.await);
        if let Err(error) = &result {
            metrics::POSTGRES_ERRORS.add(&[error.label()], 1);
        }
        result
    }
}

/// Refuses a way to Postgres on which what is set for a connection is lost: a pooler's that hands out a connection for each transaction. Limits
/// on time would not hold there, and prepared statements would be another client's.
pub(super) async fn insist_on_limits(connection: &mut PgConnection) -> Result<(), Fault> {
    // As plain text: a prepared statement may be the first thing that such a pooler mixes up.
    let row = sqlx::raw_sql("SELECT setting FROM pg_settings WHERE name = 'lock_timeout'").fetch_one(connection).await?;
    let limit: String = row.try_get(0)?;
    if limit == LOCK_MS_MAX.to_string() { Ok(()) } else { Err(Fault::Pooled) }
}

enum Attempted {
    Gone,
    Failed(ArchiveError),
}

impl Attempted {
    fn into_error(self, what: &'static str) -> ArchiveError {
        match self {
            Self::Gone => ArchiveError::Unavailable(format!("{what}: the connection broke twice")),
            Self::Failed(error) => error,
        }
    }
}

async fn attempt<T, W>(what: &'static str, mut connection: sqlx::pool::PoolConnection<Postgres>, work: &W) -> Result<T, Attempted>
where
    W: for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Result<T, Fault>>,
{
    match tokio::time::timeout(Duration::from_millis(UNIT_MS_MAX), work(&mut connection)).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(fault)) if fault.connection_is_gone() => {
            connection.close_on_drop();
            Err(Attempted::Gone)
        }
        Ok(Err(fault)) => Err(Attempted::Failed(fault.into_error(what))),
        Err(_) => {
            // Stopped somewhere in the middle: nobody may have this connection again.
            connection.close_on_drop();
            Err(Attempted::Failed(ArchiveError::Unavailable(format!("{what}: not done within {UNIT_MS_MAX} ms"))))
        }
    }
}

/// A connection that has just answered. After a restart of the server every idle one is broken, so the next one may be as well.
async fn proven(what: &'static str, pool: &PgPool) -> Result<sqlx::pool::PoolConnection<Postgres>, ArchiveError> {
    let tries = pool.options().get_max_connections() + 1;
    let found = async {
        for _ in 0..tries {
            let mut connection = pool.acquire().await.map_err(|e| Fault::from(e).into_error(what))?;
            if connection.ping().await.is_ok() {
                return Ok(connection);
            }
            connection.close_on_drop();
        }
        Err(ArchiveError::Unavailable(format!("{what}: no connection answers")))
    };
    let limit = Duration::from_millis(ACQUIRE_MS_MAX);
    tokio::time::timeout(limit, found)
        .await
        .unwrap_or_else(|_| Err(ArchiveError::Unavailable(format!("{what}: no connection answers within {ACQUIRE_MS_MAX} ms"))))
}

fn finished<T>(what: &'static str, joined: Result<Result<T, ArchiveError>, tokio::task::JoinError>) -> Result<T, ArchiveError> {
    joined.unwrap_or_else(|error| {
        // A runtime that shuts down drops its tasks; a panic is a fault of ours.
        if error.is_cancelled() {
            Err(ArchiveError::Unavailable(format!("{what}: shutting down")))
        } else {
            Err(ArchiveError::Unexpected(format!("{what}: panicked")))
        }
    })
}

/// A number for a bigint column.
pub(super) fn stored(number: u64) -> Result<i64, Fault> {
    i64::try_from(number).map_err(|_| Fault::Data("a number does not fit a bigint"))
}

/// A bound of a range: what no row can have stands for "beyond all rows".
pub(super) fn bound(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number from a bigint column that a CHECK keeps from being negative.
pub(super) fn read(number: i64) -> Result<u64, Fault> {
    u64::try_from(number).map_err(|_| Fault::Data("a stored number is negative"))
}

/// A user id from a column.
pub(super) fn read_user(text: &str) -> Result<UserId, Fault> {
    UserId::parse(text).map_err(|_| Fault::Data("a stored user id is none"))
}

/// A conversation id from a column.
pub(super) fn read_conversation(text: &str) -> Result<ConversationId, Fault> {
    ConversationId::parse(text).ok_or(Fault::Data("a stored conversation id is none"))
}

/// How a mark stands when a member is read: who joined later starts at the join.
pub(super) fn effective_mark(mark: Option<(i64, Millis)>, joined_seq: i64, joined_at: Millis) -> Option<(i64, Millis)> {
    match mark {
        Some((seq, at)) if seq >= joined_seq => Some((seq, at)),
        _ if joined_seq > 0 => Some((joined_seq, joined_at)),
        other => other,
    }
}
