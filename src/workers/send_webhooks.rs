//! Posts queued events to the host application: of one conversation one after the other, of several at the same time.
//!
//! Safe to run twice: a conversation is claimed for as long as a call may take and a little more, under a token that nobody else has. A
//! worker that dies leaves its claims, which end by themselves, and the events are posted again under the ids they had: at least once,
//! and an event never before the one that it follows. What fails is tried again, after ever longer pauses, until it is too old.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::WorkError;
use super::repeat::{Next, Worker};
use crate::actions::Stores;
use crate::actions::webhook_body::webhook_body;
use crate::domain::ids::ConversationId;
use crate::hooks::Webhooks;
use crate::hooks::outside_call::Answer;
use crate::hooks::webhook::event_id;
use crate::metrics;
use crate::postgres::ArchiveError;
use crate::postgres::webhooks::{NextWebhook, WaitingWebhook, WebhookEnd, WebhookLine};

/// By how much a claim outlasts a call, in ms: time to write down what came of it.
const CLAIM_SPARE_MS: u64 = 5_000;
/// Events that are posted under one claim before other conversations get their turn.
const EVENTS_PER_CLAIM_MAX: usize = 100;
/// Pause after a first failure, in ms; doubled with each further one.
const BACK_OFF_MS: u64 = 500;
/// Longest pause between two tries, in ms, unless the host asks for a longer one.
const BACK_OFF_MS_MAX: u64 = 300_000;
/// Longest pause that the host may ask for, in ms.
const RETRY_AFTER_MS_MAX: u64 = 3_600_000;
/// Between two looks at how much waits, and at what may be forgotten.
const MEASURE_EVERY: Duration = Duration::from_secs(5);

/// Posts what is queued.
#[derive(Debug)]
pub struct SendWebhooks {
    stores: Arc<Stores>,
    lines: JoinSet<()>,
    ended: Arc<Notify>,
    stop: CancellationToken,
    measured_at: Option<Instant>,
}

impl SendWebhooks {
    /// Does nothing while webhooks are off.
    #[must_use]
    pub fn new(stores: Arc<Stores>) -> Self {
        Self { stores, lines: JoinSet::new(), ended: Arc::default(), stop: CancellationToken::new(), measured_at: None }
    }

    /// Waits until the calls under way have been answered, and begins no more.
    pub async fn finish(mut self) {
        self.stop.cancel();
        while self.lines.join_next().await.is_some() {}
    }

    async fn measure(&mut self) -> Result<(), WorkError> {
        if self.measured_at.is_some_and(|at| at.elapsed() < MEASURE_EVERY) {
            return Ok(());
        }
        self.stores.archive.forget_dead_webhooks().await?;
        let backlog = self.stores.archive.webhook_backlog().await?;
        metrics::WEBHOOK_QUEUE_EVENTS.set(&[], backlog.events);
        metrics::WEBHOOK_QUEUE_AGE_SECONDS.set(&[], backlog.oldest_ms / 1_000);
        self.measured_at = Some(Instant::now());
        Ok(())
    }
}

impl Worker for SendWebhooks {
    const NAME: &'static str = "send_webhooks";
    const PAUSE: Duration = Duration::from_millis(500);

    async fn run_once(&mut self) -> Result<Next, WorkError> {
        let settings = &self.stores.settings;
        while self.lines.try_join_next().is_some() {}
        let free = settings.webhook_calls_max.saturating_sub(self.lines.len() as u64);
        if free > 0 {
            let (claim, hold_ms) = (Uuid::now_v7(), settings.webhook_timeout_ms + CLAIM_SPARE_MS);
            for line in self.stores.archive.claim_webhook_lines(claim, free, hold_ms).await? {
                let (stores, ended, stop) = (Arc::clone(&self.stores), Arc::clone(&self.ended), self.stop.clone());
                self.lines.spawn(async move {
                    if let Some(webhooks) = &stores.hooks.webhooks
                        && let Err(error) = post_line(&stores, webhooks, &line, claim, hold_ms, &stop).await
                    {
                        tracing::warn!(conversation = %line.conv, %error, "a webhook's outcome was not written down; it may be posted again");
                    }
                    ended.notify_one();
                });
            }
        }
        self.measure().await?;
        Ok(Next::AfterPause)
    }

