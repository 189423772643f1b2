//! A gateway in one task that speaks just enough of the contract for `seqline load`, and can be told to break it in one way:
//! a judge that never saw a crime may be blind.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// The message at which a fault strikes.
const AT: u64 = 7;

/// One way to break the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None.
    None,
    /// 503 now and then, sometimes after the message was taken; all of it within the contract.
    Hiccups,
    /// Hiccups, and keys are not remembered.
    ForgetsKeys,
    /// One message is left out of one reader's stream.
    LosesOne,
    /// One message comes twice on one reader's stream.
    DoublesOne,
    /// Two messages change places on one reader's stream.
    SwapsTwo,
    /// One reader's stream stands still for 600 ms.
    StandsStill,
    /// A number is left out, and nothing explains it.
    SkipsNumber,
    /// A number is left out and named in `voids`.
    VoidsNumber,
    /// Two messages get one number.
    SharesNumber,
    /// The history has forgotten a message.
    HistoryForgets,
    /// A reader who comes back misses the next message.
    ResumesTooLate,
    /// A reader who comes back gets the last message again.
    ResumesTooEarly,
    /// A reader is told to resync, as the contract allows.
    Resyncs,
    /// Every send is refused.
    Refuses,
}

#[derive(Default)]
struct Chat {
    members: Vec<String>,
    messages: Vec<Value>,
    next: u64,
}

struct State {
    fault: Fault,
    chats: Mutex<HashMap<String, Chat>>,
    logs: Mutex<HashMap<String, Vec<(u64, String)>>>,
    sends: Mutex<u64>,
    changed: watch::Sender<u64>,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Starts it on a free port and gives its URL. It ends with the test's runtime.
pub async fn start(fault: Fault) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let state =
        Arc::new(State { fault, chats: Mutex::default(), logs: Mutex::default(), sends: Mutex::default(), changed: watch::channel(0).0 });
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let state = state.clone();
            tokio::spawn(async move {
                let service = hyper::service::service_fn(move |request| answer(state.clone(), request));
                let io = hyper_util::rt::TokioIo::new(socket);
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
            });
        }
    });
    url
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let user = caller(head.headers.get("authorization").unwrap().to_str().unwrap());
    let path: Vec<&str> = head.uri.path().trim_start_matches("/v1/").split('/').collect();
    let body = body.collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    Ok(match (&head.method, path.as_slice()) {
        (&Method::POST, ["conversations"]) => {
            let id = format!("group:{}", uuid::Uuid::now_v7());
            let others = body["members"].as_array().unwrap().iter().map(|m| m.as_str().unwrap().to_owned());
            let members = std::iter::once(user).chain(others).collect();
            state.chats.lock().unwrap().insert(id.clone(), Chat { members, next: 1, ..Chat::default() });
            reply(StatusCode::CREATED, &json!({"id": id}))
        }
        (&Method::POST, ["conversations", id, "messages"]) => state.take(&user, id, &body),
        (&Method::GET, ["conversations", id, "messages"]) => state.history(id, head.uri.query().unwrap_or_default()),
        (&Method::GET, ["events"]) => {
            let last = head.headers.get("last-event-id").map(|id| id.to_str().unwrap().parse::<usize>().unwrap());
            state.stream(user, last)
        }
        _ => reply(StatusCode::NOT_FOUND, &json!({"code": "not_found"})),
    })
}

fn caller(bearer: &str) -> String {
    let claims = bearer.split('.').nth(1).unwrap();
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).unwrap();
    serde_json::from_slice::<Value>(&claims).unwrap()["sub"].as_str().unwrap().to_owned()
}

fn reply(status: StatusCode, body: &Value) -> Response<Body> {
    Response::builder().status(status).body(Full::new(Bytes::from(body.to_string())).boxed_unsync()).unwrap()
}

