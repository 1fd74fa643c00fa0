//! The shape of a session object, and of what a response may override of it.

use serde_json::Value;

use super::error::ApiError;
use crate::audio::AudioFormat;
use crate::call::Modality;

/// One field: where, what it may be, and the test for it.
type Check = (&'static str, &'static str, fn(&Value) -> bool);

const CHECKS: [Check; 17] = [
    ("/audio", "an object", Value::is_object),
    ("/audio/input", "an object", Value::is_object),
    ("/audio/output", "an object", Value::is_object),
    ("/audio/input/format", FORMATS, is_format),
    ("/audio/output/format", FORMATS, is_format),
    ("/audio/input/transcription", "an object or null", is_object_or_null),
    ("/audio/input/noise_reduction", "an object or null", is_object_or_null),
    ("/audio/output/voice", "a string or an object with an id", is_voice),
    ("/audio/output/speed", "a number from 0.25 to 1.5", is_speed),
    ("/instructions", "a string", Value::is_string),
    ("/tools", "an array of objects", is_objects),
    ("/tool_choice", "'auto', 'none', 'required' or an object", is_tool_choice),
    ("/parallel_tool_calls", "true or false", Value::is_boolean),
    ("/max_output_tokens", "a whole number from 1 to 4096 or 'inf'", is_max_output_tokens),
    ("/truncation", "'auto', 'disabled' or an object", is_truncation),
    ("/include", "an array of strings or null", is_strings_or_null),
    ("/output_modalities", MODALITIES, is_modalities),
];

const FORMATS: &str = "{\"type\":\"audio/pcm\",\"rate\":24000}, {\"type\":\"audio/pcmu\"} or {\"type\":\"audio/pcma\"}";
const MODALITIES: &str = "[\"audio\"] or [\"text\"]";

/// Checks what there is of an object; `root` names it in errors.
pub(super) fn check(root: &str, object: &Value) -> Result<(), ApiError> {
    for (path, allowed, right) in CHECKS {
        if object.pointer(path).is_some_and(|value| !right(value)) {
            let param = format!("{root}{}", path.replace('/', "."));
            return Err(ApiError::invalid_value(&param, format!("'{param}' is not {allowed}.")));
        }
    }
    Ok(())
}

/// The one modality of a list.
pub(super) fn modality(list: &Value) -> Option<Modality> {
    match list.as_array().map(Vec::as_slice) {
        Some([Value::String(one)]) if one == "audio" => Some(Modality::Audio),
        Some([Value::String(one)]) if one == "text" => Some(Modality::Text),
        _ => None,
    }
}

/// A format, which is 24 kHz if it is PCM.
pub(super) fn format(value: &Value) -> Option<AudioFormat> {
    match value.get("type").and_then(Value::as_str)? {
        "audio/pcm" if value.get("rate").is_none_or(|rate| *rate == 24_000) => Some(AudioFormat::Pcm16),
        "audio/pcmu" => Some(AudioFormat::Pcmu),
        "audio/pcma" => Some(AudioFormat::Pcma),
        _ => None,
    }
}

fn is_modalities(value: &Value) -> bool {
    modality(value).is_some()
}

fn is_format(value: &Value) -> bool {
    format(value).is_some()
}

fn is_object_or_null(value: &Value) -> bool {
    value.is_object() || value.is_null()
}

fn is_objects(value: &Value) -> bool {
    value.as_array().is_some_and(|list| list.iter().all(Value::is_object))
}

fn is_strings_or_null(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(|list| list.iter().all(Value::is_string))
}

fn is_voice(value: &Value) -> bool {
    value.is_string() || value.get("id").is_some_and(Value::is_string)
}

fn is_speed(value: &Value) -> bool {
    value.as_f64().is_some_and(|speed| (0.25..=1.5).contains(&speed))
}

fn is_tool_choice(value: &Value) -> bool {
    value.is_object() || matches!(value.as_str(), Some("auto" | "none" | "required"))
}

fn is_max_output_tokens(value: &Value) -> bool {
    value == "inf" || value.as_u64().is_some_and(|tokens| (1..=4096).contains(&tokens))
}

fn is_truncation(value: &Value) -> bool {
    value.is_object() || matches!(value.as_str(), Some("auto" | "disabled"))
}
