//! The host application's server, as far as webhooks and the pre-send hook see it: keeps what it was told, answers as a test says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use serde_json::Value;

use super::answering::Answering;
use super::wait::eventually;

/// What signs in tests: one secret as text, and one as receivers' libraries write it.
pub const SECRETS: &str = "a secret of tests for webhooks,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    /// `webhook-id`.
    pub id: String,
    /// `webhook-timestamp`.
    pub timestamp: String,
    /// `webhook-signature`.
    pub signature: String,
    /// The path.
    pub path: String,
    /// The body as it came.
    pub text: String,
    /// The body as JSON.
    pub json: Value,
    /// The status it was answered with; 0 when it was not.
    pub status: u16,
}

impl Call {
    /// The conversation it is about.
    pub fn conversation(&self) -> &str {
        self.json["conversation_id"].as_str().unwrap()
    }

    /// The event's type.
    pub fn kind(&self) -> &str {
        self.json["type"].as_str().unwrap()
    }

    /// The event's rev.
    pub fn rev(&self) -> u64 {
        self.json["rev"].as_u64().unwrap()
    }

    /// The words of the message in it.
    pub fn words(&self) -> Option<&str> {
        self.json["data"]["message"]["body"].as_str()
    }
}

/// How a call is answered.
#[derive(Clone, Debug)]
pub enum Reply {
    /// With this status and nothing else.
    Status(u16),
    /// With this status, asking to wait for so many seconds.
    Later(u16, u64),
    /// With 200 and JSON.
    Json(Value),
    /// Not at all.
    Silence,
    /// By hanging up.
    HangUp,
}

type Behaviour = Box<dyn FnMut(&Call) -> Reply + Send>;

/// The server.
pub struct HostApplication {
    server: Answering,
    calls: Arc<Mutex<Vec<Call>>>,
    behaviour: Arc<Mutex<Behaviour>>,
}

impl HostApplication {
    /// One that answers so.
    pub async fn start(behaviour: impl FnMut(&Call) -> Reply + Send + 'static) -> Self {
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let behaviour: Arc<Mutex<Behaviour>> = Arc::new(Mutex::new(Box::new(behaviour)));
        let (kept, told) = (Arc::clone(&calls), Arc::clone(&behaviour));
        let server = Answering::start(move |request| answer(Arc::clone(&kept), Arc::clone(&told), request)).await;
        Self { server, calls, behaviour }
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("{}/seqline?from=test", self.server.url())
    }

    /// From now on it answers so.
    pub fn behave(&self, behaviour: impl FnMut(&Call) -> Reply + Send + 'static) {
        *self.behaviour.lock().unwrap() = Box::new(behaviour);
    }

    /// It goes away, with everything that is under way.
    pub fn stop(&self) {
        self.server.stop();
    }

    /// Everything it was told, in the order in which it came.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// What it took, in order.
    pub fn taken(&self) -> Vec<Call> {
        self.calls().into_iter().filter(|call| (200..300).contains(&call.status)).collect()
    }

    /// Waits until it has taken so many.
    pub async fn has_taken(&self, count: usize, within: Duration) -> Vec<Call> {
        eventually(&format!("{count} calls are taken"), within, async || self.taken().len() >= count).await;
        self.taken()
    }
}

async fn answer(
    calls: Arc<Mutex<Vec<Call>>>,
    behaviour: Arc<Mutex<Behaviour>>,
    request: Request<Incoming>,
) -> std::io::Result<Response<Full<Bytes>>> {
    let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
    let (id, timestamp, signature) = (header("webhook-id"), header("webhook-timestamp"), header("webhook-signature"));
    let path = request.uri().path().to_owned();
    let text = String::from_utf8(request.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    let json = serde_json::from_str(&text).unwrap_or(Value::Null);
    let mut call = Call { id, timestamp, signature, path, text, json, status: 0 };
    let reply = behaviour.lock().unwrap()(&call);
    let (status, body) = match &reply {
        Reply::Status(status) | Reply::Later(status, _) => (*status, String::new()),
        Reply::Json(json) => (200, json.to_string()),
        Reply::Silence | Reply::HangUp => (0, String::new()),
    };
    call.status = status;
    calls.lock().unwrap().push(call);
    let mut response = match reply {
        Reply::Silence => std::future::pending().await,
        Reply::HangUp => return Err(std::io::ErrorKind::ConnectionAborted.into()),
        _ => Response::builder().status(status),
    };
    if let Reply::Later(_, seconds) = reply {
        response = response.header("retry-after", seconds);
    }
    Ok(response.body(Full::new(Bytes::from(body))).unwrap())
}
