//! A dialogue with a backend, and the words of `voice`, `realtime` and the link translated into each other.

use std::collections::VecDeque;
use std::time::Instant;

use link::datagram::PlayoutReport;
use link::ids::UtteranceId;
use link::proto::playout_effect::Kind;
use link::proto::{
    Clip, Flush, Pause, PlayoutEffect, ReflexPause, ReflexSettings, Resume, TransceiverMessage, UtteranceHeader,
    transceiver_message,
};
use realtime::{CancelReason, Command, CreateRefusal, Dialect, Input, ItemKind, Modality, TurnDetection};
use voice::g711::Law;
use voice::telephone::Telephone;
use voice::{
    BackendInput, ClientView, Conversation, Event, FlushReason, MediaFrame, Output, Playout, Received, RepairConfig,
    ServerVad, ToolCall, TurnConfig, TurnTiming, Utterance,
};

use super::CallOutput;
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
    /// The backend speaks without being asked, from the user's first frame on.
    unasked: bool,
    last_clip: u32,
    /// For a client without Opus.
    telephone: Option<Box<Telephone>>,
}

impl Dialogue {
    pub(super) fn new(now: Instant, config: voice::Config, turn: TurnDetection, backend: Box<dyn Backend>) -> Self {
        let repair = RepairConfig { corrections: backend.takes_corrections(), ..config.repair };
        let conversation = Conversation::new(now, voice::Config { turn: turn_config(turn), repair, ..config });
        Self {
            conversation,
            backend,
            timings: VecDeque::new(),
            recorder: Recorder::new(now),
            unfinished: None,
            unasked: false,
            last_clip: 0,
            telephone: None,
        }
    }

