//! One call: a dialogue, its API session and its backend, composed. Pure: time and seed are arguments.
//!
//! Run loop: after every `handle_*` poll [`Call::poll_output`] until it is empty, then call [`Call::handle_timeout`] at
//! [`Call::poll_timeout`]. After [`CallOutput::Ended`] nothing comes any more.
//!
//! Invariant: frames and messages of another epoch or another channel change nothing; whatever the edge sends, the call
//! ends only by [`EdgeMessage`] `Closed`, by [`Call::close`], when the API says so (its time is up, its client floods it) or with its owner.

mod channel;
mod dialogue;
mod streamed;
#[cfg(test)]
mod tests;
mod words;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use backends::Backends;
use link::datagram::{Codec, MediaUp, PlayoutReport};
use link::ids::{Epoch, SessionId, Slot, UtteranceId};
use link::proto::{
    ChannelMessage, Close, EdgeMessage, OpenRequest, OversizeFrame, TransceiverMessage, Transport, UtteranceHeader,
    edge_message, transceiver_message,
};
use realtime::Dialect;
use voice::g711::Law;
use voice::{MediaFrame, StreamStats};

use crate::backend::{Loopback, Model, Models};
use crate::judge::Judges;
use crate::record::{CallName, Counts, SessionRecords, TurnRecord};
use channel::Channel;
use dialogue::Dialogue;
use streamed::Streamed;

/// The close code of a service that will be back (registered for RFC 6455 §11.7).
const SERVICE_RESTART: u32 = 1012;

/// What every call of a process is made with.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallConfig {
    /// Of the dialogue, before the client's own settings.
    pub voice: voice::Config,
    /// Who may answer.
    pub models: Models,
    /// Who judges whether turns are over, beside the backend.
    pub judge: Option<Judges>,
    /// Where models in other processes are reached.
    pub backends: Option<Backends>,
}

/// What a call wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum CallOutput {
    /// Send on the session stream.
    Message(TransceiverMessage),
    /// Send to whoever listens beside the client.
    Event(String),
    /// Open an utterance stream.
    UtteranceStart(UtteranceHeader),
    /// Send on the utterance's stream.
    UtteranceFrame {
        /// Which.
        utterance: UtteranceId,
        /// 48 kHz samples it lasts.
        samples: u32,
        /// One Opus packet.
        payload: Vec<u8>,
    },
    /// Finish the utterance's stream.
    UtteranceEnd {
        /// Which.
        utterance: UtteranceId,
    },
    /// Reset the utterance's stream: nobody will hear the rest.
    UtteranceReset {
        /// Which.
        utterance: UtteranceId,
    },
    /// The call is over; drop it.
    Ended,
}

/// What was counted in a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallStats {
    /// Media frames of the user's.
    pub media: u64,
    /// Frames and reports of another epoch.
    pub stale: u64,
    /// Media frames that are no Opus packets (loopback), or oversize frames without meaning.
    pub bad_media: u64,
    /// Messages on channels that carry no events, and messages without meaning.
    pub ignored_messages: u64,
    /// Events given up before the channel opened, or after it closed.
    pub dropped_events: u64,
    /// Of its audio, where that travels in events.
    pub stream: StreamStats,
}

/// One call.
pub struct Call {
    session: SessionId,
    model: Arc<str>,
    epoch: Epoch,
    began: Instant,
    slot: Slot,
    mode: Mode,
    api: realtime::Session,
    channel: Channel,
    outputs: VecDeque<CallOutput>,
    stats: CallStats,
    /// Somebody listens beside the client.
    attended: bool,
    ended: bool,
}

enum Mode {
    Dialogue(Box<Dialogue>),
    /// Audio travels in events.
    Streamed(Box<Streamed>),
    Loopback(Loopback),
}

