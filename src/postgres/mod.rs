//! The archive and the records: the only room that knows sqlx or a table name. Knows nothing of Redis, HTTP or the wire form.

use sqlx::PgPool;

/// The archive, cheap to clone.
#[derive(Clone, Debug)]
pub struct Archive {
    /// Connections.
    pub(crate) pool: PgPool,
}
