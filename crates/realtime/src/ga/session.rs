//! The machine of one client: what it is made of, and which part answers what.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use serde_json::{Map, Value, json};

use super::behind::{Behind, Queue};
use super::buffer::Heard;
use super::client::{self, ClientEvent};
use super::error::ApiError;
use super::items::Items;
use super::request::Terms;
use super::response::Response;
use super::settings::Settings;
use crate::audio::AudioFormat;
use crate::call::{Close, Command, CreateRefusal, Failure, Input, ModelSettings, RateLimit, Waited};
use crate::dialect::{Counters, Dialect};
use crate::ids::Ids;
use crate::limits::{Flood, MAX_UNKNOWN_TYPES, Verdict};
use crate::turn::TurnDetection;
use crate::{Config, Intent, Transport};

/// RFC 6455 §7.4.1: the endpoint goes away, and what the client may not do.
const GOING_AWAY: u16 = 1001;
const POLICY: u16 = 1008;

/// One client's API session.
#[derive(Debug)]
pub struct Session {
    pub(super) ids: Ids,
    pub(super) settings: Settings,
    pub(super) transport: Transport,
    pub(super) strict_truncation: bool,
    pub(super) conversation: String,
    model: String,
    /// Unix seconds.
    created_at: u64,
    /// When its time is up, and how long that was.
    end: (Instant, String),
    /// Speech whose item or words are still to come, oldest first.
    pub(super) heard: VecDeque<Heard>,
    /// The latest stretch that is known.
    pub(super) latest_turn: u64,
    /// Oldest first; at most one is being made.
    pub(super) responses: VecDeque<Response>,
    pub(super) items: Items,
    /// The client was told of assistant audio: the voice is fixed.
    pub(super) audio_began: bool,
    pub(super) append_refused: bool,
    /// Event types that the client was told of.
    unknown: BTreeSet<String>,
    /// What was asked of the response that the call was asked for and did not begin yet.
    pub(super) creating: Option<Terms>,
    pub(super) rate_limits: Option<Vec<RateLimit>>,
    /// `event_id` of the client event whose commands are out: refusals name it.
    cause: Option<String>,
    /// Requests that wait in the call, and what stands behind them.
    pub(super) waiting: Queue,
    flood: Flood,
    events: VecDeque<String>,
    pub(super) commands: VecDeque<Command>,
    pub(super) counters: Counters,
    closing: Option<Close>,
}

impl Session {
    /// Begins a session; its first event is `session.created`, followed by an `error` if the requested settings were
    /// refused (the defaults hold then).
    #[must_use]
    pub fn new(now: Instant, config: &Config) -> Self {
        let mut ids = Ids::new(config.seed);
        let requested = read_requested(&config.requested);
        let intent = intended(requested.as_ref().ok(), config.intent);
        let mut settings = Settings::new(&ids.mint("sess_"), intent, config);
        let refused = requested.and_then(|patch| settings.patch(patch, false)).err();
        let mut session = Self {
            conversation: ids.mint("conv_"),
            ids,
            settings,
            transport: config.transport,
            strict_truncation: config.strict_truncation,
            model: config.model.clone(),
            created_at: config.created_at,
            end: (now + config.lifetime, spelled(config.lifetime.as_secs())),
            heard: VecDeque::new(),
            latest_turn: 0,
            responses: VecDeque::new(),
            items: Items::default(),
            audio_began: false,
            append_refused: false,
            unknown: BTreeSet::new(),
            creating: None,
            rate_limits: None,
            cause: None,
            waiting: Queue::default(),
            flood: Flood::default(),
            events: VecDeque::new(),
            commands: VecDeque::new(),
            counters: Counters::default(),
            closing: None,
        };
        session.emit("session.created", json!({"session": session.settings.as_json()}));
        if let Some(error) = refused {
            session.emit_error(&error, None);
        }
        session
    }

