//! Takes in what the host application tells about the things that messages share.

use super::Stores;
use crate::domain::message::Share;
use crate::domain::refusal::Refusal;
use crate::domain::share::ShareFacts;

/// Keeps it, in place of what was told before. Every message that shares it shows it so, at every gateway within
/// [`SHARES_LIVE`](super::show_shares::SHARES_LIVE).
///
/// # Errors
/// [`Refusal::Forbidden`] for everybody but the service, [`Refusal::Unavailable`] when the archive is away.
pub async fn tell_share(stores: &Stores, service: bool, share: &Share, facts: ShareFacts) -> Result<(), Refusal> {
    if !service {
        return Err(Refusal::Forbidden("only the service tells what is shared"));
    }
    stores.archive.tell_share(share, &facts, stores.clock.now()).await?;
    stores.shares.put(share.clone(), Some(facts));
    Ok(())
}
