//! The same log as JSON, for clients that ask instead of listening.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use super::connection::Connection;
use super::frames;
use super::open_streams::{OpenStreams, Start};
use super::resume::{self, Resume};
use crate::actions::read_events::{Body, read_events};
use crate::contract::event::event_json;
use crate::contract::stream::{PollAnswer, ResyncReason};
use crate::domain::ids::UserId;
use crate::domain::position::Position;
use crate::domain::refusal::Refusal;
use crate::redis::event_log::LogState;
use crate::redis::read_log::read_log;

/// Bytes of events after which an answer takes no further one; the rest comes with the next.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// A poll.
#[derive(Clone, Debug)]
pub struct PollRequest {
    /// Whose.
    pub user: UserId,
    /// After which place.
    pub start: Start,
    /// The device.
    pub device: Option<String>,
    /// Events at most.
    pub limit: u64,
    /// How long to wait for the first.
    pub wait: Duration,
}

impl OpenStreams {
    /// Reads events, and waits for the first if there is none yet. Waiting takes no connection to Redis: wake-ups and the comparison with
    /// the log reach polls like streams.
    ///
    /// # Errors
    /// [`Refusal::Unavailable`] when a store that is needed is away.
    pub async fn poll(self: &Arc<Self>, request: PollRequest) -> Result<PollAnswer, Refusal> {
        let ends = Instant::now() + request.wait;
        let asked = match request.start {
            Start::At(position) => Some(position),
            Start::Device => self.stored(&request.user, request.device.as_deref()).await?,
            Start::Head => None,
        };
        let log = if request.wait.is_zero() { self.bounds(&request.user).await? } else { self.register(&request.user).await? };
        let mut place = asked.unwrap_or_else(|| log.head());
        loop {
            // In the map before the log is read, so that nothing falls in between.
            let watch = (Instant::now() < ends).then(|| self.watch(&request.user));
            let read = read_log(&self.stores.link, &self.stores.keys, &request.user, Some(place.entry), request.limit).await?;
            if let Resume::Resync(reason) = resume::decide(&place, &read.log) {
                return Ok(self.moved(reason, &read.log));
            }
            let through = read.entries.last().map_or(place.entry, |entry| entry.id);
            let read_events = read_events(&self.stores, &request.user, read.entries).await?;
            if read_events.iter().any(|event| matches!(event.body, Body::Resync)) {
                return Ok(self.moved(ResyncReason::Lost, &read.log));
            }
            let (mut events, mut bytes, mut whole) = (Vec::new(), 0, true);
            for event in &read_events {
                let id = Position { epoch: place.epoch.clone(), entry: event.id };
                if let Some(tail) = frames::tail_of(event) {
                    if bytes > 0 && bytes + tail.len() > ANSWER_BYTES_MAX {
                        whole = false;
                        break;
                    }
                    bytes += tail.len();
                    // What was just written as JSON reads as JSON.
                    events.extend(RawValue::from_string(event_json(&id.to_string(), &tail)).ok());
                }
                place.entry = event.id;
            }
            if whole {
                place.entry = place.entry.max(through);
            }
            let at_end = place.entry >= read.log.last;
            match watch {
                Some(watch) if events.is_empty() && at_end && !self.is_draining() => watch.changed(&place, &read.log, ends).await,
                _ if events.is_empty() && !at_end => {}
                _ => return Ok(PollAnswer { events, next: place.to_string(), resync: None }),
            }
        }
    }

    fn moved(&self, reason: ResyncReason, log: &LogState) -> PollAnswer {
        PollAnswer { events: Vec::new(), next: log.head().to_string(), resync: Some(self.resync(reason, log)) }
    }

    async fn bounds(&self, user: &UserId) -> Result<LogState, Refusal> {
        Ok(read_log(&self.stores.link, &self.stores.keys, user, None, 1).await?.log)
    }

    fn watch(self: &Arc<Self>, user: &UserId) -> Watch {
        let connection = Arc::new(Connection::new(user.clone(), true, None, None, None));
        // Only streams are counted.
        self.insert(&connection);
        Watch { connection, hub: self.clone() }
    }
}

/// A poll that waits; in the map like a stream.
struct Watch {
    connection: Arc<Connection>,
    hub: Arc<OpenStreams>,
}

impl Watch {
    /// Waits until the log holds something after `place`, which was its end when it was read; or until `ends`.
    async fn changed(&self, place: &Position, read: &LogState, ends: Instant) {
        self.connection.begin(place, read.last, []);
        let changed = std::future::poll_fn(|context| self.connection.poll_changed(context));
        // Either way the log is read next.
        let _ = tokio::time::timeout_at(ends.into(), changed).await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.hub.close(&self.connection);
    }
}
