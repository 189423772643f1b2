//! Who is let in: tokens of every kind of key, forged ones, borders in time, keys that change while we run.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{Jwk, JwkSet};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use seqline::identity::key_source::KeySource;
use seqline::identity::token::Expected;
use seqline::identity::{Keyring, Scopes, TokenFault};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use crate::harness::eventually;

const SECRET_A: &str = "the first secret, long enough for HS256";
const SECRET_B: &str = "the second secret, long enough for HS256";
/// The moment at which tokens of these tests are looked at, s and ms.
const NOW_S: i64 = 1_764_500_000;
const NOW: i64 = NOW_S * 1_000;

/// A signing key of the host application.
struct HostKey {
    kid: &'static str,
    algorithm: Algorithm,
    key: EncodingKey,
    jwk: Jwk,
}

fn host_key(kid: &'static str, algorithm: Algorithm, pem: &[u8]) -> HostKey {
    let key = match algorithm {
        Algorithm::RS256 => EncodingKey::from_rsa_pem(pem),
        Algorithm::ES256 => EncodingKey::from_ec_pem(pem),
        _ => EncodingKey::from_ed_pem(pem),
    }
    .unwrap();
    let mut jwk = Jwk::from_encoding_key(&key, algorithm).unwrap();
    jwk.common.key_id = Some(kid.to_owned());
    HostKey { kid, algorithm, key, jwk }
}

fn rsa() -> HostKey {
    host_key("rsa-1", Algorithm::RS256, include_bytes!("keys/rsa_one.pem"))
}
fn ec() -> HostKey {
    host_key("ec-1", Algorithm::ES256, include_bytes!("keys/ec_one.pem"))
}
fn ed() -> HostKey {
    host_key("ed-1", Algorithm::EdDSA, include_bytes!("keys/ed_one.pem"))
}
fn ed_two() -> HostKey {
    host_key("ed-2", Algorithm::EdDSA, include_bytes!("keys/ed_two.pem"))
}

impl HostKey {
    fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.kid.to_owned()), ..Header::new(self.algorithm) };
        jsonwebtoken::encode(&header, claims, &self.key).unwrap()
    }
}

fn set_of(keys: &[&HostKey]) -> String {
    serde_json::to_string(&JwkSet { keys: keys.iter().map(|k| k.jwk.clone()).collect() }).unwrap()
}

fn hs256(claims: &Value, secret: &str) -> String {
    crate::harness::user::token_with(&Header::default(), claims, secret)
}

fn claims() -> Value {
    json!({"sub": "ann", "exp": NOW_S + 60})
}

fn with(name: &str, value: Value) -> Value {
    let mut all = claims();
    all[name] = value;
    all
}

fn shared() -> Keyring {
    Keyring::new(&[SECRET_A, SECRET_B], None, Expected::default()).unwrap()
}

async fn ring_of(json: &str) -> (Keyring, tempfile::NamedTempFile) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(json.as_bytes()).unwrap();
    let source = Arc::new(KeySource::new(file.path().to_str().unwrap()).unwrap());
    source.load().await.unwrap();
    (Keyring::new::<&str>(&[SECRET_A], Some(source), Expected::default()).unwrap(), file)
}

#[tokio::test]
async fn every_secret_of_the_list_is_accepted_and_no_other() {
    for secret in [SECRET_A, SECRET_B] {
        let caller = shared().prove(&hs256(&claims(), secret), NOW).await.unwrap();
        assert_eq!((caller.user.as_str(), caller.expires_at), ("ann", NOW + 60_000));
    }
    let other = hs256(&claims(), "a third secret that nobody configured");
    assert_eq!(shared().prove(&other, NOW).await, Err(TokenFault::Signature));
}

