//! What a member sets for oneself.

use axum::extract::State;
use axum::response::Response;

use super::AppState;
use super::members_only::told_to_members;
use super::paging::NoQuery;
use super::path::ConversationPath;
use super::respond::{Problem, ok};
use super::strict_json::DeferredJson;
use crate::actions::name_conversations::name_conversation;
use crate::actions::read_conversation::view;
use crate::actions::set_preferences::set_preferences;
use crate::contract::conversation::{Conversation, PutPreferences};
use crate::identity::Caller;

/// Sets the caller's own preferences; what is left out stays. The caller's devices learn of it by `preferences.changed`.
#[utoipa::path(put, path = "/v1/conversations/{id}/preferences", tag = "conversations", params(("id" = String, Path)), request_body = PutPreferences,
    responses((status = 200, body = Conversation, description = "The conversation as the caller sees it now"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn put_preferences(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    ConversationPath(id): ConversationPath,
    DeferredJson(body): DeferredJson<PutPreferences>,
) -> Result<Response, Problem> {
    let body = told_to_members(&state, &caller.user, &id, body).await?;
    set_preferences(&state.stores, &caller.user, &id, &body.into()).await?;
    let seen = view(&state.stores, &caller.user, &id).await?;
    Ok(ok(&Conversation::from(&name_conversation(&state.stores, seen).await)))
}
