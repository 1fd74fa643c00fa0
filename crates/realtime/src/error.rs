//! What a client did wrong, in the API's words: clients switch on `code` and on the beginning of `message`.

use serde_json::{Value, json};

/// One `error` event in the making.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// The field at fault, as a path.
    pub(crate) param: Option<String>,
}

impl ApiError {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), param: None }
    }

    /// The text is no event at all.
    pub(crate) fn invalid_event(message: impl Into<String>) -> Self {
        Self::new("invalid_event", message)
    }

    /// A field holds what it may not.
    pub(crate) fn invalid_value(param: &str, message: impl Into<String>) -> Self {
        Self { code: "invalid_value", message: message.into(), param: Some(param.to_owned()) }
    }

    /// An event type this server does not know, or does not act on.
    pub(crate) fn unknown_event(kind: &str, supported: &str) -> Self {
        // The type is the client's text: a bounded part of it is enough to recognize it.
        let shown: String = kind.chars().take(64).collect();
        let message = format!("Event type '{shown}' is not supported here. Supported values are: {supported}.");
        Self { code: "unknown_event", message, param: Some("type".to_owned()) }
    }

    pub(crate) fn append_over_webrtc() -> Self {
        Self::new(
            "unknown_event",
            "input_audio_buffer.append is not supported on this connection: audio is taken from the WebRTC track. \
             Further appends are ignored silently.",
        )
    }

    /// The code that clients know to be harmless, since they send the request by themselves. The agent's latest items are kept.
    pub(crate) fn item_retrieve() -> Self {
        Self {
            code: "item_retrieve_invalid_item_id",
            message: "The item is not known here (any more): the items of the latest responses are.".to_owned(),
            param: Some("item_id".to_owned()),
        }
    }

    /// Some clients find the request by "response.create" in the message.
    pub(crate) fn active_response(response: &str) -> Self {
        Self::new(
            "conversation_already_has_active_response",
            format!(
                "Conversation already has an active response in progress: {response}. \
                 Wait until the response is finished before sending response.create."
            ),
        )
    }

    pub(crate) fn create_unsupported(model: &str) -> Self {
        Self::new("response_create_unsupported", format!("The model '{model}' does not answer response.create."))
    }

    /// Some clients find the request by "Cancellation failed" at the start of the message.
    pub(crate) fn cancel_not_active() -> Self {
        Self::new("response_cancel_not_active", "Cancellation failed: no active response found")
    }

    pub(crate) fn commit_empty() -> Self {
        Self::new(
            "input_audio_buffer_commit_empty",
            "Error committing input audio buffer: the buffer is empty, there is no audio since the last commit.",
        )
    }

    pub(crate) fn voice_fixed() -> Self {
        Self {
            code: "cannot_update_voice",
            message: "Cannot update a conversation's voice if assistant audio is present.".to_owned(),
            param: Some("session.audio.output.voice".to_owned()),
        }
    }

    pub(crate) fn session_too_large(limit: usize) -> Self {
        Self::invalid_value("session", format!("The session would be larger than {limit} bytes; it is unchanged."))
    }

    /// The `error` member of the event; `cause` is the `event_id` of the client's event, if it had one.
    pub(crate) fn to_json(&self, cause: Option<&str>) -> Value {
        json!({
            "type": "invalid_request_error",
            "code": self.code,
            "message": self.message,
            "param": self.param,
            "event_id": cause,
        })
    }
}
