//! Opens a new epoch of a shard after its server restarted, was replaced, or lost the shard's keys.

use tokio::sync::Mutex;

use super::Stores;
use crate::domain::ids::ShardId;
use crate::domain::refusal::Refusal;
use crate::postgres::EpochGrant;
use crate::redis::open_epoch::{install_epoch, look_at_shard, open_epoch};

/// Rounds after which opening is left to the next caller: each ends early when another process opens the same shard.
const ROUNDS_MAX: u32 = 5;

/// Who opens a shard in this process. After a loss every request of everybody stands before the same few shards; one of them does the work,
/// and the others look again when it is done.
#[derive(Debug)]
pub(crate) struct Openings(Vec<Mutex<()>>);

impl Openings {
    /// For so many shards.
    pub(crate) fn new(shards: u16) -> Self {
        Self((0..shards).map(|_| Mutex::new(())).collect())
    }
}

/// Makes sure that the shard takes reads and writes, and says in which epoch.
///
/// The epoch is decided in Postgres, once, whoever asks. It is written in Redis closed, marked as installed in Postgres, what the server
/// still holds of earlier epochs is archived, and only then it is opened: a conversation that is loaded in the new epoch sees everything
/// that survived, and the rest of its old numbers becomes a void.
///
/// # Errors
/// [`Refusal::Unavailable`] when a store is away.
pub async fn open_shard(stores: &Stores, shard: ShardId) -> Result<u64, Refusal> {
    if let Some(epoch) = look_at_shard(&stores.link, shard).await?.current_epoch() {
        return Ok(epoch);
    }
    // A shard beyond the setting has no place here: nobody's conversation is on it.
    let _turn = match stores.openings.0.get(usize::from(shard.0)) {
        Some(turn) => Some(turn.lock().await),
        None => None,
    };
    let mut lost = None;
    for _ in 0..ROUNDS_MAX {
        let state = look_at_shard(&stores.link, shard).await?;
        if let Some(epoch) = state.current_epoch() {
            return Ok(epoch);
        }
        let held_here = state.epoch.filter(|_| state.opened_on.as_deref() == Some(&state.live));
        let (epoch, fresh) = match stores.archive.grant_epoch(shard, &state.live, held_here, lost, stores.clock.now()).await? {
            EpochGrant::Granted { epoch, fresh } => (epoch, fresh),
            // Another process was quicker, or the server lost it: a second look tells.
            EpochGrant::Standing(epoch) => {
                lost = Some(epoch);
                continue;
            }
        };
        if !install_epoch(&stores.link, shard, epoch).await? {
            continue;
        }
        stores.archive.mark_epoch_installed(shard, epoch).await?;
        super::archive_outbox::drain_shard(stores, shard).await.map_err(|error| {
            tracing::warn!(shard = shard.0, error = %error, "what the shard held of earlier epochs is not archived yet");
            Refusal::Unavailable("the archive cannot be reached")
        })?;
        super::announce_loss::announce_loss(stores, shard, epoch).await?;
        if open_epoch(&stores.link, shard, epoch).await? {
            if fresh {
                crate::metrics::EPOCHS_OPENED.add(&[], 1);
            }
            tracing::info!(shard = shard.0, epoch, "shard epoch opened");
            return Ok(epoch);
        }
    }
    Err(Refusal::Unavailable("the live store is changing"))
}
