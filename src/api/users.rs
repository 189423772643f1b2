//! Users as others see them: the host application's service says how, everybody may look.

use axum::extract::State;
use axum::response::Response;

use super::AppState;
use super::paging::NoQuery;
use super::path::UserPath;
use super::respond::{Problem, ok};
use super::strict_json::StrictJson;
use crate::actions::read_profiles::read_profile;
use crate::actions::set_profile::set_profile;
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
