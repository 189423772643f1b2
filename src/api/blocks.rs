//! Blocks: whom the caller does not want to hear from.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::AppState;
use super::paging::{NoQuery, Query};
use super::path::UserPath;
use super::respond::{Problem, ok};
use crate::actions::block_user::{block_user, list_blocks, unblock_user};
use crate::contract::block::{Block, BlockPage};
use crate::contract::timestamp::Timestamp;
use crate::domain::ids::UserId;
use crate::domain::refusal::Refusal;
use crate::identity::Caller;

/// Blocks a user. While either of two has blocked the other, no new message, edit or reaction passes between them (403), nobody sees the
/// other type or read; what was said stays, and can be taken back. The other one is not told. Repeated, it changes nothing.
#[utoipa::path(put, path = "/v1/blocks/{user_id}", tag = "blocks", params(("user_id" = String, Path)),
    responses((status = 200, body = Block, description = "Is blocked"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn put_block(State(state): State<AppState>, caller: Caller, _: NoQuery, UserPath(user): UserPath) -> Result<Response, Problem> {
    let user = user?;
    let since = block_user(&state.stores, &caller.user, &user).await?;
    Ok(ok(&Block { user_id: user.to_string(), created_at: Timestamp(since) }))
}

/// Lifts one's own block. Repeated, it changes nothing.
#[utoipa::path(delete, path = "/v1/blocks/{user_id}", tag = "blocks", params(("user_id" = String, Path)),
    responses((status = 204, description = "Is not blocked"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn delete_block(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    UserPath(user): UserPath,
) -> Result<Response, Problem> {
    unblock_user(&state.stores, &caller.user, &user?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Whom the caller blocks, ordered by user id.
#[utoipa::path(get, path = "/v1/blocks", tag = "blocks",
    params(("limit" = Option<u64>, Query, description = "1 to 200, 50 when absent"), ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before")),
    responses((status = 200, body = BlockPage, description = "A page"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn get_blocks(State(state): State<AppState>, caller: Caller, mut query: Query) -> Result<Response, Problem> {
    let limit = usize::try_from(query.limit()?).unwrap_or(1);
    let after = query.text("cursor").map(|text| read_cursor(&text).ok_or(Refusal::InvalidCursor)).transpose()?;
    query.finish()?;
    let (blocks, more) = list_blocks(&state.stores, &caller.user, after.as_ref(), limit).await?;
    let next_cursor = blocks.last().filter(|_| more).map(|(user, _)| URL_SAFE_NO_PAD.encode(user.as_str()));
    let items = blocks.iter().map(|(user, since)| Block { user_id: user.to_string(), created_at: Timestamp(*since) }).collect();
    Ok(ok(&BlockPage { items, next_cursor }))
}

fn read_cursor(text: &str) -> Option<UserId> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    UserId::parse(std::str::from_utf8(&bytes).ok()?).ok()
}
