//! One response: where it stands, and its JSON forms.

use serde_json::{Value, json};

use super::request::Terms;
use crate::call::{CancelReason, Failure, IncompleteReason, Modality, Usage};
use crate::limits::{MAX_ARGUMENTS_BYTES, MAX_TRANSCRIPT_BYTES, escaped_len};

/// How far the making of a response is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Status {
    InProgress,
    Completed,
    Incomplete(IncompleteReason),
    Cancelled(CancelReason),
    Failed(Failure),
}

/// How far its playout is. Generation is faster than speech, so this usually ends after the making.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Playout {
    NotStarted,
    Playing,
    /// The last packet left before the response was done: told right after `response.done`.
    StopHeld,
    Over,
}

/// What is told only when it is known where the response was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    Nothing,
    /// Its end.
    End,
    /// And then that its playout was cut.
    EndAndClear,
}

/// Where an output item stands.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) id: String,
    pub(crate) previous: Option<String>,
    pub(crate) output_index: usize,
}

/// The item that holds what is said; exists from the first audio or text on.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) place: Place,
    pub(crate) text: String,
    /// Of `text` inside JSON.
    text_bytes: usize,
    /// Bytes of audio in events, as milliseconds of speech in 1/1000.
    pub(crate) audio_us: u64,
    /// It ends before what was generated of it does.
    pub(crate) truncated: bool,
}

/// A call of a tool's.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) place: Place,
    pub(crate) call_id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
    pub(crate) state: CallState,
}

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallState {
    Making,
    /// It may be made.
    Done,
    /// It may not: the response ended in the middle of it, or it was too long.
    Incomplete,
}

#[derive(Debug)]
pub(crate) struct Response {
    /// The call's number of it.
    pub(crate) number: u64,
    pub(crate) id: String,
    pub(crate) terms: Terms,
    pub(crate) message: Option<Message>,
    pub(crate) calls: Vec<Call>,
    arguments_bytes: usize,
    pub(crate) usage: Option<Usage>,
    pub(crate) status: Status,
    pub(crate) playout: Playout,
    pub(crate) held: Held,
}

