//! All keys that may have signed a token: HS256 secrets from the settings, public keys from a JWKS that may change while we run.

use std::sync::Arc;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};

use super::caller::Caller;
use super::key_source::KeySource;
use super::token::{self, Expected, TokenFault};
use crate::domain::ids::Millis;

/// Shortest HS256 secret in bytes; a shorter one could be guessed offline from any one token (RFC 7518, 3.2).
pub const SECRET_BYTES_MIN: usize = 32;
/// Most keys that are taken from one set; more is a mistake.
const SET_KEYS_MAX: usize = 100;

/// A public key, bound to the one algorithm it verifies.
pub struct PublicKey {
    kid: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// Why keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A secret of the settings.
    #[error("secret number {0} cannot be used")]
    Secret(usize),
    /// The set could not be fetched.
    #[error("the key set cannot be fetched: {0}")]
    Fetch(String),
    /// The set is not one.
    #[error("the key set cannot be read: {0}")]
    Unreadable(String),
}

/// What proves callers.
pub struct Keyring {
    secrets: Vec<DecodingKey>,
    source: Option<Arc<KeySource>>,
    expected: Expected,
}

impl Keyring {
    /// A keyring of these secrets and this source of public keys.
    ///
    /// # Errors
    /// When a secret cannot be used.
    pub fn new<S: AsRef<str>>(secrets: &[S], source: Option<Arc<KeySource>>, expected: Expected) -> Result<Self, KeyError> {
        let secrets = secrets
            .iter()
            .enumerate()
            .map(|(i, secret)| DecodingKey::from_secret(secret.as_ref().as_bytes()).map_err(|_| KeyError::Secret(i + 1)))
            .collect::<Result<_, _>>()?;
        Ok(Self { secrets, source, expected })
    }

    /// Proves a token at the moment `now`. A key id that is not known makes the source look again, once for all who ask.
    ///
    /// # Errors
    /// See [`TokenFault`].
    pub async fn prove(&self, token: &str, now: Millis) -> Result<Caller, TokenFault> {
        let header = token::read_header(token)?;
        if header.alg == Algorithm::HS256 {
            return self.prove_shared(token, now);
        }
        let Some(source) = &self.source else { return Err(TokenFault::UnknownKey) };
        let kid = header.kid.as_deref();
        match self.prove_public(&source.keys(), token, header.alg, kid, now) {
            // A token without a key id says with a wrong signature what others say with an unknown id.
            Err(TokenFault::UnknownKey) => {}
            Err(TokenFault::Signature) if kid.is_none() => {}
            proven => return proven,
        }
        source.look_again().await;
        if !source.is_loaded() {
            return Err(TokenFault::KeysAway);
        }
        self.prove_public(&source.keys(), token, header.alg, kid, now)
    }

    fn prove_shared(&self, token: &str, now: Millis) -> Result<Caller, TokenFault> {
        let mut fault = TokenFault::UnknownKey;
        for key in &self.secrets {
            match token::prove(token, Algorithm::HS256, key, &self.expected, now) {
                Err(TokenFault::Signature) => fault = TokenFault::Signature,
                proven => return proven,
            }
        }
        Err(fault)
    }

    fn prove_public(
        &self,
        keys: &[PublicKey],
        token: &str,
        algorithm: Algorithm,
        kid: Option<&str>,
        now: Millis,
    ) -> Result<Caller, TokenFault> {
        let mut fault = TokenFault::UnknownKey;
        // A key without an id fits any token; a token without an id is tried with every key of its algorithm.
        let fits = |key: &&PublicKey| key.algorithm == algorithm && (kid.is_none() || key.kid.is_none() || key.kid.as_deref() == kid);
        for key in keys.iter().filter(fits) {
            match token::prove(token, key.algorithm, &key.key, &self.expected, now) {
                Err(TokenFault::Signature) => fault = TokenFault::Signature,
                proven => return proven,
            }
        }
        Err(fault)
    }
}

/// Reads a JWKS. Keys that are for something else (encryption, other algorithms, shared secrets) are passed over.
///
/// # Errors
/// When the text is no JWKS, or no key of it can be used.
pub fn read_key_set(json: &[u8]) -> Result<Vec<PublicKey>, KeyError> {
    let set: JwkSet = serde_json::from_slice(json).map_err(|error| KeyError::Unreadable(error.to_string()))?;
    if set.keys.len() > SET_KEYS_MAX {
        return Err(KeyError::Unreadable(format!("more than {SET_KEYS_MAX} keys")));
    }
    let keys: Vec<PublicKey> = set.keys.iter().filter_map(public_key).collect();
    if keys.is_empty() {
        return Err(KeyError::Unreadable("no RS256, ES256 or EdDSA key for signatures in it".into()));
    }
    Ok(keys)
}

fn public_key(jwk: &Jwk) -> Option<PublicKey> {
    if jwk.common.public_key_use.as_ref().is_some_and(|u| *u != PublicKeyUse::Signature) {
        return None;
    }
    if jwk.common.key_operations.as_ref().is_some_and(|ops| !ops.contains(&KeyOperations::Verify)) {
        return None;
    }
    let (algorithm, named) = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::EllipticCurve(p) if p.curve == EllipticCurve::P256 => (Algorithm::ES256, KeyAlgorithm::ES256),
        AlgorithmParameters::OctetKeyPair(p) if p.curve == EllipticCurve::Ed25519 => (Algorithm::EdDSA, KeyAlgorithm::EdDSA),
        _ => return None,
    };
    if jwk.common.key_algorithm.is_some_and(|a| a != named) {
        return None;
    }
    let key = DecodingKey::from_jwk(jwk).ok()?;
    Some(PublicKey { kid: jwk.common.key_id.clone(), algorithm, key })
}
