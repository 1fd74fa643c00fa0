//! The machine of one client: see the crate's documentation for its run loop and invariant.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use crate::client::{self, ClientEvent};
use crate::error::ApiError;
use crate::ids::Ids;
use crate::response::{Context, Held, Item, Playout, Response, Status};
use crate::settings::{Settings, TurnDetection};
use crate::{CancelReason, Command, Config, CreateRefusal, Input};

/// Turns whose item id is remembered between speech and commit: one is open at a time, a few wait for a manual commit.
const MAX_TURNS: usize = 16;

/// Responses remembered: one is being made, one is playing, one more per answer cut while the edge's word on it is
/// on its way (a round trip, so a few at most), and those that a client may still retrieve.
const MAX_RESPONSES: usize = 16;

/// What went wrong or was given up, for the metrics of the call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Client events read.
    pub client_events: u64,
    /// `error` events sent.
    pub errors: u64,
    /// Inputs about responses not known (any more).
    pub stale_inputs: u64,
}

/// One client's API session.
#[derive(Debug)]
pub struct Session {
    ids: Ids,
    settings: Settings,
    conversation: String,
    model: String,
    /// Unix seconds.
    created_at: u64,
    /// Item ids of speech not committed yet, by turn.
    turns: VecDeque<(u64, String)>,
    /// Oldest first.
    responses: VecDeque<Response>,
    /// The newest item of the conversation.
    last_item: Option<String>,
    /// The client was told of assistant audio: the voice is fixed.
    audio_began: bool,
    append_refused: bool,
    /// Metadata of a response.create that the call was asked for and did not answer yet.
    creating: Option<Value>,
    /// `event_id` of the client event whose commands are out: refusals name it.
    cause: Option<String>,
    events: VecDeque<String>,
    commands: VecDeque<Command>,
    counters: Counters,
}

