//! What every request passes through: request id, deadline, panics, media type of the answer, the access log, CORS.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tower_http::cors::{AllowOrigin, CorsLayer};
use uuid::Uuid;

use super::AppState;
use super::respond::{Code, PROBLEM_JSON, Problem, RATE_LIMIT, RATE_LIMIT_POLICY, accepts};
use crate::metrics;
use crate::settings::Settings;

/// Header that carries the request id, both ways.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest request id that is taken over from the caller, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 128;
/// The label of every path that no route has.
const UNMATCHED: &str = "unmatched";

/// The label of every file of the web client.
pub const WEB_CLIENT: &str = "web client";

/// Routes that wait for things to happen, or for a picture on a slow line; they have time limits of their own, and their time says nothing.
const WAITING: &[&str] = &["/v1/events", "/v1/events/poll", "/v1/import", "/v1/media"];
/// Routes that answer in something else than JSON, and check `Accept` themselves.
const OTHER_FORM: &[&str] = &["/v1/events", "/v1/media/{id}", "/v1/export/conversations/{id}", WEB_CLIENT];

/// The id of a request, for logs.
#[derive(Clone, Debug)]
pub struct RequestId(pub String);

/// The outermost layer: nothing leaves it without a request id, a line in the access log and, when it failed, a problem as its body.
pub async fn front(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let start = Instant::now();
    let route = request.extensions().get::<MatchedPath>().map_or_else(|| UNMATCHED.to_owned(), |path| label_of(path.as_str()));
    let method = request.method().clone();
    let id = request_id(&request);
    request.extensions_mut().insert(RequestId(id.clone()));

    let mut answer = answer(&state, &route, request, next).await;
    if let Ok(value) = HeaderValue::from_str(&id) {
        answer.headers_mut().insert(REQUEST_ID, value);
    }
    record(&route, &method, &id, &answer, start);
    answer
}

async fn answer(state: &AppState, route: &str, request: Request, next: Next) -> Response {
    if route != UNMATCHED && !OTHER_FORM.contains(&route) && !accepts(request.headers(), "application/json") {
        return Problem::new(Code::NotAcceptable, "Answers are 'application/json', errors 'application/problem+json'.").into_response();
    }
    // Nothing of the request is looked at again after a panic, so there is nothing that could be found half done.
    let handled = AssertUnwindSafe(next.run(request)).catch_unwind();
    let outcome = if WAITING.contains(&route) {
        Some(handled.await)
    } else {
        tokio::time::timeout(Duration::from_millis(state.settings.request_deadline_ms), handled).await.ok()
    };
    match outcome {
        Some(Ok(answer)) => dress(answer),
        Some(Err(_)) => {
            metrics::PANICS.add(&[], 1);
            Problem::unavailable().into_response()
        }
        None => {
            metrics::DEADLINES.add(&[], 1);
            Problem::new(
                Code::Unavailable,
                "There was no answer in time; it may or may not have been done. Send the same again, with the same key.",
            )
            .into_response()
        }
    }
}

/// Errors that axum or hyper made by themselves get a problem for a body; problems pass unchanged.
fn dress(answer: Response) -> Response {
    let status = answer.status();
    let is_error = status.is_client_error() || status.is_server_error();
    if !is_error || answer.headers().get(CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(PROBLEM_JSON.as_bytes())) {
        return answer;
    }
    let code = match status {
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::METHOD_NOT_ALLOWED => Code::MethodNotAllowed,
        StatusCode::NOT_ACCEPTABLE => Code::NotAcceptable,
        StatusCode::PAYLOAD_TOO_LARGE => Code::TooLarge,
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Code::UnsupportedMediaType,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::Forbidden,
        s if s.is_client_error() => Code::InvalidParameter,
        _ => Code::Unavailable,
    };
    let mut problem = Problem::new(code, code.title()).into_response();
    for (name, value) in answer.headers() {
        if name != CONTENT_TYPE && name != axum::http::header::CONTENT_LENGTH && name != RETRY_AFTER {
            problem.headers_mut().append(name.clone(), value.clone());
        }
    }
    problem
}

fn record(route: &str, method: &Method, id: &str, answer: &Response, start: Instant) {
    let status = answer.status().as_u16();
    // Only methods that some route has, so that a client cannot invent labels.
    let method = match method {
        _ if route == UNMATCHED => "any",
        &(Method::GET | Method::POST | Method::PUT | Method::PATCH | Method::DELETE | Method::HEAD | Method::OPTIONS) => method.as_str(),
        _ => "other",
    };
    metrics::HTTP_REQUESTS.add(&[method, route, answer.status().as_str()], 1);
    if !WAITING.contains(&route) {
        metrics::HTTP_SECONDS.since(&[route], start);
    }
    let code = answer.extensions().get::<Code>().map_or("", |code| code.as_str());
    let ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    // The matched route and never the address: a query may hold a ticket, a path a user's name.
    tracing::info!(
        target: "seqline::access",
        { request.id = id, request.method = method, request.route = route, response.status = status, response.code = code, response.ms = ms },
        "request"
    );
}

fn label_of(path: &str) -> String {
    super::web_client::label_of(path).unwrap_or(path).to_owned()
}

fn request_id(request: &Request) -> String {
    let given = request.headers().get(REQUEST_ID).and_then(|v| v.to_str().ok());
    let fits = |id: &&str| {
        !id.is_empty() && id.len() <= REQUEST_ID_BYTES_MAX && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:-/+=".contains(&b))
    };
    given.filter(fits).map_or_else(|| Uuid::now_v7().simple().to_string(), str::to_owned)
}

/// CORS for the configured origins; `None` when there are none, which leaves browsers of other sites outside.
#[must_use]
pub fn cors(settings: &Settings) -> Option<CorsLayer> {
    let origins: Vec<HeaderValue> = settings.allowed_origins.iter().filter_map(|o| HeaderValue::from_str(o).ok()).collect();
    if origins.is_empty() {
        return None;
    }
    let header = HeaderName::from_static;
    Some(
        CorsLayer::new()
            .allow_origin(AllowOrigin::list(origins))
            .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
            .allow_headers([AUTHORIZATION, CONTENT_TYPE, header("idempotency-key"), header("last-event-id"), REQUEST_ID])
            .expose_headers([REQUEST_ID, RETRY_AFTER, RATE_LIMIT, RATE_LIMIT_POLICY, header("idempotency-replayed"), header("seqline-ack")])
            .allow_credentials(settings.jwt_cookie.is_some())
            .max_age(Duration::from_secs(600)),
    )
}
