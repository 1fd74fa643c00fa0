//! What edge and transceiver say to each other: ids, route token, media datagram, control messages and the QUIC
//! connection that carries them.
//!
//! Formats are pure; [`quic`] and [`grpc`] alone do I/O.
//! CONTRACT skeleton: signatures are fixed, more may be added.

pub mod datagram;
pub mod ids;
pub mod route;
pub mod proto; // the prost/tonic generated types, re-exported (`pub use` of include!)

// pub mod identity;  built-in CA, node certificates, state_dir (I/O on files)
// pub mod quic;      Endpoint, Link, session and utterance streams, VoiceController
// pub mod grpc;      tonic over one QUIC stream
