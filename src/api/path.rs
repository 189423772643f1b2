//! What stands in a path. Nothing can have an id that cannot be one, so a malformed id is 404 like an unknown one.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use uuid::Uuid;

use super::AppState;
use super::respond::Problem;
use crate::domain::ids::{ConversationId, INTEGER_MAX, Seq, UserId};
use crate::domain::message::Share;
use crate::domain::reaction::Emoji;
use crate::domain::refusal::{FieldError, FieldFault};

/// The conversation at `{id}`.
#[derive(Clone, Debug)]
pub struct ConversationPath(pub ConversationId);

/// The message number at `{seq}`.
#[derive(Clone, Copy, Debug)]
pub struct SeqPath(pub Seq);

/// The user at `{user_id}`, or what is wrong with it: told only to those who may know that the conversation exists.
#[derive(Clone, Debug)]
pub struct UserPath(pub Result<UserId, FieldError>);

/// The emoji at `{emoji}`, or what is wrong with it: told only to those who may know that the conversation exists.
#[derive(Clone, Debug)]
pub struct EmojiPath(pub Result<Emoji, FieldFault>);

/// What is shared, at `{type}/{id}`, or what is wrong with it.
#[derive(Clone, Debug)]
pub struct SharePath(pub Result<Share, FieldError>);

/// The text at `{client_id}`.
#[derive(Clone, Debug)]
pub struct ClientIdPath(pub String);

/// The picture at `{id}`.
#[derive(Clone, Copy, Debug)]
pub struct MediaPath(pub Uuid);

async fn param(parts: &mut Parts, state: &AppState, name: &str) -> Result<String, Problem> {
    // Refused when percent-encoding hides what is no UTF-8; nothing has such a name.
    let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| Problem::not_found())?;
    params.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_owned()).ok_or_else(Problem::not_found)
}

impl FromRequestParts<AppState> for ConversationPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let text = param(parts, state, "id").await?;
        ConversationId::parse(&text).map(Self).ok_or_else(Problem::not_found)
    }
}

impl FromRequestParts<AppState> for SeqPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let text = param(parts, state, "seq").await?;
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        let seq = text.parse().ok().filter(|seq| digits && (1..=INTEGER_MAX).contains(seq));
        seq.map(Self).ok_or_else(Problem::not_found)
    }
}

impl FromRequestParts<AppState> for UserPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let text = param(parts, state, "user_id").await?;
        Ok(Self(UserId::parse(&text).map_err(|fault| fault.of("user_id"))))
    }
}

impl FromRequestParts<AppState> for EmojiPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        Ok(Self(Emoji::parse(&param(parts, state, "emoji").await?)))
    }
}

impl FromRequestParts<AppState> for SharePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let (kind, id) = (param(parts, state, "type").await?, param(parts, state, "id").await?);
        Ok(Self(Share::parse(&kind, &id)))
    }
}

impl FromRequestParts<AppState> for ClientIdPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        param(parts, state, "client_id").await.map(Self)
    }
}

impl FromRequestParts<AppState> for MediaPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let text = param(parts, state, "id").await?;
        // Only as it was given out.
        Uuid::try_parse(&text).ok().filter(|id| id.to_string() == text).map(Self).ok_or_else(Problem::not_found)
    }
}
