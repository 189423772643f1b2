//! Conversations: making, listing, reading, renaming, and what is unread in them.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::AppState;
use super::paging::{NoQuery, Query, bad};
use super::path::ConversationPath;
use super::respond::{Problem, json, ok, show_limits};
use super::strict_json::{DeferredJson, StrictJson};
use crate::actions::change_conversation::{Actor, change_conversation};
use crate::actions::limit_rate::{give_back, take_from_user};
use crate::actions::list_conversations::{Listed, count_unread, list_conversations};
use crate::actions::make_conversation::{GroupWish, make_group, make_single, make_system};
use crate::actions::name_conversations::name_conversation;
use crate::actions::read_conversation::view;
use crate::contract::conversation::{
    Conversation, ConversationPage, CreateConversation, MutedTotals, NewConversation, PatchConversation, UnreadTotals,
};
use crate::domain::change::Command;
use crate::domain::conversation::parse_title;
use crate::domain::ids::{ClientKey, ConversationId};
use crate::domain::rate_limit::Limited;
use crate::domain::refusal::{FieldError, Refusal};
use crate::identity::Caller;

/// Makes a conversation, or finds the one that was made already.
#[utoipa::path(post, path = "/v1/conversations", tag = "conversations", request_body = CreateConversation,
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated call for a group give the same group")),
    responses((status = 201, body = Conversation, description = "Made now"), (status = 200, body = Conversation, description = "Was there already"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn create_conversation(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    headers: HeaderMap,
    StrictJson(body): StrictJson<CreateConversation>,
) -> Result<Response, Problem> {
    let wanted = body.prove(&caller.user)?;
    let user_makes = !caller.scopes.service && !matches!(wanted, NewConversation::System { .. });
    let taken = if user_makes { take_from_user(&state.stores, &caller.user, Limited::UserWrites).await? } else { None };
    let made = match wanted {
        NewConversation::Single { peer } => make_single(&state.stores, &caller.user, &peer).await?,
        NewConversation::Group { title, members, history } => {
            let key = idempotency_key(&headers)?.map(|key| key.to_string());
            make_group(&state.stores, &caller.user, &GroupWish { title, members, history, key }).await?
        }
        NewConversation::System { key, title, members } => {
            let id = ConversationId::of_system(&key)?;
            if !caller.scopes.service {
                return Err(Refusal::Forbidden("only the service makes system conversations").into());
            }
            make_system(&state.stores, &caller.user, &id, title, &members).await?
        }
    };
    let status = if made.fresh { StatusCode::CREATED } else { StatusCode::OK };
    if !made.fresh {
        give_back(&state.stores, &caller.user, taken).await;
    }
    let mut answer = json(status, &Conversation::from(&name_conversation(&state.stores, made.view).await));
    show_limits(answer.headers_mut(), taken.as_slice());
    Ok(answer)
}

/// The caller as one who changes conversations.
pub fn actor(caller: &Caller) -> Actor<'_> {
    Actor { user: &caller.user, service: caller.scopes.service }
}

/// The header `Idempotency-Key`, if there is one.
///
/// # Errors
/// 422 naming the header when it cannot be a key.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<ClientKey>, Problem> {
    let fault = |fault: &'static str| FieldError::new("Idempotency-Key", fault);
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(fault("stands twice").into());
    }
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| fault("must be UTF-8"))?;
    Ok(Some(ClientKey::parse(text).map_err(|f| f.of("Idempotency-Key"))?))
}

/// The caller's conversations, newest activity first.
#[utoipa::path(get, path = "/v1/conversations", tag = "conversations",
    params(("limit" = Option<u64>, Query, description = "1 to 200, 50 when absent"), ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("q" = Option<String>, Query, description = "Only conversations whose title, peer or members' names hold this text, in any case"),
        ("hidden" = Option<bool>, Query, description = "`true`: only those that the caller has hidden; else only the others")),
    responses((status = 200, body = ConversationPage, description = "A page"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn get_conversations(State(state): State<AppState>, caller: Caller, mut query: Query) -> Result<Response, Problem> {
    let limit = usize::try_from(query.limit()?).unwrap_or(1);
    let after = query.text("cursor").map(|text| read_cursor(&text).ok_or(Refusal::InvalidCursor)).transpose()?;
    let filter = query.text("q").filter(|q| !q.is_empty());
    let hidden = match query.text("hidden").as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(bad("hidden", "must be 'true' or 'false'")),
    };
    query.finish()?;
    let page = list_conversations(&state.stores, &caller.user, after, limit, filter.as_deref(), hidden).await?;
    Ok(ok(&ConversationPage {
        items: page.items.iter().map(Conversation::from).collect(),
        next_cursor: page.next.map(|next| write_cursor(&next)),
        events_head: page.events_head.to_string(),
    }))
}

fn write_cursor(place: &Listed) -> String {
    URL_SAFE_NO_PAD.encode(format!("{} {}", place.score, place.conversation))
}

fn read_cursor(text: &str) -> Option<Listed> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (score, id) = std::str::from_utf8(&bytes).ok()?.split_once(' ')?;
    let score = Some(score).filter(|s| s.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()?;
    Some(Listed { conversation: ConversationId::parse(id)?, score })
}

/// One conversation.
#[utoipa::path(get, path = "/v1/conversations/{id}", tag = "conversations", params(("id" = String, Path)),
    responses((status = 200, body = Conversation, description = "Done"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn get_conversation(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    ConversationPath(id): ConversationPath,
) -> Result<Response, Problem> {
    Ok(ok(&shown(&state, &caller, &id).await?))
}

async fn shown(state: &AppState, caller: &Caller, id: &ConversationId) -> Result<Conversation, Problem> {
    let view = view(&state.stores, caller.reader(), id).await?;
    Ok(Conversation::from(&name_conversation(&state.stores, view).await))
}

/// Gives a group, or a system conversation, another title.
#[utoipa::path(patch, path = "/v1/conversations/{id}", tag = "conversations", params(("id" = String, Path)), request_body = PatchConversation,
    responses((status = 200, body = Conversation, description = "Done"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn patch_conversation(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    ConversationPath(id): ConversationPath,
    DeferredJson(body): DeferredJson<PatchConversation>,
) -> Result<Response, Problem> {
    let seen = view(&state.stores, caller.reader(), &id).await?;
    let Some(title) = body?.title else { return Ok(ok(&Conversation::from(&name_conversation(&state.stores, seen).await))) };
    let title = parse_title(&title)?;
    change_conversation(&state.stores, actor(&caller), &id, &Command::Rename(title)).await?;
    Ok(ok(&shown(&state, &caller, &id).await?))
}

/// Unread messages over all of the caller's conversations.
#[utoipa::path(get, path = "/v1/unread", tag = "conversations", responses((status = 200, body = UnreadTotals, description = "Done"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn get_unread(State(state): State<AppState>, caller: Caller, query: Query) -> Result<Response, Problem> {
    query.finish()?;
    let totals = count_unread(&state.stores, &caller.user).await?;
    let muted = MutedTotals { total: totals.muted_total, conversations: totals.muted_conversations };
    Ok(ok(&UnreadTotals { total: totals.total, conversations: totals.conversations, more: totals.more, muted }))
}
