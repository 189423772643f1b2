//! Where a request comes from: the other side of the connection, or what the load balancers in front say.

use std::net::IpAddr;

use axum::http::HeaderMap;

/// The header in which each load balancer notes, at the end, from whom it got the request.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// The client's address, with so many load balancers of ours in front: what the outermost of them noted. What stands left of that is the
/// client's own word and counts nothing; where fewer noted something, the connection's other side counts.
#[must_use]
pub fn client_address(peer: Option<IpAddr>, headers: &HeaderMap, proxies: u64) -> Option<IpAddr> {
    let Some(from_the_right) = usize::try_from(proxies).ok().and_then(|proxies| proxies.checked_sub(1)) else { return peer };
    let noted = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let noted: Vec<&str> = noted.map(str::trim).collect();
    noted.iter().rev().nth(from_the_right).and_then(|text| parse(text)).or(peer)
}

/// An address, perhaps with a port, as load balancers write it.
fn parse(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.split(']').next()).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse::<std::net::SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(values: &[&'static str], proxies: u64) -> String {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(FORWARDED_FOR, value.parse().unwrap());
        }
        client_address("192.0.2.9".parse().ok(), &headers, proxies).unwrap().to_string()
    }

    #[test]
    fn only_what_our_own_proxies_noted_counts() {
        assert_eq!(found(&["198.51.100.1"], 0), "192.0.2.9");
        assert_eq!(found(&["203.0.113.5, 198.51.100.1"], 1), "198.51.100.1", "what a client claims stands left of it");
        assert_eq!(found(&["203.0.113.5", "198.51.100.1, 10.0.0.2"], 2), "198.51.100.1");
        assert_eq!(found(&["198.51.100.1"], 2), "192.0.2.9", "somebody came past a proxy");
        assert_eq!(found(&[], 1), "192.0.2.9");
        assert_eq!(found(&["nonsense"], 1), "192.0.2.9");
        assert_eq!(found(&["[2001:db8::1]:443"], 1), "2001:db8::1");
        assert_eq!(found(&["198.51.100.1:5000"], 1), "198.51.100.1");
    }
}