    /// What is held for this client, as text: items, settings, the texts of the response being made, and what waits. Bounded whatever comes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let responses: usize = self.responses.iter().map(Response::bytes).sum();
        self.items.bytes() + self.settings.bytes() + responses + self.waiting.bytes()
    }

    fn handle_event(&mut self, event: ClientEvent) -> Result<(), ApiError> {
        match event {
            ClientEvent::SessionUpdate(patch) => self.update(patch)?,
            ClientEvent::InputAppend { audio } => self.append(&audio)?,
            ClientEvent::InputCommit => self.commands.push_back(Command::CommitInput),
            ClientEvent::InputClear => self.clear_input(),
            ClientEvent::ItemCreate { previous, item } => self.create_item(previous.as_deref(), item)?,
            ClientEvent::ItemRetrieve { item } => self.retrieve_item(&item)?,
            ClientEvent::ItemTruncate { item, content_index, audio_end_ms } => {
                self.truncate_item(item, content_index, audio_end_ms)?;
            }
            ClientEvent::ItemDelete { item } => self.delete_item(item)?,
            ClientEvent::ResponseCreate(fields) => self.create_response(fields)?,
            ClientEvent::ResponseCancel { response } => match self.active_id() {
                Some(active) if response.as_deref().is_none_or(|wanted| wanted == active) => {
                    self.commands.push_back(Command::Cancel);
                }
                _ => return Err(ApiError::cancel_not_active()),
            },
            ClientEvent::OutputClear => self.commands.push_back(Command::ClearOutput),
            ClientEvent::PlayoutDelay { delay_us } => {
                self.commands.extend(delay_us.map(|delay_us| Command::ClientDelay { delay_us }));
            }
            ClientEvent::Unknown(kind) => {
                if self.unknown.len() < MAX_UNKNOWN_TYPES && self.unknown.insert(kind.clone()) {
                    return Err(ApiError::unknown_event(&kind, client::SUPPORTED));
                }
            }
        }
        Ok(())
    }

    fn update(&mut self, patch: Map<String, Value>) -> Result<(), ApiError> {
        let (turn, model) = (self.settings.turn(), self.settings.model());
        self.settings.patch(patch, self.audio_began)?;
        if self.settings.turn() != turn {
            self.commands.push_back(Command::UpdateTurn(self.settings.turn()));
        }
        if self.settings.model() != model {
            self.commands.push_back(Command::UpdateModel(Box::new(self.settings.model())));
        }
        self.emit("session.updated", json!({"session": self.settings.as_json()}));
        Ok(())
    }

    /// What answering takes, in bytes. `None`: appended audio, whose pace is its own.
    fn answer_bytes(&self, event: Result<&ClientEvent, &ApiError>, text: &str) -> Option<usize> {
        match event {
            Ok(ClientEvent::InputAppend { .. }) => None,
            Ok(ClientEvent::SessionUpdate(_)) => Some(self.settings.bytes()),
            // Added and done.
            Ok(ClientEvent::ItemCreate { .. }) => Some(text.len() * 2),
            // A cut item is read and written anew.
            Ok(ClientEvent::ItemRetrieve { item } | ClientEvent::ItemTruncate { item, .. }) => {
                Some(self.items.bytes_of(item))
            }
            _ => Some(0),
        }
    }

    /// Whether a message of this verdict is read.
    fn passes(&mut self, verdict: Verdict, cause: Option<&str>) -> bool {
        if verdict != Verdict::Pass {
            self.counters.flooded += 1;
        }
        match verdict {
            Verdict::Pass | Verdict::Ignore => {}
            Verdict::Refuse => self.emit_error(&ApiError::too_fast(), cause),
            Verdict::Close => self.close(POLICY, "Events come faster than they are taken."),
        }
        verdict == Verdict::Pass
    }

    fn close(&mut self, code: u16, reason: &str) {
        self.commands.clear();
        self.closing = Some(Close { code, reason: reason.to_owned() });
    }

    fn create_refused(&mut self, refusal: CreateRefusal) -> ApiError {
        self.creating = None;
        match refusal {
            CreateRefusal::Active => ApiError::active_response(self.active_id().unwrap_or("unknown")),
            CreateRefusal::Unsupported => ApiError::create_unsupported(&self.model),
        }
    }

    /// What waited longest in the call had its turn: a refusal names the event that asked for it.
    fn waited(&mut self, waited: Waited) {
        let (cause, terms) = self.waiting.request();
        let error = match waited {
            Waited::Done => {
                // Its response is told of next, and what stands behind it after that.
                if terms.is_some() {
                    self.creating = terms;
                    return;
                }
                None
            }
            Waited::CommitRefused => Some(ApiError::commit_empty()),
            Waited::CreateRefused(refusal) => Some(self.create_refused(refusal)),
        };
        if let Some(error) = error {
            self.emit_error(&error, cause.as_deref());
        }
        self.read_on();
    }

    /// Reads what stands behind requests that had their turn.
    fn read_on(&mut self) {
        while let Some(behind) = self.waiting.next() {
            match behind {
                Behind::Event(text) => self.read(client::parse(&text)),
                Behind::Cleared => self.cleared(),
                Behind::Request(..) => {}
            }
        }
    }

    fn read(&mut self, envelope: client::Envelope) {
        let client::Envelope { event_id, event } = envelope;
        self.cause = event_id;
        if let Err(error) = event.and_then(|event| self.handle_event(event)) {
            self.refuse(&error);
        }
    }

    /// Answers the client event whose command could not be done.
    fn refuse(&mut self, error: &ApiError) {
        let cause = self.cause.take();
        self.emit_error(error, cause.as_deref());
    }

    fn emit_error(&mut self, error: &ApiError, cause: Option<&str>) {
        self.counters.errors += 1;
        self.emit("error", json!({"error": error.to_json(cause)}));
    }

    /// A failure that ends no response; those that do are in the response.
    fn model_failed(&mut self, failure: Failure) {
        let Failure { kind, code, message } = failure.bounded();
        self.counters.errors += 1;
        let error = json!({"type": kind, "code": code, "message": message, "param": null, "event_id": null});
        self.emit("error", json!({"error": error}));
    }

    pub(super) fn emit(&mut self, kind: &str, mut body: Value) {
        body["type"] = kind.into();
        body["event_id"] = self.ids.mint("event_").into();
        self.events.push_back(body.to_string());
    }
}

