//! Free loopback ports. A port can be taken between the look and the use; whoever starts a server on one tries again with another.

use std::net::{Ipv4Addr, TcpListener};

use rand::Rng as _;

use super::EmbeddedError;

/// Below the range from which Linux takes ports of outgoing connections (32768 and up), so that no client of ours sits on one.
const RANDOM_PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Looks before giving up.
const LOOKS: usize = 200;

/// Whether nobody listens on this loopback port.
fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() && TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}

/// A free loopback port, chosen at random.
///
/// # Errors
/// When none of many was free.
pub fn free_port() -> Result<u16, EmbeddedError> {
    let mut random = rand::rng();
    (0..LOOKS).map(|_| random.random_range(RANDOM_PORTS)).find(|port| is_free(*port)).ok_or_else(none_free)
}

/// `wanted` if it is free and not in `taken`, else the next one above that is.
///
/// # Errors
/// When none of many was free.
pub fn port_from(wanted: u16, taken: &[u16]) -> Result<u16, EmbeddedError> {
    (wanted..=u16::MAX).take(LOOKS).find(|port| !taken.contains(port) && is_free(*port)).ok_or_else(none_free)
}

fn none_free() -> EmbeddedError {
    EmbeddedError::Io { what: "no free loopback port".into(), source: std::io::ErrorKind::AddrInUse.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_port_is_passed_over() {
        let busy = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = busy.local_addr().unwrap().port();
        if port < u16::MAX - 300 {
            assert!(port_from(port, &[]).unwrap() > port);
            assert!(port_from(port, &[port + 1]).unwrap() > port + 1);
        }
        assert!(RANDOM_PORTS.contains(&free_port().unwrap()));
    }
}
