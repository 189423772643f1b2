//! What stands in the way of a write, and how it is cleared: one place, so that every write recovers alike.

use std::time::{Duration, Instant};

use super::Stores;
use super::open_epoch::open_shard;
use super::warm_conversation::{Warmth, extend_lease, finish_opening, warm_conversation};
use crate::domain::ids::{ConversationId, UserId};
use crate::domain::refusal::Refusal;
use crate::redis::error::RedisError;
use crate::redis::link::LinkError;

/// Part of a request's deadline that is kept for the answer itself.
const ANSWER_MS: u64 = 500;
/// Longest pause between two tries.
const PAUSE_MS_MAX: u64 = 100;

/// Why a script did not write.
#[derive(Debug)]
pub enum Obstacle {
    /// The conversation is not in Redis.
    Cold,
    /// It takes no writes for a moment.
    Closed,
    /// Its numbers are used up.
    LeaseUsedUp,
    /// The server is not the one the shard's epoch was opened on.
    StaleEpoch,
    /// Redis could not be asked.
    Redis(RedisError),
    /// The facts had changed; ask again at once.
    Changed,
}

/// The tries of one write, until its deadline.
#[derive(Debug)]
pub struct Tries {
    until: Instant,
    pause_ms: u64,
}

impl Tries {
    /// Tries within a request's deadline.
    #[must_use]
    pub fn new(stores: &Stores) -> Self {
        let ms = stores.settings.request_deadline_ms.saturating_sub(ANSWER_MS).max(ANSWER_MS);
        Self { until: Instant::now() + Duration::from_millis(ms), pause_ms: 1 }
    }

    /// When to give up.
    #[must_use]
    pub fn until(&self) -> Instant {
        self.until
    }

    /// Clears an obstacle; `Ok` means: try again. With `make`, a conversation that was never made gets a shell.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] when there is no such conversation, [`Refusal::Unavailable`] when a store is away or the deadline has come.
    pub async fn clear(
        &mut self,
        stores: &Stores,
        id: &ConversationId,
        user: &UserId,
        obstacle: Obstacle,
        make: bool,
    ) -> Result<(), Refusal> {
        match obstacle {
            Obstacle::Cold => {
                if warm_conversation(stores, id, make).await? == Warmth::Unknown {
                    return Err(Refusal::NotFound);
                }
                self.check("the conversation is changing")
            }
            Obstacle::Closed => {
                finish_opening(stores, id, user).await?;
                self.pause("the conversation is closed for a moment").await
            }
            Obstacle::LeaseUsedUp => {
                extend_lease(stores, id).await?;
                self.check("the conversation is changing")
            }
            Obstacle::StaleEpoch => {
                open_shard(stores, stores.keys.shard_of(id)).await?;
                self.check("the live store is changing")
            }
            Obstacle::Changed => self.check("the conversation is changing"),
            // Every write is safe to repeat; what is out of the question is to tell a client that a stored message was not.
            Obstacle::Redis(RedisError::Link(LinkError::NotSent(_) | LinkError::NoAnswer(_) | LinkError::NotServing(_))) => {
                self.pause("the live store cannot be reached").await
            }
            Obstacle::Redis(error) => Err(error.into()),
        }
    }

    fn check(&self, why: &'static str) -> Result<(), Refusal> {
        if Instant::now() >= self.until { Err(Refusal::Unavailable(why)) } else { Ok(()) }
    }

    async fn pause(&mut self, why: &'static str) -> Result<(), Refusal> {
        if Instant::now() + Duration::from_millis(self.pause_ms) >= self.until {
            return Err(Refusal::Unavailable(why));
        }
        tokio::time::sleep(Duration::from_millis(self.pause_ms)).await;
        self.pause_ms = (self.pause_ms * 2).min(PAUSE_MS_MAX);
        Ok(())
    }
}
