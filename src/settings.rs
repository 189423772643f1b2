//! Every setting, typed, documented once; `--help` and the README's table are made from here. What is wrong is refused at the start,
//! by name: see [`check`].

use std::fmt;

use clap::Args;

pub mod check;
mod check_hooks;
mod check_push;
pub mod table;

pub use check::{Role, SettingFault};

/// Settings of a gateway and of a worker, from flags or the environment (a flag wins).
#[derive(Args, Clone)]
#[command(next_help_heading = "Settings")]
pub struct Settings {
    /// Address of the API
    #[arg(long, env = "SEQLINE_LISTEN", default_value = "127.0.0.1:8080", value_name = "HOST:PORT")]
    pub listen: std::net::SocketAddr,
    /// Address of health, readiness and metrics; keep it off the public network
    #[arg(long, env = "SEQLINE_ADMIN_LISTEN", default_value = "127.0.0.1:9090", value_name = "HOST:PORT")]
    pub admin_listen: std::net::SocketAddr,
    /// Redis (required): redis://, redis-sentinel://, redis-cluster://, or the same with rediss for TLS
    #[arg(long, env = "SEQLINE_REDIS_URL", value_name = "URL", default_value = "", hide_default_value = true, hide_env_values = true)]
    pub redis_url: String,
    /// Postgres (required), e.g. postgres://user:password@host/database
    #[arg(long, env = "SEQLINE_DATABASE_URL", value_name = "URL", default_value = "", hide_default_value = true, hide_env_values = true)]
    pub database_url: String,
    /// Connections to Postgres that one process may hold
    #[arg(long, env = "SEQLINE_DATABASE_CONNECTIONS", default_value_t = 10, value_name = "N")]
    pub database_connections: u32,
    /// Secrets for HS256 tokens, comma separated, each at least 32 bytes; all are accepted, so that they can be rotated
    #[arg(long, env = "SEQLINE_JWT_HS256_SECRETS", value_delimiter = ',', value_name = "SECRETS", hide_env_values = true)]
    pub jwt_hs256_secrets: Vec<String>,
    /// JWKS for RS256, ES256 and EdDSA tokens: a file, or an https URL (http only for loopback)
    #[arg(long, env = "SEQLINE_JWT_JWKS", value_name = "FILE|URL")]
    pub jwt_jwks: Option<String>,
    /// Issuer that tokens must name
    #[arg(long, env = "SEQLINE_JWT_ISSUER", value_name = "TEXT")]
    pub jwt_issuer: Option<String>,
    /// Audience that tokens must name
    #[arg(long, env = "SEQLINE_JWT_AUDIENCE", value_name = "TEXT")]
    pub jwt_audience: Option<String>,
    /// Cookie that may hold the token instead of the Authorization header; needs allowed origins
    #[arg(long, env = "SEQLINE_JWT_COOKIE", value_name = "NAME")]
    pub jwt_cookie: Option<String>,
    // Shown by --help as well, where the brackets of a link would only be in the way.
    #[allow(rustdoc::bare_urls)]
    /// Origins that browsers may call from, comma separated, e.g. https://app.example
    #[arg(long, env = "SEQLINE_ALLOWED_ORIGINS", value_delimiter = ',', value_name = "ORIGINS")]
    pub allowed_origins: Vec<String>,
    /// Whether the web client is served under /
    #[arg(long, env = "SEQLINE_WEB_CLIENT", default_value_t = true, action = clap::ArgAction::Set, value_name = "true|false")]
    pub web_client: bool,
    /// Shards of conversations; fixed when the installation is made
    #[arg(long, env = "SEQLINE_SHARDS", default_value_t = 64, value_name = "N")]
    pub shards: u16,
    /// Partitions of users; fixed when the installation is made
    #[arg(long, env = "SEQLINE_PARTITIONS", default_value_t = 256, value_name = "N")]
    pub partitions: u16,
    /// Entries that a user's log keeps
    #[arg(long, env = "SEQLINE_LOG_MAX_ENTRIES", default_value_t = 10_000, value_name = "N")]
    pub log_max_entries: u64,
    /// Age in seconds up to which a user's log keeps entries
    #[arg(long, env = "SEQLINE_LOG_MAX_AGE", default_value_t = 604_800, value_name = "SECONDS")]
    pub log_max_age: u64,
    /// Recent messages of a conversation kept in Redis after they are archived
    #[arg(long, env = "SEQLINE_WINDOW_MESSAGES", default_value_t = 200, value_name = "N")]
    pub window_messages: u64,
    /// Seconds for which Redis alone decides whether an idempotency key is new
    #[arg(long, env = "SEQLINE_KEY_WINDOW", default_value_t = 3_600, value_name = "SECONDS")]
    pub key_window: u64,
    /// Seconds without use after which a conversation leaves Redis
    #[arg(long, env = "SEQLINE_COOL_AFTER", default_value_t = 21_600, value_name = "SECONDS")]
    pub cool_after: u64,
    /// Smallest block of numbers that a conversation takes at a time
    #[arg(long, env = "SEQLINE_LEASE_BLOCK", default_value_t = 10_000, value_name = "N")]
    pub lease_block: u64,
    /// Entries in a shard's outbox above which sends are refused with 503
    #[arg(long, env = "SEQLINE_OUTBOX_MAX_ENTRIES", default_value_t = 200_000, value_name = "N")]
    pub outbox_max_entries: u64,
    /// Rows that one archive transaction takes
    #[arg(long, env = "SEQLINE_ARCHIVE_BATCH_ROWS", default_value_t = 1_000, value_name = "N")]
    pub archive_batch_rows: u64,
    /// Milliseconds between comment lines on a quiet stream
    #[arg(long, env = "SEQLINE_HEARTBEAT_MS", default_value_t = 15_000, value_name = "MS")]
    pub heartbeat_ms: u64,
    /// Longest life of a stream in milliseconds; each ends between 80 and 100 % of it
    #[arg(long, env = "SEQLINE_STREAM_LIFE_MAX_MS", default_value_t = 1_800_000, value_name = "MS")]
    pub stream_life_max_ms: u64,
    /// Milliseconds after which a stream whose reader takes nothing is closed
    #[arg(long, env = "SEQLINE_STREAM_STALL_MS", default_value_t = 60_000, value_name = "MS")]
    pub stream_stall_ms: u64,
    /// Milliseconds within which every request but streams and polls is answered
    #[arg(long, env = "SEQLINE_REQUEST_DEADLINE_MS", default_value_t = 5_000, value_name = "MS")]
    pub request_deadline_ms: u64,
    /// Largest JSON body in bytes
    #[arg(long, env = "SEQLINE_BODY_BYTES_MAX", default_value_t = 65_536, value_name = "BYTES")]
    pub body_bytes_max: usize,
    #[allow(rustdoc::bare_urls)]
    /// Where pictures lie: file:///folder (one that all processes share) or s3://bucket/prefix; without it no pictures are taken
    #[arg(long, env = "SEQLINE_MEDIA_URL", value_name = "URL")]
    pub media_url: Option<String>,
    // As with the origins above.
    #[allow(rustdoc::bare_urls)]
    /// Server of the bucket, e.g. http://minio:9000; Amazon's when absent
    #[arg(long, env = "SEQLINE_MEDIA_S3_ENDPOINT", value_name = "URL")]
    pub media_s3_endpoint: Option<String>,
    /// Region of the bucket
    #[arg(long, env = "SEQLINE_MEDIA_S3_REGION", default_value = "us-east-1", value_name = "TEXT")]
    pub media_s3_region: String,
    /// Access key of the bucket; without it and its secret, the role of the machine is used
    #[arg(long, env = "SEQLINE_MEDIA_S3_ACCESS_KEY", value_name = "TEXT", hide_env_values = true)]
    pub media_s3_access_key: Option<String>,
    /// Secret of the access key
    #[arg(long, env = "SEQLINE_MEDIA_S3_SECRET_KEY", value_name = "TEXT", hide_env_values = true)]
    pub media_s3_secret_key: Option<String>,
    /// Largest picture in bytes
    #[arg(long, env = "SEQLINE_MEDIA_BYTES_MAX", default_value_t = 10_485_760, value_name = "BYTES")]
    pub media_bytes_max: usize,
    /// Longest side of a picture in pixels
    #[arg(long, env = "SEQLINE_MEDIA_SIDE_MAX", default_value_t = 16_384, value_name = "PIXELS")]
    pub media_side_max: u32,
    /// Most pixels of a picture; looking at one takes up to 10 bytes of memory a pixel
    #[arg(long, env = "SEQLINE_MEDIA_PIXELS_MAX", default_value_t = 40_000_000, value_name = "PIXELS")]
    pub media_pixels_max: u64,
    /// Milliseconds within which a picture's bytes must have arrived
    #[arg(long, env = "SEQLINE_MEDIA_UPLOAD_MS", default_value_t = 60_000, value_name = "MS")]
    pub media_upload_ms: u64,
    /// Seconds for which a picture that no message shows is kept
    #[arg(long, env = "SEQLINE_MEDIA_UNUSED_AGE", default_value_t = 86_400, value_name = "SECONDS")]
    pub media_unused_age: u64,
    /// Largest body of an import in bytes
    #[arg(long, env = "SEQLINE_IMPORT_BYTES_MAX", default_value_t = 67_108_864, value_name = "BYTES")]
    pub import_bytes_max: usize,
    /// Most members of a group
    #[arg(long, env = "SEQLINE_GROUP_MEMBERS_MAX", default_value_t = 1_000, value_name = "N")]
    pub group_members_max: u64,
    /// Count up to which unread messages are counted exactly
    #[arg(long, env = "SEQLINE_UNREAD_MAX", default_value_t = 1_000, value_name = "N")]
    pub unread_max: u64,
    /// Seconds for which the sender may take a message back; 0 is never
    #[arg(long, env = "SEQLINE_RECALL_WINDOW", default_value_t = 86_400, value_name = "SECONDS")]
    pub recall_window: u64,
    /// Seconds for which the sender may edit a message; always when absent
    #[arg(long, env = "SEQLINE_EDIT_WINDOW", value_name = "SECONDS")]
    pub edit_window: Option<u64>,
    /// Members up to which read.advanced of others is kept in logs
    #[arg(long, env = "SEQLINE_READ_EVENTS_MEMBERS_MAX", default_value_t = 10, value_name = "N")]
    pub read_events_members_max: u64,
    /// Where events are posted for the host application: an https URL (http only for loopback); the same for gateways and workers
    #[arg(long, env = "SEQLINE_WEBHOOK_URL", value_name = "URL", hide_env_values = true)]
    pub webhook_url: Option<String>,
    /// Secrets that sign webhooks and the pre-send hook, comma separated, each at least 24 bytes or whsec_ and base64 of as many; all sign, so that they can be rotated
    #[arg(long, env = "SEQLINE_WEBHOOK_SECRETS", value_delimiter = ',', value_name = "SECRETS", hide_env_values = true)]
    pub webhook_secrets: Vec<String>,
    /// Event types that are posted, comma separated; member.* stands for all that begin so
    #[arg(
        long,
        env = "SEQLINE_WEBHOOK_EVENTS",
        value_delimiter = ',',
        default_value = "message.*,member.*,conversation.*,owner.changed,reaction.changed",
        value_name = "TYPES"
    )]
    pub webhook_events: Vec<String>,
    /// Milliseconds within which a webhook must be answered
    #[arg(long, env = "SEQLINE_WEBHOOK_TIMEOUT_MS", default_value_t = 10_000, value_name = "MS")]
    pub webhook_timeout_ms: u64,
    /// Seconds for which a webhook that fails is tried again before it is given up
    #[arg(long, env = "SEQLINE_WEBHOOK_MAX_AGE", default_value_t = 259_200, value_name = "SECONDS")]
    pub webhook_max_age: u64,
    /// Webhooks that one worker has under way at the same time, each of another conversation
    #[arg(long, env = "SEQLINE_WEBHOOK_CALLS_MAX", default_value_t = 16, value_name = "N")]
    pub webhook_calls_max: u64,
    /// Where the host application is asked before a user's message is taken: an https URL (http only for loopback)
    #[arg(long, env = "SEQLINE_PRE_SEND_HOOK_URL", value_name = "URL", hide_env_values = true)]
    pub pre_send_hook_url: Option<String>,
    /// Milliseconds within which the pre-send hook must answer
    #[arg(long, env = "SEQLINE_PRE_SEND_HOOK_DEADLINE_MS", default_value_t = 500, value_name = "MS")]
    pub pre_send_hook_deadline_ms: u64,
    /// What happens to a message while the pre-send hook does not answer: allow, or refuse with 503
    #[arg(long, env = "SEQLINE_PRE_SEND_HOOK_AWAY", default_value = "allow", value_name = "allow|refuse")]
    pub pre_send_hook_away: String,
    /// Private key (base64url) that signs pushes, or a file that holds it; `seqline vapid` makes one; without it there are no pushes; the same for gateways and workers
    #[arg(long, env = "SEQLINE_VAPID_PRIVATE_KEY", value_name = "KEY|FILE", hide_env_values = true)]
    pub vapid_private_key: Option<String>,
    /// Whom push services may write to when something is wrong with our pushes: mailto: and an address, or an https URL
    #[arg(long, env = "SEQLINE_VAPID_SUBJECT", value_name = "URL")]
    pub vapid_subject: Option<String>,
    /// Milliseconds after which a message that was not read by then is pushed
    #[arg(long, env = "SEQLINE_PUSH_DELAY_MS", default_value_t = 3_000, value_name = "MS")]
    pub push_delay_ms: u64,
    /// Milliseconds between two pushes about one conversation to one browser; doubled with each unheeded push of a group, five times at most
    #[arg(long, env = "SEQLINE_PUSH_INTERVAL_MS", default_value_t = 10_000, value_name = "MS")]
    pub push_interval_ms: u64,
    /// Seconds for which a push is worth delivering: so long it is tried, and kept by the push service for a device that is away
    #[arg(long, env = "SEQLINE_PUSH_TTL", default_value_t = 86_400, value_name = "SECONDS")]
    pub push_ttl: u64,
    /// Milliseconds within which a push service must answer
    #[arg(long, env = "SEQLINE_PUSH_TIMEOUT_MS", default_value_t = 10_000, value_name = "MS")]
    pub push_timeout_ms: u64,
    /// Pushes that one worker has under way at the same time, at most half of them to one push service, and half to all that have not taken any
    #[arg(long, env = "SEQLINE_PUSH_CALLS_MAX", default_value_t = 64, value_name = "N")]
    pub push_calls_max: u64,
    /// Whether loopback addresses are endpoints of pushes, over http and on any port; for tests
    #[arg(long, env = "SEQLINE_PUSH_ALLOW_LOOPBACK", default_value_t = false, action = clap::ArgAction::Set, value_name = "true|false", hide = true)]
    pub push_allow_loopback: bool,
    /// Messages a second that one user may send, on average over all conversations; 0 is no limit, fractions are fine
    #[arg(long, env = "SEQLINE_USER_SENDS_PER_SECOND", default_value_t = 0.0, value_name = "RATE")]
    pub user_sends_per_second: f64,
    /// Messages that one user may send at once after a pause
    #[arg(long, env = "SEQLINE_USER_SENDS_BURST", default_value_t = 20, value_name = "N")]
    pub user_sends_burst: u64,
    /// Messages a second that one conversation takes from all its members, on average; 0 is no limit
    #[arg(long, env = "SEQLINE_CONVERSATION_SENDS_PER_SECOND", default_value_t = 0.0, value_name = "RATE")]
    pub conversation_sends_per_second: f64,
    /// Messages that one conversation takes at once after a pause
    #[arg(long, env = "SEQLINE_CONVERSATION_SENDS_BURST", default_value_t = 50, value_name = "N")]
    pub conversation_sends_burst: u64,
    /// Conversations, invitations and uploads a second that one user may make, on average; 0 is no limit
    #[arg(long, env = "SEQLINE_USER_WRITES_PER_SECOND", default_value_t = 0.0, value_name = "RATE")]
    pub user_writes_per_second: f64,
    /// Conversations, invitations and uploads that one user may make at once after a pause
    #[arg(long, env = "SEQLINE_USER_WRITES_BURST", default_value_t = 60, value_name = "N")]
    pub user_writes_burst: u64,
    /// Streams that one user may have open at one gateway; 0 is no limit
    #[arg(long, env = "SEQLINE_USER_STREAMS_MAX", default_value_t = 0, value_name = "N")]
    pub user_streams_max: u64,
    /// Streams that one address (of IPv6: one network of 64 bits) may have open at one gateway; 0 is no limit
    #[arg(long, env = "SEQLINE_ADDRESS_STREAMS_MAX", default_value_t = 0, value_name = "N")]
    pub address_streams_max: u64,
    /// Load balancers in front that note in X-Forwarded-For from whom they got a request; with 0 the connection's other side is the client
    #[arg(long, env = "SEQLINE_TRUSTED_PROXIES", default_value_t = 0, value_name = "N")]
    pub trusted_proxies: u64,
    /// Milliseconds that a stopping process gives its requests and streams
    #[arg(long, env = "SEQLINE_DRAIN_MS", default_value_t = 20_000, value_name = "MS")]
    pub drain_ms: u64,
    /// Milliseconds that are added to the clock; for tests of clocks that disagree
    #[arg(long, env = "SEQLINE_CLOCK_OFFSET_MS", default_value_t = 0, value_name = "MS", allow_hyphen_values = true, hide = true)]
    pub clock_offset_ms: i64,
    /// Log lines: json or text
    #[arg(long, env = "SEQLINE_LOG_FORMAT", default_value = "json", value_name = "json|text")]
    pub log_format: String,
    /// Log filter, e.g. info or seqline=debug,warn
    #[arg(long, env = "SEQLINE_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,
}

impl fmt::Debug for Settings {
    /// Secrets and passwords stay out: what is debugged ends up in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("listen", &self.listen)
            .field("admin_listen", &self.admin_listen)
            .field("redis_url", &shown_url(&self.redis_url))
            .field("database_url", &shown_url(&self.database_url))
            .field("jwt_hs256_secrets", &self.jwt_hs256_secrets.len())
            .field("shards", &self.shards)
            .field("partitions", &self.partitions)
            .field("webhook_secrets", &self.webhook_secrets.len())
            .finish_non_exhaustive()
    }
}

/// A URL without user, password and query, fit for logs.
#[must_use]
pub fn shown_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "(not a URL)".to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    // The last '@': a password may hold one.
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    format!("{scheme}://{place}")
}
