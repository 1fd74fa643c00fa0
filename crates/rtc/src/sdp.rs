//! Reads an offer and writes its answer (RFC 8829, 8839, 8841, 8842, 9143).
//!
//! [`Offer::parse`] decides everything: which m-lines are taken, which refused and why, or that no call can come of the
//! offer. [`Offer::accept`] only writes down what was decided, so it cannot fail. Later offers of the same call are answered
//! by [`Setup::renew`], ICE restarts without an offer by [`Setup::restart`].
//!
//! # What is taken
//!
//! One call has one transport, at most one audio line and one data channel line:
//!
//! * The first usable audio line leads (without one, the first usable data channel line). Its BUNDLE group, if it is in
//!   one, is the call; lines outside are refused, and without a group the leading line is alone.
//! * ICE credentials, fingerprints and the DTLS role come from the group's offerer-tagged line (RFC 9143 §7.1), with
//!   session-level values inherited.
//! * Refused lines keep their place, with port 0 and one offered format, and leave the BUNDLE group. A refused
//!   offerer-tagged RTP line cannot be refused alone: it is answered inactive and stays in the group.
//! * A line with port 0 is dead and copied back unread, unless it is `a=bundle-only` and its group lives.
//!
//! # Leniency
//!
//! Harmless: LF line ends, a missing last line end, blank lines, attributes unknown or at either level, codec and hash
//! names in any case, a missing mid. The client's candidates are skipped unread whatever they say, as a lite agent
//! learns a client's addresses from its checks: no name is resolved, and nothing is ever sent to an address because it
//! stands in an offer. Bounds: [`OFFER_BYTES_MAX`], [`MEDIA_LINES_MAX`].
//!
//! # Not implemented
//!
//! Transport-wide feedback of ours about what the client sends
//! (not answered, so never used), `ice2` (RFC 8445 §10), SDES keys, the SCTP lines of old drafts (`DTLS/SCTP 5000`).

mod answer;
mod facts;
mod fragment;
mod media;
mod offer;
mod renew;
mod text;
mod transport;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

pub use crate::sctp::snap::SnapState;
use crate::{Codec, Format, Password};
pub use facts::{AudioFacts, ClientFacts};
pub use fragment::Fragment;
pub use offer::Offer;
pub use renew::{Credentials, Renewal, Renewed};

/// Longest offer read, in bytes. Chromium's offer of audio, video and data with all codecs has 7 KB; 20 candidates add
/// 3 KB.
pub const OFFER_BYTES_MAX: usize = 64 * 1024;

/// Most m-lines read. A page that added and stopped a video track 30 times still gets its call.
pub const MEDIA_LINES_MAX: usize = 64;

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

impl OfferError {
    /// `problem` continues the attribute's name, `fix` says what to send instead.
    fn new(line: usize, attribute: &'static str, problem: &str, fix: &str) -> Self {
        Self { line: Some(line), attribute, message: format!("line {line}: {attribute} {problem}: {fix}") }
    }

    fn whole(attribute: &'static str, problem: &str, fix: &str) -> Self {
        Self { line: None, attribute, message: format!("{attribute} {problem}: {fix}") }
    }
}

/// An address that the answer advertises (RFC 8839 §5.1): a host candidate, over TCP a passive one (RFC 6544 §4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Where a client reaches this edge.
    pub address: SocketAddr,
    /// By what.
    pub transport: crate::Transport,
}

impl Candidate {
    /// Over UDP.
    #[must_use]
    pub fn udp(address: SocketAddr) -> Self {
        Self { address, transport: crate::Transport::Udp }
    }

    /// Over TCP connections that the client opens.
    #[must_use]
    pub fn tcp(address: SocketAddr) -> Self {
        Self { address, transport: crate::Transport::Tcp }
    }

    /// `<foundation> <component> <transport> <priority> <address> <port> typ host`, as after `a=candidate:` (RFC 8839
    /// §5.1); `rank` is the place in the list of advertised addresses.
    ///
    /// The priority is that of RFC 8445 §5.1.2.1: type preference, the address's rank, component 1. TCP comes behind UDP: its
    /// type preference is libwebrtc's 90 against 126, its direction preference 4 (RFC 6544 §4.2: passive).
    #[must_use]
    pub fn line(&self, rank: u32) -> String {
        let rank = rank.min(8191);
        let (ip, port, foundation) = (self.address.ip(), self.address.port(), rank + 1);
        match self.transport {
            crate::Transport::Udp => {
                let priority = (126 << 24) | ((65535 - rank) << 8) | 255;
                format!("{foundation} 1 udp {priority} {ip} {port} typ host")
            }
            crate::Transport::Tcp => {
                let priority = (90 << 24) | (((4 << 13) | (8191 - rank)) << 8) | 255;
                format!("{foundation} 1 tcp {priority} {ip} {port} typ host tcptype passive")
            }
        }
    }
}