impl Mode {
    fn new(
        now: Instant,
        config: &CallConfig,
        model: &Model,
        request: &OpenRequest,
        api: &realtime::Session,
        seed: u64,
    ) -> Self {
        let turn = words::turn_config(api.turn_detection());
        let voice = for_model(voice::Config { turn, ..config.voice.clone() }, model);
        let session = || backends::Session {
            name: format!("{:016x}", request.session),
            model: request.model.clone(),
            rate: voice.backend_rate,
        };
        let Some(backend) = model.open(config.backends.as_ref(), voice.backend_rate, seed, session) else {
            return Self::Loopback(Loopback::default());
        };
        let settings = api.model_settings();
        if request.transport() == Transport::Websocket {
            let mut streamed = Streamed::new(now, voice, backend);
            streamed.set_model(settings);
            return Self::Streamed(Box::new(streamed));
        }
        let mut dialogue = Dialogue::new(now, voice, backend);
        match u8::try_from(request.codec).ok().and_then(Codec::numbered) {
            Some(Codec::Pcmu) => dialogue.answer_in(Law::Mu),
            Some(Codec::Pcma) => dialogue.answer_in(Law::A),
            _ => {}
        }
        dialogue.set_model(settings);
        Self::Dialogue(Box::new(dialogue))
    }

    fn set_judge(&mut self, judges: &Judges) {
        match self {
            Self::Dialogue(dialogue) => dialogue.set_judge(judges.seat()),
            Self::Streamed(streamed) => streamed.set_judge(judges.seat()),
            Self::Loopback(_) => {}
        }
    }

    /// Tells the backend that the session is over.
    fn close(&mut self) {
        match self {
            Self::Dialogue(dialogue) => dialogue.close(),
            Self::Streamed(streamed) => streamed.close(),
            Self::Loopback(_) => {}
        }
    }
}

impl Call {
    /// Seats a call. A model not served here is answered by `parrot`, and `session.created` says so.
    #[must_use]
    pub fn new(now: Instant, mut config: CallConfig, request: &OpenRequest, slot: Slot, seed: u64) -> Self {
        config.voice.repair.nack = request.nack;
        let transport = match request.transport() {
            Transport::Unspecified => realtime::Transport::WebRtc,
            Transport::Websocket => realtime::Transport::WebSocket,
        };
        let (name, model) = match config.models.named(&request.model, seed) {
            // It returns packets, of which a WebSocket has none.
            Some(Model::Loopback) if transport == realtime::Transport::WebSocket => ("parrot", Model::Parrot),
            Some(model) => (request.model.as_str(), model),
            None => ("parrot", Model::Parrot),
        };
        let api = realtime::Session::new(
            now,
            &realtime::Config {
                seed,
                model: name.to_owned(),
                vad: words::api_vad(&config.voice),
                created_at: request.created_at,
                requested: request.session_config.clone(),
                transport,
                intent: match request.intent.as_str() {
                    "transcription" => realtime::Intent::Transcription,
                    _ => realtime::Intent::Conversation,
                },
                lifetime: lifetime(request),
                ..realtime::Config::default()
            },
        );
        let mut mode = Mode::new(now, &config, &model, request, &api, seed);
        if let Some(judges) = &config.judge {
            mode.set_judge(judges);
        }
        let mut call = Self {
            session: SessionId(request.session),
            model: name.into(),
            epoch: Epoch(request.epoch),
            began: now,
            slot,
            mode,
            api,
            channel: Channel::default(),
            outputs: VecDeque::new(),
            stats: CallStats::default(),
            attended: false,
            ended: false,
        };
        call.settle(now);
        call
    }

    /// A frame of the user's.
    pub fn handle_media(&mut self, now: Instant, media: &MediaUp<'_>) {
        if media.epoch != self.epoch.low8() {
            self.stats.stale += 1;
            return;
        }
        let frame = MediaFrame {
            codec: codec(media.codec),
            seq: media.seq,
            rtp_timestamp: media.rtp_timestamp,
            marker: media.marker,
            audio_level: media.audio_level,
            payload: media.payload,
        };
        self.media(now, frame, media.age_us);
    }

