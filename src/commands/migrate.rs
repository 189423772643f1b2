//! `seqline migrate`.

use std::process::ExitCode;

use clap::Args;

use super::{EXIT_USAGE, failed};
use crate::postgres::Archive;
use crate::settings::shown_url;

/// Arguments of `migrate`.
#[derive(Args)]
pub struct MigrateArgs {
    /// Postgres, e.g. postgres://user:password@host/database
    #[arg(long, env = "SEQLINE_DATABASE_URL", value_name = "URL", default_value = "", hide_default_value = true, hide_env_values = true)]
    pub database_url: String,
}

impl std::fmt::Debug for MigrateArgs {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MigrateArgs").field("database_url", &shown_url(&self.database_url)).finish()
    }
}

/// Applies what is missing.
pub async fn run(args: MigrateArgs) -> ExitCode {
    if args.database_url.is_empty() {
        eprintln!("seqline: SEQLINE_DATABASE_URL is missing, e.g. postgres://user:password@127.0.0.1/seqline");
        return ExitCode::from(EXIT_USAGE);
    }
    let url = shown_url(&args.database_url);
    let archive = match Archive::connect(&args.database_url, 1) {
        Ok(archive) => archive,
        Err(error) => {
            eprintln!("seqline: SEQLINE_DATABASE_URL cannot be used: {error}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match archive.migrate().await {
        Ok(()) => {
            println!("The tables at {url} are up to date.");
            ExitCode::SUCCESS
        }
        Err(error) => failed(&format!("the tables at {url} could not be updated: {error}")),
    }
}
