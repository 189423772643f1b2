//! Profiles: what the service set, and what tokens claimed where it set nothing.

use super::connection::{Archive, bound, read_conversation, read_user};
use super::error::ArchiveError;
use crate::domain::ids::{ConversationId, Millis, UserId};
use crate::domain::profile::{Claimed, Profile, ProfileChange, fold};

/// A profile, and when it last changed (ms).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredProfile {
    /// As it is shown.
    pub profile: Profile,
    /// When it last changed.
    pub updated_at: Millis,
}

impl Archive {
    /// Sets what the service says; the fields it names are its own from now on.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn set_profile(&self, user: &UserId, change: &ProfileChange, at: Millis) -> Result<StoredProfile, ArchiveError> {
        let (user, change) = (user.clone(), change.clone());
        self.unit("set_profile", move |connection| {
            let (user, change) = (user.clone(), change.clone());
            Box::pin(async move {
                let name = change.name.clone().flatten();
                let (name, avatar_url, updated_at): (Option<String>, Option<String>, Millis) = sqlx::query_as(
                    "INSERT INTO profiles AS p (user_id, name, name_folded, name_set, avatar_url, avatar_set, updated_at_ms)
                     VALUES ($1, $2, $3, $4, $5, $6, $7)
                     ON CONFLICT (user_id) DO UPDATE SET
                         name = CASE WHEN excluded.name_set THEN excluded.name ELSE p.name END,
                         name_folded = CASE WHEN excluded.name_set THEN excluded.name_folded ELSE p.name_folded END,
                         name_set = p.name_set OR excluded.name_set,
                         avatar_url = CASE WHEN excluded.avatar_set THEN excluded.avatar_url ELSE p.avatar_url END,
                         avatar_set = p.avatar_set OR excluded.avatar_set,
                         updated_at_ms = GREATEST(p.updated_at_ms, excluded.updated_at_ms)
                     RETURNING name, avatar_url, updated_at_ms",
                )
                .bind(user.as_str())
                .bind(name.as_deref())
                .bind(name.as_deref().map(fold))
                .bind(change.name.is_some())
                .bind(change.avatar_url.clone().flatten())
                .bind(change.avatar_url.is_some())
                .bind(at)
                .fetch_one(connection)
                .await?;
                Ok(StoredProfile { profile: Profile { name, avatar_url }, updated_at })
            })
        })
        .await
    }

    /// Writes what tokens claimed, where the service set nothing and nothing newer stands. Each user once. Of somebody who is being erased
    /// nothing is written, nor what was seen before that was done.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn note_claims(&self, claims: &[(UserId, Claimed)]) -> Result<(), ArchiveError> {
        let mut claims = claims.to_vec();
        // One order of locks for everybody who writes several rows.
        claims.sort_by(|a, b| a.0.cmp(&b.0));
        self.unit("note_claims", move |connection| {
            let users: Vec<String> = claims.iter().map(|(user, _)| user.to_string()).collect();
            let names: Vec<Option<String>> = claims.iter().map(|(_, claimed)| claimed.profile.name.clone()).collect();
            let folded: Vec<Option<String>> = names.iter().map(|name| name.as_deref().map(fold)).collect();
            let avatars: Vec<Option<String>> = claims.iter().map(|(_, claimed)| claimed.profile.avatar_url.clone()).collect();
            let seen: Vec<Millis> = claims.iter().map(|(_, claimed)| claimed.seen_at).collect();
            Box::pin(async move {
                sqlx::query(
                    "INSERT INTO profiles AS p (user_id, name, name_folded, name_set, avatar_url, avatar_set, updated_at_ms)
                     SELECT c.user_id, c.name, c.name_folded, false, c.avatar_url, false, c.seen_at_ms
                     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[])
                          AS c (user_id, name, name_folded, avatar_url, seen_at_ms)
                     WHERE NOT EXISTS (SELECT 1 FROM erasures AS e WHERE e.user_id = c.user_id
                                       AND (e.finished_at_ms IS NULL OR c.seen_at_ms <= e.finished_at_ms))
                     ON CONFLICT (user_id) DO UPDATE SET
                         name = CASE WHEN p.name_set THEN p.name ELSE excluded.name END,
                         name_folded = CASE WHEN p.name_set THEN p.name_folded ELSE excluded.name_folded END,
                         avatar_url = CASE WHEN p.avatar_set THEN p.avatar_url ELSE excluded.avatar_url END,
                         updated_at_ms = excluded.updated_at_ms
                     WHERE p.updated_at_ms <= excluded.updated_at_ms
                       AND ((NOT p.name_set AND p.name IS DISTINCT FROM excluded.name)
                            OR (NOT p.avatar_set AND p.avatar_url IS DISTINCT FROM excluded.avatar_url))",
                )
                .bind(users)
                .bind(names)
                .bind(folded)
                .bind(avatars)
                .bind(seen)
                .execute(connection)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// The profiles of those of `users` who have one.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn profiles_of(&self, users: &[UserId]) -> Result<Vec<(UserId, Profile)>, ArchiveError> {
        let users: Vec<String> = users.iter().map(ToString::to_string).collect();
        self.unit("profiles_of", move |connection| {
            let users = users.clone();
            Box::pin(async move {
                let rows: Vec<(String, Option<String>, Option<String>)> =
                    sqlx::query_as("SELECT user_id, name, avatar_url FROM profiles WHERE user_id = ANY($1)")
                        .bind(users)
                        .fetch_all(connection)
                        .await?;
                rows.into_iter().map(|(user, name, avatar_url)| Ok((read_user(&user)?, Profile { name, avatar_url }))).collect()
            })
        })
        .await
    }

    /// Those of `conversations` with a current member, other than `user`, whose name holds this folded text.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn conversations_naming(
        &self,
        user: &UserId,
        conversations: &[ConversationId],
        folded: &str,
    ) -> Result<Vec<ConversationId>, ArchiveError> {
        let ids: Vec<String> = conversations.iter().map(ToString::to_string).collect();
        let (user, folded) = (user.clone(), folded.to_owned());
        self.unit("conversations_naming", move |connection| {
            let (user, ids, folded) = (user.clone(), ids.clone(), folded.clone());
            Box::pin(async move {
                let rows: Vec<(String,)> = sqlx::query_as(
                    "SELECT asked.id FROM unnest($2::text[]) AS asked (id)
                     WHERE EXISTS (SELECT 1 FROM members AS m JOIN profiles AS p ON p.user_id = m.user_id
                                   WHERE m.conv_id = asked.id AND m.left_rev IS NULL AND m.user_id <> $1
                                     AND strpos(p.name_folded, $3) > 0)",
                )
                .bind(user.as_str())
                .bind(ids)
                .bind(folded)
                .fetch_all(connection)
                .await?;
                rows.iter().map(|(id,)| read_conversation(id)).collect()
            })
        })
        .await
    }

    /// Up to `each` current members of each of `conversations`, earliest joined first.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn first_members_of(
        &self,
        conversations: &[ConversationId],
        each: u64,
    ) -> Result<Vec<(ConversationId, UserId)>, ArchiveError> {
        let ids: Vec<String> = conversations.iter().map(ToString::to_string).collect();
        self.unit("first_members_of", move |connection| {
            let ids = ids.clone();
            Box::pin(async move {
                let rows: Vec<(String, String)> = sqlx::query_as(
                    "SELECT asked.id, first.user_id FROM unnest($1::text[]) AS asked (id)
                     CROSS JOIN LATERAL (SELECT m.user_id, m.joined_at_ms FROM members AS m
                                         WHERE m.conv_id = asked.id AND m.left_rev IS NULL
                                         ORDER BY m.joined_at_ms, m.user_id LIMIT $2) AS first
                     ORDER BY asked.id, first.joined_at_ms, first.user_id",
                )
                .bind(ids)
                .bind(bound(each))
                .fetch_all(connection)
                .await?;
                rows.iter().map(|(id, user)| Ok((read_conversation(id)?, read_user(user)?))).collect()
            })
        })
        .await
    }
}
