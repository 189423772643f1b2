//! What goes on without a request: each worker has a `run_once` and says why it is safe to run twice; the loop they share is `repeat`.
//!
//! | worker | does | for |
//! |---|---|---|
//! | [`own_shards`] | takes, renews and releases shards | this process |
//! | [`tend_shards`] | opens epochs, measures backlogs | owned shards |
//! | [`dispatch_events`] | outbox → users' logs → gateways | each owned shard by itself |
//! | [`archive_messages`] | outbox → Postgres, trims behind it, tries again what stands aside | owned shards together |
//! | [`index_messages`] | works out what archived messages are found by | whoever comes first |
//! | [`cool_conversations`] | takes idle conversations out of Redis | owned shards |
//! | [`erase_users`] | erases users | requests that it claims, whatever their shards |
//! | [`send_pushes`] | Postgres → browsers' push services | conversations and browsers that it claims |
//! | [`send_webhooks`] | Postgres → the host application | conversations that it claims, whatever their shard |
//! | [`sweep_media`] | removes pictures that no message shows | all, by whoever looks |
//!
//! Order never depends on who works for a shard or whether two do for a moment: cursors and marks only move forward, rows name their
//! version, and closing a conversation bears a token.

pub mod archive_messages;
pub mod cool_conversations;
pub mod dispatch_events;
pub mod erase_users;
pub mod expand_entry;
pub mod index_messages;
mod lagging;
mod live_reads;
pub mod news;
pub mod own_shards;
mod push_hosts;
pub mod recipients;
pub mod repeat;
pub mod send_pushes;
pub mod send_webhooks;
pub mod sweep_media;
pub mod tend_shards;
pub mod trim;

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::actions::Stores;
use crate::actions::archive_outbox::ArchiveStop;
use crate::domain::refusal::Refusal;
use crate::postgres::ArchiveError;
use crate::redis::error::RedisError;
use crate::redis::link::LinkError;

pub use cool_conversations::cool_all;

use archive_messages::{ArchiveMessages, RetryAside};
use cool_conversations::CoolConversations;
use dispatch_events::DispatchShards;
use erase_users::EraseUsers;
use index_messages::IndexMessages;
use news::News;
use own_shards::OwnShards;
use recipients::Recipients;
use repeat::repeat;
use send_pushes::SendPushes;
use send_webhooks::SendWebhooks;
use sweep_media::SweepMedia;
use tend_shards::TendShards;

/// Why a round of a worker failed. It is tried again; nothing is lost by it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// Redis could not be asked or its answer not be read.
    #[error(transparent)]
    Redis(#[from] RedisError),
    /// Postgres did not do what was asked.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// An action was turned down.
    #[error("{0}")]
    Refused(Refusal),
    /// Another epoch of the shard was opened, or none is open on its server.
    #[error("the shard's epoch is another one")]
    StaleEpoch,
}

impl From<LinkError> for WorkError {
    fn from(error: LinkError) -> Self {
        Self::Redis(error.into())
    }
}

impl From<Refusal> for WorkError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<ArchiveStop> for WorkError {
    fn from(stop: ArchiveStop) -> Self {
        match stop {
            ArchiveStop::Redis(error) => Self::Redis(error),
            ArchiveStop::Archive(error) => Self::Archive(error),
            ArchiveStop::StaleEpoch => Self::StaleEpoch,
        }
    }
}

/// Starts everything that goes on without a request, on the shards that this process comes to own. The set is empty soon after `stop`:
/// rounds under way are finished or left for the next owner, then the leases are released.
#[must_use]
pub fn start_workers(stores: Arc<Stores>, stop: CancellationToken) -> JoinSet<()> {
    let worker = uuid::Uuid::now_v7().simple().to_string();
    let (own, owned) = OwnShards::new(Arc::clone(&stores), worker.clone());
    let news = Arc::new(News::default());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut working = JoinSet::new();
        let recipients = Arc::new(Recipients::new(Arc::clone(&stores)));
        let dispatch = DispatchShards::new(Arc::clone(&stores), owned.clone(), recipients, Arc::clone(&news));
        working.spawn(dispatch.run(stop.clone()));
        working.spawn(end(repeat(TendShards::new(Arc::clone(&stores), owned.clone()), stop.clone())));
        working.spawn(end(repeat(ArchiveMessages::new(Arc::clone(&stores), owned.clone(), news), stop.clone())));
        working.spawn(end(repeat(RetryAside::new(Arc::clone(&stores), owned.clone()), stop.clone())));
        if stores.hooks.webhooks.is_some() {
            let (stores, stop) = (Arc::clone(&stores), stop.clone());
            working.spawn(async move { repeat(SendWebhooks::new(stores), stop).await.finish().await });
        }
        if stores.push.is_some() {
            let (stores, stop) = (Arc::clone(&stores), stop.clone());
            working.spawn(async move { repeat(SendPushes::new(stores), stop).await.finish().await });
        }
        working.spawn(end(repeat(IndexMessages::new(Arc::clone(&stores)), stop.clone())));
        working.spawn(end(repeat(EraseUsers::new(Arc::clone(&stores)), stop.clone())));
        working.spawn(end(repeat(SweepMedia::new(Arc::clone(&stores)), stop.clone())));
        working.spawn(end(repeat(CoolConversations::new(stores, owned, worker), stop.clone())));
        // Leases are held until the last of the others has ended: what is under way should not meet the next owner.
        let released = CancellationToken::new();
        let owning = tokio::spawn(repeat(own, released.clone()));
        while working.join_next().await.is_some() {}
        released.cancel();
        if let Ok(mut own) = owning.await {
            own.release_all().await;
        }
    });
    tasks
}

async fn end<T>(running: impl Future<Output = T>) {
    let _ = running.await;
}
