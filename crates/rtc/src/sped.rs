//! SPED, DTLS inside STUN: the handshake rides on connectivity checks and their responses (draft-hancke-webrtc-sped, as
//! libwebrtc runs it). A lite agent only answers, so what it has to send rides on responses.
//!
//! ```text
//! DATA  C070 | length | one DTLS datagram                                  | padding
//! ACK   C071 | length | 0 to 4 x CRC-32 of a DTLS datagram received, oldest first
//! ```
//!
//! # Run loop
//!
//! For each authenticated check [`Sped::handle_check`], which may return a datagram for DTLS; then [`Sped::capture`] with what
//! DTLS has to say to it or begins with, and [`Sped::write`] for the response. DTLS datagrams that came by themselves are
//! [`Sped::received`] too, and what DTLS sends because of them, or of its timer, is captured as well as sent.
//!
//! # Invariant
//!
//! From the first response on until the client has nothing left to be acknowledged, every response carries ACK, even an
//! empty one: a client that misses it once, before it saw any, uses SPED no more and loses a round trip. So the state
//! that a check needs is this one alone, and it is there when the session is made.
//!
//! # States
//!
//! ```text
//! Tentative --either attribute--> Confirmed --handshake done--> Pending --client's checks carry no DATA--> Complete
//!     |                                                            |         and our flight is acknowledged
//!     +--neither attribute--> Off                                  +--neither attribute-------------------> Complete
//! ```
//!
//! What offer and answer agreed decides the DTLS role ([`crate::sdp`]), not the state: a client may have lost the answer's
//! word for it and leave it, or the offer's and use it (libwebrtc looks at its own offer alone, and one that is answered
//! with neither attribute stalls for 200 ms). What it does in its first check tells both apart.
//!
//! While `Confirmed`, a response without a datagram to carry has an empty DATA: a client whose own handshake is done
//! takes ACK alone for the end of it all, and would forget its last flight although it was lost.
//!
//! # Departures
//!
//! * A datagram whose hash is in our ACK is not given to DTLS again: a client carries the same one in each check until it
//!   sees our ACK, and the engine would answer each with a flight.
//! * Only what DTLS took is acknowledged; what it dropped has to come again.

#[cfg(test)]
mod tests;

use crate::stun::response::append;
use crate::stun::{Check, HEADER, attribute};

/// Hashes in an ACK.
const ACKS_MAX: usize = 4;

/// Datagrams of a flight that are kept. Ours has one, of some 750 bytes; two with the largest extensions.
const PENDING_MAX: usize = 4;

/// Length of a STUN message's attributes up to the end of DATA: 1200 bytes less MESSAGE-INTEGRITY and FINGERPRINT.
const LENGTH_MAX: usize = 1168;

/// MESSAGE-INTEGRITY and FINGERPRINT.
const SEAL: usize = 24 + 8;

/// ChangeCipherSpec and handshake messages in the clear: one of them is in each flight but the last of DTLS 1.3's client, which
/// is ciphertext alone and named as a flight by [`Sped::handshake_done`].
const FLIGHT_STARTS: [u8; 2] = [20, 22];

/// What this end knows of the other's use of SPED.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing heard yet.
    Tentative,
    /// The client uses it.
    Confirmed,
    /// The handshake is done; the client may not know.
    Pending,
    /// Nothing is left to carry.
    Complete,
    /// Not used.
    Off,
}

/// One session's DTLS inside STUN. Pure: it holds no more than the last flight of ours, at most [`PENDING_MAX`] datagrams.
#[derive(Debug)]
pub(crate) struct Sped {
    state: State,
    /// Hashes of the datagrams received last, oldest first, at most [`ACKS_MAX`].
    received: Vec<u32>,
    /// Our flight as far as it was not acknowledged, in the order in which it is carried next.
    pending: Vec<Vec<u8>>,
    used: bool,
}

impl Sped {
    pub(crate) fn new() -> Self {
        Self { state: State::Tentative, received: Vec::new(), pending: Vec::new(), used: false }
    }

    /// Whether the client uses it, so far.
    pub(crate) fn is_on(&self) -> bool {
        matches!(self.state, State::Confirmed | State::Pending)
    }

    /// Whether the client's part of the handshake came in its checks.
    pub(crate) fn used(&self) -> bool {
        self.used
    }

