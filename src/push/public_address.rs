//! Which addresses a push may go to. Whoever registers an endpoint chooses a host; it must not be one of ours, or of the network we stand in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address belongs to the public network. With `allow_loopback`, this machine's own does, too.
#[must_use]
pub fn may_be_called(address: IpAddr, allow_loopback: bool) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => (allow_loopback && v4.is_loopback()) || is_public_v4(v4),
        IpAddr::V6(v6) => (allow_loopback && v6.is_loopback()) || is_public_v6(v6),
    }
}

/// As IANA's registry of special-purpose addresses has it.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_documentation()
        || address.is_multicast()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19));
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    let v4_in = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match parts {
        // Translated or tunnelled: what counts is the address inside.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_public_v4(v4_in(high, low)),
        [0x2002, high, low, ..] => is_public_v4(v4_in(high, low)),
        // Teredo, documentation, benchmarks, identifiers that are no addresses.
        [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        // What is given out at all.
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_public_network_is_called() {
        for public in ["8.8.8.8", "142.250.1.1", "172.15.0.1", "172.32.0.1", "2a00:1450:4001::1", "::ffff:8.8.8.8", "64:ff9b::808:808"] {
            assert!(may_be_called(public.parse().unwrap(), false), "{public}");
        }
        for ours in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "2001:db8::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2002:a00:1::",
            "2001::1",
            "::127.0.0.1",
            "64:ff9b:1::1",
            "fec0::1",
            "100::1",
            "5f00::1",
        ] {
            assert!(!may_be_called(ours.parse().unwrap(), false), "{ours}");
        }
        for loopback in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(may_be_called(loopback.parse().unwrap(), true), "{loopback}");
        }
        assert!(!may_be_called("10.0.0.1".parse().unwrap(), true) && !may_be_called("169.254.169.254".parse().unwrap(), true));
    }
}
