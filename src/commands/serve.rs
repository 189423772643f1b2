//! `seqline serve` and `seqline work`.

use std::process::ExitCode;

use clap::Args;

use super::{EXIT_USAGE, failed, not_started};
use crate::settings::{Role, Settings};
use crate::{shutdown, startup, telemetry};

/// Shown under `seqline serve --help`.
pub const EXAMPLES: &str = "\
Example:
  SEQLINE_REDIS_URL=redis://127.0.0.1:6379 \\
  SEQLINE_DATABASE_URL=postgres://seqline:secret@127.0.0.1/seqline \\
  SEQLINE_JWT_HS256_SECRETS=\"$(openssl rand -hex 32)\" \\
  seqline serve --with-worker";

/// Arguments of `serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Also do a worker's work in this process
    #[arg(long)]
    pub with_worker: bool,
    /// The settings
    #[command(flatten)]
    pub settings: Settings,
}

/// Arguments of `work`.
#[derive(Args, Debug)]
pub struct WorkArgs {
    /// The settings
    #[command(flatten)]
    pub settings: Settings,
}

/// Runs a gateway until it is told to stop.
pub async fn serve(args: ServeArgs) -> ExitCode {
    let settings = match ready(args.settings, Role::Gateway) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let started =
        if args.with_worker { startup::start_gateway_with_worker(settings).await } else { startup::start_gateway(settings).await };
    match started {
        Err(error) => not_started(&error),
        Ok(running) => match shutdown::stop_on_signals(running.stop.clone()) {
            Err(error) => failed(&format!("signals cannot be listened for: {error}")),
            Ok(()) => {
                running.join().await;
                ExitCode::SUCCESS
            }
        },
    }
}

/// Runs a worker until it is told to stop.
pub async fn work(args: WorkArgs) -> ExitCode {
    let settings = match ready(args.settings, Role::Worker) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    match startup::start_worker(settings).await {
        Err(error) => not_started(&error),
        Ok(running) => match shutdown::stop_on_signals(running.stop.clone()) {
            Err(error) => failed(&format!("signals cannot be listened for: {error}")),
            Ok(()) => {
                running.join().await;
                ExitCode::SUCCESS
            }
        },
    }
}

/// Proves the settings before the first log line, so that a wrong one is the only thing on the screen.
fn ready(settings: Settings, role: Role) -> Result<Settings, ExitCode> {
    let settings = settings.tidy();
    let proven = settings.validate(role).and_then(|()| telemetry::start(&settings));
    match proven {
        Ok(()) => Ok(settings),
        Err(fault) => {
            eprintln!("seqline: {fault}");
            Err(ExitCode::from(EXIT_USAGE))
        }
    }
}
