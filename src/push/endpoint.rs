//! The address under which a push service takes what is meant for one browser. A user chose it, so it is proven here, when it is
//! registered; and what its name leads to is looked at again when it is called (see [`super::deliver`]).

use std::net::IpAddr;

use url::{Host, Url};

use super::public_address::may_be_called;
use crate::domain::refusal::FieldError;

/// Longest endpoint in bytes.
const BYTES_MAX: usize = 2_048;
/// Ends of names that lead to this machine or its network.
const OWN_NAMES: [&str; 6] = ["localhost", "local", "internal", "localdomain", "lan", "home.arpa"];

/// A proven endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    url: Url,
}

impl Endpoint {
    /// Proves an endpoint: https on its usual port, no name or password, no address or name that is not public. With `allow_loopback`, http
    /// and any port do for this machine's own addresses.
    ///
    /// # Errors
    /// Names `endpoint`.
    pub fn parse(text: &str, allow_loopback: bool) -> Result<Self, FieldError> {
        let wrong = |fault: &'static str| FieldError::new("endpoint", fault);
        if text.len() > BYTES_MAX {
            return Err(wrong("must have at most 2048 bytes"));
        }
        let url = Url::parse(text).map_err(|_| wrong("must be an https URL"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("must not hold a user name or a password"));
        }
        if url.fragment().is_some() {
            return Err(wrong("must not hold a fragment"));
        }
        let private = wrong("must not lead to a private address");
        let loopback = match url.host() {
            Some(Host::Ipv4(ip)) if may_be_called(IpAddr::V4(ip), allow_loopback) => ip.is_loopback(),
            Some(Host::Ipv6(ip)) if may_be_called(IpAddr::V6(ip), allow_loopback) => ip.to_canonical().is_loopback(),
            Some(Host::Domain(name)) if is_public_name(name) => false,
            Some(Host::Domain("localhost")) if allow_loopback => true,
            Some(_) => return Err(private),
            None => return Err(wrong("must be an https URL")),
        };
        match url.scheme() {
            "http" | "https" if loopback => {}
            "https" if url.port().is_none() => {}
            "https" => return Err(wrong("must not name a port other than 443")),
            _ => return Err(wrong("must be an https URL")),
        }
        Ok(Self { url })
    }

    /// As it is called and compared.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// The URL.
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// Host and port, which share a fate: by it calls are counted.
    #[must_use]
    pub fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Scheme, host and port, for which a token is made.
    #[must_use]
    pub fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }
}

/// Whether a name could belong to the public network: it has a dot, and is none of those that stand for this machine or its network.
fn is_public_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.contains('.') && !OWN_NAMES.iter().any(|own| name.strip_suffix(own).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_public_and_plain() {
        for good in [
            "https://fcm.googleapis.com/fcm/send/abc:def",
            "https://updates.push.services.mozilla.com/wpush/v2/x",
            "https://web.push.apple.com/Q",
            "https://push.app:443/x",
            "https://8.8.8.8/x",
            "https://wns2-par02p.notify.windows.com/w/?token=BQ%3d",
        ] {
            assert!(Endpoint::parse(good, false).is_ok(), "{good}");
        }
        for bad in [
            "http://push.app/x",
            "https://127.0.0.1/x",
            "https://[::1]/x",
            "https://169.254.169.254/latest",
            "https://10.0.0.1/",
            "https://0/",
            "https://192.168.0.1/",
            "https://user:pass@push.app/x",
            "https://user@push.app/",
            "https://push.app:8443/x",
            "https://push.app:80/",
            "https://localhost/x",
            "https://a.localhost/",
            "https://LOCALHOST./",
            "https://redis/",
            "https://db.internal/",
            "https://x.local/",
            "https://2130706433/",
            "https://0x7f.1/",
            "https://127.1/",
            "https://0177.0.0.1/",
            "https://[::ffff:127.0.0.1]/",
            "https://[fe80::1]/",
            "https://１２７.0.0.1/",
            "ftp://push.app/",
            "//push.app/",
            "push.app",
            "",
            "https://",
            "https://push.app/#x",
            "file:///etc/passwd",
            "https://[fd00::1]/",
            "https://100.64.1.1/",
            "data:text/plain,x",
            "https://metadata.google.internal/",
        ] {
            assert_eq!(Endpoint::parse(bad, false).map_err(|error| error.field), Err("endpoint".into()), "{bad}");
        }
        assert!(Endpoint::parse(&format!("https://push.app/{}", "x".repeat(2_048)), false).is_err());
    }

    #[test]
    fn a_setting_lets_loopback_in_and_nothing_else() {
        for good in ["http://127.0.0.1:8000/x", "http://localhost:1/", "https://[::1]:9/", "https://push.app/"] {
            assert!(Endpoint::parse(good, true).is_ok(), "{good}");
        }
        for bad in ["http://push.app/", "http://10.0.0.1/", "https://169.254.169.254/", "http://user@127.0.0.1/", "https://push.app:8443/"]
        {
            assert!(Endpoint::parse(bad, true).is_err(), "{bad}");
        }
        let endpoint = Endpoint::parse("http://127.0.0.1:8000/x", true).unwrap();
        assert_eq!((endpoint.host().as_str(), endpoint.origin().as_str()), ("127.0.0.1:8000", "http://127.0.0.1:8000"));
        assert_eq!(Endpoint::parse("https://push.app:443/x", false).unwrap().origin(), "https://push.app");
    }
}
