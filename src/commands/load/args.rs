//! What the command line of `seqline load` says, and which of it goes together.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::LoadError;

/// Longest run in seconds: a run ends by itself.
pub const SECONDS_MAX: u64 = 86_400;
/// Most messages that one run plans.
pub const MESSAGES_MAX: u64 = 2_000_000;
/// Most streams that one run opens.
pub const STREAMS_MAX: usize = 100_000;
/// Most members of the group of a scenario, its maker included.
pub const MEMBERS_MAX: usize = 1_000;

/// What is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// One group, everybody streams, many talk
    EveningPeak,
    /// Many chats of two
    Pairs,
    /// Readers that leave and come back through other gateways while a writer never stops
    Resume,
    /// Streams on which nothing happens: what one costs a gateway in memory
    Idle,
}

impl Scenario {
    /// The word of the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::EveningPeak => "evening-peak",
            Self::Pairs => "pairs",
            Self::Resume => "resume",
            Self::Idle => "idle",
        }
    }
}

/// How safe a message must be before its send is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Ack {
    /// In Redis
    Accepted,
    /// On a replica of Redis too
    Replicated,
    /// Committed in Postgres
    Archived,
}

impl Ack {
    /// The word of the contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Replicated => "replicated",
            Self::Archived => "archived",
        }
    }
}

/// Play a day's traffic against running gateways, and judge it: lost, doubled, out of order, late.
///
/// Speaks only HTTP and SSE, as phones do. Makes users and conversations of its own, under fresh names, and leaves them there.
/// Exits 0 when the verdict is good, 1 when it is bad, 2 when it was called wrongly.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  seqline load evening-peak --embedded
  seqline load evening-peak --url http://127.0.0.1:8081 --url http://127.0.0.1:8082 --seconds 300 --speedup 4
  seqline load pairs --url http://127.0.0.1:8081 --pairs 200 --clients 50
  seqline load resume --url http://127.0.0.1:8081 --url http://127.0.0.1:8082 --readers 16
  seqline load idle --url http://127.0.0.1:8081 --streams 2000 --pid 4242
  seqline load --from evenings.ndjson --speedup 60 --url http://127.0.0.1:8081

A file for --from holds one JSON object a line: {\"n\": 7, \"at\": \"2008-04-27T04:46:00Z\", \"sender\": \"ann\", \"body\": \"hello\"}.")]
pub struct LoadArgs {
    /// What to play
    #[arg(value_enum, required_unless_present = "from", conflicts_with = "from")]
    pub scenario: Option<Scenario>,
    /// Replay a recorded group chat, one JSON object a line: {n, at, sender, body}
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,

    /// A gateway; repeat it for several, which are then used in turn
    #[arg(long, value_name = "URL", required_unless_present = "embedded", conflicts_with = "embedded", help_heading = "Target")]
    pub url: Vec<String>,
    /// Start a system of its own on scratch data, and stop it afterwards
    #[arg(long, help_heading = "Target")]
    pub embedded: bool,
    /// Secret that signs the tokens of the made-up users; of several, separated by commas, the first
    #[arg(
        long,
        env = "SEQLINE_JWT_HS256_SECRETS",
        value_name = "SECRET",
        hide_env_values = true,
        required_unless_present = "embedded",
        help_heading = "Target"
    )]
    pub secret: Option<String>,
    /// Issuer to name in the tokens
    #[arg(long, env = "SEQLINE_JWT_ISSUER", value_name = "TEXT", help_heading = "Target")]
    pub issuer: Option<String>,
    /// Audience to name in the tokens
    #[arg(long, env = "SEQLINE_JWT_AUDIENCE", value_name = "TEXT", help_heading = "Target")]
    pub audience: Option<String>,
    /// Process id of a gateway on this machine, to report its memory; repeat it for several
    #[arg(long, value_name = "PID", help_heading = "Target")]
    pub pid: Vec<u32>,

    /// How long to send; for idle, how long to hold the streams [default: 60; idle: 20]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX), conflicts_with = "from", help_heading = "Traffic")]
    pub seconds: Option<u64>,
    /// Play so many times faster (evening-peak, --from)
    #[arg(long, value_name = "FACTOR", help_heading = "Traffic")]
    pub speedup: Option<f64>,
    /// Messages a second in all (pairs [default: 50], resume [default: 20], --from instead of its own times)
    #[arg(long, value_name = "PER_SECOND", conflicts_with_all = ["speedup", "clients"], help_heading = "Traffic")]
    pub rate: Option<f64>,
    /// Members of the group (evening-peak) [default: 200]
    #[arg(long, value_name = "N", help_heading = "Traffic")]
    pub members: Option<usize>,
    /// Messages a minute before the speed-up (evening-peak) [default: 600]
    #[arg(long, value_name = "N", help_heading = "Traffic")]
    pub per_minute: Option<u32>,
    /// Chats of two (pairs) [default: 100]
    #[arg(long, value_name = "N", help_heading = "Traffic")]
    pub pairs: Option<usize>,
    /// So many senders, each sending its next message when the last is answered, instead of a rate (pairs)
    #[arg(long, value_name = "N", help_heading = "Traffic")]
    pub clients: Option<usize>,
    /// Readers that come and go (resume) [default: 8]
    #[arg(long, value_name = "N", help_heading = "Traffic")]
    pub readers: Option<usize>,
    /// Streams to hold (idle) [default: 500]
    #[arg(long, value_name = "N", help_heading = "Traffic")]
    pub streams: Option<usize>,
    /// Members that listen [default: all] (evening-peak, pairs, --from)
    #[arg(long, value_name = "N", help_heading = "Traffic")]
    pub streaming: Option<usize>,
    /// How safe a message must be before its send is answered
    #[arg(long, value_enum, default_value_t = Ack::Accepted, help_heading = "Traffic")]
    pub ack: Ack,

    /// A delivery later than this after the answer to its sender is a fault
    #[arg(long, value_name = "MS", default_value_t = 5_000, help_heading = "Verdict")]
    pub late_ms: u64,
    /// How long to wait after the last send for what is still on its way
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_600), help_heading = "Verdict")]
    pub drain_seconds: u64,
    /// Print the outcome as JSON
    #[arg(long, help_heading = "Verdict")]
    pub json: bool,
}

