//! Audio of one session both ways: keys, RTP, reports.
//!
//! Before the keys are there, the client's first packets are held (case R15): its media may overtake its last DTLS
//! flight, and is sent in the same instant.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::downlink::{Downlink, DownlinkView};
use super::types::{Input, MediaFrame, OutgoingFrame, Stats};
use crate::codec::Ticks;
use crate::rtcp::{Item, Missing, NtpClock, ReceiveStats, SendStats};
use crate::rtp::{Header, Packet, TransportSeq};
use crate::sdp::AudioSetup;
use crate::{Codec, Discard, Format, MEDIA_CLOCK, rtcp, srtp};

/// Streams of the client's whose loss is counted. One speaks at a time; a new SSRC replaces the oldest (case R04).
const STREAMS_MAX: usize = 8;

/// 200 ms of 20 ms packets.
const HELD_MAX: usize = 10;

/// An Opus packet has 1275 bytes at most (RFC 6716 §3.4); header, extensions and tag come on top.
const HELD_MAX_BYTES: usize = 1500;

/// Later than this, audio is of no use to a conversation.
const HELD_FOR: Duration = Duration::from_millis(200);

/// The audio part of a session.
pub(super) struct Media {
    setup: Option<AudioSetup>,
    keys: Option<(srtp::Sender, srtp::Receiver)>,
    held: VecDeque<Held>,
    /// In the order of their first packet.
    streams: Vec<ReceiveStats>,
    /// Of the client's audio, to be asked for.
    missing: Missing,
    sent: SendStats,
    downlink: Downlink,
    clock: NtpClock,
    /// Of the next packet of ours.
    seq: u16,
    timestamp_offset: u32,
    /// Of ours, where the codec's clock is slower than ours.
    ticks: Ticks,
}

struct Held {
    at: Instant,
    packet: Vec<u8>,
}

/// An authentic packet of the client's.
pub(super) struct Opened<'a> {
    pub(super) ssrc: u32,
    pub(super) kind: Kind<'a>,
    /// No packet of its stream is ahead of it: where it came from is where the client is.
    pub(super) newest: bool,
}

/// What became of an authentic RTCP packet.
pub(super) struct Reported {
    /// No packet of its sender's is ahead of it.
    pub(super) newest: bool,
    /// Whether it contradicts itself somewhere.
    pub(super) result: Result<(), Discard>,
}

/// By payload type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// Agreed, with something in it.
    Media(MediaFrame<'a>),
    /// Negotiated, of no interest: comfort noise, padding alone.
    Other,
    /// Not negotiated.
    Unknown,
}

impl<'a> From<Kind<'a>> for Input<'a> {
    fn from(kind: Kind<'a>) -> Self {
        match kind {
            Kind::Media(frame) => Self::Media(frame),
            Kind::Other => Self::Consumed,
            Kind::Unknown => Self::Discarded(Discard::PayloadType),
        }
    }
}

impl Media {
    /// `seed`: 6 random bytes at least.
    pub(super) fn new(now: Instant, setup: Option<AudioSetup>, seed: &[u8; 32]) -> Self {
        let sent = send_stats(setup.as_ref());
        Self {
            setup,
            keys: None,
            held: VecDeque::new(),
            streams: Vec::new(),
            missing: Missing::default(),
            sent,
            downlink: Downlink::default(),
            clock: NtpClock::new(now, Duration::ZERO),
            // RFC 3711 §3.3.1 and its errata: a start in the lower half keeps a lost first packet from looking like a wrap.
            seq: u16::from_be_bytes([seed[0] & 0x7F, seed[1]]),
            timestamp_offset: u32::from_be_bytes([seed[2], seed[3], seed[4], seed[5]]),
            ticks: Ticks::default(),
        }
    }

    /// DTLS gave keys.
    pub(super) fn start(&mut self, now: Instant, keys: (srtp::Sender, srtp::Receiver)) {
        self.keys = Some(keys);
        self.downlink.start(now);
    }

    /// The session is closed.
    pub(super) fn stop(&mut self) {
        self.keys = None;
        self.held = VecDeque::new();
    }

    /// Whether there are keys.
    pub(super) fn started(&self) -> bool {
        self.keys.is_some()
    }

    /// Keeps a packet for the time there are keys.
    pub(super) fn hold(&mut self, now: Instant, packet: &[u8]) -> Result<(), Discard> {
        if self.setup.is_none() || packet.len() > HELD_MAX_BYTES {
            return Err(Discard::BeforeKeys);
        }
        while self.held.front().is_some_and(|held| now.saturating_duration_since(held.at) > HELD_FOR) {
            self.held.pop_front();
        }
        if self.held.len() == HELD_MAX {
            return Err(Discard::BeforeKeys);
        }
        self.held.push_back(Held { at: now, packet: packet.to_vec() });
        Ok(())
    }