    /// Takes the attributes of an authenticated check. Returns the datagram it carries, if DTLS has not had it yet; whether
    /// that is DTLS at all is DTLS's business.
    pub(crate) fn handle_check<'a>(&mut self, check: &Check<'a>) -> Option<&'a [u8]> {
        if matches!(self.state, State::Complete | State::Off) {
            return None;
        }
        let (data, acks) = (check.sped_data(), check.sped_acks());
        if data.is_none() && acks.is_none() {
            match self.state {
                State::Tentative => self.end(State::Off),
                State::Pending => self.end(State::Complete),
                State::Confirmed | State::Complete | State::Off => {}
            }
            return None;
        }
        if self.state == State::Tentative {
            self.state = State::Confirmed;
        }
        // Beyond the number that an ACK may have, and of a cut one, nothing is read.
        let acks = acks.unwrap_or_default().chunks_exact(4).take(ACKS_MAX);
        for hash in acks.filter_map(|hash| hash.first_chunk()) {
            self.pending.retain(|datagram| crc32fast::hash(datagram) != u32::from_be_bytes(*hash));
        }
        if self.state == State::Pending && data.is_none() && self.pending.is_empty() {
            self.end(State::Complete);
            return None;
        }
        data.filter(|data| !data.is_empty() && !self.received.contains(&crc32fast::hash(data)))
    }

    /// DTLS took this datagram; `carried` by a check or come by itself. To be called for the handshake's alone.
    pub(crate) fn received(&mut self, datagram: &[u8], carried: bool) {
        if matches!(self.state, State::Complete | State::Off) {
            return;
        }
        self.used |= carried;
        let hash = crc32fast::hash(datagram);
        if self.received.contains(&hash) {
            return;
        }
        if self.received.len() == ACKS_MAX {
            self.received.remove(0);
        }
        self.received.push(hash);
    }

    /// What DTLS wants to send all at once. A flight takes the place of the former one; a mere acknowledgement of DTLS 1.3
    /// does not.
    pub(crate) fn capture<'a>(&mut self, datagrams: impl Iterator<Item = &'a [u8]> + Clone) {
        let starts = |datagram: &[u8]| datagram.first().is_some_and(|first| FLIGHT_STARTS.contains(first));
        if matches!(self.state, State::Complete | State::Off) || !datagrams.clone().any(starts) {
            return;
        }
        self.keep(datagrams);
    }

    /// DTLS is connected. The last flight is that of 1.3's DTLS client and of 1.2's server. If it is `ours`, these
    /// datagrams, it waits to be acknowledged; if not it proves that ours arrived.
    pub(crate) fn handshake_done<'a>(&mut self, ours: Option<impl Iterator<Item = &'a [u8]>>) {
        if matches!(self.state, State::Complete | State::Off) {
            return;
        }
        match ours {
            Some(datagrams) => self.keep(datagrams),
            None => self.pending.clear(),
        }
        self.state = State::Pending;
    }

    fn keep<'a>(&mut self, flight: impl Iterator<Item = &'a [u8]>) {
        self.pending = flight.take(PENDING_MAX).map(<[u8]>::to_vec).collect();
    }

    /// Application data or media of the client's is authentic: our last flight arrived.
    pub(crate) fn heard(&mut self) {
        if self.state == State::Pending {
            self.pending.clear();
        }
    }

    /// Appends to a response what it is to carry, and returns the datagram among it: the next of our flight, in turn, if it
    /// fits, also into `most` bytes that the whole response may have.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>, most: usize) -> Option<&[u8]> {
        if matches!(self.state, State::Complete | State::Off) {
            return None;
        }
        let mut acks = [0; 4 * ACKS_MAX];
        for (ack, hash) in acks.chunks_exact_mut(4).zip(&self.received) {
            ack.copy_from_slice(&hash.to_be_bytes());
        }
        append(out, attribute::SPED_ACK, &[&acks[..4 * self.received.len().min(ACKS_MAX)]]);
        let length_max = LENGTH_MAX.min(most.saturating_sub(HEADER + SEAL));
        let room = length_max.saturating_sub(out.len() - HEADER + 4);
        let Some(at) = self.pending.iter().position(|datagram| datagram.len() <= room) else {
            if self.state == State::Confirmed {
                append(out, attribute::SPED_DATA, &[]);
            }
            return None;
        };
        let datagram = self.pending.remove(at);
        append(out, attribute::SPED_DATA, &[&datagram]);
        self.pending.push(datagram);
        self.pending.last().map(Vec::as_slice)
    }

    fn end(&mut self, state: State) {
        self.state = state;
        self.received = Vec::new();
        self.pending = Vec::new();
    }
}
