//! The gateways as a phone sees them: HTTP requests, retried with the same key until one of them answers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rand::Rng;
use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue, RETRY_AFTER};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::LoadError;
use super::args::Ack;
use super::verdict::{History, Recorded};

/// How long one send is tried, over all gateways, before it counts as not taken.
const SEND_PATIENCE: Duration = Duration::from_secs(20);
/// How long one request may take; longer than the gateways' own deadline.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// Longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A stream that shows not even a heartbeat for so long is dead.
const STREAM_SILENCE_MAX: Duration = Duration::from_secs(60);
/// Messages asked for in one page of history: the contract's maximum.
const PAGE: usize = 200;

/// What signs the tokens of made-up users.
#[derive(Clone, Debug)]
pub struct Signer {
    /// An HS256 secret that the gateways accept.
    pub secret: String,
    /// Issuer to name, if any.
    pub issuer: Option<String>,
    /// Audience to name, if any.
    pub audience: Option<String>,
    /// Seconds that the tokens live.
    pub life_seconds: u64,
}

#[derive(Serialize)]
struct Claims<'a> {
    sub: &'a str,
    exp: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    iss: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aud: Option<&'a str>,
}

/// A made-up user with a token.
#[derive(Clone, Debug)]
pub struct User {
    /// The user id.
    pub id: String,
    bearer: HeaderValue,
}

impl Signer {
    /// Makes a token for `id`.
    ///
    /// # Errors
    /// When the secret cannot sign.
    pub fn user(&self, id: &str) -> Result<User, LoadError> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
        let claims = Claims { sub: id, exp: now + self.life_seconds, iss: self.issuer.as_deref(), aud: self.audience.as_deref() };
        let failed = |err: &dyn std::error::Error| LoadError::Setup(format!("cannot sign a token: {err}"));
        let key = jsonwebtoken::EncodingKey::from_secret(self.secret.as_bytes()).map_err(|err| failed(&err))?;
        let token = jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).map_err(|err| failed(&err))?;
        let mut bearer = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|err| failed(&err))?;
        bearer.set_sensitive(true);
        Ok(User { id: id.to_owned(), bearer })
    }
}

/// How a send ended.
#[derive(Debug)]
pub enum Sent {
    /// It stands on this number.
    Taken {
        /// The number.
        seq: u64,
        /// The message's id.
        id: u128,
        /// Whether an earlier try had done it (200 with a replay).
        replayed: bool,
        /// Whether the answer named a lower level than asked for (202).
        below: bool,
    },
    /// Refused for good, or nobody answered in time.
    NotTaken(String),
}

/// The gateways of a run.
#[derive(Debug)]
pub struct Gateways {
    urls: Vec<String>,
    next: AtomicUsize,
    http: reqwest::Client,
    streams: reqwest::Client,
    ack: Ack,
    /// Tries of sends after the first.
    pub retries: AtomicU64,
}

#[derive(Deserialize)]
struct MessageShape {
    id: Uuid,
    seq: u64,
    sender: String,
    client_id: Option<String>,
}

#[derive(Deserialize)]
struct PageShape {
    items: Vec<MessageShape>,
    has_more_after: bool,
    head_seq: u64,
    #[serde(default)]
    voids: Vec<(u64, u64)>,
}

#[derive(Deserialize)]
struct ProblemShape {
    code: String,
    detail: Option<String>,
}

impl Gateways {
    /// Prepares the clients; connects nowhere yet.
    ///
    /// # Errors
    /// When the TLS of this machine cannot be set up.
    pub fn new(urls: &[String], ack: Ack) -> Result<Self, LoadError> {
        let failed = |err: reqwest::Error| LoadError::Setup(format!("cannot make an HTTP client: {err}"));
        Ok(Self {
            urls: urls.iter().map(|url| url.trim_end_matches('/').to_owned()).collect(),
            next: AtomicUsize::new(0),
            http: reqwest::Client::builder()
                .no_proxy()
                .timeout(REQUEST_PATIENCE)
                .connect_timeout(Duration::from_secs(3))
                .build()
                .map_err(failed)?,
            streams: reqwest::Client::builder()
                .no_proxy()
                .read_timeout(STREAM_SILENCE_MAX)
                .connect_timeout(Duration::from_secs(3))
                .pool_max_idle_per_host(0)
                .build()
                .map_err(failed)?,
            ack,
            retries: AtomicU64::new(0),
        })
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.urls.len()
    }