#[tokio::test]
async fn keys_of_a_set_are_accepted_in_all_three_kinds() {
    let (ring, _file) = ring_of(&set_of(&[&rsa(), &ec(), &ed()])).await;
    for key in [rsa(), ec(), ed()] {
        let caller = ring.prove(&key.sign(&claims()), NOW).await;
        assert_eq!(caller.map(|c| c.user.to_string()), Ok("ann".into()), "{:?}", key.algorithm);
    }
    // Secrets and a set may stand beside each other.
    assert!(ring.prove(&hs256(&claims(), SECRET_A), NOW).await.is_ok());
    assert_eq!(ring.prove(&ed_two().sign(&claims()), NOW).await, Err(TokenFault::UnknownKey));
}

#[tokio::test]
async fn the_leeway_is_thirty_seconds_on_both_sides() {
    let ring = shared();
    for (exp_ms_ago, accepted) in [(29_999, true), (30_000, false), (30_001, false)] {
        let token = hs256(&json!({"sub": "ann", "exp": NOW_S}), SECRET_A);
        let proven = ring.prove(&token, NOW + exp_ms_ago).await;
        assert_eq!(proven.is_ok(), accepted, "{exp_ms_ago}");
        if !accepted {
            assert_eq!(proven, Err(TokenFault::Expired));
        } else {
            // A stream ends at the same moment at which a request is refused.
            let caller = proven.unwrap();
            assert!(!caller.is_over(NOW + 29_999) && caller.is_over(NOW + 30_000));
        }
    }
    for (nbf, accepted) in [(NOW_S + 30, true), (NOW_S + 31, false)] {
        assert_eq!(ring.prove(&hs256(&with("nbf", json!(nbf)), SECRET_A), NOW).await.is_ok(), accepted, "{nbf}");
    }
}

#[tokio::test]
async fn claims_that_are_missing_or_wrong_are_refused_by_name() {
    let ring = shared();
    let long = "x".repeat(129);
    for (claims, wanted) in [
        (json!({"sub": "ann"}), TokenFault::Claim("exp")),
        (with("exp", json!("tomorrow")), TokenFault::Claim("exp")),
        (with("exp", Value::Null), TokenFault::Claim("exp")),
        (json!({"exp": NOW_S + 60}), TokenFault::Claim("sub")),
        (with("sub", json!("")), TokenFault::Claim("sub")),
        (with("sub", json!("a/b")), TokenFault::Claim("sub")),
        (with("sub", json!("..")), TokenFault::Claim("sub")),
        (with("sub", json!("a\u{7}")), TokenFault::Claim("sub")),
        (with("sub", json!(long)), TokenFault::Claim("sub")),
        (with("sub", json!(7)), TokenFault::Claim("set")),
        (with("device", json!(5)), TokenFault::Claim("device")),
        (with("device", json!("a\nb")), TokenFault::Claim("device")),
        (with("nbf", json!("x")), TokenFault::Claim("nbf")),
    ] {
        assert_eq!(ring.prove(&hs256(&claims, SECRET_A), NOW).await, Err(wanted), "{claims}");
    }
}

#[tokio::test]
async fn issuer_and_audience_are_checked_when_configured() {
    let expected = Expected { issuer: Some("https://host".into()), audience: Some("chat".into()) };
    let ring = Keyring::new(&[SECRET_A], None, expected).unwrap();
    let good = |aud: Value| {
        let mut all = with("iss", json!("https://host"));
        all["aud"] = aud;
        all
    };
    for aud in [json!("chat"), json!(["mail", "chat"])] {
        assert!(ring.prove(&hs256(&good(aud), SECRET_A), NOW).await.is_ok());
    }
    for aud in [json!("chat2"), json!([]), json!(["Chat"]), Value::Null] {
        assert_eq!(ring.prove(&hs256(&good(aud.clone()), SECRET_A), NOW).await, Err(TokenFault::Claim("aud")), "{aud}");
    }
    let mut foreign = good(json!("chat"));
    foreign["iss"] = json!("https://host.evil");
    assert_eq!(ring.prove(&hs256(&foreign, SECRET_A), NOW).await, Err(TokenFault::Claim("iss")));
    assert!(shared().prove(&hs256(&foreign, SECRET_A), NOW).await.is_ok(), "not configured, not checked");
}

