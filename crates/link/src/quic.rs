//! The QUIC connection between an edge and a transceiver: datagrams for uplink media, one stream per utterance, one per
//! session, and gRPC for control.
//!
//! ```text
//! stream := kind:u8 | ...          1 control: gRPC over HTTP/2, bidirectional, opened by the edge
//!                                  2 session: SessionHeader, then messages; bidirectional, opened by the edge
//!                                  3 utterance: UtteranceHeader, then UtteranceFrames; opened by the transceiver
//! message := length:varint (protobuf) | protobuf
//! ```
//!
//! Invariant: every wait for a peer ends when its link is lost, and every buffer that a peer fills has a bound beside
//! its name. A [`Link`] exists only between peers that know each other's role (mutual TLS, then the SPIFFE id).
//!
//! All of it runs on the tokio runtime on which its [`Endpoint`] was made.

use std::sync::OnceLock;
use std::time::Instant;

mod config;
mod controller;
mod endpoint;
mod error;
mod framing;
mod incoming;
mod link;
mod path;
mod pulse;
mod queue;
mod session;
mod socket;
mod stats;
mod stream;
#[cfg(test)]
mod tests;
mod utterance;
#[cfg(test)]
mod virtual_time;

pub use config::{ALPN, Controller, IDLE_TIMEOUT, KEEP_ALIVE, SESSIONS_PER_LINK};
pub use controller::VoiceController;
pub use endpoint::Endpoint;
pub use error::{ConnectError, EndpointError, LinkLost, StreamError};
pub use incoming::Incoming;
pub use link::Link;
pub(crate) use link::open_control;
pub use path::PathState;
pub use pulse::{BEAT, SILENCE};
pub use session::{SessionRx, SessionTx};
pub use stats::LinkStats;
pub use stream::{ConnectInfo, QuicStream};
pub use utterance::{UtteranceEnd, UtteranceRx, UtteranceTx};

/// Who is at the other end, proven by its certificate.
pub use crate::identity::Role as Peer;

/// Longest message on a session stream: four times the 256 KiB that a channel message has at most (the answer's
/// `max-message-size`), and the events of a session that was asked for in signaling.
pub const MAX_SESSION_MESSAGE_BYTES: usize = 1024 * 1024;
/// Longest frame on an utterance stream: an Opus packet of 120 ms has at most 7.6 kB (RFC 6716 §3.4, 6 x 1275 B).
pub const MAX_UTTERANCE_FRAME_BYTES: usize = 64 * 1024;
/// Longest header of a stream: numbers and an item id.
const MAX_HEADER_BYTES: usize = 4 * 1024;

/// First byte of a stream.
mod kind {
    pub(super) const CONTROL: u8 = 1;
    pub(super) const SESSION: u8 = 2;
    pub(super) const UTTERANCE: u8 = 3;
}

/// Why a connection is closed, on the wire.
mod close_code {
    /// Nothing is wrong.
    pub(super) const DONE: u32 = 0;
    /// The certificate is good, but not for this peer.
    pub(super) const WRONG_PEER: u32 = 1;
    /// Nothing was heard of the peer, who will not read this either.
    pub(super) const SILENT: u32 = 2;
}

/// Where the clocks of this process's batches and heartbeats begin: give it to whoever stamps a batch.
#[must_use]
pub fn clock_base() -> Instant {
    static BASE: OnceLock<Instant> = OnceLock::new();
    *BASE.get_or_init(Instant::now)
}

/// The clock of batches and heartbeats: microseconds since [`clock_base`], modulo 2^32.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the clock on the wire is modulo 2^32")]
pub fn clock32_at(now: Instant) -> u32 {
    now.saturating_duration_since(clock_base()).as_micros() as u32
}

/// Why a stream is stopped or reset, on the wire.
mod stream_code {
    /// Its reader or writer has no more use for it.
    pub(super) const DONE: u32 = 0;
    pub(super) const UNKNOWN_KIND: u32 = 1;
    pub(super) const MALFORMED: u32 = 2;
    pub(super) const OVERSIZE: u32 = 3;
    /// Its header did not come in time.
    pub(super) const NO_HEADER: u32 = 4;
}
