//! Makes HS256 tokens as a host application would: for trying things, for `seqline dev`, for tests.

use jsonwebtoken::{EncodingKey, Header};
use serde::Serialize;

use super::keyring::KeyError;

/// What a token says. Times in seconds since 1970.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Claims {
    /// User id.
    pub sub: String,
    /// Expires at.
    pub exp: i64,
    /// Made at.
    pub iat: i64,
    /// Further rights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Name shown to others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Issuer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iss: Option<String>,
    /// Audience.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aud: Option<String>,
}

/// A token signed with this secret.
///
/// # Errors
/// When the secret cannot be used.
pub fn mint(secret: &str, claims: &Claims) -> Result<String, KeyError> {
    let key = EncodingKey::from_secret(secret.as_bytes()).map_err(|_| KeyError::Secret(1))?;
    jsonwebtoken::encode(&Header::default(), claims, &key).map_err(|_| KeyError::Secret(1))
}
