//! The life of a response, told in the order that clients rely on.

use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::items;
use super::request::{self, Terms};
use super::response::{Held, Message, Place, Playout, Response, Status};
use super::session::Session;
use crate::Transport;
use crate::audio;
use crate::call::{CancelReason, Command, Failure, Input, Item, ItemKind, Modality, RateLimit};
use crate::limits::{MAX_DELTA_BYTES, MAX_RATE_LIMITS, MAX_RESPONSES, MAX_TRANSCRIPT_BYTES, escaped_len};

impl Session {
    /// The client asks for a response.
    pub(super) fn create_response(&mut self, fields: Map<String, Value>) -> Result<(), ApiError> {
        if self.settings.is_transcription() {
            return Err(ApiError::create_in_transcription());
        }
        if let Some(active) = self.active_id() {
            return Err(ApiError::active_response(active));
        }
        let (terms, request) = request::read(fields, &self.settings)?;
        self.creating = Some(terms);
        self.commands.push_back(Command::CreateResponse(Box::new(request)));
        Ok(())
    }

    pub(super) fn active_id(&self) -> Option<&str> {
        self.responses.iter().rev().find(|response| response.is_active()).map(|response| response.id.as_str())
    }

    /// What happened to a response.
    pub(super) fn handle_response(&mut self, input: Input) {
        if self.settings.is_transcription() {
            self.counters.stale_inputs += 1;
            return;
        }
        match input {
            Input::ResponseCreated { response } => self.response_created(response),
            Input::ResponseAudioStarted { response } => self.with_active(response, |session, response| {
                if !response.is_text() {
                    session.begin_message(response);
                }
            }),
            Input::ResponseAudio { response, data } => self.response_audio(response, &data),
            Input::ResponseText { response, delta } => self.response_text(response, &delta),
            Input::ToolCallDelta { response, call_id, name, delta } => {
                self.tool_call(response, &call_id, &name, |session, response, call| {
                    session.more_arguments(response, call, &delta);
                });
            }
            Input::ToolCallDone { response, call_id, name, arguments } => {
                self.tool_call(response, &call_id, &name, |session, response, call| {
                    session.all_arguments(response, call, arguments);
                });
            }
            Input::ResponseUsage { response, usage } => {
                self.with_active(response, |_, response| response.usage = Some(usage));
            }
            Input::ResponseDone { response } => self.close_response(response, Status::Completed),
            Input::ResponseIncomplete { response, reason } => self.close_response(response, Status::Incomplete(reason)),
            Input::ResponseCancelled { response, reason } => self.cancelled(response, reason),
            Input::ResponseFailed { response, failure } => {
                self.close_response(response, Status::Failed(failure.bounded()));
            }
            Input::ReplyOver { response } => self.reply_over(response),
            // Where the client plays, it owns playout and says where it cut.
            _ if self.transport == Transport::WebSocket => {}
            Input::PlayoutStarted { response } => self.playout_started(response),
            Input::PlayoutStopped { response } => self.playout_stopped(response),
            Input::PlayoutCleared { response } => self.playout_cleared(response),
            Input::Truncated { response, audio_end_ms, transcript } => {
                self.truncated(response, audio_end_ms, transcript.as_deref());
            }
            _ => {}
        }
    }

    fn response_created(&mut self, number: u64) {
        if self.responses.iter().any(|response| response.number >= number) {
            self.counters.stale_inputs += 1;
            return;
        }
        if let Some(active) = self.responses.iter().find(|response| response.is_active()) {
            let (kind, code) = ("server_error".to_owned(), "response_replaced".to_owned());
            let message = "another response took its place".to_owned();
            self.close_response(active.number, Status::Failed(Failure { kind, code, message }));
        }
        // One cut of which the edge's word has not come yet is told before the next begins.
        while let Some(held) = self.responses.iter().find(|response| response.is_held()) {
            self.release(held.number);
        }
        if self.responses.len() == MAX_RESPONSES {
            let over = self.responses.iter().position(Response::is_over).unwrap_or(0);
            self.responses.remove(over);
        }
        let terms = self.creating.take().unwrap_or_else(|| Terms::of(&self.settings));
        let response = Response::new(number, self.ids.mint("resp_"), terms);
        let body = json!({"response": response.json(&self.conversation)});
        self.responses.push_back(response);
        self.emit("response.created", body);
    }

