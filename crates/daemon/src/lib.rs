//! What each daemon needs: config loading, tracing, metrics, lifecycle phases, admin HTTP.
//!
//! # The story of a daemon
//!
//! 1. [`config::load`] reads a file and the command line into the daemon's own config type, or reports every
//!    problem at once as a [`ConfigError`];
//! 2. [`log::init`] and [`Metrics::install`] come next, so that the rest can be seen;
//! 3. ports are bound ([`bind`]), which is the last step that may refuse to start: a [`StartError`] is one
//!    message that names key, value, reason and fix, and carries the exit code;
//! 4. [`admin::serve`] answers `/healthz`, `/readyz` and `/metrics`, [`Lifecycle::drain_on_signals`] waits for
//!    SIGTERM, and the daemon moves its [`Phase`] from starting to stopped.
//!
//! # Invariant
//!
//! A phase never goes back, and whatever reads our logs or metrics, or has stopped reading them, holds up
//! nobody: log lines that find the queue full are counted and dropped.

pub mod admin;
pub mod bind;
pub mod config;
pub mod log;

mod lifecycle;
mod problem;
mod start;
mod telemetry;

pub use config::{ConfigError, Source};
pub use lifecycle::{Condition, Lifecycle, Phase};
pub use problem::{Problem, Problems};
pub use start::{Announce, StartError};
pub use telemetry::{Metrics, counted, spawn_local};
