//! What a session takes and tells.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use crate::{Codec, Discard, SrtpProfile};

/// What carries a path's datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// Datagrams as they are.
    Udp,
    /// A connection that the client opened, each datagram behind its length (RFC 6544, RFC 4571).
    Tcp,
}

/// A 5-tuple seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path {
    /// Our address that received the datagram, or sends it.
    pub local: SocketAddr,
    /// The client's address.
    pub remote: SocketAddr,
    /// What lies between.
    pub transport: Transport,
}

impl Path {
    /// Over UDP.
    #[must_use]
    pub fn udp(local: SocketAddr, remote: SocketAddr) -> Self {
        Self { local, remote, transport: Transport::Udp }
    }

    /// Over a TCP connection.
    #[must_use]
    pub fn tcp(local: SocketAddr, remote: SocketAddr) -> Self {
        Self { local, remote, transport: Transport::Tcp }
    }
}

/// The addresses alone, in as few words as hold them: each media packet looks its path up, and hardly ever do two differ in
/// something else.
impl Hash for Path {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for address in [self.local, self.remote] {
            let port = address.port();
            match address.ip() {
                IpAddr::V4(ip) => state.write_u64(u64::from(ip.to_bits()) << 16 | u64::from(port)),
                IpAddr::V6(ip) => {
                    let [high, low] = [ip.to_bits() >> 64, ip.to_bits()].map(low64);
                    state.write_u64(high);
                    state.write_u64(low);
                    state.write_u64(port.into());
                }
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are what is asked for")]
fn low64(value: u128) -> u64 {
    value as u64
}

/// An RTP packet of the client's, opened in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaFrame<'a> {
    /// What codes the payload.
    pub codec: Codec,
    /// RTP sequence number.
    pub seq: u16,
    /// RTP timestamp on a 48 kHz clock, whatever the payload's own is.
    pub rtp_timestamp: u32,
    /// RTP marker: first packet of a talkspurt.
    pub marker: bool,
    /// RFC 6464 level in -dBov (0 loud, 127 silent), when sent.
    pub audio_level: Option<u8>,
    /// Not empty.
    pub payload: &'a [u8],
}

/// What became of a datagram.
#[derive(Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// Audio of the client's.
    Media(MediaFrame<'a>),
    /// Used up inside (STUN, DTLS, SCTP, RTCP, RTP that is held or carries no sound). Drain transmits and events.
    Consumed,
    /// Dropped.
    Discarded(Discard),
}

/// A data channel, by its SCTP stream id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u16);

/// RFC 8831 §8: the two kinds of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// UTF-8.
    Text,
    /// Any bytes.
    Binary,
}

/// What a session tells its driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// DTLS is connected and the client's fingerprint matched: media and messages may be sent.
    Connected {
        /// On the wire: 0xFEFD for DTLS 1.2, 0xFEFC for 1.3.
        version: u16,
        /// Agreed protection.
        profile: SrtpProfile,
        /// The client's part of the handshake came in its checks.
        sped: bool,
    },
    /// The client opened a data channel (RFC 8832).
    ChannelOpened {
        /// Which.
        channel: ChannelId,
        /// Its label, e.g. `oai-events`.
        label: String,
    },
    /// A whole message arrived.
    Message {
        /// On which channel.
        channel: ChannelId,
        /// Text or binary.
        kind: MessageKind,
        /// The bytes; empty messages are empty here.
        data: Vec<u8>,
    },
    /// A data channel is closed.
    ChannelClosed {
        /// Which.
        channel: ChannelId,
    },
    /// Route this 4-tuple here: a check from it was valid, or media proved it ([`crate::Session::handle_stranger`]). Told
    /// with every valid check, because another session may have proved the same 4-tuple in between (a page that was
    /// loaded again, or a forged source address).
    PathAdded(Path),
    /// Remove this 4-tuple: no valid check for 30 s, or displaced by a ninth.
    PathRemoved(Path),
    /// Audio of the client's has another SSRC than before: what may tell whose a packet from an unknown address is.
    SsrcHeard(u32),
    /// The end. Nothing follows but the last transmits.
    Closed(CloseReason),
}

/// Why a session ended, and by whose doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseReason {
    /// The client sent close_notify.
    PeerClosed,
    /// [`crate::Session::close`] was called.
    LocalClosed,
    /// No valid check for [`crate::Config::consent_timeout`].
    ConsentExpired,
    /// DTLS did not connect within [`crate::Config::setup_timeout`].
    SetupTimeout,
    /// The client's certificate is not the one its offer names.
    FingerprintMismatch,
    /// The DTLS engine gave up, with no common SRTP profile among the reasons.
    DtlsFailed,
}

impl CloseReason {
    /// The value of the metric's label `reason`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::PeerClosed => "peer_closed",
            Self::LocalClosed => "local_closed",
            Self::ConsentExpired => "consent_expired",
            Self::SetupTimeout => "setup_timeout",
            Self::FingerprintMismatch => "fingerprint_mismatch",
            Self::DtlsFailed => "dtls_failed",
        }
    }
}

/// A datagram to send; its bytes were written to the buffer given to [`crate::Session::poll_transmit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Transmit {
    /// Where to.
    pub path: Path,
}

/// One packet to the client.
#[derive(Debug, Clone, Copy)]
pub struct OutgoingFrame<'a> {
    /// What codes the payload: something that was agreed on.
    pub codec: Codec,
    /// 48 kHz ticks; the session adds its own random offset.
    pub rtp_timestamp: u32,
    /// First packet after silence.
    pub marker: bool,
    /// Coded by it.
    pub payload: &'a [u8],
    /// What it is part of, for [`crate::Session::downlink`]: rising, 0 for what nobody asks after.
    pub label: u32,
    /// Samples that count as lost if it is: 0 for what was sent before.
    pub samples: u16,
}

/// Why a frame was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendMediaError {
    /// DTLS is not connected yet, or the session is closed.
    #[error("the session is not connected")]
    NotConnected,
    /// The offer takes no audio from us, or none of this codec.
    #[error("the client receives no such audio")]
    NotNegotiated,
}

/// Why a message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendMessageError {
    /// No such channel is open.
    #[error("the channel is not open")]
    NotOpen,
    /// Larger than the client accepts (`a=max-message-size`).
    #[error("the message is larger than the client's limit of {limit} bytes")]
    TooLarge {
        /// The client's limit in bytes.
        limit: u64,
    },
    /// The send queue (2 MB) is full.
    #[error("the send queue is full")]
    QueueFull,
}

/// Plain counters of one session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// RTP packets opened.
    pub media_received: u64,
    /// RTP packets sent.
    pub media_sent: u64,
    /// Times that packets of the client's were asked for again.
    pub packets_requested: u64,
    /// Valid checks answered.
    pub checks_answered: u64,
    /// Our packets that the client reported lost, cumulative, from its last receiver report.
    pub reported_lost: u32,
    /// SRTP packets refused since the last that opened. Some 50, a second of audio, mean a client that restarted its
    /// sequence numbers, which nothing but a fresh offer mends.
    pub refused_in_a_row: u32,
    /// Streams on which the client sent without opening a channel there: reset.
    pub streams_unopened: u64,
    /// Round trip from the client's receiver report, in microseconds; 0 until known.
    pub rtt_us: u32,
    /// Transport-wide feedback messages of the client's.
    pub feedback: u64,
}
