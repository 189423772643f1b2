//! Where the bytes of pictures lie: a folder, or a bucket that speaks S3. One object a picture, written once and never changed.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientOptions, Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutPayload, RetryConfig};
use url::Url;
use uuid::Uuid;

use crate::settings::{SettingFault, Settings};

const URL: &str = "SEQLINE_MEDIA_URL";
const ENDPOINT: &str = "SEQLINE_MEDIA_S3_ENDPOINT";
/// Time to reach a bucket's server.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// Longest silence of a bucket's server in the middle of an answer.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Longest transfer to or from a bucket: a reader may be slow.
const TRANSFER_MAX: Duration = Duration::from_secs(120);
/// Tries beyond the first, and the time within which they begin: a request waits for them.
const RETRIES_MAX: usize = 2;
const RETRY_WITHIN: Duration = Duration::from_secs(3);

/// Why bytes were not stored, read or removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// There is no such object.
    #[error("the object is not there")]
    Missing,
    /// The place does not answer, or refuses; the text is for the log.
    #[error("the place of pictures cannot be used: {0}")]
    Unavailable(String),
}

/// Bytes on their way to a reader.
pub struct ObjectRead {
    /// The bytes, in parts; an error in the middle ends them.
    pub parts: BoxStream<'static, Result<Bytes, std::io::Error>>,
    /// Which they are.
    pub range: Range<u64>,
}

impl fmt::Debug for ObjectRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectRead").field("range", &self.range).finish_non_exhaustive()
    }
}

/// The place; cheap to clone.
#[derive(Clone, Debug)]
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
}

impl Objects {
    /// The place that the settings name, if they name one. A folder is made; a bucket is not asked before it is needed.
    ///
    /// # Errors
    /// Names the setting that cannot be used.
    pub fn open(settings: &Settings) -> Result<Option<Self>, SettingFault> {
        let Some(text) = &settings.media_url else { return Ok(None) };
        let url = Url::parse(text).map_err(|_| SettingFault::new(URL, "must be file:///folder or s3://bucket/prefix"))?;
        match url.scheme() {
            "file" => Self::folder(&url).map(Some),
            "s3" => Self::bucket(&url, settings).map(Some),
            _ => Err(SettingFault::new(URL, "must begin with file:/// or s3://")),
        }
    }

    fn folder(url: &Url) -> Result<Self, SettingFault> {
        let folder = url
            .to_file_path()
            .map_err(|()| SettingFault::new(URL, "must name a folder by its whole path, e.g. file:///var/lib/seqline/media"))?;
        let unusable = |error: &dyn fmt::Display| SettingFault::new(URL, format!("names a folder that cannot be used: {error}"));
        std::fs::create_dir_all(&folder).map_err(|error| unusable(&error))?;
        // A picture is acknowledged once it is on disk.
        let store = LocalFileSystem::new_with_prefix(&folder).map_err(|error| unusable(&error))?.with_fsync(true);
        Ok(Self { store: Arc::new(store), prefix: Path::default() })
    }

    fn bucket(url: &Url, settings: &Settings) -> Result<Self, SettingFault> {
        let bucket = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| SettingFault::new(URL, "names no bucket"))?;
        let prefix = Path::from_url_path(url.path()).map_err(|_| SettingFault::new(URL, "has a prefix that cannot be used"))?;
        let client = ClientOptions::new().with_connect_timeout(CONNECT_WITHIN).with_read_timeout(SILENCE_MAX).with_timeout(TRANSFER_MAX);
        let retry = RetryConfig { max_retries: RETRIES_MAX, retry_timeout: RETRY_WITHIN, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_region(&settings.media_s3_region)
            .with_client_options(client)
            .with_retry(retry)
            // One at a time, which every server of this kind knows.
            .with_disable_bulk_delete(true);
        if let Some(endpoint) = &settings.media_s3_endpoint {
            let clear = endpoint.starts_with("http://");
            builder = builder.with_endpoint(endpoint.trim_end_matches('/')).with_allow_http(clear);
        }
        // Without keys the machine's own role is asked for some.
        if let (Some(key), Some(secret)) = (&settings.media_s3_access_key, &settings.media_s3_secret_key) {
            builder = builder.with_access_key_id(key).with_secret_access_key(secret);
        }
        let store = builder.build().map_err(|error| SettingFault::new(ENDPOINT, format!("cannot be used: {error}")))?;
        Ok(Self { store: Arc::new(store), prefix })
    }

    /// Where a picture lies: in one of 256 folders, chosen by the part of its id that is chance.
    fn place(&self, id: Uuid) -> Path {
        let name = id.to_string();
        let folder = name.get(name.len() - 2..).unwrap_or_default().to_owned();
        self.prefix.clone().join(folder).join(name)
    }

    /// Stores a picture's bytes, whole or not at all.
    ///
    /// # Errors
    /// [`ObjectError::Unavailable`]; they may have been stored all the same.
    pub async fn write(&self, id: Uuid, bytes: Bytes) -> Result<(), ObjectError> {
        self.store.put(&self.place(id), PutPayload::from_bytes(bytes)).await.map(drop).map_err(of_store)
    }

    /// Begins to read a picture, or a part of it.
    ///
    /// # Errors
    /// See [`ObjectError`].
    pub async fn read(&self, id: Uuid, range: Option<Range<u64>>) -> Result<ObjectRead, ObjectError> {
        let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        let found = self.store.get_opts(&self.place(id), options).await.map_err(of_store)?;
        let range = found.range.clone();
        Ok(ObjectRead { parts: found.into_stream().map(|part| part.map_err(std::io::Error::other)).boxed(), range })
    }

    /// Removes a picture. What is not there is as good as removed.
    ///
    /// # Errors
    /// [`ObjectError::Unavailable`].
    pub async fn remove(&self, id: Uuid) -> Result<(), ObjectError> {
        match self.store.delete(&self.place(id)).await.map_err(of_store) {
            Err(ObjectError::Missing) => Ok(()),
            done => done,
        }
    }
}

fn of_store(error: Error) -> ObjectError {
    match error {
        Error::NotFound { .. } => ObjectError::Missing,
        other => ObjectError::Unavailable(other.to_string()),
    }
}
