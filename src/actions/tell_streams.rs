//! Tells the open streams of users what leaves no log entry: it has no id, is never replayed, and who has no stream open never hears of it.

use super::Stores;
use crate::domain::event::Pointer;
use crate::domain::ids::UserId;
use crate::redis::find_gateways::find_gateways;
use crate::redis::wake_gateway::{LiveWake, wake_live};

/// Sends one wake-up to every gateway that holds streams of these users. `event.data` is what is shown.
///
/// It is lost where a store cannot be reached: whatever is told like this ends by itself or is told again.
pub async fn tell_streams(stores: &Stores, event: &Pointer, users: &[UserId]) {
    let reachable = find_gateways(&stores.link, &stores.keys, users, stores.clock.now()).await;
    if let Some(error) = reachable.error {
        tracing::debug!(%error, "some streams are not told of an event that leaves no entry");
    }
    let calls = reachable.users.into_iter().map(|(gateway, users)| async move {
        let wake = LiveWake { event: event.clone(), users };
        if let Err(error) = wake_live(&stores.link, &gateway, &wake).await {
            tracing::debug!(%error, "a gateway is not told of an event that leaves no entry");
        }
    });
    futures_util::future::join_all(calls).await;
}
