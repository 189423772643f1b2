//! The settings as the README shows them, made from the same definitions as `--help`.

use clap::{Arg, Args, Command};

use super::Settings;

/// All settings that are shown, as clap knows them.
fn arguments() -> Vec<Arg> {
    let command = Settings::augment_args(Command::new("settings"));
    command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned().collect()
}

/// A table in Markdown: variable, default, meaning.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from("| variable | default | |\n|---|---|---|\n");
    for arg in arguments() {
        let Some(name) = variable(&arg) else { continue };
        let defaults: Vec<String> =
            arg.get_default_values().iter().map(|v| v.to_string_lossy().into_owned()).filter(|v| !v.is_empty()).collect();
        let default = if defaults.is_empty() { String::new() } else { format!("`{}`", defaults.join(",")) };
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default().replace('|', "\\|");
        text.push_str(&format!("| `{name}` | {default} | {help} |\n"));
    }
    text
}

/// The variable of the flag that clap writes as `--flag <VALUE>`; for error messages.
#[must_use]
pub fn variable_of_flag(shown: &str) -> Option<String> {
    let flag = shown.trim_start_matches("--").split([' ', '=']).next()?;
    arguments().iter().find(|arg| arg.get_long() == Some(flag)).and_then(variable)
}

fn variable(arg: &Arg) -> Option<String> {
    arg.get_env().map(|name| name.to_string_lossy().into_owned())
}
