//! Registers browsers for pushes, and ends that.

use super::Stores;
use crate::domain::ids::{Millis, UserId};
use crate::domain::refusal::Refusal;
use crate::postgres::{PushSubscriptionRow, Registered};
use crate::push::{BrowserKeys, Endpoint, Push};

/// Most subscriptions of a user.
pub const SUBSCRIPTIONS_MAX: u64 = 20;

/// What a browser wants, as it came.
#[derive(Clone, Copy, Debug)]
pub struct PushWish<'a> {
    /// The endpoint.
    pub endpoint: &'a str,
    /// Its public key, base64url.
    pub p256dh: &'a str,
    /// The secret that it shares with us, base64url.
    pub auth: &'a str,
    /// Whether pushes say who wrote what.
    pub show_preview: bool,
}

/// A subscription that was registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredPush {
    /// The endpoint as it is called.
    pub endpoint: String,
    /// Whether this user had it not before.
    pub made: bool,
    /// When this user first registered it.
    pub created_at: Millis,
}

fn push_of(stores: &Stores) -> Result<&Push, Refusal> {
    stores.push.as_ref().ok_or(Refusal::SwitchedOff("Pushes are switched off here: the gateway has no key for them."))
}

/// The key that browsers need.
///
/// # Errors
/// [`Refusal::SwitchedOff`] while push is off.
pub fn push_key(stores: &Stores) -> Result<&str, Refusal> {
    Ok(push_of(stores)?.public_key())
}

/// Registers a browser for a user, from whoever had it before. Repeated, it changes nothing but what is told anew.
///
/// # Errors
/// [`Refusal::SwitchedOff`], [`Refusal::Invalid`] naming the field, [`Refusal::Unavailable`] when the archive is away.
pub async fn register_push(stores: &Stores, user: &UserId, device: Option<&str>, wish: PushWish<'_>) -> Result<RegisteredPush, Refusal> {
    let endpoint = Endpoint::parse(wish.endpoint, push_of(stores)?.allow_loopback)?;
    let BrowserKeys { p256dh, auth } = BrowserKeys::parse(wish.p256dh, wish.auth)?;
    let row = PushSubscriptionRow {
        user: user.clone(),
        device: device.map(str::to_owned),
        endpoint: endpoint.as_str().to_owned(),
        host: endpoint.host(),
        p256dh,
        auth,
        show_preview: wish.show_preview,
    };
    let Registered { made, created_at } = stores.archive.put_push_subscription(&row, SUBSCRIPTIONS_MAX).await?;
    Ok(RegisteredPush { endpoint: row.endpoint, made, created_at })
}

/// Ends a user's subscription. Nothing happens when there is none, or it is somebody else's by now.
///
/// # Errors
/// [`Refusal::SwitchedOff`], [`Refusal::Unavailable`] when the archive is away.
pub async fn end_push(stores: &Stores, user: &UserId, endpoint: &str) -> Result<(), Refusal> {
    push_of(stores)?;
    // Compared as it was kept: a browser's text and ours may differ in how they write the same address.
    let kept = url::Url::parse(endpoint).map_or_else(|_| endpoint.to_owned(), String::from);
    Ok(stores.archive.delete_push_subscription(user, &kept).await?)
}
