//! `seqline completions`.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// For which shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Prints the completions to stdout.
#[must_use]
pub fn run(args: &CompletionsArgs) -> ExitCode {
    clap_complete::generate(args.shell, &mut Cli::command(), "seqline", &mut std::io::stdout());
    ExitCode::SUCCESS
}