    /// A message of the edge's on the session stream.
    pub fn handle_message(&mut self, now: Instant, message: EdgeMessage) {
        if self.ended {
            return;
        }
        match message.kind {
            Some(edge_message::Kind::ChannelOpened(opened)) => {
                self.channel.opened(opened.channel, &opened.label, &mut self.outputs);
            }
            Some(edge_message::Kind::ChannelMessage(message)) if self.channel.carries_events(message.channel) => {
                self.client_event(now, message);
            }
            Some(edge_message::Kind::ChannelClosed(closed)) => self.channel.closed(closed.channel),
            Some(edge_message::Kind::Playout(effect)) => {
                if let Mode::Dialogue(dialogue) = &mut self.mode
                    && !dialogue.playout_effect(now, &effect)
                {
                    self.stats.ignored_messages += 1;
                }
            }
            Some(edge_message::Kind::Reflex(reflex)) => {
                if let Mode::Dialogue(dialogue) = &mut self.mode {
                    dialogue.reflex(now, &reflex);
                }
            }
            Some(edge_message::Kind::OversizeFrame(frame)) => self.oversize(now, &frame),
            Some(edge_message::Kind::Closed(_)) => return self.end(),
            Some(edge_message::Kind::Connected(_)) => {}
            Some(edge_message::Kind::ChannelMessage(_)) | None => self.stats.ignored_messages += 1,
        }
        self.settle(now);
    }

    /// Whether somebody listens beside the client. Whoever comes hears what happens from then on.
    pub fn attend(&mut self, attended: bool) {
        self.attended = attended;
    }

    /// An event of somebody who is attached to the call.
    pub fn handle_attached(&mut self, now: Instant, message: ChannelMessage) {
        if !self.ended {
            self.client_event(now, message);
            self.settle(now);
        }
    }

    /// A playout report of the edge's.
    pub fn handle_report(&mut self, now: Instant, report: &PlayoutReport) {
        if report.epoch != self.epoch.low8() {
            self.stats.stale += 1;
            return;
        }
        if let Mode::Dialogue(dialogue) = &mut self.mode
            && !self.ended
        {
            dialogue.report(now, report);
            self.settle(now);
        }
    }

    /// The link to the edge is congested, or no longer: speech is encoded with fewer bits meanwhile.
    pub fn set_congested(&mut self, congested: bool) {
        if let Mode::Dialogue(dialogue) = &mut self.mode {
            dialogue.set_congested(congested);
        }
    }

    /// Who is woken when something came from a backend elsewhere, for [`Call::handle_woken`].
    pub fn set_waker(&mut self, now: Instant, waker: Waker) {
        match &mut self.mode {
            Mode::Dialogue(dialogue) => dialogue.set_waker(waker),
            Mode::Streamed(streamed) => streamed.set_waker(waker),
            Mode::Loopback(_) => {}
        }
        // The alarm is set by looking.
        self.handle_woken(now);
    }

    /// Something came from its backend.
    pub fn handle_woken(&mut self, now: Instant) {
        if !self.ended {
            self.settle(now);
        }
    }

