//! The page that the binary brings with it: every file it loads is there, with the headers that keep it safe and fresh, until a setting turns
//! it off; and the tokens of the demonstration, which nobody gets from `seqline serve`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use reqwest::header::{ACCEPT, HOST, IF_NONE_MATCH};
use reqwest::{Method, Response};
use seqline::api::demo_tokens::DemoSecret;
use seqline::api::web_client::FILES;
use seqline::startup::{Running, start_demo_gateway};
use serde_json::{Value, json};

use crate::harness::servers::TestDatabase;
use crate::harness::user::SECRET;
use crate::harness::{Client, Fleet, PrivateRedis, RedisKind, User, stores};

async fn ask(url: &str, method: Method, path: &str, headers: &[(reqwest::header::HeaderName, &str)]) -> Response {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = headers.iter().fold(http.request(method, format!("{url}{path}")), |request, (name, value)| request.header(name, *value));
    request.send().await.unwrap()
}

fn header<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

/// What stands between quotes in a place where a file loads another: `from "…"`, `import "…"`, `import("…")`, `src="…"`, `href="…"`, `"src": "…"`.
fn loaded_by(text: &str) -> impl Iterator<Item = &str> {
    let places = ["from \"", "from '", "import \"", "import '", "import(\"", "import('", "src=\"", "href=\"", "\"src\": \""];
    places.into_iter().flat_map(move |place| text.split(place).skip(1)).map(|rest| rest.split(['"', '\'']).next().unwrap())
}

/// The file that `name`, seen in `file`, leads to; none when it is no path at all.
fn resolved(file: &str, name: &str) -> Option<String> {
    if let Some(absolute) = name.strip_prefix('/') {
        return Some(absolute.to_owned());
    }
    let mut at: Vec<&str> = file.split('/').collect();
    at.pop();
    for part in name.strip_prefix("./").or(name.starts_with("../").then_some(name))?.split('/') {
        if part == ".." {
            at.pop()?;
        } else {
            at.push(part);
        }
    }
    Some(at.join("/"))
}

