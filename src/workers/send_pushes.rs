//! Wakes browsers for what their users have not read: of each conversation one push at a time, never sooner than a moment after it was said.
//!
//! ```text
//! archive ─▶ line of a conversation ─(a moment)▶ browsers of its members ─▶ is it still so? ─▶ push service
//! ```
//! Safe to run twice: a line is worked on by maxima, a browser is claimed for as long as a call may take and a little more, under a token that
//! nobody else has. A worker that dies leaves its claims, which end by themselves, and the browsers are woken again: at least once. A push
//! service that is slow or away has a bounded part of the calls, and so have all together that have proven nothing, so others do not wait for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::WorkError;
use super::push_hosts::{Call, Hosts, KEPT, Met};
use super::repeat::{Next, Worker};
use super::send_webhooks::pause_ms;
use crate::actions::Stores;
use crate::actions::push_words::push_words;
use crate::domain::ids::Kind;
use crate::metrics;
use crate::postgres::{ArchiveError, ClaimedPush};
use crate::push::deliver::Terms;
use crate::push::payload::PushWords;
use crate::push::{BrowserKeys, Delivered, Endpoint, Push, PushFault, Urgency};

/// Conversations whose members' browsers are looked for in one round.
const LINES_MAX: u64 = 20;
/// For how long a conversation is claimed, in ms.
const LINE_HOLD_MS: u64 = 15_000;
/// By how much a claim outlasts a call, in ms: time to look things up before, and to write down what came of it.
const CLAIM_SPARE_MS: u64 = 10_000;
/// Pause after a failure of ours, in ms.
const OURS_PAUSE_MS: u64 = 1_000;
/// By how often the pause between pushes of a busy group doubles at most.
const DOUBLINGS_MAX: u32 = 5;
/// Push services that are looked at in one round.
const HOSTS_MAX: u64 = 1_000;
/// Between two looks at how much waits, and at what may be forgotten.
const MEASURE_EVERY: Duration = Duration::from_secs(5);

/// Sends what is queued.
#[derive(Debug)]
pub struct SendPushes {
    stores: Arc<Stores>,
    calls: JoinSet<()>,
    hosts: Arc<Hosts>,
    ended: Arc<Notify>,
    stop: CancellationToken,
    /// The host up to which hosts were looked at, in the order of their names; the next look begins behind it.
    looked_to: String,
    recalled: bool,
    measured_at: Option<Instant>,
}

impl SendPushes {
    /// Does nothing while push is off.
    #[must_use]
    pub fn new(stores: Arc<Stores>) -> Self {
        let hosts = Arc::new(Hosts::new(stores.settings.push_calls_max));
        let (ended, stop) = (Arc::default(), CancellationToken::new());
        Self { stores, calls: JoinSet::new(), hosts, ended, stop, looked_to: String::new(), recalled: false, measured_at: None }
    }

    /// Waits until the calls under way have been answered, and begins no more.
    pub async fn finish(mut self) {
        self.stop.cancel();
        while self.calls.join_next().await.is_some() {}
    }

    /// Looks for the browsers of those who belong to where something was said; true when there is more.
    async fn expand(&self) -> Result<bool, WorkError> {
        let (archive, settings) = (&self.stores.archive, &self.stores.settings);
        let lines = archive.claim_push_lines(LINES_MAX, settings.push_delay_ms, LINE_HOLD_MS).await?;
        let since = self.stores.clock.now() - i64::try_from(settings.push_ttl * 1_000).unwrap_or(i64::MAX);
        let mut failed = false;
        for line in &lines {
            match archive.expand_push_line(line, since, settings.push_interval_ms).await {
                Ok(_) => {}
                // One may be broken, or too long to be done in time; two, and it is the archive.
                Err(error) if failed => return Err(error.into()),
                Err(error) => {
                    // It is tried again when its claim ends; the others do not wait for it.
                    tracing::warn!(conversation = %line.conv, %error, "the browsers of a conversation's members cannot be looked for");
                    failed = !matches!(error, ArchiveError::Refused(_));
                }
            }
        }
        Ok(lines.len() as u64 == LINES_MAX)
    }