/// What the edge brings to an answer.
#[derive(Debug, Clone)]
pub struct LocalDescription {
    /// `a=ice-ufrag`: the route token.
    pub ufrag: String,
    /// `a=ice-pwd`.
    pub password: Password,
    /// SHA-256 fingerprint of the DTLS certificate, as in `a=fingerprint:sha-256 <this>`.
    pub fingerprint: String,
    /// Advertised addresses, in order of preference.
    pub candidates: Vec<Candidate>,
    /// `o=` session id, also the seed of SSRC, cname and msid. Not secret.
    pub session: u64,
    /// SSRC of our audio.
    pub ssrc: u32,
    /// Our half of SNAP, should the offer have the client's.
    pub sctp_init: SctpInit,
    /// How the client is to send its audio.
    pub uplink: Uplink,
}

/// How the answer asks the client to send its audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uplink {
    /// Opus at most at this many bit/s on average (RFC 7587 §6.1), 0 for no word about it. Defaults to 0.
    pub max_average_bitrate: u32,
    /// Opus sends next to nothing in silence (RFC 7587 §3.1.3). Defaults to false.
    pub dtx: bool,
    /// Copies of packets (RFC 2198). Defaults to [`Redundancy::Prefer`].
    pub red: Redundancy,
}

/// What becomes of an offered `red/48000/2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redundancy {
    /// It is not taken.
    Off,
    /// It is taken behind Opus: clients that choose by themselves may send it. Browsers do not.
    Offered,
    /// It is taken before Opus, and browsers send it: each packet carries the one before, for twice the bits while the
    /// user speaks.
    Prefer,
}

impl Default for Uplink {
    fn default() -> Self {
        Self { max_average_bitrate: 0, dtx: false, red: Redundancy::Prefer }
    }
}

/// Where our INIT of an answer comes from (draft-hancke-tsvwg-snap).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SctpInit {
    /// Drawn: the first answer of a call.
    Fresh,
    /// With this tag, not 0, and first TSN, which the client was told before it offered.
    Given {
        /// Initiate Tag.
        tag: u32,
        /// Initial TSN.
        tsn: u32,
    },
    /// What the first answer of the call said to the same INIT, or left out: an association that stands is not set up again.
    Repeated(Option<Box<SnapState>>),
}

/// The answer and what was agreed in it.
#[derive(Clone)]
pub struct Accepted {
    /// The answer's text, CRLF at the end.
    pub answer: String,
    /// What the session needs.
    pub setup: Setup,
    /// What became of `a=sctp-init`.
    pub snap: Snap,
}

/// Without the answer, in which our password stands.
impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { answer: _, setup, snap } = self;
        f.debug_struct("Accepted").field("setup", setup).field("snap", snap).finish_non_exhaustive()
    }
}

/// What became of an offer's `a=sctp-init`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Snap {
    /// There was none.
    NotOffered,
    /// Answered by ours.
    Answered,
    /// It holds no INIT that an association can come of. The answer says nothing, which is how SNAP is declined: the call
    /// goes on with SCTP's own handshake, and nobody is told off for an optional attribute.
    Unusable,
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
    /// What both sides code their audio with, e.g. Opus as 111 (Chromium) or 109 (Firefox). G.711 without Opus.
    pub primary: Format,
    /// What the client may send beside it: RED, the other G.711, telephone-event.
    pub beside: Vec<Format>,
    /// The client sends again what it is asked for (RFC 4585).
    pub nack: bool,
    /// Payload types of packets that are sent again in a stream of their own (RFC 4588), and of what each repeats.
    pub again: Vec<(u8, u8)>,
    /// Payload types that the offer gives to CN, and to telephone-event at another clock. The answer lists neither, but a
    /// client may have them in its stream all the same: known, of no interest.
    pub other: Vec<u8>,
    /// Extension id of `urn:ietf:params:rtp-hdrext:ssrc-audio-level` (RFC 6464), when agreed.
    pub audio_level_id: Option<u8>,
    /// Extension id of `urn:ietf:params:rtp-hdrext:sdes:mid`, when agreed.
    pub mid_id: Option<u8>,
    /// Extension id of the transport-wide sequence numbers on what we send (`transport-cc`), when agreed.
    pub transport_seq_id: Option<u8>,
    /// The client sends to us.
    pub receive: bool,
    /// We send to the client.
    pub send: bool,
    /// SSRC of our audio, as in the answer.
    pub ssrc: u32,
    /// CNAME of our audio, as in the answer.
    pub cname: String,
}

