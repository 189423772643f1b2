//! Answers: each refusal of the product gets its status and code here, and nowhere else.

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

pub use crate::contract::problem::{Code, Problem};
use crate::domain::rate_limit::LimitState;
use crate::domain::refusal::{FieldError, Refusal};
use crate::identity::TokenFault;
use crate::metrics;

/// Where the caller stands with limits.
pub const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// Which limits there are.
pub const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// Media type of every error answer.
pub const PROBLEM_JSON: &str = "application/problem+json";

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        // A struct of strings and numbers always serialises.
        let mut answer = Response::new(Body::from(serde_json::to_vec(&self).unwrap_or_default()));
        *answer.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if self.status == 401 {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        show_limits(headers, self.limit.as_deref().map(std::slice::from_ref).unwrap_or_default());
        // The rest of such a body is not read, so nothing can follow on this connection.
        if matches!(self.status, 413 | 415) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // For the access log, which would otherwise have to read bodies.
        answer.extensions_mut().insert(self.code);
        answer
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound => Self::not_found(),
            Refusal::SwitchedOff(what) => Self::new(Code::NotFound, what),
            Refusal::Forbidden(why) => Self::new(Code::Forbidden, why),
            Refusal::RefusedByHost(reason) => Self::new(Code::Forbidden, reason),
            Refusal::ReadOnly => Self::new(Code::ReadOnly, "Only the service writes in this conversation."),
            Refusal::IdempotencyConflict => {
                Self::new(Code::IdempotencyConflict, "This key was used before, for something else. Make a new key for a new intent.")
            }
            Refusal::Deleted => Self::new(Code::Deleted, "The message was deleted."),
            Refusal::Dissolved => Self::new(Code::Dissolved, "The last member has left this group."),
            Refusal::Invalid(error) => Self::invalid_field(error),
            Refusal::UnsupportedMedia => {
                Self::new(Code::UnsupportedMediaType, "Pictures are PNG, JPEG, GIF or WebP; these bytes are none of them.")
            }
            Refusal::TooLarge(bytes_max) => Self::new(Code::TooLarge, format!("A picture may have at most {bytes_max} bytes.")),
            Refusal::InvalidParameter(error) => Self::invalid_parameter(error),
            Refusal::InvalidCursor => Self::new(Code::InvalidCursor, "This is no position that was given out here."),
            Refusal::RateLimited(state) => {
                // Counted here, where every refusal passes on its way out.
                metrics::RATE_LIMITED.add(&[state.limited.as_str()], 1);
                let seconds = u32::try_from(state.reset_s).unwrap_or(u32::MAX).max(1);
                Self {
                    retry_after_s: Some(seconds),
                    limit: Some(Box::new(state)),
                    ..Self::new(Code::RateLimited, "Too many requests; wait and send the same again.")
                }
            }
            // The reason names what is away, in our own words; it stands in the log and not in the answer.
            Refusal::Unavailable(_) => Self::unavailable(),
            Refusal::Overloaded => Self::new(Code::Overloaded, "There is a backlog; wait and send the same again, with the same key."),
        }
    }
}

impl From<FieldError> for Problem {
    fn from(error: FieldError) -> Self {
        Self::invalid_field(error)
    }
}

impl From<TokenFault> for Problem {
    fn from(fault: TokenFault) -> Self {
        match fault {
            TokenFault::Missing => Self::new(Code::Unauthenticated, "Send a token in the header 'Authorization: Bearer …'."),
            TokenFault::Expired => Self::new(Code::TokenExpired, "The token has expired; get a new one."),
            TokenFault::Claim(claim) => {
                Self::new(Code::Unauthenticated, format!("The token's claim '{claim}' is missing or cannot be accepted."))
            }
            TokenFault::KeysAway => Self::unavailable(),
            // One answer for all of these: which of our keys exist is nobody's business.
            TokenFault::Malformed | TokenFault::Signature | TokenFault::UnknownKey => {
                Self::new(Code::Unauthenticated, "The token cannot be accepted.")
            }
        }
    }
}

impl Problem {
    /// 404: no such thing, or not for the caller; the two cannot be told apart.
    #[must_use]
    pub fn not_found() -> Self {
        Self::new(Code::NotFound, "There is no such thing, or it is not yours to see.")
    }

    /// 503 without saying what is away.
    #[must_use]
    pub fn unavailable() -> Self {
        Self::new(Code::Unavailable, "Something that is needed is away for a moment; send the same again, with the same key.")
    }

    /// 422 naming a field of the body.
    #[must_use]
    pub fn invalid_field(error: FieldError) -> Self {
        Self::new(Code::InvalidField, format!("'{}' {}.", error.field, error.fault)).of_field(error.field)
    }

    /// 400 naming a parameter of the query or a header.
    #[must_use]
    pub fn invalid_parameter(error: FieldError) -> Self {
        Self::new(Code::InvalidParameter, format!("'{}' {}.", error.field, error.fault)).of_field(error.field)
    }
}

/// Says where the caller stands with the limits that were asked: `RateLimit-Policy` (a quota `q` in a window of `w` seconds) and `RateLimit`
/// (`r` left, `t` seconds to go), as in draft-ietf-httpapi-ratelimit-headers-10.
pub fn show_limits(headers: &mut HeaderMap, limits: &[LimitState]) {
    if limits.is_empty() {
        return;
    }
    let list = |item: fn(&LimitState) -> String| limits.iter().map(item).collect::<Vec<_>>().join(", ");
    let policy = list(|l| format!("\"{}\";q={};w={}", l.limited.as_str(), l.quota, l.window_s));
    let state = list(|l| format!("\"{}\";r={};t={}", l.limited.as_str(), l.remaining, l.reset_s));
    for (name, value) in [(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, state)] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
}

/// A JSON answer.
pub fn json<T: Serialize>(status: StatusCode, body: &T) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => {
            let mut answer = Response::new(Body::from(bytes));
            *answer.status_mut() = status;
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            answer
        }
        Err(error) => {
            tracing::error!(error.message = %error, "an answer could not be written as JSON");
            Problem::unavailable().into_response()
        }
    }
}

/// 200 with JSON.
pub fn ok<T: Serialize>(body: &T) -> Response {
    json(StatusCode::OK, body)
}

/// Whether the caller takes this media type (`type/subtype`); a request without `Accept` takes everything.
#[must_use]
pub fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let mut named = false;
    let family = media_type.split('/').next().unwrap_or_default();
    for value in headers.get_all(axum::http::header::ACCEPT) {
        let Ok(value) = value.to_str() else { continue };
        for range in value.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let Some(range) = parts.next().filter(|r| !r.is_empty()) else { continue };
            named = true;
            let refused = parts
                .any(|p| p.split_once('=').is_some_and(|(k, v)| k.trim().eq_ignore_ascii_case("q") && v.trim().parse() == Ok(0.0_f32)));
            let fits = range == "*/*"
                || range.eq_ignore_ascii_case(media_type)
                || range.strip_suffix("/*").is_some_and(|f| f.eq_ignore_ascii_case(family));
            if fits && !refused {
                return true;
            }
        }
    }
    !named
}