    /// Claims browsers and wakes them; true when there may be more for which there is room.
    async fn send(&mut self) -> Result<bool, WorkError> {
        let settings = &self.stores.settings;
        while self.calls.try_join_next().is_some() {}
        let free = settings.push_calls_max.saturating_sub(self.calls.len() as u64);
        if free == 0 {
            return Ok(false);
        }
        if !self.recalled {
            let within_ms = u64::try_from(KEPT.as_millis()).unwrap_or(u64::MAX);
            self.hosts.recall(self.stores.archive.willing_push_hosts(within_ms, HOSTS_MAX).await?);
            self.recalled = true;
        }
        let waiting = self.stores.archive.waiting_push_hosts(&self.looked_to, HOSTS_MAX).await?;
        let end = waiting.get(HOSTS_MAX as usize - 1).map_or("", |last| &last.host);
        let rooms = self.hosts.rooms(&waiting, end.is_empty() && self.looked_to.is_empty());
        end.clone_into(&mut self.looked_to);
        if rooms.is_empty() {
            return Ok(false);
        }
        let (claim, hold_ms) = (Uuid::now_v7(), settings.push_timeout_ms + CLAIM_SPARE_MS);
        let claimed = self.stores.archive.claim_pushes(claim, free, &rooms, hold_ms).await?;
        let more = !claimed.is_empty();
        for push in claimed {
            let (stores, ended, stop) = (Arc::clone(&self.stores), Arc::clone(&self.ended), self.stop.clone());
            let call = self.hosts.begin(&push.host);
            self.calls.spawn(async move {
                if let (Some(door), false) = (&stores.push, stop.is_cancelled())
                    && let Err(error) = send_one(&stores, door, &push, claim, &call).await
                {
                    tracing::warn!(conversation = %push.conv, %error, "a push's outcome was not written down; it may be sent again");
                }
                drop(call);
                ended.notify_one();
            });
        }
        Ok(more)
    }

    async fn measure(&mut self) -> Result<(), WorkError> {
        if self.measured_at.is_some_and(|at| at.elapsed() < MEASURE_EVERY) {
            return Ok(());
        }
        self.stores.archive.tidy_pushes().await?;
        let backlog = self.stores.archive.push_backlog(self.stores.settings.push_delay_ms).await?;
        metrics::PUSH_QUEUE.set(&[], backlog.pushes);
        metrics::PUSH_QUEUE_LATE_SECONDS.set(&[], backlog.late_ms / 1_000);
        self.hosts.forget();
        self.measured_at = Some(Instant::now());
        Ok(())
    }
}

impl Worker for SendPushes {
    const NAME: &'static str = "send_pushes";
    const PAUSE: Duration = Duration::from_millis(250);

    async fn run_once(&mut self) -> Result<Next, WorkError> {
        let more = self.expand().await? | self.send().await?;
        self.measure().await?;
        Ok(if more { Next::AtOnce } else { Next::AfterPause })
    }

    async fn news(&mut self) {
        self.ended.notified().await;
    }
}

