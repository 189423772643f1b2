//! Why a private server could not be had; every text is for the person at the terminal.

use std::io;

/// Why a private server could not be started, reached or stopped.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// A program is not installed.
    #[error("{program} was not found; install it (Debian and Ubuntu: apt-get install {package})")]
    Missing {
        /// What was looked for.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// A program is too old.
    #[error("{program} is version {found}, at least {needed} is needed")]
    TooOld {
        /// What was found.
        program: String,
        /// Its version.
        found: u32,
        /// The lowest major version that serves.
        needed: u32,
    },
    /// Another process uses the folder.
    #[error("{folder} is in use: {why}")]
    InUse {
        /// The folder.
        folder: String,
        /// By whom, as far as known.
        why: String,
    },
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What it said.
        source: io::Error,
    },
    /// The server ended or did not answer in time.
    #[error("{server} {why}\n--- the end of its log ---\n{log}")]
    NotReady {
        /// Which server.
        server: &'static str,
        /// What was seen.
        why: String,
        /// The last lines of its log.
        log: String,
    },
    /// The server answered, but not as it must.
    #[error("{server} answered {answer}")]
    Refused {
        /// Which server.
        server: &'static str,
        /// What it said.
        answer: String,
    },
}

impl EmbeddedError {
    /// Wraps an error of the operating system with what was tried.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
