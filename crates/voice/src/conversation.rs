//! One dialogue: the parts of this crate composed, and what the agent does.

mod uplink;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::client::ClientDelay;
use crate::config::{Config, TurnConfig};
use crate::decision::{DecisionKind, InterruptSource, Profile};
use crate::duplex::Duplex;
use crate::ear::Ear;
use crate::echo::Suspicion;
use crate::keys::Keys;
use crate::opus;
use crate::outgoing::{News, Outgoing, OutgoingStats, Report};
use crate::repair::{Piece, Repair, RepairStats, Source};
use crate::timbre::Timbre;
use crate::timing::{Heard, PendingTiming};
use crate::turn::{Action, Frame, Reply, State, Turns};
use crate::types::{
    AgentAudio, BackendInput, BackendOutput, Balance, Event, FlushReason, Output, Playout, ResponseId, TurnId,
    TurnVerdict, WordTime,
};
use crate::verdict::{Judge, Judging};
use crate::way::Ways;

/// Audio ahead of a push to talk, in 48 kHz samples: 300 ms.
const PUSH_TO_TALK: u64 = 300 * 48;

/// Packets of one clip: 2 s.
const MAX_CLIP: usize = 100;

/// Counts of one conversation, for metrics and `explain`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// The user's packets.
    pub repair: RepairStats,
    /// The replies.
    pub outgoing: OutgoingStats,
    /// Pieces that libopus could not decode; silence took their place.
    pub undecodable: u64,
    /// Backend output of a response that is cancelled or unknown.
    pub orphans: u64,
    /// Backchannels of the backend's that came while the user did not speak.
    pub clips_dropped: u64,
    /// Samples, at the backend's rate, that a manual turn had no room for.
    pub manual_overflow: u64,
    /// Reports of the client's playout delay that came too soon after the one before.
    pub hasty_client_delays: u64,
}

/// One conversation. See the crate's documentation for how to drive it.
#[derive(Debug)]
pub struct Conversation {
    pub(crate) config: Config,
    /// Latest instant given; settings come without one.
    now: Instant,
    repair: Repair,
    keys: Keys,
    ear: Ear,
    timbre: Timbre,
    turns: Turns,
    judging: Judging,
    outgoing: Outgoing,
    ways: Ways,
    out: VecDeque<Output>,
    /// As the edge was told.
    reflex_muted: bool,
    turn: Option<Turn>,
    last_turn: u64,
    /// Media time up to which audio went to the backend.
    given: u64,
    /// Media time up to which audio is part of an item.
    committed: u64,
    /// After a clear, where the next manual turn begins.
    reach: Option<u64>,
    generation: Option<Generation>,
    last_response: u64,
    /// The first reply, if nothing of the user's came before it.
    greeting: Option<ResponseId>,
    /// A turn ended while a response was active: it is answered after it.
    owed: Option<Heard>,
    /// Of the last voiced frame.
    voiced: Heard,
    timings: VecDeque<PendingTiming>,
    pub(crate) orphans: u64,
    clips_dropped: u64,
    manual_overflow: u64,
    client: ClientDelay,
    pub(crate) duplex: Duplex,
}

/// The running turn of the user's.
#[derive(Debug, Clone, Copy)]
struct Turn {
    id: TurnId,
    /// Media time of its first sample.
    start: u64,
}

/// The response a backend is making.
#[derive(Debug)]
struct Generation {
    response: ResponseId,
    /// Without audio until then it is given up.
    due: Instant,
    began: bool,
    /// Its audio is not wanted any more.
    muted: bool,
}

