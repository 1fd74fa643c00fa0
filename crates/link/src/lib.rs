//! What edge and transceiver say to each other: ids, route token, media datagram, control messages and the QUIC
//! connection that carries them. The formats, byte by byte: docs/LINK.md.
//!
//! [`ids`], [`datagram`], [`route`] and [`proto`] are pure. [`identity`] reads and writes files, [`quic`] and [`grpc`]
//! speak to the network; nothing else here does I/O.
//!
//! Invariant: what a peer sends is bounded before it is stored and counted when it is refused. A peer has proven, by
//! its certificate, to be the edge or the transceiver that [`quic::Link::peer`] names, before a byte of it is read.

pub mod datagram;
pub mod grpc;
pub mod identity;
pub mod ids;
pub mod proto;
pub mod quic;
pub mod route;
