//! Erases users whom the host application asked to be erased.
//!
//! ```text
//! everything accepted is archived ─▶ conversations listed ─▶ left, each ─▶ blanked, each, the newest first ─▶ told and archived ─▶ logs,
//! lists and pictures dropped ─▶ done
//! ```
//! Safe to run twice, also at once, and to be cut off anywhere: every step may be done again, and how far a conversation has come is written
//! down after each part of it. A claim is a time in a row: of a worker that died it ends by itself. A round works on one request for about a
//! second, then it is another's turn; and a part is begun when the one before it is through, so that nobody else's line grows long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::WorkError;
use super::repeat::{Next, Worker};
use crate::actions::Stores;
use crate::actions::erase_messages::{Progress, end, erase_part, leave};
use crate::actions::erase_user::pass;
use crate::actions::sweep_media::sweep_media_of;
use crate::actions::tell_streams::end_streams;
use crate::domain::ids::ShardId;
use crate::metrics;
use crate::postgres::{ClaimedErasure, ErasureStep};
use crate::redis::forget_user::forget_user;

/// Time for which a request is claimed, in ms; begun anew with each step.
const HOLD_MS: u64 = 10_000;
/// Time after which a round ends.
const ROUND: Duration = Duration::from_secs(1);
/// How long a round waits for dispatch and archive.
const PASS_WITHIN: Duration = Duration::from_secs(3);

/// Erases users, one at a time in each process.
#[derive(Debug)]
pub struct EraseUsers {
    stores: Arc<Stores>,
}

impl EraseUsers {
    /// On these stores.
    #[must_use]
    pub fn new(stores: Arc<Stores>) -> Self {
        Self { stores }
    }

    /// Works on a claimed request for a while.
    async fn work(&self, claimed: &mut ClaimedErasure) -> Result<(), WorkError> {
        let (stores, user) = (&self.stores, claimed.erasure.user.clone());
        let until = Instant::now() + ROUND;
        if !claimed.listed {
            // What was accepted before is then known by Postgres, and so is where it stands.
            if !self.is_passed().await? {
                return Ok(());
            }
            stores.archive.list_erasure_steps(&user, claimed.claim).await?;
            claimed.listed = true;
        }
        while Instant::now() < until {
            let Some(step) = stores.archive.next_erasure_step(&user).await? else {
                return self.finish(claimed).await;
            };
            let id = step.conversation.clone();
            let blanked = match self.step(claimed, step).await {
                Ok(blanked) => blanked,
                Err(error) => {
                    stores.archive.put_off_erasure_step(&user, &id).await?;
                    return Err(error);
                }
            };
            claimed.erasure.messages += blanked;
            metrics::ERASED_MESSAGES.add(&[], blanked);
            if !stores.archive.hold_erasure(&user, claimed.claim, HOLD_MS, blanked).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// One step in a conversation; how many messages were blanked.
    async fn step(&self, claimed: &ClaimedErasure, step: ErasureStep) -> Result<u64, WorkError> {
        let (stores, erasure) = (&self.stores, &claimed.erasure);
        let id = step.conversation.clone();
        if !step.has_left {
            leave(stores, erasure, &id).await?;
            stores.archive.put_erasure_step(&erasure.user, &ErasureStep { has_left: true, ..step }).await?;
            return Ok(0);
        }
        let from = Progress { below: step.below, told: step.told, untold: step.untold, blanked: 0 };
        match erase_part(stores, erasure, &id, &from).await? {
            Some(Progress { below, told, untold, blanked }) => {
                stores.archive.put_erasure_step(&erasure.user, &ErasureStep { below, told, untold, ..step }).await?;
                Ok(blanked)
            }
            None => {
                end(stores, erasure, &id, step.untold).await?;
                stores.archive.end_erasure_step(&erasure.user, &id).await?;
                Ok(0)
            }
        }
    }

    /// What is the user's alone goes last: until here their leaving was on its way to their log.
    async fn finish(&self, claimed: &ClaimedErasure) -> Result<(), WorkError> {
        let (stores, user) = (&self.stores, &claimed.erasure.user);
        if !self.is_passed().await? || sweep_media_of(stores, user).await? {
            return Ok(());
        }
        end_streams(stores, user).await;
        forget_user(&stores.link, &stores.keys, user).await?;
        if stores.archive.finish_erasure(user, claimed.claim, stores.clock.now()).await? {
            metrics::ERASURES.add(&["done"], 1);
            let seconds = (stores.clock.now() - claimed.erasure.asked_at) / 1_000;
            tracing::info!(messages = claimed.erasure.messages, seconds, "a user was erased");
        }
        Ok(())
    }

    async fn is_passed(&self) -> Result<bool, WorkError> {
        let shards: Vec<ShardId> = (0..self.stores.keys.shards).map(ShardId).collect();
        Ok(pass(&self.stores, &shards, PASS_WITHIN).await?)
    }
}

impl Worker for EraseUsers {
    const NAME: &'static str = "erase_users";
    const PAUSE: Duration = Duration::from_millis(500);

    async fn run_once(&mut self) -> Result<Next, WorkError> {
        let Some(mut claimed) = self.stores.archive.claim_erasure(Uuid::now_v7(), HOLD_MS).await? else { return Ok(Next::AfterPause) };
        let worked = self.work(&mut claimed).await;
        // Whatever came of it, the next round may take it up again.
        self.stores.archive.hold_erasure(&claimed.erasure.user, claimed.claim, 0, 0).await?;
        worked.map(|()| Next::AtOnce)
    }
}
