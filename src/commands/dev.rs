//! `seqline dev`: the whole system on one machine, with a Redis and a Postgres of its own, two gateways and a worker. For trying and
//! developing; what it prints works when pasted. Data stay in one folder from start to start.
//!
//! Stopping goes from the outside in: gateways first, then the worker (after the archive has everything and conversations have left Redis, so
//! that the next start continues their numbers without a void), then the stores. However it ends, no process stays behind (see `embedded`).

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, Parser};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{failed, not_started};
use crate::actions::Stores;
use crate::api::demo_tokens::DemoSecret;
use crate::clock::Clock;
use crate::domain::ids::{ConversationId, UserId};
use crate::embedded::{
    DataFolder, EmbeddedError, PostgresOptions, PostgresServer, RedisOptions, RedisServer, clear, port_from, random_word, write_private,
};
use crate::identity::keyring::KeyError;
use crate::identity::mint::{Claims, mint};
use crate::postgres::Archive;
use crate::push::VapidKey;
use crate::settings::Settings;
use crate::startup::{Running, RunningWorker, open_stores, start_demo_gateway, start_worker};
use crate::{shutdown, telemetry, workers};

/// Shown under `seqline dev --help`.
pub const EXAMPLES: &str = "\
Ports, counted from --port: +0 and +1 the two gateways, +10 to +12 health and metrics, +20 Redis, +21 Postgres; one that is taken
makes way for the next free one. All other settings are taken from the variables that `seqline serve --help` lists.";

/// Gateways that it runs.
const GATEWAYS: u16 = 2;
/// Where ports for operations begin, counted from the first port.
const ADMIN_PORTS: u16 = 10;
/// Where ports of the stores begin.
const STORE_PORTS: u16 = 20;
/// Length of the secret that is made, in letters and digits.
const SECRET_LENGTH: usize = 64;
/// How long the printed tokens are good, in seconds: 30 days.
const TOKEN_SECONDS: i64 = 30 * 86_400;
/// Longest wait for conversations to leave Redis at the end.
const COOL_WITHIN: Duration = Duration::from_secs(15);
/// How often the stores are looked after.
const LOOK: Duration = Duration::from_millis(500);

/// Arguments of `dev`.
#[derive(Args, Debug)]
pub struct DevArgs {
    /// Folder that keeps data, logs and the secret of tokens
    #[arg(long, value_name = "FOLDER", default_value = ".seqline")]
    pub data: PathBuf,
    /// First of the ports
    #[arg(long, value_name = "N", default_value_t = 8080, value_parser = clap::value_parser!(u16).range(1..=65_000))]
    pub port: u16,
    /// Log filter, e.g. info; lines go to stderr
    #[arg(long, env = "SEQLINE_LOG", default_value = "warn", value_name = "FILTER")]
    pub log: String,
}

/// The stores, held while everything runs.
struct PrivateStores {
    redis: RedisServer,
    postgres: PostgresServer,
}

/// Everything above the stores.
struct System {
    gateways: Vec<Running>,
    worker: RunningWorker,
    stores: Arc<Stores>,
    /// Whether the gateways serve the web client.
    has_page: bool,
}

/// Runs everything until Ctrl-C or SIGTERM.
pub async fn run(args: DevArgs) -> ExitCode {
    let stop = CancellationToken::new();
    if let Err(error) = shutdown::stop_on_signals(stop.clone()).and_then(|()| stop_on_hangup(stop.clone())) {
        return failed(&format!("signals cannot be listened for: {error}"));
    }
    let folder = match open_folder(&args.data) {
        Ok(folder) => folder,
        Err(error) => return failed(&error.to_string()),
    };
    let mut ports = Ports { first: args.port, taken: Vec::new() };
    let begun = tokio::select! {
        begun = start_stores(folder.path(), &mut ports) => begun,
        // A start that is interrupted has nothing to save; dropping it stops what runs already.
        () = stop.cancelled() => return failed("interrupted while starting"),
    };
    let mut servers = match begun {
        Ok(servers) => servers,
        Err(error) => return failed(&error.to_string()),
    };
    let code = serve(&args, folder.path(), &mut ports, &mut servers, &stop).await;
    let stopping = Step::begin("Stopping Redis and Postgres");
    tokio::join!(servers.redis.stop(), servers.postgres.stop());
    stopping.done();
    code
}

