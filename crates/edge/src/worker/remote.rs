//! A session's other side: the transceiver that hears it, or is being asked to.

use std::time::{Duration, Instant};

use link::datagram::{ClientView, Codec, MediaUp, PlayoutReport, Previous, Seen};
use link::ids::{Epoch, SessionId, Slot, TransceiverId};
use link::proto::{
    Clip, Closed, EdgeMessage, OpenRequest, OversizeFrame, PlayoutEffect, ReflexPause, ReflexSettings, ReleaseRequest,
    edge_message, playout_effect,
};
use rtc::{DownlinkView, MediaFrame};

use super::held::Held;
use super::io::{Io, Output};
use super::playout::{EffectKind, Playout};
use super::reflex::Reflex;
use crate::directory::CallInfo;
use crate::seats::Seat;

/// From the first refusal on, the time in which a call is offered elsewhere.
const RETRY_WINDOW: Duration = Duration::from_millis(500);

/// Before the same transceiver is asked again, because there is no other: a seat that was just given back there may
/// still be on its way.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// How far the call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Open is on its way.
    Opening,
    /// Open failed; the next attempt is due then.
    Waiting(Instant),
    /// The transceiver hears the session under this number.
    Open(Slot),
    /// Over.
    Ended,
}

/// The transceiver side of a session.
pub(crate) struct Remote {
    session: SessionId,
    seat: Seat,
    epoch: Epoch,
    state: State,
    held: Held,
    pub(crate) playout: Playout,
    reflex: Reflex,
    last_clip: u32,
    /// The last frame to the transceiver, while the link repeats.
    previous: Previous,
    /// Of frames that come by datagrams.
    direct: Direct,
    first_failure: Option<Instant>,
    tried: Vec<TransceiverId>,
}

impl Remote {
    /// Asks the transceiver of `seat` to take the call.
    pub(crate) fn open(
        now: Instant,
        session: SessionId,
        seat: Seat,
        call: &CallInfo,
        reflex: Reflex,
        io: &mut Io,
    ) -> Self {
        let remote = Self {
            session,
            seat,
            epoch: Epoch::FIRST,
            state: State::Opening,
            held: Held::default(),
            playout: Playout::new(now),
            reflex,
            last_clip: 0,
            previous: Previous::default(),
            direct: Direct::default(),
            first_failure: None,
            tried: Vec::new(),
        };
        remote.ask(call, io);
        remote
    }

