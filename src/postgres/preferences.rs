//! What members have set for themselves.

use sqlx::PgConnection;

use super::connection::{read, stored};
use super::error::Fault;
use crate::domain::ids::{ConversationId, Rev, UserId};
use crate::domain::preferences::Preferences;

/// A member's preferences after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreferencesRow {
    /// Where.
    pub conv: ConversationId,
    /// Whose.
    pub user: UserId,
    /// Rev of the join of the membership that they belong to.
    pub joined_rev: Rev,
    /// All of them.
    pub preferences: Preferences,
    /// The change.
    pub rev: Rev,
}

/// The columns of a member's preferences; nothing where a SELECT does not name them, and where none were set.
#[derive(Default, sqlx::FromRow)]
pub(super) struct PreferencesColumns {
    #[sqlx(default)]
    muted: Option<bool>,
    #[sqlx(default)]
    pinned: Option<bool>,
    #[sqlx(default)]
    hidden_to: Option<i64>,
    #[sqlx(default)]
    marked_at: Option<i64>,
    #[sqlx(default)]
    cleared_to: Option<i64>,
}

impl PreferencesColumns {
    pub(super) fn to_preferences(&self) -> Result<Preferences, Fault> {
        Ok(Preferences {
            muted: self.muted.unwrap_or_default(),
            pinned: self.pinned.unwrap_or_default(),
            hidden_to: self.hidden_to.map(read).transpose()?,
            marked_at: self.marked_at.map(read).transpose()?,
            cleared_to: self.cleared_to.map(read).transpose()?.unwrap_or_default(),
        })
    }
}

/// Writes preferences, sorted by (conversation, user).
pub(super) async fn write_preferences(tx: &mut PgConnection, rows: impl Iterator<Item = &PreferencesRow>) -> Result<(), Fault> {
    let rows: Vec<&PreferencesRow> = rows.collect();
    if rows.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO preferences AS p (conv_id, user_id, joined_rev, muted, pinned, hidden_to, marked_at, cleared_to, rev)
         SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::boolean[], $5::boolean[], $6::bigint[], $7::bigint[], $8::bigint[],
                              $9::bigint[])
         ON CONFLICT (conv_id, user_id) DO UPDATE SET
             joined_rev = excluded.joined_rev, muted = excluded.muted, pinned = excluded.pinned, hidden_to = excluded.hidden_to,
             marked_at = excluded.marked_at, cleared_to = excluded.cleared_to, rev = excluded.rev
         WHERE p.rev < excluded.rev",
    )
    .bind(rows.iter().map(|r| r.conv.as_str()).collect::<Vec<_>>())
    .bind(rows.iter().map(|r| r.user.as_str()).collect::<Vec<_>>())
    .bind(rows.iter().map(|r| stored(r.joined_rev)).collect::<Result<Vec<_>, _>>()?)
    .bind(rows.iter().map(|r| r.preferences.muted).collect::<Vec<_>>())
    .bind(rows.iter().map(|r| r.preferences.pinned).collect::<Vec<_>>())
    .bind(rows.iter().map(|r| r.preferences.hidden_to.map(stored).transpose()).collect::<Result<Vec<_>, _>>()?)
    .bind(rows.iter().map(|r| r.preferences.marked_at.map(stored).transpose()).collect::<Result<Vec<_>, _>>()?)
    .bind(rows.iter().map(|r| stored(r.preferences.cleared_to)).collect::<Result<Vec<_>, _>>()?)
    .bind(rows.iter().map(|r| stored(r.rev)).collect::<Result<Vec<_>, _>>()?)
    .execute(tx)
    .await?;
    Ok(())
}
