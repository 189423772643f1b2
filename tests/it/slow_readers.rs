//! Readers that are slow, stuck or gone: nobody else waits for them, they miss nothing without being told, and they cost a bounded amount.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::fleet::PATIENCE;
use crate::harness::frames::FrameReader;
use crate::harness::log_writer::LogWriter;
use crate::harness::lone_gateway::LoneGateway;
use crate::harness::{PrivateRedis, RedisKind, StreamRequest, TestDatabase, User, eventually};

/// Opens a stream by hand, on a socket that takes little.
async fn by_hand(gateway: &LoneGateway, user: &User) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    socket.connect(&gateway.address.into()).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut socket = TcpStream::from_std(socket.into()).unwrap();
    let head = format!("GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n", user.token);
    socket.write_all(head.as_bytes()).await.unwrap();
    socket
}

/// Reads everything that comes on a socket and takes it out of the chunks; gives the numbers in it when `until` has come.
async fn numbers_by_hand(socket: &mut TcpStream, until: u64) -> Vec<u64> {
    numbers_at_a_pace(socket, until, 64 * 1024, Duration::ZERO).await
}

/// The same, `piece` bytes at most each `pause`.
async fn numbers_at_a_pace(socket: &mut TcpStream, until: u64, piece: usize, pause: Duration) -> Vec<u64> {
    let (mut raw, mut got, mut reader) = (Vec::new(), Vec::new(), FrameReader::default());
    let mut buffer = vec![0; piece];
    let mut is_past_head = false;
    while got.last() != Some(&until) {
        tokio::time::sleep(pause).await;
        let count = tokio::time::timeout(PATIENCE, socket.read(&mut buffer)).await.expect("bytes come").unwrap();
        assert!(count > 0, "the stream ended after {:?}", got.last());
        raw.extend_from_slice(&buffer[..count]);
        if !is_past_head {
            let Some(end) = raw.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
            raw.drain(..end + 4);
            is_past_head = true;
        }
        while let Some(line) = raw.windows(2).position(|w| w == b"\r\n") {
            let size = usize::from_str_radix(std::str::from_utf8(&raw[..line]).unwrap(), 16).unwrap();
            if raw.len() < line + 2 + size + 2 {
                break;
            }
            for frame in reader.feed(&raw[line + 2..line + 2 + size]) {
                assert_ne!(frame.event.as_deref(), Some("resync"));
                let data: Option<serde_json::Value> = frame.data.and_then(|d| serde_json::from_str(&d).ok());
                got.extend(data.and_then(|d| d["data"]["n"].as_u64()));
            }
            raw.drain(..line + 2 + size + 2);
        }
    }
    got
}

