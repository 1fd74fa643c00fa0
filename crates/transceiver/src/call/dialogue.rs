//! A dialogue with a backend, and the words of `voice` and the link translated into each other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use link::datagram::PlayoutReport;
use link::ids::UtteranceId;
use link::proto::playout_effect::Kind;
use link::proto::{
    Clip, Flush, Pause, PlayoutEffect, ReflexPause, ReflexSettings, Resume, TransceiverMessage, UtteranceHeader,
    transceiver_message,
};
use realtime::{Command, CreateRefusal, Dialect, Input, ModelSettings};
use voice::g711::Law;
use voice::telephone::Telephone;
use voice::{
    BackendInput, ClientView, Conversation, FlushReason, MediaFrame, Output, Playout, Received, RepairConfig,
    TurnTiming, Utterance,
};

use super::CallOutput;
use super::words::{self, input_of, turn_config};
use crate::backend::{Backend, Wanted};
use crate::record::{Counts, Recorder};

/// Backend outputs taken in one go: more than the 10 s of speech, in pieces of 100 ms, after which the conversation wants
/// no more speech; a backend that has more to say is heard on at once after everybody else.
pub(super) const MAX_BACKEND_OUTPUTS: usize = 128;

/// Turns whose timing was not read yet; the owner reads them after every input, one each.
pub(super) const MAX_TIMINGS: usize = 16;

pub(super) struct Dialogue {
    conversation: Conversation,
    backend: Box<dyn Backend>,
    timings: VecDeque<TurnTiming>,
    pub(super) recorder: Recorder,
    /// The backend had more to say than one go takes.
    unfinished: Option<Instant>,
    /// The user's first frame came.
    connected: bool,
    last_clip: u32,
    /// For a client without Opus.
    telephone: Option<Box<Telephone>>,
}

impl Dialogue {
    pub(super) fn new(now: Instant, config: voice::Config, backend: Box<dyn Backend>) -> Self {
        let repair = RepairConfig { corrections: backend.takes_corrections(), ..config.repair };
        let conversation = Conversation::new(now, voice::Config { repair, ..config });
        Self {
            conversation,
            backend,
            timings: VecDeque::new(),
            recorder: Recorder::new(now),
            unfinished: None,
            connected: false,
            last_clip: 0,
            telephone: None,
        }
    }

    /// The client hears G.711.
    pub(super) fn answer_in(&mut self, law: Law) {
        // Only libopus' allocation can fail.
        self.telephone = Telephone::new(law).ok().map(Box::new);
    }

    pub(super) fn media(&mut self, now: Instant, frame: MediaFrame<'_>, age_us: u32) {
        if !std::mem::replace(&mut self.connected, true) {
            self.backend.handle(BackendInput::Connected);
        }
        self.conversation.handle_media(now, frame, age_us);
    }

    /// Tells the dialogue what became of playout; `false`: it makes no sense.
    pub(super) fn playout_effect(&mut self, now: Instant, effect: &PlayoutEffect) -> bool {
        let (utterance, sent) = (Utterance(effect.utterance), effect.sent);
        let playout = match effect.kind() {
            Kind::Unspecified => return false,
            Kind::Started => Playout::Started { utterance },
            Kind::Paused => Playout::Paused { utterance, sent },
            Kind::Resumed => Playout::Resumed { utterance, sent },
            Kind::Flushed => {
                let received = Received { to: effect.arrived, lost: effect.lost };
                Playout::Flushed { utterance, sent, received }
            }
            Kind::Finished => Playout::Finished { utterance, sent },
            Kind::Underrun => Playout::Underrun { utterance, sent },
        };
        self.conversation.handle_playout(now, playout);
        true
    }

    pub(super) fn report(&mut self, now: Instant, report: &PlayoutReport) {
        let utterance = Utterance(report.utterance.0);
        let client = report.client.map(|client| ClientView {
            rtt_us: client.rtt_us,
            delay_us: client.delay_us,
            received: Received { to: client.arrived, lost: client.lost },
            loss: client.loss,
            told: client.told,
            transport_wide: client.transport_wide,
        });
        let (sent, limit) = (report.sent, report.limit);
        self.conversation.handle_playout(now, Playout::Report { utterance, sent, limit, client });
    }

