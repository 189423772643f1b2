//! The API's own accept loop: HTTP/1.1 over plain sockets. TLS and HTTP/2 belong to the load balancer in front.
//!
//! Why not the ready-made one: it sets no limit for the arrival of a request's head, keeps a copy of the router per connection, and gives no
//! hold on the socket, which streams need to notice a peer that is gone (see `delivery/socket.rs`).

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use crate::delivery::socket::PeerSocket;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4_096;
/// Time within which the head of a connection's first request must have arrived.
const FIRST_HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Time for which a connection may be idle between requests, and within which the head of a later one must have arrived. Longer than the
/// idle time of common load balancers (60 s), so that they close first and never send into a closing connection.
const LATER_HEAD_WITHIN: Duration = Duration::from_secs(90);
/// Bytes of a request's head, and of what waits for a slow reader, at most.
const BUFFER_BYTES_MAX: usize = 32 * 1024;
/// Bytes that the kernel keeps for a slow reader; it doubles this for its own bookkeeping.
const SEND_BUFFER_BYTES: usize = 256 * 1024;
/// Bytes that the kernel holds which it has not sent yet, before it says that there is room for more (at half of it). Without this it says so
/// when a third of its buffer is free, which takes minutes on a line of 1 KB/s: who takes a little all the time would look like one who takes
/// nothing, and be cut (`SEQLINE_STREAM_STALL_MS`).
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 32 * 1024;
/// After a failed accept (no file descriptors left, for instance) the loop rests for so long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// What was sent and is not taken for so long ends a connection that no stream looks after any more.
const UNTAKEN_WITHIN: Duration = Duration::from_secs(120);
/// A connection that is idle for so long is probed, so that one whose peer is gone does not stay for ever.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);

/// Opens the API's port.
///
/// # Errors
/// What the system says.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    // Accepted sockets inherit these.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(Duration::from_secs(10)))?;
    #[cfg(target_os = "linux")]
    {
        socket.set_tcp_user_timeout(Some(UNTAKEN_WITHIN))?;
        socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Serves until `stop`, then until the connections have ended: idle ones at once, others after the answer that is under way. Dropping this
/// ends them all.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let connections = TaskTracker::new();
    let dropped = CancellationToken::new();
    let _ends_them = dropped.clone().drop_guard();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((socket, _)) => {
                let conversation = converse(socket, router.clone(), stop.clone());
                drop(connections.spawn(dropped.clone().run_until_cancelled_owned(conversation)));
            }
            Err(error) => {
                tracing::warn!(error.message = %error, "a connection cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn converse(socket: TcpStream, router: Router, stop: CancellationToken) {
    // Inherited where the system does so; set again where it does not.
    let _ = SockRef::from(&socket).set_tcp_nodelay(true);
    let socket = Arc::new(socket);
    let peer = PeerSocket(Arc::downgrade(&socket));
    let has_asked = Arc::new(AtomicBool::new(false));
    let asked = has_asked.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(peer.clone());
        // The router is a pointer; it is always ready.
        let mut router = router.clone();
        router.call(request.map(Body::new))
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(LATER_HEAD_WITHIN)
            .max_buf_size(BUFFER_BYTES_MAX)
            .serve_connection(HalfShared(socket), service)
    );
    tokio::select! {
        // What went wrong on one connection (reset, cut, nonsense) is the client's to notice.
        _ = connection.as_mut() => return,
        () = silent(&has_asked) => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Ends when the first request has not arrived in time.
async fn silent(has_asked: &AtomicBool) {
    tokio::time::sleep(FIRST_HEAD_WITHIN).await;
    if has_asked.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

/// A socket that the connection owns, and that a stream's keeper can look at.
struct HalfShared(Arc<TcpStream>);

impl Read for HalfShared {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<std::io::Result<()>> {
        // Bounded, and on the stack: an idle connection holds no buffer for this.
        let mut bytes = [0_u8; 4_096];
        loop {
            ready!(self.0.poll_read_ready(context))?;
            let room = buffer.remaining().min(bytes.len());
            match self.0.try_read(&mut bytes[..room]) {
                Ok(count) => {
                    buffer.put_slice(&bytes[..count]);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Write for HalfShared {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write(bytes) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        // Closed already is as good.
        let _ = SockRef::from(&*self.0).shutdown(std::net::Shutdown::Write);
        Poll::Ready(Ok(()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write_vectored(parts) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }
}
