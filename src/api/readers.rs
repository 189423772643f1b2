//! Who has read a message.

use axum::extract::State;
use axum::response::Response;

use super::AppState;
use super::paging::NoQuery;
use super::path::{ConversationPath, SeqPath};
use super::respond::{Problem, ok};
use crate::actions::read_readers::read_readers;
use crate::contract::message::{Reader, ReaderList};
use crate::contract::timestamp::Timestamp;
use crate::identity::Caller;

/// Who of the current members has read one's own message.
#[utoipa::path(get, path = "/v1/conversations/{id}/messages/{seq}/readers", tag = "messages", params(("id" = String, Path), ("seq" = u64, Path)),
    responses((status = 200, body = ReaderList, description = "All of them, without the sender, the latest first"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn get_readers(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    ConversationPath(id): ConversationPath,
    SeqPath(seq): SeqPath,
) -> Result<Response, Problem> {
    let readers = read_readers(&state.stores, &caller.user, &id, seq).await?;
    let items: Vec<Reader> = readers.into_iter().map(|(user, at)| Reader { user_id: user.to_string(), read_at: Timestamp(at) }).collect();
    Ok(ok(&ReaderList { count: items.len() as u64, items }))
}
