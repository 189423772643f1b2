//! `seqline load`: plays traffic as phones would make it, and judges what came of it. A client of the contract: it knows
//! no store and no room but `domain`; only `embedded` starts what it plays against.
//!
//! The way of a run: `args` → `scenarios` (a plan, no I/O) → `play` (users, conversations, `audience` of `reader`s, `traffic`, history)
//! → `verdict` → `report`.

pub mod args;
mod audience;
mod embedded;
mod gateways;
mod memory;
mod play;
mod reader;
mod record;
mod report;
mod scenarios;
pub mod sse;
mod traffic;
mod verdict;

use std::process::ExitCode;

pub use args::LoadArgs;
pub use report::Report;

/// Why a run did not take place.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Called wrongly.
    #[error("{0}")]
    Usage(String),
    /// The run could not begin, or its end not be read.
    #[error("{0}")]
    Setup(String),
    /// A stream could not be opened or read.
    #[error("{0}")]
    Stream(String),
}

/// Runs the command and prints its outcome: 0 when the verdict is good, 1 when it is bad or there is none, 2 when it was called wrongly.
pub async fn run(args: LoadArgs) -> ExitCode {
    match execute(&args).await {
        Ok(report) => {
            if args.json {
                match serde_json::to_string_pretty(&report) {
                    Ok(text) => println!("{text}"),
                    Err(err) => eprintln!("seqline load: {err}"),
                }
            } else {
                println!("{report}");
            }
            if report.verdict.good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(err) => {
            eprintln!("seqline load: {err}");
            if matches!(err, LoadError::Usage(_)) { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// Runs the command and gives its outcome.
///
/// # Errors
/// When the run could not take place.
pub async fn execute(args: &LoadArgs) -> Result<Report, LoadError> {
    args.check()?;
    let plan = scenarios::plan(args)?;
    if args.embedded {
        let system = embedded::OwnSystem::start(args).await?;
        let mut pids = system.gateway_pids();
        pids.extend(&args.pid);
        let report = tokio::select! {
            report = play_against(args, &plan, &system.urls, &system.secret, &pids) => report,
            _ = tokio::signal::ctrl_c() => Err(LoadError::Setup("interrupted".into())),
        };
        system.stop().await;
        return report;
    }
    let secret = args.secret.as_deref().unwrap_or_default().split(',').next().unwrap_or_default();
    if secret.is_empty() {
        return Err(LoadError::Usage("--secret is empty".into()));
    }
    play_against(args, &plan, &args.url, secret, &args.pid).await
}

async fn play_against(args: &LoadArgs, plan: &scenarios::Plan, urls: &[String], secret: &str, pids: &[u32]) -> Result<Report, LoadError> {
    let signer = gateways::Signer {
        secret: secret.to_owned(),
        issuer: args.issuer.clone(),
        audience: args.audience.clone(),
        life_seconds: plan.seconds() + args.drain_seconds + 3_600,
    };
    let gateways = gateways::Gateways::new(urls, args.ack)?;
    play::play(args, plan, gateways, &signer, pids).await
}
