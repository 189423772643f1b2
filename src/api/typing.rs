//! Signs of typing.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::AppState;
use super::members_only::told_to_members;
use super::paging::NoQuery;
use super::path::ConversationPath;
use super::respond::Problem;
use super::strict_json::DeferredJson;
use crate::actions::show_typing::show_typing;
use crate::contract::typing::ShowTyping;
use crate::identity::Caller;

/// Shows the other members' open streams that the caller types, or has stopped; at most one sign in 3 s passes.
#[utoipa::path(post, path = "/v1/conversations/{id}/typing", tag = "messages", params(("id" = String, Path)), request_body = ShowTyping,
    responses((status = 204, description = "Taken"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn post_typing(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    ConversationPath(id): ConversationPath,
    DeferredJson(body): DeferredJson<ShowTyping>,
) -> Result<Response, Problem> {
    let body = told_to_members(&state, &caller.user, &id, body).await?;
    show_typing(&state.stores, &caller.user, &id, body.typing).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
