//! Messages: sending, pages, single ones, what became of a send.

use std::time::Instant;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;

use super::AppState;
use super::conversations::idempotency_key;
use super::members_only::told_to_members;
use super::paging::{NoQuery, Query, bad};
use super::path::{ClientIdPath, ConversationPath, SeqPath};
use super::respond::{Problem, json, ok, show_limits};
use super::strict_json::DeferredJson;
use crate::actions::find_message::{SendState, find_message};
use crate::actions::mark_read;
use crate::actions::read_conversation::view;
use crate::actions::read_messages::{self, Place};
use crate::actions::send_message::{self, Ack, SendOutcome, SendRequest};
use crate::actions::show_messages::{show_message, show_messages};
use crate::contract::conversation::{MarkRead, ReadPosition};
use crate::contract::message::{ChangesPage, KeyState, Message, MessagePage, MessageState, MessagesAnswer};
use crate::contract::new_message::SendMessage;
use crate::contract::timestamp::Timestamp;
use crate::domain::ids::{ClientKey, ConversationId, Kind, UserId};
use crate::domain::membership::Reader;
use crate::domain::message::Message as DomainMessage;
use crate::domain::permission::{Act, Standing, may};
use crate::domain::quote::{Quote, ShownMessage};
use crate::domain::refusal::{FieldError, Refusal};
use crate::identity::Caller;
use crate::metrics;

const ACK_HEADER: HeaderName = HeaderName::from_static("seqline-ack");
const REPLAYED_HEADER: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Sends a message: once for each idempotency key, however often it is tried.
#[utoipa::path(post, path = "/v1/conversations/{id}/messages", tag = "messages", request_body = SendMessage,
    params(("id" = String, Path), ("ack" = Option<String>, Query, description = "How far it must get before the answer: `accepted` (default), `replicated` or `archived`"),
        ("Idempotency-Key" = Option<String>, Header, description = "Instead of `client_id`")),
    responses((status = 201, body = Message, description = "Sent; `Seqline-Ack` says how far it got"), (status = 200, body = Message, description = "Was sent before with this key; `Idempotency-Replayed: true`"),
        (status = 202, body = Message, description = "Sent, but not as far as asked within the deadline"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn send(
    State(state): State<AppState>,
    caller: Caller,
    ConversationPath(id): ConversationPath,
    headers: HeaderMap,
    mut query: Query,
    DeferredJson(body): DeferredJson<SendMessage>,
) -> Result<Response, Problem> {
    let ack = match query.text("ack").as_deref() {
        None | Some("accepted") => Ack::Accepted,
        Some("replicated") => Ack::Replicated,
        Some("archived") => Ack::Archived,
        Some(_) => return Err(bad("ack", "must be 'accepted', 'replicated' or 'archived'")),
    };
    query.finish()?;
    let request = match read_send(&caller, id.clone(), &headers, body, ack) {
        Ok(request) => request,
        Err(problem) => {
            // Without a key there is nothing to look up; who is no member learns nothing about the body. That a pair's id is not the one of
            // this peer is plain arithmetic and tells nothing; and the service may post wherever somebody belongs.
            let is_arithmetic = id.kind() == Kind::Single && problem.field.as_deref() == Some("peer");
            if !caller.scopes.service && !is_arithmetic {
                view(&state.stores, &caller.user, &id).await?;
            }
            return Err(problem);
        }
    };
    let (sender, service) = (request.sender.clone(), request.service);
    let start = Instant::now();
    let outcome = send_message::send_message(&state.stores, request).await;
    metrics::SENDS.add(&[outcome_label(&outcome)], 1);
    let outcome = outcome?;
    metrics::SEND_SECONDS.since(&[ack_word(outcome.reached)], start);
    let status = match (outcome.replayed, outcome.reached >= ack) {
        (_, false) => StatusCode::ACCEPTED,
        (true, true) => StatusCode::OK,
        (false, true) => StatusCode::CREATED,
    };
    let shown = show_sent(&state, Reader::caller(&sender, service), outcome.message).await;
    let mut answer = json(status, &Message::from(&shown));
    answer.headers_mut().insert(ACK_HEADER, HeaderValue::from_static(ack_word(outcome.reached)));
    show_limits(answer.headers_mut(), &outcome.limits);
    if outcome.replayed {
        answer.headers_mut().insert(REPLAYED_HEADER, HeaderValue::from_static("true"));
    }
    Ok(answer)
}

/// One's own message as an answer. It stands, whatever becomes of the look at what it answers, and who left since still learns of it.
async fn show_sent(state: &AppState, reader: Reader<'_>, message: DomainMessage) -> ShownMessage {
    match show_message(&state.stores, reader, message.clone()).await {
        Ok(shown) => shown,
        Err(_) => {
            let quote = message.reply_to.map(|seq| Quote::Hidden { seq });
            ShownMessage { quote, shared: None, reader: Some(reader.user.clone()), message }
        }
    }
}

fn outcome_label(outcome: &Result<SendOutcome, Refusal>) -> &'static str {
    match outcome {
        Ok(sent) if sent.replayed => "replayed",
        Ok(_) => "new",
        Err(Refusal::IdempotencyConflict) => "conflict",
        Err(Refusal::Unavailable(_)) => "unavailable",
        Err(Refusal::Overloaded) => "overloaded",
        Err(_) => "refused",
    }
}

fn ack_word(ack: Ack) -> &'static str {
    match ack {
        Ack::Accepted => "accepted",
        Ack::Replicated => "replicated",
        Ack::Archived => "archived",
    }
}

