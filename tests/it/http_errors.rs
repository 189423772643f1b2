//! What clients see when something is wrong: always a problem with a code of the contract, a request id, and never a bare 500 or a hang.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use reqwest::Method;
use seqline::api::{self, AppState, layers};
use seqline::delivery::OpenStreams;
use seqline::identity::Keyring;
use seqline::settings::Settings;
use seqline::startup::{self, Running};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::harness::client::pair;
use crate::harness::described;
use crate::harness::user::{SECRET, now_s, token};
use crate::harness::{Answer, Client, PrivateRedis, RedisKind, TestDatabase, User, eventually, stores};

/// One gateway on stores of its own.
struct Door {
    url: String,
    admin_url: String,
    running: Running,
    redis: PrivateRedis,
    database: TestDatabase,
}

fn settings(redis: &PrivateRedis, database: &TestDatabase, more: &[&str]) -> Settings {
    let mut flags = vec!["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--drain-ms", "2000"];
    flags.extend(more);
    stores::settings(&redis.url(), database.url(), &flags)
}

impl Door {
    async fn open(more: &[&str]) -> Self {
        let (redis, database) = (PrivateRedis::start(RedisKind::Single).await, TestDatabase::migrated().await);
        let running = startup::start_gateway_with_worker(settings(&redis, &database, more)).await.unwrap();
        Self { url: format!("http://{}", running.api_addr), admin_url: format!("http://{}", running.admin_addr), running, redis, database }
    }

    fn client(&self, user: &User) -> Client {
        Client::new(&self.url, user)
    }

