//! Tickets for streams: made for a proven caller, found again by whoever holds one.

use super::Stores;
use crate::domain::ids::{Millis, UserId};
use crate::domain::refusal::Refusal;
use crate::redis::tickets::{LIFE_MS_MAX, TicketClaims, find_ticket, make_ticket};

/// A ticket as its client gets it.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// The secret; never logged.
    pub ticket: String,
    /// Whole seconds for which it is good.
    pub expires_in_s: u64,
}

/// Makes a ticket that dies with the proof it was made from, which counts until `over_at`.
///
/// # Errors
/// [`Refusal::Unavailable`] when Redis is away.
pub async fn issue(stores: &Stores, user: &UserId, device: Option<&str>, over_at: Millis) -> Result<Issued, Refusal> {
    let left_ms = u64::try_from(over_at - stores.clock.now()).unwrap_or(0).min(LIFE_MS_MAX);
    let claims = TicketClaims { user: user.clone(), device: device.map(str::to_owned), over_at };
    let ticket = make_ticket(&stores.link, &stores.keys, &claims, left_ms).await?;
    Ok(Issued { ticket, expires_in_s: left_ms / 1_000 })
}

/// What a ticket proves; `None` when it proves nothing (any more).
///
/// # Errors
/// [`Refusal::Unavailable`] when Redis is away.
pub async fn redeem(stores: &Stores, ticket: &str) -> Result<Option<TicketClaims>, Refusal> {
    let claims = find_ticket(&stores.link, &stores.keys, ticket).await?;
    Ok(claims.filter(|claims| claims.over_at > stores.clock.now()))
}
