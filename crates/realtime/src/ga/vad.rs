//! `audio.input.turn_detection`: reading, showing and patching it.

use serde_json::{Map, Value, json};

use super::error::ApiError;
use crate::turn::{Eagerness, TurnDetection, Vad};

/// What turn detection begins from, as the API shows it.
pub(super) fn turn_detection(vad: &Vad, transcription: bool) -> Value {
    if vad.eagerness.is_some() { semantic_vad(vad, transcription) } else { server_vad(vad, transcription) }
}

fn server_vad(vad: &Vad, transcription: bool) -> Value {
    // Through its text, so that 0.6 is not shown as 0.6000000238418579.
    let threshold: f64 = vad.threshold.to_string().parse().unwrap_or(0.5);
    let mut shown = json!({
        "type": "server_vad",
        "threshold": threshold,
        "prefix_padding_ms": vad.prefix_padding_ms,
        "silence_duration_ms": vad.silence_duration_ms,
    });
    if !transcription {
        shown["idle_timeout_ms"] = json!(vad.idle_timeout_ms);
        add_flags(&mut shown, vad);
    }
    shown
}

fn semantic_vad(vad: &Vad, transcription: bool) -> Value {
    let mut shown = json!({"type": "semantic_vad", "eagerness": vad.eagerness.unwrap_or(Eagerness::Auto).name()});
    if !transcription {
        add_flags(&mut shown, vad);
    }
    shown
}

fn add_flags(shown: &mut Value, vad: &Vad) {
    shown["create_response"] = vad.create_response.into();
    shown["interrupt_response"] = vad.interrupt_response.into();
}

/// Turn detection that was off, or of the other type, begins from the defaults of the type asked for; a patch without a
/// type keeps the type there is.
pub(super) fn merge(target: &mut Value, patch: &Map<String, Value>, vad: &Vad, transcription: bool) {
    let usual = if vad.eagerness.is_some() { "semantic_vad" } else { "server_vad" };
    let wanted = patch.get("type").or_else(|| target.get("type")).and_then(Value::as_str).unwrap_or(usual);
    let defaults =
        if wanted == "semantic_vad" { semantic_vad(vad, transcription) } else { server_vad(vad, transcription) };
    if target.get("type") != defaults.get("type") {
        target.clone_from(&defaults);
    }
    if let Value::Object(target) = target {
        // `null` has nothing to turn off here but the idle timeout: it asks for the default.
        target.extend(patch.iter().map(|(key, value)| match defaults.get(key) {
            Some(default) if value.is_null() => (key.clone(), default.clone()),
            _ => (key.clone(), value.clone()),
        }));
    }
}

/// Reads turn detection.
pub(super) fn read(turn: &Value, defaults: &Vad) -> Result<TurnDetection, ApiError> {
    let fields = match turn {
        Value::Null => return Ok(TurnDetection::Manual),
        Value::Object(fields) => fields,
        _ => return Err(wrong("", "an object or null")),
    };
    let flag = |name| match fields.get(name) {
        None => Ok(true),
        Some(value) => value.as_bool().ok_or_else(|| wrong(name, "true or false")),
    };
    let milliseconds = |name, default: u32, most: u32| match fields.get(name) {
        None => Ok(default),
        Some(value) => value
            .as_u64()
            .and_then(|value| u32::try_from(value).ok())
            .filter(|value| *value <= most)
            .ok_or_else(|| wrong(name, &format!("a whole number from 0 to {most}"))),
    };
    let (create_response, interrupt_response) = (flag("create_response")?, flag("interrupt_response")?);
    match fields.get("type").and_then(Value::as_str) {
        Some("server_vad") => {
            let threshold = fields.get("threshold").map_or(Some(0.5), Value::as_f64);
            let threshold = threshold.filter(|value| (0.0..=1.0).contains(value));
            let threshold = threshold.ok_or_else(|| wrong("threshold", "a number from 0 to 1"))?;
            #[expect(clippy::cast_possible_truncation, reason = "a probability loses nothing that matters as f32")]
            let threshold = threshold as f32;
            Ok(TurnDetection::Vad(Vad {
                threshold,
                prefix_padding_ms: milliseconds("prefix_padding_ms", defaults.prefix_padding_ms, 2_000)?,
                silence_duration_ms: milliseconds("silence_duration_ms", defaults.silence_duration_ms, 10_000)?,
                idle_timeout_ms: idle_timeout(fields.get("idle_timeout_ms"))?,
                eagerness: None,
                create_response,
                interrupt_response,
            }))
        }
        Some("semantic_vad") => {
            let named = fields.get("eagerness").map_or(Some("auto"), Value::as_str);
            let eagerness = Eagerness::ALL.into_iter().find(|eagerness| named == Some(eagerness.name()));
            let eagerness = Some(eagerness.ok_or_else(|| wrong("eagerness", "'low', 'medium', 'high' or 'auto'"))?);
            let idle_timeout_ms = None;
            Ok(TurnDetection::Vad(Vad { eagerness, idle_timeout_ms, create_response, interrupt_response, ..*defaults }))
        }
        _ => Err(wrong("type", "'server_vad' or 'semantic_vad'")),
    }
}

/// Bounds of the API.
fn idle_timeout(value: Option<&Value>) -> Result<Option<u32>, ApiError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value
            .as_u64()
            .and_then(|value| u32::try_from(value).ok())
            .filter(|value| (5_000..=30_000).contains(value))
            .map(Some)
            .ok_or_else(|| wrong("idle_timeout_ms", "a whole number from 5000 to 30000, or null")),
    }
}

fn wrong(field: &str, allowed: &str) -> ApiError {
    let dot = if field.is_empty() { "" } else { "." };
    let param = format!("session.audio.input.turn_detection{dot}{field}");
    ApiError::invalid_value(&param, format!("'{param}' is not {allowed}."))
}
