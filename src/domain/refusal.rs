//! Why the product says no. No status codes here: `api/respond.rs` gives each refusal its own.

use std::borrow::Cow;

use super::rate_limit::LimitState;

/// What is wrong with a value whose field the caller knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldFault {
    /// A sentence part for a person, e.g. `must not be empty`.
    pub fault: Cow<'static, str>,
}

impl FieldFault {
    /// A fault from its sentence part.
    pub fn new(fault: impl Into<Cow<'static, str>>) -> Self {
        Self { fault: fault.into() }
    }

    /// Names the field it was found in.
    #[must_use]
    pub fn of(self, field: impl Into<Cow<'static, str>>) -> FieldError {
        FieldError { field: field.into(), fault: self.fault }
    }
}

/// A field of a request that cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field's path in the request, e.g. `body` or `members[3]`.
    pub field: Cow<'static, str>,
    /// A sentence part for a person.
    pub fault: Cow<'static, str>,
}

impl FieldError {
    /// An error from a field and a sentence part.
    pub fn new(field: impl Into<Cow<'static, str>>, fault: impl Into<Cow<'static, str>>) -> Self {
        Self { field: field.into(), fault: fault.into() }
    }
}

/// Every way in which a well-formed request can be turned down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such thing, or the caller is no member: the two are never told apart.
    #[error("not found")]
    NotFound,
    /// A part of the product that is not switched on here; what is missing, a clean sentence for a person.
    #[error("switched off")]
    SwitchedOff(&'static str),
    /// A member without the right.
    #[error("forbidden: {0}")]
    Forbidden(&'static str),
    /// The host application does not want it; its reason, a clean sentence for a person.
    #[error("refused by the host application")]
    RefusedByHost(String),
    /// A user writes where only the service may.
    #[error("read only")]
    ReadOnly,
    /// The same key with other content.
    #[error("idempotency conflict")]
    IdempotencyConflict,
    /// The message was deleted.
    #[error("deleted")]
    Deleted,
    /// The group has ended.
    #[error("dissolved")]
    Dissolved,
    /// A field cannot be accepted.
    #[error("{}: {}", .0.field, .0.fault)]
    Invalid(FieldError),
    /// The bytes are of no kind that is taken.
    #[error("unsupported media")]
    UnsupportedMedia,
    /// The upload has more bytes than this.
    #[error("larger than {0} bytes")]
    TooLarge(u64),
    /// A query parameter cannot be accepted.
    #[error("{}: {}", .0.field, .0.fault)]
    InvalidParameter(FieldError),
    /// A position or page cursor that nobody gave out.
    #[error("invalid cursor")]
    InvalidCursor,
    /// Too many of something; what to wait for stands in it.
    #[error("rate limited for {} s", .0.reset_s)]
    RateLimited(LimitState),
    /// A store is away or the conversation is closed for a moment; nothing was half done.
    #[error("unavailable: {0}")]
    Unavailable(&'static str),
    /// A high-water mark is reached; nothing was done.
    #[error("overloaded")]
    Overloaded,
}

impl From<FieldError> for Refusal {
    fn from(error: FieldError) -> Self {
        Self::Invalid(error)
    }
}
