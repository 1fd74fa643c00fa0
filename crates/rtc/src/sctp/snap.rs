//! SNAP (draft-hancke-tsvwg-snap): the INITs travel in offer and answer, and the association stands when DTLS does.
//!
//! The engine's socket stays on its thread, and an answer is made on another one than that which will own the session.
//! So [`SnapState::answer`] lets a short-lived socket take the client's INIT and its own COOKIE-ECHO, keeps what makes
//! up the association as plain data, and [`SnapState::handover`] puts the lasting socket into that state.
//!
//! # Invariant
//!
//! Our INIT is drawn for one client's INIT and never the offer's value: with equal tags and sequence numbers both sides
//! would take their own packets for the other's.

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use dcsctp::api::handover::{
    HandoverCapabilities, HandoverReceive, HandoverSocketState, HandoverTransmission, SocketHandoverState,
};
use dcsctp::api::{Options, SocketEvent};

/// Longest INIT read. Browsers send 36 bytes; an INIT has 20 and a few parameters.
const INIT_BYTES_MAX: usize = 1024;

/// Chunk header, tag, window, streams and first TSN (RFC 9260 §3.3.2).
const INIT_BYTES_MIN: usize = 20;

/// RFC 9260 §3.3.2: what a window is at least.
const WINDOW_MIN: u32 = 1500;

/// Of an SCTP packet before its chunks (RFC 9260 §3.1).
const COMMON_HEADER: usize = 12;

const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const ABORT: u8 = 6;
const COOKIE_ECHO: u8 = 10;
/// The State Cookie parameter (RFC 9260 §3.3.3.1).
const STATE_COOKIE: u16 = 7;

/// Forward-TSN-Supported (RFC 3758 §3.1) and Supported Extensions (RFC 5061 §4.2.7) with RE-CONFIG and FORWARD-TSN: what
/// browsers say in each INIT.
const BROWSER_PARAMETERS: [u8; 12] = [0xC0, 0, 0, 4, 0x80, 8, 0, 6, 130, 192, 0, 0];

/// Base64 with or without padding: the draft shows it with, some clients leave it out.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The INIT chunk of an offer, well-formed as far as its fixed part goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OfferedInit(Vec<u8>);

impl OfferedInit {
    /// Reads the value of `a=sctp-init`. `None`: no association can come of it.
    pub(crate) fn read(value: &str) -> Option<Self> {
        if value.len() > INIT_BYTES_MAX.div_ceil(3) * 4 {
            return None;
        }
        let chunk = LENIENT.decode(value).ok()?;
        let stated = usize::from(u16::from_be_bytes([*chunk.get(2)?, *chunk.get(3)?]));
        let is_whole = stated >= INIT_BYTES_MIN && (stated..=stated.next_multiple_of(4)).contains(&chunk.len());
        // RFC 9260 §3.3.2: a tag of 0, or no streams one way, is no association.
        let streams = (be16(&chunk, 12)?, be16(&chunk, 14)?);
        let usable = be32(&chunk, 4)? != 0 && be32(&chunk, 8)? >= WINDOW_MIN && streams.0 != 0 && streams.1 != 0;
        (chunk[0] == INIT && is_whole && usable).then_some(Self(chunk))
    }

    /// The INIT of a browser that told its tag and its first TSN alone.
    pub(crate) fn of_browser(tag: u32, tsn: u32, window: u32) -> Option<Self> {
        let mut chunk = vec![INIT, 0, 0, 30];
        chunk.extend_from_slice(&tag.to_be_bytes());
        chunk.extend_from_slice(&window.to_be_bytes());
        chunk.extend_from_slice(&[0xFF; 4]);
        chunk.extend_from_slice(&tsn.to_be_bytes());
        chunk.extend_from_slice(&BROWSER_PARAMETERS);
        (tag != 0).then_some(Self(chunk))
    }

    /// Initiate Tag and initial TSN.
    pub(crate) fn tag_and_tsn(&self) -> (u32, u32) {
        (be32(&self.0, 4).unwrap_or_default(), be32(&self.0, 16).unwrap_or_default())
    }
}