async fn serve(args: &DevArgs, folder: &Path, ports: &mut Ports, servers: &mut PrivateStores, stop: &CancellationToken) -> ExitCode {
    let secret = match keep_secret(folder) {
        Ok(secret) => secret,
        Err(error) => return failed(&error.to_string()),
    };
    let database_url = servers.postgres.url("postgres");
    let migrating = Step::begin("Making or updating the tables");
    let migrated = match Archive::connect(&database_url, 1) {
        Ok(archive) => archive.migrate().await.map(|_| ()),
        Err(error) => Err(error),
    };
    if let Err(error) = migrated {
        return failed(&format!("the tables cannot be made: {error}"));
    }
    migrating.done();

    let vapid_key = match keep_vapid_key(folder) {
        Ok(key) => key,
        Err(error) => return failed(&error),
    };
    let media_url = Url::from_file_path(folder.join("media")).ok().map(String::from);
    let settings = |listen: u16, admin: u16| {
        let read = settings(&args.log, &servers.redis.url(), &database_url, &secret, listen, admin)?;
        let named = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        // Pictures and the key of pushes lie beside the other data, unless the environment names others.
        let vapid_private_key = named(read.vapid_private_key).or_else(|| Some(vapid_key.clone()));
        // Push services on this machine are for trying things, and need no address to write to.
        Ok(Settings {
            media_url: named(read.media_url).or_else(|| media_url.clone()),
            vapid_private_key,
            push_allow_loopback: true,
            ..read
        })
    };
    let starting = Step::begin("Starting two gateways and a worker");
    let system = tokio::select! {
        system = start_system(ports, &secret, settings) => system,
        () = stop.cancelled() => return failed("interrupted while starting"),
    };
    let system = match system {
        Ok(system) => system,
        Err(code) => return code,
    };
    starting.done();

    match invitation(&system, &secret) {
        Ok(text) => {
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        }
        Err(error) => eprintln!("seqline: tokens cannot be signed: {error}"),
    }
    let code = tokio::select! {
        () = stop.cancelled() => ExitCode::SUCCESS,
        code = watch(servers) => code,
    };
    stop_system(system).await;
    code
}

/// Ends when a store has ended, which it must not.
async fn watch(servers: &mut PrivateStores) -> ExitCode {
    loop {
        tokio::time::sleep(LOOK).await;
        let redis = servers.redis.process();
        let gone = if redis.ended().is_some() { Some(("Redis", redis)) } else { None };
        let postgres = servers.postgres.process();
        let gone = gone.or_else(|| if postgres.ended().is_some() { Some(("Postgres", postgres)) } else { None });
        if let Some((name, process)) = gone {
            return failed(&format!("{name} has ended by itself\n--- the end of its log ---\n{}", process.log_tail()));
        }
    }
}

fn open_folder(path: &Path) -> Result<DataFolder, EmbeddedError> {
    let folder = DataFolder::open(path)?;
    // Wherever it is put: a secret and a database do not belong into a repository.
    write_private(&folder.path().join(".gitignore"), "*\n")?;
    Ok(folder)
}

