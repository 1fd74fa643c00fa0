//! One response: where it stands, and its JSON forms.

use serde_json::{Value, json};

use crate::CancelReason;

/// Transcript kept for the events that repeat it. `response.done` must fit 256 KiB; beyond this only deltas are sent.
const MAX_TRANSCRIPT_BYTES: usize = 128 * 1024;

/// How far the making of a response is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Status {
    InProgress,
    Completed,
    Cancelled(CancelReason),
    Failed(String),
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

/// The item that holds what is said; exists from the first audio or text on.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) id: String,
    pub(crate) previous: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Response {
    /// The call's number of it.
    pub(crate) number: u64,
    pub(crate) id: String,
    pub(crate) item: Option<Item>,
    pub(crate) transcript: String,
    pub(crate) metadata: Value,
    pub(crate) status: Status,
    pub(crate) playout: Playout,
    pub(crate) held: Held,
    /// The item ends before what was generated of it does.
    truncated: bool,
}

/// What response objects repeat of the session.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) conversation: &'a str,
    pub(crate) audio: Value,
    pub(crate) max_output_tokens: &'a Value,
}

impl Response {
    pub(crate) fn new(number: u64, id: String, metadata: Value) -> Self {
        Self {
            number,
            id,
            item: None,
            transcript: String::new(),
            metadata,
            status: Status::InProgress,
            playout: Playout::NotStarted,
            held: Held::Nothing,
            truncated: false,
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.status == Status::InProgress
    }

    /// Nothing more can happen to it.
    pub(crate) fn is_over(&self) -> bool {
        !self.is_active() && (self.item.is_none() || self.playout == Playout::Over)
    }

    /// Its end waits to be told.
    pub(crate) fn is_held(&self) -> bool {
        self.held != Held::Nothing
    }

    /// The item ends early. `None`: its words are not known.
    pub(crate) fn truncate(&mut self, transcript: Option<&str>) {
        self.truncated = true;
        if let Some(transcript) = transcript {
            transcript.clone_into(&mut self.transcript);
        }
    }

    pub(crate) fn push_transcript(&mut self, delta: &str) {
        if self.transcript.len() + delta.len() <= MAX_TRANSCRIPT_BYTES {
            self.transcript.push_str(delta);
        }
    }

    /// The item as conversation and output events show it.
    pub(crate) fn item_json(&self, item: &Item) -> Value {
        let status = match self.status {
            Status::InProgress => "in_progress",
            Status::Completed if !self.truncated => "completed",
            Status::Completed | Status::Cancelled(_) | Status::Failed(_) => "incomplete",
        };
        let content = match self.status {
            Status::InProgress => json!([]),
            _ => json!([{"type": "output_audio", "transcript": self.transcript}]),
        };
        json!({
            "id": item.id,
            "object": "realtime.item",
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        })
    }

    /// The response object.
    pub(crate) fn json(&self, context: &Context<'_>) -> Value {
        let (status, details) = match &self.status {
            Status::InProgress => ("in_progress", Value::Null),
            Status::Completed => ("completed", Value::Null),
            Status::Cancelled(reason) => {
                let reason = match reason {
                    CancelReason::TurnDetected => "turn_detected",
                    CancelReason::ClientCancelled => "client_cancelled",
                };
                ("cancelled", json!({"type": "cancelled", "reason": reason}))
            }
            Status::Failed(message) => {
                let error = json!({"type": "server_error", "code": "response_failed", "message": message});
                ("failed", json!({"type": "failed", "error": error}))
            }
        };
        let output: Vec<Value> = match &self.item {
            Some(item) if !self.is_active() => vec![self.item_json(item)],
            _ => Vec::new(),
        };
        json!({
            "object": "realtime.response",
            "id": self.id,
            "status": status,
            "status_details": details,
            "output": output,
            "conversation_id": context.conversation,
            "output_modalities": ["audio"],
            "max_output_tokens": context.max_output_tokens,
            "audio": context.audio,
            "usage": null,
            "metadata": self.metadata,
        })
    }
}