impl Response {
    pub(crate) fn new(number: u64, id: String, terms: Terms) -> Self {
        Self {
            number,
            id,
            terms,
            message: None,
            calls: Vec::new(),
            arguments_bytes: 0,
            usage: None,
            status: Status::InProgress,
            playout: Playout::NotStarted,
            held: Held::Nothing,
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.status == Status::InProgress
    }

    pub(crate) fn is_text(&self) -> bool {
        self.terms.modality == Modality::Text
    }

    /// Nothing more can happen to it.
    pub(crate) fn is_over(&self) -> bool {
        let plays = self.message.is_some() && !self.is_text();
        !self.is_active() && (!plays || self.playout == Playout::Over)
    }

    /// Its end waits to be told.
    pub(crate) fn is_held(&self) -> bool {
        self.held != Held::Nothing
    }

    /// One of its items has that id and is not done.
    pub(crate) fn makes(&self, id: &str) -> bool {
        let message = self.message.iter().map(|message| &message.place);
        let mut places = message.chain(self.calls.iter().map(|call| &call.place));
        (self.is_active() || self.is_held()) && places.any(|place| place.id == id)
    }

    /// Where the next output item goes.
    pub(crate) fn next_index(&self) -> usize {
        self.calls.len() + usize::from(self.message.is_some())
    }

    /// The message ends early. `None`: its words are not known.
    pub(crate) fn truncate(&mut self, text: Option<&str>) {
        if let Some(message) = &mut self.message {
            message.truncated = true;
            if let Some(text) = text {
                text.clone_into(&mut message.text);
            }
        }
    }

    /// `false`: there is no room for it.
    pub(crate) fn take_arguments(&mut self, arguments: &str) -> bool {
        self.arguments_bytes += escaped_len(arguments);
        self.arguments_bytes <= MAX_ARGUMENTS_BYTES
    }

    /// Text and arguments kept, for the bound on all that is.
    pub(crate) fn bytes(&self) -> usize {
        let arguments = self.calls.iter().map(|call| call.arguments.len() + call.name.len() + call.call_id.len());
        self.message.as_ref().map_or(0, |message| message.text.len()) + arguments.sum::<usize>()
    }

    /// Gives up what is kept in the conversation's items as well, once its end was told.
    pub(crate) fn forget_texts(&mut self) {
        self.calls.clear();
        if let Some(message) = &mut self.message {
            message.text = String::new();
        }
    }

    /// The message as conversation and output events show it.
    pub(crate) fn message_json(&self, message: &Message) -> Value {
        let status = match self.status {
            Status::InProgress => "in_progress",
            Status::Completed if !message.truncated => "completed",
            _ => "incomplete",
        };
        let content = match (&self.status, self.terms.modality) {
            (Status::InProgress, _) => json!([]),
            (_, Modality::Audio) => json!([{"type": "output_audio", "transcript": message.text}]),
            (_, Modality::Text) => json!([{"type": "output_text", "text": message.text}]),
        };
        json!({
            "id": message.place.id,
            "object": "realtime.item",
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        })
    }

    /// All items that it made, in order.
    pub(crate) fn output(&self) -> Vec<Value> {
        let message = self.message.as_ref().map(|message| (message.place.output_index, self.message_json(message)));
        let calls = self.calls.iter().map(|call| (call.place.output_index, call.json()));
        let mut output: Vec<_> = message.into_iter().chain(calls).collect();
        output.sort_by_key(|(index, _)| *index);
        output.into_iter().map(|(_, item)| item).collect()
    }

    /// The response object.
    pub(crate) fn json(&self, conversation: &str) -> Value {
        let (status, details) = match &self.status {
            Status::InProgress => ("in_progress", Value::Null),
            Status::Completed => ("completed", Value::Null),
            Status::Incomplete(reason) => {
                let reason = match reason {
                    IncompleteReason::MaxOutputTokens => "max_output_tokens",
                    IncompleteReason::ContentFilter => "content_filter",
                };
                ("incomplete", json!({"type": "incomplete", "reason": reason}))
            }
            Status::Cancelled(reason) => {
                let reason = match reason {
                    CancelReason::TurnDetected => "turn_detected",
                    CancelReason::ClientCancelled => "client_cancelled",
                };
                ("cancelled", json!({"type": "cancelled", "reason": reason}))
            }
            Status::Failed(Failure { kind, code, message }) => {
                let error = json!({"type": kind, "code": code, "message": message});
                ("failed", json!({"type": "failed", "error": error}))
            }
        };
        let conversation = (!self.terms.out_of_band).then_some(conversation);
        let modality = if self.is_text() { "text" } else { "audio" };
        json!({
            "object": "realtime.response",
            "id": self.id,
            "status": status,
            "status_details": details,
            "output": if self.is_active() { Vec::new() } else { self.output() },
            "conversation_id": conversation,
            "output_modalities": [modality],
            "max_output_tokens": self.terms.max_output_tokens,
            "audio": self.terms.audio,
            "usage": self.usage.as_ref().map(usage_json),
            "metadata": self.terms.metadata,
        })
    }
}

impl Message {
    pub(crate) fn new(place: Place) -> Self {
        Self { place, text: String::new(), text_bytes: 0, audio_us: 0, truncated: false }
    }

    /// `false`: there is no room for it, or the message ends before.
    pub(crate) fn push(&mut self, delta: &str) -> bool {
        let bytes = self.text_bytes + escaped_len(delta);
        let fits = !self.truncated && bytes <= MAX_TRANSCRIPT_BYTES;
        if fits {
            self.text.push_str(delta);
            self.text_bytes = bytes;
        }
        fits
    }
}

impl Call {
    /// The item as conversation and output events show it.
    pub(crate) fn json(&self) -> Value {
        let (status, arguments) = match self.state {
            CallState::Making => ("in_progress", ""),
            CallState::Done => ("completed", self.arguments.as_str()),
            CallState::Incomplete => ("incomplete", self.arguments.as_str()),
        };
        json!({
            "id": self.place.id,
            "object": "realtime.item",
            "type": "function_call",
            "status": status,
            "call_id": self.call_id,
            "name": self.name,
            "arguments": arguments,
        })
    }
}

fn usage_json(usage: &Usage) -> Value {
    let Usage { input_text, input_audio, input_image, cached, output_text, output_audio } = *usage;
    let input = input_text.saturating_add(input_audio).saturating_add(input_image);
    let output = output_text.saturating_add(output_audio);
    json!({
        "total_tokens": input.saturating_add(output),
        "input_tokens": input,
        "output_tokens": output,
        "input_token_details": {
            "text_tokens": input_text,
            "audio_tokens": input_audio,
            "image_tokens": input_image,
            "cached_tokens": cached,
        },
        "output_token_details": {"text_tokens": output_text, "audio_tokens": output_audio},
    })
}
