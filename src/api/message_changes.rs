//! What happens to messages that stand: other words, taking them back, reactions, and what they said before.

use axum::extract::State;
use axum::response::Response;

use super::AppState;
use super::members_only::told_to_members;
use super::paging::NoQuery;
use super::path::{ConversationPath, EmojiPath, SeqPath};
use super::respond::{Problem, ok};
use super::strict_json::DeferredJson;
use crate::actions::change_message::{ChangeRequest, change_message};
use crate::actions::read_versions::read_versions;
use crate::actions::show_messages::show_message;
use crate::contract::message::{Message, MessageVersion, ReactionsOfMessage, VersionList, reactions};
use crate::contract::new_message::PatchMessage;
use crate::contract::timestamp::Timestamp;
use crate::domain::ids::{ConversationId, Seq};
use crate::domain::message_change::MessageCommand;
use crate::domain::reaction::Emoji;
use crate::domain::refusal::FieldFault;
use crate::identity::Caller;

fn request(caller: &Caller, conversation: ConversationId, seq: Seq, command: MessageCommand) -> ChangeRequest {
    ChangeRequest {
        user: caller.user.clone(),
        service: caller.scopes.service,
        admin: caller.scopes.admin,
        conversation,
        seq,
        command,
        pictures: None,
    }
}

/// Gives a message other words; its sender may. What changes nothing makes no event.
#[utoipa::path(patch, path = "/v1/conversations/{id}/messages/{seq}", tag = "messages", params(("id" = String, Path), ("seq" = u64, Path)), request_body = PatchMessage,
    responses((status = 200, body = Message, description = "The message as it is now"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn patch_message(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    ConversationPath(id): ConversationPath,
    SeqPath(seq): SeqPath,
    DeferredJson(body): DeferredJson<PatchMessage>,
) -> Result<Response, Problem> {
    let wish: Result<_, Problem> = body.and_then(|body| Ok((body.command(), body.pictures()?)));
    let (command, pictures) = told_to_members(&state, caller.reader(), &id, wish).await?;
    let request = ChangeRequest { pictures, ..request(&caller, id, seq, command) };
    let message = change_message(&state.stores, &request).await?;
    Ok(ok(&Message::from(&show_message(&state.stores, caller.reader(), message).await?)))
}

/// Takes a message back, or takes it down: its sender within the recall window, the group's owner and moderators always. Repeated, it
/// changes nothing.
#[utoipa::path(delete, path = "/v1/conversations/{id}/messages/{seq}", tag = "messages", params(("id" = String, Path), ("seq" = u64, Path)),
    responses((status = 200, body = Message, description = "What is left of it"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn delete_message(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    ConversationPath(id): ConversationPath,
    SeqPath(seq): SeqPath,
) -> Result<Response, Problem> {
    let message = change_message(&state.stores, &request(&caller, id, seq, MessageCommand::Delete)).await?;
    Ok(ok(&Message::from(&show_message(&state.stores, caller.reader(), message).await?)))
}

/// Puts an emoji on a message. Repeated, it changes nothing.
#[utoipa::path(put, path = "/v1/conversations/{id}/messages/{seq}/reactions/{emoji}", tag = "messages",
    params(("id" = String, Path), ("seq" = u64, Path), ("emoji" = String, Path, description = "One grapheme cluster of at most 64 bytes, percent-encoded")),
    responses((status = 200, body = ReactionsOfMessage, description = "What is on it now"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn put_reaction(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    ConversationPath(id): ConversationPath,
    SeqPath(seq): SeqPath,
    EmojiPath(emoji): EmojiPath,
) -> Result<Response, Problem> {
    react(&state, &caller, id, seq, emoji, true).await
}

/// Takes one's own emoji back. Repeated, it changes nothing.
#[utoipa::path(delete, path = "/v1/conversations/{id}/messages/{seq}/reactions/{emoji}", tag = "messages",
    params(("id" = String, Path), ("seq" = u64, Path), ("emoji" = String, Path, description = "In the same or another spelling of the same emoji")),
    responses((status = 200, body = ReactionsOfMessage, description = "What is on it now"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn delete_reaction(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    ConversationPath(id): ConversationPath,
    SeqPath(seq): SeqPath,
    EmojiPath(emoji): EmojiPath,
) -> Result<Response, Problem> {
    react(&state, &caller, id, seq, emoji, false).await
}

async fn react(
    state: &AppState,
    caller: &Caller,
    id: ConversationId,
    seq: Seq,
    emoji: Result<Emoji, FieldFault>,
    put: bool,
) -> Result<Response, Problem> {
    let emoji = told_to_members(state, caller.reader(), &id, emoji.map_err(|fault| fault.of("emoji"))).await?;
    let message = change_message(&state.stores, &request(caller, id, seq, MessageCommand::React { emoji, put })).await?;
    Ok(ok(&ReactionsOfMessage { seq: message.seq, rev: message.rev, reactions: reactions(&message, Some(&caller.user)) }))
}

/// What a message said before it was edited or taken back; for moderators alone, and only once the archive has it.
#[utoipa::path(get, path = "/v1/audit/conversations/{id}/messages/{seq}/versions", tag = "audit", params(("id" = String, Path), ("seq" = u64, Path)),
    responses((status = 200, body = VersionList, description = "Oldest first"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn get_versions(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    ConversationPath(id): ConversationPath,
    SeqPath(seq): SeqPath,
) -> Result<Response, Problem> {
    let versions = read_versions(&state.stores, caller.scopes.admin, &id, seq).await?;
    let items = versions
        .into_iter()
        .map(|v| MessageVersion { rev: v.rev, at: Timestamp(v.at), body: v.body, media: v.media.iter().map(ToString::to_string).collect() })
        .collect();
    Ok(ok(&VersionList { items }))
}
