//! Puts a process together: settings proven, stores reached, listeners bound, everything told to stop by one token.
//!
//! Gateways and workers can be started several times in one process, which is how most tests run them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::actions::Stores;
use crate::api::demo_tokens::DemoSecret;
use crate::api::{self, AppState};
use crate::clock::Clock;
use crate::delivery::OpenStreams;
use crate::identity::Keyring;
use crate::identity::key_source::KeySource;
use crate::identity::keyring::KeyError;
use crate::identity::token::Expected;
use crate::media::MediaRoom;
use crate::ops::{self, Operations};
use crate::postgres::{Archive, ArchiveError, Claim};
use crate::redis::link::{Link, LinkError};
use crate::settings::{Role, SettingFault, Settings, shown_url};
use crate::shutdown::join_within;
use crate::{metrics, workers};

/// How long a start waits for stores that are not there yet, in milliseconds.
pub const STORES_WAIT_MS_MAX: u64 = 30_000;
/// Time for one attempt to reach Redis, in milliseconds.
const CONNECT_MS: u64 = 3_000;
/// Between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Most connections that wait to be accepted.
const BACKLOG: u32 = 4_096;

/// Why a process did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting cannot be used.
    #[error(transparent)]
    Setting(#[from] SettingFault),
    /// Redis is not there.
    #[error("Redis at {url} does not answer: {error}")]
    Redis {
        /// Where, without secrets.
        url: String,
        /// What was said.
        error: LinkError,
    },
    /// Postgres is not there.
    #[error("Postgres at {url} does not answer: {error}")]
    Postgres {
        /// Where, without secrets.
        url: String,
        /// What was said.
        error: ArchiveError,
    },
    /// The tables are not there or not ours.
    #[error("the database is not ready: {0}; `seqline migrate` makes the tables, `seqline doctor` says what else is wrong")]
    Database(ArchiveError),
    /// An address is taken or not ours.
    #[error("{name} {address} cannot be listened on: {error}")]
    Listen {
        /// The variable.
        name: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
}

/// A gateway that runs.
#[derive(Debug)]
pub struct Running {
    /// Where the API listens.
    pub api_addr: SocketAddr,
    /// Where health and metrics are.
    pub admin_addr: SocketAddr,
    /// Cancel it to stop; then [`Running::join`].
    pub stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// A worker that runs.
#[derive(Debug)]
pub struct RunningWorker {
    /// Where health and metrics are.
    pub admin_addr: SocketAddr,
    /// Cancel it to stop; then [`RunningWorker::join`].
    pub stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Running {
    /// Waits until it has stopped; its parts keep their own time limits.
    pub async fn join(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

impl RunningWorker {
    /// Waits until it has stopped; its parts keep their own time limits.
    pub async fn join(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Starts a gateway. Ports may be 0, then the system chooses.
///
/// # Errors
/// See [`StartError`].
pub async fn start_gateway(settings: Settings) -> Result<Running, StartError> {
    start(settings, false, None).await
}

/// Starts a gateway that also works.
///
/// # Errors
/// See [`StartError`].
pub async fn start_gateway_with_worker(settings: Settings) -> Result<Running, StartError> {
    start(settings, true, None).await
}

/// Starts a gateway that gives tokens to whoever asks on this machine, for the demonstration of `seqline dev`.
///
/// # Errors
/// See [`StartError`].
pub async fn start_demo_gateway(settings: Settings, secret: DemoSecret) -> Result<Running, StartError> {
    start(settings, false, Some(secret)).await
}

async fn start(settings: Settings, with_worker: bool, demo: Option<DemoSecret>) -> Result<Running, StartError> {
    let settings = prove(settings, Role::Gateway)?;
    let recorder = metrics::install();
    let (keyring, source) = keyring(&settings).await?;
    let name = "SEQLINE_LISTEN";
    let api_listener =
        api::listener::bind(settings.listen).map_err(|error| StartError::Listen { name, address: settings.listen, error })?;
    let admin_listener = listen("SEQLINE_ADMIN_LISTEN", settings.admin_listen)?;
    let api_addr = address_of(&api_listener, "SEQLINE_LISTEN", settings.listen)?;
    let admin_addr = address_of(&admin_listener, "SEQLINE_ADMIN_LISTEN", settings.admin_listen)?;
    let stores = open_stores(Arc::clone(&settings)).await?;

    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    if let Some(source) = source {
        tasks.spawn(source.keep_fresh(stop.clone()));
    }
    let drain = Duration::from_millis(settings.drain_ms);
    if with_worker {
        run_workers(&mut tasks, Arc::clone(&stores), stop.clone(), drain);
    }
    let operations = Operations::new(Arc::clone(&stores), recorder);
    let gateway = format!("{:016x}", rand::random::<u64>());
    let hub = OpenStreams::start(Arc::clone(&stores), gateway, stop.clone());
    let state = AppState::new(api::Parts {
        stores,
        hub,
        keyring: Arc::new(keyring),
        settings: Arc::clone(&settings),
        clock: Clock::with_offset(settings.clock_offset_ms),
        demo,
    });
    let router = api::router::router(state);

    warn_about(&settings);
    // The second port outlives the first: while requests end, it says that no more should come.
    let gone = CancellationToken::new();
    tasks.spawn(ops::serve(admin_listener, operations.clone(), gone.clone()));
    let stopping = stop.clone();
    tasks.spawn(async move {
        let serving = api::listener::serve(api_listener, router, stopping.clone());
        let limit = async {
            stopping.cancelled().await;
            operations.drain();
            tokio::time::sleep(drain).await;
        };
        tokio::select! {
            () = serving => {}
            () = limit => tracing::warn!(drain.ms = settings.drain_ms, "not everything had ended when the time for it was over"),
        }
        gone.cancel();
    });
    tracing::info!(listen.api = %api_addr, listen.admin = %admin_addr, worker = with_worker, "gateway is up");
    Ok(Running { api_addr, admin_addr, stop, tasks })
}

/// Starts a worker.
///
/// # Errors
/// See [`StartError`].
pub async fn start_worker(settings: Settings) -> Result<RunningWorker, StartError> {
    let settings = prove(settings, Role::Worker)?;
    let recorder = metrics::install();
    let admin_listener = listen("SEQLINE_ADMIN_LISTEN", settings.admin_listen)?;
    let admin_addr = address_of(&admin_listener, "SEQLINE_ADMIN_LISTEN", settings.admin_listen)?;
    let stores = open_stores(Arc::clone(&settings)).await?;

    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(ops::serve(admin_listener, Operations::new(Arc::clone(&stores), recorder), stop.clone()));
    run_workers(&mut tasks, stores, stop.clone(), Duration::from_millis(settings.drain_ms));
    warn_about(&settings);
    tracing::info!(listen.admin = %admin_addr, "worker is up");
    Ok(RunningWorker { admin_addr, stop, tasks })
}

fn run_workers(tasks: &mut JoinSet<()>, stores: Arc<Stores>, stop: CancellationToken, drain: Duration) {
    tasks.spawn(async move {
        let mut running = workers::start_workers(stores, stop.clone());
        stop.cancelled().await;
        let cut_off = join_within(&mut running, drain).await;
        if cut_off > 0 {
            tracing::warn!(workers.cut_off = cut_off, "workers had to be cut off; the next owner goes on where they were");
        }
    });
}

fn prove(settings: Settings, role: Role) -> Result<Arc<Settings>, SettingFault> {
    let settings = settings.tidy();
    settings.validate(role)?;
    Ok(Arc::new(settings))
}

/// Says which settings endanger each other; only once the start has succeeded, so that a wrong setting stays the only line.
fn warn_about(settings: &Settings) {
    for warning in settings.warnings() {
        tracing::warn!("{warning}");
    }
}

/// Reaches both stores and makes sure that the installation is the one the settings describe. Waits a while for stores that are just starting.
///
/// # Errors
/// See [`StartError`].
pub async fn open_stores(settings: Arc<Settings>) -> Result<Arc<Stores>, StartError> {
    let until = Instant::now() + Duration::from_millis(STORES_WAIT_MS_MAX);
    let link = loop {
        match Link::connect(&settings.redis_url, CONNECT_MS).await {
            Ok(link) => break link,
            Err(error) if Instant::now() < until && !matches!(error, LinkError::Refused(_)) => {
                tracing::warn!(error.message = %error, redis.url = shown_url(&settings.redis_url), "Redis is not there yet");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error) => return Err(StartError::Redis { url: shown_url(&settings.redis_url), error }),
        }
    };
    let postgres = |error| StartError::Postgres { url: shown_url(&settings.database_url), error };
    let archive = Archive::connect(&settings.database_url, settings.database_connections)
        .map_err(|e| SettingFault::new("SEQLINE_DATABASE_URL", e.to_string()))?;
    loop {
        match archive.claim_installation(settings.shards, settings.partitions).await {
            Ok(Claim::Ours) => break,
            Ok(Claim::Mismatch { shards, partitions }) => {
                let (name, fixed, wanted) = if shards == settings.shards {
                    ("SEQLINE_PARTITIONS", partitions, settings.partitions)
                } else {
                    ("SEQLINE_SHARDS", shards, settings.shards)
                };
                return Err(SettingFault::new(
                    name,
                    format!("is {wanted}, but this installation was made with {fixed}, which cannot be changed"),
                )
                .into());
            }
            Err(error @ ArchiveError::Unavailable(_)) if Instant::now() < until => {
                tracing::warn!(error.message = %error, postgres.url = shown_url(&settings.database_url), "Postgres is not there yet");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error @ ArchiveError::Unavailable(_)) => return Err(postgres(error)),
            Err(error) => return Err(StartError::Database(error)),
        }
    }
    let media = MediaRoom::open(&settings)?;
    Ok(Stores::new(link, archive, media, settings))
}

async fn keyring(settings: &Settings) -> Result<(Keyring, Option<Arc<KeySource>>), StartError> {
    let wrong = |error: KeyError| SettingFault::new("SEQLINE_JWT_JWKS", format!("cannot be used: {error}"));
    let source = settings.jwt_jwks.as_deref().map(KeySource::new).transpose().map_err(wrong)?.map(Arc::new);
    if let Some(source) = &source
        && let Err(error) = source.load().await
    {
        // A file that cannot be read is a wrong setting. A host that is away for a moment is not: with it would go every gateway that restarts.
        if source.is_file() {
            return Err(wrong(error).into());
        }
        tracing::warn!(error.message = %error, "the key set is not there yet; tokens signed with its keys get 503 until it is");
    }
    let expected = Expected { issuer: settings.jwt_issuer.clone(), audience: settings.jwt_audience.clone() };
    let keyring = Keyring::new(&settings.jwt_hs256_secrets, source.clone(), expected)
        .map_err(|error| SettingFault::new("SEQLINE_JWT_HS256_SECRETS", format!("cannot be used: {error}")))?;
    Ok((keyring, source))
}

fn listen(name: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    let bind = || -> std::io::Result<TcpListener> {
        let socket = if address.is_ipv4() { tokio::net::TcpSocket::new_v4()? } else { tokio::net::TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    bind().map_err(|error| StartError::Listen { name, address, error })
}

fn address_of(listener: &TcpListener, name: &'static str, address: SocketAddr) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|error| StartError::Listen { name, address, error })
}