    fn turn(&self) -> &str {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        &self.urls[turn % self.urls.len()]
    }

    /// Makes a group; a retry makes no second one.
    ///
    /// # Errors
    /// When no gateway makes it.
    pub async fn make_group(&self, maker: &User, members: &[&str], title: &str) -> Result<String, LoadError> {
        #[derive(Deserialize)]
        struct Made {
            id: String,
        }
        let key = Uuid::now_v7().to_string();
        let body = json!({"kind": "group", "title": title, "members": members});
        let started = Instant::now();
        let mut pause = Pause::default();
        loop {
            let request = self.http.post(format!("{}/v1/conversations", self.turn())).header("idempotency-key", &key).json(&body);
            let trouble = match request.header(AUTHORIZATION, &maker.bearer).send().await {
                Ok(answer) if answer.status().is_success() => {
                    let made: Made = answer.json().await.map_err(|err| LoadError::Setup(format!("cannot read the new group: {err}")))?;
                    return Ok(made.id);
                }
                Ok(answer) => {
                    let passing = may_pass(answer.status());
                    let text = problem(answer).await;
                    if !passing {
                        return Err(LoadError::Setup(format!("the group was not made: {text}")));
                    }
                    text
                }
                Err(err) => plain(&err),
            };
            if started.elapsed() > SEND_PATIENCE {
                return Err(LoadError::Setup(format!("the group was not made: {trouble}")));
            }
            pause.wait(None).await;
        }
    }

