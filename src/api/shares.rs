//! What messages share: the host application's service tells.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::AppState;
use super::paging::NoQuery;
use super::path::SharePath;
use super::respond::{Problem, ok};
use super::strict_json::StrictJson;
use crate::actions::tell_share::tell_share;
use crate::contract::share::{PutShare, Share};
use crate::domain::share::ShareFacts;
use crate::identity::Caller;

/// Tells what something shared is called and where it is. Every message that shares it shows it so, at every gateway within a few seconds.
#[utoipa::path(put, path = "/v1/shared/{type}/{id}", tag = "service", params(("type" = String, Path, description = "The host's word for what it is, 1 to 64 characters of `[A-Za-z0-9._:-]`"), ("id" = String, Path, description = "The host's id of it, 1 to 200 of the same")), request_body = PutShare,
    responses((status = 200, body = Share, description = "As messages show it now"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn put_share(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    SharePath(share): SharePath,
    StrictJson(body): StrictJson<PutShare>,
) -> Result<Response, Problem> {
    let (share, facts) = (share?, body.prove()?);
    tell_share(&state.stores, caller.scopes.service, &share, facts.clone()).await?;
    Ok(ok(&Share::new(&share, Some(&facts))))
}

/// Marks something shared as gone: every message that shares it then shows `deleted: true`. Repeated, it changes nothing.
#[utoipa::path(delete, path = "/v1/shared/{type}/{id}", tag = "service", params(("type" = String, Path), ("id" = String, Path)),
    responses((status = 204, description = "Gone"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn delete_share(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    SharePath(share): SharePath,
) -> Result<Response, Problem> {
    tell_share(&state.stores, caller.scopes.service, &share?, ShareFacts::Gone).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