/// Sends one push, if there is still something to say, and writes down what came of it.
async fn send_one(stores: &Stores, door: &Push, push: &ClaimedPush, claim: Uuid, call: &Call) -> Result<(), ArchiveError> {
    let (archive, settings) = (&stores.archive, &stores.settings);
    let outcome = |word: &'static str| metrics::PUSHES.add(&[word], 1);
    if push.owner != push.user {
        outcome("silent");
        return archive.finish_push(push, claim, push.seq, false, 0).await;
    }
    let age_s = u64::try_from(push.age_ms).unwrap_or(0) / 1_000;
    if age_s >= settings.push_ttl {
        outcome("dead");
        tracing::info!(conversation = %push.conv, host = push.host, push.tries, age_s, "a push is given up");
        return archive.finish_push(push, claim, push.seq, false, 0).await;
    }
    let words = match push_words(stores, push).await {
        Ok(Some(words)) => words,
        Ok(None) => {
            outcome("silent");
            return archive.finish_push(push, claim, push.seq, false, 0).await;
        }
        Err(refusal) => {
            tracing::debug!(conversation = %push.conv, %refusal, "what a push would say cannot be looked up");
            return archive.put_off_push(push, claim, false, OURS_PAUSE_MS).await;
        }
    };
    let Ok(endpoint) = Endpoint::parse(&push.endpoint, door.allow_loopback) else {
        outcome("ended");
        return archive.end_push_subscription(push.subscription, push.registered_at).await;
    };
    // Whoever has signed in there meanwhile must not see what was meant for another one.
    if !archive.push_subscription_stands(push.subscription, &push.user, push.registered_at).await? {
        return archive.put_off_push(push, claim, false, 0).await;
    }
    let (seq, terms) = (words.seq.max(push.seq), terms(push, &words, settings.push_ttl - age_s));
    let keys = BrowserKeys { p256dh: push.p256dh.clone(), auth: push.auth.clone() };
    let begun = Instant::now();
    let answer = door.door.deliver(&endpoint, &keys, &terms, &words.into_text(), stores.clock.now()).await;
    metrics::PUSH_SECONDS.since(&[], begun);
    let met = match &answer {
        Ok(Delivered { status: 200..=299, .. }) => Met::Took,
        Ok(Delivered { status: 500..=599, .. }) | Err(PushFault::Timeout | PushFault::Unreachable) => Met::Failed,
        Ok(_) | Err(PushFault::Unmade) => Met::Answered,
    };
    call.ended(met, begun.elapsed());
    let failed = |what: String, retry_after: Option<Duration>| {
        outcome("failed");
        tracing::info!(conversation = %push.conv, host = push.host, tries = push.tries + 1, last = what, "a push failed; it is tried again");
        archive.put_off_push(push, claim, true, pause_ms(push.tries, retry_after))
    };
    match answer {
        Ok(Delivered { status: 200..=299, .. }) => {
            outcome("delivered");
            archive.finish_push(push, claim, seq, true, wait_ms(push, settings.push_interval_ms)).await
        }
        Ok(Delivered { status: 404 | 410, .. }) => {
            outcome("ended");
            archive.end_push_subscription(push.subscription, push.registered_at).await
        }
        Ok(Delivered { status: status @ (408 | 425 | 429 | 500..=599), retry_after }) => {
            failed(format!("status {status}"), retry_after).await
        }
        Ok(Delivered { status, .. }) => {
            outcome("refused");
            tracing::warn!(conversation = %push.conv, host = push.host, status, "a push service refuses a push; it is not tried again");
            archive.finish_push(push, claim, seq, false, 0).await
        }
        Err(fault) => failed(fault.to_string(), None).await,
    }
}

/// What goes with a push. A topic tells the push service nothing, and nothing in common with anybody else's.
fn terms(push: &ClaimedPush, words: &PushWords, ttl_s: u64) -> Terms {
    let mut hash = Sha256::new();
    hash.update(&push.auth);
    hash.update(push.conv.as_str().as_bytes());
    let urgency = if words.mentions > 0 || push.conv.kind() == Kind::Single { Urgency::High } else { Urgency::Normal };
    Terms { ttl_s, urgency, topic: URL_SAFE_NO_PAD.encode(&hash.finalize()[..24]) }
}

/// For how long a browser is left alone after a push: the longer, the more pushes of a group went unheeded.
fn wait_ms(push: &ClaimedPush, interval_ms: u64) -> u64 {
    let doublings = if push.conv.kind() == Kind::Group { push.sent.min(DOUBLINGS_MAX) } else { 0 };
    interval_ms << doublings
}
