//! Whole conversations on their way out, line by line, as fast as the other side takes them.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use futures_util::stream;
use serde::Serialize;

use super::AppState;
use super::paging::Query;
use super::path::ConversationPath;
use super::respond::{Code, Problem, accepts};
use crate::actions::export_conversation::{Export, begin_export, next_messages};
use crate::contract::export::{ExportEnd, ExportHead, ExportLine};
use crate::contract::message::Message;
use crate::domain::permission::Standing;
use crate::identity::Caller;

/// The form of the answer.
const NDJSON: &str = "application/x-ndjson";

/// Where an export stands.
enum Stage {
    Head(Export),
    Messages(Export),
    Ended,
}

/// A whole conversation: one line about it, a line for each message (also what is deleted, the timeline, and what no member may see), and a
/// last line that says how many there were. Whoever gets no last line asks again with `after`.
#[utoipa::path(get, path = "/v1/export/conversations/{id}", tag = "service",
    params(("id" = String, Path), ("after" = Option<u64>, Query, description = "The last seq that came; 0 when absent")),
    responses((status = 200, body = ExportLine, content_type = "application/x-ndjson", description = "The conversation up to its head when it was asked, an object on each line"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn get_export(
    State(state): State<AppState>,
    caller: Caller,
    ConversationPath(id): ConversationPath,
    mut query: Query,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let after = query.place("after")?.unwrap_or(0);
    query.finish()?;
    if !accepts(&headers, NDJSON) {
        return Err(Problem::new(Code::NotAcceptable, "An export is 'application/x-ndjson'."));
    }
    let standing = match (caller.scopes.service, caller.scopes.admin) {
        (true, _) => Some(Standing::Service),
        (_, true) => Some(Standing::Admin),
        _ => None,
    };
    let export = begin_export(&state.stores, &caller.user, standing, &id, after).await?;
    let stores = Arc::clone(&state.stores);
    let parts = stream::try_unfold(Stage::Head(export), move |stage| {
        let stores = Arc::clone(&stores);
        async move {
            let (bytes, next) = match stage {
                Stage::Head(export) => (line(&ExportHead::new(&export.conversation, &export.members))?, Stage::Messages(export)),
                Stage::Messages(mut export) => {
                    let shown = next_messages(&stores, &mut export).await.map_err(|refusal| {
                        // The answer has begun; it ends without its last line.
                        tracing::warn!(?refusal, "an export was cut off");
                        std::io::Error::other("a store is away")
                    })?;
                    if shown.is_empty() {
                        (line(&ExportEnd::new(&export.conversation, export.given))?, Stage::Ended)
                    } else {
                        let mut lines = Vec::new();
                        for message in &shown {
                            lines.extend(line(&Message::from(message))?);
                        }
                        (lines, Stage::Messages(export))
                    }
                }
                Stage::Ended => return Ok(None),
            };
            Ok::<_, std::io::Error>(Some((Bytes::from(bytes), next)))
        }
    });
    let mut answer = Response::new(Body::from_stream(parts));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(NDJSON));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}

fn line(value: &impl Serialize) -> Result<Vec<u8>, std::io::Error> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}
