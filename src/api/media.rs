//! Pictures: taking them in as raw bytes, and giving them out.
//!
//! Bytes of strangers are served under the application's own name, so a browser is told never to guess at them, never to run anything in them,
//! and to keep them to the one user.

use std::ops::Range;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, IF_NONE_MATCH, IF_RANGE, LOCATION, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt;

use super::AppState;
use super::paging::NoQuery;
use super::path::MediaPath;
use super::respond::{Code, Problem, json};
use crate::actions::limit_rate::take_from_user;
use crate::actions::read_media::{find_media, read_media};
use crate::actions::store_media::{Upload, begin_upload, count_upload};
use crate::contract::media::Media;
use crate::domain::media::{self as domain, MediaType};
use crate::domain::rate_limit::Limited;
use crate::domain::refusal::Refusal;
use crate::identity::Caller;

/// Takes in a picture. What it is is read off its bytes; `Content-Type` must say the same.
#[utoipa::path(post, path = "/v1/media", tag = "media",
    request_body(description = "The bytes of the picture, at most 10 MiB (a setting)", content((Vec<u8> = "image/png"), (Vec<u8> = "image/jpeg"), (Vec<u8> = "image/gif"), (Vec<u8> = "image/webp"))),
    responses((status = 201, body = Media, description = "Stored; removed a day later unless a message shows it"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused: 413 over the limit, 415 of another kind, 422 broken, too many pixels, or not what `Content-Type` says")))]
pub async fn post_media(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let declared = declared_type(&headers)?;
    if !caller.scopes.service {
        // Before its bytes are read.
        take_from_user(&state.stores, &caller.user, Limited::UserWrites).await?;
    }
    let upload = begin_upload(&state.stores, &caller.user, declared)?;
    let outcome = match receive(&state, upload, &headers, body).await {
        Ok(upload) => upload.finish().await,
        Err(Cut::Refused(refusal)) => Err(refusal),
        // Its own doing; nobody may read this.
        Err(Cut::Broken(problem)) => return Err(problem),
    };
    count_upload(&outcome);
    let media = outcome?;
    let mut answer = json(StatusCode::CREATED, &Media::from(&media));
    if let Ok(place) = HeaderValue::from_str(&format!("/v1/media/{}", media.id)) {
        answer.headers_mut().insert(LOCATION, place);
    }
    Ok(answer)
}

/// Why a body did not come in.
enum Cut {
    Refused(Refusal),
    Broken(Problem),
}

async fn receive(state: &AppState, mut upload: Upload, headers: &HeaderMap, mut body: Body) -> Result<Upload, Cut> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<u64>().ok());
    let bytes_max = state.settings.media_bytes_max as u64;
    if announced.is_some_and(|length| length > bytes_max) {
        return Err(Cut::Refused(Refusal::TooLarge(bytes_max)));
    }
    let broken = |why: &'static str| Cut::Broken(Problem::new(Code::InvalidParameter, why));
    let receiving = async {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| broken("The body did not arrive whole."))?;
            if let Some(bytes) = frame.data_ref() {
                upload.push(bytes).map_err(Cut::Refused)?;
            }
        }
        Ok(upload)
    };
    let within = Duration::from_millis(state.settings.media_upload_ms);
    tokio::time::timeout(within, receiving).await.unwrap_or_else(|_| Err(broken("The body did not arrive in time.")))
}

fn declared_type(headers: &HeaderMap) -> Result<MediaType, Problem> {
    let value = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let name = value.split(';').next().unwrap_or_default().trim();
    let plain = headers.get_all(CONTENT_ENCODING).iter().all(|v| v.as_bytes().eq_ignore_ascii_case(b"identity"));
    MediaType::parse(name).filter(|_| plain).ok_or_else(|| {
        Problem::new(
            Code::UnsupportedMediaType,
            "Send the bytes of a picture, not packed, with 'Content-Type: image/png', 'image/jpeg', 'image/gif' or 'image/webp'.",
        )
    })
}

