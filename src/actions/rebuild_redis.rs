//! Makes what Redis holds anew from Postgres, while everybody goes on: conversations one by one, then the users' logs.
//!
//! A conversation is cooled and loaded: it leaves Redis only when Postgres has everything of it, and its sends wait for that moment. So nothing that was
//! accepted can be lost, and what cannot leave in time stays as it is. Logs are not in Postgres: each begins anew, once all conversations
//! stand, and its readers are told to read again. Cut off anywhere it may be begun again; what is done twice comes to the same.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use uuid::Uuid;

use super::Stores;
use super::archive_outbox::{ArchiveStop, conversations_aside};
use super::cool_conversation::{Cooled, cool_conversation};
use super::open_epoch::open_shard;
use super::warm_conversation::{Warmth, warm_conversation};
use crate::domain::event::{EventType, Pointer};
use crate::domain::ids::{ConversationId, Millis, ShardId, UserId};
use crate::domain::position::EntryId;
use crate::domain::refusal::Refusal;
use crate::redis::close_conversation::list_idle;
use crate::redis::error::RedisError;
use crate::redis::read_shard::read_shard;
use crate::redis::renew_log::renew_log;
use crate::redis::touch_index::touch_index;
use crate::redis::wake_gateway::{Wake, Woken, wake_gateway};

/// Conversations rebuilt at the same time, and logs.
const AT_ONCE: usize = 8;
/// Pause between two looks at what is still under way.
const PAUSE: Duration = Duration::from_millis(50);
/// Users of one page.
const PAGE: u64 = 500;