async fn start_stores(folder: &Path, ports: &mut Ports) -> Result<PrivateStores, EmbeddedError> {
    let (redis_folder, postgres_folder) = (folder.join("redis"), folder.join("postgres"));
    // First, so that the ports of a run that was killed are free to be used again.
    clear(&redis_folder, "TERM")?;
    clear(&postgres_folder.join("cluster"), "INT")?;
    let redis = RedisOptions { port: Some(ports.take(STORE_PORTS)?), append_only: true, ..RedisOptions::default() };
    let postgres = PostgresOptions { port: Some(ports.take(STORE_PORTS + 1)?), ..PostgresOptions::default() };
    let fresh = !postgres_folder.join("cluster").exists();
    let step = Step::begin(if fresh { "Making a database and starting Redis and Postgres" } else { "Starting Redis and Postgres" });
    let started = tokio::try_join!(RedisServer::start(&redis_folder, &redis), PostgresServer::start(&postgres_folder, &postgres))?;
    step.done();
    Ok(PrivateStores { redis: started.0, postgres: started.1 })
}

/// The secret of tokens: made once, so that tokens printed yesterday still hold.
fn keep_secret(folder: &Path) -> Result<String, EmbeddedError> {
    let path = folder.join("jwt-secret");
    if let Ok(kept) = std::fs::read_to_string(&path)
        && kept.trim().len() >= SECRET_LENGTH
    {
        return Ok(kept.trim().to_owned());
    }
    let secret = random_word(SECRET_LENGTH);
    write_private(&path, &secret)?;
    Ok(secret)
}

/// The key that signs pushes: made once, so that browsers that subscribed yesterday are still woken.
fn keep_vapid_key(folder: &Path) -> Result<String, String> {
    let path = folder.join("vapid-key");
    if let Ok(kept) = std::fs::read_to_string(&path)
        && VapidKey::read(&kept).is_ok()
    {
        return Ok(kept.trim().to_owned());
    }
    let key = VapidKey::make().map_err(|fault| fault.to_string())?;
    write_private(&path, &key).map_err(|error| error.to_string())?;
    Ok(key)
}

/// Reads the settings that are not ours to choose from the environment.
#[derive(Parser)]
struct FromEnvironment {
    #[command(flatten)]
    settings: Settings,
}

fn settings(log: &str, redis: &str, database: &str, secret: &str, listen: u16, admin: u16) -> Result<Settings, clap::Error> {
    let address = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string();
    let (listen, admin) = (address(listen), address(admin));
    let words = ["seqline", "--redis-url", redis, "--database-url", database, "--jwt-hs256-secrets", secret];
    let more = ["--listen", &listen, "--admin-listen", &admin, "--log", log, "--log-format", "text", "--drain-ms", "6000"];
    FromEnvironment::try_parse_from(words.into_iter().chain(more)).map(|read| read.settings)
}

async fn start_system(
    ports: &mut Ports,
    secret: &str,
    settings: impl Fn(u16, u16) -> Result<Settings, clap::Error>,
) -> Result<System, ExitCode> {
    let mut take = |place: u16| ports.take(place).map_err(|error| failed(&error.to_string()));
    let wrong = |error: clap::Error| failed(error.to_string().trim_end());
    let mut gateways = Vec::new();
    for place in 0..GATEWAYS {
        let settings = settings(take(place)?, take(ADMIN_PORTS + place)?).map_err(wrong)?;
        telemetry::start(&settings).map_err(|fault| failed(&fault.to_string()))?;
        gateways.push(start_demo_gateway(settings, DemoSecret(secret.to_owned())).await.map_err(|error| not_started(&error))?);
    }
    let settings = settings(0, take(ADMIN_PORTS + GATEWAYS)?).map_err(wrong)?;
    let has_page = settings.web_client;
    let worker = start_worker(settings.clone()).await.map_err(|error| not_started(&error))?;
    let stores = open_stores(Arc::new(settings)).await.map_err(|error| not_started(&error))?;
    Ok(System { gateways, worker, stores, has_page })
}

async fn stop_system(system: System) {
    let stopping = Step::begin("Stopping the gateways");
    system.gateways.iter().for_each(|gateway| gateway.stop.cancel());
    for gateway in system.gateways {
        gateway.join().await;
    }
    stopping.done();
    let saving = Step::begin("Waiting for the archive to have everything");
    match tokio::time::timeout(COOL_WITHIN, workers::cool_all(&system.stores)).await {
        Ok(Ok(0)) => saving.done(),
        Ok(Ok(stayed)) => saving.note(&format!("{stayed} conversations stay in Redis until the next start")),
        Ok(Err(error)) => saving.note(&format!("the rest stays in Redis until the next start: {error}")),
        Err(_) => saving.note("the rest stays in Redis until the next start: it took too long"),
    }
    system.worker.stop.cancel();
    system.worker.join().await;
}

