//! One token: which key it claims, whether that key signed it, and what it says.
//!
//! The algorithm is bound to the key, never taken from the token: a public key read from a JWKS verifies one asymmetric algorithm
//! and nothing else, a secret verifies HS256 and nothing else. So neither `alg: none` nor an HMAC made with a public key can pass.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation};
use serde::Deserialize;
use serde_json::Value;

use super::caller::{Caller, LEEWAY_MS, Scopes};
use crate::domain::ids::{ID_BYTES_MAX, Millis, UserId};

/// Longest token that is looked at, in bytes.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Why a token proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// There is none.
    #[error("no token")]
    Missing,
    /// It is not a token, or signed in a way that is not accepted.
    #[error("not a token that is accepted here")]
    Malformed,
    /// No key of ours made the signature.
    #[error("the signature does not hold")]
    Signature,
    /// It names a key that is not known.
    #[error("its key is not known")]
    UnknownKey,
    /// The keys could not be loaded yet, so nothing can be said.
    #[error("the key set is away")]
    KeysAway,
    /// It was good once.
    #[error("expired")]
    Expired,
    /// A claim is missing or cannot be accepted.
    #[error("claim {0} is missing or cannot be accepted")]
    Claim(&'static str),
}

impl TokenFault {
    /// The metric label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::Signature => "signature",
            Self::UnknownKey | Self::KeysAway => "unknown_key",
            Self::Expired => "expired",
            Self::Claim(_) => "claims",
        }
    }
}

/// What issuer and audience a token must name.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// The issuer, when configured.
    pub issuer: Option<String>,
    /// The audience, when configured.
    pub audience: Option<String>,
}

/// Reads the head of a token, which is not proven yet.
///
/// # Errors
/// `Malformed` when it is none, or names an algorithm other than HS256, RS256, ES256 and EdDSA.
pub fn read_header(token: &str) -> Result<Header, TokenFault> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenFault::Malformed);
    }
    let header = jsonwebtoken::decode_header(token).map_err(|_| TokenFault::Malformed)?;
    match header.alg {
        Algorithm::HS256 | Algorithm::RS256 | Algorithm::ES256 | Algorithm::EdDSA => Ok(header),
        _ => Err(TokenFault::Malformed),
    }
}

/// Proves a token against one key, whose algorithm the key itself decides.
///
/// # Errors
/// See [`TokenFault`]; `Signature` means that another key may still fit.
pub fn prove(token: &str, algorithm: Algorithm, key: &DecodingKey, expected: &Expected, now: Millis) -> Result<Caller, TokenFault> {
    let mut validation = Validation::new(algorithm);
    // Times, issuer and audience are checked below, by our own clock and with one leeway.
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation.required_spec_claims.clear();
    let data = jsonwebtoken::decode::<Claims>(token, key, &validation).map_err(|error| match error.kind() {
        ErrorKind::InvalidSignature | ErrorKind::InvalidAlgorithm => TokenFault::Signature,
        ErrorKind::Json(_) => TokenFault::Claim("set"),
        _ => TokenFault::Malformed,
    })?;
    data.claims.accept(expected, now)
}

/// The claims that mean something here. Those about the profile are passed over when they are no text.
#[derive(Deserialize)]
struct Claims {
    sub: Option<String>,
    exp: Option<Value>,
    nbf: Option<Value>,
    iss: Option<Value>,
    aud: Option<Value>,
    scope: Option<Value>,
    name: Option<Value>,
    picture: Option<Value>,
    device: Option<Value>,
}

impl Claims {
    fn accept(self, expected: &Expected, now: Millis) -> Result<Caller, TokenFault> {
        let exp = self.exp.as_ref().and_then(numeric_date).ok_or(TokenFault::Claim("exp"))?;
        if now >= exp.saturating_add(LEEWAY_MS) {
            return Err(TokenFault::Expired);
        }
        if let Some(nbf) = self.nbf {
            let from = numeric_date(&nbf).ok_or(TokenFault::Claim("nbf"))?;
            if now < from.saturating_sub(LEEWAY_MS) {
                return Err(TokenFault::Claim("nbf"));
            }
        }
        if let Some(issuer) = &expected.issuer
            && self.iss.as_ref().and_then(Value::as_str) != Some(issuer)
        {
            return Err(TokenFault::Claim("iss"));
        }
        if let Some(audience) = &expected.audience {
            let named = match &self.aud {
                Some(Value::String(one)) => one == audience,
                Some(Value::Array(many)) => many.iter().any(|one| one.as_str() == Some(audience)),
                _ => false,
            };
            if !named {
                return Err(TokenFault::Claim("aud"));
            }
        }
        let user = self.sub.as_deref().and_then(|sub| UserId::parse(sub).ok()).ok_or(TokenFault::Claim("sub"))?;
        let device = match self.device {
            None | Some(Value::Null) => None,
            Some(Value::String(device)) if is_device(&device) => Some(device),
            Some(_) => return Err(TokenFault::Claim("device")),
        };
        Ok(Caller {
            user,
            scopes: self.scope.as_ref().and_then(Value::as_str).map(Scopes::parse).unwrap_or_default(),
            device,
            expires_at: exp,
            name: text(self.name),
            picture: text(self.picture),
        })
    }
}

/// Whether a text may name a device: 1 to 128 bytes without control characters.
#[must_use]
pub fn is_device(text: &str) -> bool {
    !text.is_empty() && text.len() <= ID_BYTES_MAX && !text.chars().any(char::is_control)
}

fn text(claim: Option<Value>) -> Option<String> {
    match claim {
        Some(Value::String(text)) if !text.contains('\0') => Some(text),
        _ => None,
    }
}

/// Seconds since 1970, with a fraction or without (RFC 7519, NumericDate), in milliseconds.
#[allow(clippy::cast_possible_truncation, reason = "the range is checked; parts of a millisecond do not matter")]
fn numeric_date(value: &Value) -> Option<Millis> {
    if let Some(seconds) = value.as_i64() {
        return Some(seconds.saturating_mul(1000));
    }
    let seconds = value.as_f64()?;
    (seconds.abs() < 1e12).then_some((seconds * 1000.0) as Millis)
}
