//! Saying who we are to a push service (VAPID, RFC 8292): a key pair made once and kept, and a token for each service, signed with it. A
//! subscription is bound to the public key that it was made with, so a new key pair ends all subscriptions.

use std::path::Path;

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey};
use aws_lc_rs::encoding::{AsBigEndian, EcPrivateKeyBin};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quick_cache::sync::Cache;
use serde_json::json;

use crate::domain::ids::Millis;

/// For how long a token is good, in seconds: half of what is allowed.
const GOOD_S: i64 = 12 * 3_600;
/// For how long one is used, in ms: clocks may disagree, and calls take a while.
const USED_MS: i64 = 8 * 3_600_000;
/// Services of which the token is remembered.
const AUDIENCES_MAX: usize = 1_000;
/// Bytes of a private key.
const PRIVATE_BYTES: usize = 32;

/// A key pair that cannot be used; says why, and nothing of the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct VapidFault(pub String);

fn fault(text: &str) -> VapidFault {
    VapidFault(text.to_owned())
}

/// The key pair.
pub struct VapidKey {
    pair: EcdsaKeyPair,
    public: String,
}

impl std::fmt::Debug for VapidKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VapidKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl VapidKey {
    /// Makes a private key, in base64url.
    ///
    /// # Errors
    /// When this machine has no randomness.
    pub fn make() -> Result<String, VapidFault> {
        let key = PrivateKey::generate(&ECDH_P256).map_err(|_| fault("no key can be made"))?;
        let bytes: EcPrivateKeyBin<'_> = key.as_be_bytes().map_err(|_| fault("no key can be made"))?;
        Ok(URL_SAFE_NO_PAD.encode(bytes.as_ref()))
    }

    /// Reads a private key: base64url of its 32 bytes, or the path of a file that holds nothing else.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn read(text: &str) -> Result<Self, VapidFault> {
        let text = text.trim();
        if text.contains(['/', '.']) {
            let kept = std::fs::read_to_string(Path::new(text)).map_err(|error| VapidFault(format!("cannot be read: {error}")))?;
            return Self::parse(kept.trim());
        }
        Self::parse(text)
    }

    fn parse(text: &str) -> Result<Self, VapidFault> {
        let wrong = || fault("is no private key of P-256 (base64url of 32 bytes); `seqline vapid` makes one");
        let bytes =
            URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok().filter(|bytes| bytes.len() == PRIVATE_BYTES).ok_or_else(wrong)?;
        let private = PrivateKey::from_private_key(&ECDH_P256, &bytes).map_err(|_| wrong())?;
        let public = private.compute_public_key().map_err(|_| wrong())?;
        let pair = EcdsaKeyPair::from_private_key_and_public_key(&ECDSA_P256_SHA256_FIXED_SIGNING, &bytes, public.as_ref())
            .map_err(|_| wrong())?;
        Ok(Self { pair, public: URL_SAFE_NO_PAD.encode(public.as_ref()) })
    }

    /// The public key as browsers take it: base64url of the uncompressed point.
    #[must_use]
    pub fn public_text(&self) -> String {
        self.public.clone()
    }

    /// A token for a push service, good until `exp` (seconds since 1970).
    fn token(&self, audience: &str, subject: Option<&str>, exp: i64) -> Result<String, VapidFault> {
        let header = json!({"typ": "JWT", "alg": "ES256"});
        let mut claims = json!({"aud": audience, "exp": exp});
        if let Some(subject) = subject {
            claims["sub"] = subject.into();
        }
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).map_err(|_| fault("a token cannot be signed"))?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref())))
    }
}

/// Makes the header `Authorization` for push services, each token for many calls.
pub struct Vapid {
    key: VapidKey,
    subject: Option<String>,
    known: Cache<String, (Millis, String)>,
}

impl std::fmt::Debug for Vapid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vapid").field("key", &self.key).field("subject", &self.subject).finish_non_exhaustive()
    }
}

impl Vapid {
    /// With a key pair and whom the services may write to.
    #[must_use]
    pub fn new(key: VapidKey, subject: Option<String>) -> Self {
        Self { key, subject, known: Cache::new(AUDIENCES_MAX) }
    }

    /// The header's value for a push service, named by its origin.
    ///
    /// # Errors
    /// When nothing can be signed.
    pub fn authorization(&self, audience: &str, now: Millis) -> Result<String, VapidFault> {
        // By the clock that is written into it: one that was made while the clock was wrong is of no use when it is right.
        if let Some((made_at, header)) = self.known.get(audience)
            && (0..USED_MS).contains(&now.saturating_sub(made_at))
        {
            return Ok(header);
        }
        let token = self.key.token(audience, self.subject.as_deref(), now.div_euclid(1_000) + GOOD_S)?;
        let header = format!("vapid t={token}, k={}", self.key.public);
        self.known.insert(audience.to_owned(), (now, header.clone()));
        Ok(header)
    }
}