impl LoadArgs {
    /// Refuses options that mean nothing where they stand, so that a run is never of another kind than was asked for.
    ///
    /// # Errors
    /// [`LoadError::Usage`], naming the option.
    pub fn check(&self) -> Result<(), LoadError> {
        let what = self.scenario.map_or("--from", Scenario::name);
        let given: [(&str, bool, &[&str]); 9] = [
            ("--speedup", self.speedup.is_some(), &["evening-peak", "--from"]),
            ("--rate", self.rate.is_some(), &["pairs", "resume", "--from"]),
            ("--members", self.members.is_some(), &["evening-peak"]),
            ("--per-minute", self.per_minute.is_some(), &["evening-peak"]),
            ("--pairs", self.pairs.is_some(), &["pairs"]),
            ("--clients", self.clients.is_some(), &["pairs"]),
            ("--readers", self.readers.is_some(), &["resume"]),
            ("--streams", self.streams.is_some(), &["idle"]),
            ("--streaming", self.streaming.is_some(), &["evening-peak", "pairs", "--from"]),
        ];
        for (option, present, homes) in given {
            if present && !homes.contains(&what) {
                return Err(LoadError::Usage(format!("{option} means nothing with {what}; it belongs to {}", homes.join(", "))));
            }
        }
        bounded("--speedup", self.speedup, 0.01, 10_000.0)?;
        bounded("--rate", self.rate, 0.01, 100_000.0)?;
        counted("--members", self.members, 2, MEMBERS_MAX)?;
        counted("--per-minute", self.per_minute.and_then(|n| usize::try_from(n).ok()), 1, 6_000_000)?;
        counted("--pairs", self.pairs, 1, STREAMS_MAX / 2)?;
        counted("--clients", self.clients, 1, 10_000)?;
        counted("--readers", self.readers, 1, MEMBERS_MAX - 1)?;
        counted("--streams", self.streams, 1, STREAMS_MAX)?;
        for url in &self.url {
            if url::Url::parse(url).map_or(true, |url| !matches!(url.scheme(), "http" | "https") || url.host().is_none()) {
                return Err(LoadError::Usage(format!("--url {url}: not an http or https URL")));
            }
        }
        Ok(())
    }
}

fn bounded(option: &str, value: Option<f64>, low: f64, high: f64) -> Result<(), LoadError> {
    match value {
        Some(value) if !(low..=high).contains(&value) => Err(LoadError::Usage(format!("{option} {value}: must be from {low} to {high}"))),
        _ => Ok(()),
    }
}

fn counted(option: &str, value: Option<usize>, low: usize, high: usize) -> Result<(), LoadError> {
    match value {
        Some(value) if !(low..=high).contains(&value) => Err(LoadError::Usage(format!("{option} {value}: must be from {low} to {high}"))),
        _ => Ok(()),
    }
}
