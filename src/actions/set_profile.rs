//! Sets how a user is shown, as the host application's service says.

use super::Stores;
use crate::domain::ids::UserId;
use crate::domain::profile::ProfileChange;
use crate::domain::refusal::Refusal;
pub use crate::postgres::StoredProfile;

/// Sets a profile; what it does not name stays. Other gateways show it within
/// [`PROFILES_LIVE`](super::read_profiles::PROFILES_LIVE).
///
/// # Errors
/// [`Refusal::Forbidden`] for everybody but the service, [`Refusal::Unavailable`] when the archive is away.
pub async fn set_profile(stores: &Stores, service: bool, user: &UserId, change: &ProfileChange) -> Result<StoredProfile, Refusal> {
    if !service {
        return Err(Refusal::Forbidden("only the service sets profiles; a user's own name comes with the token"));
    }
    let stored = stores.archive.set_profile(user, change, stores.clock.now()).await?;
    stores.profiles.put(user.clone(), Some(stored.profile.clone()));
    Ok(stored)
}