fn read_send(
    caller: &Caller,
    conversation: ConversationId,
    headers: &HeaderMap,
    body: Result<SendMessage, Problem>,
    ack: Ack,
) -> Result<SendRequest, Problem> {
    let header = idempotency_key(headers)?;
    let body = body?;
    let client_id = body.key(header.as_ref().map(ClientKey::as_str))?;
    let service = caller.scopes.service;
    let (sender, content) = match body.sender() {
        Ok(None) => (caller.user.clone(), Ok(())),
        Ok(Some(sender)) if service && may(Act::PostAs, conversation.kind(), Standing::Service) => (sender, Ok(())),
        Ok(Some(_)) => (caller.user.clone(), Err(Refusal::Forbidden("only the service posts in the name of another one"))),
        Err(error) if service => return Err(error.into()),
        Err(error) => (caller.user.clone(), Err(error.into())),
    };
    let peer = body.peer()?;
    if let Some(peer) = &peer
        && ConversationId::of_pair(&sender, peer)? != conversation
    {
        return Err(FieldError::new("peer", "is not the other one of this conversation").into());
    }
    let content = body.draft(client_id.clone()).map_err(Refusal::from).and_then(|draft| content.map(|()| draft));
    Ok(SendRequest { sender, service, conversation, peer, client_id, content, ack })
}

