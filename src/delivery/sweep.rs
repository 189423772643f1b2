//! What goes on for all streams together: registration, the comparison of quiet streams with their logs, heartbeats and endings.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::frames;
use super::open_streams::{OpenStreams, PRESENCE_MS};
use crate::domain::ids::UserId;
use crate::domain::position::Position;
use crate::metrics;
use crate::redis::register_streams::{Presence, register_streams};

/// Between two comparisons at most; with short heartbeats half of one.
const SWEEP_EVERY_MAX: Duration = Duration::from_secs(5);
/// Between two comparisons at least.
const SWEEP_EVERY_MIN: Duration = Duration::from_millis(500);
/// Between registrations of those who are here; a third of the time that one lasts.
const REGISTER_EVERY: Duration = Duration::from_secs(180);
/// What is found missing may be on its way: it is looked at again after this.
const GRACE: Duration = Duration::from_millis(200);
/// Users of one comparison.
const USERS_AT_ONCE: usize = 2_000;

/// Heartbeats and endings.
pub(super) async fn look_after(hub: Arc<OpenStreams>) {
    let mut ticks = tokio::time::interval(hub.pace.tick);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = hub.stop().cancelled() => break,
        }
        hub.tick();
    }
    // Those that were being opened when the stop came are ended by the next rounds.
    while hub.count() > 0 {
        hub.end_all();
        hub.tick();
        tokio::select! {
            _ = ticks.tick() => {}
            () = hub.emptied() => {}
        }
    }
    hub.end_all();
}

/// Registration and comparison.
pub(super) async fn run(hub: Arc<OpenStreams>) {
    let every = (hub.pace.heartbeat / 2).clamp(SWEEP_EVERY_MIN, SWEEP_EVERY_MAX);
    let mut registered = Instant::now();
    loop {
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = hub.stop().cancelled() => break,
        }
        forget_gone(&hub).await;
        let register = registered.elapsed() >= REGISTER_EVERY;
        if sweep(&hub, register).await && register {
            registered = Instant::now();
        }
    }
    hub.emptied().await;
    forget_gone(&hub).await;
}

/// Compares everybody's place with the log; whether Redis answered.
async fn sweep(hub: &OpenStreams, register: bool) -> bool {
    let presence = if register { Presence::Until(hub.stores.clock.now() + PRESENCE_MS) } else { Presence::Look };
    let mut answered = true;
    let users = hub.users();
    for some in users.chunks(USERS_AT_ONCE) {
        match register_streams(&hub.stores.link, &hub.stores.keys, &hub.gateway, some, presence).await {
            Ok(places) => {
                let heads: Vec<(UserId, Position)> = places.into_iter().map(|(user, log)| (user, log.head())).collect();
                let missing = missing(hub, heads);
                if !missing.is_empty() {
                    tokio::time::sleep(GRACE).await;
                    for (connection, head) in missing {
                        if connection.misses(&head) {
                            metrics::WAKE_UPS_LOST.add(&[], 1);
                            connection.fall_behind();
                        }
                    }
                }
            }
            Err(error) => {
                answered = false;
                tracing::warn!(%error, "streams cannot be compared with their logs");
                break;
            }
        }
    }
    let was_away = hub.redis_away.swap(!answered, Ordering::Relaxed);
    if !answered && !was_away {
        hub.each(|connection| connection.remark(frames::REDIS_AWAY));
    }
    answered
}

fn missing(hub: &OpenStreams, heads: Vec<(UserId, Position)>) -> Vec<(Arc<super::connection::Connection>, Position)> {
    let of = |(user, head): (UserId, Position)| {
        hub.of(&user).into_iter().filter(|c| c.misses(&head)).map(|c| (c, head.clone())).collect::<Vec<_>>()
    };
    heads.into_iter().flat_map(of).collect()
}

/// Takes back the registration of those who have left. One who comes back in the meantime is registered again: the map is looked at after
/// Redis was told, and whoever opens a stream is in the map before.
async fn forget_gone(hub: &OpenStreams) {
    let gone: HashSet<UserId> = std::mem::take(&mut *hub.gone.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().collect();
    let gone: Vec<UserId> = gone.into_iter().filter(|user| hub.of(user).is_empty()).collect();
    if gone.is_empty() {
        return;
    }
    if let Err(error) = register_streams(&hub.stores.link, &hub.stores.keys, &hub.gateway, &gone, Presence::Gone).await {
        // It ends by itself when its time is over.
        tracing::debug!(%error, "registrations cannot be taken back");
    }
    let back: Vec<UserId> = gone.into_iter().filter(|user| !hub.of(user).is_empty()).collect();
    if !back.is_empty() {
        let until = Presence::Until(hub.stores.clock.now() + PRESENCE_MS);
        if let Err(error) = register_streams(&hub.stores.link, &hub.stores.keys, &hub.gateway, &back, until).await {
            tracing::warn!(%error, "streams cannot be registered; they follow by comparison with their logs");
        }
    }
}
