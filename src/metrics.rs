//! Every metric, declared once: name, kind, label, meaning. Record through the rows below; a name is spelled nowhere else.
//!
//! Rows with a closed set of label values, or none, are registered at zero when the recorder is installed, so that a silent panel
//! means calm and not a typing error. Labels are bounded: never an id, never a path that a client made up.

use std::sync::OnceLock;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

const METADATA: Metadata<'static> = Metadata::new("seqline", Level::INFO, None);

/// Buckets in seconds for things that should take milliseconds.
const FAST: &[f64] = &[0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];
/// Buckets in seconds for the way of a message to other people.
const WAY: &[f64] = &[0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];
/// Buckets for counts of things in a batch.
const BATCH: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0];

/// Which values a row's label may take.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// There is no label.
    None,
    /// These and no others, of one label; each is registered at zero.
    Closed(&'static str, &'static [&'static str]),
    /// Bounded, but known only when running (script names, shards, routes); the labels in order.
    Open(&'static [&'static str]),
}

/// How a row counts.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution over these buckets.
    Histogram(&'static [f64]),
}

/// What every row says about itself.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name on `/metrics`.
    pub name: &'static str,
    /// How it counts.
    pub kind: Kind,
    /// Its labels.
    pub values: Values,
    /// HELP text.
    pub help: &'static str,
}

macro_rules! row_type {
    ($name:ident, $handle:ty, $register:ident) => {
        /// A row of the table; does nothing before [`install`].
        #[derive(Debug)]
        pub struct $name {
            row: Row,
            handles: OnceLock<Vec<Cached<$handle>>>,
        }

        impl $name {
            const fn new(row: Row) -> Self {
                Self { row, handles: OnceLock::new() }
            }

            /// Registers every closed label value at zero and keeps the handles (4 ns a call instead of 100).
            fn warm(&self) {
                let labels: Vec<Option<&'static str>> = match self.row.values {
                    Values::None => vec![None],
                    Values::Closed(_, values) => values.iter().copied().map(Some).collect(),
                    Values::Open(_) => Vec::new(),
                };
                let _ = self.handles.set(labels.into_iter().map(|v| Cached { value: v, handle: self.register(v.as_slice()) }).collect());
            }

            fn register(&self, values: &[&str]) -> $handle {
                let names: &[&'static str] = match &self.row.values {
                    Values::None => &[],
                    Values::Closed(name, _) => std::slice::from_ref(name),
                    Values::Open(names) => names,
                };
                let labels: Vec<Label> = names.iter().zip(values).map(|(n, v)| Label::new(*n, (*v).to_owned())).collect();
                let key = Key::from_parts(self.row.name, labels);
                metrics::with_recorder(|recorder| recorder.$register(&key, &METADATA))
            }

            /// The handle for these label values, in the order of the row's labels.
            fn handle(&self, values: &[&str]) -> $handle {
                let cached = self.handles.get().and_then(|all| all.iter().find(|c| c.value.as_slice() == values));
                cached.map_or_else(|| self.register(values), |c| c.handle.clone())
            }
        }
    };
}

#[derive(Debug)]
struct Cached<H> {
    value: Option<&'static str>,
    handle: H,
}

row_type!(CounterRow, Counter, register_counter);
row_type!(GaugeRow, Gauge, register_gauge);
row_type!(HistogramRow, Histogram, register_histogram);

impl CounterRow {
    /// Adds `n` under these label values.
    pub fn add(&self, values: &[&str], n: u64) {
        self.handle(values).increment(n);
    }
}

impl GaugeRow {
    /// Sets it under these label values.
    #[allow(clippy::cast_precision_loss, reason = "gauges are doubles; counts of things are far below 2^53")]
    pub fn set(&self, values: &[&str], value: u64) {
        self.handle(values).set(value as f64);
    }

    /// Sets it to a number of seconds or the like.
    pub fn set_f64(&self, values: &[&str], value: f64) {
        self.handle(values).set(value);
    }

    /// One more.
    pub fn up(&self, values: &[&str]) {
        self.handle(values).increment(1.0);
    }

    /// One less.
    pub fn down(&self, values: &[&str]) {
        self.handle(values).decrement(1.0);
    }
}

impl HistogramRow {
    /// Records one value, in the unit that the name ends with.
    pub fn record(&self, values: &[&str], value: f64) {
        self.handle(values).record(value);
    }

    /// Records the time since `start`, in seconds.
    pub fn since(&self, values: &[&str], start: std::time::Instant) {
        self.record(values, start.elapsed().as_secs_f64());
    }

