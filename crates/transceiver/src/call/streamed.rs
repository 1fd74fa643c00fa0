//! A dialogue with a client whose audio travels in events (a WebSocket): no media frames, no utterances, no reflex.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use realtime::{AudioFormat, Command, CreateRefusal, Dialect, Input, ModelSettings, Waited};
use voice::g711::Law;
use voice::{Asked, BackendInput, ResponseId, SampleFormat, Stream, StreamOutput, StreamStats, TurnTiming};

use super::dialogue::{MAX_BACKEND_OUTPUTS, MAX_TIMINGS};
use super::words::{self, input_of, turn_config};
use crate::backend::{Backend, Wanted};
use crate::record::{Counts, Recorder};

pub(super) struct Streamed {
    stream: Stream,
    backend: Box<dyn Backend>,
    timings: VecDeque<TurnTiming>,
    /// From a request for a response to the first of it, like timings.
    first_deltas: VecDeque<Duration>,
    pub(super) recorder: Recorder,
    /// The backend had more to say than one go takes.
    unfinished: Option<Instant>,
    /// The user's first audio came.
    connected: bool,
    /// Items of the responses that a client may still truncate, oldest first.
    items: VecDeque<(ResponseId, String)>,
}

/// More than replies that a client still plays at once.
const MAX_ITEMS: usize = 8;

impl Streamed {
    pub(super) fn new(now: Instant, config: voice::Config, backend: Box<dyn Backend>) -> Self {
        let (stream, recorder) = (Stream::new(now, config), Recorder::new(now));
        let (timings, first_deltas, items) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Self { stream, backend, timings, first_deltas, recorder, unfinished: None, connected: false, items }
    }

    pub(super) fn set_judge(&mut self, judge: Box<dyn voice::Judge>) {
        self.stream.set_judge(judge);
    }

    pub(super) fn set_waker(&mut self, waker: Waker) {
        self.backend.set_waker(waker);
    }

    /// Tells the backend that the session is over.
    pub(super) fn close(&mut self) {
        self.backend.handle(BackendInput::Close);
        self.recorder.end(Counts::default());
    }

