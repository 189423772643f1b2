//! Users as others see them: the host application's service says how, everybody may look.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::AppState;
use super::paging::NoQuery;
use super::path::UserPath;
use super::respond::{Problem, json, ok};
use super::strict_json::StrictJson;
use crate::actions::erase_user::erase_user;
use crate::actions::read_profiles::read_profile;
use crate::actions::set_profile::set_profile;
use crate::contract::erasure::Erasure;
use crate::contract::profile::{Profile, PutProfile};
use crate::identity::Caller;

/// Sets how a user is shown. What is left out stays, null clears; where nothing was set the claims of the user's last token serve.
#[utoipa::path(put, path = "/v1/users/{user_id}", tag = "service", params(("user_id" = String, Path)), request_body = PutProfile,
    responses((status = 200, body = Profile, description = "As it is shown now; at every gateway within a few seconds"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn put_user(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    UserPath(user): UserPath,
    StrictJson(body): StrictJson<PutProfile>,
) -> Result<Response, Problem> {
    let (user, change) = (user?, body.prove()?);
    let stored = set_profile(&state.stores, caller.scopes.service, &user, &change).await?;
    Ok(ok(&Profile::new(&user, &stored.profile, Some(stored.updated_at))))
}

/// How a user is shown. Who has no profile looks like who does not exist.
#[utoipa::path(get, path = "/v1/users/{user_id}", tag = "users", params(("user_id" = String, Path)),
    responses((status = 200, body = Profile, description = "Done"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn get_user(State(state): State<AppState>, _: Caller, _: NoQuery, UserPath(user): UserPath) -> Result<Response, Problem> {
    let user = user?;
    Ok(ok(&Profile::new(&user, &read_profile(&state.stores, &user).await?, None)))
}

/// Erases a user. Profile and pictures are gone at once and open streams end; then the user leaves every group and every conversation of
/// the service, as a member does, and everything they ever wrote is blanked: bodies, pictures, shares, mentions, reactions, earlier versions
/// and what is found by search. Numbers and places stay, the user id with them; readers get `message.deleted` for the newest 200 messages of
/// a conversation and one `resync` for the others. Asked again it tells how far it is, and begins anew only if there is something of the user
/// again. Tokens are the host application's: end them first. What somebody writes with one while this is under way may be blanked or may
/// stay until this is asked for again; who comes back later is a new user with an old id.
#[utoipa::path(delete, path = "/v1/users/{user_id}", tag = "service", params(("user_id" = String, Path)),
    responses((status = 202, body = Erasure, description = "Under way"), (status = 200, body = Erasure, description = "Done"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn delete_user(State(state): State<AppState>, caller: Caller, _: NoQuery, UserPath(user): UserPath) -> Result<Response, Problem> {
    let user = user?;
    let erasure = erase_user(&state.stores, caller.scopes.service, &caller.user, &user).await?;
    let status = if erasure.finished_at.is_some() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok(json(status, &Erasure::from(&erasure)))
}