/// Why it stopped. What was done stays done, and nothing is lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RebuildStop {
    /// Entries that Postgres does not take.
    #[error(
        "{entries} accepted entries of shard {shard} stand aside: Postgres does not take them, and they are in Redis alone; the log of the workers says why"
    )]
    Aside {
        /// The shard's number.
        shard: u16,
        /// How many.
        entries: u64,
    },
    /// The backlog did not empty in time.
    #[error("{entries} accepted entries of shard {shard} are not in Postgres and the logs yet, and would be lost; do workers run?")]
    Backlog {
        /// The shard's number.
        shard: u16,
        /// How many.
        entries: u64,
    },
    /// A conversation could not be taken out of Redis in time.
    #[error("{0} could not be taken out of Redis in time; it stays as it is")]
    Busy(ConversationId),
    /// There is no such conversation.
    #[error("Postgres knows no conversation {0}")]
    Unknown(ConversationId),
    /// A store.
    #[error(transparent)]
    Archiving(#[from] ArchiveStop),
    /// A store, or the live store is changing.
    #[error("a store cannot be used for the time: {0}")]
    Store(#[from] Refusal),
}

impl From<RedisError> for RebuildStop {
    fn from(error: RedisError) -> Self {
        Self::Archiving(error.into())
    }
}

/// Waits until everything that a shard has accepted by now is in Postgres and told, at most for `wait`.
///
/// # Errors
/// [`RebuildStop::Backlog`]; [`RebuildStop::Aside`] when something of the shard's conversations stands aside, or of `only` this one; when a
/// store does not answer.
pub async fn await_backlog(stores: &Stores, shard: ShardId, only: Option<&ConversationId>, wait: Duration) -> Result<(), RebuildStop> {
    open_shard(stores, shard).await?;
    let until = Instant::now() + wait;
    let accepted = read_shard(&stores.link, shard).await?.last;
    loop {
        let state = read_shard(&stores.link, shard).await?;
        if state.has_passed(accepted) {
            if state.aside > 0 && conversations_aside(stores, shard).await?.iter().any(|id| only.is_none_or(|only| id == only)) {
                return Err(RebuildStop::Aside { shard: shard.0, entries: state.aside });
            }
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(RebuildStop::Backlog { shard: shard.0, entries: state.entries });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Rebuilds one conversation, whether it is in Redis or not. Nobody sees anything of it.
///
/// # Errors
/// See [`RebuildStop`].
pub async fn rebuild_conversation(stores: &Stores, id: &ConversationId, wait: Duration) -> Result<(), RebuildStop> {
    await_backlog(stores, stores.keys.shard_of(id), Some(id), wait).await?;
    match renew(stores, id, wait).await? {
        Warmth::Warm => Ok(()),
        Warmth::Unknown => Err(RebuildStop::Unknown(id.clone())),
    }
}

/// Rebuilds every conversation of a shard that is in Redis now, and says how many there were.
///
/// # Errors
/// See [`RebuildStop`].
pub async fn rebuild_shard(stores: &Stores, shard: ShardId, wait: Duration) -> Result<u64, RebuildStop> {
    await_backlog(stores, shard, None, wait).await?;
    // As it is now: what comes back meanwhile comes from Postgres.
    let there = list_idle(&stores.link, shard, Millis::MAX / 2, u64::from(u32::MAX)).await?;
    let count = there.len() as u64;
    stream::iter(there).map(Ok).try_for_each_concurrent(AT_ONCE, |id| async move { renew(stores, &id, wait).await.map(drop) }).await?;
    Ok(count)
}

/// Takes a conversation out of Redis as soon as Postgres has all of it, and brings it in again.
async fn renew(stores: &Stores, id: &ConversationId, wait: Duration) -> Result<Warmth, RebuildStop> {
    let (token, until) = (format!("rebuild {}", Uuid::now_v7()), Instant::now() + wait);
    loop {
        match cool_conversation(stores, id, &token, Millis::MAX / 2).await {
            Ok(Cooled::Gone) => break,
            Ok(Cooled::Stays | Cooled::Unfinished) if Instant::now() >= until => return Err(RebuildStop::Busy(id.clone())),
            Err(stop) if Instant::now() >= until => return Err(stop.into()),
            Ok(_) | Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    Ok(warm_conversation(stores, id, false).await?)
}

/// How far the logs are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogsRebuilt {
    /// Logs that began anew with this call.
    pub renewed: u64,
    /// The last user that was looked at; `None` at the end.
    pub last: Option<UserId>,
}

/// Begins the logs of the next users above `after` anew, brings their lists in line with Postgres, and tells their streams.
///
/// # Errors
/// See [`RebuildStop`].
pub async fn rebuild_logs(stores: &Stores, after: Option<&UserId>) -> Result<LogsRebuilt, RebuildStop> {
    let users = stores.archive.member_users(after, PAGE).await.map_err(ArchiveStop::from)?;
    let now = stores.clock.now();
    let renewed: Vec<_> = stream::iter(users.iter())
        .map(|user| async move {
            let listed = stores.archive.conversation_ids_of(user).await.map_err(ArchiveStop::from)?;
            touch_index(&stores.link, &stores.keys, user, &listed, true).await?;
            Ok::<_, RebuildStop>(renew_log(&stores.link, &stores.keys, user, now).await?.map(|log| (user, log)))
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    let mut woken: BTreeMap<String, Vec<Woken>> = BTreeMap::new();
    let mut done = LogsRebuilt { renewed: 0, last: users.last().filter(|_| users.len() as u64 >= PAGE).cloned() };
    for (user, log) in renewed.into_iter().flatten() {
        done.renewed += 1;
        for gateway in log.gateways {
            woken.entry(gateway).or_default().push(Woken { user: user.clone(), position: log.head.clone(), previous: EntryId::default() });
        }
    }
    // Only a hint: whom it does not reach finds out by the next comparison with the log.
    let Ok(conversation) = ConversationId::of_system("rebuild") else { return Ok(done) };
    let pointer = Pointer { kind: EventType::Resync, conversation, rev: 0, seq: 0, at: now, data: None };
    for (gateway, recipients) in woken {
        let wake = Wake { pointer: pointer.clone(), message: None, recipients };
        if let Err(error) = wake_gateway(&stores.link, &gateway, &[wake]).await {
            tracing::debug!(%error, "a gateway could not be woken; it will look by itself");
        }
    }
    Ok(done)
}
