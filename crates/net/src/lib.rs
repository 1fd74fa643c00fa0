//! UDP batches, pinned workers and deadlines; the one address of unsafe code.
//!
//! # Run loop
//!
//! A worker thread pins itself ([`pin`]), registers its member of the port's group
//! ([`BoundSocket::register`]) on its own current-thread runtime and then repeats:
//!
//! 1. [`UdpSocket::recv_batch`] yields up to [`BATCH`] datagrams, each with the address it came to and
//!    the address it came from;
//! 2. what is to be sent is pushed into a [`SendBatch`] and leaves with one [`UdpSocket::send_batch`];
//! 3. [`DeadlineTimer::wait`] returns when the earliest deadline of the worker has passed.
//!
//! # Invariant
//!
//! After construction nothing here allocates, and nothing a peer or the network does is fatal: what could
//! not be received or sent is a plain integer in [`RecvStats`] or [`SendStats`].
//!
//! Everything is written for Linux (`recvmmsg`, `sendmmsg`, `IP_PKTINFO`, `timerfd`,
//! `sched_setaffinity`, `PR_SET_PDEATHSIG`).

#![allow(unsafe_code, reason = "this crate is where the workspace keeps its system calls")]

pub mod alloc;
pub mod clock;
pub mod pin;
pub mod process;

mod timer;
mod udp;

pub use timer::DeadlineTimer;
pub use udp::{
    BATCH, BoundSocket, Buffers, Datagram, MAX_DATAGRAM, RecvBatch, RecvStats, Reuse, SendBatch, SendStats, UdpSocket,
};