/// Whether a contact is one that a push service could write to: an address or a page, and none that stands in examples.
///
/// # Errors
/// A sentence part.
pub fn check_subject(subject: &str) -> Result<(), &'static str> {
    let host = if let Some(address) = subject.strip_prefix("mailto:") {
        let (name, host) = address.rsplit_once('@').ok_or("must hold an address after mailto:")?;
        if name.is_empty() || subject.contains(char::is_whitespace) || subject.contains(['<', '>', '?']) {
            return Err("must hold one plain address after mailto:");
        }
        host.to_owned()
    } else {
        let url = url::Url::parse(subject).map_err(|_| "must be mailto: with an address, or an https URL")?;
        match (url.scheme(), url.host()) {
            ("https", Some(url::Host::Domain(host))) => host.to_owned(),
            _ => return Err("must be mailto: with an address, or an https URL of a host with a name"),
        }
    };
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let labels: Vec<&str> = host.split('.').collect();
    if labels.len() < 2 || labels.iter().any(|label| label.is_empty()) {
        return Err("names no host that others could reach; push services want to know whom to write to when something is wrong");
    }
    let last = labels.last().copied().unwrap_or_default();
    let placeholder = matches!(last, "example" | "test" | "invalid" | "localhost" | "local" | "internal" | "localdomain" | "lan" | "home")
        || matches!(&labels[labels.len() - 2..], ["example", "com" | "org" | "net"]);
    if placeholder { Err("is a placeholder; push services want to know whom to write to when something is wrong") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_token_is_signed_by_the_key_that_goes_with_it() {
        let vapid = Vapid::new(VapidKey::read(&VapidKey::make().unwrap()).unwrap(), Some("mailto:ops@chat.app".into()));
        let header = vapid.authorization("https://push.app", 1_700_000_000_000).unwrap();
        let (token, key) = header.strip_prefix("vapid t=").unwrap().split_once(", k=").unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let point = URL_SAFE_NO_PAD.decode(key).unwrap();
        assert_eq!((point.len(), point[0]), (65, 4));
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
        public.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
        let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(signed.split_once('.').unwrap().1).unwrap()).unwrap();
        assert_eq!(claims, json!({"aud": "https://push.app", "exp": 1_700_000_000 + GOOD_S, "sub": "mailto:ops@chat.app"}));
        assert_eq!(vapid.authorization("https://push.app", 1_700_000_100_000).unwrap(), header, "it is used again");
        assert_ne!(vapid.authorization("https://other.app", 1_700_000_000_000).unwrap(), header);
        for clock_was_set in [1_700_000_000_000 + USED_MS, 1_700_000_000_000 - 1] {
            assert_ne!(vapid.authorization("https://push.app", clock_was_set).unwrap(), header);
            assert_eq!(vapid.authorization("https://push.app", 1_700_000_000_000).unwrap().len(), header.len());
        }
    }

    #[test]
    fn a_key_is_read_from_its_text_or_a_file_and_nothing_else_is_one() {
        let text = VapidKey::make().unwrap();
        let public = VapidKey::read(&text).unwrap().public_text();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vapid-key");
        std::fs::write(&path, format!("{text}\n")).unwrap();
        assert_eq!(VapidKey::read(path.to_str().unwrap()).unwrap().public_text(), public);
        // The key of RFC 8291's example.
        let known = VapidKey::read("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw").unwrap();
        assert_eq!(known.public_text(), "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8");
        for wrong in [
            "",
            "abc",
            &text[..42],
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            "/no/such/file",
            "not base64 at all, not base64 at all, not b",
        ] {
            let error = VapidKey::read(wrong).unwrap_err().to_string();
            assert!(wrong.len() < 5 || !error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn contacts_are_real_ones() {
        for good in ["mailto:ops@chat.app", "https://chat.app/contact", "mailto:a.b+push@mail.chat.co.uk"] {
            assert_eq!(check_subject(good), Ok(()), "{good}");
        }
        for bad in [
            "mailto:x@localhost",
            "mailto:you@example.com",
            "mailto:admin@example.org",
            "mailto:a@b.invalid",
            "mailto:a@sub.example.net",
            "mailto:x",
            "mailto:@chat.app",
            "ops@chat.app",
            "http://chat.app",
            "https://localhost/x",
            "https://127.0.0.1",
            "https://x.test",
            "mailto:a b@chat.app",
            "mailto:<a@chat.app>",
            "",
            "tel:1",
        ] {
            assert!(check_subject(bad).is_err(), "{bad}");
        }
    }
}