    /// Takes the oldest held packet that is not too old, if there are keys. Whether there was one.
    pub(super) fn take_held(&mut self, now: Instant, buffer: &mut Vec<u8>) -> bool {
        if self.keys.is_none() {
            return false;
        }
        while let Some(held) = self.held.pop_front() {
            if now.saturating_duration_since(held.at) <= HELD_FOR {
                buffer.clear();
                buffer.extend_from_slice(&held.packet);
                return true;
            }
        }
        false
    }

    /// Opens an RTP packet in place.
    pub(super) fn open<'a>(
        &mut self,
        now: Instant,
        packet: &'a mut [u8],
        stats: &mut Stats,
    ) -> Result<Opened<'a>, Discard> {
        let (_, receiver) = self.keys.as_mut().ok_or(Discard::BeforeKeys)?;
        let opened = receiver.open_rtp(packet);
        stats.refused_in_a_row = receiver.refused_in_a_row();
        let packet = Packet::parse(&packet[..opened?])?;
        stats.media_received += 1;
        let (kind, timed) = self.kind(&packet);
        self.note_missing(now, &packet);
        let stream = self.stream(now, packet.ssrc);
        if timed {
            stream.on_packet(now, packet.seq, packet.timestamp);
        } else {
            stream.on_untimed(packet.seq);
        }
        let newest = stream.highest_seq().is_some_and(|highest| highest & 0xFFFF == u32::from(packet.seq));
        Ok(Opened { ssrc: packet.ssrc, kind, newest })
    }

    /// What a packet is, and whether its timestamp tells when it was sent: an event keeps that of its begin (RFC 4733 §2.5.1.2).
    fn kind<'a>(&self, packet: &Packet<'a>) -> (Kind<'a>, bool) {
        let Some(audio) = &self.setup else { return (Kind::Unknown, false) };
        let Some(format) = audio.format(packet.payload_type) else {
            return match audio.repeated_by(packet.payload_type) {
                Some(repeated) => (again(audio, repeated, packet), false),
                None if audio.other.contains(&packet.payload_type) => (Kind::Other, false),
                None => (Kind::Unknown, true),
            };
        };
        let timed = format.clock_rate == audio.primary.clock_rate && format.codec != Codec::TelephoneEvent;
        let kind = if packet.payload.is_empty() {
            Kind::Other
        } else {
            Kind::Media(frame(audio, format, packet, packet.seq, packet.payload))
        };
        (kind, timed)
    }

    /// Notes what is missing, where it can be asked for.
    fn note_missing(&mut self, now: Instant, packet: &Packet<'_>) {
        let Some(audio) = self.setup.as_ref().filter(|audio| audio.nack) else { return };
        if audio.repeated_by(packet.payload_type).is_none() {
            self.missing.on_packet(now, packet.ssrc, packet.seq);
        } else if let Some(seq) = packet.payload.first_chunk() {
            self.missing.found(now, u16::from_be_bytes(*seq));
        }
    }

    /// When a request is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.missing.poll_timeout().filter(|_| self.keys.is_some())
    }

    /// Writes the request that is due to `out`, which is empty, sealed (RFC 4585 §6.2.1). Whether there is one.
    pub(super) fn write_request(&mut self, now: Instant, out: &mut Vec<u8>, stats: &mut Stats) -> bool {
        let (Some((sender, _)), Some(audio)) = (&mut self.keys, &self.setup) else { return false };
        rtcp::write_empty_report(out, audio.ssrc, &audio.cname);
        let any = self.missing.write(now, audio.ssrc, out);
        stats.packets_requested = self.missing.requested();
        if any {
            sender.seal_rtcp(out);
        }
        any
    }

    fn stream(&mut self, now: Instant, ssrc: u32) -> &mut ReceiveStats {
        let at = match self.streams.iter().position(|stream| stream.ssrc() == ssrc) {
            Some(at) => at,
            None => {
                if self.streams.len() == STREAMS_MAX {
                    self.streams.remove(0);
                }
                let clock_rate = clock_rate(self.setup.as_ref());
                self.streams.push(ReceiveStats::new(now, ssrc, clock_rate));
                self.streams.len() - 1
            }
        };
        &mut self.streams[at]
    }

    /// Takes an RTCP packet (RFC 3550 §6.4, §6.6).
    pub(super) fn reports(&mut self, now: Instant, packet: &mut [u8], stats: &mut Stats) -> Result<Reported, Discard> {
        let (_, receiver) = self.keys.as_mut().ok_or(Discard::BeforeKeys)?;
        let srtp::OpenedRtcp { length, newest } = receiver.open_rtcp(packet)?;
        let plain = packet.get(..length).unwrap_or_default();
        let mut result = Ok(());
        for item in rtcp::parse(plain) {
            match item {
                Ok(Item::SenderReport { ssrc, info }) => {
                    if let Some(stream) = self.streams.iter_mut().find(|stream| stream.ssrc() == ssrc) {
                        stream.on_sender_report(now, &info);
                    }
                }
                Ok(Item::Block(block)) => {
                    self.sent.on_block(now, &self.clock, &block);
                    if block.ssrc == self.sent.ssrc() {
                        let rtt = self.sent.rtt();
                        self.downlink.on_report(now, &block, clock_rate(self.setup.as_ref()), rtt);
                    }
                }
                Ok(Item::Feedback(feedback)) => {
                    stats.feedback += 1;
                    self.downlink.on_feedback(now, &feedback);
                }
                Ok(Item::Bye { ssrc }) => self.streams.retain(|stream| stream.ssrc() != ssrc),
                Err(discard) => result = Err(discard),
            }
        }
        stats.reported_lost = self.sent.reported_lost();
        if let Some(rtt) = self.sent.rtt() {
            self.missing.set_round_trip(rtt);
            stats.rtt_us = u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX);
        }
        Ok(Reported { newest, result })
    }

    /// Writes our compound report to `out`, which is empty, sealed. Whether there is one.
    pub(super) fn write_report(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let (Some((sender, _)), Some(audio)) = (&mut self.keys, &self.setup) else { return false };
        rtcp::write_report(out, now, &self.clock, &audio.cname, &mut self.sent, self.streams.iter_mut());
        sender.seal_rtcp(out);
        true
    }

    /// A later offer changed what is agreed. Streams and counters go on.
    pub(super) fn renew(&mut self, setup: &Option<AudioSetup>) {
        let fresh = self.setup.is_none() || clock_rate(self.setup.as_ref()) != clock_rate(setup.as_ref());
        self.setup.clone_from(setup);
        if fresh {
            self.sent = send_stats(self.setup.as_ref());
            self.streams.clear();
            self.ticks = Ticks::default();
        }
    }

    /// See [`super::Session::downlink`].
    pub(super) fn downlink(&self, label: u32) -> Option<DownlinkView> {
        self.downlink.view(label, self.sent.rtt())
    }

    /// What the client is sent.
    pub(super) fn codec(&self) -> Option<Codec> {
        self.setup.as_ref().map(|audio| audio.primary.codec)
    }

    /// Whether the client takes audio from us.
    pub(super) fn sends(&self) -> bool {
        self.setup.as_ref().is_some_and(|audio| audio.send)
    }

    /// Writes one packet, sealed, to `out`. Whether it did: there must be keys and negotiated audio.
    pub(super) fn seal(&mut self, now: Instant, frame: OutgoingFrame<'_>, out: &mut Vec<u8>) -> bool {
        let (Some((sender, _)), Some(audio)) = (&mut self.keys, &self.setup) else { return false };
        let Some(Format { payload_type, clock_rate, .. }) = audio.format_of(frame.codec) else { return false };
        let timestamp = if clock_rate == MEDIA_CLOCK {
            frame.rtp_timestamp.wrapping_add(self.timestamp_offset)
        } else {
            self.ticks.at(frame.rtp_timestamp, clock_rate, self.timestamp_offset)
        };
        self.downlink.on_sent(now, self.seq, frame.label, frame.samples);
        let header = Header {
            marker: frame.marker,
            payload_type,
            seq: self.seq,
            timestamp,
            ssrc: audio.ssrc,
            // One stream: its numbers are the transport's.
            transport_seq: audio.transport_seq_id.map(|id| TransportSeq { id, seq: self.seq }),
        };
        out.clear();
        header.write(out);
        out.extend_from_slice(frame.payload);
        sender.seal_rtp(out);
        self.seq = self.seq.wrapping_add(1);
        self.sent.on_packet(now, timestamp, frame.payload.len());
        true
    }
}

/// RFC 4588 §4: the number that a packet had at first is in front of what it had.
fn again<'a>(audio: &AudioSetup, repeated: u8, packet: &Packet<'a>) -> Kind<'a> {
    match (audio.format(repeated), packet.payload.split_first_chunk()) {
        (Some(format), Some((seq, payload @ [_, ..]))) => {
            Kind::Media(frame(audio, format, packet, u16::from_be_bytes(*seq), payload))
        }
        _ => Kind::Other,
    }
}

fn frame<'a>(audio: &AudioSetup, format: Format, packet: &Packet<'a>, seq: u16, payload: &'a [u8]) -> MediaFrame<'a> {
    MediaFrame {
        codec: format.codec,
        seq,
        rtp_timestamp: format.to_media_clock(packet.timestamp),
        marker: packet.marker,
        audio_level: audio.audio_level_id.and_then(|id| packet.audio_level(id)),
        payload,
    }
}

fn clock_rate(setup: Option<&AudioSetup>) -> u32 {
    setup.map_or(MEDIA_CLOCK, |audio| audio.primary.clock_rate)
}

fn send_stats(setup: Option<&AudioSetup>) -> SendStats {
    SendStats::new(setup.map_or(0, |audio| audio.ssrc), clock_rate(setup))
}
