//! One session on its worker: the client's WebRTC on one side, echo or a transceiver on the other.

use std::time::{Duration, Instant};

use link::datagram::MediaUp;
use link::ids::SessionId;
use link::proto::{ChannelClosed, ChannelMessage, ChannelOpened, Connected, edge_message};
use rtc::{ChannelId, Codec, Event, Input, MediaFrame, MessageKind, OutgoingFrame, Path};

use super::events;
use super::io::Io;
use super::playout::SILENCE;
use super::remote::{Remote, State};
use super::stats::{CloseCause, Discard};
use crate::directory::CallInfo;
use crate::seats::Seat;

/// Between the last event and the close that follows it: time for SCTP to repeat a lost packet.
const LINGER: Duration = Duration::from_millis(500);

/// How long a call that no transceiver took waits for the client's channel, to say so.
const WAIT_FOR_CHANNEL: Duration = Duration::from_secs(10);

/// Who answers the client.
pub(crate) enum Side {
    /// The edge itself; the seat is held for as long as the call lasts.
    Echo(#[expect(dead_code, reason = "held for its drop")] Seat),
    /// A transceiver.
    Remote(Box<Remote>),
}

/// A close that is decided and not yet done.
struct Ending {
    at: Instant,
    cause: CloseCause,
    /// What the client is still to be told: code and message.
    error: Option<(&'static str, &'static str)>,
}

/// One session.
pub(crate) struct Client {
    pub(crate) id: SessionId,
    pub(crate) rtc: rtc::Session,
    pub(crate) call: CallInfo,
    pub(crate) side: Side,
    /// Checked 4-tuples, at most 8 (the session displaces the oldest).
    pub(crate) paths: Vec<Path>,
    /// The entry among the worker's deadlines that counts.
    pub(crate) armed: Option<Instant>,
    /// The SSRC under which the worker finds it.
    pub(crate) ssrc: Option<u32>,
    /// When a packet from an unknown 4-tuple may be tried next.
    pub(crate) stranger_at: Option<Instant>,
    events: Option<ChannelId>,
    /// DTLS is done.
    pub(crate) connected: bool,
    ending: Option<Ending>,
    /// When its ticket grants no more.
    pub(crate) ends_at: Option<Instant>,
}

impl Client {
    pub(crate) fn new(id: SessionId, rtc: rtc::Session, call: CallInfo, side: Side) -> Self {
        Self {
            id,
            rtc,
            call,
            side,
            paths: Vec::new(),
            armed: None,
            ssrc: None,
            stranger_at: None,
            events: None,
            connected: false,
            ending: None,
            ends_at: None,
        }
    }

    pub(crate) fn remote(&mut self) -> Option<&mut Remote> {
        match &mut self.side {
            Side::Remote(remote) => Some(remote),
            Side::Echo(_) => None,
        }
    }

    /// A frame of the client's.
    pub(crate) fn media(&mut self, now: Instant, frame: MediaFrame<'_>, io: &mut Io) {
        io.stats.media_received += 1;
        match &mut self.side {
            Side::Echo(_) => {
                let MediaFrame { codec, rtp_timestamp, marker, payload, .. } = frame;
                let echo = OutgoingFrame { codec, rtp_timestamp, marker, payload, label: 0, samples: 0 };
                self.send_media(now, echo, io);
            }
            Side::Remote(remote) => remote.media(now, frame, io),
        }
    }

    /// A frame for the client that came by datagram; `false`: nobody is to hear it.
    pub(crate) fn direct(&mut self, now: Instant, frame: &MediaUp<'_>, io: &mut Io) -> bool {
        if !self.plays() {
            return false;
        }
        let Side::Remote(remote) = &mut self.side else { return false };
        if let Some((rtp_timestamp, marker)) = remote.direct(now, frame) {
            let codec = self.downlink_codec();
            self.send_media(
                now,
                OutgoingFrame { codec, rtp_timestamp, marker, payload: frame.payload, label: 0, samples: 0 },
                io,
            );
        }
        true
    }

