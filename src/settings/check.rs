//! Which settings are refused at the start, and which legal ones endanger each other. Each fault names its variable.

use std::fmt;

use url::Url;

use super::Settings;
use super::check_hooks::check_hooks;
use super::check_push::check_push;

/// What a process is going to be: a worker takes no tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Answers clients.
    Gateway,
    /// Dispatches and archives.
    Worker,
}

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SettingFault {
    /// The variable, e.g. `SEQLINE_REDIS_URL`.
    pub name: &'static str,
    /// A sentence part; never holds a secret.
    pub fault: String,
}

impl SettingFault {
    /// A fault of this variable.
    pub fn new(name: &'static str, fault: impl Into<String>) -> Self {
        Self { name, fault: fault.into() }
    }
}

impl fmt::Display for SettingFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.fault)
    }
}

/// Shortest HS256 secret in bytes (RFC 7518, 3.2): from any token a shorter one could be guessed offline.
const SECRET_BYTES_MIN: usize = 32;
/// Slowest and fastest rate of a limit, in events a second.
const RATE_MIN: f64 = 0.001;
const RATE_MAX: f64 = 1_000_000.0;
/// Schemes that name Redis.
const REDIS_SCHEMES: &[&str] = &["redis", "rediss", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster"];

impl Settings {
    /// Takes texts that are set but empty, as compose files like to write them, for absent ones.
    #[must_use]
    pub fn tidy(mut self) -> Self {
        for list in [&mut self.jwt_hs256_secrets, &mut self.allowed_origins, &mut self.webhook_secrets, &mut self.webhook_events] {
            list.iter_mut().for_each(|text| *text = text.trim().to_owned());
            list.retain(|text| !text.is_empty());
        }
        let texts = [&mut self.jwt_jwks, &mut self.jwt_issuer, &mut self.jwt_audience, &mut self.jwt_cookie];
        let media = [&mut self.media_url, &mut self.media_s3_endpoint, &mut self.media_s3_access_key, &mut self.media_s3_secret_key];
        let hooks = [&mut self.webhook_url, &mut self.pre_send_hook_url];
        let push = [&mut self.vapid_private_key, &mut self.vapid_subject];
        for text in texts.into_iter().chain(media).chain(hooks).chain(push) {
            *text = text.take().filter(|t| !t.trim().is_empty());
        }
        self
    }

    /// Refuses what cannot work.
    ///
    /// # Errors
    /// The first fault, in the order of the settings.
    pub fn validate(&self, role: Role) -> Result<(), SettingFault> {
        let fault = |name, text: &str| Err(SettingFault::new(name, text));
        if self.listen == self.admin_listen && self.listen.port() != 0 {
            return fault("SEQLINE_ADMIN_LISTEN", "must be another address than SEQLINE_LISTEN");
        }
        check_stores(self)?;
        check_media(self)?;
        if role == Role::Gateway {
            check_keys(self)?;
            check_browsers(self)?;
        }
        check_hooks(self)?;
        check_push(self)?;
        for (name, value, min, max) in self.bounds() {
            if !(min..=max).contains(&value) {
                return Err(SettingFault::new(name, format!("must be from {min} to {max}, not {value}")));
            }
        }
        for (name, rate) in self.rates() {
            // Below that a bucket would take years to fill, and its life in Redis could not be counted.
            if !(rate == 0.0 || (RATE_MIN..=RATE_MAX).contains(&rate)) {
                return Err(SettingFault::new(name, format!("must be 0, or from {RATE_MIN} to {RATE_MAX} a second, not {rate}")));
            }
        }
        if !matches!(self.log_format.as_str(), "json" | "text") {
            return fault("SEQLINE_LOG_FORMAT", "must be json or text");
        }
        Ok(())
    }

    /// Rates in events a second.
    fn rates(&self) -> [(&'static str, f64); 3] {
        [
            ("SEQLINE_USER_SENDS_PER_SECOND", self.user_sends_per_second),
            ("SEQLINE_CONVERSATION_SENDS_PER_SECOND", self.conversation_sends_per_second),
            ("SEQLINE_USER_WRITES_PER_SECOND", self.user_writes_per_second),
        ]
    }

    /// Numbers with their smallest and largest sensible value.
    fn bounds(&self) -> [(&'static str, u64, u64, u64); 42] {
        const DAY_MS: u64 = 86_400_000;
        const YEAR_S: u64 = 31_536_000;
        [
            ("SEQLINE_DATABASE_CONNECTIONS", u64::from(self.database_connections), 2, 1_000),
            ("SEQLINE_SHARDS", u64::from(self.shards), 1, 4_096),
            ("SEQLINE_PARTITIONS", u64::from(self.partitions), 1, 4_096),
            ("SEQLINE_LOG_MAX_ENTRIES", self.log_max_entries, 10, 10_000_000),
            ("SEQLINE_LOG_MAX_AGE", self.log_max_age, 1, 10 * YEAR_S),
            ("SEQLINE_WINDOW_MESSAGES", self.window_messages, 1, 100_000),
            ("SEQLINE_KEY_WINDOW", self.key_window, 1, YEAR_S),
            ("SEQLINE_COOL_AFTER", self.cool_after, 1, YEAR_S),
            ("SEQLINE_LEASE_BLOCK", self.lease_block, 2, 1 << 40),
            ("SEQLINE_OUTBOX_MAX_ENTRIES", self.outbox_max_entries, 1, 100_000_000),
            ("SEQLINE_ARCHIVE_BATCH_ROWS", self.archive_batch_rows, 1, 20_000),
            ("SEQLINE_HEARTBEAT_MS", self.heartbeat_ms, 50, 60_000),
            ("SEQLINE_STREAM_LIFE_MAX_MS", self.stream_life_max_ms, 100, DAY_MS),
            ("SEQLINE_STREAM_STALL_MS", self.stream_stall_ms, 100, DAY_MS),
            ("SEQLINE_REQUEST_DEADLINE_MS", self.request_deadline_ms, 50, 120_000),
            ("SEQLINE_BODY_BYTES_MAX", self.body_bytes_max as u64, 256, 16 << 20),
            ("SEQLINE_IMPORT_BYTES_MAX", self.import_bytes_max as u64, 256, 1 << 30),
            ("SEQLINE_MEDIA_BYTES_MAX", self.media_bytes_max as u64, 256, 1 << 30),
            ("SEQLINE_MEDIA_SIDE_MAX", u64::from(self.media_side_max), 1, 65_535),
            ("SEQLINE_MEDIA_PIXELS_MAX", self.media_pixels_max, 1, 1_000_000_000),
            ("SEQLINE_MEDIA_UPLOAD_MS", self.media_upload_ms, 50, 3_600_000),
            ("SEQLINE_MEDIA_UNUSED_AGE", self.media_unused_age, 1, YEAR_S),
            ("SEQLINE_GROUP_MEMBERS_MAX", self.group_members_max, 1, 10_000),
            ("SEQLINE_UNREAD_MAX", self.unread_max, 1, 100_000),
            ("SEQLINE_READ_EVENTS_MEMBERS_MAX", self.read_events_members_max, 0, 10_000),
            ("SEQLINE_WEBHOOK_TIMEOUT_MS", self.webhook_timeout_ms, 10, 120_000),
            ("SEQLINE_WEBHOOK_MAX_AGE", self.webhook_max_age, 1, YEAR_S),
            ("SEQLINE_WEBHOOK_CALLS_MAX", self.webhook_calls_max, 1, 1_000),
            ("SEQLINE_PRE_SEND_HOOK_DEADLINE_MS", self.pre_send_hook_deadline_ms, 1, 60_000),
            ("SEQLINE_PUSH_DELAY_MS", self.push_delay_ms, 0, 600_000),
            ("SEQLINE_PUSH_INTERVAL_MS", self.push_interval_ms, 0, 3_600_000),
            ("SEQLINE_PUSH_TTL", self.push_ttl, 1, 2_419_200),
            ("SEQLINE_PUSH_TIMEOUT_MS", self.push_timeout_ms, 10, 120_000),
            ("SEQLINE_PUSH_CALLS_MAX", self.push_calls_max, 1, 1_000),
            ("SEQLINE_USER_SENDS_BURST", self.user_sends_burst, 1, 1_000_000),
            ("SEQLINE_CONVERSATION_SENDS_BURST", self.conversation_sends_burst, 1, 1_000_000),
            ("SEQLINE_USER_WRITES_BURST", self.user_writes_burst, 1, 1_000_000),
            ("SEQLINE_USER_STREAMS_MAX", self.user_streams_max, 0, 100_000),
            ("SEQLINE_ADDRESS_STREAMS_MAX", self.address_streams_max, 0, 10_000_000),
            ("SEQLINE_TRUSTED_PROXIES", self.trusted_proxies, 0, 16),
            ("SEQLINE_DRAIN_MS", self.drain_ms, 1, 3_600_000),
            ("SEQLINE_CLOCK_OFFSET_MS", self.clock_offset_ms.unsigned_abs(), 0, DAY_MS),
        ]
    }

    /// Legal settings that endanger each other, each with the reason.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn = |wrong: bool, text: &str| {
            if wrong {
                warnings.push(text.to_owned());
            }
        };
        warn(
            self.stream_stall_ms < 2 * self.heartbeat_ms,
            "SEQLINE_STREAM_STALL_MS is below twice SEQLINE_HEARTBEAT_MS: quiet streams would be closed as stalled before they had anything to take",
        );
        warn(
            self.drain_ms < self.request_deadline_ms,
            "SEQLINE_DRAIN_MS is below SEQLINE_REQUEST_DEADLINE_MS: a stop cuts off requests that would still have been answered",
        );
        warn(
            self.log_max_age * 1_000 < self.stream_life_max_ms,
            "SEQLINE_LOG_MAX_AGE is below SEQLINE_STREAM_LIFE_MAX_MS: a quiet stream's place is trimmed away before it reconnects, and it resyncs",
        );
        warn(
            self.cool_after < self.key_window,
            "SEQLINE_COOL_AFTER is below SEQLINE_KEY_WINDOW: conversations leave Redis while it should still decide their idempotency keys, so Postgres is asked more often",
        );
        warn(
            self.window_messages < 50,
            "SEQLINE_WINDOW_MESSAGES is below a page of 50: the first page of every history asks Postgres, and fails while that is away",
        );
        warn(
            self.outbox_max_entries < 2 * self.archive_batch_rows,
            "SEQLINE_OUTBOX_MAX_ENTRIES is below two batches of SEQLINE_ARCHIVE_BATCH_ROWS: sends are refused while one batch is under way",
        );
        warn(
            self.jwt_jwks.is_some() && self.jwt_audience.is_none(),
            "SEQLINE_JWT_JWKS without SEQLINE_JWT_AUDIENCE: tokens that the same issuer made for other applications are accepted here",
        );
        warn(
            self.pre_send_hook_url.is_some() && 2 * self.pre_send_hook_deadline_ms > self.request_deadline_ms,
            "SEQLINE_PRE_SEND_HOOK_DEADLINE_MS is above half of SEQLINE_REQUEST_DEADLINE_MS: a slow answer of the host application leaves the send itself little time",
        );
        let clear = self.allowed_origins.iter().any(|o| o.starts_with("http://") && !is_loopback_url(o));
        warn(clear, "SEQLINE_ALLOWED_ORIGINS names an http origin: whoever sits on the wire can act as that page");
        warnings
    }
}

fn check_stores(settings: &Settings) -> Result<(), SettingFault> {
    let redis = "SEQLINE_REDIS_URL";
    if settings.redis_url.is_empty() {
        return Err(SettingFault::new(redis, "is missing, e.g. redis://127.0.0.1:6379"));
    }
    if !settings.redis_url.split_once("://").is_some_and(|(scheme, _)| REDIS_SCHEMES.contains(&scheme)) {
        return Err(SettingFault::new(redis, "must begin with redis://, redis-sentinel://, redis-cluster://, or the same with rediss"));
    }
    let database = "SEQLINE_DATABASE_URL";
    if settings.database_url.is_empty() {
        return Err(SettingFault::new(database, "is missing, e.g. postgres://user:password@127.0.0.1/seqline"));
    }
    if !settings.database_url.split_once("://").is_some_and(|(scheme, _)| matches!(scheme, "postgres" | "postgresql")) {
        return Err(SettingFault::new(database, "must begin with postgres://"));
    }
    Ok(())
}

fn check_media(settings: &Settings) -> Result<(), SettingFault> {
    if settings.media_url.as_ref().is_some_and(|url| !url.starts_with("file:///") && !url.starts_with("s3://")) {
        return Err(SettingFault::new("SEQLINE_MEDIA_URL", "must begin with file:/// or s3://"));
    }
    if settings.media_s3_endpoint.as_ref().is_some_and(|url| !url.starts_with("https://") && !url.starts_with("http://")) {
        return Err(SettingFault::new("SEQLINE_MEDIA_S3_ENDPOINT", "must begin with https:// or http://"));
    }
    if settings.media_s3_access_key.is_some() != settings.media_s3_secret_key.is_some() {
        return Err(SettingFault::new("SEQLINE_MEDIA_S3_SECRET_KEY", "and SEQLINE_MEDIA_S3_ACCESS_KEY must be set together"));
    }
    Ok(())
}

fn check_keys(settings: &Settings) -> Result<(), SettingFault> {
    let name = "SEQLINE_JWT_HS256_SECRETS";
    if settings.jwt_hs256_secrets.is_empty() && settings.jwt_jwks.is_none() {
        return Err(SettingFault::new(name, "or SEQLINE_JWT_JWKS must be set: without a key nobody can come in"));
    }
    if let Some(index) = settings.jwt_hs256_secrets.iter().position(|secret| secret.len() < SECRET_BYTES_MIN) {
        return Err(SettingFault::new(
            name,
            format!("number {} has fewer than {SECRET_BYTES_MIN} bytes, so it could be guessed from any token", index + 1),
        ));
    }
    if let Some(place) = &settings.jwt_jwks
        && place.contains("://")
        && !place.starts_with("https://")
        && !(place.starts_with("http://") && is_loopback_url(place))
    {
        return Err(SettingFault::new("SEQLINE_JWT_JWKS", "must be a file, an https URL, or an http URL on loopback"));
    }
    Ok(())
}

fn check_browsers(settings: &Settings) -> Result<(), SettingFault> {
    let name = "SEQLINE_ALLOWED_ORIGINS";
    for (index, origin) in settings.allowed_origins.iter().enumerate() {
        if origin.contains('*') {
            return Err(SettingFault::new(name, "must not hold a wildcard: every page of the world could call with its visitor's rights"));
        }
        // A browser sends exactly this form, and it is compared byte by byte.
        let exact =
            Url::parse(origin).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.origin().ascii_serialization() == *origin);
        if !exact {
            return Err(SettingFault::new(
                name,
                format!("number {} must be scheme://host[:port] in lower case without a path, e.g. https://app.example", index + 1),
            ));
        }
    }
    if let Some(cookie) = &settings.jwt_cookie {
        if settings.allowed_origins.is_empty() {
            return Err(SettingFault::new(
                "SEQLINE_JWT_COOKIE",
                "needs SEQLINE_ALLOWED_ORIGINS: writes with a cookie are taken from these alone",
            ));
        }
        if !cookie.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)) {
            return Err(SettingFault::new("SEQLINE_JWT_COOKIE", "is no cookie name"));
        }
    }
    Ok(())
}

pub(super) fn is_loopback_url(text: &str) -> bool {
    match Url::parse(text).ok().and_then(|url| url.host().map(|host| host.to_owned())) {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}
