//! An event stream as a client reads it: it remembers the last id it was given and goes on from there wherever it connects next.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use serde_json::Value;
use tokio::time::Instant;

use super::client::Answer;
use super::described;
use super::frames::{Frame, FrameReader};
use super::user::User;

/// Without a pool: a stream keeps its connection, and nothing else may wait for it. Making a client costs more than opening a stream.
static UNTIMED: LazyLock<reqwest::Client> =
    LazyLock::new(|| reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap());

/// A stream that is still to be opened.
#[derive(Clone, Debug)]
pub struct StreamRequest {
    base: String,
    token: Option<String>,
    last_event_id: Option<String>,
    query: Vec<(String, String)>,
    forwarded_for: Option<String>,
}

/// One event with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its id, if it has one.
    pub id: Option<String>,
    /// Its name.
    pub name: String,
    /// Its data, null when it has none.
    pub data: Value,
}

/// An open stream.
pub struct EventStream {
    request: StreamRequest,
    bytes: Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>,
    reader: FrameReader,
    waiting: VecDeque<Frame>,
    last_id: Option<String>,
    /// The headers it was opened with.
    pub headers: reqwest::header::HeaderMap,
}

impl StreamRequest {
    /// Of this user at this gateway.
    pub fn new(base: &str, user: &User) -> Self {
        Self { base: base.to_owned(), token: Some(user.token.clone()), last_event_id: None, query: Vec::new(), forwarded_for: None }
    }

    /// From this position on, by the header.
    pub fn after(mut self, id: impl Into<String>) -> Self {
        self.last_event_id = Some(id.into());
        self
    }

    /// With a parameter in the URL, e.g. `device`, `last_event_id`, `ticket`.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }

    /// As if a load balancer had noted this.
    pub fn forwarded_for(mut self, noted: &str) -> Self {
        self.forwarded_for = Some(noted.to_owned());
        self
    }

    /// Without a token.
    pub fn without_token(mut self) -> Self {
        self.token = None;
        self
    }

    /// At another gateway.
    pub fn at(mut self, base: &str) -> Self {
        base.clone_into(&mut self.base);
        self
    }

    /// Opens it; panics unless it is answered 200.
    pub async fn open(self) -> EventStream {
        self.try_open().await.unwrap_or_else(|answer| panic!("the stream was refused: {answer:?}"))
    }

    /// Opens it; the answer when it is not a stream, with status 0 when none came.
    pub async fn try_open(self) -> Result<EventStream, Box<Answer>> {
        let url = url::Url::parse_with_params(&format!("{}/v1/events", self.base), &self.query).unwrap();
        let mut request = UNTIMED.get(url).header("accept", "text/event-stream");
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(noted) = &self.forwarded_for {
            request = request.header("x-forwarded-for", noted);
        }
        if let Some(id) = &self.last_event_id {
            request = request.header("last-event-id", id);
        }
        let failed = |text: String| Box::new(Answer { status: 0, headers: Default::default(), json: Value::Null, text });
        let response = request.send().await.map_err(|error| failed(format!("{error:?}")))?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        if status != 200 {
            let text = response.text().await.unwrap_or_default();
            described::check_answer(&reqwest::Method::GET, "/v1/events", status, &headers, &text);
            return Err(Box::new(Answer { status, headers, json: serde_json::from_str(&text).unwrap_or(Value::Null), text }));
        }
        let last_id = self.last_event_id.clone();
        let bytes = Box::pin(response.bytes_stream());
        Ok(EventStream { request: self, bytes, reader: FrameReader::default(), waiting: VecDeque::new(), last_id, headers })
    }
}

impl EventStream {
    /// The next block, whatever is in it; `None` when the stream has ended or broken. Panics when nothing comes by the deadline.
    pub async fn next_frame(&mut self, within: Duration) -> Option<Frame> {
        self.frame_by(Instant::now() + within).await.unwrap_or_else(|()| panic!("no frame within {within:?}; last id {:?}", self.last_id))
    }

    /// The next event that has a name; comments and bare positions are passed over (but the position is remembered).
    /// `None` when the stream has ended. Panics when none comes within that time.
    pub async fn next_event(&mut self, within: Duration) -> Option<Event> {
        self.event_by(Instant::now() + within).await.unwrap_or_else(|()| panic!("no event within {within:?}; last id {:?}", self.last_id))
    }

    /// The next event of this name, others being passed over; panics when none comes within that time or the stream ends.
    pub async fn wait_for(&mut self, name: &str, within: Duration) -> Event {
        let deadline = Instant::now() + within;
        let mut passed = Vec::new();
        loop {
            match self.event_by(deadline).await {
                Ok(Some(event)) if event.name == name => return event,
                Ok(Some(event)) => passed.push(event.name),
                Ok(None) => panic!("the stream ended before {name}; passed over {passed:?}"),
                Err(()) => panic!("no {name} within {within:?}; passed over {passed:?}"),
            }
        }
    }

    /// The next `message.created`: the message in it.
    pub async fn next_message(&mut self, within: Duration) -> Value {
        self.wait_for("message.created", within).await.data["data"]["message"].clone()
    }

    /// All events that come until it has been quiet for so long.
    pub async fn until_quiet(&mut self, quiet: Duration) -> Vec<Event> {
        let mut events = Vec::new();
        while let Ok(Some(event)) = self.event_by(Instant::now() + quiet).await {
            events.push(event);
        }
        events
    }

    /// All events, taken as they come, until that is so and it has been quiet for so long after it, or the stream has ended.
    pub async fn hear_until(mut self, over: impl Fn() -> bool, quiet: Duration) -> Vec<Event> {
        let mut events = Vec::new();
        while !over() {
            match self.event_by(Instant::now() + Duration::from_millis(100)).await {
                Ok(Some(event)) => events.push(event),
                Ok(None) => return events,
                Err(()) => {}
            }
        }
        events.extend(self.until_quiet(quiet).await);
        events
    }

    /// The last id it was given, from which it would go on.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// What it would be asked again with: the last id that it was given.
    pub fn again(&self) -> StreamRequest {
        StreamRequest { last_event_id: self.last_id.clone(), ..self.request.clone() }
    }

    /// Leaves and connects again with the last id, at this gateway.
    pub async fn reconnect(self, base: &str) -> EventStream {
        self.again().at(base).open().await
    }

    async fn event_by(&mut self, deadline: Instant) -> Result<Option<Event>, ()> {
        while let Some(frame) = self.frame_by(deadline).await? {
            if let Some(name) = frame.event {
                let data = frame.data.map_or(Value::Null, |data| serde_json::from_str(&data).unwrap_or(Value::String(data)));
                return Ok(Some(Event { id: frame.id, name, data }));
            }
        }
        Ok(None)
    }

    async fn frame_by(&mut self, deadline: Instant) -> Result<Option<Frame>, ()> {
        loop {
            if let Some(frame) = self.waiting.pop_front() {
                if let Some(name) = &frame.event {
                    described::check_event(name, frame.id.as_deref(), frame.data.as_deref().unwrap_or_default());
                }
                if let Some(id) = &frame.id {
                    self.last_id = Some(id.clone());
                }
                return Ok(Some(frame));
            }
            match tokio::time::timeout_at(deadline, self.bytes.next()).await {
                Err(_) => return Err(()),
                Ok(None | Some(Err(_))) => return Ok(None),
                Ok(Some(Ok(piece))) => self.waiting.extend(self.reader.feed(&piece)),
            }
        }
    }
}
