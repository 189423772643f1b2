//! Peers that drop off the net without a word: no FIN, no RST, no acknowledgement. Nothing but silence tells of it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use socket2::{SockFilter, SockRef};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::lone_gateway::LoneGateway;
use crate::harness::{PATIENCE, PrivateRedis, RedisKind, TestDatabase, User, eventually};

const HEARTBEAT: Duration = Duration::from_secs(2);
/// What a loaded machine may add.
const LATE: Duration = Duration::from_millis(900);

/// A stream on a bare socket, read up to its greeting.
async fn open(address: SocketAddr, user: &User) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", user.token);
    socket.write_all(request.as_bytes()).await.unwrap();
    let (mut text, mut piece) = (Vec::new(), [0; 4_096]);
    while !text.windows(5).any(|part| part == b"hello") {
        let length = socket.read(&mut piece).await.unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&text));
        text.extend(&piece[..length]);
    }
    socket
}

/// Has the kernel drop every segment that comes in for this socket before TCP sees it: the other side hears nothing any more, just as
/// if the cable had been cut. Needs no privilege.
fn vanish(socket: &TcpStream) {
    const RETURN: u16 = 0x06;
    SockRef::from(socket).attach_filter(&[SockFilter::new(RETURN, 0, 0, 0)]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_vanishes_is_let_go_within_three_heartbeats() {
    let (redis, database) = (PrivateRedis::start(RedisKind::Single).await, TestDatabase::migrated().await);
    let heartbeat_ms = HEARTBEAT.as_millis().to_string();
    let gateway = LoneGateway::start(&redis.url(), database.url(), &["--heartbeat-ms", &heartbeat_ms]).await;
    let mut vanishing = open(gateway.address, &User::new("ann")).await;
    // One that is there and takes nothing, which is no reason to let it go: its kernel acknowledges.
    let idle = open(gateway.address, &User::new("bob")).await;
    let mut piece = [0; 64];
    assert!(vanishing.read(&mut piece).await.unwrap() > 0, "a heartbeat came, and was acknowledged");
    assert_eq!(gateway.hub.count(), 2);
    vanish(&vanishing);
    let begun = Instant::now();
    eventually("the one that vanished is gone", PATIENCE, async || gateway.hub.count() == 1).await;
    let took = begun.elapsed();
    println!("gone after {took:?}, {:.2} heartbeats", took.as_secs_f64() / HEARTBEAT.as_secs_f64());
    assert!(took > HEARTBEAT, "that was not by silence: {took:?}");
    assert!(took <= HEARTBEAT * 3 + LATE, "{took:?}");
    let heard = tokio::time::timeout(Duration::from_millis(100), vanishing.read(&mut piece)).await;
    assert!(heard.is_err(), "it has really heard nothing since: {heard:?}");
    drop(idle);
    eventually("who leaves in order is gone at once", PATIENCE, async || gateway.hub.count() == 0).await;
}
