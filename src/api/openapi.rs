//! The OpenAPI document: paths come with the routes, so that neither can be forgotten; the rest is said here.

use std::sync::OnceLock;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use serde_json::Value;
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};

use super::respond::Problem;
use crate::contract::event::{Event, example_data};
use crate::contract::openapi::finish;
use crate::contract::problem::Problem as ProblemShape;
use crate::contract::push::PushPayload;
use crate::domain::event::EventType;

#[derive(OpenApi)]
#[openapi(
    info(title = "seqline", version = "1", description = "Private chat for an application's own users."),
    components(schemas(ProblemShape, Event, PushPayload)),
    security(("token" = []))
)]
struct Frame;

/// The document without its paths, which the router brings.
#[must_use]
pub fn frame() -> utoipa::openapi::OpenApi {
    let mut document = Frame::openapi();
    let mut text = String::from(
        "Private chat for an application's own users.\n\n## Event types\n\n| type | has an id | example of `data` |\n|---|---|---|\n",
    );
    for kind in EventType::ALL {
        let kept = if kind.is_kept() { "yes" } else { "no" };
        text.push_str(&format!("| `{}` | {kept} | `{}` |\n", kind.as_str(), example_data(*kind)));
    }
    document.info.description = Some(text);
    let components = document.components.get_or_insert_with(Default::default);
    components.add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    document
}

static DOCUMENT: OnceLock<Bytes> = OnceLock::new();

/// The whole document as JSON, from the one that the routes made.
#[must_use]
pub fn whole(document: &utoipa::openapi::OpenApi) -> Value {
    finish(serde_json::to_value(document).unwrap_or_default())
}

/// Keeps the finished document; the first one counts, and all are the same.
pub fn keep(document: &utoipa::openapi::OpenApi) {
    DOCUMENT.get_or_init(|| Bytes::from(whole(document).to_string()));
}

/// This document
#[utoipa::path(get, path = "/openapi.json", tag = "operations", security(()), responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
pub async fn openapi_json() -> Result<Response, Problem> {
    let document = DOCUMENT.get().cloned().ok_or_else(Problem::unavailable)?;
    let mut answer = Response::new(Body::from(document));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(answer)
}