    /// Events other than those about paths and the end.
    pub(crate) fn handle_event(&mut self, now: Instant, event: Event, io: &mut Io) {
        match event {
            Event::Connected { sped, .. } => {
                self.connected = true;
                *if sped { &mut io.stats.handshakes_sped } else { &mut io.stats.handshakes_plain } += 1;
                if let Side::Remote(remote) = &mut self.side {
                    remote.playout.open(now);
                }
                self.tell(edge_message::Kind::Connected(Connected {}), io);
                let mut buffer = io.buffer();
                while let Some(input) = self.rtc.poll_held(now, &mut buffer) {
                    match input {
                        Input::Media(frame) => self.media(now, frame, io),
                        Input::Consumed => {}
                        Input::Discarded(discard) => io.stats.discard(Discard::Rtc(discard)),
                    }
                }
                io.recycle(buffer);
            }
            Event::ChannelOpened { channel, label } => self.channel_opened(now, channel, label, io),
            Event::Message { channel, kind, data } => match &mut self.side {
                Side::Echo(_) => self.send_message(now, channel, kind, &data, io),
                Side::Remote(remote) => {
                    let binary = kind == MessageKind::Binary;
                    let message = ChannelMessage { channel: u32::from(channel.0), binary, data };
                    remote.message(edge_message::Kind::ChannelMessage(message), io);
                }
            },
            Event::ChannelClosed { channel } => {
                self.events.take_if(|events| *events == channel);
                let closed = ChannelClosed { channel: u32::from(channel.0) };
                self.tell(edge_message::Kind::ChannelClosed(closed), io);
            }
            Event::PathAdded(_) | Event::PathRemoved(_) | Event::SsrcHeard(_) | Event::Closed(_) => {}
        }
    }

    pub(crate) fn send_message(
        &mut self,
        now: Instant,
        channel: ChannelId,
        kind: MessageKind,
        data: &[u8],
        io: &mut Io,
    ) {
        if self.rtc.send_message(now, channel, kind, data).is_err() {
            io.stats.messages_refused += 1;
        }
    }

    /// Ends the call with an `error` event: at once when the channel for it is open, else when it opens.
    pub(crate) fn fail(
        &mut self,
        now: Instant,
        cause: CloseCause,
        code: &'static str,
        message: &'static str,
        io: &mut Io,
    ) {
        if self.ending.is_some() {
            return;
        }
        self.ending = Some(Ending { at: now + WAIT_FOR_CHANNEL, cause, error: Some((code, message)) });
        if self.events.is_some() {
            self.say_error(now, io);
        }
    }

    /// Ends the call once what was said has had time to arrive.
    pub(crate) fn end_soon(&mut self, now: Instant, cause: CloseCause) {
        self.ending.get_or_insert(Ending { at: now + LINGER, cause, error: None });
    }

    /// The close that is due.
    pub(crate) fn ended(&self, now: Instant) -> Option<CloseCause> {
        self.ending.as_ref().filter(|ending| ending.at <= now).map(|ending| ending.cause)
    }

    /// Puts due frames on the wire, as far as the turn's budget goes, and tells the transceiver about it.
    pub(crate) fn play(&mut self, now: Instant, budget: &mut u32, io: &mut Io) {
        if !self.plays() {
            return;
        }
        let codec = self.downlink_codec();
        let mut payload = io.buffer();
        while *budget > 0 {
            let Side::Remote(remote) = &mut self.side else { break };
            // What the client sends meanwhile, feedback above all, makes no frame leave before its tick.
            if io.tick(remote.playout.next_slot()) > now {
                break;
            }
            let Some(due) = remote.playout.poll_frame(now, &mut payload) else { break };
            *budget -= 1;
            code_silence(codec, &mut payload);
            let frame = OutgoingFrame {
                codec,
                rtp_timestamp: due.rtp_timestamp,
                marker: due.marker,
                payload: &payload,
                label: due.utterance,
                samples: due.samples,
            };
            self.send_media(now, frame, io);
        }
        io.recycle(payload);
        if let Side::Remote(remote) = &mut self.side {
            let rtc = &self.rtc;
            remote.tell_playout(now, |utterance| rtc.downlink(utterance), io);
        }
    }

    pub(crate) fn drain_transmits(&mut self, io: &mut Io) {
        let mut buffer = io.buffer();
        while let Some(transmit) = self.rtc.poll_transmit(&mut buffer) {
            let next = io.buffer();
            io.transmit(transmit.path, std::mem::replace(&mut buffer, next));
        }
        io.recycle(buffer);
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, io: &mut Io) {
        if self.rtc.poll_timeout().is_some_and(|at| at <= now) {
            self.rtc.handle_timeout(now);
        }
        if let Side::Remote(remote) = &mut self.side {
            remote.handle_timeout(now, &self.call, io);
        }
        if self.ends_at.take_if(|at| *at <= now).is_some() {
            let message = "Your session hit its maximum duration.";
            self.fail(now, CloseCause::TimeLimit, "session_expired", message, io);
        }
    }

