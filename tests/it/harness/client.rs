//! Requests as an application makes them. Each goes over a connection of its own, so that no test hangs on the moods of a pool; a crowd that
//! sends thousands of messages asks for [`Client::kept_alive`].

use std::sync::LazyLock;
use std::time::Duration;

use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use seqline::domain::ids::{ConversationId, UserId};
use serde_json::{Value, json};

use super::described;
use super::stream::StreamRequest;
use super::user::User;

/// Longest wait for an answer; a test that means to see a slower one says so itself.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Without a pool it holds nothing that belongs to one test's runtime, and can serve all tests.
static FRESH: LazyLock<reqwest::Client> =
    LazyLock::new(|| reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).timeout(ANSWER_WITHIN).build().unwrap());

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as JSON, null when it is none.
    pub json: Value,
    /// The body as it came.
    pub text: String,
}

impl Answer {
    /// The answer itself if it has this status; panics with all of it otherwise.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{} {:?}", self.text, self.headers);
        self
    }

    /// Checks that it is a problem with this status and code.
    #[track_caller]
    pub fn expect_problem(self, status: u16, code: &str) -> Self {
        let answer = self.expect(status);
        assert_eq!(answer.json["code"], code, "{}", answer.text);
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        answer
    }

    /// One header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The `seq` of the message in it.
    #[track_caller]
    pub fn seq(&self) -> u64 {
        self.json["seq"].as_u64().unwrap_or_else(|| panic!("no seq in {}", self.text))
    }

    /// Its `items`.
    #[track_caller]
    pub fn items(&self) -> &Vec<Value> {
        self.json["items"].as_array().unwrap_or_else(|| panic!("no items in {}", self.text))
    }
}

/// A user at one gateway.
#[derive(Clone, Debug)]
pub struct Client {
    base: String,
    user: User,
    http: reqwest::Client,
}

impl Client {
    /// A user at the gateway with this URL.
    pub fn new(base: impl Into<String>, user: &User) -> Self {
        Self { base: base.into(), user: user.clone(), http: FRESH.clone() }
    }

    /// The same, with connections of its own that are used again: for crowds.
    pub fn kept_alive(self) -> Self {
        let http = reqwest::Client::builder().no_proxy().timeout(ANSWER_WITHIN).build().unwrap();
        Self { http, ..self }
    }

    /// The user.
    pub fn user(&self) -> &User {
        &self.user
    }