    /// The edge paused playout by itself.
    pub(super) fn reflex(&mut self, now: Instant, reflex: &ReflexPause) {
        let utterance = Utterance(reflex.utterance);
        self.conversation.handle_playout(now, Playout::Reflex { utterance, sent: reflex.sent });
    }

    #[cfg(test)]
    pub(super) fn client_delay_us(&self) -> Option<u32> {
        self.conversation.client_delay_us()
    }

    pub(super) fn set_judge(&mut self, judge: Box<dyn voice::Judge>) {
        self.conversation.set_judge(judge);
    }

    pub(super) fn set_waker(&mut self, waker: Waker) {
        self.backend.set_waker(waker);
    }

    /// Tells the backend that the session is over.
    pub(super) fn close(&mut self) {
        self.backend.handle(BackendInput::Close);
        self.recorder.end(self.counts());
    }

    pub(super) fn set_congested(&mut self, congested: bool) {
        self.conversation.set_congested(congested);
    }

    pub(super) fn timeout(&mut self, now: Instant) {
        self.conversation.handle_timeout(now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let backend = self.backend.poll_timeout(self.wanted());
        [self.conversation.poll_timeout(), self.unfinished, backend].into_iter().flatten().min()
    }

    pub(super) fn poll_timing(&mut self) -> Option<TurnTiming> {
        self.timings.pop_front()
    }

    /// Lets conversation, API and backend talk to each other until none has more to say.
    pub(super) fn settle(
        &mut self,
        now: Instant,
        api: &mut realtime::Session,
        header: impl Fn(UtteranceId, String) -> UtteranceHeader,
        outputs: &mut VecDeque<CallOutput>,
    ) {
        let mut budget = MAX_BACKEND_OUTPUTS;
        self.unfinished = None;
        loop {
            let mut idle = true;
            while let Some(output) = self.conversation.poll_output() {
                idle = false;
                self.output(now, output, api, &header, outputs);
                // What the API names of it, the backend knows before it hears of the next.
                self.commands(now, api);
            }
            idle &= !self.commands(now, api);
            // One at a time: what the conversation makes of it comes first.
            if idle
                && budget > 0
                && let Some(output) = self.backend.poll(now, self.wanted())
            {
                budget -= 1;
                idle = false;
                self.conversation.handle_backend(now, output);
            }
            if idle {
                break;
            }
        }
        if budget == 0 {
            self.unfinished = Some(now);
        }
        self.recorder.settle(|| Counts::of(&self.conversation.stats()));
    }

    /// Whose turn it is.
    pub(super) fn state(&self) -> voice::State {
        self.conversation.state()
    }

    /// What was counted so far, for records.
    pub(super) fn counts(&self) -> Counts {
        Counts::of(&self.conversation.stats())
    }

    fn wanted(&self) -> Wanted {
        if self.conversation.wants_audio() { Wanted::All } else { Wanted::Control }
    }

    fn output(
        &mut self,
        now: Instant,
        output: Output,
        api: &mut realtime::Session,
        header: &impl Fn(UtteranceId, String) -> UtteranceHeader,
        outputs: &mut VecDeque<CallOutput>,
    ) {
        match output {
            Output::Backend(input) => self.backend.handle(input),
            Output::Event(event) => {
                self.recorder.event(now, &event);
                if let Some(input) = input_of(event) {
                    api.handle(input);
                }
            }
            Output::Timing(timing) => {
                self.recorder.timing(timing);
                if self.timings.len() == MAX_TIMINGS {
                    self.timings.pop_front();
                }
                self.timings.push_back(timing);
            }
            Output::UtteranceStart { utterance, response } => {
                let item = api.item_id(response.0).unwrap_or_default().to_owned();
                outputs.push_back(CallOutput::UtteranceStart(header(UtteranceId(utterance.0), item)));
            }
            Output::Frame { utterance, samples, payload } => {
                let payload = self.coded(samples, payload);
                outputs.push_back(CallOutput::UtteranceFrame { utterance: UtteranceId(utterance.0), samples, payload });
            }
            Output::UtteranceEnd { utterance } => {
                outputs.push_back(CallOutput::UtteranceEnd { utterance: UtteranceId(utterance.0) });
            }
            Output::UtteranceReset { utterance } => {
                outputs.push_back(CallOutput::UtteranceReset { utterance: UtteranceId(utterance.0) });
            }
            Output::Pause => outputs.push_back(message(transceiver_message::Kind::Pause(Pause {}))),
            Output::Resume { from } => outputs.push_back(message(transceiver_message::Kind::Resume(Resume { from }))),
            Output::Reflex { enabled, muted } => {
                let settings = ReflexSettings { enabled, muted };
                outputs.push_back(message(transceiver_message::Kind::Reflex(settings)));
            }
            Output::Clip { frames } => {
                self.last_clip = self.last_clip.wrapping_add(1);
                let frames = frames.into_iter().map(|frame| self.coded(960, frame)).collect();
                let clip = Clip { id: self.last_clip, frames };
                outputs.push_back(message(transceiver_message::Kind::Clip(clip)));
            }
            Output::Flush { up_to, reason } => {
                let reason = match reason {
                    FlushReason::TurnDetected => "turn_detected",
                    FlushReason::ClientCancelled => "client_cancelled",
                };
                let flush = Flush { up_to: up_to.0, reason: reason.to_owned() };
                outputs.push_back(message(transceiver_message::Kind::Flush(flush)));
            }
        }
    }

    /// A packet as the client takes it.
    fn coded(&mut self, samples: u32, packet: Vec<u8>) -> Vec<u8> {
        match &mut self.telephone {
            Some(telephone) => telephone.translate(&packet, samples),
            None => packet,
        }
    }

    /// What holds from here on.
    pub(super) fn set_model(&mut self, model: ModelSettings) {
        let settings = words::settings(model);
        self.conversation.set_text_only(settings.text_only);
        self.backend.handle(BackendInput::Settings(Arc::new(settings)));
    }

    /// `false`: there are none.
    fn commands(&mut self, now: Instant, api: &mut realtime::Session) -> bool {
        let mut any = false;
        while let Some(command) = api.poll_command() {
            any = true;
            self.command(now, command, api);
        }
        any
    }

    fn command(&mut self, now: Instant, command: Command, api: &mut realtime::Session) {
        match command {
            Command::UpdateTurn(turn) => self.conversation.set_turn(turn_config(turn)),
            Command::CreateResponse(request) => {
                if self.conversation.create_response_as(now, words::request(*request)).is_none() {
                    api.handle(Input::CreateRefused(CreateRefusal::Active));
                }
            }
            Command::Cancel => {
                if !self.conversation.cancel(now) {
                    api.handle(Input::CancelRefused);
                }
            }
            Command::ClearOutput => self.conversation.clear_output(now),
            Command::CommitInput => {
                if !self.conversation.commit(now) {
                    api.handle(Input::CommitRefused);
                }
            }
            Command::ClearInput => self.conversation.clear_input(now),
            Command::AppendInput { .. } => api.handle(Input::AppendRefused),
            Command::UpdateModel(model) => self.set_model(*model),
            Command::AddItem(item) => self.backend.handle(words::item(*item)),
            Command::DeleteItem { item: id } => self.backend.handle(BackendInput::ItemDeleted { id }),
            Command::TruncateItem { item: id, audio_end_ms, transcript: text } => {
                self.backend.handle(BackendInput::ItemTruncated { id, audio_end_ms, text });
            }
            Command::ClientDelay { delay_us } => self.conversation.set_client_delay(now, delay_us),
        }
    }
}

fn message(kind: transceiver_message::Kind) -> CallOutput {
    CallOutput::Message(TransceiverMessage { kind: Some(kind) })
}