    pub(crate) fn transceiver(&self) -> TransceiverId {
        self.seat.transceiver()
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn slot(&self) -> Option<Slot> {
        match self.state {
            State::Open(slot) => Some(slot),
            _ => None,
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// The transceiver took the call: what was held follows.
    pub(crate) fn opened(&mut self, now: Instant, slot: Slot, io: &mut Io) {
        self.state = State::Open(slot);
        let (messages, frames) = self.held.take();
        for message in messages {
            self.send(message, io);
        }
        for held in frames {
            let frame = MediaFrame {
                codec: held.codec,
                seq: held.seq,
                rtp_timestamp: held.rtp_timestamp,
                marker: held.marker,
                audio_level: held.audio_level,
                payload: &held.payload,
            };
            self.forward(now, slot, held.arrived, frame, io);
        }
    }

    /// Open failed. `false` when nobody else can be asked in time.
    #[must_use]
    pub(crate) fn open_failed(&mut self, now: Instant, call: &CallInfo, io: &mut Io) -> bool {
        // An Open whose answer was lost may have succeeded.
        self.release("open_failed", io);
        let first = *self.first_failure.get_or_insert(now);
        if now >= first + RETRY_WINDOW {
            self.state = State::Ended;
            return false;
        }
        self.tried.push(self.seat.transceiver());
        self.epoch = self.epoch.next();
        if let Some(seat) = self.seat.take_other(&call.model, &self.tried) {
            self.seat = seat;
            self.state = State::Opening;
            self.ask(call, io);
        } else {
            self.state = State::Waiting(now + RETRY_PAUSE);
        }
        true
    }

    /// Asks again, when that is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant, call: &CallInfo, io: &mut Io) {
        if let State::Waiting(at) = self.state
            && at <= now
        {
            self.tried.clear();
            if let Some(seat) = self.seat.take_other(&call.model, &[self.seat.transceiver()]) {
                self.seat = seat;
            }
            self.state = State::Opening;
            self.ask(call, io);
        }
        if self.reflex.timed_out(now) {
            io.stats.reflex_timed_out += 1;
            self.playout.resume(now, None);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let retry = match self.state {
            State::Waiting(at) => Some(at),
            _ => None,
        };
        [retry, self.playout.poll_timeout(), self.reflex.poll_timeout()].into_iter().flatten().min()
    }

    /// A frame from the client.
    pub(crate) fn media(&mut self, now: Instant, frame: MediaFrame<'_>, io: &mut Io) {
        match self.state {
            State::Open(slot) => {
                self.forward(now, slot, now, frame, io);
                if let Some(level) = frame.audio_level {
                    self.hear(now, level, io);
                }
            }
            State::Opening | State::Waiting(_) => {
                if !self.held.frame(now, frame) {
                    io.stats.held_dropped += 1;
                }
            }
            State::Ended => {}
        }
    }

    /// The edge reflex.
    fn hear(&mut self, now: Instant, level: u8, io: &mut Io) {
        if !self.reflex.hear(now, level, self.playout.is_playing()) {
            return;
        }
        let Some((utterance, sent)) = self.playout.hold(now) else { return };
        io.stats.reflex_held += 1;
        let pause = ReflexPause { utterance, sent, level: level.into() };
        self.message(edge_message::Kind::Reflex(pause), io);
    }

    /// Playout holds, by the transceiver's will.
    pub(crate) fn pause(&mut self, now: Instant) {
        self.reflex.confirmed();
        self.playout.pause(now);
    }

    /// Playout goes on, from an earlier sample if one is given.
    pub(crate) fn resume(&mut self, now: Instant, from: Option<u64>) {
        self.reflex.ended(now);
        self.playout.resume(now, from);
    }

    /// Playout of everything up to an utterance is dropped.
    pub(crate) fn flush(&mut self, now: Instant, up_to: u32) {
        self.reflex.flushed();
        self.playout.flush(now, up_to);
    }

    /// What the transceiver wants of the reflex.
    pub(crate) fn set_reflex(&mut self, settings: ReflexSettings) {
        self.reflex.set(settings.enabled, settings.muted);
    }

    /// Sound beside the conversation.
    pub(crate) fn clip(&mut self, now: Instant, clip: Clip) {
        // A stream says everything once; what comes again is no clip of this call.
        if clip.id > self.last_clip {
            self.last_clip = clip.id;
            self.playout.play_clip(now, clip.frames);
        }
    }

    /// A frame that came by datagram: its RTP timestamp and marker on the client's media clock. `None`: it came before.
    pub(crate) fn direct(&mut self, now: Instant, frame: &MediaUp<'_>) -> Option<(u32, bool)> {
        self.direct.seen.fresh(frame.seq).then(|| self.direct.place(self.playout.rtp_now(now), frame.rtp_timestamp))
    }

    /// Something to say on the session stream.
    pub(crate) fn message(&mut self, kind: edge_message::Kind, io: &mut Io) {
        let message = EdgeMessage { kind: Some(kind) };
        match self.state {
            State::Open(_) => self.send(message, io),
            State::Opening | State::Waiting(_) => {
                if !self.held.message(message) {
                    io.stats.held_dropped += 1;
                }
            }
            State::Ended => {}
        }
    }

    /// Tells the transceiver what became of playout.
    ///
    /// `view` tells what is known of the way to the client and of an utterance on it.
    pub(crate) fn tell_playout(&mut self, now: Instant, view: impl Fn(u32) -> Option<DownlinkView>, io: &mut Io) {
        while let Some(effect) = self.playout.poll_effect() {
            let kind = match effect.kind {
                EffectKind::Started => playout_effect::Kind::Started,
                EffectKind::Paused => playout_effect::Kind::Paused,
                EffectKind::Resumed => playout_effect::Kind::Resumed,
                EffectKind::Flushed => playout_effect::Kind::Flushed,
                EffectKind::Finished => playout_effect::Kind::Finished,
                EffectKind::Underrun => playout_effect::Kind::Underrun,
            };
            let client = Some(effect.utterance).filter(|_| effect.kind == EffectKind::Flushed).and_then(&view);
            let (arrived, lost) = client.map_or((0, 0), |client| (client.arrived, client.lost));
            let effect =
                PlayoutEffect { kind: kind.into(), utterance: effect.utterance, sent: effect.sent, arrived, lost };
            self.message(edge_message::Kind::Playout(effect), io);
        }
        let Some(slot) = self.slot() else { return };
        if let Some(report) = self.playout.poll_report(now) {
            let report = PlayoutReport {
                slot,
                epoch: self.epoch.low8(),
                utterance: link::ids::UtteranceId(report.utterance),
                sent: report.sent,
                limit: report.limit,
                queue_ms: report.queue_ms,
                underruns: report.underruns,
                client: view(report.utterance).map(|view| ClientView {
                    rtt_us: view.rtt_us,
                    delay_us: view.delay_us,
                    arrived: view.arrived,
                    lost: view.lost,
                    loss: view.loss,
                    told: view.told,
                    transport_wide: view.transport_wide,
                }),
            };
            io.report(now, self.transceiver(), &report);
        }
    }

    /// Ends the call at the transceiver.
    pub(crate) fn end(&mut self, reason: &str, io: &mut Io) {
        if self.state == State::Ended {
            return;
        }
        if matches!(self.state, State::Open(_)) {
            let closed = edge_message::Kind::Closed(Closed { reason: reason.to_owned() });
            self.send(EdgeMessage { kind: Some(closed) }, io);
        }
        self.release(reason, io);
        self.state = State::Ended;
    }

    /// The transceiver is gone: there is nobody to tell.
    pub(crate) fn lost(&mut self) {
        self.state = State::Ended;
    }

    fn ask(&self, call: &CallInfo, io: &mut Io) {
        io.output(Output::Open {
            transceiver: self.transceiver(),
            request: OpenRequest {
                session: self.session.0,
                epoch: self.epoch.0,
                call_id: self.session.to_string(),
                model: call.model.clone(),
                session_config: call.session_config.clone(),
                created_at: call.created_at,
                // The driver's to say: it has the config of the link.
                downlink: 0,
                ticket_expires: call.terms.ticket_expires,
                nack: call.audio.nack,
                codec: codec(call.audio.codec).number().into(),
                tenant: call.terms.tenant.into(),
                ..OpenRequest::default()
            },
        });
    }

    fn release(&self, reason: &str, io: &mut Io) {
        io.output(Output::Release {
            transceiver: self.transceiver(),
            request: ReleaseRequest { session: self.session.0, epoch: self.epoch.0, reason: reason.to_owned() },
        });
    }

    fn send(&self, message: EdgeMessage, io: &mut Io) {
        io.output(Output::Message {
            transceiver: self.transceiver(),
            session: self.session,
            epoch: self.epoch,
            message,
        });
    }

    fn forward(&mut self, now: Instant, slot: Slot, arrived: Instant, frame: MediaFrame<'_>, io: &mut Io) {
        let age = now.saturating_duration_since(arrived).as_micros();
        let up = MediaUp {
            slot,
            epoch: self.epoch.low8(),
            codec: codec(frame.codec),
            marker: frame.marker,
            seq: frame.seq,
            rtp_timestamp: frame.rtp_timestamp,
            audio_level: frame.audio_level,
            age_us: u32::try_from(age).unwrap_or(u32::MAX),
            payload: frame.payload,
        };
        if io.repeats(self.transceiver()) {
            let now_us = io.micros(now);
            let transceiver = self.seat.transceiver();
            if let Some(again) = self.previous.before(now_us, &up)
                && io.frame(now, transceiver, &again)
            {
                io.stats.repeated += 1;
            }
            self.previous.keep(now_us, &up);
        } else {
            self.previous.forget();
        }
        if !io.frame(now, self.transceiver(), &up) {
            // 120 ms with copies is larger than any datagram.
            let oversize = OversizeFrame {
                seq: u32::from(frame.seq),
                rtp_timestamp: frame.rtp_timestamp,
                payload: frame.payload.to_vec(),
                codec: codec(frame.codec).number().into(),
            };
            let kind = edge_message::Kind::OversizeFrame(oversize);
            self.send(EdgeMessage { kind: Some(kind) }, io);
        }
    }
}

/// What a client's packet is on the link.
fn codec(codec: rtc::Codec) -> Codec {
    match codec {
        rtc::Codec::Opus => Codec::Opus,
        rtc::Codec::Red => Codec::Red,
        rtc::Codec::Pcmu => Codec::Pcmu,
        rtc::Codec::Pcma => Codec::Pcma,
        rtc::Codec::TelephoneEvent => Codec::TelephoneEvent,
    }
}

/// The place of frames that come by datagrams on the client's media clock: the distances between them are the sender's, the
/// beginning is ours. There is no pacer: each leaves as it comes.
#[derive(Debug, Default)]
struct Direct {
    seen: Seen,
    /// Media clock and the sender's sample of one frame.
    anchor: Option<(u32, u32)>,
}

impl Direct {
    /// Sender and clock may be this far apart, 200 ms, before a frame begins a new talkspurt: silence of the sender's,
    /// or a queue that built up and ran empty.
    const APART: u32 = 9_600;

    fn place(&mut self, clock: u32, sample: u32) -> (u32, bool) {
        if let Some((anchor, first)) = self.anchor {
            let timestamp = anchor.wrapping_add(sample.wrapping_sub(first));
            if timestamp.wrapping_sub(clock).min(clock.wrapping_sub(timestamp)) <= Self::APART {
                return (timestamp, false);
            }
        }
        self.anchor = Some((clock, sample));
        (clock, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_keep_their_distance_until_sender_and_clock_are_apart() {
        let mut direct = Direct::default();
        let clock = u32::MAX - 500;
        assert_eq!(direct.place(clock, 7), (clock, true));
        assert_eq!(direct.place(clock.wrapping_add(1500), 967), (clock.wrapping_add(960), false));
        assert_eq!(direct.place(clock.wrapping_add(1500), 7), (clock, false), "late, and in its place");
        let after_silence = clock.wrapping_add(50_000);
        assert_eq!(direct.place(after_silence, 1927), (after_silence, true));
        assert_eq!(direct.place(after_silence.wrapping_add(900), 2887), (after_silence.wrapping_add(960), false));
    }
}
