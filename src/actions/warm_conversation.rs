//! Brings a conversation into Redis, with a block of numbers that nobody else has.

use super::Stores;
use super::open_epoch::open_shard;
use crate::domain::ids::{ConversationId, Seq, UserId};
use crate::domain::refusal::Refusal;
use crate::metrics;
use crate::postgres::LeaseGrant;
use crate::redis::discard_conversation::discard_conversation;
use crate::redis::install_conversation::{ArchivedWhole, Installation, Installed, install_conversation};
use crate::redis::open_conversation::{Opened, open_conversation};
use crate::redis::read_conversation::{ConversationRead, read_conversation};

/// Rounds after which warming is left to the client's next try.
const ROUNDS_MAX: u32 = 5;

/// Whether a conversation is in Redis now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warmth {
    /// It is, and takes writes.
    Warm,
    /// There is no such conversation.
    Unknown,
}

/// Loads a conversation from the archive. With `make`, one that was never made gets a shell, from which it can be made.
///
/// The lease is installed closed, marked in Postgres, then opened. A second asker gets the same block before the mark, and is told after
/// it that there is one: two gateways that race on a first message both start it at 1.
///
/// # Errors
/// [`Refusal::Unavailable`] when a store is away.
pub async fn warm_conversation(stores: &Stores, id: &ConversationId, make: bool) -> Result<Warmth, Refusal> {
    let shard = stores.keys.shard_of(id);
    let mut lost = None;
    for _ in 0..ROUNDS_MAX {
        let epoch = open_shard(stores, shard).await?;
        if !make && !stores.archive.conversation_exists(id).await? {
            return Ok(Warmth::Unknown);
        }
        let lease = match stores.archive.take_lease(id, shard, epoch, stores.settings.lease_block, lost).await? {
            LeaseGrant::Granted(lease) => {
                metrics::LEASES.add(&[], 1);
                lease
            }
            LeaseGrant::Installed(from) => {
                // Somebody was quicker, or its keys are lost: Redis tells which, now that the lease is known to have been installed.
                match open_conversation(&stores.link, &stores.keys, id, epoch, from).await? {
                    Opened::Open | Opened::Closing => return Ok(Warmth::Warm),
                    Opened::Other => lost = Some(from),
                    Opened::StaleEpoch => {}
                }
                continue;
            }
            LeaseGrant::EpochClosed => continue,
            LeaseGrant::Importing => return Err(Refusal::Unavailable("old messages are being brought in")),
        };
        // Read after the lease was taken: taking it may have recorded a void.
        let archived = stores.archive.load_conversation(id, stores.settings.window_messages).await?.map(|whole| ArchivedWhole {
            conversation: whole.conversation,
            members: whole.members,
            marks: whole.marks,
            recent: whole.recent,
            uncounted: whole.uncounted,
            mentions: whole.mentions,
        });
        let what = Installation { id: id.clone(), epoch, lease: (lease.from, lease.to), archived };
        match install_conversation(&stores.link, &stores.keys, stores.clock.now(), &what).await? {
            Installed::Installed => {
                metrics::CONVERSATIONS_LOADED.add(&[], 1);
                if !open_installed(stores, id, epoch, lease.from).await? {
                    continue;
                }
            }
            Installed::Present => return Ok(Warmth::Warm),
            Installed::StaleEpoch => continue,
        }
        return Ok(Warmth::Warm);
    }
    Err(Refusal::Unavailable("the live store is changing"))
}

/// Finishes what somebody began: a conversation that stands in Redis closed, and that nobody is cooling.
///
/// # Errors
/// [`Refusal::Unavailable`] when a store is away.
pub async fn finish_opening(stores: &Stores, id: &ConversationId, anybody: &UserId) -> Result<(), Refusal> {
    if let ConversationRead::Here(hot) = read_conversation(&stores.link, &stores.keys, id, anybody).await?
        && !hot.head.open
        && hot.head.closing.is_none()
    {
        open_installed(stores, id, hot.head.lease_epoch, hot.head.lease_from).await?;
    }
    Ok(())
}

/// Opens what stands in Redis under the lease that begins at `from`; false when that lease was ended or lost before it was marked. What
/// was installed then is old: while its installer slept, others may have used up these very numbers. It is taken away again.
async fn open_installed(stores: &Stores, id: &ConversationId, epoch: u64, from: Seq) -> Result<bool, Refusal> {
    if !stores.archive.mark_lease_installed(id, from).await? {
        discard_conversation(&stores.link, &stores.keys, id, epoch, from).await?;
        return Ok(false);
    }
    match open_conversation(&stores.link, &stores.keys, id, epoch, from).await? {
        Opened::Open | Opened::Closing | Opened::Other | Opened::StaleEpoch => Ok(true),
    }
}

/// Fetches more numbers for a conversation.
///
/// # Errors
/// [`Refusal::Unavailable`] when a store is away.
pub async fn extend_lease(stores: &Stores, id: &ConversationId) -> Result<(), Refusal> {
    let epoch = open_shard(stores, stores.keys.shard_of(id)).await?;
    if let Some(to) = stores.archive.extend_lease(id, epoch, stores.settings.lease_block).await? {
        crate::redis::extend_lease::extend_lease(&stores.link, &stores.keys, id, epoch, to).await?;
    }
    Ok(())
}
