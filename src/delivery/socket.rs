//! The socket behind a stream, for the two things that a stream's body cannot do by itself: find out that the other side is gone while
//! nothing needs to be written, and end a connection whose writing is stuck.

use std::sync::Weak;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;

/// A handle to a connection's socket that does not keep it open.
#[derive(Clone, Debug)]
pub struct PeerSocket(pub(crate) Weak<TcpStream>);

impl PeerSocket {
    /// Whether what was sent has been unacknowledged for so long that the other side must be gone. A reader that is only slow
    /// acknowledges (with a closed window), so it is never taken for dead.
    #[must_use]
    pub fn is_dead(&self, silent_for: Duration) -> bool {
        self.0.upgrade().is_some_and(|socket| unacknowledged_for(&socket).is_some_and(|time| time > silent_for))
    }

    /// The address of the other side.
    #[must_use]
    pub fn address(&self) -> Option<std::net::IpAddr> {
        self.0.upgrade()?.peer_addr().ok().map(|address| address.ip())
    }

    /// Ends the connection; whoever reads or writes it finds that out at once.
    pub fn cut(&self) {
        if let Some(socket) = self.0.upgrade() {
            // An error means that it is closed already.
            let _ = SockRef::from(&*socket).shutdown(std::net::Shutdown::Both);
        }
    }
}

/// How long ago the last acknowledgement came, if something is waiting for one.
#[cfg(target_os = "linux")]
fn unacknowledged_for(socket: &TcpStream) -> Option<Duration> {
    use std::os::fd::AsRawFd;

    // SAFETY: `tcp_info` is a plain C struct of integers, for which all zeroes are a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
    // SAFETY: the descriptor is open, because `socket` is borrowed; the pointers are to locals of the sizes that are named, and the kernel
    // writes at most `length` bytes to the first.
    let done = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, std::ptr::from_mut(&mut info).cast(), &raw mut length)
    };
    (done == 0 && info.tcpi_unacked > 0).then(|| Duration::from_millis(u64::from(info.tcpi_last_ack_recv)))
}

#[cfg(not(target_os = "linux"))]
fn unacknowledged_for(_socket: &TcpStream) -> Option<Duration> {
    None
}
