//! What belongs to the stream beside its events: tickets, cursors, polls, and the words a stream says about itself.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::event::Event;
use super::problem::Code;
use super::timestamp::Timestamp;

/// A ticket for `GET /v1/events?ticket=…`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ticket {
    /// Opaque; good for the caller's stream alone.
    pub ticket: String,
    /// Seconds for which it is good, at most 300.
    pub expires_in: u64,
}

/// Moves a device's stored cursor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AckEvents {
    /// Which device.
    pub device: String,
    /// The id of the last event it has handled.
    pub id: String,
}

/// Events as JSON.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PollAnswer {
    /// In order.
    #[schema(value_type = Vec<Event>)]
    pub events: Vec<Box<RawValue>>,
    /// Ask again with this `after`.
    pub next: String,
    /// Set when the position could not be resumed from; `events` is then empty.
    pub resync: Option<Resync>,
}

/// Why a position cannot be resumed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResyncReason {
    /// Entries after it are gone.
    Trimmed,
    /// It is ahead of the log.
    Future,
    /// It belongs to another log.
    Lost,
}

impl ResyncReason {
    /// The word, also used as a metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trimmed => "trimmed",
            Self::Future => "future",
            Self::Lost => "lost",
        }
    }
}

/// Data of the event `resync`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Resync {
    /// Why.
    pub reason: ResyncReason,
    /// The position from which the stream goes on.
    pub head: String,
    /// Wait a random time up to this many milliseconds before reading everything again.
    pub spread_ms: u64,
}

/// Data of the event `hello`, which opens a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Hello {
    /// The device named in the query or the token.
    pub device: Option<String>,
    /// The position that was asked for and could be resumed from.
    pub resumed_from: Option<String>,
    /// The end of the log at that moment.
    pub head: String,
    /// The gateway's clock.
    pub server_time: Timestamp,
}

/// Data of the event `unavailable`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamUnavailable {
    /// `unavailable`, `overloaded` or `rate_limited`.
    pub code: Code,
}
