//! Every route, in the contract's order. A row is a handler with its `#[utoipa::path(…)]`: method and path are said there, once, and
//! reach the router and the OpenAPI document together.
//!
//! ```text
//! #[utoipa::path(get, path = "/v1/unread", tag = "conversations", responses((status = 200, body = UnreadTotals, description = "Done"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
//! pub async fn get_unread(State(state): State<AppState>, caller: Caller) -> Result<Response, Problem> { … }
//! ```
//!
//! The web client and the tokens of the demonstration are no part of the contract, and come beside it.

use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::{Router, http::StatusCode};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::respond::{Code, Problem};
use super::{
    AppState, audit, blocks, conversations, demo_tokens, event_ack, event_poll, event_stream, event_ticket, export, import, layers, media,
    members, message_changes, messages, openapi, preferences, push, readers, search, shares, typing, users, web_client,
};

/// All routes, without state and layers.
fn rows() -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(openapi::frame())
        // Conversations.
        .routes(routes!(conversations::create_conversation, conversations::get_conversations))
        .routes(routes!(conversations::get_conversation, conversations::patch_conversation))
        .routes(routes!(members::get_members))
        .routes(routes!(members::put_member, members::delete_member))
        .routes(routes!(preferences::put_preferences))
        .routes(routes!(conversations::get_unread))
        .routes(routes!(blocks::put_block, blocks::delete_block))
        .routes(routes!(blocks::get_blocks))
        .routes(routes!(search::get_search))
        // Messages.
        .routes(routes!(messages::send, messages::get_messages))
        .routes(routes!(messages::get_message, message_changes::patch_message, message_changes::delete_message))
        .routes(routes!(message_changes::put_reaction, message_changes::delete_reaction))
        .routes(routes!(readers::get_readers))
        .routes(routes!(messages::get_by_client_id))
        .routes(routes!(messages::post_read))
        .routes(routes!(typing::post_typing))
        // Moderators.
        .routes(routes!(audit::get_audit))
        .routes(routes!(message_changes::get_versions))
        // Events.
        .routes(routes!(event_stream::get_events))
        .routes(routes!(event_poll::poll_events))
        .routes(routes!(event_ack::ack_events))
        .routes(routes!(event_ticket::make_ticket))
        // Media.
        .routes(routes!(media::post_media))
        .routes(routes!(media::get_media))
        // Push.
        .routes(routes!(push::get_push_key))
        .routes(routes!(push::put_push_subscription, push::delete_push_subscription))
        // Service.
        .routes(routes!(users::put_user, users::get_user, users::delete_user))
        .routes(routes!(import::post_import))
        .routes(routes!(export::get_export))
        .routes(routes!(shares::put_share, shares::delete_share))
        // The contract itself.
        .routes(routes!(openapi::openapi_json))
}

/// The OpenAPI document of all routes.
#[must_use]
pub fn document() -> serde_json::Value {
    openapi::whole(&rows().into_openapi())
}

/// The gateway's whole HTTP surface, ready to be served.
pub fn router(state: AppState) -> Router {
    let (routes, document) = rows().split_for_parts();
    openapi::keep(&document);
    let routes = if state.settings.web_client { web_client::beside(routes, state.demo.is_some()) } else { routes };
    let routes = if state.demo.is_some() { demo_tokens::beside(routes) } else { routes };
    let routes =
        routes.fallback(no_such_path).method_not_allowed_fallback(no_such_method).layer(from_fn_with_state(state.clone(), layers::front));
    let routes = match layers::cors(&state.settings) {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes.with_state(state)
}

async fn no_such_path() -> Problem {
    Problem::not_found()
}

async fn no_such_method() -> Response {
    (StatusCode::METHOD_NOT_ALLOWED, Problem::new(Code::MethodNotAllowed, "This address has other methods; see the header 'Allow'."))
        .into_response()
}
