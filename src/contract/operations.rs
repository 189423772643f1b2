//! What the second port answers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of one thing that a process needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Dependency {
    /// Whether it answers and may be used.
    pub ok: bool,
    /// What is wrong, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Answer of `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// Whether requests should be sent here.
    pub ready: bool,
    /// Whether the process is on its way out.
    pub draining: bool,
    /// Redis: without it nothing can be accepted.
    pub redis: Dependency,
    /// Postgres: while it is away warm conversations go on, so it does not decide readiness.
    pub postgres: Dependency,
}
