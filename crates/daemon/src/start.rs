//! Why a daemon did not start, or ended before it was told to; and where it listens once it has.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;

use crate::config::ConfigError;
use crate::problem::Problem;

/// The one error of a daemon's `run`.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The config has problems.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The config is well formed, but the machine does not let us have what it asks for.
    #[error("cannot start:\n\n{0}\n")]
    Refused(Problem),
    /// A file that was named is not there, or not what it should be; the reason says what to do.
    #[error("{0}")]
    File(String),
    /// A process of ours could not start, and has said why.
    #[error("{what}")]
    Child {
        /// Which one.
        what: String,
    },
    /// Something that no key of the config mends.
    #[error("{what}: {reason}")]
    Failed {
        /// What was being done.
        what: String,
        /// What went wrong with it.
        reason: String,
    },
}

impl StartError {
    /// Exit code of what the reader of the message can mend.
    pub const EXIT_USAGE: u8 = 2;
    /// Exit code of everything else.
    pub const EXIT_FAILURE: u8 = 1;

    /// A failure while doing `what`.
    pub fn failed(what: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Failed { what: what.into(), reason: reason.to_string() }
    }

    /// The code to exit with.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Config(_) | Self::Refused(_) | Self::File(_) | Self::Child { .. } => Self::EXIT_USAGE,
            Self::Failed { .. } => Self::EXIT_FAILURE,
        })
    }
}

/// Whether a daemon tells whoever started it where it listens: a port 0 in its config takes a free one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Announce {
    /// In the log alone.
    #[default]
    Silent,
    /// On standard output.
    Stdout,
}

impl Announce {
    /// All ports are open: one line of `name=address`, separated by blanks.
    pub fn say(self, ports: &[(&str, SocketAddr)]) {
        if self == Self::Stdout {
            let words: Vec<String> = ports.iter().map(|(name, address)| format!("{name}={address}")).collect();
            let mut stdout = std::io::stdout().lock();
            // Nobody can be told that standard output is gone.
            let _ = writeln!(stdout, "{}", words.join(" "));
            let _ = stdout.flush();
        }
    }
}

impl From<Problem> for StartError {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}
