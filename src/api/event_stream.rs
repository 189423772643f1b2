//! `GET /v1/events`: everything that can be refused is refused before the answer begins; after that there is only the stream.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use bytes::Bytes;

use super::AppState;
use super::caller::prove_caller;
use super::paging::{Query, bad};
use super::peer_address::client_address;
use super::respond::{Code, Problem, accepts};
use crate::actions::tickets;
use crate::contract::problem::Problem as ProblemShape;
use crate::delivery::frames;
use crate::delivery::socket::PeerSocket;
use crate::delivery::{OpenRequest, Start, StreamBody};
use crate::domain::ids::{Millis, UserId};
use crate::domain::position::Position;
use crate::domain::refusal::Refusal;
use crate::identity::token::is_device;

/// The media type of streams.
const EVENT_STREAM: &str = "text/event-stream";
/// Where browsers say how far they got.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Whose stream it is to be, proven by a token or a ticket.
struct Listener {
    user: UserId,
    device: Option<String>,
    over_at: Millis,
}

/// Listen to one's events
#[utoipa::path(get, path = "/v1/events", tag = "events",
    params(
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event seen; wins over the query"),
        ("last_event_id" = Option<String>, Query, description = "The id of the last event seen"),
        ("device" = Option<String>, Query, description = "Whose stored cursor to start from when no position is named"),
        ("ticket" = Option<String>, Query, description = "Instead of a token, for browsers' EventSource"),
    ),
    responses(
        (status = 200, description = "A stream of events; a temporary refusal is the event `unavailable`", body = String, content_type = "text/event-stream"),
        (status = "default", body = ProblemShape, content_type = "application/problem+json"),
    ))]
pub async fn get_events(State(state): State<AppState>, request: Request) -> Result<Response, Problem> {
    let (parts, _) = request.into_parts();
    match open(&state, &parts).await {
        Ok(body) => Ok(stream(Body::new(body))),
        // A browser's EventSource gives up for good on any other status than 200.
        Err(problem) if matches!(problem.status, 429 | 503) => Ok(stream(Body::from(unavailable(problem.code)))),
        Err(problem) => Err(problem),
    }
}

async fn open(state: &AppState, parts: &axum::http::request::Parts) -> Result<StreamBody, Problem> {
    let mut query = Query::parse(parts.uri.query().unwrap_or_default());
    let ticket = query.as_mut().ok().and_then(|query| query.text("ticket"));
    let listener = prove(state, parts, ticket.as_deref()).await?;
    let mut query = query?;
    if !accepts(&parts.headers, EVENT_STREAM) {
        return Err(Problem::new(Code::NotAcceptable, "Events are 'text/event-stream'."));
    }
    let device = device(&mut query, listener.device)?;
    let asked = query.text("last_event_id");
    query.finish()?;
    let start = start(&parts.headers, asked.as_deref(), device.as_deref())?;
    let socket = parts.extensions.get::<PeerSocket>().cloned();
    let request = OpenRequest {
        user: listener.user,
        start,
        device,
        proof_ends_at: Some(listener.over_at),
        address: client_address(socket.as_ref().and_then(PeerSocket::address), &parts.headers, state.settings.trusted_proxies),
        socket,
    };
    Ok(state.hub.open(request).await?)
}

async fn prove(state: &AppState, parts: &axum::http::request::Parts, ticket: Option<&str>) -> Result<Listener, Problem> {
    match ticket {
        Some(ticket) if !parts.headers.contains_key(AUTHORIZATION) => {
            let claims = tickets::redeem(&state.stores, ticket).await?;
            let claims = claims.ok_or_else(|| Problem::new(Code::Unauthenticated, "The ticket is unknown or over; get a new one."))?;
            Ok(Listener { user: claims.user, device: claims.device, over_at: claims.over_at })
        }
        _ => {
            let caller = prove_caller(state, &parts.method, &parts.headers).await?;
            Ok(Listener { over_at: caller.over_at(), user: caller.user, device: caller.device })
        }
    }
}

/// The device that the query names, else the token's.
///
/// # Errors
/// 400 naming `device`.
pub fn device(query: &mut Query, claimed: Option<String>) -> Result<Option<String>, Problem> {
    match query.text("device") {
        Some(device) if is_device(&device) => Ok(Some(device)),
        Some(_) => Err(bad("device", "must be 1 to 128 bytes without control characters")),
        None => Ok(claimed),
    }
}

fn start(headers: &HeaderMap, asked: Option<&str>, device: Option<&str>) -> Result<Start, Refusal> {
    let named = match headers.get(LAST_EVENT_ID) {
        Some(value) => Some(value.to_str().map_err(|_| Refusal::InvalidCursor)?),
        None => asked,
    };
    start_at(named, device)
}

/// Where to start: the named position, else the device's cursor, else the end of the log.
///
/// # Errors
/// [`Refusal::InvalidCursor`] for a text that is no position; it is never a beginning.
pub fn start_at(named: Option<&str>, device: Option<&str>) -> Result<Start, Refusal> {
    match (named, device) {
        (Some(text), _) => Position::parse(text).map(Start::At).ok_or(Refusal::InvalidCursor),
        (None, Some(_)) => Ok(Start::Device),
        (None, None) => Ok(Start::Head),
    }
}

fn unavailable(code: Code) -> Bytes {
    frames::unavailable(code)
}

fn stream(body: Body) -> Response {
    let mut answer = Response::new(body);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    // Nobody on the way may keep, change or collect it.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(header: Option<&'static str>, asked: Option<&str>, device: Option<&str>) -> String {
        let mut headers = HeaderMap::new();
        header.map(|value| headers.insert(LAST_EVENT_ID, HeaderValue::from_static(value)));
        match start(&headers, asked, device) {
            Ok(Start::At(position)) => position.to_string(),
            Ok(other) => format!("{other:?}"),
            Err(refusal) => format!("{refusal}"),
        }
    }

    #[test]
    fn header_then_query_then_device_then_head() {
        assert_eq!(started(Some("a.10-0"), Some("a.1-0"), Some("d")), "a.10-0");
        assert_eq!(started(None, Some("a.1-0"), Some("d")), "a.1-0");
        assert_eq!(started(None, None, Some("d")), "Device");
        assert_eq!(started(None, None, None), "Head");
        assert_eq!(started(Some("a.10-0"), Some("nonsense"), None), "a.10-0");
        for malformed in ["", "-1", "abc", "5-", "$", "+", ">", "1-2-3"] {
            assert_eq!(started(Some(malformed), Some("a.1-0"), Some("d")), "invalid cursor", "{malformed}");
            assert_eq!(started(None, Some(malformed), Some("d")), "invalid cursor", "{malformed}");
        }
    }
}