#[tokio::test]
async fn further_claims_are_taken_over() {
    let mut all = with("scope", json!("read service  admin x"));
    all["name"] = json!("Ann\u{202E}");
    all["picture"] = json!("https://host/ann.png");
    all["device"] = json!("phone");
    let caller = shared().prove(&hs256(&all, SECRET_A), NOW).await.unwrap();
    assert_eq!(caller.scopes, Scopes { service: true, admin: true });
    assert_eq!(caller.name.as_deref(), Some("Ann\u{202E}"));
    assert_eq!(caller.picture.as_deref(), Some("https://host/ann.png"));
    assert_eq!(caller.device.as_deref(), Some("phone"));
    for scope in [json!("services"), json!("SERVICE"), json!(["service"]), json!("")] {
        let caller = shared().prove(&hs256(&with("scope", scope.clone()), SECRET_A), NOW).await.unwrap();
        assert_eq!(caller.scopes, Scopes::default(), "{scope}");
    }
}

fn raw(header: &Value, claims: &Value, signature: &[u8]) -> String {
    let part = |v: &Value| URL_SAFE_NO_PAD.encode(v.to_string());
    format!("{}.{}.{}", part(header), part(claims), URL_SAFE_NO_PAD.encode(signature))
}

#[tokio::test]
async fn unsigned_tokens_are_refused() {
    let (ring, _file) = ring_of(&set_of(&[&rsa(), &ed()])).await;
    for alg in ["none", "None", "NONE", "nOnE", ""] {
        for signature in [&b""[..], &b"x"[..]] {
            let token = raw(&json!({"alg": alg, "typ": "JWT"}), &claims(), signature);
            assert_eq!(ring.prove(&token, NOW).await, Err(TokenFault::Malformed), "{alg}");
        }
    }
    let token = raw(&json!({"alg": "HS256"}), &claims(), b"");
    assert!(ring.prove(&token, NOW).await.is_err());
}

#[tokio::test]
async fn an_hmac_made_with_a_public_key_is_refused() {
    let key = rsa();
    let (ring, _file) = ring_of(&set_of(&[&key, &ed()])).await;
    let jwk = serde_json::to_value(&key.jwk).unwrap();
    let modulus = jwk["n"].as_str().unwrap();
    let public: Vec<Vec<u8>> = vec![
        modulus.as_bytes().to_vec(),
        URL_SAFE_NO_PAD.decode(modulus).unwrap(),
        jwk.to_string().into_bytes(),
        set_of(&[&key]).into_bytes(),
    ];
    for bytes in public {
        let header = Header { kid: Some("rsa-1".into()), ..Header::new(Algorithm::HS256) };
        let token = jsonwebtoken::encode(&header, &claims(), &EncodingKey::from_secret(&bytes).unwrap()).unwrap();
        assert_eq!(ring.prove(&token, NOW).await, Err(TokenFault::Signature));
        // Without any secret configured there is not even a key to try.
        let source = Arc::new(KeySource::new(_file.path().to_str().unwrap()).unwrap());
        source.load().await.unwrap();
        let bare = Keyring::new::<&str>(&[], Some(source), Expected::default()).unwrap();
        assert_eq!(bare.prove(&token, NOW).await, Err(TokenFault::UnknownKey));
    }
}

#[tokio::test]
async fn the_key_and_not_the_token_decides_the_algorithm() {
    // The token of one key under the id of another, and other algorithms of the same family.
    let (ring, _file) = ring_of(&set_of(&[&rsa(), &ec(), &ed()])).await;
    let key = rsa();
    for (algorithm, kid) in
        [(Algorithm::RS256, "ec-1"), (Algorithm::RS384, "rsa-1"), (Algorithm::PS256, "rsa-1"), (Algorithm::RS512, "rsa-1")]
    {
        let header = Header { kid: Some(kid.into()), ..Header::new(algorithm) };
        let token = jsonwebtoken::encode(&header, &claims(), &key.key).unwrap();
        assert!(ring.prove(&token, NOW).await.is_err(), "{algorithm:?} {kid}");
    }
}

