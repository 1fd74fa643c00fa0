//! One dialogue: the parts of this crate composed. What the user's packets become is in `uplink.rs`, what their sound does in
//! `listening.rs`, what the agent does in `replying.rs`.

mod listening;
mod replying;
mod uplink;

use std::collections::VecDeque;
use std::time::Instant;

use crate::backend::{BackendInput, BackendOutput, Failure, Request, ResponseId, TurnId, TurnVerdict};
use crate::client::ClientDelay;
use crate::config::{Config, TurnConfig};
use crate::decision::{DecisionKind, InterruptSource, Profile};
use crate::duplex::Duplex;
use crate::ear::Ear;
use crate::keys::Keys;
use crate::outgoing::{Outgoing, OutgoingStats, Report};
use crate::repair::{Repair, RepairStats};
use crate::timbre::Timbre;
use crate::timing::{Heard, PendingTiming};
use crate::turn::{Action, Reply, State, Turns};
use crate::types::{Event, FlushReason, Output, Playout};
use crate::verdict::{Judge, Judging, LOOK};
use crate::way::Ways;

/// Audio ahead of a push to talk, in 48 kHz samples: 300 ms.
const PUSH_TO_TALK: u64 = 300 * 48;

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
    text_only: bool,
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
            text_only: false,
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
            BackendOutput::Initiate => drop(self.respond(now, self.as_set())),
            BackendOutput::UserTranscript { turn, text, is_final } => self.user_words(now, turn, text, is_final),
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
            BackendOutput::ToolCall { response, call } => {
                self.refresh(now, response);
                if self.is_current(response) {
                    self.event(Event::ToolCall { response, call });
                }
            }
            BackendOutput::Backchannel { frames } => self.backchannel(frames),
            BackendOutput::Text { response, delta, words } => self.reply_text(now, response, delta, &words),
            BackendOutput::Usage { response, usage } => {
                self.refresh(now, response);
                if self.is_current(response) {
                    self.event(Event::ResponseUsage { response, usage });
                }
            }
            BackendOutput::ResponseDone { response } if self.is_current(response) => self.finish(response),
            BackendOutput::ResponseIncomplete { response, reason } if self.is_current(response) => {
                self.finish_early(response, reason);
            }
            BackendOutput::ResponseDone { .. } | BackendOutput::ResponseIncomplete { .. } => self.orphans += 1,
            BackendOutput::Closed => match self.generation.take() {
                Some(Generation { response, began, muted, .. }) if began || muted => self.finish(response),
                Some(Generation { response, .. }) => {
                    let failure = Failure::new("backend_closed", "the backend closed before it gave any audio");
                    self.event(Event::ResponseFailed { response, failure });
                }
                None => {}
            },
            BackendOutput::Fault { response, failure, .. } => self.fault(response, failure),
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
            self.event(Event::ResponseFailed { response, failure: Failure::new("backend_timeout", message) });
        }
        if self.outgoing.is_stalled(now) {
            self.outgoing.stats.stalled += 1;
            self.turns.note(DecisionKind::PlayoutTimeout, InterruptSource::Timer);
            if let Some(response) = self.outgoing.current() {
                let failure = Failure::new("playout_timeout", "the edge reports no playout");
                self.event(Event::ResponseFailed { response, failure });
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

    /// Responses that nobody says otherwise of are wanted as text: their sound is not played.
    pub fn set_text_only(&mut self, text_only: bool) {
        self.text_only = text_only;
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

    /// Asks for a response as the settings say. `None`: one is active.
    pub fn create_response(&mut self, now: Instant) -> Option<ResponseId> {
        self.create_response_as(now, self.as_set())
    }

    /// Asks for a response. `None`: one is active.
    pub fn create_response_as(&mut self, now: Instant, request: Request) -> Option<ResponseId> {
        let response = self.respond(now, request);
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
        let verdict = self.judging.waits().then(|| self.now + LOOK);
        [
            self.repair.poll_timeout(),
            self.turns.poll_timeout(),
            self.outgoing.poll_timeout(),
            generation,
            unasked,
            verdict,
        ]
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

    /// The edge knows neither echo nor words: it must not pause by itself while either matters.
    fn mute_reflex(&mut self) {
        let muted = self.outgoing.echo.is_suspected() || self.turns.is_wary();
        if self.config.interruption.reflex && muted != self.reflex_muted {
            self.reflex_muted = muted;
            self.out.push_back(Output::Reflex { enabled: true, muted });
        }
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
