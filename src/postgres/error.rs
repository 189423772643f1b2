//! What can go wrong with the archive, in three kinds that a caller handles differently.

use sqlx::Error;

/// Why the archive did not do what was asked. None of the texts holds a value of a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// Away, too slow, full or shutting down: the same call may succeed later. It may also have been carried out.
    #[error("archive unavailable: {0}")]
    Unavailable(String),
    /// The data cannot be stored or read, whenever it is tried: nothing of the call was carried out.
    #[error("archive refused: {0}")]
    Refused(String),
    /// A fault of the program or of the database's set-up, e.g. a table that is not there.
    #[error("archive failed: {0}")]
    Unexpected(String),
}

impl ArchiveError {
    /// The metric label.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Refused(_) => "refused",
            Self::Unexpected(_) => "unexpected",
        }
    }
}

/// What is said when the way to Postgres does not keep what is set for a connection.
const POOLED: &str = "what is set for a connection is lost on the way to Postgres, as with a pooler that hands out a connection for each \
                      transaction (PgBouncer in transaction mode); name Postgres itself";

/// What went wrong inside a unit of work.
#[derive(Debug)]
pub(super) enum Fault {
    /// Postgres or the way to it.
    Sql(Error),
    /// A number to be stored that no column can hold, or a stored text that no domain type can be.
    Data(&'static str),
    /// Something on the way drops what is set for a connection.
    Pooled,
    /// Gave up waiting for rows of another transaction; the same call may succeed later.
    Contended(&'static str),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Sql(error)
    }
}

impl Fault {
    /// Whether the connection is gone or holds a plan from before a change of the schema: a second attempt on another one has a chance.
    pub(super) fn connection_is_gone(&self) -> bool {
        match self {
            Self::Sql(Error::Io(_) | Error::WorkerCrashed | Error::BeginFailed) => true,
            Self::Sql(Error::Database(error)) => {
                error.code().is_some_and(|code| code.starts_with("08") || matches!(&*code, "57P01" | "57P02" | "57P05" | "25P03" | "0A000"))
            }
            _ => false,
        }
    }

    /// The kind in which the caller sees it; `what` names the unit of work.
    pub(super) fn into_error(self, what: &'static str) -> ArchiveError {
        match self {
            Self::Sql(error) => of_sql(what, &error),
            Self::Data(fault) => ArchiveError::Refused(format!("{what}: {fault}")),
            Self::Pooled => ArchiveError::Unexpected(format!("{what}: {POOLED}")),
            Self::Contended(fault) => ArchiveError::Unavailable(format!("{what}: {fault}")),
        }
    }
}

fn of_sql(what: &str, error: &Error) -> ArchiveError {
    match error {
        Error::Database(database) => {
            let code = database.code().unwrap_or_default();
            // PgBouncer's words; Postgres itself knows every one that is asked for here.
            if code == "08P01" && database.message().contains("startup parameter") {
                return ArchiveError::Unexpected(format!("{what}: {} ({POOLED})", database.message()));
            }
            let text = match database.constraint() {
                Some(constraint) => format!("{what}: {code} on {constraint}"),
                None => format!("{what}: {code} {}", database.message()),
            };
            match kind_of_code(&code) {
                CodeKind::Passing => ArchiveError::Unavailable(text),
                CodeKind::Data => ArchiveError::Refused(text),
                CodeKind::Fault => ArchiveError::Unexpected(text),
            }
        }
        Error::Io(_) | Error::Tls(_) | Error::PoolTimedOut | Error::PoolClosed | Error::WorkerCrashed | Error::BeginFailed => {
            ArchiveError::Unavailable(format!("{what}: {error}"))
        }
        Error::Encode(_) => ArchiveError::Refused(format!("{what}: a value cannot be encoded")),
        // The texts of decoding errors can quote what was stored.
        Error::ColumnDecode { index, .. } => ArchiveError::Unexpected(format!("{what}: column {index} cannot be read")),
        Error::Decode(_) => ArchiveError::Unexpected(format!("{what}: a value cannot be read")),
        other => ArchiveError::Unexpected(format!("{what}: {other}")),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum CodeKind {
    Passing,
    Data,
    Fault,
}

/// Sorts SQLSTATE codes (appendix A of the Postgres manual) by what a second attempt would bring.
fn kind_of_code(code: &str) -> CodeKind {
    match code {
        // Lock not had in time, standby that takes no writes, idle too long in a transaction, plan made before a change of the schema.
        "55P03" | "25006" | "25P03" | "0A000" => CodeKind::Passing,
        // A row or an index entry that is too large.
        "54000" => CodeKind::Data,
        // A trigger that says no.
        "P0001" => CodeKind::Data,
        _ => match code.get(..2) {
            // Connection, roll-back for deadlock or serialisation, resources, operator or time limit, system; and a login that
            // fails while a password is changed.
            Some("08" | "40" | "53" | "57" | "58" | "28") => CodeKind::Passing,
            // Data exceptions and broken constraints.
            Some("22" | "23") => CodeKind::Data,
            _ => CodeKind::Fault,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_by_what_a_second_attempt_would_bring() {
        for (code, kind) in [
            ("23514", CodeKind::Data),
            ("22021", CodeKind::Data),
            ("P0001", CodeKind::Data),
            ("54000", CodeKind::Data),
            ("57014", CodeKind::Passing),
            ("57P01", CodeKind::Passing),
            ("40P01", CodeKind::Passing),
            ("53300", CodeKind::Passing),
            ("55P03", CodeKind::Passing),
            ("42P01", CodeKind::Fault),
            ("XX000", CodeKind::Fault),
            ("", CodeKind::Fault),
        ] {
            assert_eq!(kind_of_code(code), kind, "{code}");
        }
    }
}
