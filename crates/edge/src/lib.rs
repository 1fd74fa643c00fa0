//! The PoP daemon: terminates WebRTC beside the user and carries frames and messages to a transceiver.
//!
//! ```text
//!   client --UDP--> worker k (core: worker::Worker) --link--> transceiver
//!                     |   ^
//!                     v   | hand-overs, commands
//!   client --TCP---> front ---------- connections with a valid check
//!   client --HTTP--> signaling ---- directory, seats
//! ```
//!
//! N worker threads each own a socket of the one public port, a set of sessions and a link to each transceiver; a
//! datagram is handled from receive to send on that one thread. Signaling answers offers on a runtime of its own and
//! meets the workers only in the [`directory`] and the [`seats`]. [`Edge::start`] composes all of it.
//!
//! # Invariant
//!
//! Nothing is built or kept for a datagram before it carried an authentic route token and a valid MESSAGE-INTEGRITY.

pub mod auth;
pub mod config;
pub mod directory;
pub mod keys;
pub mod renew;
pub mod seats;
mod shell;
pub mod signaling;
pub mod tcp;
pub mod tickets;
pub mod waiting;
pub mod websocket;
pub mod worker;

pub use config::{Config, PeerConfig, TransceiverConfig};
pub use shell::{Edge, run};