    /// A request without any header of its own.
    async fn bare(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut request = http.request(method.clone(), format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.body(body.to_owned()).send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        described::check_answer(&method, path, status, &headers, &text);
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        Answer { status, headers, json, text }
    }

    async fn readiness(&self) -> (u16, Value) {
        let response = reqwest::get(format!("{}/readyz", self.admin_url)).await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }
}

/// A whole problem: every member of the contract, and nothing that gives something away.
#[track_caller]
fn whole(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.json["code"].as_str()), (status, Some(code)), "{}", answer.text);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.json["status"], json!(status));
    for member in ["type", "title", "detail"] {
        assert!(answer.json[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {}", answer.text);
    }
    assert!(answer.header("x-request-id").is_some_and(|id| !id.is_empty()));
    assert_eq!(answer.header("www-authenticate").is_some(), status == 401);
    assert_eq!(answer.header("retry-after").is_some(), matches!(status, 429 | 503), "{:?}", answer.headers);
    let text = answer.text.to_lowercase();
    for word in ["select ", "insert ", "sqlx", "redis", "postgres", "{s", "panicked", "src/"] {
        assert!(!text.contains(word), "'{word}' in {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_refusal_is_a_problem() {
    let door = Door::open(&["--body-bytes-max=2000"]).await;
    let ann = User::new("ann");
    let auth = format!("Bearer {}", ann.token);
    let json_type = ("content-type", "application/json");
    let id = pair("ann", "bob");
    let conversation = format!("/v1/conversations/{id}");
    let messages = format!("{conversation}/messages");
    door.client(&ann).send_to_peer("bob", "k1", "hello").await.expect(201);

    // No such address, no such method.
    for path in [
        "/index.html",
        "/v1",
        "/v2/events",
        "/v1/conversations/",
        "/metrics",
        "/readyz",
        "/healthz",
        "/v1/conversations/x/y/z",
        "//",
        "/%00",
    ] {
        whole(&door.bare(Method::GET, path, &[], "").await, 404, "not_found");
    }
    let answer = door.bare(Method::DELETE, &messages, &[("authorization", &auth)], "").await;
    whole(&answer, 405, "method_not_allowed");
    assert!(answer.header("allow").is_some_and(|allow| allow.contains("POST") && allow.contains("GET")), "{:?}", answer.headers);

    // Identity comes before everything that a body could do wrong.
    for (method, path) in
        [(Method::GET, "/v1/conversations"), (Method::POST, "/v1/conversations"), (Method::GET, "/v1/unread"), (Method::GET, "/v1/events")]
    {
        whole(&door.bare(method, path, &[json_type], "{").await, 401, "unauthenticated");
    }
    let by_url = door.bare(Method::GET, &format!("/v1/unread?token={}", ann.token), &[], "").await;
    whole(&by_url, 401, "unauthenticated");
    let expired = format!("Bearer {}", token(&json!({"sub": "ann", "exp": now_s() - 31})));
    whole(&door.bare(Method::GET, "/v1/unread", &[("authorization", &expired)], "").await, 401, "token_expired");
    for wrong in ["Bearer", "Bearer ", "Bearer x", "Basic YTpi", "Bearer a.b.c"] {
        whole(&door.bare(Method::GET, "/v1/unread", &[("authorization", wrong)], "").await, 401, "unauthenticated");
    }

    // Form of the request.
    let post = async |headers: &[(&str, &str)], body: &str| {
        let mut all = vec![("authorization", auth.as_str())];
        all.extend(headers);
        door.bare(Method::POST, &messages, &all, body).await
    };
    let good = r#"{"client_id":"k2","body":"x"}"#;
    for media_type in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "application/json; charset=latin1", ""] {
        whole(&post(&[("content-type", media_type)], good).await, 415, "unsupported_media_type");
    }
    whole(&post(&[], good).await, 415, "unsupported_media_type");
    whole(&post(&[json_type, ("content-encoding", "gzip")], good).await, 415, "unsupported_media_type");
    whole(&post(&[json_type, ("accept", "text/html")], good).await, 406, "not_acceptable");
    whole(&post(&[json_type, ("accept", "application/json;q=0")], good).await, 406, "not_acceptable");
    whole(&post(&[json_type], &format!(r#"{{"client_id":"k2","body":"{}"}}"#, "x".repeat(2_000))).await, 413, "too_large");
    whole(&post(&[json_type], "{").await, 400, "malformed_json");
    whole(&post(&[json_type], r#"{"client_id":"k2","body":"\ud83c"}"#).await, 400, "malformed_json");
    for (body, code, field) in [
        (r#"{"client_id":"k2","bdoy":"x"}"#, "unknown_field", "bdoy"),
        (r#"{"client_id":"k2","body":5}"#, "invalid_field", "body"),
        (r#"{"client_id":"k2","body":"a\u0000"}"#, "invalid_field", "body"),
        (r#"{"body":"x"}"#, "invalid_field", "client_id"),
    ] {
        let answer = post(&[json_type], body).await;
        whole(&answer, 422, code);
        assert_eq!(answer.json["field"], field, "{body}");
    }
    for query in [
        "limit=0",
        "limit=-1",
        "limit=201",
        "limit=2147483647",
        "limit=1e3",
        "limit=abc",
        "limit=",
        "before=x",
        "what=1",
        "limit=1&limit=2",
    ] {
        let answer = door.client(&ann).history(&id, query).await;
        whole(&answer, 400, "invalid_parameter");
        assert_eq!(answer.json["field"], query.split('=').next().unwrap(), "{query}");
    }
    whole(
        &door.client(&ann).post(&format!("{messages}?ack=maybe"), &json!({"client_id": "k2", "body": "x"})).await,
        400,
        "invalid_parameter",
    );

    // Who is no member learns nothing, whatever stands in the body; but a body that is none at all says nothing about the conversation.
    let eve = door.client(&User::new("eve"));
    for body in
        [json!({"client_id": "k", "body": "x"}), json!({"bdoy": 1}), json!({"client_id": "k", "body": "x".repeat(1_500)}), json!({})]
    {
        whole(&eve.post(&messages, &body).await, 404, "not_found");
        whole(&eve.patch(&conversation, &body).await, 404, "not_found");
    }
    for path in [
        &conversation,
        &messages,
        &format!("{conversation}/members"),
        &format!("{messages}/1"),
        "/v1/conversations/single:00000000000000000000000000000000",
    ] {
        whole(&eve.get(path).await, 404, "not_found");
    }
    // Ids that nothing can have.
    for path in [
        "/v1/conversations/what",
        "/v1/conversations/group:1",
        "/v1/conversations/single:ABC",
        "/v1/conversations/%FF",
        &format!("{messages}/0"),
        &format!("{messages}/x"),
        &format!("{messages}/18446744073709551616"),
    ] {
        whole(&door.client(&ann).get(path).await, 404, "not_found");
    }
    // After all of this nothing was sent.
    assert_eq!(door.client(&ann).conversation(&id).await.expect(200).json["head_seq"], 1);
    door.running.stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_ids_are_taken_over_or_made() {
    let door = Door::open(&[]).await;
    let id_of = async |given: &str| {
        let answer = door.bare(Method::GET, "/v1/unread", &[("x-request-id", given)], "").await;
        answer.header("x-request-id").unwrap().to_owned()
    };
    assert_eq!(id_of("abc-123").await, "abc-123");
    for strange in ["", "a b", "x\u{7f}y", &"x".repeat(129), "a\"b"] {
        if reqwest::header::HeaderValue::from_str(strange).is_ok() {
            let made = id_of(strange).await;
            assert!(made != strange && made.len() == 32, "{strange:?}: {made}");
        }
    }
    assert_ne!(id_of("").await, id_of("").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn browsers_of_other_sites_stay_outside() {
    let closed = Door::open(&[]).await;
    let preflight = [
        ("origin", "https://app.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    ];
    let answer = closed.bare(Method::OPTIONS, "/v1/conversations", &preflight, "").await;
    whole(&answer, 405, "method_not_allowed");
    assert_eq!(answer.header("access-control-allow-origin"), None);

    let open = Door::open(&["--allowed-origins=https://app.example,https://other.example", "--jwt-cookie=jwt"]).await;
    let answer = open.bare(Method::OPTIONS, "/v1/conversations", &preflight, "").await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, Some("https://app.example")));
    assert_eq!(answer.header("access-control-allow-credentials"), Some("true"));
    let foreign = open.bare(Method::OPTIONS, "/v1/conversations", &[("origin", "https://evil.example"), preflight[1]], "").await;
    assert_eq!(foreign.header("access-control-allow-origin"), None);
    // Errors carry the header as well, or a page could not read them.
    let answer = open.bare(Method::GET, "/v1/unread", &[("origin", "https://app.example")], "").await;
    whole(&answer, 401, "unauthenticated");
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));

    // A cookie reads from anywhere, and writes from allowed origins alone.
    let ann = User::new("ann");
    let cookie = format!("a=b; jwt={}", ann.token);
    let cookie = ("cookie", cookie.as_str());
    open.bare(Method::GET, "/v1/unread", &[cookie], "").await.expect(200);
    let body = r#"{"kind":"single","peer":"bob"}"#;
    let json_type = ("content-type", "application/json");
    for origin in [None, Some("https://evil.example"), Some("null"), Some("https://app.example.evil.example")] {
        let mut headers = vec![cookie, json_type];
        headers.extend(origin.map(|o| ("origin", o)));
        whole(&open.bare(Method::POST, "/v1/conversations", &headers, body).await, 403, "forbidden");
    }
    open.bare(Method::POST, "/v1/conversations", &[cookie, json_type, ("origin", "https://app.example")], body).await.expect(201);
    // Where no cookie is configured it counts for nothing.
    whole(&closed.bare(Method::GET, "/v1/unread", &[cookie], "").await, 401, "unauthenticated");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_and_a_slow_handler_are_answered() {
    let (redis, database) = (PrivateRedis::start(RedisKind::Single).await, TestDatabase::migrated().await);
    let settings = Arc::new(settings(&redis, &database, &["--request-deadline-ms=200"]));
    let stores = startup::open_stores(Arc::clone(&settings)).await.unwrap();
    let stop = CancellationToken::new();
    let state = AppState::new(api::Parts {
        hub: OpenStreams::start(Arc::clone(&stores), "g".into(), stop.clone()),
        clock: stores.clock,
        demo: None,
        stores,
        keyring: Arc::new(Keyring::new(&[SECRET], None, Default::default()).unwrap()),
        settings,
    });
    async fn panics() -> &'static str {
        panic!("a secret")
    }
    async fn hangs() {
        std::future::pending().await
    }
    let router: Router = Router::new()
        .route("/panics", get(panics))
        .route("/hangs", get(hangs))
        .route("/bare", get(|| async { axum::http::StatusCode::INTERNAL_SERVER_ERROR }))
        .route("/v1/events", get(|| async { tokio::time::sleep(Duration::from_millis(400)).await }))
        .layer(from_fn_with_state(state, layers::front));
    let ask = async |path: &str| {
        let request = axum::http::Request::get(path).body(axum::body::Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Answer { status, headers, json: serde_json::from_str(&text).unwrap_or(Value::Null), text }
    };
    for path in ["/panics", "/hangs", "/bare"] {
        let begun = Instant::now();
        whole(&ask(path).await, 503, "unavailable");
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    // What waits for things to happen has no deadline.
    assert_eq!(ask("/v1/events").await.status, 200);
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_redis_hangs_sends_are_refused_in_time_and_readiness_says_no() {
    let mut door = Door::open(&["--request-deadline-ms=2000"]).await;
    let ann = door.client(&User::new("ann"));
    ann.send_to_peer("bob", "k1", "one").await.expect(201);
    let (status, body) = door.readiness().await;
    assert_eq!((status, &body["ready"], &body["redis"]["ok"], &body["postgres"]["ok"]), (200, &json!(true), &json!(true), &json!(true)));

    door.redis.nodes()[0].process().signal("STOP");
    let begun = Instant::now();
    let answer = ann.send_to_peer("bob", "k2", "two").await;
    whole(&answer, 503, "unavailable");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    eventually("readiness says no", Duration::from_secs(20), async || door.readiness().await.0 == 503).await;
    door.redis.nodes()[0].process().signal("CONT");

    eventually("readiness says yes", Duration::from_secs(30), async || door.readiness().await.0 == 200).await;
    let path = pair("ann", "bob");
    let again = ann.send_until_stored(&path, "k2", "two", Duration::from_secs(30)).await;
    assert_eq!(again.seq(), 2, "however often it was tried");
    assert_eq!(ann.conversation(&path).await.expect(200).json["head_seq"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_evicts_is_not_ready_for_use_and_a_missing_postgres_is_said() {
    let door = Door::open(&[]).await;
    door.redis.on_every_node(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    eventually("readiness says no", Duration::from_secs(20), async || door.readiness().await.0 == 503).await;
    let (_, body) = door.readiness().await;
    assert!(body["redis"]["detail"].as_str().is_some_and(|d| d.contains("allkeys-lru") && d.contains("noeviction")), "{body}");
    door.redis.on_every_node(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    eventually("readiness says yes", Duration::from_secs(20), async || door.readiness().await.0 == 200).await;
    let alive = reqwest::get(format!("{}/healthz", door.admin_url)).await.unwrap();
    assert_eq!((alive.status().as_u16(), alive.text().await.unwrap().trim().to_owned()), (200, "ok".to_owned()));
    drop(door.database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_installation_keeps_its_shards() {
    let door = Door::open(&[]).await;
    for (more, name) in [("--shards=9", "SEQLINE_SHARDS"), ("--partitions=17", "SEQLINE_PARTITIONS")] {
        let mut other = settings(&door.redis, &door.database, &[]);
        if name == "SEQLINE_SHARDS" {
            other.shards = 9
        } else {
            other.partitions = 17
        }
        let error = startup::start_gateway(other).await.unwrap_err().to_string();
        assert!(error.starts_with(name), "{more}: {error}");
    }
    let empty = TestDatabase::empty().await;
    let error = startup::start_worker(settings(&door.redis, &empty, &[])).await.unwrap_err().to_string();
    assert!(error.contains("seqline migrate"), "{error}");
    // What is told to stop stops.
    door.running.stop.cancel();
    door.running.join().await;
    assert!(reqwest::get(format!("{}/healthz", door.admin_url)).await.is_err());
}