    pub(super) fn timeout(&mut self, now: Instant) {
        self.stream.handle_timeout(now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let backend = self.backend.poll_timeout(self.wanted());
        [self.stream.poll_timeout(), self.unfinished, backend].into_iter().flatten().min()
    }

    pub(super) fn poll_timing(&mut self) -> Option<TurnTiming> {
        self.timings.pop_front()
    }

    pub(super) fn poll_first_delta(&mut self) -> Option<Duration> {
        self.first_deltas.pop_front()
    }

    pub(super) fn stats(&self) -> StreamStats {
        self.stream.stats()
    }

    /// Whose turn it is.
    pub(super) fn state(&self) -> voice::State {
        self.stream.state()
    }

    /// What holds from here on.
    pub(super) fn set_model(&mut self, model: ModelSettings) {
        let settings = words::settings(model);
        self.stream.set_text_only(settings.text_only);
        self.backend.handle(BackendInput::Settings(Arc::new(settings)));
    }

    /// Lets stream, API and backend talk to each other until none has more to say.
    pub(super) fn settle(&mut self, now: Instant, api: &mut realtime::Session) {
        let mut budget = MAX_BACKEND_OUTPUTS;
        self.unfinished = None;
        self.stream.set_format(samples(api.output_format()));
        loop {
            let mut idle = true;
            while let Some(output) = self.stream.poll_output() {
                idle = false;
                self.output(now, output, api);
                // What the API names of it, the backend knows before it hears of the next.
                self.commands(now, api);
            }
            idle &= !self.commands(now, api);
            // One at a time: what the stream makes of it comes first.
            if idle
                && budget > 0
                && let Some(output) = self.backend.poll(now, self.wanted())
            {
                budget -= 1;
                idle = false;
                self.stream.handle_backend(now, output);
            }
            // What was said so far is answered before more is heard.
            if idle && !self.stream.listen(now) {
                break;
            }
        }
        if budget == 0 {
            self.unfinished = Some(now);
        }
        self.recorder.settle(Counts::default);
    }

    fn wanted(&self) -> Wanted {
        if self.stream.wants_audio() { Wanted::All } else { Wanted::Control }
    }

    fn output(&mut self, now: Instant, output: StreamOutput, api: &mut realtime::Session) {
        match output {
            StreamOutput::Backend(input) => self.backend.handle(input),
            StreamOutput::Event(event) => {
                self.recorder.event(now, &event);
                if let Some(input) = input_of(event) {
                    api.handle(input);
                }
            }
            StreamOutput::Audio { response, data } => {
                api.handle(Input::ResponseAudio { response: response.0, data });
                self.note_item(response, api);
            }
            StreamOutput::Waited(waited) => api.handle(Input::Waited(match waited {
                voice::Waited::Done => Waited::Done,
                voice::Waited::CommitRefused => Waited::CommitRefused,
                voice::Waited::CreateRefused => Waited::CreateRefused(CreateRefusal::Active),
            })),
            StreamOutput::FirstDelta { after } => {
                if self.first_deltas.len() == MAX_TIMINGS {
                    self.first_deltas.pop_front();
                }
                self.first_deltas.push_back(after);
            }
            StreamOutput::Timing(timing) => {
                self.recorder.timing(timing);
                if self.timings.len() == MAX_TIMINGS {
                    self.timings.pop_front();
                }
                self.timings.push_back(timing);
            }
        }
    }

    /// The name that the client knows a response's sound by.
    fn note_item(&mut self, response: ResponseId, api: &realtime::Session) {
        if self.items.back().is_some_and(|(last, _)| *last == response) {
            return;
        }
        if let Some(item) = api.item_id(response.0) {
            if self.items.len() == MAX_ITEMS {
                self.items.pop_front();
            }
            self.items.push_back((response, item.to_owned()));
        }
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
            Command::UpdateTurn(turn) => self.stream.set_turn(now, turn_config(turn)),
            Command::UpdateModel(model) => self.set_model(*model),
            Command::CreateResponse(request) => {
                let created = self.stream.create_response_as(now, words::request(*request));
                answer(created, Input::CreateRefused(CreateRefusal::Active), api);
            }
            Command::Cancel => {
                if !self.stream.cancel(now) {
                    api.handle(Input::CancelRefused);
                }
            }
            Command::AppendInput { format, data } => {
                if !std::mem::replace(&mut self.connected, true) {
                    self.backend.handle(BackendInput::Connected);
                }
                self.stream.append(now, samples(format), &data);
            }
            Command::CommitInput => answer(self.stream.commit(now), Input::CommitRefused, api),
            Command::ClearInput => self.stream.clear_input(now),
            Command::AddItem(item) => self.backend.handle(words::item(*item)),
            Command::TruncateItem { item: id, audio_end_ms, transcript: text } => {
                self.cut(now, &id, audio_end_ms);
                self.backend.handle(BackendInput::ItemTruncated { id, audio_end_ms, text });
            }
            // Who deletes an item instead of truncating it has played none of it.
            Command::DeleteItem { item: id } => {
                self.cut(now, &id, 0);
                self.backend.handle(BackendInput::ItemDeleted { id });
            }
            // Of playout by the server.
            Command::ClearOutput | Command::ClientDelay { .. } => {}
        }
    }

    fn cut(&mut self, now: Instant, item: &str, audio_end_ms: u64) {
        if let Some((response, _)) = self.items.iter().find(|(_, name)| name == item) {
            self.stream.truncated(now, *response, audio_end_ms);
        }
    }
}

/// Tells the API what became of the request that it passed on last.
fn answer(asked: Asked, refused: Input, api: &mut realtime::Session) {
    match asked {
        Asked::Done => {}
        Asked::Waits => api.handle(Input::RequestWaits),
        Asked::Refused => api.handle(refused),
    }
}

fn samples(format: AudioFormat) -> SampleFormat {
    match format {
        AudioFormat::Pcm16 => SampleFormat::Pcm16,
        AudioFormat::Pcmu => SampleFormat::G711(Law::Mu),
        AudioFormat::Pcma => SampleFormat::G711(Law::A),
    }
}