    /// Records a wall-clock difference in milliseconds as seconds; a negative one (clocks that disagree) as zero.
    #[allow(clippy::cast_precision_loss, reason = "a duration in milliseconds is far below 2^53")]
    pub fn record_ms(&self, values: &[&str], ms: i64) {
        self.record(values, ms.max(0) as f64 / 1000.0);
    }
}

macro_rules! table {
    ($($(#[doc = $help:literal])+ $kind:ident $row:ident = $name:literal $values:tt $($buckets:ident)?;)*) => {
        $($(#[doc = $help])+ pub static $row: row_of!($kind) = <row_of!($kind)>::new(Row {
            name: $name, kind: kind_of!($kind $($buckets)?), values: values_of!($values), help: concat!($($help),+),
        });)*

        /// The whole table, in its order.
        #[must_use]
        pub fn rows() -> Vec<Row> {
            vec![$($row.row),*]
        }

        fn warm_all() {
            $($row.warm();)*
        }
    };
}
macro_rules! row_of {
    (counter) => {
        CounterRow
    };
    (gauge) => {
        GaugeRow
    };
    (histogram) => {
        HistogramRow
    };
}
macro_rules! kind_of {
    (counter) => {
        Kind::Counter
    };
    (gauge) => {
        Kind::Gauge
    };
    (histogram $buckets:ident) => {
        Kind::Histogram($buckets)
    };
}
macro_rules! values_of {
    ({}) => { Values::None };
    ({$label:ident: [$($value:literal),* $(,)?]}) => { Values::Closed(stringify!($label), &[$($value),*]) };
    ({$($label:ident),+}) => { Values::Open(&[$(stringify!($label)),+]) };
}

table! {
    // What clients ask.
    /// Sends by outcome; replayed is a key that came again, conflict the same key with other content
    counter SENDS = "seqline_sends_total" {outcome: ["new", "replayed", "conflict", "refused", "unavailable", "overloaded"]};
    /// Seconds from taking a send to answering it, by acknowledgement level reached
    histogram SEND_SECONDS = "seqline_send_seconds" {ack: ["accepted", "replicated", "archived"]} FAST;
    /// Requests held back because somebody goes too fast, by limit
    counter RATE_LIMITED = "seqline_rate_limited_total" {limit: ["user", "conversation", "writes", "streams"]};
    /// HTTP requests by route as in the contract (unmatched for any other path) and status
    counter HTTP_REQUESTS = "seqline_http_requests_total" {method, route, status};
    /// Seconds to the head of the answer, by route; streams and polls are left out
    histogram HTTP_SECONDS = "seqline_http_request_seconds" {route} FAST;
    /// Handlers that panicked; any is a bug
    counter PANICS = "seqline_panics_total" {};
    /// Requests that ran into their deadline
    counter DEADLINES = "seqline_deadlines_total" {};
    /// Tokens refused, by reason
    counter TOKENS_REFUSED = "seqline_tokens_refused_total" {reason: ["missing", "malformed", "signature", "unknown_key", "expired", "claims"]};
    /// Loads of the key set, by outcome
    counter KEYSET_LOADS = "seqline_keyset_loads_total" {outcome: ["ok", "failed"]};

    // Pictures.
    /// Uploads of pictures by outcome; refused is what is no picture that is taken, full that too many bytes were under way
    counter UPLOADS = "seqline_media_uploads_total" {outcome: ["stored", "refused", "full", "unavailable"]};
    /// Bytes of pictures stored
    counter UPLOAD_BYTES = "seqline_media_bytes_total" {};
    /// Pictures that no message showed, removed
    counter MEDIA_SWEPT = "seqline_media_swept_total" {};

    // Numbers.
    /// Messages that met another message on their number in the archive; any is an alarm
    counter SEQ_CONFLICTS = "seqline_seq_conflicts_total" {};
    /// Ranges of numbers that will never hold a message, recorded after losses
    counter VOIDS = "seqline_voids_total" {};
    /// Blocks of numbers taken for conversations
    counter LEASES = "seqline_leases_total" {};
    /// Shard epochs opened; more than one a shard means that Redis lost its memory or failed over
    counter EPOCHS_OPENED = "seqline_epochs_opened_total" {};

    // Stores.
    /// Seconds of a Redis script call, by script
    histogram SCRIPT_SECONDS = "seqline_script_seconds" {script} FAST;
    /// Redis calls that failed, by kind
    counter REDIS_ERRORS = "seqline_redis_errors_total" {kind: ["not_sent", "no_answer", "out_of_memory", "not_serving", "refused"]};
    /// Seconds a call waited for its turn on a Redis connection
    histogram REDIS_WAIT_SECONDS = "seqline_redis_wait_seconds" {} FAST;
    /// Seconds to get a Postgres connection out of the pool
    histogram POSTGRES_WAIT_SECONDS = "seqline_postgres_wait_seconds" {} FAST;
    /// Postgres calls that failed, by kind
    counter POSTGRES_ERRORS = "seqline_postgres_errors_total" {kind: ["unavailable", "refused", "unexpected"]};
    /// Conversations loaded into Redis from the archive
    counter CONVERSATIONS_LOADED = "seqline_conversations_loaded_total" {};
    /// Conversations that left Redis
    counter CONVERSATIONS_COOLED = "seqline_conversations_cooled_total" {};

    // Workers.
    /// Shards that this process owns
    gauge SHARDS_OWNED = "seqline_shards_owned" {};
    /// Entries in a shard's outbox, by owned shard
    gauge OUTBOX_ENTRIES = "seqline_outbox_entries" {shard};
    /// Seconds since the oldest entry of a shard's outbox was written, by owned shard
    gauge OUTBOX_AGE_SECONDS = "seqline_outbox_age_seconds" {shard};
    /// Entries accepted and not yet dispatched, over owned shards
    gauge DISPATCH_LAG_ENTRIES = "seqline_dispatch_lag_entries" {};
    /// Seconds from accepting a change to having it in the members' logs
    histogram DISPATCH_SECONDS = "seqline_dispatch_seconds" {} WAY;
    /// Entries appended to users' logs
    counter DELIVERIES = "seqline_deliveries_total" {};
    /// Logs that could not be written and cost their user a resync
    counter LOGS_FAILED = "seqline_logs_failed_total" {};
    /// Entries accepted and not yet archived, over owned shards
    gauge ARCHIVE_LAG_ENTRIES = "seqline_archive_lag_entries" {};
    /// Seconds since the oldest unarchived entry was accepted, over owned shards
    gauge ARCHIVE_LAG_SECONDS = "seqline_archive_lag_seconds" {};
    /// Rows archived, by what became of them
    counter ARCHIVE_ROWS = "seqline_archive_rows_total" {outcome: ["inserted", "updated", "replayed", "set_aside"]};
    /// Rows in one archive transaction
    histogram ARCHIVE_BATCH_ROWS = "seqline_archive_batch_rows" {} BATCH;
    /// Seconds of one archive transaction
    histogram ARCHIVE_BATCH_SECONDS = "seqline_archive_batch_seconds" {} FAST;
    /// Entries set aside because Postgres refuses them or another message stands in their place, over owned shards; any needs a look
    gauge ASIDE_ENTRIES = "seqline_aside_entries" {};
    /// Outbox entries that somebody removed before they were archived; any is an alarm
    counter OUTBOX_ENTRIES_LOST = "seqline_outbox_entries_lost_total" {};
    /// Seconds for which the oldest archived message that cannot be found yet has waited, as this process saw it last
    gauge SEARCH_LAG_SECONDS = "seqline_search_lag_seconds" {};
    /// Partitions of users that dispatch could not reach and delivers to apart from the others, over owned shards
    gauge PARTITIONS_LAGGING = "seqline_partitions_lagging" {};
    /// Rounds of a worker that failed, by worker
    counter WORKER_ERRORS = "seqline_worker_errors_total" {
        worker: ["own_shards", "dispatch_events", "archive_messages", "retry_aside", "tend_shards", "index_messages", "cool_conversations", "send_webhooks", "send_pushes", "sweep_media", "erase_users"]
    };
    /// Users to be erased, by how far it came; more begun than done for long needs a look at the worker's errors
    counter ERASURES = "seqline_erasures_total" {outcome: ["begun", "done"]};
    /// Messages blanked because their sender was erased
    counter ERASED_MESSAGES = "seqline_erased_messages_total" {};

    // The host application.
    /// Webhooks by what came of a try; failed ones are tried again, dead ones were given up
    counter WEBHOOKS = "seqline_webhooks_total" {outcome: ["delivered", "failed", "dead"]};
    /// Seconds from posting a webhook to its answer, or to giving up on one
    histogram WEBHOOK_SECONDS = "seqline_webhook_seconds" {} FAST;
    /// Webhooks that wait, counted up to 100,000; every worker shows the same
    gauge WEBHOOK_QUEUE_EVENTS = "seqline_webhook_queue_events" {};
    /// Seconds for which the oldest webhook has waited; every worker shows the same
    gauge WEBHOOK_QUEUE_AGE_SECONDS = "seqline_webhook_queue_age_seconds" {};
    // Browsers.
    /// Pushes by what came of a try; silent ones had nothing to say any more, failed ones are tried again, dead ones were given up, ended ones ended the subscription
    counter PUSHES = "seqline_pushes_total" {outcome: ["delivered", "silent", "failed", "refused", "ended", "dead"]};
    /// Seconds from calling a push service to its answer, or to giving up on one
    histogram PUSH_SECONDS = "seqline_push_seconds" {} FAST;
    /// Pushes that wait, also for their time, counted up to 100,000; every worker shows the same
    gauge PUSH_QUEUE = "seqline_push_queue" {};
    /// Seconds for which the push that could have been sent first has not been; every worker shows the same
    gauge PUSH_QUEUE_LATE_SECONDS = "seqline_push_queue_late_seconds" {};
    /// Questions to the pre-send hook by outcome; timeout and failed are no answer, resting was not asked because of those
    counter PRE_SEND_HOOKS = "seqline_pre_send_hooks_total" {outcome: ["allowed", "refused", "timeout", "failed", "resting"]};
    /// Seconds that sends waited for the pre-send hook
    histogram PRE_SEND_HOOK_SECONDS = "seqline_pre_send_hook_seconds" {} FAST;

    // Streams.
    /// Streams open now
    gauge STREAMS_OPEN = "seqline_streams_open" {};
    /// Streams opened, by where they started
    counter STREAMS_OPENED = "seqline_streams_opened_total" {start: ["resumed", "cursor", "head"]};
    /// Streams closed, by reason
    counter STREAMS_CLOSED = "seqline_streams_closed_total" {reason: ["client", "life", "expired", "erased", "drain", "stalled", "error"]};
    /// Positions that could not be resumed from, by reason
    counter RESYNCS = "seqline_resyncs_total" {reason: ["trimmed", "future", "lost"]};
    /// Events written to streams, by way; live_only leaves no log entry
    counter EVENTS_SENT = "seqline_events_sent_total" {way: ["live", "read", "live_only"]};
    /// Reads of a user's log because the live chain was broken or the reader was behind
    counter CATCH_UP_READS = "seqline_catch_up_reads_total" {};
    /// Streams that fell back to reading because their reader was slow
    counter SLOW_READERS = "seqline_slow_readers_total" {};
    /// Wake-ups by what they led to
    counter WAKE_UPS = "seqline_wake_ups_total" {outcome: ["pushed", "behind", "nobody"]};
    /// Changes found by the idle sweep, which means that a wake-up was lost
    counter WAKE_UPS_LOST = "seqline_wake_ups_lost_total" {};
    /// Seconds from accepting a change to writing it to a socket
    histogram DELIVER_SECONDS = "seqline_deliver_seconds" {} WAY;
}

static INSTALLED: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Installs the process-wide recorder, once, and registers every closed row at zero. `None` when another recorder was installed first.
pub fn install() -> Option<PrometheusHandle> {
    INSTALLED
        .get_or_init(|| {
            let mut builder = PrometheusBuilder::new();
            for row in rows() {
                if let Kind::Histogram(buckets) = row.kind {
                    builder = builder.set_buckets_for_metric(Matcher::Full(row.name.to_owned()), buckets).ok()?;
                }
            }
            let handle = builder.install_recorder().ok()?;
            for row in rows() {
                let (name, help) = (KeyName::from_const_str(row.name), row.help.trim().into());
                metrics::with_recorder(|recorder| match row.kind {
                    Kind::Counter => recorder.describe_counter(name, None, help),
                    Kind::Gauge => recorder.describe_gauge(name, None, help),
                    Kind::Histogram(_) => recorder.describe_histogram(name, None::<Unit>, help),
                });
            }
            warm_all();
            Some(handle)
        })
        .clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_named_alike_and_only_once() {
        let mut names = std::collections::HashSet::new();
        for row in rows() {
            assert!(row.name.starts_with("seqline_"), "{}", row.name);
            assert!(names.insert(row.name), "{} twice", row.name);
            assert_eq!(row.name.ends_with("_total"), matches!(row.kind, Kind::Counter), "{}", row.name);
            assert!(row.help.trim().len() > 10, "{}", row.name);
        }
    }
}
