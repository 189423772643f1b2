//! `GET /v1/events/poll`: the same log as JSON.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;

use super::AppState;
use super::event_stream::{device, start_at};
use super::paging::Query;
use super::respond::{Problem, ok};
use crate::contract::problem::Problem as ProblemShape;
use crate::contract::stream::PollAnswer;
use crate::delivery::PollRequest;
use crate::identity::Caller;

/// Longest wait in seconds.
const WAIT_S_MAX: u64 = 30;

/// Read one's events as JSON
#[utoipa::path(get, path = "/v1/events/poll", tag = "events",
    params(
        ("after" = Option<String>, Query, description = "Events after this position; without it from the device's stored cursor, or from the end of the log"),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 200, description = "Events at most; 50 when absent"),
        ("wait" = Option<u64>, Query, minimum = 0, maximum = 30, description = "Seconds to wait for the first event; 0 when absent"),
        ("device" = Option<String>, Query, description = "Whose stored cursor to start from when no position is named"),
    ),
    responses((status = 200, body = PollAnswer, description = "Done"), (status = "default", body = ProblemShape, content_type = "application/problem+json")))]
pub async fn poll_events(State(state): State<AppState>, caller: Caller, mut query: Query) -> Result<Response, Problem> {
    let limit = query.limit()?;
    let wait = query.number("wait", 0, WAIT_S_MAX)?.unwrap_or(0);
    let device = device(&mut query, caller.device)?;
    let after = query.text("after");
    query.finish()?;
    let start = start_at(after.as_deref(), device.as_deref())?;
    let request = PollRequest { user: caller.user, start, device, limit, wait: Duration::from_secs(wait) };
    Ok(ok(&state.hub.poll(request).await?))
}
