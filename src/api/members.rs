//! Members of a conversation: who they are, bringing in, leaving, removing.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::AppState;
use super::conversations::actor;
use super::members_only::told_to_members;
use super::paging::{NoQuery, Query};
use super::path::{ConversationPath, UserPath};
use super::respond::{Problem, json, ok, show_limits};
use crate::actions::change_conversation::{Changed, change_conversation};
use crate::actions::limit_rate::{give_back, take_from_user};
use crate::actions::list_members::{list_members, read_member};
use crate::actions::read_profiles::profiles_of;
use crate::contract::conversation::{Member, MemberPage};
use crate::domain::change::Command;
use crate::domain::ids::UserId;
use crate::domain::rate_limit::{LimitState, Limited};
use crate::domain::refusal::Refusal;
use crate::identity::Caller;

/// The members, ordered by user id.
#[utoipa::path(get, path = "/v1/conversations/{id}/members", tag = "members",
    params(("id" = String, Path), ("limit" = Option<u64>, Query, description = "1 to 200, 50 when absent"), ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before")),
    responses((status = 200, body = MemberPage, description = "Done"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn get_members(
    State(state): State<AppState>,
    caller: Caller,
    ConversationPath(id): ConversationPath,
    mut query: Query,
) -> Result<Response, Problem> {
    let limit = usize::try_from(query.limit()?).unwrap_or(1);
    let after = query.text("cursor").map(|text| read_cursor(&text).ok_or(Refusal::InvalidCursor)).transpose()?;
    query.finish()?;
    let (members, more) = list_members(&state.stores, caller.reader(), &id, after.as_ref(), limit).await?;
    let next_cursor = members.last().filter(|_| more).map(|m| URL_SAFE_NO_PAD.encode(m.user.as_str()));
    let profiles = profiles_of(&state.stores, members.iter().map(|member| member.user.clone()).collect()).await;
    Ok(ok(&MemberPage { items: members.iter().map(|member| Member::new(member, profiles.get(&member.user))).collect(), next_cursor }))
}

fn read_cursor(text: &str) -> Option<UserId> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    UserId::parse(std::str::from_utf8(&bytes).ok()?).ok()
}

/// Brings a user in. Repeated, it changes nothing.
#[utoipa::path(put, path = "/v1/conversations/{id}/members/{user_id}", tag = "members", params(("id" = String, Path), ("user_id" = String, Path)),
    responses((status = 201, body = Member, description = "Joined now"), (status = 200, body = Member, description = "Was a member already"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn put_member(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    ConversationPath(id): ConversationPath,
    UserPath(user): UserPath,
) -> Result<Response, Problem> {
    let user = told_to_members(&state, caller.reader(), &id, user).await?;
    let taken = told_to_members(&state, caller.reader(), &id, take(&state, &caller).await).await?;
    let status = match change_conversation(&state.stores, actor(&caller), &id, &Command::Invite(user.clone())).await? {
        Changed::Yes => StatusCode::CREATED,
        Changed::No => {
            give_back(&state.stores, &caller.user, taken).await;
            StatusCode::OK
        }
    };
    let member = read_member(&state.stores, caller.reader(), &id, &user).await?;
    let mut answer = json(status, &Member::new(&member, profiles_of(&state.stores, vec![user.clone()]).await.get(&user)));
    show_limits(answer.headers_mut(), taken.as_slice());
    Ok(answer)
}

/// Removes a user; oneself leaves.
#[utoipa::path(delete, path = "/v1/conversations/{id}/members/{user_id}", tag = "members", params(("id" = String, Path), ("user_id" = String, Path)),
    responses((status = 204, description = "Gone"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn delete_member(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    ConversationPath(id): ConversationPath,
    UserPath(user): UserPath,
) -> Result<Response, Problem> {
    let user = told_to_members(&state, caller.reader(), &id, user).await?;
    change_conversation(&state.stores, actor(&caller), &id, &Command::Remove(user)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn take(state: &AppState, caller: &Caller) -> Result<Option<LimitState>, Refusal> {
    if caller.scopes.service {
        return Ok(None);
    }
    take_from_user(&state.stores, &caller.user, Limited::UserWrites).await
}
