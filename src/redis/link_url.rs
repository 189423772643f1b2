//! Reads `SEQLINE_REDIS_URL`.
//!
//! ```text
//! redis[s]://[user:password@]host[:6379][/database]
//! redis[s]-sentinel://[user:password@]host[:26379][,host[:port]…][/database]?sentinelServiceName=name
//! redis[s]-cluster://[user:password@]host[:6379][,host[:port]…]
//! ```
//!
//! Further hosts may also stand in the query as `node=host:port`; Sentinels with a password of their own have `sentinelUsername` and
//! `sentinelPassword` there. User and password are percent-encoded. No fault names any part of the URL but its scheme and host names:
//! what is printed ends up in logs, and a mistyped URL may have its password anywhere.

use percent_encoding::percent_decode_str;

/// What the URL says about the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One server.
    Single,
    /// One server, whichever the Sentinels name.
    Sentinel {
        /// Name under which the Sentinels watch it.
        service: String,
        /// User of the Sentinels themselves.
        username: Option<String>,
        /// Password of the Sentinels themselves.
        password: Option<String>,
    },
    /// Redis Cluster.
    Cluster,
}

/// A URL, read. Its `Debug` form shows no password.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkUrl {
    /// What stands behind the hosts.
    pub kind: Kind,
    /// Whether TLS is spoken.
    pub tls: bool,
    /// Hosts and ports, at least one.
    pub hosts: Vec<(String, u16)>,
    /// User, none for the default user.
    pub username: Option<String>,
    /// Password.
    pub password: Option<String>,
    /// Number of the database.
    pub database: Option<u8>,
}

impl std::fmt::Debug for LinkUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkUrl").field("tls", &self.tls).field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// Why a URL cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("SEQLINE_REDIS_URL: {0}")]
pub struct UrlFault(String);

fn fault<T>(text: impl Into<String>) -> Result<T, UrlFault> {
    Err(UrlFault(text.into()))
}

impl LinkUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// When it has another form than those above.
    pub fn parse(url: &str) -> Result<Self, UrlFault> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return fault("it has no scheme; it begins with redis://, redis-sentinel://, redis-cluster://, or the same with rediss");
        };
        let (tls, kind) = match scheme {
            "redis" => (false, "single"),
            "rediss" => (true, "single"),
            "redis-sentinel" => (false, "sentinel"),
            "rediss-sentinel" => (true, "sentinel"),
            "redis-cluster" => (false, "cluster"),
            "rediss-cluster" => (true, "cluster"),
            _ => return fault("unknown scheme; known are redis, rediss, redis-sentinel, rediss-sentinel, redis-cluster, rediss-cluster"),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        // The last @ ends the password, so that one with an unescaped @ is still not taken for a host.
        let (user, hosts) = place.rsplit_once('@').map_or((None, place), |(user, hosts)| (Some(user), hosts));
        let (username, password) = match user {
            None => (None, None),
            Some(user) => {
                let (name, password) = user.split_once(':').unwrap_or(("", user));
                (non_empty(decode(name)?), non_empty(decode(password)?))
            }
        };
        let default_port = if kind == "sentinel" { 26_379 } else { 6_379 };
        let mut places = Vec::new();
        for host in hosts.split(',') {
            places.push(host_and_port(host, default_port)?);
        }
        let mut service = None;
        let mut sentinel_username = None;
        let mut sentinel_password = None;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "node" => places.push(host_and_port(&decode(value)?, default_port)?),
                "sentinelServiceName" => service = non_empty(decode(value)?),
                "sentinelUsername" => sentinel_username = non_empty(decode(value)?),
                "sentinelPassword" => sentinel_password = non_empty(decode(value)?),
                _ => return fault("unknown query parameter; known are node, sentinelServiceName, sentinelUsername, sentinelPassword"),
            }
        }
        let database = match path.trim_end_matches('/') {
            "" => None,
            number => match number.parse::<u8>() {
                Ok(number) => Some(number),
                Err(_) => return fault("what follows the / is the number of a database, 0 to 255"),
            },
        };
        if kind != "sentinel" && (service.is_some() || sentinel_username.is_some() || sentinel_password.is_some()) {
            return fault("sentinelServiceName, sentinelUsername and sentinelPassword need the scheme redis-sentinel or rediss-sentinel");
        }
        let kind = match kind {
            "single" if places.len() > 1 => return fault("several hosts need the scheme redis-sentinel or redis-cluster"),
            "single" => Kind::Single,
            "sentinel" => match service {
                Some(service) => Kind::Sentinel { service, username: sentinel_username, password: sentinel_password },
                None => return fault("redis-sentinel needs ?sentinelServiceName=<the name that the Sentinels know the server by>"),
            },
            _ if database.is_some_and(|n| n != 0) => return fault("Redis Cluster has no databases but 0"),
            _ => Kind::Cluster,
        };
        Ok(Self { kind, tls, hosts: places, username, password, database: database.filter(|n| *n != 0) })
    }
}

fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn decode(text: &str) -> Result<String, UrlFault> {
    match percent_decode_str(text).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => fault("a percent-encoded part is not UTF-8"),
    }
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
pub(super) fn host_and_port(text: &str, default_port: u16) -> Result<(String, u16), UrlFault> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, port.strip_prefix(':')),
        // An IPv6 address without brackets, as Redis itself writes it: its port is behind the last colon.
        None => text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '/' || c == '@') {
        return fault("a host is missing or is not a host name; a password's special characters must be percent-encoded");
    }
    match port.map_or(Ok(default_port), str::parse) {
        Ok(port) if port != 0 => Ok((host.to_owned(), port)),
        _ => fault("a port is not a number from 1 to 65535; a password's special characters must be percent-encoded"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(url: &str) -> Vec<(String, u16)> {
        LinkUrl::parse(url).unwrap().hosts
    }

    #[test]
    fn the_six_schemes_are_read() {
        let url = LinkUrl::parse("redis://localhost").unwrap();
        assert_eq!((url.kind, url.tls, url.hosts), (Kind::Single, false, vec![("localhost".into(), 6379)]));
        let url = LinkUrl::parse("rediss://app:p%40ss@db.example:7000/3").unwrap();
        assert_eq!((url.tls, url.username.as_deref(), url.password.as_deref(), url.database), (true, Some("app"), Some("p@ss"), Some(3)));
        let url = LinkUrl::parse("redis-sentinel://:pw@a,b:1/0?sentinelServiceName=main&node=c:2&sentinelPassword=x").unwrap();
        assert_eq!(url.kind, Kind::Sentinel { service: "main".into(), username: None, password: Some("x".into()) });
        assert_eq!(url.hosts, vec![("a".into(), 26_379), ("b".into(), 1), ("c".into(), 2)]);
        assert_eq!((url.username, url.password, url.database), (None, Some("pw".into()), None));
        assert!(LinkUrl::parse("rediss-sentinel://a?sentinelServiceName=m").unwrap().tls);
        assert_eq!(
            hosts("redis-cluster://a:1,b,[::1]:2,[::2]"),
            vec![("a".into(), 1), ("b".into(), 6379), ("::1".into(), 2), ("::2".into(), 6379)]
        );
        assert!(LinkUrl::parse("rediss-cluster://u:p@a").unwrap().tls);
    }

    #[test]
    fn a_fault_names_the_setting_and_never_the_password() {
        for url in [
            "user:s3cret@host:1",
            "http://u:s3cret@host",
            "redis://u:s3cret@",
            "redis://u:s3cret@host:port",
            "redis://u:s3cret/@host",
            "redis://u:s3cret@host/name",
            "redis://u:s3cret@a,b",
            "redis-sentinel://u:s3cret@a",
            "redis-sentinel://u@a?sentinelPassword=s3cret",
            "redis://u:s3cret@a?sentinelServiceName=x",
            "redis-cluster://u:s3cret@a/1",
            "redis://u:s3cret@a?passwd=s3cret",
            "redis://u:s3cret%ff@a",
            "redis://u:s3cret#x@a:99999",
        ] {
            let text = LinkUrl::parse(url).unwrap_err().to_string();
            assert!(text.starts_with("SEQLINE_REDIS_URL: "), "{text}");
            assert!(!text.contains("s3cret"), "{text}");
        }
        assert!(!format!("{:?}", LinkUrl::parse("redis://u:s3cret@a").unwrap()).contains("s3cret"));
    }
}
