//! Old messages on their way in: read line by line or as one object, proven whole before anything of them is written.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::response::Response;
use http_body_util::BodyExt;

use super::AppState;
use super::paging::NoQuery;
use super::respond::{Code, Problem, ok};
use super::strict_json::parse;
use crate::actions::import_conversation::{Import, ImportRefusal, import_conversation};
use crate::contract::import::{ImportBody, ImportHead, ImportMessage, ImportReport};
use crate::domain::import::{ImportTarget, OldMessage};
use crate::domain::refusal::{FieldError, Refusal};
use crate::identity::Caller;

/// Longest pause between two parts of a body.
const PART_WITHIN: Duration = Duration::from_secs(30);
/// The line of the first message, counted from 1: the conversation stands before it.
const FIRST_LINE: usize = 2;

/// How a message is named in a refusal.
#[derive(Clone, Copy)]
enum Form {
    Lines,
    Object,
}

impl Form {
    fn place(self, index: usize) -> String {
        match self {
            Self::Lines => format!("lines[{}]", index + FIRST_LINE),
            Self::Object => format!("messages[{index}]"),
        }
    }

    fn refused(self, index: usize, error: &FieldError) -> Problem {
        Problem::invalid_field(FieldError::new(format!("{}.{}", self.place(index), error.field), error.fault.clone()))
    }
}

/// Brings one conversation's old messages in: sorted by time and old id, numbered above its head, each old id kept as `client_id`, replies
/// pointing where they pointed. Repeated it adds nothing, cut off it goes on. Sends get 503 meanwhile. Members get one
/// `conversation.imported` and count as having read everything; who wrote old messages need not be a member.
#[utoipa::path(post, path = "/v1/import", tag = "service",
    request_body(description = "`application/json`, or `application/x-ndjson`: `{\"conversation\":{…}}` on the first line, a message on each further one; at most 64 MiB (a setting)",
        content((ImportBody = "application/json"), (ImportMessage = "application/x-ndjson"))),
    responses((status = 200, body = ImportReport, description = "Everything stands"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused; 422 names the line or the message, and nothing was written")))]
pub async fn post_import(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let service = caller.scopes.service;
    if !service {
        return Err(Refusal::Forbidden("only the service brings old messages in").into());
    }
    let form = form_of(&headers)?;
    let (target, messages) = match form {
        Form::Lines => read_lines(&state, body).await?,
        Form::Object => {
            let mut whole = Vec::new();
            receive(&state, body, |part| {
                whole.extend_from_slice(part);
                Ok(())
            })
            .await?;
            read_object(&whole)?
        }
    };
    // Not cut off with the request: what was begun is finished.
    let stores = Arc::clone(&state.stores);
    let import = Import { by: caller.user, target, messages };
    let running = tokio::spawn(async move { import_conversation(&stores, service, &import).await });
    let done = match running.await {
        Ok(Ok(done)) => done,
        Ok(Err(ImportRefusal::Message(index, error))) => return Err(form.refused(index, &error)),
        Ok(Err(ImportRefusal::Refused(refusal))) => return Err(refusal.into()),
        Err(_) => return Err(Problem::unavailable()),
    };
    Ok(ok(&ImportReport {
        conversation_id: done.conversation.to_string(),
        imported: done.imported,
        skipped: done.skipped,
        first_seq: done.seqs.map(|(first, _)| first),
        last_seq: done.seqs.map(|(_, last)| last),
    }))
}

fn form_of(headers: &HeaderMap) -> Result<Form, Problem> {
    let value = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let media_type = value.split(';').next().unwrap_or_default().trim();
    let plain = headers.get_all(CONTENT_ENCODING).iter().all(|v| v.as_bytes().eq_ignore_ascii_case(b"identity"));
    match media_type.to_ascii_lowercase().as_str() {
        "application/json" if plain => Ok(Form::Object),
        "application/x-ndjson" | "application/ndjson" if plain => Ok(Form::Lines),
        _ => Err(Problem::new(Code::UnsupportedMediaType, "Send 'application/json' or 'application/x-ndjson', not compressed.")),
    }
}

async fn receive(state: &AppState, mut body: Body, mut take: impl FnMut(&[u8]) -> Result<(), Problem>) -> Result<(), Problem> {
    let bytes_max = state.settings.import_bytes_max;
    let mut bytes = 0_usize;
    loop {
        let frame = match tokio::time::timeout(PART_WITHIN, body.frame()).await {
            Ok(None) => return Ok(()),
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => return Err(Problem::new(Code::MalformedJson, "The body did not arrive whole.")),
            Err(_) => return Err(Problem::new(Code::MalformedJson, "The body did not arrive in time.")),
        };
        let Some(part) = frame.data_ref() else { continue };
        bytes = bytes.saturating_add(part.len());
        if bytes > bytes_max {
            return Err(Problem::new(Code::TooLarge, format!("The body may have at most {bytes_max} bytes.")));
        }
        take(part)?;
    }
}

async fn read_lines(state: &AppState, body: Body) -> Result<(ImportTarget, Vec<OldMessage>), Problem> {
    let mut line: Vec<u8> = Vec::new();
    let mut target = None;
    let mut messages = Vec::new();
    let mut number = 0;
    let mut read = |line: &[u8]| -> Result<(), Problem> {
        number += 1;
        if target.is_none() {
            let head: ImportHead = parse(line).map_err(|problem| at_line(problem, number))?;
            target = Some(head.conversation.prove()?);
            return Ok(());
        }
        // Counted like any other, so that what is named is found in an editor too.
        let message: ImportMessage = parse(line).map_err(|problem| at_line(problem, number))?;
        messages.push(message.prove().map_err(|error| Form::Lines.refused(number - FIRST_LINE, &error))?);
        Ok(())
    };
    receive(state, body, |part| {
        let mut rest = part;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            line.extend_from_slice(&rest[..end]);
            read(&line)?;
            line.clear();
            rest = &rest[end + 1..];
        }
        line.extend_from_slice(rest);
        Ok(())
    })
    .await?;
    if !line.trim_ascii().is_empty() {
        read(&line)?;
    }
    let target = target.ok_or_else(|| Problem::invalid_field(FieldError::new("conversation", "is missing")))?;
    Ok((target, messages))
}

fn read_object(bytes: &[u8]) -> Result<(ImportTarget, Vec<OldMessage>), Problem> {
    let body: ImportBody = parse(bytes)?;
    let target = body.conversation.prove()?;
    let mut messages = Vec::with_capacity(body.messages.len());
    for (index, message) in body.messages.into_iter().enumerate() {
        messages.push(message.prove().map_err(|error| Form::Object.refused(index, &error))?);
    }
    Ok((target, messages))
}

/// Says in which line it was.
fn at_line(problem: Problem, number: usize) -> Problem {
    let field = match problem.field.as_deref() {
        Some(field) if !field.is_empty() => format!("lines[{number}].{field}"),
        _ => format!("lines[{number}]"),
    };
    Problem { detail: format!("Line {number}: {}", problem.detail).into(), ..problem }.of_field(field)
}
