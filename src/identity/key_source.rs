//! Where public keys come from, a file or a URL, and how a changed set is noticed without a restart.
//!
//! Three ways, because each alone fails somebody: a look at fixed intervals (keys that are withdrawn), a look when a token names a
//! key that is not known (keys that are new), and for files a look at their time stamp every two seconds. Looks caused by tokens are joined into
//! one and kept apart by a minimum interval, or anybody with an invented key id could make us hammer the host application. When a
//! look fails, the keys that were good stay good.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use futures_util::StreamExt;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use url::{Host, Url};

use super::keyring::{KeyError, PublicKey, read_key_set};
use crate::metrics;

/// Largest set in bytes.
const SET_BYTES_MAX: usize = 1024 * 1024;
/// Time for fetching a set.
const FETCH_TIMEOUT: Duration = Duration::from_secs(3);
/// Between two looks that tokens cause.
const LOOK_AGAIN_MIN: Duration = Duration::from_secs(2);
/// Between two looks at a URL without a cause.
const URL_INTERVAL: Duration = Duration::from_secs(300);
/// Between two looks at a file's time stamp.
const FILE_INTERVAL: Duration = Duration::from_secs(2);

enum Place {
    File(PathBuf),
    Web { url: Url, client: reqwest::Client },
}

/// What a file looked like when it was read.
type Stamp = Option<(SystemTime, u64)>;

#[derive(Default)]
struct Looked {
    at: Option<Instant>,
    stamp: Stamp,
}

/// A set of public keys that is looked at again now and then.
pub struct KeySource {
    place: Place,
    keys: ArcSwap<Vec<PublicKey>>,
    loaded: AtomicBool,
    /// Held while looking, so that all who wait share one look.
    looked: Mutex<Looked>,
}

impl KeySource {
    /// A source at a file path, an `https://` URL, or `http://` on loopback.
    ///
    /// # Errors
    /// When the URL cannot be used.
    pub fn new(place: &str) -> Result<Self, KeyError> {
        Ok(Self {
            place: parse_place(place)?,
            keys: ArcSwap::default(),
            loaded: AtomicBool::new(false),
            looked: Mutex::new(Looked::default()),
        })
    }

    /// The keys as last loaded.
    #[must_use]
    pub fn keys(&self) -> Arc<Vec<PublicKey>> {
        self.keys.load_full()
    }

    /// Whether a set was ever loaded.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    /// Whether the set is a file, which must be there from the start.
    #[must_use]
    pub fn is_file(&self) -> bool {
        matches!(self.place, Place::File(_))
    }

    /// Loads the set now.
    ///
    /// # Errors
    /// When it cannot be fetched or read; the keys loaded before stay.
    pub async fn load(&self) -> Result<(), KeyError> {
        self.load_holding(&mut *self.looked.lock().await).await
    }

    /// Looks again, unless somebody did so less than two seconds ago; whoever asks meanwhile waits for the same look.
    pub async fn look_again(&self) {
        let mut looked = self.looked.lock().await;
        if looked.at.is_some_and(|at| at.elapsed() < LOOK_AGAIN_MIN) {
            return;
        }
        if let Err(error) = self.load_holding(&mut looked).await {
            tracing::warn!(error.message = %error, "an unknown key id made us look for new keys, in vain; the old ones stay");
        }
    }

    /// Looks at intervals until stopped.
    pub async fn keep_fresh(self: Arc<Self>, stop: CancellationToken) {
        let interval = if self.is_file() { FILE_INTERVAL } else { URL_INTERVAL };
        // Until the first set is there nobody can come in, so that is tried far more often.
        while stop.run_until_cancelled(tokio::time::sleep(if self.is_loaded() { interval } else { LOOK_AGAIN_MIN })).await.is_some() {
            let mut looked = self.looked.lock().await;
            if let Place::File(path) = &self.place
                && self.is_loaded()
                && stamp_of(path).await == looked.stamp
            {
                continue;
            }
            if let Err(error) = self.load_holding(&mut looked).await {
                tracing::warn!(error.message = %error, "the key set could not be loaded; the old keys stay");
            }
        }
    }

    async fn load_holding(&self, looked: &mut Looked) -> Result<(), KeyError> {
        looked.at = Some(Instant::now());
        let loaded = match self.fetch(&mut looked.stamp).await {
            Ok(json) => read_key_set(&json),
            Err(error) => Err(error),
        };
        metrics::KEYSET_LOADS.add(&[if loaded.is_ok() { "ok" } else { "failed" }], 1);
        self.keys.store(Arc::new(loaded?));
        self.loaded.store(true, Ordering::Release);
        Ok(())
    }

    async fn fetch(&self, stamp: &mut Stamp) -> Result<Vec<u8>, KeyError> {
        match &self.place {
            Place::File(path) => {
                // The stamp is taken first: a write between the two is then seen as a change the next time.
                *stamp = stamp_of(path).await;
                let bytes = tokio::fs::read(path).await.map_err(|error| KeyError::Fetch(format!("{}: {error}", path.display())))?;
                if bytes.len() > SET_BYTES_MAX {
                    return Err(KeyError::Unreadable("more than 1 MiB".into()));
                }
                Ok(bytes)
            }
            Place::Web { url, client } => {
                // `without_url`: an address may hold a secret in its query.
                let failed = |error: reqwest::Error| KeyError::Fetch(error.without_url().to_string());
                let answer = client.get(url.clone()).send().await.and_then(reqwest::Response::error_for_status).map_err(failed)?;
                let mut bytes = Vec::new();
                let mut chunks = answer.bytes_stream();
                while let Some(chunk) = chunks.next().await {
                    bytes.extend_from_slice(&chunk.map_err(failed)?);
                    if bytes.len() > SET_BYTES_MAX {
                        return Err(KeyError::Unreadable("more than 1 MiB".into()));
                    }
                }
                Ok(bytes)
            }
        }
    }
}

async fn stamp_of(path: &PathBuf) -> Stamp {
    let facts = tokio::fs::metadata(path).await.ok()?;
    Some((facts.modified().ok()?, facts.len()))
}

fn parse_place(place: &str) -> Result<Place, KeyError> {
    if !place.contains("://") {
        return Ok(Place::File(PathBuf::from(place)));
    }
    let url = Url::parse(place).map_err(|error| KeyError::Fetch(error.to_string()))?;
    let loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    match url.scheme() {
        "https" => {}
        "http" if loopback => {}
        _ => return Err(KeyError::Fetch("must be a file, an https URL, or an http URL on loopback".into())),
    }
    let client = reqwest::Client::builder()
        .timeout(FETCH_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| KeyError::Fetch(error.to_string()))?;
    Ok(Place::Web { url, client })
}
