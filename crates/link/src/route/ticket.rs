//! Tickets: routes that are handed out before there is an offer (docs/WEBRTC.md, instant connect).
//!
//! ```text
//! ufrag := head | base64(AES-128-GCM-SIV(plain)) | what the client adds
//!          1      60 characters
//! head  := version:2 (=2) | key id:4, as one base64 character; it is the associated data
//! plain := kind:u8 | edge:u16 | transceiver:u32 | session:u64 | minted:u32
//!          | lifetime:u16 | max_tens:u16 | tenant:u16 | model:u32                          29 bytes, big endian
//! kind  := 2 without a config that the edge keeps | 3 with
//! ```
//!
//! Every character counts: some clients send no USERNAME above 128, and what a client adds takes 60.
//!
//! A ticket opens as a route as well ([`RouteKeys::open`]), so that other workers and edges pass its checks on. It holds all
//! that its edge has to know of a call but the client's offer, of which the client adds the necessary to the ufrag, and the
//! session's config, which the edge keeps.

use aws_lc_rs::aead::{Aad, Nonce};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::{NONCE, PLAIN_BYTES, Route, RouteKeys, TAG_BYTES, decode_fields, encode_fields};

/// What the head of a ticket names.
pub(super) const VERSION: u8 = 2;
/// A ticket, whose holder is answered by nobody but itself.
const KIND_PLAIN: u8 = 2;
/// The same, and the edge keeps a config for the session.
const KIND_WITH_CONFIG: u8 = 3;
const TICKET_BYTES: usize = PLAIN_BYTES + 2 + 2 + 2 + 4;
const SEALED_BYTES: usize = TICKET_BYTES + TAG_BYTES;
/// Characters of a ticket: 1 + (29 + 16) * 8 / 6.
pub const TICKET_CHARS: usize = 1 + (SEALED_BYTES * 4).div_ceil(3);

/// The tenant of everybody as long as there is no authentication.
pub const DEFAULT_TENANT: u16 = 0;

/// What a ticket says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Where its call goes. The transceiver is the one that takes the ticket, once.
    pub route: Route,
    /// Seconds after `route.minted` from which on it is nothing.
    pub lifetime: u16,
    /// Longest duration of the call, in tens of seconds; 0 for no limit.
    pub max_tens: u16,
    /// Whose call it is.
    pub tenant: u16,
    /// The model, by [`model_id`]. Of a call that the edge answers itself, what this edge makes of it.
    pub model: u32,
    /// The edge keeps a config under the session's id.
    pub has_config: bool,
}

/// A model's name in 32 bits: FNV-1a. Names of one edge that fall together are two of a few in four billion, and whoever
/// configures them is told.
#[must_use]
pub fn model_id(name: &str) -> u32 {
    name.bytes().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// What follows from a ticket and is written nowhere: equal for the answer that a page writes and for the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Derived {
    /// SCTP Initiate Tag of the edge, not 0.
    pub sctp_tag: u32,
    /// Initial TSN of the edge.
    pub sctp_tsn: u32,
    /// SSRC of the edge's audio, not 0.
    pub ssrc: u32,
    /// `o=` id of the answer, below 2^63.
    pub sdp_session: u64,
}

impl Ticket {
    /// Unix seconds from which on it is nothing.
    #[must_use]
    pub fn expires(&self) -> u32 {
        self.route.minted.saturating_add(self.lifetime.into())
    }

    /// Longest duration of the call, in seconds; 0 for no limit.
    #[must_use]
    pub fn max_seconds(&self) -> u32 {
        u32::from(self.max_tens) * 10
    }
}

impl RouteKeys {
    /// Seals a ticket into a ufrag.
    #[must_use]
    pub fn seal_ticket(&self, ticket: &Ticket) -> String {
        let mut sealed = [0; SEALED_BYTES];
        let (plain, _) = sealed.split_at_mut(TICKET_BYTES);
        let kind = if ticket.has_config { KIND_WITH_CONFIG } else { KIND_PLAIN };
        plain[..PLAIN_BYTES].copy_from_slice(&encode_fields(kind, &ticket.route));
        let (words, model) = plain[PLAIN_BYTES..].split_at_mut(6);
        for (place, word) in words.chunks_exact_mut(2).zip([ticket.lifetime, ticket.max_tens, ticket.tenant]) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        model.copy_from_slice(&ticket.model.to_be_bytes());
        self.seal_in_place(VERSION, &mut sealed)
    }

    /// Opens the ticket at the start of a ufrag. `None`: not one of ours. Allocates nothing.
    #[must_use]
    pub fn open_ticket(&self, ufrag: &str) -> Option<Ticket> {
        let token = ufrag.as_bytes().get(..TICKET_CHARS)?;
        let (head, body) = token.split_first()?;
        if !is_ticket(ufrag) {
            return None;
        }
        let keys = self.keys_of(*head)?;
        let mut sealed = [0; SEALED_BYTES];
        if STANDARD_NO_PAD.decode_slice(body, &mut sealed).ok()? != SEALED_BYTES {
            return None;
        }
        let nonce = Nonce::assume_unique_for_key(NONCE);
        let plain = keys.route.open_in_place(nonce, Aad::from([*head]), &mut sealed).ok()?;
        let has_config = *plain.first()? == KIND_WITH_CONFIG;
        let (route, rest) = decode_fields(if has_config { KIND_WITH_CONFIG } else { KIND_PLAIN }, plain)?;
        let word = |at: usize| rest.get(at..)?.first_chunk().map(|word| u16::from_be_bytes(*word));
        let model = rest.get(6..)?.first_chunk().map(|model| u32::from_be_bytes(*model));
        Some(Ticket { route, lifetime: word(0)?, max_tens: word(2)?, tenant: word(4)?, model: model?, has_config })
    }

    /// What follows from the ticket at the start of a ufrag. Whether it is one of ours is for [`RouteKeys::open_ticket`].
    #[must_use]
    pub fn derive(&self, ufrag: &str) -> Option<Derived> {
        let token = ufrag.as_bytes().get(..TICKET_CHARS).filter(|_| is_ticket(ufrag))?;
        let mac = hmac::sign(&self.keys_of(*token.first()?)?.derived, token);
        let (tag, rest) = mac.as_ref().split_first_chunk()?;
        let (tsn, rest) = rest.split_first_chunk()?;
        let (ssrc, rest) = rest.split_first_chunk()?;
        let session = rest.first_chunk()?;
        Some(Derived {
            sctp_tag: u32::from_be_bytes(*tag).max(1),
            sctp_tsn: u32::from_be_bytes(*tsn),
            ssrc: u32::from_be_bytes(*ssrc).max(1),
            sdp_session: u64::from_be_bytes(*session) >> 1,
        })
    }
}

/// Whether a ufrag begins as a ticket does. Nothing is authentic yet.
#[must_use]
pub fn is_ticket(ufrag: &str) -> bool {
    ufrag
        .as_bytes()
        .first()
        .and_then(|head| super::version_and_key_id(*head))
        .is_some_and(|(found, _)| found == VERSION)
}

/// What a client added to its ticket.
#[must_use]
pub fn added(ufrag: &str) -> Option<&str> {
    ufrag.get(TICKET_CHARS..).filter(|_| is_ticket(ufrag))
}
