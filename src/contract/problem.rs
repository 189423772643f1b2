//! Errors on the wire: RFC 9457 problems, each with one of the contract's codes.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::rate_limit::LimitState;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $status:literal, $title:literal;)*) => {
        /// What went wrong, as one word for programs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Code { $($(#[$doc])* #[serde(rename = $word)] $name,)* }

        // By hand: the derive reads `rename` only where it is written out, not where a macro puts it, and would list the variants' names.
        impl utoipa::PartialSchema for Code {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .description(Some("What went wrong, as one word for programs."))
                    .enum_values(Some(Self::ALL.iter().map(|code| code.as_str())))
                    .into()
            }
        }

        impl ToSchema for Code {}

        impl Code {
            /// Every code, in the contract's order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The word.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// The HTTP status it is always answered with.
            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// A few words for people, always the same for a code.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

codes! {
    /// The body is not JSON.
    MalformedJson = "malformed_json", 400, "The body cannot be read";
    /// A position or page cursor that nobody gave out.
    InvalidCursor = "invalid_cursor", 400, "The cursor cannot be read";
    /// A query parameter or header cannot be accepted.
    InvalidParameter = "invalid_parameter", 400, "A parameter cannot be accepted";
    /// No proof of identity, or one that does not hold.
    Unauthenticated = "unauthenticated", 401, "Who are you?";
    /// The proof was good once.
    TokenExpired = "token_expired", 401, "The token has expired";
    /// A member without the right.
    Forbidden = "forbidden", 403, "Not allowed";
    /// Only the service writes here.
    ReadOnly = "read_only", 403, "This conversation is read only";
    /// No such thing, or not for the caller.
    NotFound = "not_found", 404, "Not found";
    /// The address exists, the method does not.
    MethodNotAllowed = "method_not_allowed", 405, "Method not allowed";
    /// No form that the caller accepts.
    NotAcceptable = "not_acceptable", 406, "Not acceptable";
    /// Same key, other content.
    IdempotencyConflict = "idempotency_conflict", 409, "The key was used for something else";
    /// The message was deleted.
    Deleted = "deleted", 409, "The message was deleted";
    /// The group has ended.
    Dissolved = "dissolved", 410, "The group has ended";
    /// The body is over the limit.
    TooLarge = "too_large", 413, "The body is too large";
    /// The body is not in a form that is taken here.
    UnsupportedMediaType = "unsupported_media_type", 415, "Unsupported media type";
    /// A field cannot be accepted.
    InvalidField = "invalid_field", 422, "A field cannot be accepted";
    /// A field that nobody knows.
    UnknownField = "unknown_field", 422, "A field is not known";
    /// Too many requests.
    RateLimited = "rate_limited", 429, "Too many requests";
    /// Something that is needed is away.
    Unavailable = "unavailable", 503, "Unavailable for a moment";
    /// A high-water mark is reached.
    Overloaded = "overloaded", 503, "Overloaded";
}

/// An error answer, `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A URN made of the code.
    pub r#type: Cow<'static, str>,
    /// A few words for people, always the same for a code.
    pub title: Cow<'static, str>,
    /// The HTTP status.
    pub status: u16,
    /// One word for programs.
    pub code: Code,
    /// What happened this time, for people; holds no secret, SQL or key name.
    pub detail: Cow<'static, str>,
    /// The field or parameter concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<Cow<'static, str>>,
    /// Seconds for the header `Retry-After`; not part of the body.
    #[serde(skip)]
    pub retry_after_s: Option<u32>,
    /// For the headers `RateLimit` and `RateLimit-Policy`; not part of the body.
    // Boxed: few problems have one, and every handler carries a problem in its result.
    #[serde(skip)]
    pub limit: Option<Box<LimitState>>,
}

impl Problem {
    /// A problem with this code and this sentence; temporary ones ask for another try after a second.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            r#type: Cow::Owned(format!("urn:seqline:problem:{}", code.as_str())),
            title: code.title().into(),
            status: code.status(),
            code,
            detail: detail.into(),
            field: None,
            retry_after_s: matches!(code.status(), 429 | 503).then_some(1),
            limit: None,
        }
    }

    /// The same problem, naming a field.
    #[must_use]
    pub fn of_field(mut self, field: impl Into<Cow<'static, str>>) -> Self {
        self.field = Some(field.into());
        self
    }
}