    /// Names the item of a response, once.
    fn begin_message(&mut self, response: &mut Response) -> String {
        if let Some(message) = &response.message {
            return message.place.id.clone();
        }
        self.audio_began |= !response.is_text();
        let mut message = Message::new(self.new_place(response));
        let id = message.place.id.clone();
        let item = response.message_json(&message);
        self.add_output(response, &mut message.place, &item, None);
        let body = part(response, &id, message.place.output_index, json!({"part": content_part(response, "")}));
        self.emit("response.content_part.added", body);
        response.message = Some(message);
        id
    }

    /// Where the next item of a response goes: behind all that there are.
    pub(super) fn new_place(&mut self, response: &Response) -> Place {
        Place { id: self.ids.mint("item_"), previous: None, output_index: response.next_index() }
    }

    /// Tells of an item in the making, which is part of the conversation unless the response is not.
    pub(super) fn add_output(&mut self, response: &Response, place: &mut Place, item: &Value, call_id: Option<String>) {
        if !response.terms.out_of_band {
            place.previous = self.items.insert(items::Place::End, &place.id, item).unwrap_or_default();
            let kind = ItemKind::Output { response: response.number, call_id };
            self.tell_item(&place.id, place.previous.clone(), kind);
            self.emit("conversation.item.added", json!({"previous_item_id": place.previous, "item": item}));
        }
        let body = json!({"response_id": response.id, "output_index": place.output_index, "item": item});
        self.emit("response.output_item.added", body);
    }

    /// Tells the call of an item that the client did not write.
    pub(super) fn tell_item(&mut self, id: &str, previous: Option<String>, kind: ItemKind) {
        let item = Item { id: id.to_owned(), previous, kind, json: String::new() };
        self.commands.push_back(Command::AddItem(Box::new(item)));
    }

    /// Tells that an item is complete, or as complete as it will be.
    pub(super) fn end_output(&mut self, response: &Response, place: &Place, item: &Value) {
        if !response.terms.out_of_band {
            self.items.replace(&place.id, item);
            self.emit("conversation.item.done", json!({"previous_item_id": place.previous, "item": item}));
        }
        let body = json!({"response_id": response.id, "output_index": place.output_index, "item": item});
        self.emit("response.output_item.done", body);
    }

    /// Audio in the session's output format. Over WebRTC it travels by itself.
    fn response_audio(&mut self, number: u64, data: &[u8]) {
        let format = self.settings.output_format();
        self.with_active(number, |session, response| {
            if response.is_text() || data.is_empty() {
                return;
            }
            let id = session.begin_message(response);
            let Some(message) = &mut response.message else { return };
            message.audio_us += data.len() as u64 * 1_000_000 / format.bytes_per_second();
            let (index, audio_us, truncated) = (message.place.output_index, message.audio_us, message.truncated);
            if !truncated {
                session.items.set_spoken(&id, audio_us / 1000);
            }
            if session.transport == Transport::WebSocket {
                for data in data.chunks(MAX_DELTA_BYTES) {
                    let body = part(response, &id, index, json!({"delta": audio::encode(data)}));
                    session.emit("response.output_audio.delta", body);
                }
            }
        });
    }

    fn response_text(&mut self, number: u64, delta: &str) {
        self.with_active(number, |session, response| {
            if escaped_len(delta) > MAX_TRANSCRIPT_BYTES {
                session.counters.overflows += 1;
                return;
            }
            let id = session.begin_message(response);
            let Some(message) = &mut response.message else { return };
            session.counters.overflows += u64::from(!message.push(delta) && !message.truncated);
            let index = message.place.output_index;
            let kind = match response.terms.modality {
                Modality::Audio => "response.output_audio_transcript.delta",
                Modality::Text => "response.output_text.delta",
            };
            session.emit(kind, part(response, &id, index, json!({"delta": delta})));
        });
    }

    /// Ends the making of a response, unless it ended before.
    fn close_response(&mut self, number: u64, status: Status) {
        self.with_active(number, |session, response| {
            response.status = status;
            session.tell_end(response);
        });
    }