/// An association that offer and answer set up. Plain data, `Send`: made with the answer, restored by the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapState {
    /// The answer's `a=sctp-init`. An answer to a later offer of the same call repeats it or leaves it out.
    pub init: String,
    my_tag: u32,
    my_tsn: u32,
    peer_tag: u32,
    peer_tsn: u32,
    tie_tag: u64,
    partial_reliability: bool,
    interleaving: bool,
    reconfig: bool,
    zero_checksum: bool,
    streams: (u16, u16),
    congestion_window: u32,
    peer_window: u32,
    slow_start_threshold: u32,
}

impl SnapState {
    /// Answers a client's INIT. `None` when the engine does not take it: the answer then says nothing of SNAP.
    pub(crate) fn answer(offered: &OfferedInit, options: &Options) -> Option<Self> {
        catch_unwind(AssertUnwindSafe(|| Self::by_engine(offered, options))).ok().flatten()
    }

    fn by_engine(offered: &OfferedInit, options: &Options) -> Option<Self> {
        // What it reads never was on a wire.
        let mut socket = dcsctp::new_socket("", &Options { disable_checksum_verification: true, ..options.clone() });
        socket.handle_input(&packet(options, 0, &offered.0));
        let sent = std::iter::from_fn(|| socket.poll_event())
            .find_map(|event| if let SocketEvent::SendPacket(packet) = event { Some(packet) } else { None })?;
        let ack = InitAck::read(sent.get(COMMON_HEADER..)?)?;

        let mut echo = vec![COOKIE_ECHO, 0];
        echo.extend_from_slice(&u16::try_from(ack.cookie.len() + 4).ok()?.to_be_bytes());
        echo.extend_from_slice(&ack.cookie);
        socket.handle_input(&packet(options, be32(&ack.init, 4)?, &echo));
        // The COOKIE-ACK among them goes nowhere.
        while socket.poll_event().is_some() {}
        let state = socket.get_handover_state_and_close().ok()?;
        if !matches!(state.socket_state, HandoverSocketState::Connected) {
            return None;
        }
        let capabilities = &state.capabilities;
        Some(Self {
            init: STANDARD.encode(&ack.init),
            my_tag: state.my_verification_tag,
            my_tsn: state.my_initial_tsn,
            peer_tag: state.peer_verification_tag,
            peer_tsn: state.peer_initial_tsn,
            tie_tag: state.tie_tag,
            partial_reliability: capabilities.partial_reliability,
            interleaving: capabilities.message_interleaving,
            reconfig: capabilities.reconfig,
            zero_checksum: capabilities.zero_checksum,
            streams: (
                capabilities.negotiated_maximum_incoming_streams,
                capabilities.negotiated_maximum_outgoing_streams,
            ),
            congestion_window: state.tx.cwnd,
            peer_window: state.tx.rwnd,
            slow_start_threshold: state.tx.ssthresh,
        })
    }

    /// Whether it is the association of this INIT.
    pub(crate) fn answers(&self, offered: &OfferedInit) -> bool {
        offered.tag_and_tsn() == (self.peer_tag, self.peer_tsn)
    }

    /// The same association with this tag and first TSN of ours.
    pub(crate) fn with_ours(mut self, tag: u32, tsn: u32) -> Option<Self> {
        let mut chunk = STANDARD.decode(&self.init).ok()?;
        chunk.get_mut(4..8)?.copy_from_slice(&tag.to_be_bytes());
        chunk.get_mut(16..20)?.copy_from_slice(&tsn.to_be_bytes());
        self.init = STANDARD.encode(chunk);
        (self.my_tag, self.my_tsn) = (tag, tsn);
        (tag != 0).then_some(self)
    }

    /// Ports and verification tag of our packets.
    pub(super) fn header(&self, remote_port: u16) -> [u8; 8] {
        let [[a, b], [c, d]] = [super::LOCAL_PORT, remote_port].map(u16::to_be_bytes);
        let [e, f, g, h] = self.peer_tag.to_be_bytes();
        [a, b, c, d, e, f, g, h]
    }

