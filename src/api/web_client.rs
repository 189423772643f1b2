//! The web client: plain files that are built into the binary, so that a gateway is one file, and nothing on a disk can be asked for.
//!
//! Their addresses are the rows of [`FILES`] and no others. They are answered without looking at any store: while everything else is away, the
//! page still comes and says so.

use std::sync::LazyLock;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use super::AppState;
use super::layers::WEB_CLIENT;
use super::media::is_tag;

/// A file of the page.
#[derive(Debug)]
pub struct WebFile {
    /// Its address.
    pub path: &'static str,
    /// Where it lies below `web/`.
    pub name: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($path:literal => $name:literal,)*) => {
        &[$(WebFile { path: $path, name: $name, bytes: include_bytes!(concat!("../../web/", $name)) },)*]
    };
}

/// Every file that is served. A test walks what the page loads and finds the ones that are missing here.
pub const FILES: &[WebFile] = files! {
    "/" => "index.html",
    "/manifest.webmanifest" => "manifest.webmanifest",
    "/icons/seqline.svg" => "icons/seqline.svg",
    "/icons/seqline-192.png" => "icons/seqline-192.png",
    "/icons/seqline-512.png" => "icons/seqline-512.png",
    "/icons/seqline-maskable.png" => "icons/seqline-maskable.png",
    "/app/theme.css" => "app/theme.css",
    "/app/layout.css" => "app/layout.css",
    "/app/timeline.css" => "app/timeline.css",
    "/app/panels.css" => "app/panels.css",
    "/app/attachments.js" => "app/attachments.js",
    "/app/chat_view.js" => "app/chat_view.js",
    "/app/composer.js" => "app/composer.js",
    "/app/debug_panel.js" => "app/debug_panel.js",
    "/app/demo.js" => "app/demo.js",
    "/app/details.js" => "app/details.js",
    "/app/dialog.js" => "app/dialog.js",
    "/app/element.js" => "app/element.js",
    "/app/errors.js" => "app/errors.js",
    "/app/format.js" => "app/format.js",
    "/app/kept.js" => "app/kept.js",
    "/app/list_row.js" => "app/list_row.js",
    "/app/list_view.js" => "app/list_view.js",
    "/app/main.js" => "app/main.js",
    "/app/message_body.js" => "app/message_body.js",
    "/app/message_menu.js" => "app/message_menu.js",
    "/app/message_view.js" => "app/message_view.js",
    "/app/new_conversation.js" => "app/new_conversation.js",
    "/app/notifications.js" => "app/notifications.js",
    "/app/people.js" => "app/people.js",
    "/app/scroll_place.js" => "app/scroll_place.js",
    "/app/session.js" => "app/session.js",
    "/app/settings_panel.js" => "app/settings_panel.js",
    "/app/shell.js" => "app/shell.js",
    "/app/sign_in.js" => "app/sign_in.js",
    "/app/spoken.js" => "app/spoken.js",
    "/app/summary.js" => "app/summary.js",
    "/app/timeline_view.js" => "app/timeline_view.js",
    "/app/words.js" => "app/words.js",
    "/app/words_en.js" => "app/words_en.js",
    "/app/words_zh.js" => "app/words_zh.js",
    "/client/backoff.js" => "client/backoff.js",
    "/client/badge.js" => "client/badge.js",
    "/client/connection.js" => "client/connection.js",
    "/client/contract.js" => "client/contract.js",
    "/client/conversation.js" => "client/conversation.js",
    "/client/conversation_list.js" => "client/conversation_list.js",
    "/client/errors.js" => "client/errors.js",
    "/client/event_source_transport.js" => "client/event_source_transport.js",
    "/client/event_stream.js" => "client/event_stream.js",
    "/client/fetch_transport.js" => "client/fetch_transport.js",
    "/client/gap_filler.js" => "client/gap_filler.js",
    "/client/listeners.js" => "client/listeners.js",
    "/client/media.js" => "client/media.js",
    "/client/outbox.js" => "client/outbox.js",
    "/client/page_life.js" => "client/page_life.js",
    "/client/position.js" => "client/position.js",
    "/client/push.js" => "client/push.js",
    "/client/read_marks.js" => "client/read_marks.js",
    "/client/requests.js" => "client/requests.js",
    "/client/signals.js" => "client/signals.js",
    "/client/sse_parser.js" => "client/sse_parser.js",
    "/client/store.js" => "client/store.js",
    "/client/tabs.js" => "client/tabs.js",
    "/client/timeline.js" => "client/timeline.js",
    "/client/typing.js" => "client/typing.js",
    "/client/uuidv7.js" => "client/uuidv7.js",
    "/seqline.js" => "seqline.js",
    "/sw.js" => "sw.js",
};