    /// Ends the making of a response. Where the server owns playout, its words are not known before it is known where it was cut: what the
    /// user did not hear is not said to be theirs.
    fn cancelled(&mut self, number: u64, reason: CancelReason) {
        self.with_active(number, |session, response| {
            response.status = Status::Cancelled(reason);
            let plays = response.message.is_some() && !response.is_text();
            if plays && session.transport == Transport::WebRtc {
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
        if let Some(message) = &response.message {
            let (id, index, text) = (&message.place.id, message.place.output_index, &message.text);
            if response.is_text() {
                self.emit("response.output_text.done", part(response, id, index, json!({"text": text})));
            } else {
                let body = part(response, id, index, json!({"transcript": text}));
                self.emit("response.output_audio_transcript.done", body);
                self.emit("response.output_audio.done", part(response, id, index, json!({})));
            }
            let body = part(response, id, index, json!({"part": content_part(response, text)}));
            self.emit("response.content_part.done", body);
            self.end_output(response, &message.place, &response.message_json(message));
        }
        self.end_calls(response);
        let body = json!({"response": response.json(&self.conversation)});
        self.emit("response.done", body);
        response.forget_texts();
        if let Some(limits) = self.rate_limits.take() {
            self.tell_rate_limits(&limits);
        }
        if response.playout == Playout::StopHeld {
            response.playout = Playout::Over;
            self.emit("output_audio_buffer.stopped", json!({"response_id": response.id}));
        }
    }

    /// What is left of the client's limits is news of the end of a response.
    pub(super) fn rate_limits(&mut self, limits: Vec<RateLimit>) {
        if self.active_id().is_some() || self.responses.iter().any(Response::is_held) {
            self.rate_limits = Some(limits);
        } else {
            self.tell_rate_limits(&limits);
        }
    }

    fn tell_rate_limits(&mut self, limits: &[RateLimit]) {
        #[expect(clippy::cast_precision_loss, reason = "seconds for people to read")]
        let shown = |limit: &RateLimit| {
            json!({"name": limit.name, "limit": limit.limit, "remaining": limit.remaining,
                   "reset_seconds": limit.reset_ms as f64 / 1000.0})
        };
        let limits: Vec<Value> = limits.iter().take(MAX_RATE_LIMITS).map(shown).collect();
        self.emit("rate_limits.updated", json!({"rate_limits": limits}));
    }

    fn playout_started(&mut self, number: u64) {
        self.with_known(number, |session, response| {
            if response.playout == Playout::NotStarted && !response.is_text() {
                // A response that is done without an item made no sound: what plays is not its.
                if response.message.is_none() && !response.is_active() {
                    session.counters.stale_inputs += 1;
                    return;
                }
                session.begin_message(response);
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
    fn truncated(&mut self, number: u64, audio_end_ms: u64, transcript: Option<&str>) {
        let Some(response) = self.responses.iter_mut().find(|response| response.number == number) else {
            self.counters.stale_inputs += 1;
            return;
        };
        let Some(id) = response.message.as_ref().map(|message| message.place.id.clone()) else { return };
        if response.is_held() || response.is_active() {
            response.truncate(transcript);
            if response.is_held() {
                self.release(number);
            }
        } else if let Some(item) = self.items.get(&id) {
            self.cut_item(&id, item, transcript);
        }
        // One that the client deleted meanwhile, or that never was in the conversation, is not there to end.
        if self.items.contains(&id) {
            self.items.set_spoken(&id, audio_end_ms);
            self.tell_truncated(&id, audio_end_ms);
            let transcript = transcript.map(str::to_owned);
            self.commands.push_back(Command::TruncateItem { item: id, audio_end_ms, transcript });
        }
    }

    /// Held behind a cut that never came: nothing of it was sent, so none of its words were heard.
    fn reply_over(&mut self, number: u64) {
        if let Some(response) = self.responses.iter_mut().find(|known| known.number == number && known.is_held()) {
            response.truncate(Some(""));
            self.release(number);
        }
    }

    /// Runs `action` on a response that is being made; others are counted.
    pub(super) fn with_active(&mut self, number: u64, action: impl FnOnce(&mut Self, &mut Response)) {
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
}

/// The part of content that a message has; here its types are called otherwise than in the item.
fn content_part(response: &Response, text: &str) -> Value {
    match response.terms.modality {
        Modality::Audio => json!({"type": "audio", "transcript": text}),
        Modality::Text => json!({"type": "text", "text": text}),
    }
}

/// The body of an event about a response's one content part.
fn part(response: &Response, item: &str, output_index: usize, extra: Value) -> Value {
    let mut body =
        json!({"response_id": response.id, "item_id": item, "output_index": output_index, "content_index": 0});
    if let (Value::Object(body), Value::Object(extra)) = (&mut body, extra) {
        body.extend(extra);
    }
    body
}
