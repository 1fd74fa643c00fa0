//! WebRTC over TCP connections that clients open (RFC 6544, passive side), without I/O: frames, what waits to be sent, and
//! how many connections anybody may hold.
//!
//! A connection belongs to the worker that owns its session. The thread that accepted it reads the first check, whose
//! ufrag says whose it is, and leaves the connection in that worker's mailbox as an [`Arrival`]. Should two paths of one
//! call be claimed at once by two workers, the one that lost passes its connection on: a session never changes its
//! worker, a connection may.
//!
//! # Invariants
//!
//! * Nothing is sent on a connection, and no worker hears of it, before a check with valid integrity came in on it.
//! * A reader that is slow loses its oldest audio, and holds up nobody.

mod deframe;
mod places;
mod queue;

use std::net::TcpStream;

use rtc::Path;

pub use deframe::{Deframer, FRAME_MAX, Oversize};
pub use places::{Place, Places};
pub use queue::SendQueue;

/// A connection on its way to the worker of its session.
#[derive(Debug)]
pub struct Arrival {
    /// Nonblocking.
    pub stream: TcpStream,
    /// Its ends.
    pub path: Path,
    /// What was read of it and not used: whole frames first, at most [`deframe::BUFFER`] bytes.
    pub received: Vec<u8>,
    /// What was to be sent on it and was not.
    pub unsent: SendQueue,
    /// How often workers passed it on.
    pub moves: u8,
    /// Its place among all connections.
    pub place: Place,
}
