//! Web Push: browsers register to be woken.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::AppState;
use super::paging::NoQuery;
use super::respond::{Problem, json, ok};
use super::strict_json::StrictJson;
use crate::actions::register_push::{PushWish, end_push, push_key, register_push};
use crate::contract::push::{DeletePushSubscription, PushKey, PushSubscription, PutPushSubscription};
use crate::contract::timestamp::Timestamp;
use crate::identity::Caller;

/// The key with which a browser subscribes to pushes. While they are switched off, this and the other addresses of pushes are 404.
#[utoipa::path(get, path = "/v1/push/key", tag = "push",
    responses((status = 200, body = PushKey, description = "The key"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn get_push_key(State(state): State<AppState>, _: Caller, _: NoQuery) -> Result<Response, Problem> {
    Ok(ok(&PushKey { key: push_key(&state.stores)?.to_owned() }))
}

/// Registers a browser: it is woken for the caller's unread messages, soon after they came, unless they were read by then. What it gets is a
/// `PushPayload`. An endpoint belongs to who registered it last; of more than 20 of a user the one goes that was registered longest ago.
#[utoipa::path(put, path = "/v1/push/subscriptions", tag = "push", request_body = PutPushSubscription,
    responses((status = 201, body = PushSubscription, description = "Is registered"), (status = 200, body = PushSubscription, description = "Was registered by the caller already, and is as told now"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn put_push_subscription(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    StrictJson(body): StrictJson<PutPushSubscription>,
) -> Result<Response, Problem> {
    let wish = PushWish { endpoint: &body.endpoint, p256dh: &body.keys.p256dh, auth: &body.keys.auth, show_preview: body.show_preview };
    let registered = register_push(&state.stores, &caller.user, caller.device.as_deref(), wish).await?;
    let status = if registered.made { StatusCode::CREATED } else { StatusCode::OK };
    let subscription = PushSubscription {
        endpoint: registered.endpoint,
        show_preview: body.show_preview,
        device: caller.device,
        created_at: Timestamp(registered.created_at),
    };
    Ok(json(status, &subscription))
}

/// Ends a subscription of the caller's. Repeated, or for one that is not the caller's, it changes nothing.
#[utoipa::path(delete, path = "/v1/push/subscriptions", tag = "push", request_body = DeletePushSubscription,
    responses((status = 204, description = "Is not registered by the caller"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn delete_push_subscription(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    StrictJson(body): StrictJson<DeletePushSubscription>,
) -> Result<Response, Problem> {
    end_push(&state.stores, &caller.user, &body.endpoint).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