impl Dialect for Session {
    fn handle_client(&mut self, now: Instant, text: &str) {
        if self.closing.is_some() {
            return;
        }
        self.counters.client_events += 1;
        let verdict = self.flood.message(now, text.len());
        if !self.passes(verdict, None) {
            return;
        }
        let client::Envelope { event_id, event } = client::parse(text);
        if let Some(bytes) = self.answer_bytes(event.as_ref(), text) {
            let verdict = self.flood.request(now, bytes);
            if !self.passes(verdict, event_id.as_deref()) {
                return;
            }
        }
        if event.as_ref().is_ok_and(|event| self.waiting.holds_back(event)) {
            if !self.waiting.push(Behind::Event(text.to_owned())) {
                self.emit_error(&ApiError::too_fast(), event_id.as_deref());
            }
            return;
        }
        self.read(client::Envelope { event_id, event });
    }

    fn handle_client_binary(&mut self, now: Instant) {
        if self.closing.is_some() {
            return;
        }
        self.counters.client_events += 1;
        let verdict = self.flood.request(now, 0);
        if self.passes(verdict, None) {
            self.emit_error(&ApiError::invalid_event("The message is binary; events are sent as text."), None);
        }
    }

    fn handle(&mut self, input: Input) {
        if self.closing.is_some() {
            return;
        }
        match input {
            Input::KeyPressed { key, audio_ms } => {
                let received_at = self.created_at.saturating_add(audio_ms / 1000);
                self.emit(
                    "input_audio_buffer.dtmf_event_received",
                    json!({"event": key.to_string(), "received_at": received_at}),
                );
            }
            Input::SpeechStarted { turn, audio_start_ms } => self.speech_started(turn, audio_start_ms),
            Input::SpeechStopped { turn, audio_end_ms } => self.speech_stopped(turn, audio_end_ms),
            Input::IdleTimeout { turn, audio_start_ms, audio_end_ms } => {
                self.idle_timeout(turn, audio_start_ms, audio_end_ms);
            }
            Input::Committed { turn } => self.committed(turn),
            Input::UserTranscript { turn, delta } => self.user_transcript(turn, &delta),
            Input::UserTranscriptDone { turn, transcript } => self.user_transcript_over(turn, Ok(transcript)),
            Input::UserTranscriptFailed { turn, message } => self.user_transcript_over(turn, Err(message)),
            Input::RateLimits(limits) => self.rate_limits(limits),
            Input::ModelFailed(failure) => self.model_failed(failure),
            Input::CreateRefused(refusal) => {
                let error = self.create_refused(refusal);
                self.refuse(&error);
            }
            Input::RequestWaits => {
                // A response that begins before it is another one.
                let request = Behind::Request(self.cause.take(), self.creating.take());
                self.waiting.push(request);
            }
            Input::Waited(waited) => self.waited(waited),
            Input::CancelRefused => self.refuse(&ApiError::cancel_not_active()),
            Input::CommitRefused => self.refuse(&ApiError::commit_empty()),
            Input::AppendRefused => {
                if !std::mem::replace(&mut self.append_refused, true) {
                    self.refuse(&ApiError::append_over_webrtc());
                }
            }
            input => {
                let begins = matches!(input, Input::ResponseCreated { .. });
                self.handle_response(input);
                if begins {
                    self.read_on();
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.closing.is_none() && self.end.0 <= now {
            let message = format!("Your session hit the maximum duration of {}.", self.end.1);
            self.emit_error(&ApiError::session_expired(message.clone()), None);
            self.close(GOING_AWAY, &message);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.closing.is_none().then_some(self.end.0)
    }

    fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    fn poll_event(&mut self) -> Option<String> {
        self.events.pop_front()
    }

    fn closing(&self) -> Option<&Close> {
        self.closing.as_ref()
    }

    fn turn_detection(&self) -> TurnDetection {
        self.settings.turn()
    }

    fn model_settings(&self) -> ModelSettings {
        self.settings.model()
    }

    fn output_format(&self) -> AudioFormat {
        self.settings.output_format()
    }

    fn item_id(&self, response: u64) -> Option<&str> {
        let response = self.responses.iter().find(|known| known.number == response)?;
        response.message.as_ref().map(|message| message.place.id.as_str())
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

/// What the session is for: the first patch may say it.
pub(super) fn intended(requested: Option<&Map<String, Value>>, intent: Intent) -> Intent {
    let kind = requested.and_then(|patch| patch.get("type"));
    if kind.is_some_and(|kind| kind == "transcription") { Intent::Transcription } else { intent }
}

/// The first patch, if there is one.
pub(super) fn read_requested(requested: &str) -> Result<Map<String, Value>, ApiError> {
    if requested.is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_str(requested)
        .map_err(|error| ApiError::invalid_value("session", format!("'session' is not a JSON object: {error}.")))
}

/// A duration in the words of the API's own message.
fn spelled(seconds: u64) -> String {
    let (count, unit) =
        if seconds > 0 && seconds.is_multiple_of(60) { (seconds / 60, "minute") } else { (seconds, "second") };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}