    /// The state in which the association begins: nothing sent, nothing received.
    pub(crate) fn handover(&self) -> SocketHandoverState {
        SocketHandoverState {
            socket_state: HandoverSocketState::Connected,
            my_verification_tag: self.my_tag,
            my_initial_tsn: self.my_tsn,
            peer_verification_tag: self.peer_tag,
            peer_initial_tsn: self.peer_tsn,
            tie_tag: self.tie_tag,
            capabilities: HandoverCapabilities {
                partial_reliability: self.partial_reliability,
                message_interleaving: self.interleaving,
                reconfig: self.reconfig,
                zero_checksum: self.zero_checksum,
                negotiated_maximum_incoming_streams: self.streams.0,
                negotiated_maximum_outgoing_streams: self.streams.1,
            },
            tx: HandoverTransmission {
                next_tsn: self.my_tsn,
                next_reset_req_sn: self.my_tsn,
                last_cumulative_tsn_ack: self.my_tsn.wrapping_sub(1),
                cwnd: self.congestion_window,
                rwnd: self.peer_window,
                ssthresh: self.slow_start_threshold,
                ..HandoverTransmission::default()
            },
            rx: HandoverReceive {
                last_cumulative_acked_tsn: self.peer_tsn.wrapping_sub(1),
                last_completed_reset_req_sn: self.peer_tsn.wrapping_sub(1),
                ..HandoverReceive::default()
            },
        }
    }
}

/// Whether a packet asks for an association (RFC 9260 §8.5.1): its only chunk is an INIT.
pub(super) fn is_init(packet: &[u8]) -> bool {
    be32(packet, 4) == Some(0) && packet.get(COMMON_HEADER) == Some(&INIT)
}

/// Whether a packet begins with an ABORT.
pub(super) fn is_abort(packet: &[u8]) -> bool {
    packet.get(COMMON_HEADER) == Some(&ABORT)
}

/// An INIT-ACK, taken apart.
struct InitAck {
    /// The same as an INIT, without the cookie.
    init: Vec<u8>,
    cookie: Vec<u8>,
}

impl InitAck {
    fn read(chunk: &[u8]) -> Option<Self> {
        let stated = usize::from(be16(chunk, 2)?);
        if chunk[0] != INIT_ACK || stated < INIT_BYTES_MIN {
            return None;
        }
        let mut init = vec![INIT, 0, 0, 0];
        init.extend_from_slice(chunk.get(4..INIT_BYTES_MIN)?);
        let (mut cookie, mut length) = (None, init.len());
        let mut parameters = chunk.get(INIT_BYTES_MIN..stated)?;
        while parameters.len() >= 4 {
            let (kind, stated) = (be16(parameters, 0)?, usize::from(be16(parameters, 2)?));
            let value = parameters.get(4..stated)?;
            if kind == STATE_COOKIE {
                cookie = Some(value.to_vec());
            } else {
                init.extend_from_slice(parameters.get(..stated)?);
                // RFC 9260 §3.2.1: the padding of the last parameter is not counted in the chunk's length.
                length = init.len();
                init.resize(length.next_multiple_of(4), 0);
            }
            parameters = parameters.get(stated.next_multiple_of(4)..).unwrap_or_default();
        }
        init[2..4].copy_from_slice(&u16::try_from(length).ok()?.to_be_bytes());
        Some(Self { init, cookie: cookie? })
    }
}

/// One chunk as a packet of the client's, without a checksum.
fn packet(options: &Options, tag: u32, chunk: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(COMMON_HEADER + chunk.len() + 3);
    packet.extend_from_slice(&options.remote_port.to_be_bytes());
    packet.extend_from_slice(&options.local_port.to_be_bytes());
    packet.extend_from_slice(&tag.to_be_bytes());
    packet.extend_from_slice(&[0; 4]);
    packet.extend_from_slice(chunk);
    packet.resize(packet.len().next_multiple_of(4), 0);
    packet
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}
