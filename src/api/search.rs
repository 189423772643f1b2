//! Search in one's own conversations.

use axum::extract::State;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::AppState;
use super::paging::{Query, bad};
use super::respond::{Problem, ok};
use crate::actions::search_messages::{FoundAt, search_messages};
use crate::actions::show_messages::show_scattered;
use crate::contract::message::Message;
use crate::contract::search::SearchPage;
use crate::domain::ids::{ConversationId, INTEGER_MAX};
use crate::domain::refusal::Refusal;
use crate::domain::search_terms::SearchText;
use crate::identity::Caller;

/// Messages that hold every piece of `q`, newest first, in the caller's own conversations. A piece is what stands between spaces; it is compared
/// letter by letter, whatever the case, accents and width, and must begin where a word begins (anywhere in scripts without spaces).
#[utoipa::path(get, path = "/v1/search", tag = "conversations",
    params(("q" = String, Query, description = "1 to 200 characters, at least one letter, digit or symbol"), ("conversation" = Option<String>, Query, description = "Only in this one"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"), ("limit" = Option<u64>, Query, description = "1 to 200, 50 when absent")),
    responses((status = 200, body = SearchPage, description = "A page"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn get_search(State(state): State<AppState>, caller: Caller, mut query: Query) -> Result<Response, Problem> {
    let limit = usize::try_from(query.limit()?).unwrap_or(1);
    let after = query.text("cursor").map(|text| read_cursor(&text).ok_or(Refusal::InvalidCursor)).transpose()?;
    let q = query.text("q").ok_or_else(|| bad("q", "is missing"))?;
    let conversation = query.text("conversation");
    query.finish()?;
    let text = SearchText::parse(&q).map_err(|fault| bad("q", fault.fault))?;
    let conversation = conversation.map(|id| ConversationId::parse(&id).ok_or(Refusal::NotFound)).transpose()?;
    let page = search_messages(&state.stores, &caller.user, conversation.as_ref(), &text, after, limit).await?;
    let items = show_scattered(&state.stores, &caller.user, page.messages).await?.iter().map(Message::from).collect();
    Ok(ok(&SearchPage { items, next_cursor: page.next.as_ref().map(write_cursor) }))
}

fn write_cursor(place: &FoundAt) -> String {
    URL_SAFE_NO_PAD.encode(format!("{} {} {}", place.created_at, place.seq, place.conversation))
}

fn read_cursor(text: &str) -> Option<FoundAt> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let mut parts = std::str::from_utf8(&bytes).ok()?.splitn(3, ' ');
    let created_at = parts.next()?.parse().ok()?;
    let seq = parts.next()?.parse().ok().filter(|seq| *seq <= INTEGER_MAX)?;
    let place = FoundAt { created_at, seq, conversation: ConversationId::parse(parts.next()?)? };
    // Only what was written here: `+1` and `1` are not the same cursor.
    (write_cursor(&place) == text).then_some(place)
}
