//! Log lines: JSON for machines, text for people at a terminal.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::settings::{SettingFault, Settings};

/// Starts logging to stderr, once in a process; later calls change nothing (tests start several gateways in one process).
///
/// # Errors
/// When the filter or the format cannot be read.
pub fn start(settings: &Settings) -> Result<(), SettingFault> {
    let filter = EnvFilter::try_new(&settings.log).map_err(|error| SettingFault::new("SEQLINE_LOG", error.to_string()))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let _already_started = match settings.log_format.as_str() {
        "json" => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).finish().try_init().is_err(),
        "text" => lines.with_ansi(false).finish().try_init().is_err(),
        _ => return Err(SettingFault::new("SEQLINE_LOG_FORMAT", "must be json or text")),
    };
    Ok(())
}
