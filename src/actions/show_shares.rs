//! Says what messages share: looked up when it is shown, from a memory of a few seconds, and never a reason to fail.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::Stores;
use crate::domain::message::Share;
use crate::domain::quote::ShownMessage;
use crate::domain::share::ShareFacts;

/// How old what is said about something shared may be; a change shows at every gateway within that time.
pub const SHARES_LIVE: Duration = Duration::from_secs(2);
/// Shares in memory.
pub(crate) const SHARES_MAX: usize = 20_000;

/// Fills in what these messages share: the one place for all answers and events. While Postgres is away, what is remembered.
pub async fn show_shares<'a>(stores: &Stores, shown: impl IntoIterator<Item = &'a mut ShownMessage>) {
    let mut sharing: Vec<&mut ShownMessage> = shown.into_iter().filter(|shown| shown.message.share.is_some()).collect();
    let wanted: HashSet<Share> = sharing.iter().filter_map(|shown| shown.message.share.clone()).collect();
    if wanted.is_empty() {
        return;
    }
    let facts = facts_of(stores, wanted.into_iter().collect()).await;
    for shown in &mut sharing {
        shown.shared = shown.message.share.as_ref().and_then(|share| facts.get(share).cloned());
    }
}

/// Looks something up, so that it is remembered.
pub async fn look_up(stores: &Stores, share: Share) {
    facts_of(stores, vec![share]).await;
}

async fn facts_of(stores: &Stores, shares: Vec<Share>) -> HashMap<Share, ShareFacts> {
    let archive = stores.archive.clone();
    stores.shares.recall(shares, |shares| async move { archive.shares_of(&shares).await }).await
}

/// What is remembered about it, for those who cannot wait; `None` when it has to be asked for.
#[must_use]
pub fn remembered(stores: &Stores, share: &Share) -> Option<Option<ShareFacts>> {
    stores.shares.remembered(share)
}
