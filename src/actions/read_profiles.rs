//! How users are shown: read when it is shown, from a memory of a few seconds.

use std::collections::HashMap;
use std::time::Duration;

use super::Stores;
use crate::domain::ids::UserId;
use crate::domain::profile::Profile;
use crate::domain::refusal::Refusal;

/// How old a profile may be when it is shown.
pub const PROFILES_LIVE: Duration = Duration::from_secs(2);
/// Profiles in memory.
pub(crate) const PROFILES_MAX: usize = 20_000;

/// The profiles of those of `users` who have one. While Postgres is away, those that are remembered; this never fails and never waits long.
pub async fn profiles_of(stores: &Stores, users: Vec<UserId>) -> HashMap<UserId, Profile> {
    let archive = stores.archive.clone();
    stores.profiles.recall(users, |users| async move { archive.profiles_of(&users).await }).await
}

/// One user's profile, empty for who has none: whether there is such a user is nobody's business.
///
/// # Errors
/// [`Refusal::Unavailable`] when the archive is away.
pub async fn read_profile(stores: &Stores, user: &UserId) -> Result<Profile, Refusal> {
    let found = stores.archive.profiles_of(std::slice::from_ref(user)).await?.pop();
    Ok(found.map(|(_, profile)| profile).unwrap_or_default())
}
