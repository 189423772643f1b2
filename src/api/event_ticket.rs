//! `POST /v1/events/ticket`: a short-lived secret that opens the caller's stream from an address.

use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CACHE_CONTROL;
use axum::response::Response;

use super::AppState;
use super::respond::{Problem, ok};
use crate::actions::tickets;
use crate::contract::problem::Problem as ProblemShape;
use crate::contract::stream::Ticket;
use crate::identity::Caller;

/// Get a ticket for one's stream
#[utoipa::path(post, path = "/v1/events/ticket", tag = "events",
    responses((status = 200, body = Ticket, description = "Done"), (status = "default", body = ProblemShape, content_type = "application/problem+json")))]
pub async fn make_ticket(State(state): State<AppState>, caller: Caller) -> Result<Response, Problem> {
    let issued = tickets::issue(&state.stores, &caller.user, caller.device.as_deref(), caller.over_at()).await?;
    let mut answer = ok(&Ticket { ticket: issued.ticket, expires_in: issued.expires_in_s });
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}