    /// Sends one text. Every try carries the same key; the gateways take turns.
    pub async fn send(&self, sender: &User, conversation: &str, peer: Option<&str>, body: &str) -> Sent {
        let key = Uuid::now_v7().to_string();
        let mut content = json!({"client_id": key, "body": body});
        if let Some(peer) = peer {
            content["peer"] = peer.into();
        }
        let query = if self.ack == Ack::Accepted { String::new() } else { format!("?ack={}", self.ack.name()) };
        let started = Instant::now();
        let mut pause = Pause::default();
        loop {
            let request = self.http.post(format!("{}/v1/conversations/{conversation}/messages{query}", self.turn())).json(&content);
            let mut after = None;
            let trouble = match request.header(AUTHORIZATION, &sender.bearer).send().await {
                Ok(answer) if answer.status().is_success() => {
                    let replayed = answer.status() == StatusCode::OK;
                    let below = answer.status() == StatusCode::ACCEPTED;
                    match answer.json::<MessageShape>().await {
                        Ok(message) => return Sent::Taken { seq: message.seq, id: message.id.as_u128(), replayed, below },
                        // The answer was cut off: the same key asks for it again.
                        Err(err) => plain(&err),
                    }
                }
                Ok(answer) => {
                    let passing = may_pass(answer.status());
                    after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok()).map(Duration::from_secs);
                    let text = problem(answer).await;
                    if !passing {
                        return Sent::NotTaken(text);
                    }
                    text
                }
                Err(err) => plain(&err),
            };
            if started.elapsed() > SEND_PATIENCE {
                return Sent::NotTaken(trouble);
            }
            self.retries.fetch_add(1, Ordering::Relaxed);
            pause.wait(after).await;
        }
    }

    /// Reads a conversation's history from after `seq` to its end. A conversation that was never made has none.
    ///
    /// # Errors
    /// When no gateway shows it, or a page cannot be read.
    pub async fn history(&self, reader: &User, conversation: &str, mut after: u64) -> Result<History, LoadError> {
        let mut history = History::default();
        let started = Instant::now();
        let mut pause = Pause::default();
        loop {
            let url = format!("{}/v1/conversations/{conversation}/messages?after={after}&limit={PAGE}", self.turn());
            let trouble = match self.http.get(url).header(AUTHORIZATION, &reader.bearer).send().await {
                Ok(answer) if answer.status() == StatusCode::NOT_FOUND && conversation.starts_with("single:") => return Ok(history),
                Ok(answer) if answer.status().is_success() => match answer.json::<PageShape>().await {
                    Ok(page) => {
                        history.head_seq = page.head_seq;
                        history.voids.extend(page.voids);
                        let last = page.items.last().map(|message| message.seq);
                        history.messages.extend(page.items.into_iter().map(recorded));
                        match last {
                            Some(last) if page.has_more_after && last > after => after = last,
                            _ => {
                                history.voids.sort_unstable();
                                history.voids.dedup();
                                return Ok(history);
                            }
                        }
                        continue;
                    }
                    Err(err) => plain(&err),
                },
                Ok(answer) => {
                    let passing = may_pass(answer.status());
                    let text = problem(answer).await;
                    if !passing {
                        return Err(LoadError::Setup(format!("the history was not shown: {text}")));
                    }
                    text
                }
                Err(err) => plain(&err),
            };
            if started.elapsed() > SEND_PATIENCE {
                return Err(LoadError::Setup(format!("the history was not shown: {trouble}")));
            }
            pause.wait(None).await;
        }
    }

    /// Opens a stream at gateway number `at` (modulo their count), from the place `last` if there is one.
    ///
    /// # Errors
    /// [`LoadError::Stream`] with the refusal in words.
    pub async fn open_stream(&self, at: usize, user: &User, last: Option<&str>) -> Result<reqwest::Response, LoadError> {
        const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
        let url = format!("{}/v1/events", self.urls[at % self.urls.len()]);
        let mut request = self.streams.get(url).header(AUTHORIZATION, &user.bearer).header("accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header(LAST_EVENT_ID, last);
        }
        let answer = request.send().await.map_err(|err| LoadError::Stream(plain(&err)))?;
        if answer.status() != StatusCode::OK {
            return Err(LoadError::Stream(problem(answer).await));
        }
        Ok(answer)
    }
}

fn recorded(message: MessageShape) -> Recorded {
    Recorded { seq: message.seq, id: message.id.as_u128(), key: message.client_id.map(|key| (message.sender, key)) }
}

/// Whether a refusal may be over soon, so that the same request is worth another try.
fn may_pass(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}

async fn problem(answer: reqwest::Response) -> String {
    let status = answer.status().as_u16();
    match answer.json::<ProblemShape>().await {
        Ok(problem) => format!("{status} {} {}", problem.code, problem.detail.unwrap_or_default()),
        Err(_) => status.to_string(),
    }
}

/// An error with its causes but without the URL, which stands in the report already.
fn plain(err: &reqwest::Error) -> String {
    let mut text = if err.is_timeout() {
        "no answer in time".to_owned()
    } else if err.is_connect() {
        "cannot connect".to_owned()
    } else {
        "the connection broke".to_owned()
    };
    let mut cause = std::error::Error::source(err);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// Growing pauses between tries, with chance in them so that many clients do not come back at once.
#[derive(Debug, Default)]
pub struct Pause {
    tries: u32,
}

impl Pause {
    /// Waits; at least `asked`, up to two seconds, when the server named a time.
    pub async fn wait(&mut self, asked: Option<Duration>) {
        let grown = Duration::from_millis(25 << self.tries.min(6)).min(PAUSE_MAX);
        self.tries += 1;
        let chance = rand::rng().random_range(0.5..1.0);
        sleep(grown.mul_f64(chance).max(asked.unwrap_or_default().min(Duration::from_secs(2)))).await;
    }
}
