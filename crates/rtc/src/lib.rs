//! Terminates WebRTC for one client: ICE-lite, DTLS 1.2/1.3, SRTP, RTP/RTCP, SCTP data channels, SDP answering.
//!
//! # Run loop
//!
//! Nothing here opens a socket, reads a clock or draws randomness it was not given. A driver
//!
//! 1. parses an offer with [`Offer::parse`] and answers it with [`Offer::accept`], which yields a
//!    [`Setup`] (plain data, `Send`) and the answer's text;
//! 2. on the first valid check builds a [`Session`] from the setup, on the thread that will own it;
//! 3. feeds it with [`Session::handle_datagram`] and, at [`Session::poll_timeout`],
//!    [`Session::handle_timeout`];
//! 4. after each call drains [`Session::poll_transmit`] and [`Session::poll_event`] until both are empty, and
//!    [`Session::poll_held`] after [`Event::Connected`].
//!
//! # Invariant
//!
//! After any input and a full drain, a session has nothing to say before the instant of
//! [`Session::poll_timeout`]. Bad input is a [`Discard`] to count, never an error and never a panic.

pub mod sdp;
pub mod stun;

mod codec;
mod discard;
mod dtls;
mod ice;
mod password;
#[cfg(test)]
#[path = "../tests/stun/request.rs"]
mod request;
mod rtcp;
mod rtp;
mod sctp;
mod session;
mod sped;
mod srtp;

pub use codec::{Codec, Format, MEDIA_CLOCK};
pub use discard::{Class, Discard, classify};
pub use dtls::{Identity, IdentityMismatch};
pub use ice::FORMER_MAX;
pub use password::Password;
pub use sdp::{
    Accepted, Candidate, ClientFacts, Credentials, Fragment, LocalDescription, Negotiated, Offer, OfferError,
    Redundancy, Renewal, Renewed, SctpInit, Setup, Snap, Uplink,
};
pub use session::{
    ChannelId, CloseReason, Config, DownlinkView, Event, Input, MediaFrame, MessageKind, OutgoingFrame, Path,
    SendMediaError, SendMessageError, Session, Stats, Transmit, Transport,
};
pub use srtp::Profile as SrtpProfile;

/// What allocation tests and instruction counts of other crates reach, and no product code does.
#[doc(hidden)]
pub mod exposed {
    pub use crate::srtp::{Receiver, Sender, contexts};
}