    /// What is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.ended {
            return;
        }
        self.api.handle_timeout(now);
        match &mut self.mode {
            Mode::Dialogue(dialogue) => dialogue.timeout(now),
            Mode::Streamed(streamed) => streamed.timeout(now),
            Mode::Loopback(_) => {}
        }
        self.settle(now);
    }

    /// Ends the call because this side stops; the edge ends the client's connection, and clients of a WebSocket know that they may come again.
    pub fn close(&mut self, reason: &str) {
        self.close_with(SERVICE_RESTART, reason);
    }

    /// `code`: of a WebSocket (RFC 6455 §7.4).
    fn close_with(&mut self, code: u32, reason: &str) {
        if !self.ended {
            let close = transceiver_message::Kind::Close(Close { reason: reason.to_owned(), code });
            self.outputs.push_back(CallOutput::Message(TransceiverMessage { kind: Some(close) }));
            self.end();
        }
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<CallOutput> {
        self.outputs.pop_front()
    }

    /// When [`Call::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.ended {
            return None;
        }
        let dialogue = match &self.mode {
            Mode::Dialogue(dialogue) => dialogue.poll_timeout(),
            Mode::Streamed(streamed) => streamed.poll_timeout(),
            Mode::Loopback(_) => None,
        };
        dialogue.into_iter().chain(self.api.poll_timeout()).min()
    }

    /// The parts of a turn's delay, when they are complete.
    pub fn poll_timing(&mut self) -> Option<voice::TurnTiming> {
        match &mut self.mode {
            Mode::Dialogue(dialogue) => dialogue.poll_timing(),
            Mode::Streamed(streamed) => streamed.poll_timing(),
            Mode::Loopback(_) => None,
        }
    }

    /// How long the client waited for the first of a response, where its audio travels in events.
    pub fn poll_first_delta(&mut self) -> Option<Duration> {
        match &mut self.mode {
            Mode::Streamed(streamed) => streamed.poll_first_delta(),
            Mode::Dialogue(_) | Mode::Loopback(_) => None,
        }
    }

    /// The next record of a turn that is over.
    pub fn poll_record(&mut self) -> Option<Arc<TurnRecord>> {
        match &mut self.mode {
            Mode::Dialogue(dialogue) => dialogue.recorder.poll(),
            Mode::Streamed(streamed) => streamed.recorder.poll(),
            Mode::Loopback(_) => None,
        }
    }

    /// What happened so far, the turns that go on included.
    pub(crate) fn records(&self) -> SessionRecords {
        let (given_up, turns) = match &self.mode {
            Mode::Dialogue(dialogue) => (dialogue.recorder.given_up(), dialogue.recorder.all(dialogue.counts())),
            Mode::Streamed(streamed) => (streamed.recorder.given_up(), streamed.recorder.all(Counts::default())),
            Mode::Loopback(_) => (0, Vec::new()),
        };
        let state = match &self.mode {
            Mode::Dialogue(dialogue) => Some(dialogue.state()),
            Mode::Streamed(streamed) => Some(streamed.state()),
            Mode::Loopback(_) => None,
        };
        SessionRecords {
            session: self.session,
            model: Arc::clone(&self.model),
            live: !self.ended,
            state,
            began: self.began,
            ended: None,
            given_up,
            turns,
        }
    }

    /// Nobody is there any more: nothing is sent, and the records of its turns are complete.
    pub(crate) fn abandon(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.mode.close();
        }
    }

    /// Who answers, by name.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    pub(crate) fn name(&self) -> CallName {
        CallName { session: self.session, epoch: self.epoch, model: Arc::clone(&self.model) }
    }

    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// What was counted so far.
    #[must_use]
    pub fn stats(&self) -> CallStats {
        let stream = match &self.mode {
            Mode::Streamed(streamed) => streamed.stats(),
            Mode::Dialogue(_) | Mode::Loopback(_) => StreamStats::default(),
        };
        CallStats { dropped_events: self.channel.dropped(), stream, ..self.stats }
    }

    /// Whose call it is.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    fn client_event(&mut self, now: Instant, message: ChannelMessage) {
        match String::from_utf8(message.data) {
            Ok(text) if !message.binary => self.api.handle_client(now, &text),
            _ => self.api.handle_client_binary(now),
        }
    }

    fn media(&mut self, now: Instant, frame: MediaFrame<'_>, age_us: u32) {
        if self.ended {
            return;
        }
        self.stats.media += 1;
        match &mut self.mode {
            Mode::Dialogue(dialogue) => {
                dialogue.media(now, frame, age_us);
                self.settle(now);
            }
            // Its client has no packets.
            Mode::Streamed(_) => self.stats.bad_media += 1,
            Mode::Loopback(loopback) => {
                let utterance = UtteranceId(1);
                let Some(echo) = loopback.echo(&frame) else {
                    self.stats.bad_media += 1;
                    return;
                };
                if echo.first {
                    let header = self.header(utterance, String::new());
                    self.outputs.push_back(CallOutput::UtteranceStart(header));
                }
                let payload = echo.payload.to_vec();
                self.outputs.push_back(CallOutput::UtteranceFrame { utterance, samples: echo.samples, payload });
            }
        }
    }

    fn oversize(&mut self, now: Instant, frame: &OversizeFrame) {
        let coded = u8::try_from(frame.codec).ok().and_then(Codec::numbered);
        let (Ok(seq), Some(coded)) = (u16::try_from(frame.seq), coded) else {
            self.stats.bad_media += 1;
            return;
        };
        let (rtp_timestamp, payload) = (frame.rtp_timestamp, frame.payload.as_ref());
        let codec = codec(coded);
        let frame = MediaFrame { codec, seq, rtp_timestamp, marker: false, audio_level: None, payload };
        self.media(now, frame, 0);
    }

    /// Lets dialogue, API and backend talk until none has more to say, then sends what the client is to be told.
    fn settle(&mut self, now: Instant) {
        match &mut self.mode {
            Mode::Dialogue(dialogue) => {
                let (slot, epoch) = (self.slot, self.epoch);
                let outputs = &mut self.outputs;
                dialogue.settle(now, &mut self.api, |utterance, item| header(slot, epoch, utterance, item), outputs);
            }
            Mode::Streamed(streamed) => streamed.settle(now, &mut self.api),
            Mode::Loopback(_) => {
                while let Some(command) = self.api.poll_command() {
                    words::refuse(&mut self.api, &command);
                }
            }
        }
        while let Some(event) = self.api.poll_event() {
            if self.attended {
                self.outputs.push_back(CallOutput::Event(event.clone()));
            }
            self.channel.send(event, &mut self.outputs);
        }
        if let Some(close) = self.api.closing() {
            let (code, reason) = (close.code.into(), close.reason.clone());
            self.close_with(code, &reason);
        }
    }

    fn header(&self, utterance: UtteranceId, item: String) -> UtteranceHeader {
        header(self.slot, self.epoch, utterance, item)
    }

    fn end(&mut self) {
        self.ended = true;
        self.mode.close();
        self.outputs.push_back(CallOutput::Ended);
    }
}

