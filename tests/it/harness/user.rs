//! Users of the host application: a name and the token that the application signed for it.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// The secret with which fleets of tests check tokens.
pub const SECRET: &str = "a secret of tests that has at least 32 bytes";

/// A user with a valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user id.
    pub id: String,
    /// The token.
    pub token: String,
}

impl User {
    /// A user whose token is good for an hour.
    pub fn new(id: impl Into<String>) -> Self {
        let id = id.into();
        let token = token(&json!({"sub": id, "exp": now_s() + 3_600}));
        Self { id, token }
    }

    /// A user whose token has these claims beside `sub` and `exp`, or instead of them.
    pub fn with_claims(id: impl Into<String>, claims: &Value) -> Self {
        let id = id.into();
        let mut all = json!({"sub": id, "exp": now_s() + 3_600});
        for (name, value) in claims.as_object().unwrap() {
            all[name] = value.clone();
        }
        Self { token: token(&all), id }
    }

    /// The host application's own server.
    pub fn service() -> Self {
        Self::with_claims("host-application", &json!({"scope": "service"}))
    }

    /// A number of users, `user-0` and so on.
    pub fn many(count: usize) -> Vec<Self> {
        (0..count).map(|number| Self::new(format!("user-{number}"))).collect()
    }
}

/// An HS256 token with exactly these claims, signed with [`SECRET`].
pub fn token(claims: &Value) -> String {
    token_with(&jsonwebtoken::Header::default(), claims, SECRET)
}

/// A token with this header, signed with this HS256 secret.
pub fn token_with(header: &jsonwebtoken::Header, claims: &Value, secret: &str) -> String {
    jsonwebtoken::encode(header, claims, &jsonwebtoken::EncodingKey::from_secret(secret.as_bytes()).unwrap()).unwrap()
}

/// Seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
