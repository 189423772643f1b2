//! Encrypting for one browser (RFC 8291, `aes128gcm` of RFC 8188): the push service carries it and can read none of it.
//!
//! ```text
//! salt, 16 bytes | record size, 4 | length of the key id, 1 | our one-time public key, 65 | ciphertext of (text, 0x02), tag, 16
//! ```

use std::sync::LazyLock;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{ECDH_P256, ParsedPublicKey, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::domain::refusal::FieldError;

/// Bytes of a public key, uncompressed.
pub const PUBLIC_BYTES: usize = 65;
/// Bytes of the secret that a browser shares with us.
pub const AUTH_BYTES: usize = 16;
/// What a body has beside its text, in bytes.
pub const OVERHEAD_BYTES: usize = 16 + 4 + 1 + PUBLIC_BYTES + 1 + 16;
/// Largest body that every push service takes, in bytes.
pub const BODY_BYTES_MAX: usize = 4_096;

/// Browsers leave the padding out; some libraries do not.
static BASE64URL: LazyLock<GeneralPurpose> = LazyLock::new(|| {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(&alphabet::URL_SAFE, config)
});

/// What a browser gave us to encrypt with.
#[derive(Clone, PartialEq, Eq)]
pub struct BrowserKeys {
    /// Its public key, a point of P-256, uncompressed.
    pub p256dh: Vec<u8>,
    /// The secret it shares with us.
    pub auth: Vec<u8>,
}

impl std::fmt::Debug for BrowserKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BrowserKeys").finish_non_exhaustive()
    }
}

/// Nothing can be encrypted for these keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot be encrypted")]
pub struct EncryptFault;

impl BrowserKeys {
    /// Proves what a browser's `PushSubscription` holds, both in base64url.
    ///
    /// # Errors
    /// Names `keys.p256dh` or `keys.auth`.
    pub fn parse(p256dh: &str, auth: &str) -> Result<Self, FieldError> {
        let decode = |text: &str| BASE64URL.decode(text).ok();
        let point = decode(p256dh).filter(|bytes| is_point(bytes));
        let p256dh = point.ok_or_else(|| FieldError::new("keys.p256dh", "must be a point of P-256: base64url of its 65 bytes"))?;
        let secret = decode(auth).filter(|bytes| bytes.len() == AUTH_BYTES);
        let auth = secret.ok_or_else(|| FieldError::new("keys.auth", "must be base64url of 16 bytes"))?;
        Ok(Self { p256dh, auth })
    }
}

/// Whether these bytes are an uncompressed point that lies on the curve.
fn is_point(bytes: &[u8]) -> bool {
    bytes.len() == PUBLIC_BYTES && bytes[0] == 4 && ParsedPublicKey::try_from(UnparsedPublicKey::new(&ECDH_P256, bytes)).is_ok()
}

/// Encrypts a text with a key and a salt that were never used before.
///
/// # Errors
/// When the keys are none, the text is too long for one record of 4,096 bytes, or this machine has no randomness.
pub fn encrypt(keys: &BrowserKeys, text: &[u8]) -> Result<Vec<u8>, EncryptFault> {
    let mut salt = [0; 16];
    rand::fill(&mut salt).map_err(|_| EncryptFault)?;
    let ours = PrivateKey::generate(&ECDH_P256).map_err(|_| EncryptFault)?;
    encrypt_with(keys, text, &ours, &salt)
}