/// What is printed when everything runs.
fn invitation(system: &System, secret: &str) -> Result<String, KeyError> {
    let now = Clock::default().now().div_euclid(1000);
    let token = |user: &str| mint(secret, &Claims { sub: user.into(), iat: now, exp: now + TOKEN_SECONDS, ..Claims::default() });
    let (ann, bob) = (token("ann")?, token("bob")?);
    let url = |place: usize| system.gateways.get(place).map_or(String::new(), |gateway| format!("http://{}", gateway.api_addr));
    let (first, second) = (url(0), url(1));
    let operations = system.gateways.iter().map(|gateway| gateway.admin_addr).chain([system.worker.admin_addr]);
    let operations: Vec<String> = operations.map(|address| format!("http://{address}/metrics")).collect();
    let users = UserId::parse("ann").ok().zip(UserId::parse("bob").ok());
    let pair = users.and_then(|(ann, bob)| ConversationId::of_pair(&ann, &bob).ok());
    let messages = pair.map_or_else(String::new, |pair| format!("/v1/conversations/{}/messages", pair.as_str()));
    let client_id = uuid::Uuid::now_v7();
    let message = format!(r#"{{"client_id":"{client_id}","peer":"bob","body":"Hello Bob"}}"#);
    let page = if system.has_page {
        format!("\n  Page        {first}/?demo   (two users side by side, in a browser on this machine)")
    } else {
        String::new()
    };
    let mut text = String::new();
    let _ = write!(
        text,
        "
seqline runs. Ctrl-C stops it; the data stay.

  API         {first}   {second}{page}
  Operations  {operations}

  Token of ann, good for 30 days:
{ann}
  Token of bob:
{bob}

Bob listens, at the second gateway (in a second terminal):
curl -sSN -H 'Authorization: Bearer {bob}' {second}/v1/events

Ann writes to him, at the first (again with the same client_id: answered again, not sent again):
curl -sS -w '\\n' -H 'Authorization: Bearer {ann}' -H 'Content-Type: application/json' -d '{message}' {first}{messages}

Their history:
curl -sS -w '\\n' -H 'Authorization: Bearer {bob}' '{second}{messages}?limit=50'

",
        operations = operations.join("   "),
    );
    Ok(text)
}

/// Ports, counted from the first; none is given twice.
struct Ports {
    first: u16,
    taken: Vec<u16>,
}

impl Ports {
    fn take(&mut self, place: u16) -> Result<u16, EmbeddedError> {
        let wanted = self.first.saturating_add(place);
        let port = port_from(wanted, &self.taken)?;
        if port != wanted && !self.taken.contains(&wanted) {
            eprintln!("Port {wanted} is taken; {port} is used instead.");
        }
        self.taken.push(port);
        Ok(port)
    }
}

/// A step that takes a while: said when it begins, and how long it took when it is done.
struct Step {
    begun: Instant,
}

impl Step {
    fn begin(what: &str) -> Self {
        eprint!("{what} ... ");
        if !std::io::stderr().is_terminal() {
            eprintln!();
        }
        Self { begun: Instant::now() }
    }

    fn done(self) {
        self.note("done");
    }

    fn note(self, how: &str) {
        eprintln!("{how} ({:.1} s)", self.begun.elapsed().as_secs_f32());
    }
}

/// The terminal was closed: an end like any other.
fn stop_on_hangup(stop: CancellationToken) -> std::io::Result<()> {
    let mut hangup = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?;
    tokio::spawn(async move {
        if hangup.recv().await.is_some() {
            stop.cancel();
        }
    });
    Ok(())
}