impl Session {
    /// Begins a session; its first event is `session.created`, followed by an `error` if the requested settings were
    /// refused (the defaults hold then).
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let mut ids = Ids::new(config.seed);
        let settings = Settings::new(ids.mint("sess_"), config);
        let conversation = ids.mint("conv_");
        let mut session = Self {
            ids,
            settings,
            conversation,
            model: config.model.clone(),
            created_at: config.created_at,
            turns: VecDeque::new(),
            responses: VecDeque::new(),
            last_item: None,
            audio_began: false,
            append_refused: false,
            creating: None,
            cause: None,
            events: VecDeque::new(),
            commands: VecDeque::new(),
            counters: Counters::default(),
        };
        let requested = session.apply_requested(&config.requested);
        session.emit("session.created", json!({"session": session.settings.as_json()}));
        if let Err(error) = requested {
            session.emit_error(&error, None);
        }
        session
    }

    /// One text message of the client's.
    pub fn handle_client(&mut self, text: &str) {
        self.counters.client_events += 1;
        let envelope = client::parse(text);
        self.cause = envelope.event_id;
        if let Err(error) = envelope.event.and_then(|event| self.handle_event(event)) {
            let cause = self.cause.take();
            self.emit_error(&error, cause.as_deref());
        }
    }

    /// One binary message of the client's: events are text.
    pub fn handle_client_binary(&mut self) {
        self.counters.client_events += 1;
        self.emit_error(&ApiError::invalid_event("The message is binary; events are sent as text."), None);
    }

    /// What happened in the call.
    pub fn handle(&mut self, input: Input) {
        match input {
            Input::KeyPressed { key, audio_ms } => {
                let received_at = self.created_at.saturating_add(audio_ms / 1000);
                self.emit(
                    "input_audio_buffer.dtmf_event_received",
                    json!({"event": key.to_string(), "received_at": received_at}),
                );
            }
            Input::SpeechStarted { turn, audio_start_ms } => {
                let item = self.turn_item(turn);
                self.emit(
                    "input_audio_buffer.speech_started",
                    json!({"audio_start_ms": audio_start_ms, "item_id": item}),
                );
            }
            Input::SpeechStopped { turn, audio_end_ms } => {
                let item = self.turn_item(turn);
                self.emit("input_audio_buffer.speech_stopped", json!({"audio_end_ms": audio_end_ms, "item_id": item}));
            }
            Input::IdleTimeout { turn, audio_start_ms, audio_end_ms } => {
                let item = self.turn_item(turn);
                self.emit(
                    "input_audio_buffer.timeout_triggered",
                    json!({"audio_start_ms": audio_start_ms, "audio_end_ms": audio_end_ms, "item_id": item}),
                );
            }
            Input::Committed { turn } => self.committed(turn),
            Input::ResponseCreated { response } => self.response_created(response),
            Input::ResponseAudioStarted { response } => self.with_active(response, |session, response| {
                session.begin_item(response);
            }),
            Input::ResponseText { response, delta } => self.with_active(response, |session, response| {
                let item = session.begin_item(response);
                response.push_transcript(&delta);
                let body = part(response, &item, json!({"delta": delta}));
                session.emit("response.output_audio_transcript.delta", body);
            }),
            Input::ResponseDone { response } => self.close(response, Status::Completed),
            Input::ResponseCancelled { response, reason } => self.cancelled(response, reason),
            Input::ResponseFailed { response, message } => self.close(response, Status::Failed(message)),
            Input::PlayoutStarted { response } => self.playout_started(response),
            Input::PlayoutStopped { response } => self.playout_stopped(response),
            Input::PlayoutCleared { response } => self.playout_cleared(response),
            Input::Truncated { response, audio_end_ms, transcript } => {
                self.truncated(response, audio_end_ms, transcript);
            }
            Input::ReplyOver { response } => self.reply_over(response),
            Input::CreateRefused(refusal) => {
                self.creating = None;
                let error = match refusal {
                    CreateRefusal::Active => ApiError::active_response(self.active_id().unwrap_or("unknown")),
                    CreateRefusal::Unsupported => ApiError::create_unsupported(&self.model),
                };
                self.refuse(&error);
            }
            Input::CancelRefused => self.refuse(&ApiError::cancel_not_active()),
            Input::CommitRefused => self.refuse(&ApiError::commit_empty()),
        }
    }

    /// How turns are to be found, as of now.
    #[must_use]
    pub fn turn_detection(&self) -> TurnDetection {
        self.settings.turn()
    }

    /// The id of the item that carries a response, once it has one.
    #[must_use]
    pub fn item_id(&self, response: u64) -> Option<&str> {
        let response = self.responses.iter().find(|known| known.number == response)?;
        response.item.as_ref().map(|item| item.id.as_str())
    }

    /// The next event for the client, as text.
    pub fn poll_event(&mut self) -> Option<String> {
        self.events.pop_front()
    }

    /// The next wish for the call.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// What was counted so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn apply_requested(&mut self, requested: &str) -> Result<(), ApiError> {
        if requested.is_empty() {
            return Ok(());
        }
        let patch: Map<String, Value> = serde_json::from_str(requested)
            .map_err(|error| ApiError::invalid_value("session", format!("'session' is not a JSON object: {error}.")))?;
        self.settings.patch(patch, false)
    }

    fn handle_event(&mut self, event: ClientEvent) -> Result<(), ApiError> {
        match event {
            ClientEvent::SessionUpdate(patch) => {
                let turn = self.settings.turn();
                self.settings.patch(patch, self.audio_began)?;
                if self.settings.turn() != turn {
                    self.commands.push_back(Command::UpdateTurn(self.settings.turn()));
                }
                self.emit("session.updated", json!({"session": self.settings.as_json()}));
            }
            ClientEvent::InputCommit => self.commands.push_back(Command::CommitInput),
            ClientEvent::InputClear => {
                self.commands.push_back(Command::ClearInput);
                self.turns.clear();
                self.emit("input_audio_buffer.cleared", json!({}));
            }
            ClientEvent::InputAppend if self.append_refused => {}
            ClientEvent::InputAppend => {
                self.append_refused = true;
                return Err(ApiError::append_over_webrtc());
            }
            ClientEvent::ResponseCreate { metadata } => {
                if let Some(active) = self.active_id() {
                    return Err(ApiError::active_response(active));
                }
                self.creating = Some(metadata);
                self.commands.push_back(Command::CreateResponse);
            }
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
            ClientEvent::ItemRetrieve { item } => self.retrieve(&item)?,
        }
        Ok(())
    }

    fn active_id(&self) -> Option<&str> {
        self.responses.iter().rev().find(|response| response.is_active()).map(|response| response.id.as_str())
    }

    /// The item that a stretch of speech will be; its id is told before it exists.
    fn turn_item(&mut self, turn: u64) -> String {
        if let Some((_, item)) = self.turns.iter().find(|(known, _)| *known == turn) {
            return item.clone();
        }
        if self.turns.len() == MAX_TURNS {
            self.turns.pop_front();
        }
        let item = self.ids.mint("item_");
        self.turns.push_back((turn, item.clone()));
        item
    }

    fn committed(&mut self, turn: u64) {
        let id = self.turn_item(turn);
        self.turns.retain(|(known, _)| *known > turn);
        let previous = self.last_item.replace(id.clone());
        let item = json!({
            "id": id,
            "object": "realtime.item",
            "type": "message",
            "status": "completed",
            "role": "user",
            "content": [{"type": "input_audio", "transcript": null}],
        });
        self.emit("input_audio_buffer.committed", json!({"previous_item_id": previous, "item_id": id}));
        self.emit("conversation.item.added", json!({"previous_item_id": previous, "item": item}));
        self.emit("conversation.item.done", json!({"previous_item_id": previous, "item": item}));
    }

    fn response_created(&mut self, number: u64) {
        if self.responses.iter().any(|response| response.number >= number) {
            self.counters.stale_inputs += 1;
            return;
        }
        // One cut of which the edge's word has not come yet is told before the next begins.
        while let Some(held) = self.responses.iter().find(|response| response.is_held()) {
            self.release(held.number);
        }
        if self.responses.len() == MAX_RESPONSES {
            let over = self.responses.iter().position(Response::is_over).unwrap_or(0);
            self.responses.remove(over);
        }
        let metadata = self.creating.take().unwrap_or(Value::Null);
        let response = Response::new(number, self.ids.mint("resp_"), metadata);
        let body = json!({"response": response.json(&self.context())});
        self.responses.push_back(response);
        self.emit("response.created", body);
    }

    /// Names the item of a response, once.
    fn begin_item(&mut self, response: &mut Response) -> String {
        if let Some(item) = &response.item {
            return item.id.clone();
        }
        self.audio_began = true;
        let id = self.ids.mint("item_");
        let previous = self.last_item.replace(id.clone());
        let item = Item { id: id.clone(), previous };
        let shown = response.item_json(&item);
        self.emit("conversation.item.added", json!({"previous_item_id": item.previous, "item": shown}));
        self.emit("response.output_item.added", json!({"response_id": response.id, "output_index": 0, "item": shown}));
        let body = part(response, &id, json!({"part": {"type": "audio", "transcript": ""}}));
        self.emit("response.content_part.added", body);
        response.item = Some(item);
        id
    }

    /// Ends the making of a response, unless it ended before.
    fn close(&mut self, number: u64, status: Status) {
        self.with_active(number, |session, response| {
            response.status = status;
            session.tell_end(response);
        });
    }

    /// Ends the making of a response whose words are not known before it is known where it was cut: what the user did not hear
    /// is not said to be theirs.
    fn cancelled(&mut self, number: u64, reason: CancelReason) {
        self.with_active(number, |session, response| {
            response.status = Status::Cancelled(reason);
            if response.item.is_some() {
                response.held = Held::End;
            } else {
                session.tell_end(response);
            }
        });
    }

    /// Tells what was held of a response.
    fn release(&mut self, number: u64) {
        self.with_known(number, |session, response| {
            let held = std::mem::replace(&mut response.held, Held::Nothing);
            if held != Held::Nothing {
                session.tell_end(response);
            }
            if held == Held::EndAndClear {
                session.emit("output_audio_buffer.cleared", json!({"response_id": response.id}));
            }
        });
    }

    fn tell_end(&mut self, response: &mut Response) {
        if let Some(item) = &response.item {
            let shown = response.item_json(item);
            let transcript = &response.transcript;
            let body = part(response, &item.id, json!({"transcript": transcript}));
            self.emit("response.output_audio_transcript.done", body);
            self.emit("response.output_audio.done", part(response, &item.id, json!({})));
            let body = part(response, &item.id, json!({"part": {"type": "audio", "transcript": transcript}}));
            self.emit("response.content_part.done", body);
            self.emit("conversation.item.done", json!({"previous_item_id": item.previous, "item": shown}));
            self.emit(
                "response.output_item.done",
                json!({"response_id": response.id, "output_index": 0, "item": shown}),
            );
        }
        let body = json!({"response": response.json(&self.context())});
        self.emit("response.done", body);
        if response.playout == Playout::StopHeld {
            response.playout = Playout::Over;
            self.emit("output_audio_buffer.stopped", json!({"response_id": response.id}));
        }
    }

    fn playout_started(&mut self, number: u64) {
        self.with_known(number, |session, response| {
            if response.playout == Playout::NotStarted {
                session.begin_item(response);
                response.playout = Playout::Playing;
                session.emit("output_audio_buffer.started", json!({"response_id": response.id}));
            }
        });
    }

    fn playout_stopped(&mut self, number: u64) {
        self.with_known(number, |session, response| {
            if response.playout == Playout::Playing && response.is_active() {
                response.playout = Playout::StopHeld;
            } else if response.playout == Playout::Playing {
                response.playout = Playout::Over;
                session.emit("output_audio_buffer.stopped", json!({"response_id": response.id}));
            }
        });
    }

    /// A cut is told whether or not a first packet had left: the client may wait for the answer to its clear. A cut of a
    /// response that is still being made ends the making first: what it would yet say is not heard.
    fn playout_cleared(&mut self, number: u64) {
        if self.responses.iter().any(|response| response.number == number && response.is_active()) {
            self.cancelled(number, CancelReason::ClientCancelled);
        }
        self.with_known(number, |session, response| {
            if response.playout == Playout::Over {
                return;
            }
            response.playout = Playout::Over;
            if response.held == Held::End {
                response.held = Held::EndAndClear;
            } else {
                session.emit("output_audio_buffer.cleared", json!({"response_id": response.id}));
            }
        });
    }

    /// The item ends early, and so do its words, here and in all that is told of it from here on.
    fn truncated(&mut self, number: u64, audio_end_ms: u64, transcript: Option<String>) {
        if let Some(response) = self.responses.iter_mut().find(|response| response.number == number) {
            response.truncate(transcript.as_deref());
            if response.is_held() {
                self.release(number);
            }
        }
        self.with_known(number, |session, response| {
            if let Some(item) = &response.item {
                session.emit(
                    "conversation.item.truncated",
                    json!({"item_id": item.id, "content_index": 0, "audio_end_ms": audio_end_ms}),
                );
            }
        });
    }

    /// Held behind a cut that never came: nothing of it was sent, so none of its words were heard.
    fn reply_over(&mut self, number: u64) {
        if let Some(response) = self.responses.iter_mut().find(|known| known.number == number && known.is_held()) {
            response.truncate(Some(""));
            self.release(number);
        }
    }

    /// The item as it is: the client's own copy of a cut one has words that nobody heard.
    fn retrieve(&mut self, id: &str) -> Result<(), ApiError> {
        let known = |response: &Response| {
            let item = response.item.as_ref().filter(|item| item.id == id)?;
            Some(response.item_json(item))
        };
        let item = self.responses.iter().find_map(known).ok_or_else(ApiError::item_retrieve)?;
        self.emit("conversation.item.retrieved", json!({"item": item}));
        Ok(())
    }

    /// Runs `action` on a response that is being made; others are counted.
    fn with_active(&mut self, number: u64, action: impl FnOnce(&mut Self, &mut Response)) {
        self.with_known(number, |session, response| {
            if response.is_active() {
                action(session, response);
            } else {
                session.counters.stale_inputs += 1;
            }
        });
    }

    /// Runs `action` on a response that is remembered; others are counted.
    fn with_known(&mut self, number: u64, action: impl FnOnce(&mut Self, &mut Response)) {
        let Some(index) = self.responses.iter().position(|response| response.number == number) else {
            self.counters.stale_inputs += 1;
            return;
        };
        if let Some(mut response) = self.responses.remove(index) {
            action(self, &mut response);
            self.responses.insert(index, response);
        }
    }

    fn context(&self) -> Context<'_> {
        Context {
            conversation: &self.conversation,
            audio: self.settings.output_audio(),
            max_output_tokens: self.settings.max_output_tokens(),
        }
    }

    fn refuse(&mut self, error: &ApiError) {
        let cause = self.cause.take();
        self.emit_error(error, cause.as_deref());
    }

    fn emit_error(&mut self, error: &ApiError, cause: Option<&str>) {
        self.counters.errors += 1;
        self.emit("error", json!({"error": error.to_json(cause)}));
    }

    fn emit(&mut self, kind: &str, mut body: Value) {
        body["type"] = kind.into();
        body["event_id"] = self.ids.mint("event_").into();
        self.events.push_back(body.to_string());
    }
}

/// The body of an event about a response's one content part.
fn part(response: &Response, item: &str, extra: Value) -> Value {
    let mut body = json!({"response_id": response.id, "item_id": item, "output_index": 0, "content_index": 0});
    if let (Value::Object(body), Value::Object(extra)) = (&mut body, extra) {
        body.extend(extra);
    }
    body
}
