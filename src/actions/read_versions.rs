//! Reads what a message said before.

use super::Stores;
use crate::domain::ids::{ConversationId, Seq};
use crate::domain::refusal::Refusal;
use crate::postgres::VersionRow;

/// Reads the earlier versions of a message, oldest first.
///
/// # Errors
/// [`Refusal::Forbidden`] for all but moderators; [`Refusal::Unavailable`] when Postgres is away.
pub async fn read_versions(stores: &Stores, admin: bool, id: &ConversationId, seq: Seq) -> Result<Vec<VersionRow>, Refusal> {
    if !admin {
        return Err(Refusal::Forbidden("only moderators read what was edited or deleted"));
    }
    Ok(stores.archive.versions_of(id, seq).await?)
}