/// Scripts, styles and connections of this origin alone, and nothing inline: words of other people that got into the page as markup could
/// still do nothing. Pictures are fetched with the token and shown from memory, hence `blob:`.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob: data:; \
     manifest-src 'self'; worker-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors ";
/// No page may show this one in a frame and catch the clicks.
const UNFRAMED: &str = "'none'";
/// The demonstration shows itself, twice.
const FRAMED_BY_ITSELF: &str = "'self'; frame-src 'self'";

const SERVICE_WORKER_ALLOWED: HeaderName = HeaderName::from_static("service-worker-allowed");

/// Tags by place in [`FILES`]: made of the bytes, so that gateways of one release agree and a new one is noticed.
static TAGS: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| {
    let tag = |file: &WebFile| format!("\"{}\"", URL_SAFE_NO_PAD.encode(&Sha256::digest(file.bytes)[..12]));
    FILES.iter().map(|file| HeaderValue::from_str(&tag(file)).unwrap_or(HeaderValue::from_static("\"\""))).collect()
});

/// The word that stands for all these addresses in metrics and logs, if the address is one of them.
#[must_use]
pub fn label_of(path: &str) -> Option<&'static str> {
    FILES.iter().any(|file| file.path == path).then_some(WEB_CLIENT)
}

/// Adds the files to the routes of the contract; `shows_itself` is for the demonstration.
pub fn beside(routes: Router<AppState>, shows_itself: bool) -> Router<AppState> {
    FILES.iter().enumerate().fold(routes, |routes, (place, file)| {
        routes.route(file.path, get(async move |headers: HeaderMap| answer(place, &headers, shows_itself)))
    })
}

/// The file at this place of [`FILES`].
fn answer(place: usize, headers: &HeaderMap, shows_itself: bool) -> Response {
    let mut answer = Response::new(Body::empty());
    let (Some(file), Some(tag)) = (FILES.get(place), TAGS.get(place)) else {
        *answer.status_mut() = StatusCode::NOT_FOUND;
        return answer;
    };
    let said = answer.headers_mut();
    said.insert(ETAG, tag.clone());
    // Asked for each time and answered with 304: a page of one release never runs with the module of another.
    said.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    said.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    said.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let policy = format!("{POLICY}{}", if shows_itself { FRAMED_BY_ITSELF } else { UNFRAMED });
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        said.insert(CONTENT_SECURITY_POLICY, policy);
    }
    if file.path == "/sw.js" {
        said.insert(SERVICE_WORKER_ALLOWED, HeaderValue::from_static("/"));
    }
    let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    if tag.to_str().is_ok_and(|tag| known.into_iter().any(|candidate| is_tag(candidate, tag))) {
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        return answer;
    }
    said.insert(CONTENT_TYPE, HeaderValue::from_static(media_type(file.name)));
    said.insert(CONTENT_LENGTH, HeaderValue::from(file.bytes.len()));
    *answer.body_mut() = Body::from(Bytes::from_static(file.bytes));
    answer
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "webmanifest" => "application/manifest+json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_an_address_of_its_own_and_a_type() {
        for (place, file) in FILES.iter().enumerate() {
            assert!(FILES[..place].iter().all(|other| other.path != file.path), "{}", file.path);
            assert!(file.path == "/" || file.path == format!("/{}", file.name), "{}", file.path);
            assert_ne!(media_type(file.name), "application/octet-stream", "{}", file.name);
            assert!(!file.path.starts_with("/v1") && !file.path.starts_with("/openapi"), "{}", file.path);
        }
    }
}
