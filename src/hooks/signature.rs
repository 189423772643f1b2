//! How a call to the host application proves that it is ours, in the form of the Standard Webhooks specification: `v1,` and the base64 of
//! HMAC-SHA256 over `<id>.<timestamp>.<body>`, once for each secret.
//!
//! The timestamp is signed, so that a receiver can refuse what was recorded long ago; the id is signed, so that it can refuse what it had
//! before. Every secret signs: a receiver that knows the old one or the new one finds its signature while they are being changed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The header's value: signatures of all keys, separated by spaces.
#[must_use]
pub fn signatures(keys: &[Vec<u8>], id: &str, timestamp_s: i64, body: &[u8]) -> String {
    let signed = keys.iter().filter_map(|key| signature(key, id, timestamp_s, body));
    signed.collect::<Vec<_>>().join(" ")
}

fn signature(key: &[u8], id: &str, timestamp_s: i64, body: &[u8]) -> Option<String> {
    // HMAC takes a key of any length.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(id.as_bytes());
    mac.update(format!(".{timestamp_s}.").as_bytes());
    mac.update(body);
    Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specification_s_example_comes_out() {
        // From the Standard Webhooks specification: secret, id, timestamp, payload and the signature they make.
        let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let made = signatures(std::slice::from_ref(&key), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(made, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let two = signatures(&[key, vec![7; 24]], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert!(two.starts_with(&made) && two.split(' ').count() == 2);
    }
}