/// A picture, for its uploader and for whoever can see a message that shows it.
#[utoipa::path(get, path = "/v1/media/{id}", tag = "media",
    params(("id" = String, Path), ("Range" = Option<String>, Header, description = "One range of bytes"), ("If-None-Match" = Option<String>, Header, description = "The `ETag` of a copy")),
    responses((status = 200, description = "Its bytes; they never change", content((Vec<u8> = "image/png"), (Vec<u8> = "image/jpeg"), (Vec<u8> = "image/gif"), (Vec<u8> = "image/webp"))),
        (status = 206, description = "A part of them", content((Vec<u8> = "image/png"), (Vec<u8> = "image/jpeg"), (Vec<u8> = "image/gif"), (Vec<u8> = "image/webp"))),
        (status = 304, description = "The copy is good"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn get_media(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    method: Method,
    MediaPath(id): MediaPath,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let media = find_media(&state.stores, &caller.user, id).await?;
    // What the id names never changes.
    let etag = format!("\"{id}\"");
    let known =
        |name| headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(',')).any(|tag| is_tag(tag, &etag));
    let mut answer = Response::new(Body::empty());
    dress(answer.headers_mut(), &media, &etag)?;
    if known(IF_NONE_MATCH) {
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        answer.headers_mut().remove(CONTENT_TYPE);
        return Ok(answer);
    }
    let range = range_of(&headers, media.size).filter(|_| !headers.contains_key(IF_RANGE) || known(IF_RANGE));
    let length = range.as_ref().map_or(media.size, |range| range.end - range.start);
    if let Some(range) = &range {
        *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
        let place = format!("bytes {}-{}/{}", range.start, range.end - 1, media.size);
        answer.headers_mut().insert(CONTENT_RANGE, HeaderValue::from_str(&place).map_err(|_| Problem::unavailable())?);
    }
    answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    if method != Method::HEAD {
        let read = read_media(&state.stores, &media, range).await?;
        *answer.body_mut() = Body::from_stream(read.parts);
    }
    Ok(answer)
}

fn dress(headers: &mut HeaderMap, media: &domain::Media, etag: &str) -> Result<(), Problem> {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media.picture.kind.as_str()));
    headers.insert(ETAG, HeaderValue::from_str(etag).map_err(|_| Problem::unavailable())?);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, max-age=31536000, immutable"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("inline"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
    Ok(())
}

/// Whether what a client names in `If-None-Match` is this tag.
pub(super) fn is_tag(candidate: &str, etag: &str) -> bool {
    let candidate = candidate.trim();
    candidate == "*" || candidate.strip_prefix("W/").unwrap_or(candidate) == etag
}

/// One range that lies in the picture; anything else is answered with the whole, as a server may.
fn range_of(headers: &HeaderMap, size: u64) -> Option<Range<u64>> {
    let text = headers.get(RANGE)?.to_str().ok()?;
    let (from, to) = text.strip_prefix("bytes=")?.split_once('-')?;
    let number =
        |text: &str| Some(text).filter(|t| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit())).and_then(|t| t.parse::<u64>().ok());
    let range = match (from.trim(), to.trim()) {
        ("", last) => size.saturating_sub(number(last)?)..size,
        (from, "") => number(from)?..size,
        (from, to) => number(from)?..number(to)?.saturating_add(1).min(size),
    };
    (range.start < range.end).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_or_passed_over() {
        let range = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, HeaderValue::from_static(text));
            range_of(&headers, 100).map(|range| (range.start, range.end))
        };
        assert_eq!(range("bytes=0-9"), Some((0, 10)));
        assert_eq!(range("bytes=90-"), Some((90, 100)));
        assert_eq!(range("bytes=-10"), Some((90, 100)));
        assert_eq!(range("bytes=-1000"), Some((0, 100)));
        assert_eq!(range("bytes=50-1000"), Some((50, 100)));
        for whole in ["bytes=100-", "bytes=9-0", "bytes=-0", "bytes=0-1,4-5", "bytes=a-b", "bytes=-", "items=0-1", "bytes=+1-2"] {
            assert_eq!(range(whole), None, "{whole}");
        }
    }

    #[test]
    fn tags_are_compared_weakly() {
        assert!(is_tag("\"a\"", "\"a\"") && is_tag(" W/\"a\"", "\"a\"") && is_tag("*", "\"a\""));
        assert!(!is_tag("\"b\"", "\"a\"") && !is_tag("a", "\"a\""));
    }
}