    /// Frames are due on the worker's ticks, so that those of many sessions leave together.
    pub(crate) fn poll_timeout(&self, io: &Io) -> Option<Instant> {
        let remote = match &self.side {
            Side::Remote(remote) if self.plays() => remote.poll_timeout().map(|at| io.tick(at)),
            Side::Remote(remote) => match remote.state() {
                State::Waiting(at) => Some(at),
                _ => None,
            },
            Side::Echo(_) => None,
        };
        let ending = self.ending.as_ref().map(|ending| ending.at);
        [self.rtc.poll_timeout(), remote, ending, self.ends_at].into_iter().flatten().min()
    }

    /// The first word is kept: nothing is played before the client can hear it.
    fn plays(&self) -> bool {
        self.connected && self.ending.is_none()
    }

    /// What transceivers send: they are told of the client's codec when they are asked.
    fn downlink_codec(&self) -> Codec {
        self.rtc.codec().unwrap_or(Codec::Opus)
    }

    fn channel_opened(&mut self, now: Instant, channel: ChannelId, label: String, io: &mut Io) {
        if label == events::CHANNEL_LABEL {
            self.events = Some(channel);
            if matches!(self.side, Side::Echo(_)) {
                let created = events::session_created(self.id.0, &self.call.model);
                self.send_message(now, channel, MessageKind::Text, created.as_bytes(), io);
            }
            self.say_error(now, io);
        }
        let opened = ChannelOpened { channel: u32::from(channel.0), label };
        self.tell(edge_message::Kind::ChannelOpened(opened), io);
    }

    fn say_error(&mut self, now: Instant, io: &mut Io) {
        let Some(channel) = self.events else { return };
        let Some(ending) = &mut self.ending else { return };
        let Some((code, message)) = ending.error.take() else { return };
        ending.at = now + LINGER;
        let event = events::error(self.id.0, code, message);
        self.send_message(now, channel, MessageKind::Text, event.as_bytes(), io);
    }

    fn send_media(&mut self, now: Instant, frame: OutgoingFrame<'_>, io: &mut Io) {
        let mut datagram = io.buffer();
        match self.rtc.send_media(now, frame, &mut datagram) {
            Ok(path) => {
                io.stats.media_sent += 1;
                if let Some(second) = self.rtc.duplicate(now, datagram.len()) {
                    let mut copy = io.buffer();
                    copy.clear();
                    copy.extend_from_slice(&datagram);
                    io.stats.media_duplicated += 1;
                    io.transmit(second, copy);
                }
                io.transmit(path, datagram);
            }
            // A client that only speaks, or left a moment ago.
            Err(_) => io.recycle(datagram),
        }
    }

    fn tell(&mut self, kind: edge_message::Kind, io: &mut Io) {
        if let Side::Remote(remote) = &mut self.side {
            remote.message(kind, io);
        }
    }
}

/// The pacer's silence, which is Opus, as the client takes it: 20 ms of the byte of zero, which no G.711 reply is short enough
/// to be taken for.
fn code_silence(codec: Codec, payload: &mut Vec<u8>) {
    let zero = match codec {
        Codec::Pcmu => 0xff,
        Codec::Pcma => 0xd5,
        Codec::Opus | Codec::Red | Codec::TelephoneEvent => return,
    };
    if payload[..] == SILENCE {
        payload.clear();
        payload.resize(160, zero);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_20_ms_of_the_clients_codec_and_speech_is_left_alone() {
        let coded = |codec, payload: &[u8]| {
            let mut payload = payload.to_vec();
            code_silence(codec, &mut payload);
            payload
        };
        assert_eq!(coded(Codec::Opus, &SILENCE), SILENCE);
        assert_eq!(coded(Codec::Pcmu, &SILENCE), [0xff; 160]);
        assert_eq!(coded(Codec::Pcma, &SILENCE), [0xd5; 160]);
        assert_eq!(coded(Codec::Pcma, &[7; 160]), [7; 160]);
    }
}