fn encrypt_with(keys: &BrowserKeys, text: &[u8], ours: &PrivateKey, salt: &[u8; 16]) -> Result<Vec<u8>, EncryptFault> {
    if text.len() + OVERHEAD_BYTES > BODY_BYTES_MAX {
        return Err(EncryptFault);
    }
    let our_public = ours.compute_public_key().map_err(|_| EncryptFault)?;
    let mut info = b"WebPush: info\0".to_vec();
    info.extend_from_slice(&keys.p256dh);
    info.extend_from_slice(our_public.as_ref());
    let theirs = UnparsedPublicKey::new(&ECDH_P256, &keys.p256dh);
    let secret = agree(ours, theirs, EncryptFault, |shared| derive::<32>(&keys.auth, shared, &info))?;
    let key = derive::<16>(salt, &secret, b"Content-Encoding: aes128gcm\0")?;
    let nonce = derive::<12>(salt, &secret, b"Content-Encoding: nonce\0")?;
    let mut sealed = text.to_vec();
    sealed.push(2);
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).map_err(|_| EncryptFault)?);
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut sealed).map_err(|_| EncryptFault)?;
    let mut body = Vec::with_capacity(OVERHEAD_BYTES + text.len());
    body.extend_from_slice(salt);
    body.extend_from_slice(&4_096_u32.to_be_bytes());
    body.push(65);
    body.extend_from_slice(our_public.as_ref());
    body.extend_from_slice(&sealed);
    Ok(body)
}

/// A length that HKDF is asked for.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn derive<const N: usize>(salt: &[u8], secret: &[u8], info: &[u8]) -> Result<[u8; N], EncryptFault> {
    let mut derived = [0; N];
    let pseudorandom = Salt::new(HKDF_SHA256, salt).extract(secret);
    pseudorandom.expand(&[info], Length(N)).and_then(|okm| okm.fill(&mut derived)).map_err(|_| EncryptFault)?;
    Ok(derived)
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    const P256DH: &str = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
    const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

    #[test]
    fn the_example_of_rfc_8291_comes_out() {
        let keys = BrowserKeys::parse(P256DH, AUTH).unwrap();
        let ours = URL_SAFE_NO_PAD.decode("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw").unwrap();
        let ours = PrivateKey::from_private_key(&ECDH_P256, &ours).unwrap();
        let salt: [u8; 16] = URL_SAFE_NO_PAD.decode("DGv6ra1nlYgDCS1FRnbzlw").unwrap().try_into().unwrap();
        let body = encrypt_with(&keys, b"When I grow up, I want to be a watermelon", &ours, &salt).unwrap();
        let wanted = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPT\
                      pK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN";
        assert_eq!(URL_SAFE_NO_PAD.encode(body), wanted.replace(' ', ""));
    }

    #[test]
    fn a_body_is_never_longer_than_push_services_take() {
        let keys = BrowserKeys::parse(P256DH, AUTH).unwrap();
        let longest = BODY_BYTES_MAX - OVERHEAD_BYTES;
        assert_eq!(encrypt(&keys, &vec![b'x'; longest]).unwrap().len(), BODY_BYTES_MAX);
        assert_eq!(encrypt(&keys, &vec![b'x'; longest + 1]), Err(EncryptFault));
        assert_ne!(encrypt(&keys, b"same").unwrap(), encrypt(&keys, b"same").unwrap());
    }

    #[test]
    fn keys_that_are_none_are_named() {
        let fields = |p256dh: &str, auth: &str| BrowserKeys::parse(p256dh, auth).map_err(|error| error.field.into_owned());
        assert!(fields(P256DH, AUTH).is_ok() && fields(&format!("{P256DH}="), &format!("{AUTH}==")).is_ok());
        let mut off_curve = URL_SAFE_NO_PAD.decode(P256DH).unwrap();
        off_curve[64] ^= 1;
        let zero = [&[4][..], &[0; 64]].concat();
        let compressed = [&[2][..], &off_curve[1..33]].concat();
        for wrong in [off_curve.clone(), zero, compressed, off_curve[..64].to_vec(), Vec::new()] {
            assert_eq!(fields(&URL_SAFE_NO_PAD.encode(wrong), AUTH), Err("keys.p256dh".into()));
        }
        assert_eq!(fields("not base64!", AUTH), Err("keys.p256dh".into()));
        for wrong in ["", "AAAA", "BTBZMqHH6r4Tts7J_aSIggAA", "!"] {
            assert_eq!(fields(P256DH, wrong), Err("keys.auth".into()));
        }
    }
}
