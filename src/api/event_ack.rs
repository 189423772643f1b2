//! `POST /v1/events/ack`: how far a device has got, kept for its next stream.

use axum::extract::State;
use axum::http::StatusCode;

use super::AppState;
use super::respond::{Code, Problem};
use super::strict_json::StrictJson;
use crate::actions::ack_events::ack_events as ack;
use crate::contract::problem::Problem as ProblemShape;
use crate::contract::stream::AckEvents;
use crate::domain::position::Position;
use crate::domain::refusal::FieldError;
use crate::identity::Caller;
use crate::identity::token::is_device;

/// Keep how far a device has got
#[utoipa::path(post, path = "/v1/events/ack", tag = "events", request_body = AckEvents,
    responses((status = 204, description = "Kept; forward only"), (status = "default", body = ProblemShape, content_type = "application/problem+json")))]
pub async fn ack_events(
    State(state): State<AppState>,
    caller: Caller,
    StrictJson(body): StrictJson<AckEvents>,
) -> Result<StatusCode, Problem> {
    if !is_device(&body.device) {
        return Err(FieldError::new("device", "must be 1 to 128 bytes without control characters").into());
    }
    let place =
        Position::parse(&body.id).ok_or_else(|| Problem::new(Code::InvalidCursor, "This is no position that was given out here."))?;
    ack(&state.stores, &caller.user, &body.device, &place).await?;
    Ok(StatusCode::NO_CONTENT)
}
