//! What a client did wrong, in the API's words: clients switch on `code` and on the beginning of `message`.

use serde_json::{Value, json};

use super::effective::Unfit;

/// One `error` event in the making.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    code: Option<&'static str>,
    message: String,
    /// The field at fault, as a path.
    param: Option<String>,
}

impl ApiError {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code: Some(code), message: message.into(), param: None }
    }

    fn of(self, param: &str) -> Self {
        Self { param: Some(param.to_owned()), ..self }
    }

    /// The same, for who asks before there is a session.
    pub(crate) fn unfit(self) -> Unfit {
        let Self { code, message, param } = self;
        Unfit { code, message, param }
    }

    /// The text is no event at all.
    pub(crate) fn invalid_event(message: impl Into<String>) -> Self {
        Self::new("invalid_event", message)
    }

    /// A field holds what it may not.
    pub(crate) fn invalid_value(param: &str, message: impl Into<String>) -> Self {
        Self::new("invalid_value", message).of(param)
    }

    /// A field that must be there is not.
    pub(crate) fn missing(param: &str) -> Self {
        Self::new("missing_required_parameter", format!("Missing required parameter: '{param}'.")).of(param)
    }

    /// An event type this server does not know, or does not act on.
    pub(crate) fn unknown_event(kind: &str, supported: &str) -> Self {
        let message = format!(
            "Event type '{kind}' is not known here and was ignored, as further ones will be silently. \
             Supported values are: {supported}."
        );
        Self::new("unknown_event", message).of("type")
    }

    pub(crate) fn append_over_webrtc() -> Self {
        Self::new(
            "unknown_event",
            "input_audio_buffer.append is not supported on this connection: audio is taken from the WebRTC track. \
             Further appends are ignored silently.",
        )
    }

    /// The code that clients know to be harmless, since they send the request by themselves.
    pub(crate) fn item_retrieve(item: &str) -> Self {
        Self::no_item("item_retrieve_invalid_item_id", "retrieving", item)
    }

    pub(crate) fn item_truncate(item: &str) -> Self {
        Self::no_item("item_truncate_invalid_item_id", "truncating", item)
    }

    pub(crate) fn item_delete(item: &str) -> Self {
        Self::no_item("item_delete_invalid_item_id", "deleting", item)
    }

    fn no_item(code: &'static str, what: &str, item: &str) -> Self {
        Self::new(code, format!("Error {what} item: the item with id '{}' does not exist.", shown(item))).of("item_id")
    }

    pub(crate) fn item_previous(item: &str) -> Self {
        let message = format!("Error adding item: the previous item with id '{}' does not exist.", shown(item));
        Self::new("item_create_invalid_previous_item_id", message).of("previous_item_id")
    }

    pub(crate) fn item_duplicate(item: &str) -> Self {
        let message = format!("Error adding item: an item with id '{}' already exists.", shown(item));
        Self::new("item_create_duplicate_item_id", message).of("item.id")
    }

    pub(crate) fn item_too_large(limit: usize) -> Self {
        let message = format!("The item is larger than the {limit} bytes allowed without its images and audio.");
        Self::invalid_value("item", message)
    }

    pub(crate) fn truncate_unsupported() -> Self {
        Self::new("unsupported_content_type", "Only model output audio messages can be truncated")
    }

    /// Without a code, as clients have seen it.
    pub(crate) fn truncate_beyond(has_ms: u64, asked_ms: u64) -> Self {
        let message = format!("Audio content of {has_ms}ms is already shorter than {asked_ms}ms");
        Self { code: None, message, param: None }
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

    pub(crate) fn create_in_transcription() -> Self {
        Self::new(
            "response_create_unsupported",
            "A transcription session makes no responses, so response.create is not answered.",
        )
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
        Self::new("cannot_update_voice", "Cannot update a conversation's voice if assistant audio is present.")
            .of("session.audio.output.voice")
    }

    pub(crate) fn session_too_large(limit: usize) -> Self {
        Self::invalid_value("session", format!("The session would be larger than {limit} bytes; it is unchanged."))
    }

    pub(crate) fn session_expired(message: String) -> Self {
        Self::new("session_expired", message)
    }

    pub(crate) fn too_fast() -> Self {
        Self::new(
            "rate_limit_exceeded",
            "Events come faster than they are taken: at most 100 requests a second, fewer where the answer is large, and \
             2 MiB a second. This one and what follows too soon is ignored; a client that goes on is disconnected.",
        )
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

/// The client's own text, as far as it helps to recognize it.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}
