//! The whole road in virtual time: a client on a foreign WebRTC stack, edge workers, a lossy link, transceivers' calls and
//! the parrot, all on one thread.
//!
//! ```text
//!   client (str0m) --access--> edge::worker::Worker 0..N --link--> transceiver::call::Call, one per session
//!        ^                         |     ^                             |
//!        +-------- access ---------+     +------------ link -----------+
//! ```
//!
//! # Run loop
//!
//! [`World::new`] builds everything from a [`Plan`]; [`World::call`] signals a call, [`World::say`] lets a client speak,
//! [`World::run`] and [`World::until`] let time pass. What happened stands in [`World::log`], and beside it in the
//! [`Client`]s.
//!
//! # What the link is here
//!
//! Not QUIC, but what QUIC promises: datagrams are late, lost and reordered; what goes on a stream arrives whole and in the
//! order of its stream, late when a packet under it was lost, and streams do not wait for one another.
//!
//! # Invariant
//!
//! Everything follows from the plan's seed but the bytes of DTLS handshakes and the timers of their retransmissions: the
//! log of two runs is the same when the network loses nothing before the client is connected.

mod client;
mod link;
mod names;
mod node;
mod plan;
mod speech;
mod world;

pub use client::{Client, Heard};
pub use node::Node;
pub use plan::{Access, Link, NodePlan, Plan};
pub use speech::{decode, hum, likeness, speech};
pub use world::{Held, World};
