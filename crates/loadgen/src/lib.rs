//! Synthetic callers on a WebRTC stack that is not ours (str0m), with speech quality reports, and a delaying proxy.
//!
//! Each [`caller`] is one task with one socket: it posts an offer, speaks a recording and keeps what it hears, placed by RTP
//! time. [`speech`] tells whose recording that was. The [`proxy`] stands between any client and the edge, delays both
//! directions, drops what it is told to, and writes down each datagram.
//!
//! A [bench](mod@bench) drives thousands of callers from one thread and says what the server under test costs.
//!
//! [`link_bench`] runs both ends of a link through the proxy, without callers.
//!
//! Invariant: traffic goes to the given addresses alone, and every run ends by itself.

pub mod bench;
pub mod caller;
pub mod link_bench;
pub mod process;
pub mod proxy;
pub mod speech;

pub use voice::babble;