async fn gateway(redis: &PrivateRedis, flags: &[&str]) -> (LoneGateway, TestDatabase) {
    let database = TestDatabase::migrated().await;
    let gateway = LoneGateway::start(&redis.url(), database.url(), flags).await;
    (gateway, database)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_stood_still_gets_everything_later_and_the_others_at_once() {
    let redis = PrivateRedis::start(RedisKind::Single).await;
    let (gateway, _database) = gateway(&redis, &[]).await;
    let ann = User::new("ann");
    let mut stuck = by_hand(&gateway, &ann).await;
    let mut healthy = vec![];
    for _ in 0..10 {
        let mut stream = StreamRequest::new(&gateway.url(), &ann).open().await;
        stream.wait_for("hello", PATIENCE).await;
        healthy.push(stream);
    }
    eventually("all are open", PATIENCE, async || gateway.hub.count() == 11).await;
    let mut writer = LogWriter::new(&redis.url(), "ann").await;
    writer.padding = "x".repeat(2_000);
    let total = 3_000;
    let writing = async {
        for _ in 0..total / 20 {
            writer.write(20).await;
        }
    };
    let reading = futures_util::future::join_all(healthy.iter_mut().map(async |stream| {
        for n in 1..=total {
            assert_eq!(stream.next_event(PATIENCE).await.unwrap().data["data"]["n"], n);
        }
    }));
    let begun = Instant::now();
    tokio::join!(writing, reading);
    let waited = begun.elapsed();
    assert_eq!(gateway.hub.count(), 11, "the one that stands still is still there after {waited:?}");
    assert_eq!(numbers_by_hand(&mut stuck, total).await, (1..=total).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_takes_nothing_is_cut_after_a_while() {
    let redis = PrivateRedis::start(RedisKind::Single).await;
    let (gateway, _database) = gateway(&redis, &["--stream-stall-ms", "1500", "--heartbeat-ms", "500"]).await;
    let ann = User::new("ann");
    let mut stuck = by_hand(&gateway, &ann).await;
    eventually("it is open", PATIENCE, async || gateway.hub.count() == 1).await;
    let mut writer = LogWriter::new(&redis.url(), "ann").await;
    writer.padding = "x".repeat(4_000);
    writer.write(1_000).await;
    eventually("it is gone", PATIENCE, async || gateway.hub.count() == 0).await;
    // And its socket with it: what the kernel still holds can be read, then there is an end.
    let mut buffer = vec![0; 64 * 1024];
    while tokio::time::timeout(PATIENCE, stuck.read(&mut buffer)).await.expect("an end").unwrap_or(0) > 0 {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_takes_a_little_all_the_time_is_not_cut() {
    const PIECE: usize = 16 * 1024;
    let redis = PrivateRedis::start(RedisKind::Single).await;
    let (gateway, _database) = gateway(&redis, &["--stream-stall-ms", "2500", "--heartbeat-ms", "1000"]).await;
    let ann = User::new("ann");
    let mut slow = by_hand(&gateway, &ann).await;
    eventually("it is open", PATIENCE, async || gateway.hub.count() == 1).await;
    let mut writer = LogWriter::new(&redis.url(), "ann").await;
    writer.padding = "x".repeat(4_000);
    writer.write(160).await;
    // Many times as fast as a bad line, as the time without a taken byte after which it is cut is a small part of what is usual.
    let begun = Instant::now();
    let numbers = numbers_at_a_pace(&mut slow, 160, PIECE, Duration::from_millis(250)).await;
    assert_eq!(numbers, (1..=160).collect::<Vec<_>>());
    println!("{:?} at {} KiB/s", begun.elapsed(), 4 * PIECE / 1024);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_is_told_when_the_log_has_left_it_behind() {
    let redis = PrivateRedis::start(RedisKind::Single).await;
    let (gateway, _database) = gateway(&redis, &[]).await;
    let ann = User::new("ann");
    let mut stuck = by_hand(&gateway, &ann).await;
    eventually("it is open", PATIENCE, async || gateway.hub.count() == 1).await;
    let mut writer = LogWriter::new(&redis.url(), "ann").await;
    writer.padding = "x".repeat(4_000);
    writer.entries_max = 100;
    for _ in 0..40 {
        writer.write(50).await;
    }
    let (mut text, mut buffer) = (String::new(), vec![0; 64 * 1024]);
    while !text.contains("event: resync") {
        let count = tokio::time::timeout(PATIENCE, stuck.read(&mut buffer)).await.expect("a word about it").unwrap();
        assert!(count > 0);
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    writer.write(1).await;
    while !text.contains("\"n\":2001") {
        let count = tokio::time::timeout(PATIENCE, stuck.read(&mut buffer)).await.expect("and on it goes").unwrap();
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_is_noticed_at_once_and_one_that_never_asks_is_sent_away() {
    let redis = PrivateRedis::start(RedisKind::Single).await;
    let (gateway, _database) = gateway(&redis, &[]).await;
    let ann = User::new("ann");
    let stuck = by_hand(&gateway, &ann).await;
    eventually("it is open", PATIENCE, async || gateway.hub.count() == 1).await;
    let mut silent = TcpStream::connect(gateway.address).await.unwrap();
    silent.write_all(b"GET /v1/events HTTP/1.1\r\nHost:").await.unwrap();
    drop(stuck);
    eventually("it is gone", Duration::from_secs(20), async || gateway.hub.count() == 0).await;
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, silent.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "an unfinished head does not hold a connection");
}
