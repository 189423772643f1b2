//! What the command line does, one file per command. Each ends in an exit code: 0 done, 1 failed, 2 called or set wrongly.

pub mod audit;
pub mod completions;
pub mod dev;
pub mod doctor;
pub mod load;
pub mod migrate;
pub mod rebuild;
pub mod serve;
pub mod token;
pub mod vapid;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};

use crate::settings::table;
use crate::startup::StartError;

/// Exit code of a command that was called or set wrongly.
pub const EXIT_USAGE: u8 = 2;

const EXAMPLES: &str = "\
Examples:
  seqline dev                                  everything on this machine, with stores of its own, to try it
  seqline serve --with-worker                  one process that does everything, on Redis and Postgres you have
  seqline token --user ann --ttl 1h            a token to try things with
  seqline doctor                               is everything as it must be?
  seqline audit --json                         do both stores hold what they must?
  seqline completions bash > /etc/bash_completion.d/seqline

Settings are flags or variables (a flag wins); `seqline serve --help` lists them all.
Exit codes: 0 done, 1 failed, 2 called or set wrongly.";

/// Private chat for an application's own users: gapless numbers, idempotent sends, honest resume
#[derive(Parser, Debug)]
#[command(name = "seqline", version, about, after_help = EXAMPLES, propagate_version = true)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a gateway: HTTP and event streams for clients
    ///
    /// Any number of gateways stand behind a load balancer; none holds anything whose loss matters. Ends softly on SIGTERM.
    #[command(after_help = serve::EXAMPLES)]
    Serve(serve::ServeArgs),
    /// Run a worker: dispatch to members, archive, trim
    ///
    /// Any number of workers share the shards among them; when one dies, the others take over within seconds.
    Work(serve::WorkArgs),
    /// Run everything here, with a Redis and a Postgres of its own
    ///
    /// Two gateways, a worker and their stores, all on loopback; data stay in one folder. Prints tokens and lines to paste. Ctrl-C stops it.
    #[command(after_help = dev::EXAMPLES)]
    Dev(dev::DevArgs),
    /// Make or update the tables in Postgres
    ///
    /// Safe to run at any time, also twice and while older gateways run.
    Migrate(migrate::MigrateArgs),
    /// Make a token for a user, signed with the first HS256 secret
    #[command(after_help = token::EXAMPLES)]
    Token(token::TokenArgs),
    /// Make the key that pushes are signed with
    #[command(after_help = vapid::EXAMPLES)]
    Vapid,
    /// Make what Redis holds anew from Postgres, while everything runs
    #[command(after_help = rebuild::EXAMPLES)]
    Rebuild(rebuild::RebuildArgs),
    /// Play traffic against running gateways and judge what came of it
    Load(load::LoadArgs),
    /// Look whether Redis and Postgres are as they must be
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(doctor::DoctorArgs),
    /// Prove that Redis and Postgres hold what they must, and agree
    ///
    /// Reads both stores while everything goes on, and changes nothing without --repair. What looks wrong is looked at again for some seconds: only
    /// what lasts is told.
    #[command(after_help = audit::EXAMPLES, after_long_help = audit::codes())]
    Audit(audit::AuditArgs),
    /// Print completions for a shell
    Completions(completions::CompletionsArgs),
    /// Print the table of all settings in Markdown
    #[command(hide = true)]
    Settings,
}

/// Reads the command line and does what it says.
#[must_use]
pub fn run() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => execute(cli.command),
        Err(error) => refuse(&error),
    }
}

fn execute(command: Command) -> ExitCode {
    match command {
        Command::Completions(args) => return completions::run(&args),
        Command::Token(args) => return token::run(&args),
        Command::Vapid => return vapid::run(),
        Command::Settings => {
            print!("{}", table::markdown());
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("the runtime cannot be started: {error}")),
    };
    runtime.block_on(async {
        match command {
            Command::Serve(args) => serve::serve(args).await,
            Command::Work(args) => serve::work(args).await,
            Command::Dev(args) => dev::run(args).await,
            Command::Migrate(args) => migrate::run(args).await,
            Command::Rebuild(args) => rebuild::run(args).await,
            Command::Load(args) => load::run(args).await,
            Command::Doctor(args) => doctor::run(args).await,
            Command::Audit(args) => audit::run(args).await,
            Command::Completions(_) | Command::Token(_) | Command::Vapid | Command::Settings => ExitCode::SUCCESS,
        }
    })
}

/// A setting that cannot be read gets one line that names its variable, because it most often comes from the environment and not from
/// the line that was typed; everything else is clap's own message.
fn refuse(error: &clap::Error) -> ExitCode {
    let shown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(shown)) if matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue) => Some(shown),
        _ => None,
    };
    if let Some((name, shown)) = shown.and_then(|shown| table::variable_of_flag(shown).map(|name| (name, shown))) {
        let value = match error.get(ContextKind::InvalidValue) {
            Some(ContextValue::String(value)) => value.as_str(),
            _ => "",
        };
        eprintln!("seqline: {name} (or {shown}) cannot be '{value}'");
        return ExitCode::from(EXIT_USAGE);
    }
    let _ = error.print();
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// One line to stderr, exit code 1.
fn failed(why: &str) -> ExitCode {
    eprintln!("seqline: {why}");
    ExitCode::FAILURE
}

/// One line to stderr; 2 when a setting is wrong, else 1.
fn not_started(error: &StartError) -> ExitCode {
    eprintln!("seqline: {error}");
    match error {
        StartError::Setting(_) => ExitCode::from(EXIT_USAGE),
        _ => ExitCode::FAILURE,
    }
}