impl State {
    fn take(&self, user: &str, id: &str, body: &Value) -> Response<Body> {
        let count = {
            let mut sends = self.sends.lock().unwrap();
            *sends += 1;
            *sends
        };
        let hiccups = matches!(self.fault, Fault::Hiccups | Fault::ForgetsKeys);
        let unavailable = || reply(StatusCode::SERVICE_UNAVAILABLE, &json!({"code": "unavailable"}));
        match self.fault {
            Fault::Refuses => return reply(StatusCode::FORBIDDEN, &json!({"code": "forbidden"})),
            _ if hiccups && count % 5 == 0 => return unavailable(),
            _ => {}
        }
        let mut chats = self.chats.lock().unwrap();
        let chat = chats.entry(id.to_owned()).or_insert_with(|| {
            let peer = body["peer"].as_str().unwrap().to_owned();
            Chat { members: vec![user.to_owned(), peer], next: 1, ..Chat::default() }
        });
        let known = chat.messages.iter().find(|m| m["client_id"] == body["client_id"] && m["sender"] == user);
        if let Some(known) = known
            && self.fault != Fault::ForgetsKeys
        {
            return reply(StatusCode::OK, known);
        }
        let seq = chat.next;
        chat.next += match self.fault {
            Fault::SkipsNumber | Fault::VoidsNumber if seq == AT => 2,
            Fault::SharesNumber if seq == AT && chat.messages.len() as u64 == AT - 1 => 0,
            _ => 1,
        };
        let message = json!({
            "id": uuid::Uuid::now_v7(), "conversation_id": id, "seq": seq, "rev": seq, "sender": user,
            "client_id": body["client_id"], "kind": "text", "body": body["body"],
        });
        chat.messages.push(message.clone());
        let mut logs = self.logs.lock().unwrap();
        for member in &chat.members {
            let data = json!({"type": "message.created", "conversation_id": id, "rev": seq, "data": {"message": message}});
            logs.entry(member.clone()).or_default().push((seq, format!("event: message.created\ndata: {data}\n\n")));
        }
        self.changed.send_modify(|changes| *changes += 1);
        if hiccups && count % 7 == 0 { unavailable() } else { reply(StatusCode::CREATED, &message) }
    }

    fn history(&self, id: &str, query: &str) -> Response<Body> {
        let chats = self.chats.lock().unwrap();
        let Some(chat) = chats.get(id) else { return reply(StatusCode::NOT_FOUND, &json!({"code": "not_found"})) };
        let after: u64 = query.split('&').find_map(|pair| pair.strip_prefix("after=")).unwrap().parse().unwrap();
        let forgotten = self.fault == Fault::HistoryForgets;
        let left: Vec<&Value> =
            chat.messages.iter().filter(|m| m["seq"].as_u64().unwrap() > after && !(forgotten && m["seq"] == AT)).collect();
        let voids = if self.fault == Fault::VoidsNumber { json!([[AT + 1, AT + 1]]) } else { json!([]) };
        let page: Vec<&Value> = left.iter().take(50).copied().collect();
        reply(
            StatusCode::OK,
            &json!({"items": page, "has_more_before": after > 0, "has_more_after": left.len() > page.len(), "head_seq": chat.next - 1, "voids": voids}),
        )
    }

    fn log(&self, user: &str) -> Vec<(u64, String)> {
        self.logs.lock().unwrap().get(user).cloned().unwrap_or_default()
    }

    fn stream(self: &Arc<Self>, user: String, last: Option<usize>) -> Response<Body> {
        let length = self.log(&user).len();
        let from = match (last, self.fault) {
            (Some(last), Fault::ResumesTooLate) if last > 0 && last < length => last + 1,
            (Some(last), Fault::ResumesTooEarly) if last > 0 => last - 1,
            (Some(last), _) => last,
            (None, _) => length,
        };
        let hello = format!("retry: 50\nid: {from}\n\nevent: hello\ndata: {{}}\n\n");
        let struck = user.ends_with("u00002");
        let body = stream::unfold((self.clone(), user, from, Some(hello)), move |(state, user, at, hello)| async move {
            if let Some(hello) = hello {
                return Some((Ok(Frame::data(Bytes::from(hello))), (state, user, at, None)));
            }
            let mut changed = state.changed.subscribe();
            let mut log = state.log(&user);
            while log.len() <= at + 1 && (log.len() <= at || struck && state.fault == Fault::SwapsTwo) {
                if tokio::time::timeout(Duration::from_millis(300), changed.changed()).await.is_err() && log.len() > at {
                    break;
                }
                log = state.log(&user);
            }
            let (seq, frame) = &log[at];
            let whole = |place: usize, frame: &str| format!("id: {place}\n{frame}");
            let mut next = at + 1;
            let text = match state.fault {
                Fault::LosesOne if struck && *seq == AT => format!("id: {next}\n\n"),
                Fault::DoublesOne if struck && *seq == AT => whole(next, frame).repeat(2),
                Fault::SwapsTwo if struck && *seq == AT && log.len() > next => {
                    next += 1;
                    whole(next, &log[at + 1].1) + &whole(next, frame)
                }
                Fault::StandsStill if struck && *seq == AT => {
                    tokio::time::sleep(Duration::from_millis(600)).await;
                    whole(next, frame)
                }
                Fault::Resyncs if struck && *seq == AT => {
                    format!("id: {next}\nevent: resync\ndata: {{\"reason\":\"trimmed\",\"head\":\"{next}\",\"spread_ms\":0}}\n\n")
                }
                _ => whole(next, frame),
            };
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from(text))), (state, user, next, None)))
        });
        Response::builder().header("content-type", "text/event-stream").body(StreamBody::new(body).boxed_unsync()).unwrap()
    }
}
