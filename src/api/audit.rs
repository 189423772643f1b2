//! The state of a conversation in both stores, for moderators.

use axum::extract::State;
use axum::response::Response;

use super::AppState;
use super::paging::NoQuery;
use super::path::ConversationPath;
use super::respond::{Problem, ok};
use crate::actions::audit_conversations::{ConversationAudit, moderators_audit};
use crate::contract::audit as shape;
use crate::domain::audit::Code;
use crate::domain::ids::ConversationId;
use crate::identity::Caller;

/// Is it contiguous, are there duplicates, do Redis and Postgres agree? For moderators alone. What looks wrong is looked at for a
/// second, so that what is only under way is not told of.
#[utoipa::path(get, path = "/v1/audit/conversations/{id}", tag = "audit", params(("id" = String, Path)),
    responses((status = 200, body = shape::ConversationAudit, description = "Its state"), (status = "default", body = Problem, content_type = "application/problem+json", description = "Refused")))]
pub async fn get_audit(
    State(state): State<AppState>,
    caller: Caller,
    _: NoQuery,
    ConversationPath(id): ConversationPath,
) -> Result<Response, Problem> {
    let audit = moderators_audit(&state.stores, caller.scopes.admin, &id).await?;
    Ok(ok(&shown(&id, audit)))
}

fn shown(id: &ConversationId, audit: ConversationAudit) -> shape::ConversationAudit {
    let of = |codes: &'static [Code]| audit.findings.iter().filter(move |f| codes.contains(&f.code));
    let mut duplicates: Vec<u64> = of(&[Code::NumberTwice, Code::MessageTwice]).filter_map(|f| f.seq).collect();
    duplicates.dedup();
    shape::ConversationAudit {
        conversation_id: id.to_string(),
        head_seq: audit.head_seq,
        archived_to: audit.archived_to,
        contiguous: of(&[Code::Hole, Code::WindowHole]).next().is_none(),
        duplicates,
        findings: audit.findings.iter().map(shape::AuditFinding::from).collect(),
        backlog: audit.backlog,
        voids: audit.voids,
    }
}
