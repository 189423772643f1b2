//! The call to a push service. It reaches public addresses only, whatever a name led to when it was registered; it goes through no proxy,
//! follows no redirect, and is bounded in time and in what is read of the answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};

use super::encrypt::{BrowserKeys, encrypt};
use super::endpoint::Endpoint;
use super::public_address::may_be_called;
use super::vapid::{Vapid, VapidKey};
use crate::domain::ids::Millis;
use crate::hooks::outside_call::retry_after;

/// Longest time for reaching a service, in ms, within the time for all.
const CONNECT_MS: u64 = 5_000;
/// Time for which a connection is kept for the next call.
const IDLE: Duration = Duration::from_secs(30);
/// Connections to one service that are kept.
const IDLE_PER_HOST_MAX: usize = 8;
/// For how long an answer is read behind its status, in ms: whoever lets it drip must not keep a call open.
const ANSWER_MS_MAX: u64 = 1_000;
/// Most that is read of an answer, in bytes: nothing in it matters but its end, after which the connection can be used again.
const ANSWER_BYTES_MAX: usize = 4_096;

/// Finds the addresses of a name. What it finds is looked at before it is used.
pub type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, std::io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// This machine's own way of finding addresses.
#[must_use]
pub fn system_lookup() -> Lookup {
    Arc::new(|name| Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) }))
}

/// How soon a push service should wake a device that saves its battery (RFC 8030, 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// When it wakes anyway, or is on a network that costs little.
    Normal,
    /// At once.
    High,
}

impl Urgency {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}

/// What goes with a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// For how long the service keeps it for a device that is away, in seconds.
    pub ttl_s: u64,
    /// How soon.
    pub urgency: Urgency,
    /// At most 32 characters of base64url; a later push of the same topic takes the place of one that still waits.
    pub topic: String,
}

/// What a push service said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The status.
    pub status: u16,
    /// How long it asks us to wait.
    pub retry_after: Option<Duration>,
}

/// Why there is no answer. No text holds the endpoint or what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushFault {
    /// None came in time.
    #[error("no answer in time")]
    Timeout,
    /// Nobody is there, what came is no HTTP, or the name leads to an address that is not called.
    #[error("cannot be reached")]
    Unreachable,
    /// It could not be encrypted or signed.
    #[error("cannot be made")]
    Unmade,
}

/// The way out.
#[derive(Debug)]
pub struct Door {
    client: reqwest::Client,
    vapid: Vapid,
    limit: Duration,
}

impl Door {
    /// With a key pair, whom services may write to, the time for a whole call, and a way of finding addresses.
    ///
    /// # Errors
    /// A sentence part when this machine cannot do TLS.
    pub fn new(key: VapidKey, subject: Option<String>, limit: Duration, allow_loopback: bool, lookup: Lookup) -> Result<Self, String> {
        let client = reqwest::Client::builder()
            .dns_resolver(PublicOnly { lookup, allow_loopback })
            .redirect(reqwest::redirect::Policy::none())
            // A proxy would find addresses by itself.
            .no_proxy()
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_PER_HOST_MAX)
            .connect_timeout(Duration::from_millis(CONNECT_MS))
            .user_agent(concat!("seqline/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| error.without_url().to_string())?;
        Ok(Self { client, vapid: Vapid::new(key, subject), limit })
    }

    /// Encrypts a text for one browser and hands it to its push service.
    ///
    /// # Errors
    /// When there is no answer; any status is one.
    pub async fn deliver(
        &self,
        endpoint: &Endpoint,
        keys: &BrowserKeys,
        terms: &Terms,
        text: &[u8],
        now: Millis,
    ) -> Result<Delivered, PushFault> {
        let body = encrypt(keys, text).map_err(|_| PushFault::Unmade)?;
        let authorization = self.vapid.authorization(&endpoint.origin(), now).map_err(|_| PushFault::Unmade)?;
        let request = self
            .client
            .post(endpoint.url().clone())
            .timeout(self.limit)
            .header(AUTHORIZATION, authorization)
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_ENCODING, "aes128gcm")
            .header("ttl", terms.ttl_s)
            .header("urgency", terms.urgency.as_str())
            .header("topic", &terms.topic)
            .body(body);
        let answer = request.send().await.map_err(|error| fault_of(&error))?;
        let status = answer.status().as_u16();
        let retry_after = answer.headers().get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?, SystemTime::now()));
        let mut chunks = answer.bytes_stream();
        // The status alone counts: what breaks or is late behind it changes nothing.
        let rest = async {
            let mut read = 0;
            while let Some(Ok(chunk)) = chunks.next().await {
                read += chunk.len();
                if read > ANSWER_BYTES_MAX {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(ANSWER_MS_MAX), rest).await;
        Ok(Delivered { status, retry_after })
    }
}

fn fault_of(error: &reqwest::Error) -> PushFault {
    if error.is_timeout() { PushFault::Timeout } else { PushFault::Unreachable }
}

/// Finds addresses, and gives only those that may be called: it is asked for every new connection, so that a name that led elsewhere when it
/// was registered is no way in.
struct PublicOnly {
    lookup: Lookup,
    allow_loopback: bool,
}

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        let (found, allow_loopback) = ((self.lookup)(name.as_str().to_owned()), self.allow_loopback);
        Box::pin(async move {
            let found: Vec<SocketAddr> = found.await?;
            let public: Vec<SocketAddr> = found.into_iter().filter(|address| may_be_called(address.ip(), allow_loopback)).collect();
            if public.is_empty() {
                return Err("the name leads to no public address".into());
            }
            let addresses: Addrs = Box::new(public.into_iter());
            Ok(addresses)
        })
    }
}