#[test]
fn every_file_that_the_page_loads_is_in_the_binary() {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("web");
    let served: BTreeSet<&str> = FILES.iter().map(|file| file.name).collect();
    let mut waiting = vec!["index.html".to_owned(), "sw.js".to_owned()];
    let mut seen = BTreeSet::new();
    while let Some(file) = waiting.pop() {
        // The push worker is asked for by name only.
        let Ok(text) = fs::read_to_string(web.join(&file)) else {
            assert!(file == "sw.js" || file.ends_with(".png") && web.join(&file).exists(), "{file} is loaded, but not there");
            continue;
        };
        assert!(served.contains(file.as_str()), "web/{file} is loaded by the page and is no row of FILES in src/api/web_client.rs");
        for line in text.lines().filter(|line| !line.trim_start().starts_with(['*', '/'])) {
            waiting.extend(loaded_by(line).filter_map(|name| resolved(&file, name)).filter(|name| seen.insert(name.clone())));
        }
    }
    assert!(seen.contains("app/main.js") && seen.contains("seqline.js"), "{seen:?}");
    // The other way round: what nobody loads need not be carried, and would be found by nobody.
    for name in served.iter().filter(|name| name.starts_with("app/") || name.starts_with("client/")) {
        assert!(seen.contains(*name), "web/{name} is served, but no file loads it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_is_served_fresh_and_fenced_in() {
    let fleet = Fleet::start(RedisKind::Single, 2, 0).await;
    for file in FILES {
        let answer = ask(&fleet.url(0), Method::GET, file.path, &[(ACCEPT, "text/html, image/avif")]).await;
        assert_eq!(answer.status(), 200, "{}", file.path);
        let tag = header(&answer, "etag").to_owned();
        assert_eq!(header(&answer, "cache-control"), "no-cache", "{}", file.path);
        assert_eq!(header(&answer, "x-content-type-options"), "nosniff");
        assert_eq!(header(&answer, "referrer-policy"), "no-referrer");
        let policy = header(&answer, "content-security-policy");
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains('*') && !policy.contains("http"), "{policy}");
        let expected = match file.name.rsplit('.').next().unwrap() {
            "html" => "text/html; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            "png" => "image/png",
            "webmanifest" => "application/manifest+json",
            other => panic!("{other}"),
        };
        assert_eq!(header(&answer, "content-type"), expected);
        assert_eq!(header(&answer, "service-worker-allowed"), if file.path == "/sw.js" { "/" } else { "" });
        let body = answer.bytes().await.unwrap();
        let on_disk = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("web").join(file.name)).unwrap();
        assert!(body == on_disk, "{}", file.path);

        // The other gateway knows the tag: it is made of the bytes.
        let again = ask(&fleet.url(1), Method::GET, file.path, &[(IF_NONE_MATCH, &format!("\"old\", W/{tag}"))]).await;
        assert_eq!((again.status().as_u16(), header(&again, "etag"), header(&again, "content-type")), (304, tag.as_str(), ""));
        assert!(again.bytes().await.unwrap().is_empty());
        let changed = ask(&fleet.url(1), Method::GET, file.path, &[(IF_NONE_MATCH, "\"old\"")]).await;
        assert_eq!(changed.status(), 200);
        let head = ask(&fleet.url(1), Method::HEAD, file.path, &[]).await;
        assert_eq!((head.status().as_u16(), header(&head, "content-length")), (200, body.len().to_string().as_str()));
    }
    // A query is the page's own business; other addresses are nobody's.
    assert_eq!(ask(&fleet.url(0), Method::GET, "/?c=group:x", &[]).await.status(), 200);
    for path in ["/app/", "/app/../Cargo.toml", "/app/%2e%2e/Cargo.toml", "/index.html", "/client", "/demo/token", "/app/none.js"] {
        let answer = ask(&fleet.url(0), Method::GET, path, &[]).await;
        assert_eq!((answer.status().as_u16(), header(&answer, "content-type")), (404, "application/problem+json"), "{path}");
    }
    let answer = ask(&fleet.url(0), Method::POST, "/", &[]).await;
    assert_eq!((answer.status().as_u16(), header(&answer, "allow")), (405, "GET,HEAD"));
    assert_eq!(answer.json::<Value>().await.unwrap()["code"], "method_not_allowed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_page_its_addresses_are_unknown() {
    let fleet = Fleet::start_with(RedisKind::Single, 1, 0, &["--web-client=false"]).await;
    for file in FILES {
        let answer = ask(&fleet.url(0), Method::GET, file.path, &[]).await;
        assert_eq!((answer.status().as_u16(), header(&answer, "content-type")), (404, "application/problem+json"), "{}", file.path);
    }
    assert_eq!(ask(&fleet.url(0), Method::GET, "/openapi.json", &[]).await.status(), 200);
}

struct DemoGateway {
    url: String,
    _running: Running,
    _stores: (PrivateRedis, TestDatabase),
}

impl DemoGateway {
    async fn start() -> Self {
        let (redis, database) = (PrivateRedis::start(RedisKind::Single).await, TestDatabase::migrated().await);
        let flags = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        let settings = stores::settings(&redis.url(), database.url(), &flags);
        let running = start_demo_gateway(settings, DemoSecret(SECRET.to_owned())).await.unwrap();
        Self { url: format!("http://{}", running.api_addr), _running: running, _stores: (redis, database) }
    }

    async fn token(&self, host: &str, body: &Value) -> (u16, Value) {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut request = http.post(format!("{}/demo/token", self.url)).json(body);
        if !host.is_empty() {
            request = request.header(HOST, host);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        assert!(status != 200 || header(&answer, "cache-control") == "no-store");
        (status, answer.json().await.unwrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demonstration_alone_gives_tokens_and_only_to_this_machine() {
    let demo = DemoGateway::start().await;
    let (status, given) = demo.token("", &json!({"user": "ann"})).await;
    assert_eq!(status, 200, "{given}");
    let token = given["token"].as_str().unwrap().to_owned();
    let ann = Client::new(&demo.url, &User { token, ..User::new("ann") });
    ann.get("/v1/unread").await.expect(200);
    let page = ask(&demo.url, Method::GET, "/?demo", &[]).await;
    assert!(header(&page, "content-security-policy").contains("frame-ancestors 'self'"), "it shows itself in two frames");

    // A page of the world whose name leads here names itself.
    let (status, refused) = demo.token("chat.example:8080", &json!({"user": "ann"})).await;
    assert_eq!((status, &refused["code"]), (404, &json!("not_found")));
    assert_eq!(demo.token("localhost:1234", &json!({"user": "ann"})).await.0, 200);
    for (body, code) in [(json!({"user": "a/b"}), "invalid_field"), (json!({"user": "ann", "scope": "admin"}), "unknown_field")] {
        let (status, refused) = demo.token("", &body).await;
        assert_eq!((status, &refused["code"]), (422, &json!(code)), "{body}");
    }

    // A gateway as `seqline serve` starts it has no such route, whatever its settings.
    let fleet = Fleet::start(RedisKind::Single, 1, 0).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = http.post(format!("{}/demo/token", fleet.url(0))).json(&json!({"user": "ann"})).send().await.unwrap();
    assert_eq!(answer.status(), 404);
    let table = seqline::settings::table::markdown();
    assert!(!table.to_lowercase().contains("demo"), "no setting brings it");
}

/// The files of the page: name and text.
fn page_files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("web/app");
    let read = |path: std::path::PathBuf| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap());
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| read(entry.unwrap().path())).collect();
    files.sort();
    files
}

#[test]
fn both_languages_have_the_same_words() {
    let files = page_files();
    let words = |language: &str| -> Vec<String> {
        let (_, text) = files.iter().find(|(name, _)| name == &format!("words_{language}.js")).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("  ").and_then(|line| line.split_once(": '")));
        lines.map(|(word, said)| format!("{word} {}", said.matches('{').count())).collect()
    };
    let (english, chinese) = (words("en"), words("zh"));
    assert!(english.len() > 100);
    let distinct: BTreeSet<&String> = english.iter().collect();
    assert_eq!(distinct.len(), english.len(), "a word stands there twice");
    // With as many places for names and numbers.
    assert_eq!(english, chinese);
}

#[test]
fn what_people_write_never_becomes_markup() {
    for (name, text) in page_files().iter().filter(|(name, _)| name.ends_with(".js")) {
        for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval(", "new Function"] {
            assert!(!text.contains(word), "web/app/{name}: {word}");
        }
        assert!(text.lines().count() < 500, "web/app/{name} is long");
        assert!(text.starts_with("/**"), "web/app/{name} does not say what it is");
    }
}