/// A page of messages in ascending seq; with `since_rev`, what changed, in ascending rev.
#[utoipa::path(get, path = "/v1/conversations/{id}/messages", tag = "messages",
    params(("id" = String, Path), ("before" = Option<u64>, Query, description = "Below this seq"), ("after" = Option<u64>, Query, description = "Above this seq"),
        ("around" = Option<u64>, Query, description = "This seq and its neighbours"), ("since_rev" = Option<u64>, Query, description = "Changed after this rev"),
        ("limit" = Option<u64>, Query, description = "1 to 200, 50 when absent")),
    responses((status = 200, body = MessagesAnswer, description = "Done"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn get_messages(
    State(state): State<AppState>,
    caller: Caller,
    ConversationPath(id): ConversationPath,
    mut query: Query,
) -> Result<Response, Problem> {
    let limit = usize::try_from(query.limit()?).unwrap_or(1);
    let since = query.place("since_rev")?;
    let places =
        [query.place("before")?.map(Place::Before), query.place("after")?.map(Place::After), query.place("around")?.map(Place::Around)];
    query.finish()?;
    let mut places = places.into_iter().flatten();
    let place = places.next();
    let second = match (places.next(), place.is_some() && since.is_some()) {
        (Some(Place::After(_)), _) => Some("after"),
        (Some(_), _) => Some("around"),
        (None, true) => Some("since_rev"),
        (None, false) => None,
    };
    if let Some(name) = second {
        return Err(bad(name, "cannot stand beside another place"));
    }
    if let Some(since) = since {
        let changes = read_messages::changes(&state.stores, caller.reader(), &id, since, limit).await?;
        return Ok(ok(&MessagesAnswer::Changes(ChangesPage {
            items: show_messages(&state.stores, caller.reader(), &id, changes.messages).await?.iter().map(Message::from).collect(),
            next_rev: changes.next_rev,
            has_more: changes.has_more,
            head_seq: changes.head_seq,
            voids: changes.voids,
        })));
    }
    let page = read_messages::page(&state.stores, caller.reader(), &id, place.unwrap_or(Place::Latest), limit).await?;
    Ok(ok(&MessagesAnswer::Page(MessagePage {
        items: show_messages(&state.stores, caller.reader(), &id, page.messages).await?.iter().map(Message::from).collect(),
        has_more_before: page.has_more_before,
        has_more_after: page.has_more_after,
        head_seq: page.head_seq,
        voids: page.voids,
    })))
}

/// One message.
#[utoipa::path(get, path = "/v1/conversations/{id}/messages/{seq}", tag = "messages", params(("id" = String, Path), ("seq" = u64, Path)),
    responses((status = 200, body = Message, description = "Done"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn get_message(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    ConversationPath(id): ConversationPath,
    SeqPath(seq): SeqPath,
) -> Result<Response, Problem> {
    let message = read_messages::message(&state.stores, caller.reader(), &id, seq).await?;
    Ok(ok(&Message::from(&show_message(&state.stores, caller.reader(), message).await?)))
}

/// What became of one's own send; for the service also of one in somebody's name.
#[utoipa::path(get, path = "/v1/conversations/{id}/messages/by-client-id/{client_id}", tag = "messages",
    params(("id" = String, Path), ("client_id" = String, Path), ("sender" = Option<String>, Query, description = "In whose name it was sent; for the service alone")),
    responses((status = 200, body = KeyState, description = "Done"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn get_by_client_id(
    State(state): State<AppState>,
    caller: Caller,
    mut query: Query,
    ConversationPath(id): ConversationPath,
    ClientIdPath(client_id): ClientIdPath,
) -> Result<Response, Problem> {
    let sender = query.text("sender");
    query.finish()?;
    let service = caller.scopes.service;
    let sender = match sender.as_deref().map(UserId::parse) {
        None => caller.user.clone(),
        Some(Ok(sender)) if service => sender,
        Some(_) => return Err(bad("sender", "must be a user id, and is for the service alone")),
    };
    let reader = Reader::caller(&sender, service);
    let key = ClientKey::parse(&client_id).map_err(|fault| fault.of("client_id"));
    let key = told_to_members(&state, reader, &id, key).await?;
    let found = find_message(&state.stores, reader, &id, &key).await?;
    Ok(ok(&match found {
        SendState::Accepted(message) => {
            KeyState { state: MessageState::Accepted, message: Some(Message::from(&show_sent(&state, reader, *message).await)) }
        }
        SendState::Archived(message) => {
            KeyState { state: MessageState::Archived, message: Some(Message::from(&show_sent(&state, reader, *message).await)) }
        }
        SendState::Unknown => KeyState { state: MessageState::Unknown, message: None },
    }))
}

/// Moves the caller's read watermark forward, never back.
#[utoipa::path(post, path = "/v1/conversations/{id}/read", tag = "messages", params(("id" = String, Path)), request_body = MarkRead,
    responses((status = 200, body = ReadPosition, description = "Done"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn post_read(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    ConversationPath(id): ConversationPath,
    DeferredJson(body): DeferredJson<MarkRead>,
) -> Result<Response, Problem> {
    let body = told_to_members(&state, &caller.user, &id, body).await?;
    let at = mark_read::mark_read(&state.stores, &caller.user, &id, body.seq, |ms| Timestamp(ms).to_string()).await?;
    Ok(ok(&ReadPosition {
        read_seq: at.read_seq,
        read_at: at.read_at.map(Timestamp),
        unread: at.unread.count,
        unread_more: at.unread.more,
    }))
}
