//! What clients send: a tolerant reader. Only what is acted upon is typed; fields not known here are no error.

use serde_json::{Map, Value};

use super::error::{ApiError, shown};
use super::patch::Patch;
use crate::limits::{MAX_CLIENT_BYTES, MAX_CLIENT_VALUES, values_at_most};

/// Longest playout delay taken: nobody converses over more, and what was heard is placed by it.
const MAX_PLAYOUT_MS: f64 = 2000.0;

/// What a client can ask for here.
pub(super) const SUPPORTED: &str = "'session.update', 'input_audio_buffer.append', 'input_audio_buffer.commit', \
                                    'input_audio_buffer.clear', 'conversation.item.create', \
                                    'conversation.item.retrieve', 'conversation.item.truncate', \
                                    'conversation.item.delete', 'response.create', 'response.cancel', \
                                    'output_audio_buffer.clear'";

/// A client event that is acted upon.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ClientEvent {
    SessionUpdate(Map<String, Value>),
    InputAppend {
        audio: String,
    },
    InputCommit,
    InputClear,
    ItemCreate {
        /// `None`: behind the last.
        previous: Option<String>,
        item: Map<String, Value>,
    },
    ItemRetrieve {
        item: String,
    },
    ItemTruncate {
        item: String,
        content_index: u64,
        audio_end_ms: u64,
    },
    ItemDelete {
        item: String,
    },
    ResponseCreate(Map<String, Value>),
    ResponseCancel {
        response: Option<String>,
    },
    OutputClear,
    /// How much later than received the client plays out; none: not known yet.
    PlayoutDelay {
        delay_us: Option<u32>,
    },
    /// Of a type not known here; the first part of its name.
    Unknown(String),
}

/// A client event with its own id, which errors repeat.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Envelope {
    pub(crate) event_id: Option<String>,
    pub(crate) event: Result<ClientEvent, ApiError>,
}

/// Reads one client text.
pub(crate) fn parse(text: &str) -> Envelope {
    let refused = |error| Envelope { event_id: None, event: Err(error) };
    if text.len() > MAX_CLIENT_BYTES {
        let message = format!("The event of {} bytes is larger than the {MAX_CLIENT_BYTES} bytes allowed.", text.len());
        return refused(ApiError::invalid_event(message));
    }
    // Each takes a byte: most audio is not looked through.
    if text.len() > MAX_CLIENT_VALUES && values_at_most(text) > MAX_CLIENT_VALUES {
        let message = format!("The event has more than the {MAX_CLIENT_VALUES} JSON values allowed.");
        return refused(ApiError::invalid_event(message));
    }
    let object = match serde_json::from_str(text) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return refused(ApiError::invalid_event("The event is not a JSON object.")),
        Err(error) => return refused(ApiError::invalid_event(format!("The event is not valid JSON: {error}."))),
    };
    let event_id = match object.get("event_id") {
        // A bound, because errors repeat it.
        Some(Value::String(id)) if id.len() <= 512 => Some(id.clone()),
        None | Some(Value::Null) => None,
        Some(_) => {
            let message = "'event_id' is not a string of at most 512 bytes.";
            return refused(ApiError::invalid_value("event_id", message));
        }
    };
    Envelope { event_id, event: typed(object) }
}

fn typed(mut object: Map<String, Value>) -> Result<ClientEvent, ApiError> {
    let kind = match object.remove("type") {
        Some(Value::String(kind)) => kind,
        None => return Err(ApiError::invalid_event("The 'type' field is missing.")),
        Some(_) => return Err(ApiError::invalid_event("The 'type' field is not a string.")),
    };
    match kind.as_str() {
        "session.update" => Ok(ClientEvent::SessionUpdate(needed_object(&mut object, "session")?)),
        "input_audio_buffer.append" => Ok(ClientEvent::InputAppend { audio: needed_text(&mut object, "audio")? }),
        "input_audio_buffer.commit" => Ok(ClientEvent::InputCommit),
        "input_audio_buffer.clear" => Ok(ClientEvent::InputClear),
        "conversation.item.create" => {
            let previous =
                Patch::take(&mut object, "previous_item_id").read(|value| text("previous_item_id", value))?;
            Ok(ClientEvent::ItemCreate { previous: previous.value(), item: needed_object(&mut object, "item")? })
        }
        "conversation.item.retrieve" => Ok(ClientEvent::ItemRetrieve { item: needed_text(&mut object, "item_id")? }),
        "conversation.item.truncate" => Ok(ClientEvent::ItemTruncate {
            item: needed_text(&mut object, "item_id")?,
            content_index: whole(&mut object, "content_index")?.unwrap_or(0),
            audio_end_ms: whole(&mut object, "audio_end_ms")?.ok_or_else(|| ApiError::missing("audio_end_ms"))?,
        }),
        "conversation.item.delete" => Ok(ClientEvent::ItemDelete { item: needed_text(&mut object, "item_id")? }),
        "response.create" => match Patch::take(&mut object, "response").read(|value| object_of("response", value))? {
            Patch::Value(response) => Ok(ClientEvent::ResponseCreate(response)),
            Patch::Absent | Patch::Null => Ok(ClientEvent::ResponseCreate(Map::new())),
        },
        "response.cancel" => {
            let response = Patch::take(&mut object, "response_id").read(|value| text("response_id", value))?;
            Ok(ClientEvent::ResponseCancel { response: response.value() })
        }
        "output_audio_buffer.clear" => Ok(ClientEvent::OutputClear),
        "fronthaul.playout_delay" => match object.get("delay_ms") {
            None => Ok(ClientEvent::PlayoutDelay { delay_us: None }),
            Some(delay) => match delay.as_f64().filter(|ms| (0.0..=MAX_PLAYOUT_MS).contains(ms)) {
                Some(ms) => Ok(ClientEvent::PlayoutDelay { delay_us: Some(microseconds(ms)) }),
                None => Err(ApiError::invalid_value("delay_ms", "'delay_ms' is not a number from 0 to 2000.")),
            },
        },
        other => Ok(ClientEvent::Unknown(shown(other))),
    }
}

fn text(name: &str, value: Value) -> Result<String, ApiError> {
    match value {
        Value::String(text) => Ok(text),
        _ => Err(ApiError::invalid_value(name, format!("'{name}' is not a string."))),
    }
}

fn object_of(name: &str, value: Value) -> Result<Map<String, Value>, ApiError> {
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Err(ApiError::invalid_value(name, format!("The '{name}' field is not an object."))),
    }
}

fn needed_text(object: &mut Map<String, Value>, name: &str) -> Result<String, ApiError> {
    text(name, object.remove(name).ok_or_else(|| ApiError::missing(name))?)
}

fn needed_object(object: &mut Map<String, Value>, name: &str) -> Result<Map<String, Value>, ApiError> {
    object_of(name, object.remove(name).ok_or_else(|| ApiError::missing(name))?)
}

/// A number that clients compute, so it may have a fraction or lie below zero by a rounding.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, and the range is checked")]
fn whole(object: &mut Map<String, Value>, name: &str) -> Result<Option<u64>, ApiError> {
    match Patch::take(object, name).value() {
        None => Ok(None),
        Some(value) => match value.as_f64().filter(|number| *number <= 1e15) {
            Some(number) => Ok(Some(number.max(0.0) as u64)),
            None => Err(ApiError::invalid_value(name, format!("'{name}' is not a whole number from 0."))),
        },
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "of 0 to 2000 ms")]
fn microseconds(ms: f64) -> u32 {
    (ms * 1000.0).round() as u32
}