#[tokio::test]
async fn a_changed_part_breaks_the_signature() {
    let (ring, _file) = ring_of(&set_of(&[&ed()])).await;
    let token = ed().sign(&claims());
    let parts: Vec<&str> = token.split('.').collect();
    let other = URL_SAFE_NO_PAD.encode(with("sub", json!("bob")).to_string());
    assert_eq!(ring.prove(&format!("{}.{other}.{}", parts[0], parts[2]), NOW).await, Err(TokenFault::Signature));
    for garbage in ["", ".", "..", "a.b.c", "…", &format!("{token}.x"), &"x".repeat(20_000)] {
        assert_eq!(ring.prove(garbage, NOW).await, Err(TokenFault::Malformed), "{garbage:.20}");
    }
}

#[tokio::test]
async fn keys_for_other_purposes_are_passed_over() {
    let mut encryption = ed();
    encryption.jwk.common.public_key_use = Some(jsonwebtoken::jwk::PublicKeyUse::Encryption);
    let (ring, _file) = ring_of(&set_of(&[&encryption, &rsa()])).await;
    assert_eq!(ring.prove(&ed().sign(&claims()), NOW).await, Err(TokenFault::UnknownKey));
    // A shared secret in a public set would be known to everybody.
    let shared = json!({"keys": [{"kty": "oct", "kid": "s", "k": URL_SAFE_NO_PAD.encode(SECRET_B)}]}).to_string();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), shared).unwrap();
    assert!(KeySource::new(file.path().to_str().unwrap()).unwrap().load().await.is_err());
}

#[tokio::test]
async fn a_changed_file_is_noticed_and_a_broken_one_changes_nothing() {
    let (ring, file) = ring_of(&set_of(&[&ed()])).await;
    std::fs::write(file.path(), set_of(&[&ed_two()])).unwrap();
    let (old, new) = (ed().sign(&claims()), ed_two().sign(&claims()));
    // An unknown id is the cause of the look; the minimum interval since the last one may have to pass first.
    eventually("the new key is accepted", Duration::from_secs(30), async || ring.prove(&new, NOW).await.is_ok()).await;
    assert_eq!(ring.prove(&old, NOW).await, Err(TokenFault::UnknownKey));
    std::fs::write(file.path(), "{").unwrap();
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    assert_eq!(ring.prove(&old, NOW).await, Err(TokenFault::UnknownKey), "a look at the broken file");
    assert!(ring.prove(&new, NOW).await.is_ok(), "what was good stays good");
}

#[tokio::test]
async fn a_key_that_is_withdrawn_from_a_file_is_forgotten_without_a_cause() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), set_of(&[&ed(), &ed_two()])).unwrap();
    let source = Arc::new(KeySource::new(file.path().to_str().unwrap()).unwrap());
    source.load().await.unwrap();
    let stop = CancellationToken::new();
    let looking = tokio::spawn(Arc::clone(&source).keep_fresh(stop.clone()));
    let ring = Keyring::new::<&str>(&[], Some(source), Expected::default()).unwrap();
    let token = ed().sign(&claims());
    assert!(ring.prove(&token, NOW).await.is_ok());
    std::fs::write(file.path(), set_of(&[&ed_two()])).unwrap();
    eventually("the key is forgotten", Duration::from_secs(30), async || ring.prove(&token, NOW).await.is_err()).await;
    stop.cancel();
    looking.await.unwrap();
}

/// A host that serves a key set, counts how often it is asked, and answers 500 while it holds none.
struct Host {
    url: String,
    set: Arc<Mutex<Option<String>>>,
    asked: Arc<AtomicUsize>,
}

