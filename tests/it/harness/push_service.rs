//! A push service, and browsers that subscribe at it: it keeps what it was given and answers as a test says; they decrypt what is theirs with
//! code of their own, as RFC 8291 describes it, and look at who sent it (RFC 8292).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use aws_lc_rs::signature;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Request, Response};
use serde_json::{Value, json};

use super::answering::Answering;
use super::host_application::Reply;
use super::user::now_s;
use super::wait::eventually;
use super::{Answer, Client};

/// The flags of gateways and workers that push to a service of a test.
pub const FLAGS: [&str; 10] = [
    "--vapid-private-key",
    "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw",
    "--vapid-subject",
    "mailto:ops@chat.app",
    "--push-allow-loopback",
    "true",
    "--push-delay-ms",
    "0",
    "--push-interval-ms",
    "0",
];

/// What was pushed.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// The path: whose it is.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, encrypted.
    pub body: Vec<u8>,
    /// The status it was answered with; 0 when it was not.
    pub status: u16,
}

impl Pushed {
    /// One header.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

type Behaviour = Box<dyn FnMut(&Pushed) -> Reply + Send>;

/// The service.
pub struct PushService {
    server: Answering,
    pushed: Arc<Mutex<Vec<Pushed>>>,
    behaviour: Arc<Mutex<Behaviour>>,
}

impl PushService {
    /// One that answers so.
    pub async fn start(behaviour: impl FnMut(&Pushed) -> Reply + Send + 'static) -> Self {
        let pushed: Arc<Mutex<Vec<Pushed>>> = Arc::default();
        let behaviour: Arc<Mutex<Behaviour>> = Arc::new(Mutex::new(Box::new(behaviour)));
        let (kept, told) = (Arc::clone(&pushed), Arc::clone(&behaviour));
        let server = Answering::start(move |request| answer(Arc::clone(&kept), Arc::clone(&told), request)).await;
        Self { server, pushed, behaviour }
    }

    /// One that takes everything.
    pub async fn willing() -> Self {
        Self::start(|_| Reply::Status(201)).await
    }

    /// Where it is.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// From now on it answers so.
    pub fn behave(&self, behaviour: impl FnMut(&Pushed) -> Reply + Send + 'static) {
        *self.behaviour.lock().unwrap() = Box::new(behaviour);
    }

    /// Everything it was given, in the order in which it came.
    pub fn pushed(&self) -> Vec<Pushed> {
        self.pushed.lock().unwrap().clone()
    }

    /// What it took for a browser.
    pub fn taken(&self, browser: &Browser) -> Vec<Pushed> {
        self.pushed().into_iter().filter(|one| one.path == browser.path() && (200..300).contains(&one.status)).collect()
    }

    /// Waits until it has taken so many for a browser, and gives what they said.
    pub async fn has_taken(&self, browser: &Browser, count: usize, within: Duration) -> Vec<Value> {
        eventually(&format!("{count} pushes for {}", browser.name), within, async || self.taken(browser).len() >= count).await;
        self.taken(browser).iter().map(|pushed| browser.decrypt(pushed)).collect()
    }
}

async fn answer(
    kept: Arc<Mutex<Vec<Pushed>>>,
    behaviour: Arc<Mutex<Behaviour>>,
    request: Request<Incoming>,
) -> std::io::Result<Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    let mut pushed = Pushed { path: parts.uri.path().to_owned(), headers: parts.headers, body, status: 0 };
    let reply = behaviour.lock().unwrap()(&pushed);
    pushed.status = match &reply {
        Reply::Status(status) | Reply::Later(status, _) => *status,
        _ => 0,
    };
    let status = pushed.status;
    kept.lock().unwrap().push(pushed);
    let mut response = match reply {
        Reply::Silence => std::future::pending().await,
        Reply::HangUp | Reply::Json(_) => return Err(std::io::ErrorKind::ConnectionAborted.into()),
        _ => Response::builder().status(status),
    };
    if let Reply::Later(_, seconds) = reply {
        response = response.header("retry-after", seconds);
    }
    if status == 307 {
        response = response.header("location", "/elsewhere");
    }
    Ok(response.body(Full::new(Bytes::new())).unwrap())
}

/// A browser that has subscribed.
pub struct Browser {
    pub name: String,
    service: String,
    private: PrivateKey,
    auth: [u8; 16],
}