/// The dialogue's settings as a model wants them.
fn for_model(voice: voice::Config, model: &Model) -> voice::Config {
    match model {
        Model::Monologue => voice::Config { turn: words::one_sided(&voice), ..voice },
        Model::Remote(remote) => voice::Config {
            backend_rate: remote.rate,
            duplex_silence_ms: remote.duplex_silence_ms,
            response_timeout_ms: remote.response_timeout_ms.unwrap_or(voice.response_timeout_ms),
            ..voice
        },
        Model::Parrot | Model::Loopback | Model::Script(_) => voice,
    }
}

/// How long the API lets a session last. The edge of a WebRTC call ends it by itself.
fn lifetime(request: &OpenRequest) -> Duration {
    match request.max_seconds {
        seconds if seconds > 0 && request.transport() == Transport::Websocket => {
            realtime::LIFETIME.min(Duration::from_secs(seconds.into()))
        }
        _ => realtime::LIFETIME,
    }
}

/// What a frame of the link is to a conversation.
fn codec(codec: Codec) -> voice::Codec {
    match codec {
        Codec::Opus => voice::Codec::Opus,
        Codec::Red => voice::Codec::Red,
        Codec::Pcmu => voice::Codec::Pcmu,
        Codec::Pcma => voice::Codec::Pcma,
        Codec::TelephoneEvent => voice::Codec::TelephoneEvent,
    }
}

fn header(slot: Slot, epoch: Epoch, utterance: UtteranceId, item: String) -> UtteranceHeader {
    UtteranceHeader { slot: slot.0, epoch: epoch.0, utterance: utterance.0, item, first_sample: 0 }
}
