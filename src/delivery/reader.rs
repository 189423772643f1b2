//! Reads one page of a log for a connection that is behind. It ends with the page; the connection asks again when its reader has taken it.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng as _;

use super::connection::{Connection, Page};
use super::frames;
use super::open_streams::OpenStreams;
use super::resume::{self, Resume};
use crate::actions::read_events::{Body, read_events};
use crate::contract::stream::ResyncReason;
use crate::domain::position::Position;
use crate::metrics;
use crate::redis::read_log::read_log;

/// Milliseconds before the first repetition when a store is away; doubled up to the last.
const RETRY_MS_FIRST: u64 = 100;
/// Milliseconds between repetitions at most.
const RETRY_MS_MAX: u64 = 2_000;

/// Reads, and repeats it until it can be read or the stream has ended: what is missing is never passed over because a store is away.
pub(super) async fn read_once(hub: Arc<OpenStreams>, connection: Arc<Connection>) {
    let mut wait_ms = RETRY_MS_FIRST;
    while let Some((place, entries)) = connection.reading_from() {
        if Arc::strong_count(&connection) == 1 {
            return;
        }
        let permit = hub.reads.acquire().await;
        let read = page(&hub, &connection, place, entries).await;
        drop(permit);
        match read {
            Some(page) => {
                let count = connection.finish(page);
                metrics::EVENTS_SENT.add(&["read"], count);
                return;
            }
            None => {
                connection.set_waiting(true);
                let jittered = rand::rng().random_range(wait_ms / 2..=wait_ms);
                tokio::time::sleep(Duration::from_millis(jittered)).await;
                wait_ms = (wait_ms * 2).min(RETRY_MS_MAX);
            }
        }
    }
}

/// One page as frames; `None` when a store that is needed is away.
async fn page(hub: &OpenStreams, connection: &Connection, place: Position, entries: u64) -> Option<Page> {
    metrics::CATCH_UP_READS.add(&[], 1);
    let stores = &hub.stores;
    let read = match read_log(&stores.link, &stores.keys, &connection.user, Some(place.entry), entries).await {
        Ok(read) => read,
        Err(error) => {
            tracing::debug!(%error, "a log cannot be read; the stream waits");
            return None;
        }
    };
    let moved = |reason| Page::Moved { head: read.log.head(), frame: frames::resync(&hub.resync(reason, &read.log)) };
    if let Resume::Resync(reason) = resume::decide(&place, &read.log) {
        // A log that was lost has lost who wants wake-ups with it.
        hub.register(&connection.user).await.ok()?;
        return Some(moved(reason));
    }
    let last = read.log.last;
    let through = read.entries.last().map_or(place.entry, |entry| entry.id);
    let events = match read_events(stores, &connection.user, read.entries).await {
        Ok(events) => events,
        Err(error) => {
            tracing::debug!(%error, "events cannot be read; the stream waits");
            return None;
        }
    };
    if events.iter().any(|event| matches!(event.body, Body::Resync)) {
        hub.register(&connection.user).await.ok()?;
        return Some(moved(ResyncReason::Lost));
    }
    events.iter().for_each(|event| connection.heed(&event.pointer));
    let frame = |event: &crate::actions::read_events::ReadEvent| {
        let id = Position { epoch: place.epoch.clone(), entry: event.id };
        frames::tail_of(event).map(|tail| frames::event(event.pointer.kind, &id, &tail))
    };
    Some(Page::Events { events: events.iter().map(|event| (event.id, frame(event))).collect(), through, last })
}
