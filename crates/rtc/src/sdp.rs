//! Reads an offer and writes its answer (RFC 8829, 8839, 8841, 8842, 9143).
//! CONTRACT skeleton: public types and signatures are fixed, fields may be added; bodies belong to the owner of this file.

use std::net::SocketAddr;

/// Why an offer was refused: the text names line, attribute and fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OfferError {
    /// 1-based line of the offer that is at fault, if one line is.
    pub line: Option<usize>,
    /// The attribute or field at fault, e.g. `a=ice-pwd`.
    pub attribute: &'static str,
    /// What is wrong and how to mend it, for people: "line 4: a=ice-pwd is missing: send ...".
    pub message: String,
}

/// A parsed, checked offer.
#[derive(Debug, Clone)]
pub struct Offer { /* private */ }

/// An address that the answer advertises (RFC 8839 §5.1). Host candidates over UDP only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Where a client reaches this edge.
    pub address: SocketAddr,
}

/// What the edge brings to an answer.
#[derive(Debug, Clone)]
pub struct LocalDescription {
    /// `a=ice-ufrag`: the route token.
    pub ufrag: String,
    /// `a=ice-pwd`.
    pub password: String,
    /// SHA-256 fingerprint of the DTLS certificate, as in `a=fingerprint:sha-256 <this>`.
    pub fingerprint: String,
    /// Advertised addresses, in order of preference.
    pub candidates: Vec<Candidate>,
    /// `o=` session id, also the seed of SSRC, cname and msid. Not secret.
    pub session: u64,
    /// SSRC of our audio.
    pub ssrc: u32,
}

/// The answer and what was agreed in it.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// The answer's text, CRLF at the end.
    pub answer: String,
    /// What the session needs.
    pub setup: Setup,
}

/// One fingerprint of the offer: hash name in lower case and digest bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// `sha-256`, `sha-384` or `sha-512`.
    pub hash: String,
    /// The digest.
    pub digest: Vec<u8>,
}

/// Negotiated audio.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AudioSetup {
    /// `a=mid` of the audio line, if the offer had one.
    pub mid: Option<String>,
    /// Payload type of Opus, e.g. 111 (Chromium) or 109 (Firefox).
    pub opus: u8,
    /// Payload types of telephone-event and CN that the client may send in the same stream; never Opus.
    pub other: Vec<u8>,
    /// Extension id of `urn:ietf:params:rtp-hdrext:ssrc-audio-level` (RFC 6464), when agreed.
    pub audio_level_id: Option<u8>,
    /// Extension id of `urn:ietf:params:rtp-hdrext:sdes:mid`, when agreed.
    pub mid_id: Option<u8>,
    /// The client sends to us.
    pub receive: bool,
    /// We send to the client.
    pub send: bool,
    /// SSRC of our audio, as in the answer.
    pub ssrc: u32,
    /// CNAME of our audio, as in the answer.
    pub cname: String,
}

/// Negotiated data channels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SctpSetup {
    /// The client's `a=sctp-port`.
    pub remote_port: u16,
    /// The client's `a=max-message-size` in bytes; 65536 when absent; 0 = no limit.
    pub max_message_bytes: u64,
}

/// Everything that offer and answer agreed on. Plain data: made by signaling, used by the worker that claims the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// Our ufrag, the route token.
    pub local_ufrag: String,
    /// Our password.
    pub local_password: String,
    /// The client's ufrag.
    pub remote_ufrag: String,
    /// Fingerprints of the client's certificate: all listed ones of a known hash must match (RFC 8122 §5.1).
    pub fingerprints: Vec<Fingerprint>,
    /// We are the DTLS client (`a=setup:active` in the answer).
    pub dtls_active: bool,
    /// The audio line, if accepted.
    pub audio: Option<AudioSetup>,
    /// The data channel line, if accepted.
    pub sctp: Option<SctpSetup>,
}

impl Offer {
    /// Reads an offer. Lenient where it is harmless (LF ends, missing last CRLF), strict where a call could not work.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, OfferError> { todo!() }

    /// Answers it.
    #[must_use]
    pub fn accept(&self, local: &LocalDescription) -> Accepted { todo!() }
}