    /// The backend speaks from the user's first frame on; nothing interrupts it and no turn asks for an answer.
    pub(super) fn one_sided(now: Instant, config: voice::Config, backend: Box<dyn Backend>) -> Self {
        let turn = one_sided(&config);
        let conversation = Conversation::new(now, voice::Config { turn, ..config });
        Self {
            conversation,
            backend,
            timings: VecDeque::new(),
            recorder: Recorder::new(now),
            unfinished: None,
            unasked: true,
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
        if std::mem::take(&mut self.unasked) {
            self.conversation.create_response(now);
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
            }
            while let Some(command) = api.poll_command() {
                idle = false;
                self.command(now, &command, api);
            }
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

    /// Whether responses are wanted as speech or as text.
    pub(super) fn set_modality(&mut self, modality: Modality) {
        self.conversation.set_text_only(modality == Modality::Text);
    }

    fn command(&mut self, now: Instant, command: &Command, api: &mut realtime::Session) {
        match command {
            Command::UpdateTurn(turn) => self.conversation.set_turn(turn_config(*turn)),
            Command::CreateResponse(request) => {
                self.set_modality(request.modality);
                let created = self.conversation.create_response(now);
                self.set_modality(api.model_settings().modality);
                if created.is_none() {
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
            Command::UpdateModel(model) => self.set_modality(model.modality),
            Command::AddItem(item) => {
                if let Some(input) = item_input(&item.kind) {
                    self.backend.handle(input);
                }
            }
            // No backend has a context of its own that could forget.
            Command::DeleteItem { .. } | Command::TruncateItem { .. } => {}
            Command::ClientDelay { delay_us } => self.conversation.set_client_delay(now, *delay_us),
        }
    }
}

/// Answers the commands of a call that has no dialogue.
pub(super) fn refuse(api: &mut realtime::Session, command: &Command) {
    match command {
        Command::CreateResponse(_) => api.handle(Input::CreateRefused(CreateRefusal::Unsupported)),
        Command::Cancel => api.handle(Input::CancelRefused),
        Command::CommitInput => api.handle(Input::CommitRefused),
        Command::AppendInput { .. } => api.handle(Input::AppendRefused),
        Command::UpdateTurn(_)
        | Command::UpdateModel(_)
        | Command::ClearOutput
        | Command::ClearInput
        | Command::AddItem(_)
        | Command::DeleteItem { .. }
        | Command::TruncateItem { .. }
        | Command::ClientDelay { .. } => {}
    }
}

/// Turn detection as configured, in the API's words.
pub(super) fn api_vad(config: &voice::Config) -> realtime::Vad {
    config.turn.server_vad.as_ref().map_or_else(realtime::Vad::default, |vad| realtime::Vad {
        threshold: vad.threshold,
        prefix_padding_ms: vad.prefix_padding_ms,
        silence_duration_ms: vad.silence_duration_ms,
        idle_timeout_ms: vad.idle_timeout_ms,
        eagerness: vad.eagerness.map(|eagerness| match eagerness {
            voice::Eagerness::Low => realtime::Eagerness::Low,
            voice::Eagerness::Medium => realtime::Eagerness::Medium,
            voice::Eagerness::High => realtime::Eagerness::High,
            voice::Eagerness::Auto => realtime::Eagerness::Auto,
        }),
        create_response: vad.create_response,
        interrupt_response: vad.interrupt_response,
    })
}

/// Turns that neither ask for answers nor interrupt.
pub(super) fn one_sided(config: &voice::Config) -> TurnConfig {
    let vad = config.turn.server_vad.clone().unwrap_or_default();
    TurnConfig { server_vad: Some(ServerVad { create_response: false, interrupt_response: false, ..vad }) }
}

/// What the client put into the conversation, as far as a backend is told of it.
pub(super) fn item_input(item: &ItemKind) -> Option<BackendInput> {
    Some(match item {
        ItemKind::Message { role, text } if !text.is_empty() => {
            let role = match role {
                realtime::Role::System => voice::Role::System,
                realtime::Role::User => voice::Role::User,
                realtime::Role::Assistant => voice::Role::Assistant,
            };
            BackendInput::Text { role, text: text.clone() }
        }
        ItemKind::ToolResult { call_id, output } => {
            BackendInput::ToolResult { call_id: call_id.clone(), output: output.clone() }
        }
        ItemKind::Message { .. } | ItemKind::ToolCall { .. } | ItemKind::Other => return None,
    })
}

pub(super) fn turn_config(turn: TurnDetection) -> TurnConfig {
    let server_vad = match turn {
        TurnDetection::Manual => None,
        TurnDetection::Vad(vad) => Some(ServerVad {
            threshold: vad.threshold,
            prefix_padding_ms: vad.prefix_padding_ms,
            silence_duration_ms: vad.silence_duration_ms,
            idle_timeout_ms: vad.idle_timeout_ms,
            eagerness: vad.eagerness.map(|eagerness| match eagerness {
                realtime::Eagerness::Low => voice::Eagerness::Low,
                realtime::Eagerness::Medium => voice::Eagerness::Medium,
                realtime::Eagerness::High => voice::Eagerness::High,
                realtime::Eagerness::Auto => voice::Eagerness::Auto,
            }),
            create_response: vad.create_response,
            interrupt_response: vad.interrupt_response,
        }),
    };
    TurnConfig { server_vad }
}

/// What the API is told of an event. `None`: nothing.
pub(super) fn input_of(event: Event) -> Option<Input> {
    Some(match event {
        Event::Decision(_) | Event::InputSilent { .. } | Event::AudioMislabeled { .. } => return None,
        Event::KeyPressed { key, audio_ms } => Input::KeyPressed { key, audio_ms },
        Event::SpeechStarted { turn, audio_start_ms } => Input::SpeechStarted { turn: turn.0, audio_start_ms },
        Event::SpeechStopped { turn, audio_end_ms } => Input::SpeechStopped { turn: turn.0, audio_end_ms },
        Event::Committed { turn } => Input::Committed { turn: turn.0 },
        Event::IdleTimeout { turn, audio_start_ms, audio_end_ms } => {
            Input::IdleTimeout { turn: turn.0, audio_start_ms, audio_end_ms }
        }
        Event::ResponseCreated { response } => Input::ResponseCreated { response: response.0 },
        Event::ResponseAudioStarted { response, .. } => Input::ResponseAudioStarted { response: response.0 },
        Event::ResponseText { response, delta } => Input::ResponseText { response: response.0, delta },
        Event::ToolCall { response, call: ToolCall { call_id, name, arguments, is_final } } => {
            let response = response.0;
            if is_final {
                Input::ToolCallDone { response, call_id, name, arguments }
            } else {
                Input::ToolCallDelta { response, call_id, name, delta: arguments }
            }
        }
        Event::UserTranscript { turn, text, is_final: true } => {
            Input::UserTranscriptDone { turn: turn.0, transcript: text }
        }
        Event::UserTranscript { turn, text, is_final: false } => Input::UserTranscript { turn: turn.0, delta: text },
        Event::ResponseDone { response, .. } => Input::ResponseDone { response: response.0 },
        Event::ResponseCancelled { response, reason } => {
            let reason = match reason {
                FlushReason::TurnDetected => CancelReason::TurnDetected,
                FlushReason::ClientCancelled => CancelReason::ClientCancelled,
            };
            Input::ResponseCancelled { response: response.0, reason }
        }
        Event::ResponseFailed { response, message } => Input::ResponseFailed { response: response.0, message },
        Event::PlayoutStarted { response } => Input::PlayoutStarted { response: response.0 },
        Event::PlayoutStopped { response } => Input::PlayoutStopped { response: response.0 },
        Event::PlayoutCleared { response, .. } => Input::PlayoutCleared { response: response.0 },
        Event::Truncated { response, played_end, text, .. } => {
            Input::Truncated { response: response.0, audio_end_ms: played_end / 48, transcript: text }
        }
        Event::ReplyOver(balance) => Input::ReplyOver { response: balance.response.0 },
    })
}

fn message(kind: transceiver_message::Kind) -> CallOutput {
    CallOutput::Message(TransceiverMessage { kind: Some(kind) })
}