impl AudioSetup {
    /// What a payload type stands for, if it was agreed.
    #[must_use]
    pub fn format(&self, payload_type: u8) -> Option<Format> {
        self.formats().find(|format| format.payload_type == payload_type)
    }

    /// What a payload type sends again (RFC 4588), if that was agreed.
    #[must_use]
    pub fn repeated_by(&self, payload_type: u8) -> Option<u8> {
        self.again.iter().find(|(again, _)| *again == payload_type).map(|(_, repeated)| *repeated)
    }

    /// Under which payload type something is sent, if it was agreed.
    #[must_use]
    pub fn format_of(&self, codec: Codec) -> Option<Format> {
        self.formats().find(|format| format.codec == codec)
    }

    fn formats(&self) -> impl Iterator<Item = Format> {
        std::iter::once(self.primary).chain(self.beside.iter().copied())
    }
}

/// Negotiated data channels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SctpSetup {
    /// `a=mid` of the data channel line, if the offer had one.
    pub mid: Option<String>,
    /// The client's `a=sctp-port`.
    pub remote_port: u16,
    /// The client's `a=max-message-size` in bytes; 65536 when absent; 0 = no limit.
    pub max_message_bytes: u64,
    /// The association, when SNAP set it up.
    pub snap: Option<SnapState>,
    /// Channels that need no DCEP: what offers list, [`NEGOTIATED_CALL_MAX`] at most, and what the driver adds.
    pub negotiated: Vec<Negotiated>,
}

impl SctpSetup {
    /// Without SNAP and without channels.
    #[must_use]
    pub fn new(remote_port: u16, max_message_bytes: u64) -> Self {
        Self { mid: None, remote_port, max_message_bytes, snap: None, negotiated: Vec::new() }
    }
}

/// Most `a=dcmap` of one offer.
pub const NEGOTIATED_MAX: usize = 16;

/// Most streams that all offers of one call list: those of the first one, and as many later ones. 100 bytes each, as they are
/// remembered for an association that has to begin anew.
pub const NEGOTIATED_CALL_MAX: usize = 2 * NEGOTIATED_MAX;

/// A channel that both sides know of before the association stands (RFC 8832 §1, RFC 8864 §5.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiated {
    /// SCTP stream, at most 65534.
    pub id: u16,
    /// Its label.
    pub label: String,
    /// Messages may overtake each other.
    pub unordered: bool,
    /// Sent again at most so often.
    pub max_retransmissions: Option<u16>,
    /// Sent again for so long.
    pub lifetime: Option<Duration>,
}

impl Negotiated {
    /// Reliable and in order.
    #[must_use]
    pub fn reliable(id: u16, label: impl Into<String>) -> Self {
        Self { id, label: label.into(), unordered: false, max_retransmissions: None, lifetime: None }
    }
}

/// Everything that offer and answer agreed on. Plain data: made by signaling, used by the worker that claims the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// Our ufrag: the route token, and what a client added to a ticket.
    pub local_ufrag: String,
    /// Our password.
    pub local_password: Password,
    /// The client's ufrag.
    pub remote_ufrag: String,
    /// The client's password, where its offer was seen: another one restarts ICE.
    pub remote_password: Option<Password>,
    /// [`LocalDescription::session`].
    pub session: u64,
    /// Fingerprints of the client's certificate: all listed ones of a known hash must match (RFC 8122 §5.1).
    pub fingerprints: Vec<Fingerprint>,
    /// We are the DTLS client (`a=setup:active` in the answer).
    pub dtls_active: bool,
    /// DTLS inside STUN was offered and answered. We are the DTLS server then.
    pub sped: bool,
    /// [`LocalDescription::uplink`].
    pub uplink: Uplink,
    /// The audio line, if accepted.
    pub audio: Option<AudioSetup>,
    /// The data channel line, if accepted.
    pub sctp: Option<SctpSetup>,
}
