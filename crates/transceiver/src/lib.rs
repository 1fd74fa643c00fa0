//! The inference-side daemon: calls, backends, admission.
//!
//! [`call::Call`] is the pure core of one call: a dialogue, its API session and its backend. Around it: CPU workers that
//! own the calls, one link thread that owns the sockets, and bounded rings between them ([`Transceiver::start`]).
//!
//! Invariant: whatever ends a call (the client, its edge, the link, this process) gives back its seat, slot, streams and
//! memory.

mod admission;
mod backend;
pub mod call;
mod config;
mod daemon_main;
pub mod judge;
mod link_thread;
pub mod record;
mod ring;
mod slots;
mod start;
mod worker;

pub use backend::{Choice, Model, Models, Remote, Script, ScriptError};
pub use config::{Config, ModelConfig, ModelKind, OtlpConfig, TurnEndConfig, TurnEndOutput, VoiceConfig};
pub use daemon_main::run;
pub use start::Transceiver;
