//! Pictures in a bucket: a server on loopback that knows as much of S3 as is needed, and can be made to refuse.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_RANGE, ETAG, LAST_MODIFIED, RANGE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;

use crate::harness::pictures::picture;
use crate::harness::{Fleet, PATIENCE, RedisKind, User, eventually};

/// A bucket: object names and bytes.
#[derive(Default)]
struct Bucket {
    objects: Mutex<HashMap<String, Bytes>>,
    refuses: AtomicBool,
}

impl Bucket {
    async fn serve(self: Arc<Self>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let bucket = Arc::clone(&self);
                let service = service_fn(move |request| {
                    let bucket = Arc::clone(&bucket);
                    async move { Ok::<_, Infallible>(bucket.answer(request).await) }
                });
                tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service));
            }
        });
        url
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let status = |code: StatusCode| Response::builder().status(code);
        let signed =
            request.headers().get(AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(b"AWS4-HMAC-SHA256 Credential=key/"));
        if self.refuses.load(Ordering::Relaxed) || !signed {
            return status(StatusCode::FORBIDDEN).body(Full::default()).unwrap();
        }
        let (name, method) = (request.uri().path().to_owned(), request.method().clone());
        let range = request.headers().get(RANGE).map(|value| value.to_str().unwrap().trim_start_matches("bytes=").to_owned());
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut objects = self.objects.lock().unwrap();
        match method {
            Method::PUT => {
                objects.insert(name, body);
                status(StatusCode::OK).header(ETAG, "\"x\"").body(Full::default()).unwrap()
            }
            Method::DELETE => {
                objects.remove(&name);
                status(StatusCode::NO_CONTENT).body(Full::default()).unwrap()
            }
            Method::GET => {
                let Some(bytes) = objects.get(&name).cloned() else { return status(StatusCode::NOT_FOUND).body(Full::default()).unwrap() };
                let answer = status(StatusCode::OK).header(ETAG, "\"x\"").header(LAST_MODIFIED, "Mon, 30 Nov 2026 12:00:00 GMT");
                let Some((from, to)) = range.as_deref().and_then(|range| range.split_once('-')) else {
                    return answer.body(Full::new(bytes)).unwrap();
                };
                let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap());
                let place = format!("bytes {from}-{to}/{}", bytes.len());
                answer.status(StatusCode::PARTIAL_CONTENT).header(CONTENT_RANGE, place).body(Full::new(bytes.slice(from..=to))).unwrap()
            }
            _ => status(StatusCode::METHOD_NOT_ALLOWED).body(Full::default()).unwrap(),
        }
    }

    fn names(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_in_a_bucket_are_taken_shown_and_swept() {
    let bucket = Arc::new(Bucket::default());
    let endpoint = Arc::clone(&bucket).serve().await;
    let flags = ["--media-url", "s3://pictures/a/prefix", "--media-s3-endpoint", &endpoint, "--media-s3-access-key", "key"];
    let more = ["--media-s3-secret-key", "secret", "--media-unused-age", "1"];
    // Without a worker first: nothing is swept while it is looked at.
    let mut fleet = Fleet::start_with(RedisKind::Single, 2, 0, &[&flags[..], &more].concat()).await;
    let ann = User::new("ann");
    let (a, there) = (fleet.client(0, &ann), fleet.client(1, &ann));
    let bytes = picture("image/webp", 30, 20);
    let sent = a.upload("image/webp", bytes.clone()).await.expect(201).json;
    let id = sent["id"].as_str().unwrap();
    assert_eq!(bucket.names(), [format!("/pictures/a/prefix/{}/{id}", &id[id.len() - 2..])]);
    let (status, _, seen) = there.look(id, &[]).await;
    assert_eq!((status, &seen), (200, &bytes));
    let (status, _, part) = there.look(id, &[("range", "bytes=3-9")]).await;
    assert_eq!((status, &part[..]), (206, &bytes[3..10]));

    bucket.refuses.store(true, Ordering::Relaxed);
    let refused = a.upload("image/webp", bytes).await.expect_problem(503, "unavailable");
    assert!(refused.header("retry-after").is_some());
    there.get(&format!("/v1/media/{id}")).await.expect_problem(503, "unavailable");
    bucket.refuses.store(false, Ordering::Relaxed);
    assert_eq!(there.sees(id).await, 200);

    // One is shown, the other is not; a sweep of those that are unused takes the other.
    let group = a.create_group("pictures", &["bob"]).await;
    let other = a.upload_picture().await;
    a.send_message(&group, &json!({"client_id": "k", "kind": "image", "media": [id]})).await.expect(201);
    fleet.add_worker().await;
    let b = fleet.client(1, &User::new("bob"));
    eventually("the message is archived", PATIENCE, async || {
        a.get(&format!("/v1/conversations/{group}/messages/by-client-id/k")).await.json["state"] == "archived"
    })
    .await;
    let worker = crate::harness::stores::open(&fleet.redis_url(), fleet.database().url(), &[&flags[..], &more].concat()).await;
    eventually("the unused one is swept", PATIENCE, async || {
        seqline::actions::sweep_media::sweep_media(&worker).await.unwrap();
        a.sees(&other).await == 404
    })
    .await;
    assert_eq!(bucket.names().len(), 1);
    assert_eq!(b.sees(id).await, 200);
}