    /// The URL of a path here.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Any request; `Err` when no answer came.
    pub async fn try_request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Vec<u8>>,
    ) -> reqwest::Result<Answer> {
        let mut all = HeaderMap::new();
        all.insert("authorization", HeaderValue::from_str(&format!("Bearer {}", self.user.token)).unwrap());
        if body.is_some() {
            all.insert("content-type", HeaderValue::from_static("application/json"));
        }
        for (name, value) in headers {
            all.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        let mut request = self.http.request(method.clone(), self.url(path)).headers(all);
        if let Some(body) = body {
            request = request.body(body);
        }
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await?;
        described::check_answer(&method, path, status, &headers, &text);
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok(Answer { status, headers, json, text })
    }

    /// Any request with a JSON body; panics when no answer came.
    pub async fn request(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Answer {
        let answered = self.try_request(method.clone(), path, headers, body.map(|body| body.to_string().into_bytes())).await;
        answered.unwrap_or_else(|error| panic!("{method} {path}: {error:?}"))
    }

    /// `GET path`.
    pub async fn get(&self, path: &str) -> Answer {
        self.request(Method::GET, path, &[], None).await
    }

    /// `POST path`.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.request(Method::POST, path, &[], Some(body)).await
    }

    /// `PUT path`.
    pub async fn put(&self, path: &str, body: Option<&Value>) -> Answer {
        self.request(Method::PUT, path, &[], body).await
    }

    /// `PATCH path`.
    pub async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.request(Method::PATCH, path, &[], Some(body)).await
    }

    /// `DELETE path`.
    pub async fn delete(&self, path: &str) -> Answer {
        self.request(Method::DELETE, path, &[], None).await
    }

    /// Sends a text.
    pub async fn send(&self, conversation: &str, client_id: &str, body: &str) -> Answer {
        self.send_message(conversation, &json!({"client_id": client_id, "body": body})).await
    }

    /// Sends a message with this body, whatever is in it.
    pub async fn send_message(&self, conversation: &str, message: &Value) -> Answer {
        self.post(&format!("/v1/conversations/{conversation}/messages"), message).await
    }

    /// Sends a text to a peer, making the conversation if it is new.
    pub async fn send_to_peer(&self, peer: &str, client_id: &str, body: &str) -> Answer {
        let message = json!({"client_id": client_id, "body": body, "peer": peer});
        self.send_message(&pair(&self.user.id, peer), &message).await
    }

    /// Sends a text until it is answered with 200 or 201, as a client does that must not give up: same key, every time.
    pub async fn send_until_stored(&self, conversation: &str, client_id: &str, body: &str, within: Duration) -> Answer {
        let message = json!({"client_id": client_id, "body": body}).to_string().into_bytes();
        let path = format!("/v1/conversations/{conversation}/messages");
        super::eventually_some("the message is stored", within, async || {
            match self.try_request(Method::POST, &path, &[], Some(message.clone())).await {
                Ok(answer) if matches!(answer.status, 200 | 201) => Ok(answer),
                Ok(answer) => Err(answer.text),
                Err(error) => Err(error.to_string()),
            }
        })
        .await
    }

    /// Makes a group and gives its id.
    pub async fn create_group(&self, title: &str, members: &[&str]) -> String {
        let answer = self.post("/v1/conversations", &json!({"kind": "group", "title": title, "members": members})).await.expect(201);
        answer.json["id"].as_str().unwrap().to_owned()
    }

    /// One page of messages; `query` like `after=3&limit=10`.
    pub async fn history(&self, conversation: &str, query: &str) -> Answer {
        self.get(&format!("/v1/conversations/{conversation}/messages?{query}")).await
    }

    /// All messages, page by page from the first on.
    pub async fn whole_history(&self, conversation: &str) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        loop {
            let after = all.last().map_or(0, |message| message["seq"].as_u64().unwrap());
            let page = self.history(conversation, &format!("after={after}&limit=200")).await.expect(200);
            all.extend(page.items().iter().cloned());
            if page.json["has_more_after"] == json!(false) || page.items().is_empty() {
                return all;
            }
        }
    }

    /// Moves the own read position.
    pub async fn read(&self, conversation: &str, seq: u64) -> Answer {
        self.post(&format!("/v1/conversations/{conversation}/read"), &json!({"seq": seq})).await
    }

    /// One conversation.
    pub async fn conversation(&self, conversation: &str) -> Answer {
        self.get(&format!("/v1/conversations/{conversation}")).await
    }

    /// The first page of the own conversations.
    pub async fn conversations(&self) -> Answer {
        self.get("/v1/conversations").await
    }

    /// Invites somebody.
    pub async fn invite(&self, conversation: &str, member: &str) -> Answer {
        self.put(&format!("/v1/conversations/{conversation}/members/{}", path_segment(member)), None).await
    }

    /// Removes somebody, or leaves.
    pub async fn remove(&self, conversation: &str, member: &str) -> Answer {
        self.delete(&format!("/v1/conversations/{conversation}/members/{}", path_segment(member))).await
    }

    /// A stream that is still to be opened.
    pub fn stream(&self) -> StreamRequest {
        StreamRequest::new(&self.base, &self.user)
    }
}

/// The id of the conversation of two users.
pub fn pair(a: &str, b: &str) -> String {
    let id = ConversationId::of_pair(&UserId::parse(a).unwrap(), &UserId::parse(b).unwrap()).unwrap();
    id.as_str().to_owned()
}

/// A user id as a segment of a path.
pub fn path_segment(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