impl Browser {
    /// At this service; the name tells its endpoint from others.
    pub fn new(service: &PushService, name: &str) -> Self {
        let mut auth = [0; 16];
        aws_lc_rs::rand::fill(&mut auth).unwrap();
        Self { name: name.into(), service: service.url(), private: PrivateKey::generate(&ECDH_P256).unwrap(), auth }
    }

    /// Where its push service takes pushes.
    pub fn endpoint(&self) -> String {
        format!("{}{}", self.service, self.path())
    }

    fn path(&self) -> String {
        format!("/wpush/{}", self.name)
    }

    /// What it tells the gateway.
    pub fn subscription(&self, show_preview: bool) -> Value {
        let public = self.private.compute_public_key().unwrap();
        let keys = json!({"p256dh": URL_SAFE_NO_PAD.encode(public.as_ref()), "auth": URL_SAFE_NO_PAD.encode(self.auth)});
        json!({"endpoint": self.endpoint(), "keys": keys, "show_preview": show_preview})
    }

    /// Registers it for a user.
    pub async fn register(&self, client: &Client, show_preview: bool) -> Answer {
        client.put("/v1/push/subscriptions", Some(&self.subscription(show_preview))).await
    }

    /// What a push says, after looking at everything about it.
    #[track_caller]
    pub fn decrypt(&self, pushed: &Pushed) -> Value {
        assert_eq!(pushed.header("content-encoding"), "aes128gcm");
        assert!(pushed.body.len() <= 4_096, "{}", pushed.body.len());
        assert!(pushed.header("ttl").parse::<u64>().unwrap() > 0);
        let topic = pushed.header("topic");
        assert!((1..=32).contains(&topic.len()) && topic.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)), "{topic}");
        verify(pushed.header("authorization"), &self.service);
        let (salt, rest) = pushed.body.split_at(16);
        let (record_size, rest) = rest.split_at(4);
        assert!(u32::from_be_bytes(record_size.try_into().unwrap()) as usize >= pushed.body.len());
        assert_eq!(rest[0], 65);
        let (theirs, sealed) = rest[1..].split_at(65);
        let ours = self.private.compute_public_key().unwrap();
        let info = [&b"WebPush: info\0"[..], ours.as_ref(), theirs].concat();
        let shared = agree(&self.private, UnparsedPublicKey::new(&ECDH_P256, theirs), (), |shared| Ok(shared.to_vec())).unwrap();
        let secret = derive(&self.auth, &shared, &info, 32);
        let key = derive(salt, &secret, b"Content-Encoding: aes128gcm\0", 16);
        let nonce = derive(salt, &secret, b"Content-Encoding: nonce\0", 12);
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap());
        let mut opened = sealed.to_vec();
        let nonce = Nonce::try_assume_unique_for_key(&nonce).unwrap();
        let text = key.open_in_place(nonce, Aad::empty(), &mut opened).expect("it is not for this browser");
        let end = text.iter().rposition(|byte| *byte != 0).unwrap();
        assert_eq!(text[end], 2, "the last record");
        serde_json::from_slice(&text[..end]).unwrap()
    }
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn derive(salt: &[u8], secret: &[u8], info: &[u8], length: usize) -> Vec<u8> {
    let mut derived = vec![0; length];
    Salt::new(HKDF_SHA256, salt).extract(secret).expand(&[info], Length(length)).unwrap().fill(&mut derived).unwrap();
    derived
}

/// Looks at who says to be the sender, as a push service does.
#[track_caller]
fn verify(authorization: &str, service: &str) {
    let (token, key) = authorization.strip_prefix("vapid t=").unwrap().split_once(", k=").unwrap();
    // The public half of the private key above.
    assert_eq!(key, "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8");
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let public = signature::UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, URL_SAFE_NO_PAD.decode(key).unwrap());
    public.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    let part = |text: &str| serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap();
    assert_eq!(part(header)["alg"], "ES256");
    let claims = part(claims);
    assert_eq!((&claims["aud"], &claims["sub"]), (&json!(service), &json!("mailto:ops@chat.app")));
    let left = claims["exp"].as_u64().unwrap() - now_s();
    assert!(left > 600 && left < 86_400, "{left}");
}
