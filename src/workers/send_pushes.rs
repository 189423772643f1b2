//! Wakes browsers for what their users have not read: of each conversation one push at a time, never sooner than a moment after it was said.
//!
//! ```text
//! archive ─▶ line of a conversation ─(a moment)▶ browsers of its members ─▶ is it still so? ─▶ push service
//! ```
//! Safe to run twice: a line is worked on by maxima, a browser is claimed for as long as a call may take and a little more, under a token that
//! nobody else has. A worker that dies leaves its claims, which end by themselves, and the browsers are woken again: at least once. A push
//! service that is slow or away has a bounded part of the calls, so others do not wait for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::WorkError;
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
/// Pushes of one host that are claimed at once.
const CLAIMED_OF_HOST_MAX: u64 = 8;
/// Silences of a host in a row after which only few calls at a time go there.
const SILENCES_MAX: u32 = 3;
/// Calls under way to a host that is silent.
const CALLS_TO_SILENT_MAX: u64 = 2;
/// For how long it is remembered that a host was silent.
const SILENCE_KEPT: Duration = Duration::from_secs(600);
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
    measured_at: Option<Instant>,
}

impl SendPushes {
    /// Does nothing while push is off.
    #[must_use]
    pub fn new(stores: Arc<Stores>) -> Self {
        let hosts = Arc::new(Hosts { calls_max: (stores.settings.push_calls_max / 2).max(1), known: Mutex::default() });
        Self { stores, calls: JoinSet::new(), hosts, ended: Arc::default(), stop: CancellationToken::new(), measured_at: None }
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
        for line in &lines {
            archive.expand_push_line(line, since, settings.push_interval_ms).await?;
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
        let (claim, hold_ms) = (Uuid::now_v7(), settings.push_timeout_ms + CLAIM_SPARE_MS);
        let claimed = self.stores.archive.claim_pushes(claim, free, &self.hosts.busy(), CLAIMED_OF_HOST_MAX, hold_ms).await?;
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
    call.ended(!matches!(answer, Err(PushFault::Timeout | PushFault::Unreachable)));
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

/// How many calls are under way to each host, and which hosts were silent lately.
#[derive(Debug)]
struct Hosts {
    calls_max: u64,
    known: Mutex<HashMap<String, HostState>>,
}

#[derive(Debug, Default)]
struct HostState {
    under_way: u64,
    silences: u32,
    silent_at: Option<Instant>,
}

/// A call under way; it is not any more when this is dropped.
struct Call {
    hosts: Arc<Hosts>,
    host: String,
}

impl Hosts {
    fn begin(self: &Arc<Self>, host: &str) -> Call {
        self.with(host, |state| state.under_way += 1);
        Call { hosts: Arc::clone(self), host: host.to_owned() }
    }

    fn with(&self, host: &str, change: impl FnOnce(&mut HostState)) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        change(known.entry(host.to_owned()).or_default());
    }

    /// Hosts to which no more calls go for now.
    fn busy(&self) -> Vec<String> {
        let most =
            |state: &HostState| if state.silences >= SILENCES_MAX { CALLS_TO_SILENT_MAX.min(self.calls_max) } else { self.calls_max };
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().filter(|(_, state)| state.under_way >= most(state)).map(|(host, _)| host.clone()).collect()
    }

    /// Forgets hosts with which there is nothing.
    fn forget(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, state| state.under_way > 0 || state.silent_at.is_some_and(|at| at.elapsed() < SILENCE_KEPT));
    }
}

impl Call {
    fn ended(&self, answered: bool) {
        self.hosts.with(&self.host, |state| {
            (state.silences, state.silent_at) = if answered { (0, None) } else { (state.silences.saturating_add(1), Some(Instant::now())) };
        });
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.hosts.with(&self.host, |state| state.under_way = state.under_way.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_host_keeps_few_calls_and_no_host_all() {
        let hosts = Arc::new(Hosts { calls_max: 4, known: Mutex::default() });
        let mut calls: Vec<Call> = (0..4).map(|_| hosts.begin("a")).collect();
        assert_eq!(hosts.busy(), ["a"]);
        calls.pop();
        assert!(hosts.busy().is_empty());
        (0..3).for_each(|_| calls[0].ended(false));
        assert_eq!(hosts.busy(), ["a"], "three are too many for one that is silent");
        calls.truncate(1);
        assert!(hosts.busy().is_empty(), "one may try");
        calls[0].ended(true);
        calls.extend((0..2).map(|_| hosts.begin("a")));
        assert!(hosts.busy().is_empty());
        calls.clear();
        hosts.forget();
        assert!(hosts.known.lock().unwrap().is_empty());
    }
}
