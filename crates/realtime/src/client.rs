//! What clients send: a tolerant reader. Only what is acted upon is typed; fields not known here are no error.

use serde_json::{Map, Value};

use crate::error::ApiError;

/// Largest client text read. Twice the 256 KiB that stock browsers send at most (their peer's `max-message-size` is the
/// edge's); parsed values take up to ~20 times the text, so ~10 MiB for a moment.
pub const MAX_CLIENT_BYTES: usize = 512 * 1024;

/// Longest playout delay taken: nobody converses over more, and what was heard is placed by it.
const MAX_PLAYOUT_MS: f64 = 2000.0;

/// What a client can ask for here.
pub(crate) const SUPPORTED: &str = "'session.update', 'input_audio_buffer.commit', 'input_audio_buffer.clear', \
                                    'response.create', 'response.cancel', 'output_audio_buffer.clear', \
                                    'conversation.item.retrieve'";

/// A client event that is acted upon.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ClientEvent {
    SessionUpdate(Map<String, Value>),
    InputCommit,
    InputClear,
    /// Audio belongs on the track.
    InputAppend,
    ResponseCreate {
        metadata: Value,
    },
    ResponseCancel {
        response: Option<String>,
    },
    OutputClear,
    ItemRetrieve {
        item: String,
    },
    /// How much later than received the client plays out; none: not known yet.
    PlayoutDelay {
        delay_us: Option<u32>,
    },
}

/// A client event with its own id, which errors repeat.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Envelope {
    pub(crate) event_id: Option<String>,
    pub(crate) event: Result<ClientEvent, ApiError>,
}

/// Reads one client text.
pub(crate) fn parse(text: &str) -> Envelope {
    if text.len() > MAX_CLIENT_BYTES {
        let message = format!("The event of {} bytes is larger than the {MAX_CLIENT_BYTES} bytes allowed.", text.len());
        return Envelope { event_id: None, event: Err(ApiError::invalid_event(message)) };
    }
    let object = match serde_json::from_str(text) {
        Ok(Value::Object(object)) => object,
        Ok(_) => {
            let event = Err(ApiError::invalid_event("The event is not a JSON object."));
            return Envelope { event_id: None, event };
        }
        Err(error) => {
            let event = Err(ApiError::invalid_event(format!("The event is not valid JSON: {error}.")));
            return Envelope { event_id: None, event };
        }
    };
    let event_id = match object.get("event_id") {
        // A bound, because errors repeat it.
        Some(Value::String(id)) if id.len() <= 512 => Some(id.clone()),
        None | Some(Value::Null) => None,
        Some(_) => {
            let event = Err(ApiError::invalid_value("event_id", "'event_id' is not a string of at most 512 bytes."));
            return Envelope { event_id: None, event };
        }
    };
    Envelope { event_id, event: typed(object) }
}

fn typed(mut object: Map<String, Value>) -> Result<ClientEvent, ApiError> {
    let kind = match object.get("type") {
        Some(Value::String(kind)) => kind.clone(),
        None => return Err(ApiError::invalid_event("The 'type' field is missing.")),
        Some(_) => return Err(ApiError::invalid_event("The 'type' field is not a string.")),
    };
    match kind.as_str() {
        "session.update" => match object.remove("session") {
            Some(Value::Object(session)) => Ok(ClientEvent::SessionUpdate(session)),
            None => Err(ApiError::invalid_value("session", "The 'session' field is missing.")),
            Some(_) => Err(ApiError::invalid_value("session", "The 'session' field is not an object.")),
        },
        "input_audio_buffer.commit" => Ok(ClientEvent::InputCommit),
        "input_audio_buffer.clear" => Ok(ClientEvent::InputClear),
        "input_audio_buffer.append" => Ok(ClientEvent::InputAppend),
        "output_audio_buffer.clear" => Ok(ClientEvent::OutputClear),
        "response.create" => response_create(object.remove("response")),
        "response.cancel" => match object.remove("response_id") {
            Some(Value::String(response)) => Ok(ClientEvent::ResponseCancel { response: Some(response) }),
            None | Some(Value::Null) => Ok(ClientEvent::ResponseCancel { response: None }),
            Some(_) => Err(ApiError::invalid_value("response_id", "'response_id' is not a string.")),
        },
        "fronthaul.playout_delay" => match object.get("delay_ms") {
            None => Ok(ClientEvent::PlayoutDelay { delay_us: None }),
            Some(delay) => match delay.as_f64().filter(|ms| (0.0..=MAX_PLAYOUT_MS).contains(ms)) {
                Some(ms) => Ok(ClientEvent::PlayoutDelay { delay_us: Some(microseconds(ms)) }),
                None => Err(ApiError::invalid_value("delay_ms", "'delay_ms' is not a number from 0 to 2000.")),
            },
        },
        "conversation.item.retrieve" => match object.remove("item_id") {
            Some(Value::String(item)) => Ok(ClientEvent::ItemRetrieve { item }),
            _ => Err(ApiError::invalid_value("item_id", "'item_id' is not a string.")),
        },
        other => Err(ApiError::unknown_event(other, SUPPORTED)),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "of 0 to 2000 ms")]
fn microseconds(ms: f64) -> u32 {
    (ms * 1000.0).round() as u32
}

fn response_create(response: Option<Value>) -> Result<ClientEvent, ApiError> {
    let mut response = match response {
        None | Some(Value::Null) => return Ok(ClientEvent::ResponseCreate { metadata: Value::Null }),
        Some(Value::Object(response)) => response,
        Some(_) => return Err(ApiError::invalid_value("response", "The 'response' field is not an object.")),
    };
    if let Some(modalities) = response.get("output_modalities") {
        audio_only("response.output_modalities", modalities)?;
    }
    match response.remove("metadata") {
        None | Some(Value::Null) => Ok(ClientEvent::ResponseCreate { metadata: Value::Null }),
        // Every event of the response repeats it: the API's own bound is 16 pairs of 64 + 512 characters.
        Some(Value::Object(pairs)) if pairs.len() <= 16 && Value::Object(pairs.clone()).to_string().len() <= 40_000 => {
            Ok(ClientEvent::ResponseCreate { metadata: Value::Object(pairs) })
        }
        Some(_) => {
            Err(ApiError::invalid_value("response.metadata", "'metadata' is not an object of at most 16 pairs."))
        }
    }
}

/// Refuses output that no model here makes, rather than promising it.
pub(crate) fn audio_only(param: &str, modalities: &Value) -> Result<(), ApiError> {
    if modalities.as_array().is_some_and(|list| list.len() == 1 && list[0] == "audio") {
        return Ok(());
    }
    Err(ApiError::invalid_value(param, "Supported values are: [\"audio\"]."))
}
