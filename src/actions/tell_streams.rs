//! Tells the open streams of users what leaves no log entry: it has no id, is never replayed, and who has no stream open never hears of it.

use super::Stores;
use crate::domain::event::Pointer;
use crate::domain::ids::UserId;
use crate::redis::find_gateways::find_gateways;
use crate::redis::wake_gateway::{LiveWake, wake_ended, wake_live};

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

/// Ends a user's streams at every gateway. Where it is lost the stream goes on, and shows what the user may still see.
pub async fn end_streams(stores: &Stores, user: &UserId) {
    let reachable = find_gateways(&stores.link, &stores.keys, std::slice::from_ref(user), stores.clock.now()).await;
    if let Some(error) = reachable.error {
        tracing::warn!(%error, "a user's streams are not ended");
    }
    for (gateway, users) in reachable.users {
        if let Err(error) = wake_ended(&stores.link, &gateway, &users).await {
            tracing::warn!(%error, "a gateway is not told to end a user's streams");
        }
    }
}
