//! One signed POST to the host application. It is bounded in time and in what is read of the answer, and follows no redirect: the setting
//! alone says where messages go.

use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use url::{Host, Url};

use super::signature::signatures;
use crate::domain::ids::Millis;

/// Most that is read of an answer, in bytes.
const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Longest time for reaching the host, in ms, within the time for all.
const CONNECT_MS: u64 = 5_000;
/// Time for which a connection is kept for the next call: shorter than the five seconds after which many servers hang up, which would
/// break the call that is just beginning.
const IDLE: Duration = Duration::from_secs(3);

/// What the host application said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// How long it asks us to wait.
    pub retry_after: Option<Duration>,
    /// What it sent, at most 16 KiB.
    pub body: Vec<u8>,
}

/// Why there is no answer. Neither text holds the address or what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFault {
    /// None came in time.
    #[error("no answer in time")]
    Timeout,
    /// Nobody is there, or what came is no HTTP.
    #[error("cannot be reached")]
    Unreachable,
}

/// A place at the host application, with the keys that sign what goes there.
#[derive(Debug)]
pub struct Place {
    url: Url,
    keys: Vec<Vec<u8>>,
    client: reqwest::Client,
}

impl Place {
    /// A place and its keys.
    ///
    /// # Errors
    /// A sentence part when the URL cannot be read or this machine cannot do TLS.
    pub fn new(url: &str, keys: Vec<Vec<u8>>) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|error| error.to_string())?;
        let mut client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .pool_idle_timeout(IDLE)
            .connect_timeout(Duration::from_millis(CONNECT_MS))
            .user_agent(concat!("seqline/", env!("CARGO_PKG_VERSION")));
        let loopback = match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(ip)) => ip.is_loopback(),
            Some(Host::Ipv6(ip)) => ip.is_loopback(),
            None => false,
        };
        if loopback {
            // A proxy would have another idea of what this machine is.
            client = client.no_proxy();
        }
        let client = client.build().map_err(|error| error.without_url().to_string())?;
        Ok(Self { url, keys, client })
    }

    /// Posts JSON under an id of its own, signed at `now`, and waits no longer than `limit` for the whole answer.
    ///
    /// # Errors
    /// See [`CallFault`].
    pub async fn post(&self, id: &str, now: Millis, body: String, limit: Duration) -> Result<Answer, CallFault> {
        let timestamp_s = now.div_euclid(1_000);
        let signature = signatures(&self.keys, id, timestamp_s, body.as_bytes());
        let request = self
            .client
            .post(self.url.clone())
            .timeout(limit)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp_s)
            .header("webhook-signature", signature)
            .body(body);
        let answer = request.send().await.map_err(|error| fault_of(&error))?;
        let status = answer.status().as_u16();
        let retry_after = answer.headers().get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?, SystemTime::now()));
        let mut body = Vec::new();
        let mut chunks = answer.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| fault_of(&error))?;
            body.extend_from_slice(&chunk[..chunk.len().min(ANSWER_BYTES_MAX - body.len())]);
            if body.len() == ANSWER_BYTES_MAX {
                break;
            }
        }
        Ok(Answer { status, retry_after, body })
    }
}

fn fault_of(error: &reqwest::Error) -> CallFault {
    if error.is_timeout() { CallFault::Timeout } else { CallFault::Unreachable }
}

/// Seconds, or a date.
pub(crate) fn retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    Some(httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_retry_after_are_read() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(retry_after("120", now), Some(Duration::from_secs(120)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:50:37 GMT", now), Some(Duration::from_secs(60)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:40:37 GMT", now), Some(Duration::ZERO));
        assert_eq!(retry_after("soon", now), None);
    }
}
