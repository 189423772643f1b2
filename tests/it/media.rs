//! Uploads: taken at one gateway and seen at the other; what is no sound picture within the limits is not taken, and leaves nothing behind.

use std::time::Duration;

use reqwest::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::pictures::{KINDS, PictureFleet, files, picture};
use crate::harness::{Answer, Client, Fleet, PATIENCE, RedisKind, User, eventually};

/// Rows of pictures, by state.
async fn rows(fleet: &Fleet) -> Vec<(String, i64)> {
    let mut connection = fleet.database().connect().await;
    sqlx::query_as("SELECT state, count(*) FROM media GROUP BY state ORDER BY state").fetch_all(&mut connection).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_picture_taken_at_one_gateway_is_seen_at_the_other_as_it_was() {
    let fleet = PictureFleet::start_with(RedisKind::Single, &[]).await;
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    for (kind, _) in KINDS {
        let bytes = picture(kind, 30, 20);
        let sent = fleet.client(0, &ann).upload(kind, bytes.clone()).await.expect(201);
        let id = sent.json["id"].as_str().unwrap();
        let said = serde_json::json!({"id": id, "mime_type": kind, "size": bytes.len(), "width": 30, "height": 20});
        assert_eq!(sent.json, said);
        assert_eq!(sent.header("location"), Some(format!("/v1/media/{id}").as_str()));

        let there = fleet.client(1, &ann);
        let (status, headers, seen) = there.look(id, &[("accept", "image/*")]).await;
        assert_eq!((status, &seen), (200, &bytes));
        let header = |name: &str| headers[name].to_str().unwrap();
        assert_eq!(header("content-type"), kind);
        assert_eq!(header("content-length"), bytes.len().to_string());
        assert_eq!(header("cache-control"), "private, max-age=31536000, immutable");
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("content-disposition"), "inline");

        let etag = header("etag").to_owned();
        let (status, _, nothing) = there.look(id, &[("if-none-match", &etag)]).await;
        assert_eq!((status, nothing.len()), (304, 0));
        let (status, headers, part) = there.look(id, &[("range", "bytes=5-14"), ("if-range", &etag)]).await;
        assert_eq!((status, &part[..]), (206, &bytes[5..15]));
        assert_eq!(headers["content-range"].to_str().unwrap(), format!("bytes 5-14/{}", bytes.len()));
        assert_eq!(there.look(id, &[("range", "bytes=5-14"), ("if-range", "\"other\"")]).await.2, bytes);
        let head = there.try_request(Method::HEAD, &format!("/v1/media/{id}"), &[], None).await.unwrap().expect(200);
        assert_eq!((head.header("content-length"), head.text.len()), (Some(bytes.len().to_string().as_str()), 0));

        // Shown nowhere, it is its owner's alone; to others there is no such thing.
        fleet.client(1, &bob).get(&format!("/v1/media/{id}")).await.expect_problem(404, "not_found");
        let stranger = Client::new(fleet.url(0), &User { token: "x".into(), ..bob.clone() });
        stranger.get(&format!("/v1/media/{id}")).await.expect_problem(401, "unauthenticated");
        stranger.upload(kind, bytes).await.expect_problem(401, "unauthenticated");
    }
    let a = fleet.client(0, &ann);
    for id in ["01940b5e-7d3f-7000-8000-00000000000a", "x", "../jwt-secret", "01940B5E-7D3F-7000-8000-00000000000A", "%00"] {
        a.get(&format!("/v1/media/{id}")).await.expect_problem(404, "not_found");
    }
    assert_eq!((rows(&fleet).await, files(fleet.folder())), (vec![("ready".to_owned(), 4)], 4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_sound_picture_is_refused_and_leaves_nothing() {
    let flags = ["--media-bytes-max", "50000", "--media-pixels-max", "10000", "--media-side-max", "1000", "--media-upload-ms", "1500"];
    let fleet = PictureFleet::start_with(RedisKind::Single, &flags).await;
    let a = fleet.client(0, &User::new("ann"));
    let png = picture("image/png", 30, 20);
    let refused = async |kind: &str, bytes: Vec<u8>, status: u16, field: Option<&str>| {
        let answer = a.upload(kind, bytes).await;
        let code = match status {
            413 => "too_large",
            415 => "unsupported_media_type",
            _ => "invalid_field",
        };
        assert_eq!(answer.expect_problem(status, code).json["field"].as_str(), field, "{kind}");
    };
    refused("image/png", Vec::new(), 422, Some("body")).await;
    refused("image/png", png[..png.len() - 20].to_vec(), 422, Some("body")).await;
    refused("image/jpeg", png.clone(), 422, Some("Content-Type")).await;
    refused("image/png", b"<svg xmlns='http://www.w3.org/2000/svg'/>".to_vec(), 415, None).await;
    for kind in ["image/svg+xml", "application/octet-stream", "text/html", "image/*", "", "multipart/form-data; boundary=x"] {
        refused(kind, png.clone(), 415, None).await;
    }
    refused("image/png", picture("image/png", 101, 100), 422, Some("body")).await;
    refused("image/png", picture("image/png", 1_001, 1), 422, Some("body")).await;
    refused("image/png", vec![0; 50_001], 413, None).await;
    a.try_request(Method::POST, "/v1/media", &[("content-type", "image/png"), ("content-encoding", "gzip")], Some(png.clone()))
        .await
        .unwrap()
        .expect_problem(415, "unsupported_media_type");
    assert_eq!((rows(&fleet).await, files(fleet.folder())), (vec![], 0));
    // Parameters of the type are no reason to refuse, nor is its spelling.
    a.upload("IMAGE/png; x=y", png.clone()).await.expect(201);
    assert_eq!((rows(&fleet).await, files(fleet.folder())), (vec![("ready".to_owned(), 1)], 1));
}

/// Says what is given, word for word, and hears what comes back.
async fn raw(fleet: &Fleet, head: &str, parts: &[&[u8]], close: bool) -> Answer {
    let address = fleet.url(0).trim_start_matches("http://").to_owned();
    let mut socket = TcpStream::connect(&address).await.unwrap();
    let token = User::new("ann").token;
    let head =
        format!("POST /v1/media HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: image/png\r\n{head}\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    for part in parts {
        // It may have answered and closed already.
        let _ = socket.write_all(part).await;
    }
    if close {
        socket.shutdown().await.unwrap();
    }
    let mut text = Vec::new();
    let reading = async {
        let mut buffer = [0; 4_096];
        while let Ok(count @ 1..) = socket.read(&mut buffer).await {
            text.extend_from_slice(&buffer[..count]);
            if text.ends_with(b"}") {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("neither an answer nor an end");
    let text = String::from_utf8_lossy(&text).into_owned();
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let json = text.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok()).unwrap_or_default();
    Answer { status, headers: Default::default(), json, text }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lengths_that_lie_and_lines_that_stall_cost_their_sender_alone() {
    let fleet = PictureFleet::start_with(RedisKind::Single, &["--media-bytes-max", "50000", "--media-upload-ms", "1500"]).await;
    let png = picture("image/png", 30, 20);
    let code = |answer: &Answer| (answer.status, answer.json["code"].as_str().unwrap_or_default().to_owned());
    // Said to be too large: refused before a byte of it is read.
    assert_eq!(code(&raw(&fleet, "Content-Length: 50001", &[], false).await), (413, "too_large".into()));
    assert_eq!(raw(&fleet, "Content-Length: 99999999999999999999", &[], false).await.status, 400);
    // Without a length.
    let chunk = |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    let whole = [chunk(&png[..100]), chunk(&png[100..]), b"0\r\n\r\n".to_vec()].concat();
    assert_eq!(raw(&fleet, "Transfer-Encoding: chunked", &[&whole], false).await.status, 201);
    let long = chunk(&vec![0; 50_001]);
    assert_eq!(code(&raw(&fleet, "Transfer-Encoding: chunked", &[&long], false).await), (413, "too_large".into()));
    assert_eq!(code(&raw(&fleet, "Transfer-Encoding: chunked", &[b"0\r\n\r\n"], false).await), (422, "invalid_field".into()));
    // Shorter than it said: cut off, and a line that falls silent.
    let length = format!("Content-Length: {}", png.len() + 1);
    let cut = raw(&fleet, &length, &[&png], true).await;
    assert!(matches!(cut.status, 0 | 400), "{}", cut.text);
    assert_eq!(code(&raw(&fleet, &length, &[&png], false).await), (400, "invalid_parameter".into()));
    // Longer than it said: what it said is a picture, the rest is none of the request.
    let exact = format!("Content-Length: {}", png.len());
    assert_eq!(raw(&fleet, &exact, &[&png, b"GET / HTTP/1.1\r\n"], false).await.status, 201);
    eventually("two pictures, nothing else", Duration::from_secs(10), async || {
        (rows(&fleet).await, files(fleet.folder())) == (vec![("ready".to_owned(), 2)], 2)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_place_or_a_store_pictures_wait_and_the_rest_goes_on() {
    let ann = User::new("ann");
    let png = picture("image/png", 30, 20);
    let unavailable = |answer: Answer| {
        let answer = answer.expect_problem(503, "unavailable");
        assert!(answer.header("retry-after").is_some());
    };
    let none = Fleet::start(RedisKind::Single, 1, 0).await;
    unavailable(none.client(0, &ann).upload("image/png", png.clone()).await);
    unavailable(none.client(0, &ann).get("/v1/media/01940b5e-7d3f-7000-8000-00000000000a").await);

    let mut fleet = PictureFleet::on_own_postgres().await;
    let a = fleet.client(0, &ann);
    let id = a.upload_picture().await;
    // The place goes: a file stands where the folder was.
    let (folder, aside) = (fleet.folder().to_owned(), fleet.folder().with_extension("aside"));
    std::fs::rename(&folder, &aside).unwrap();
    std::fs::write(&folder, "").unwrap();
    unavailable(a.upload("image/png", png.clone()).await);
    unavailable(a.get(&format!("/v1/media/{id}")).await);
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&aside, &folder).unwrap();
    assert_eq!(a.sees(&id).await, 200);
    // Postgres goes.
    // As its administrator would stop it at once.
    fleet.fleet().database_mut().server().process().signal("INT");
    eventually("Postgres has ended", PATIENCE, async || fleet.fleet().database_mut().server().process().ended().is_some()).await;
    unavailable(a.upload("image/png", png.clone()).await);
    unavailable(a.get(&format!("/v1/media/{id}")).await);
    assert_eq!(files(fleet.folder()), 1);
    fleet.fleet().database_mut().server().start_again().await.unwrap();
    eventually("pictures are back", PATIENCE, async || a.sees(&id).await == 200).await;
    a.upload("image/png", png).await.expect(201);
}