async fn host(set: Option<String>) -> Host {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let (set, asked) = (Arc::new(Mutex::new(set)), Arc::new(AtomicUsize::new(0)));
    let (held, count) = (Arc::clone(&set), Arc::clone(&asked));
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            let held = held.lock().unwrap().clone();
            tokio::spawn(async move {
                let mut head = [0_u8; 4096];
                let _ = socket.read(&mut head).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
                let (status, body) = held.map_or(("500 No", String::new()), |body| ("200 OK", body));
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
                let _ = socket.write_all(answer.as_bytes()).await;
            });
        }
    });
    Host { url, set, asked }
}

#[tokio::test]
async fn unknown_ids_make_one_look_for_all_and_not_many() {
    let host = host(Some(set_of(&[&ed()]))).await;
    let source = Arc::new(KeySource::new(&host.url).unwrap());
    source.load().await.unwrap();
    assert_eq!(host.asked.load(Ordering::SeqCst), 1);
    let ring = Arc::new(Keyring::new::<&str>(&[], Some(source), Expected::default()).unwrap());
    tokio::time::sleep(Duration::from_millis(2_100)).await;

    *host.set.lock().unwrap() = Some(set_of(&[&ed(), &ed_two()]));
    let new = ed_two().sign(&claims());
    let crowd: Vec<_> = (0..50)
        .map(|_| {
            let (ring, new) = (Arc::clone(&ring), new.clone());
            tokio::spawn(async move { ring.prove(&new, NOW).await.is_ok() })
        })
        .collect();
    for one in crowd {
        assert!(one.await.unwrap(), "all who waited for the look are let in");
    }
    assert_eq!(host.asked.load(Ordering::SeqCst), 2);

    // Whoever invents ids cannot make us hammer the host.
    for i in 0..100 {
        let header = Header { kid: Some(format!("invented-{i}")), ..Header::new(Algorithm::EdDSA) };
        let token = jsonwebtoken::encode(&header, &claims(), &ed().key).unwrap();
        assert_eq!(ring.prove(&token, NOW).await, Err(TokenFault::UnknownKey));
    }
    assert!(host.asked.load(Ordering::SeqCst) <= 4);

    // While the host is down, what is known goes on.
    *host.set.lock().unwrap() = None;
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    let header = Header { kid: Some("invented".into()), ..Header::new(Algorithm::EdDSA) };
    let unknown = jsonwebtoken::encode(&header, &claims(), &ed().key).unwrap();
    assert_eq!(ring.prove(&unknown, NOW).await, Err(TokenFault::UnknownKey));
    assert!(ring.prove(&new, NOW).await.is_ok());
}

#[tokio::test]
async fn before_the_first_set_nothing_is_said_about_tokens() {
    let host = host(None).await;
    let source = Arc::new(KeySource::new(&host.url).unwrap());
    assert!(source.load().await.is_err());
    let ring = Keyring::new::<&str>(&[], Some(source), Expected::default()).unwrap();
    assert_eq!(ring.prove(&ed().sign(&claims()), NOW).await, Err(TokenFault::KeysAway));
    *host.set.lock().unwrap() = Some(set_of(&[&ed()]));
    let token = ed().sign(&claims());
    eventually("the set is there", Duration::from_secs(30), async || ring.prove(&token, NOW).await.is_ok()).await;
}

#[test]
fn sets_come_from_files_https_or_loopback_only() {
    for place in [
        "https://host.example/keys",
        "http://127.0.0.1:1/keys",
        "http://localhost/keys",
        "http://[::1]/keys",
        "/etc/keys.json",
        "keys.json",
    ] {
        assert!(KeySource::new(place).is_ok(), "{place}");
    }
    for place in ["http://host.example/keys", "ftp://127.0.0.1/keys", "http://127.0.0.1.evil.example/keys"] {
        assert!(KeySource::new(place).is_err(), "{place}");
    }
}