impl Conversation {
    /// Starts listening.
    #[must_use]
    #[expect(
        clippy::expect_used,
        reason = "the settings are bounded to what libopus takes; only its allocation could fail"
    )]
    pub fn new(now: Instant, config: Config) -> Self {
        let config = config.bounded();
        let turns = Turns::new(now, &config);
        let mut ear = Ear::new(config.backend_rate, config.enhance).expect("bounded decoder settings");
        ear.set_padding(padding_ms(&config.turn));
        ear.set_longest_doubt(config.interruption.longest_ms());
        // Said in any case: until then the edge's reflex is off.
        let reflex = Output::Reflex { enabled: config.interruption.reflex, muted: false };
        Self {
            now,
            repair: Repair::new(config.repair),
            keys: Keys::default(),
            ear,
            timbre: Timbre::new(),
            turns,
            judging: Judging::default(),
            outgoing: Outgoing::new(&config).expect("bounded encoder settings"),
            ways: Ways::default(),
            out: VecDeque::from([reflex]),
            reflex_muted: false,
            turn: None,
            last_turn: 0,
            given: 0,
            committed: 0,
            reach: None,
            generation: None,
            last_response: 0,
            greeting: None,
            owed: None,
            voiced: Heard { arrived: now, released: now, age_us: 0, decided: now },
            timings: VecDeque::new(),
            orphans: 0,
            clips_dropped: 0,
            manual_overflow: 0,
            client: ClientDelay::default(),
            duplex: Duplex::default(),
            config,
        }
    }

    /// Backend output.
    pub fn handle_backend(&mut self, now: Instant, output: BackendOutput) {
        match output {
            BackendOutput::Ready => {}
            BackendOutput::UserTranscript { text, is_final } => {
                let action = self.turns.words(&text, is_final);
                self.act_if(now, action);
            }
            BackendOutput::TurnVerdict(TurnVerdict::Complete { probability }) => {
                self.turns.complete_verdict(probability);
            }
            BackendOutput::TurnVerdict(TurnVerdict::Interruption { probability }) => {
                let action = self.turns.interruption_verdict(probability);
                self.act_if(now, action);
            }
            BackendOutput::ResponseStarted { response } => self.refresh(now, response),
            BackendOutput::Audio { response: ResponseId::UNASKED, audio } if self.is_duplex() => {
                self.unasked_audio(now, audio);
            }
            BackendOutput::Text { response: ResponseId::UNASKED, delta, words } if self.is_duplex() => {
                self.unasked_text(now, delta, &words);
            }
            BackendOutput::Audio { response, audio } => self.reply_audio(now, response, audio),
            BackendOutput::Backchannel { frames } => self.backchannel(frames),
            BackendOutput::Text { response, delta, words } => self.reply_text(now, response, delta, &words),
            BackendOutput::ResponseDone { response } if self.is_current(response) => self.finish(response),
            BackendOutput::ResponseDone { .. } => self.orphans += 1,
            BackendOutput::Closed => match self.generation.take() {
                Some(Generation { response, began: true, .. }) => self.finish(response),
                Some(Generation { response, .. }) => {
                    let message = "the backend closed before it gave any audio".to_owned();
                    self.event(Event::ResponseFailed { response, message });
                }
                None => {}
            },
            BackendOutput::Fault { message, .. } => match self.generation.take() {
                Some(generation) => {
                    self.outgoing.complete(generation.response);
                    self.event(Event::ResponseFailed { response: generation.response, message });
                }
                None => self.orphans += 1,
            },
        }
        self.settle(now);
    }

    /// Playout reports of the edge.
    pub fn handle_playout(&mut self, now: Instant, playout: Playout) {
        let at = self.ways.at_edge(now);
        let report = |sent, still| Report { sent, still, ..Report::default() };
        match playout {
            Playout::Started { utterance } => {
                if let Some(news) = self.outgoing.started(now, at, utterance) {
                    self.news(now, news);
                }
            }
            Playout::Paused { utterance, sent } => self.outgoing.report(now, at, utterance, report(sent, true)),
            Playout::Resumed { utterance, sent } => self.outgoing.report(now, at, utterance, report(sent, false)),
            Playout::Flushed { utterance, sent, received } => {
                while let Some(news) = self.outgoing.flushed(at, utterance, sent, received) {
                    self.news(now, news);
                }
            }
            Playout::Finished { utterance, sent } => {
                self.outgoing.report(now, at, utterance, report(sent, true));
                if let Some(news) = self.outgoing.finished(utterance) {
                    self.news(now, news);
                }
            }
            Playout::Underrun { utterance, sent } => self.outgoing.underrun(now, at, utterance, sent),
            Playout::Report { utterance, sent, limit, client } => {
                if let Some(view) = &client {
                    self.ways.client(view);
                    self.repair.set_round_trip(self.ways.round_trip());
                    self.outgoing.loss(now, view);
                }
                let received = client.map(|view| view.received).unwrap_or_default();
                self.outgoing.report(now, at, utterance, Report { sent, limit: Some(limit), received, still: false });
            }
            Playout::Reflex { utterance, sent } => {
                self.outgoing.report(now, at, utterance, report(sent, true));
                let action = self.turns.reflex(now);
                self.act_if(now, action);
            }
        }
        self.settle(now);
    }

    /// What is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.repair.poll_timeout().is_some_and(|due| due <= now) {
            let mut repair = std::mem::take(&mut self.repair);
            repair.handle_timeout(now, &mut |piece| self.hear(now, &piece));
            self.repair = repair;
        }
        let action = self.turns.handle_timeout(now);
        self.act_if(now, action);
        self.end_unasked(now);
        // A backend that waits because enough of the reply waits here is not late.
        let patience = (!self.outgoing.wants_audio()).then(|| self.patience(now));
        if let (Some(due), Some(generation)) = (patience, &mut self.generation) {
            generation.due = due;
        }
        if let Some(generation) = self.generation.take_if(|generation| generation.due <= now) {
            let response = generation.response;
            self.turns.note(DecisionKind::ResponseTimeout, InterruptSource::Timer);
            self.outgoing.complete(response);
            self.backend(BackendInput::Cancel { response });
            let message = format!("the backend gave no audio for {} ms", self.config.response_timeout_ms);
            self.event(Event::ResponseFailed { response, message });
        }
        if self.outgoing.is_stalled(now) {
            self.outgoing.stats.stalled += 1;
            self.turns.note(DecisionKind::PlayoutTimeout, InterruptSource::Timer);
            if let Some(response) = self.outgoing.current() {
                let message = "the edge reports no playout".to_owned();
                self.event(Event::ResponseFailed { response, message });
            }
            self.cut(now, FlushReason::ClientCancelled);
        }
        self.settle(now);
    }

    /// The client says that its user hears this much later than it receives; more than 2 s is taken as 2 s, and more than
    /// one report in 250 ms is none.
    pub fn set_client_delay(&mut self, now: Instant, delay_us: u32) {
        self.client.set(now, delay_us);
    }

    /// The client's playout delay as it last told it, in us. `None`: it tells none.
    #[must_use]
    pub fn client_delay_us(&self) -> Option<u32> {
        self.client.get()
    }

    /// The link to the edge is congested, or no longer: what follows is encoded with fewer bits meanwhile, and silence not sent.
    pub fn set_congested(&mut self, congested: bool) {
        self.outgoing.set_congested(congested);
    }

    /// New turn settings (session.update).
    pub fn set_turn(&mut self, turn: TurnConfig) {
        let turn = turn.bounded();
        self.ear.set_padding(padding_ms(&turn));
        let was_manual = self.is_manual();
        self.config.turn = turn.clone();
        let action = self.turns.set(turn);
        self.act_if(self.now, action);
        if was_manual && !self.is_manual() {
            self.turn = None;
        }
        self.settle(self.now);
    }

    /// Plugs in a judge of turn ends, for `semantic_vad`.
    pub fn set_judge(&mut self, judge: Box<dyn Judge>) {
        self.judging.set(judge);
    }

    /// Manual commit (input_audio_buffer.commit). `false`: the buffer is empty.
    pub fn commit(&mut self, now: Instant) -> bool {
        let Some(turn) = self.turn else { return false };
        let end = self.ear.end();
        self.give(end);
        let automatic = self.turns.end();
        // Speech that goes on over a commit began before the turn that has the rest of it.
        let span = automatic.or_else(|| self.turns.span()).filter(|(_, to)| *to > turn.start);
        let (from, to) = span.map_or((turn.start, end), |(from, to)| (from.max(turn.start), to));
        if automatic.is_some() {
            self.event(Event::SpeechStopped { turn: turn.id, audio_end_ms: to / 48 });
        }
        self.close_turn(turn, from, to);
        self.settle(now);
        true
    }

    /// Drops uncommitted audio (input_audio_buffer.clear). Without voice detection the last 300 ms of it begin the next turn:
    /// who pushes to talk speaks at once, and the audio is here before the client's event is.
    pub fn clear_input(&mut self, now: Instant) {
        // The backend drops it when the next turn begins.
        self.turn = None;
        self.turns.end();
        self.turns.forget_span();
        self.given = self.ear.end();
        let reach = self.given.saturating_sub(PUSH_TO_TALK).max(self.committed);
        self.reach = self.is_manual().then_some(reach);
        self.settle(now);
    }

    /// Asks for a response. `None`: one is active.
    pub fn create_response(&mut self, now: Instant) -> Option<ResponseId> {
        let response = self.respond(now);
        self.settle(now);
        response
    }

    /// Cancels the active response and its playout (response.cancel). `false`: none is active.
    pub fn cancel(&mut self, now: Instant) -> bool {
        if self.generation.is_none() {
            return false;
        }
        self.turns.note(DecisionKind::ClientCut, InterruptSource::Client);
        self.cut(now, FlushReason::ClientCancelled);
        self.settle(now);
        true
    }

    /// Drops what is playing (output_audio_buffer.clear). A response that is still being made goes on without sound.
    pub fn clear_output(&mut self, now: Instant) {
        if let Some(generation) = &mut self.generation {
            generation.muted |= generation.began;
        }
        if !self.outgoing.is_empty() {
            self.turns.note(DecisionKind::ClientCut, InterruptSource::Client);
        }
        self.flush(now, FlushReason::ClientCancelled);
        self.settle(now);
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// When [`Conversation::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let generation = self.generation.as_ref().map(|generation| generation.due);
        let unasked = self.duplex.due(self.config.duplex_silence_ms);
        [self.repair.poll_timeout(), self.turns.poll_timeout(), self.outgoing.poll_timeout(), generation, unasked]
            .into_iter()
            .flatten()
            .min()
    }

    /// Less than 10 s of the reply wait here: a backend that can wait gives more only then. One that cannot may give up to
    /// [`Config::max_turn_ms`] at once; what is beyond is dropped and counted.
    #[must_use]
    pub fn wants_audio(&self) -> bool {
        self.outgoing.wants_audio()
    }

    /// Whose turn it is.
    #[must_use]
    pub fn state(&self) -> State {
        self.turns.state()
    }

    /// Counts so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            repair: self.repair.stats(),
            outgoing: self.outgoing.stats,
            undecodable: self.ear.undecodable,
            orphans: self.orphans,
            clips_dropped: self.clips_dropped,
            manual_overflow: self.manual_overflow,
            hasty_client_delays: self.client.hasty,
        }
    }

    pub(crate) fn is_duplex(&self) -> bool {
        self.config.duplex_silence_ms > 0
    }

    fn is_manual(&self) -> bool {
        self.config.turn.server_vad.is_none()
    }

    pub(crate) fn is_current(&self, response: ResponseId) -> bool {
        self.generation.as_ref().is_some_and(|generation| generation.response == response)
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.out.push_back(Output::Event(event));
    }

    fn backend(&mut self, input: BackendInput) {
        self.out.push_back(Output::Backend(input));
    }

    /// One piece of the user's audio, frame by frame through the detector.
    fn hear(&mut self, now: Instant, piece: &Piece<'_>) {
        if !self.ear.hear(piece) {
            self.given = self.given.max(self.ear.end());
            return;
        }
        if matches!(piece.source, Source::Packet(_)) {
            let age = Duration::from_micros(u64::from(piece.age_us));
            self.ways.media(piece.arrived, age, piece.media_time + u64::from(piece.samples));
        }
        if self.is_manual() && self.turn.is_none() {
            let reach = self.reach.take().filter(|_| !self.is_duplex());
            self.given = reach.map_or_else(|| self.given.max(piece.media_time), |reach| reach.max(self.ear.start()));
            self.open_turn(self.given);
        }
        let heard = Heard { arrived: piece.arrived, released: now, age_us: piece.age_us, decided: now };
        let detect = std::mem::take(&mut self.ear.detect);
        let mut rest = &detect[..];
        while !rest.is_empty() {
            let (taken, probability) = self.ear.vad.push(rest);
            rest = &rest[taken..];
            let Some(probability) = probability else { continue };
            let end = self.ear.end() - rest.len() as u64 * 3;
            let rms = self.ear.vad.rms();
            let loud = probability >= self.turns.threshold();
            let wanted = self.turns.wants_timbre();
            let wordlike = self.timbre.frame(self.ear.vad.frame(), loud && wanted);
            // The end of a reply comes back when it is over.
            let echo = (wanted && probability >= self.turns.perhaps()) || (loud && self.echo_suspected());
            let echo = self.outgoing.echo.frame(now, self.ear.vad.frame(), echo);
            self.suspect(now);
            self.judge(now, end, heard, Frame { probability, rms, wordlike, echo });
        }
        self.ear.detect = detect;
        self.turns.heard(now, self.ear.end(), matches!(piece.source, Source::Packet(packet) if opus::is_dtx(packet)));
        self.give(self.ear.end());
        self.ear.trim(self.turns.keep_from());
    }

    /// One frame of the user's, as the detectors see it.
    pub(crate) fn judge(&mut self, now: Instant, end: u64, heard: Heard, frame: Frame) {
        let (voiced, action) = self.turns.frame(now, end, frame);
        if voiced {
            self.voiced = heard;
        }
        self.tell_decisions();
        if let Some(action) = action {
            self.act(now, end, action);
        }
    }

    /// Our own reply is heard back, or not any more.
    fn suspect(&mut self, now: Instant) {
        let Some(suspicion) = self.outgoing.echo.poll() else { return };
        let action = match suspicion {
            Suspicion::Begins => self.turns.echo_veto(),
            Suspicion::Ends => {
                self.turns.note(DecisionKind::EchoGone, InterruptSource::Vad);
                None
            }
        };
        self.act_if(now, action);
    }

    /// The edge knows neither echo nor words: it must not pause by itself while either matters.
    fn mute_reflex(&mut self) {
        let muted = self.outgoing.echo.is_suspected() || self.turns.is_wary();
        if self.config.interruption.reflex && muted != self.reflex_muted {
            self.reflex_muted = muted;
            self.out.push_back(Output::Reflex { enabled: true, muted });
        }
    }

    /// A frame of a detector that is stood in for.
    #[cfg(test)]
    pub(crate) fn feed(&mut self, now: Instant, end: u64, frame: Frame) {
        let heard = Heard { arrived: now, released: now, age_us: 0, decided: now };
        self.judge(now, end, heard, frame);
        self.turns.heard(now, end, false);
        self.settle(now);
    }

    /// Our own replies are heard back by the user's microphone.
    #[must_use]
    pub fn echo_suspected(&self) -> bool {
        self.outgoing.echo.is_suspected()
    }

    fn tell_decisions(&mut self) {
        while let Some(decision) = self.turns.poll_decision() {
            if decision.kind == DecisionKind::InputSilent {
                self.event(Event::InputSilent { ms: self.turns.zero_ms() });
            }
            self.event(Event::Decision(decision));
        }
    }

    fn act_if(&mut self, now: Instant, action: Option<Action>) {
        self.tell_decisions();
        if let Some(action) = action {
            let end = self.ear.end();
            self.act(now, end, action);
        }
    }

    /// What the turn machine decided, at media time `end`.
    fn act(&mut self, now: Instant, end: u64, action: Action) {
        match action {
            Action::Pause => {
                self.outgoing.pause(now);
                self.out.push_back(Output::Pause);
            }
            Action::Resume => {
                let from = self.outgoing.resume(now);
                self.out.push_back(Output::Resume { from });
            }
            Action::Start { onset } => {
                // The reply ended in the middle of the doubt: the edge must not stay paused.
                if self.turns.take_paused() {
                    self.outgoing.resume(now);
                    self.out.push_back(Output::Resume { from: None });
                }
                self.start_turn(end, onset);
            }
            Action::Interrupt { onset } => {
                let told = self.client.get().map(|us| Duration::from_micros(u64::from(us)));
                self.outgoing.speech(self.ways.said(onset), self.ways.way(told));
                self.flush(now, FlushReason::TurnDetected);
                let cancelled = self.stop_generation();
                self.owed = None;
                self.start_turn(end, onset);
                if let Some(response) = cancelled {
                    self.event(Event::ResponseCancelled { response, reason: FlushReason::TurnDetected });
                }
            }
            Action::Stop { from, to } => {
                let Some(turn) = self.turn else { return };
                self.give(end);
                self.event(Event::SpeechStopped { turn: turn.id, audio_end_ms: to / 48 });
                self.close_turn(turn, from, to);
                if self.config.turn.server_vad.as_ref().is_some_and(|vad| vad.create_response) {
                    self.owed = Some(Heard { decided: now, ..self.voiced });
                    self.pay(now);
                }
            }
            Action::Idle => {
                let start = self.given.max(self.ear.start());
                let turn = self.open_turn(start);
                self.give(end);
                self.event(Event::IdleTimeout { turn, audio_start_ms: start / 48, audio_end_ms: end / 48 });
                self.close_turn(Turn { id: turn, start }, end, end);
                self.respond(now);
            }
        }
    }

    /// The user's turn begins in the past: padding first.
    fn start_turn(&mut self, end: u64, onset: u64) {
        let padding = u64::from(padding_ms(&self.config.turn)) * 48;
        // A backend that hears everything has had it already.
        let given = if self.is_duplex() { 0 } else { self.given };
        let start = onset.saturating_sub(padding).max(given).max(self.ear.start());
        let turn = self.open_turn(start);
        self.event(Event::SpeechStarted { turn, audio_start_ms: start / 48 });
        self.give(end);
    }

    fn open_turn(&mut self, start: u64) -> TurnId {
        self.last_turn += 1;
        let id = TurnId(self.last_turn);
        self.turn = Some(Turn { id, start });
        self.given = self.given.max(start);
        self.turns.forget_span();
        self.judging.turn_begins();
        self.backend(BackendInput::SpeechStarted { turn: id });
        id
    }

    fn close_turn(&mut self, turn: Turn, from: u64, to: u64) {
        self.turn = None;
        self.committed = self.given;
        self.turns.forget_span();
        self.backend(BackendInput::SpeechStopped { turn: turn.id, from, to });
        self.backend(BackendInput::Commit { turn: turn.id });
        self.event(Event::Committed { turn: turn.id });
    }

    /// Audio of the running turn up to media time `end`.
    fn give(&mut self, end: u64) {
        let Some(turn) = self.turn else { return self.stream(end) };
        if end <= self.given {
            return;
        }
        let media_time = self.given.max(self.ear.start());
        let pcm = self.ear.read(media_time, end);
        self.given = end;
        let room = u64::from(self.config.max_turn_ms) * 48;
        if self.is_manual() && end - turn.start > room {
            if self.turns.span().is_none() {
                // A minute of nothing: the turn begins again.
                self.open_turn(end);
            }
            self.manual_overflow += pcm.len() as u64;
            return;
        }
        self.judging.hear(&pcm, self.config.backend_rate);
        if !pcm.is_empty() {
            self.backend(BackendInput::Audio { pcm, media_time });
        }
    }

    /// What no turn has: a backend that hears everything gets it all the same.
    fn stream(&mut self, end: u64) {
        if self.is_duplex() && end > self.given {
            let media_time = self.given.max(self.ear.start());
            let pcm = self.ear.read(media_time, end);
            self.given = end;
            self.backend(BackendInput::Audio { pcm, media_time });
        }
    }

    /// Answers a turn that is owed an answer, if it can be.
    fn pay(&mut self, now: Instant) {
        let Some(heard) = self.owed else { return };
        let Some(response) = self.respond(now) else { return };
        self.owed = None;
        if self.timings.len() == crate::outgoing::MAX_ITEMS {
            // Of a response that failed: it will never play.
            self.timings.pop_front();
        }
        self.timings.push_back(PendingTiming { response, heard, first_audio: None, first_frame: None });
    }

    fn respond(&mut self, now: Instant) -> Option<ResponseId> {
        let response = self.new_response(now)?;
        self.backend(BackendInput::CreateResponse { response });
        self.event(Event::ResponseCreated { response });
        Some(response)
    }

    /// `None`: one is being made, or too many wait.
    pub(crate) fn new_response(&mut self, now: Instant) -> Option<ResponseId> {
        if self.generation.is_some() || self.outgoing.is_full() {
            return None;
        }
        self.last_response += 1;
        let response = ResponseId(self.last_response);
        if self.last_turn == 0 {
            self.greeting = Some(response);
        }
        self.generation = Some(Generation { response, due: self.patience(now), began: false, muted: false });
        Some(response)
    }

    fn patience(&self, now: Instant) -> Instant {
        now + Duration::from_millis(u64::from(self.config.response_timeout_ms))
    }

    fn refresh(&mut self, now: Instant, response: ResponseId) {
        let due = self.patience(now);
        match &mut self.generation {
            Some(generation) if generation.response == response => generation.due = due,
            _ => self.orphans += 1,
        }
    }

    pub(crate) fn reply_text(&mut self, now: Instant, response: ResponseId, delta: String, words: &[WordTime]) {
        self.refresh(now, response);
        if self.is_current(response) {
            self.outgoing.text(response, &delta, words);
            self.event(Event::ResponseText { response, delta });
        }
    }

    pub(crate) fn reply_audio(&mut self, now: Instant, response: ResponseId, audio: AgentAudio) {
        self.refresh(now, response);
        let Some(generation) = self.generation.as_mut().filter(|generation| generation.response == response) else {
            return;
        };
        if audio.is_empty() || generation.muted {
            return;
        }
        if !std::mem::replace(&mut generation.began, true) {
            let utterance = self.outgoing.begin(now, response);
            self.event(Event::ResponseAudioStarted { response, utterance });
            if let Some(timing) = self.timing(response) {
                timing.first_audio = Some(now);
            }
        }
        self.outgoing.push(now, response, audio);
    }

    /// A sound of attention is for a user who speaks; between turns and over a reply it would be a word of its own.
    fn backchannel(&mut self, mut frames: Vec<Vec<u8>>) {
        let listens = matches!(self.turns.state(), State::UserSpeaking | State::Deciding);
        // The edge gives each its 20 ms, whatever it says of itself.
        let fits = frames.iter().all(|frame| opus::packet_samples(frame) == Some(960));
        if listens && fits && !self.outgoing.is_audible() && !frames.is_empty() {
            frames.truncate(MAX_CLIP);
            self.out.push_back(Output::Clip { frames });
        } else {
            self.clips_dropped += 1;
        }
    }

    /// The backend gave all of it.
    pub(crate) fn finish(&mut self, response: ResponseId) {
        self.generation = None;
        let generated = self.outgoing.generated(response);
        self.outgoing.complete(response);
        self.event(Event::ResponseDone { response, generated });
    }

    /// The backend stops; the response it was making.
    fn stop_generation(&mut self) -> Option<ResponseId> {
        let Generation { response, began, .. } = self.generation.take()?;
        self.duplex.cut(response);
        self.timings.retain(|timing| timing.response != response);
        self.backend(BackendInput::Cancel { response });
        if !began {
            self.outgoing.unheard(response);
        }
        Some(response)
    }

    /// Ends the active response and all playout.
    fn cut(&mut self, now: Instant, reason: FlushReason) {
        self.flush(now, reason);
        if let Some(response) = self.stop_generation() {
            self.event(Event::ResponseCancelled { response, reason });
        }
    }

    /// Ends all playout. A flush ends a pause of the edge's too; a pause that came behind the last frame has nothing to
    /// flush and would hold the next reply.
    fn flush(&mut self, now: Instant, reason: FlushReason) {
        let paused = self.turns.take_paused();
        let flushed = self.outgoing.flush(now, reason, &mut self.out);
        if paused && !flushed {
            self.out.push_back(Output::Resume { from: None });
        }
    }

    fn news(&mut self, now: Instant, news: News) {
        match news {
            News::Started(response) => {
                self.event(Event::PlayoutStarted { response });
                if let Some(at) = self.timings.iter().position(|timing| timing.response == response)
                    && let Some(timing) = self.timings.remove(at)
                {
                    self.out.push_back(Output::Timing(timing.complete(now)));
                }
            }
            News::Finished(balance) => {
                self.event(Event::PlayoutStopped { response: balance.response });
                self.over(balance);
            }
            News::Cleared(balance, text) => {
                let Balance { response, played_end, heard_at, .. } = balance;
                self.event(Event::PlayoutCleared { response, played_end });
                self.event(Event::Truncated { response, played_end, heard_at, text });
                self.over(balance);
            }
            News::Unheard(balance) => self.over(balance),
            News::Mislabeled { response, declared, likely } => {
                self.turns.note(DecisionKind::Mislabeled, InterruptSource::Verdict);
                self.event(Event::AudioMislabeled { response, declared, likely });
            }
        }
    }

    /// The books of a reply are closed: the backend's context ends where the user's does.
    fn over(&mut self, balance: Balance) {
        let Balance { response, played_end: samples, heard_at, .. } = balance;
        self.backend(BackendInput::Played { response, samples, heard_at });
        self.event(Event::ReplyOver(balance));
    }

    fn timing(&mut self, response: ResponseId) -> Option<&mut PendingTiming> {
        self.timings.iter_mut().find(|timing| timing.response == response)
    }

    /// After every input: sends what may be sent and tells the turn machine what the agent is about to do.
    fn settle(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while let Some(news) = self.outgoing.overdue_cut(now) {
            self.news(now, news);
        }
        self.pay(now);
        if let Some(complete) = self.judging.follow(self.turns.in_pause()) {
            self.turns.complete_verdict(complete);
        }
        let hold = self.turns.holds_reply();
        if let Some(response) = self.outgoing.pump(now, hold, &mut self.out)
            && let Some(timing) = self.timing(response)
        {
            timing.first_frame = Some(now);
        }
        while let Some(news) = self.outgoing.poll_news() {
            self.news(now, news);
        }
        let reply = if self.outgoing.is_audible() {
            Reply::Audible
        } else if self.generation.is_some() || !self.outgoing.is_empty() {
            Reply::Pending
        } else {
            Reply::None
        };
        let made = self.generation.as_ref().map(|generation| generation.response);
        let profile = match self.outgoing.current().or(made) {
            Some(response) if self.greeting == Some(response) => Profile::Greeting,
            _ if reply == Reply::Audible => Profile::Speaking,
            _ => Profile::Thinking,
        };
        let action = self.turns.set_reply(now, reply, profile);
        self.act_if(now, action);
        self.mute_reflex();
    }
}

fn padding_ms(turn: &TurnConfig) -> u32 {
    turn.server_vad.as_ref().map_or(0, |vad| vad.prefix_padding_ms)
}