    async fn news(&mut self) {
        let Some(webhooks) = &self.stores.hooks.webhooks else { return std::future::pending().await };
        tokio::select! {
            () = webhooks.queued() => {}
            () = self.ended.notified() => {}
        }
    }
}

/// Posts the events of a claimed conversation, until one fails, none is left, or it is others' turn.
async fn post_line(
    stores: &Stores,
    webhooks: &Webhooks,
    line: &WebhookLine,
    claim: Uuid,
    hold_ms: u64,
    stop: &CancellationToken,
) -> Result<(), ArchiveError> {
    let (archive, conversation) = (&stores.archive, &line.conv);
    let (mut ended, mut tries) = (None, line.tries);
    for _ in 0..EVENTS_PER_CLAIM_MAX {
        let NextWebhook::Event(event) = archive.next_webhook(conversation, claim, hold_ms, ended.take()).await? else { return Ok(()) };
        if stop.is_cancelled() {
            break;
        }
        let failure = post(stores, webhooks, conversation, &event).await.err();
        let too_old = u64::try_from(event.age_ms).unwrap_or(0) / 1_000 >= stores.settings.webhook_max_age;
        let end = match failure {
            None => {
                metrics::WEBHOOKS.add(&["delivered"], 1);
                WebhookEnd::Delivered
            }
            Some(failure) if too_old => {
                metrics::WEBHOOKS.add(&["dead"], 1);
                tracing::error!(
                    %conversation, event.rev, event.r#type = event.kind.as_str(), age_s = event.age_ms / 1_000, last = failure.what,
                    "a webhook is given up; the conversation goes on with the next"
                );
                WebhookEnd::Dead(failure.what)
            }
            Some(failure) => {
                metrics::WEBHOOKS.add(&["failed"], 1);
                tracing::info!(%conversation, event.rev, tries = tries + 1, last = failure.what, "a webhook failed; it is tried again");
                return archive.give_back_webhook_line(conversation, claim, true, pause_ms(tries, failure.retry_after)).await;
            }
        };
        ended = Some((event.rev, event.place, end));
        tries = 0;
    }
    if ended.is_some() && archive.next_webhook(conversation, claim, hold_ms, ended).await? == NextWebhook::Empty {
        return Ok(());
    }
    archive.give_back_webhook_line(conversation, claim, false, 0).await
}

/// Why an event does not count as delivered.
struct Failure {
    /// A few words; never what was sent or answered.
    what: String,
    retry_after: Option<Duration>,
}

async fn post(stores: &Stores, webhooks: &Webhooks, conversation: &ConversationId, event: &WaitingWebhook) -> Result<(), Failure> {
    let body = webhook_body(stores, conversation, event)
        .await
        .map_err(|refusal| Failure { what: format!("not sent: {refusal}"), retry_after: None })?;
    let begun = Instant::now();
    let answer = webhooks.post(&event_id(conversation, event.rev, event.kind), stores.clock.now(), body).await;
    metrics::WEBHOOK_SECONDS.since(&[], begun);
    match answer {
        Ok(Answer { status: 200..=299, .. }) => Ok(()),
        Ok(Answer { status, retry_after, .. }) => Err(Failure { what: format!("status {status}"), retry_after }),
        Err(fault) => Err(Failure { what: fault.to_string(), retry_after: None }),
    }
}

/// Half to all of what doubles with every failure, so that what failed together is not tried again together; longer if the host asks so.
pub(super) fn pause_ms(tries: u32, retry_after: Option<Duration>) -> u64 {
    let longest = BACK_OFF_MS.saturating_mul(1 << tries.min(20)).min(BACK_OFF_MS_MAX);
    let asked = retry_after.map_or(0, |wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).min(RETRY_AFTER_MS_MAX));
    rand::random_range(longest / 2..=longest).max(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_heed_the_host() {
        for (tries, shortest, longest) in [(0, 250, 500), (1, 500, 1_000), (5, 8_000, 16_000), (40, 150_000, 300_000)] {
            for _ in 0..20 {
                assert!((shortest..=longest).contains(&pause_ms(tries, None)), "{tries}");
            }
        }
        assert_eq!(pause_ms(0, Some(Duration::from_secs(7))), 7_000);
        assert!(pause_ms(3, Some(Duration::from_secs(1))) >= 2_000);
        assert_eq!(pause_ms(0, Some(Duration::from_secs(86_400))), RETRY_AFTER_MS_MAX);
    }
}
