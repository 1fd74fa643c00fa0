//! The effective session object: defaults, deep patches, validation of what is acted upon.
//!
//! A patch follows the API: an absent field keeps its value, `null` turns it off (or asks for the default where there is
//! nothing to turn off), anything else replaces it, objects are patched member by member. Fields not known here are kept
//! and echoed. A patch is applied whole or not at all.

use serde_json::{Map, Value, json};

use crate::client::audio_only;
use crate::error::ApiError;
use crate::{Config, LIFETIME_SECONDS};

/// Largest session object, as text. `session.updated` repeats all of it and must fit the 256 KiB that stock browsers
/// take in one message, with room for the envelope.
const MAX_SESSION_BYTES: usize = 192 * 1024;

/// How turns are found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TurnDetection {
    /// The client commits by itself.
    Manual,
    /// Silence ends a turn.
    Vad(Vad),
}

/// Numbers of `server_vad`; `semantic_vad` has an eagerness instead of a silence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vad {
    /// Speech probability from which audio counts as speech.
    pub threshold: f32,
    /// Audio before the onset that belongs to the turn.
    pub prefix_padding_ms: u32,
    /// Silence that ends a turn of `server_vad`.
    pub silence_duration_ms: u32,
    /// `server_vad` answers a silence of this length after a response.
    pub idle_timeout_ms: Option<u32>,
    /// `semantic_vad`, and how soon it takes silence for the end.
    pub eagerness: Option<Eagerness>,
    /// The end of a turn asks for a response.
    pub create_response: bool,
    /// Speech interrupts a response.
    pub interrupt_response: bool,
}

/// `eagerness` of `semantic_vad`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eagerness {
    /// Lets the user take their time.
    Low,
    /// In between.
    Medium,
    /// Answers soon.
    High,
    /// The same as medium.
    Auto,
}

impl Eagerness {
    const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Auto];

    fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Auto => "auto",
        }
    }
}

impl Default for Vad {
    /// The API's own.
    fn default() -> Self {
        Self {
            threshold: 0.5,
            prefix_padding_ms: 300,
            silence_duration_ms: 500,
            idle_timeout_ms: None,
            eagerness: None,
            create_response: true,
            interrupt_response: true,
        }
    }
}

/// The session as the client sees it.
#[derive(Debug)]
pub(crate) struct Settings {
    session: Value,
    defaults: Value,
    /// What turn detection begins from.
    vad: Vad,
}

impl Settings {
    /// The defaults.
    pub(crate) fn new(id: String, config: &Config) -> Self {
        let session = json!({
            "type": "realtime",
            "object": "realtime.session",
            "id": id,
            "model": config.model,
            "expires_at": config.created_at.saturating_add(LIFETIME_SECONDS),
            "output_modalities": ["audio"],
            "instructions": "",
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 24000},
                    "transcription": null,
                    "noise_reduction": null,
                    "turn_detection": turn_detection(&config.vad),
                },
                "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "default", "speed": 1.0},
            },
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": true,
            "max_output_tokens": "inf",
            "tracing": null,
            "truncation": "auto",
            "prompt": null,
            "include": null,
        });
        Self { defaults: session.clone(), session, vad: config.vad }
    }

    pub(crate) fn as_json(&self) -> &Value {
        &self.session
    }

    /// Applies a patch, or says why not and changes nothing. `audio_began`: the assistant was heard, its voice is fixed.
    pub(crate) fn patch(&mut self, mut patch: Map<String, Value>, audio_began: bool) -> Result<(), ApiError> {
        match patch.get("type") {
            None => {}
            Some(kind) if kind == "realtime" => {}
            Some(_) => return Err(ApiError::invalid_value("session.type", "Supported values are: 'realtime'.")),
        }
        // Read-only, and repeated by every SDK: ignored rather than refused.
        for read_only in ["id", "object", "model", "expires_at"] {
            patch.remove(read_only);
        }
        let mut next = self.session.clone();
        merge(&mut next, Value::Object(patch), "", &self.vad);
        restore(&mut next, &self.defaults);
        check(&next, &self.vad)?;
        if audio_began && next.pointer(VOICE) != self.session.pointer(VOICE) {
            return Err(ApiError::voice_fixed());
        }
        if next.to_string().len() > MAX_SESSION_BYTES {
            return Err(ApiError::session_too_large(MAX_SESSION_BYTES));
        }
        self.session = next;
        Ok(())
    }

    /// How turns are found now.
    pub(crate) fn turn(&self) -> TurnDetection {
        self.session.pointer(TURN).and_then(|turn| vad(turn, &self.vad).ok()).unwrap_or(TurnDetection::Manual)
    }

    /// Voice and format, as response objects repeat them.
    pub(crate) fn output_audio(&self) -> Value {
        let output = &self.session["audio"]["output"];
        json!({"output": {"format": output["format"], "voice": output["voice"]}})
    }

    pub(crate) fn max_output_tokens(&self) -> &Value {
        &self.session["max_output_tokens"]
    }
}

const TURN: &str = "/audio/input/turn_detection";
const VOICE: &str = "/audio/output/voice";

fn turn_detection(vad: &Vad) -> Value {
    if vad.eagerness.is_some() { semantic_vad(vad) } else { server_vad(vad) }
}

fn server_vad(vad: &Vad) -> Value {
    // Through its text, so that 0.6 is not shown as 0.6000000238418579.
    let threshold: f64 = vad.threshold.to_string().parse().unwrap_or(0.5);
    json!({
        "type": "server_vad",
        "threshold": threshold,
        "prefix_padding_ms": vad.prefix_padding_ms,
        "silence_duration_ms": vad.silence_duration_ms,
        "idle_timeout_ms": vad.idle_timeout_ms,
        "create_response": vad.create_response,
        "interrupt_response": vad.interrupt_response,
    })
}

fn semantic_vad(vad: &Vad) -> Value {
    json!({
        "type": "semantic_vad",
        "eagerness": vad.eagerness.unwrap_or(Eagerness::Auto).name(),
        "create_response": vad.create_response,
        "interrupt_response": vad.interrupt_response,
    })
}

/// Patches `target` member by member. `path` is a JSON pointer, for the one place with defaults of its own.
fn merge(target: &mut Value, patch: Value, path: &str, vad: &Vad) {
    match (target, patch) {
        (target, Value::Object(patch)) if path == TURN => merge_turn(target, patch, vad),
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                let path = format!("{path}/{key}");
                merge(target.entry(key).or_insert(Value::Null), value, &path, vad);
            }
        }
        (target, patch) => *target = patch,
    }
}

/// Turn detection that was off, or of the other type, begins from the defaults of the type asked for; a patch without a
/// type keeps the type there is.
fn merge_turn(target: &mut Value, patch: Map<String, Value>, vad: &Vad) {
    let usual = if vad.eagerness.is_some() { "semantic_vad" } else { "server_vad" };
    let wanted = patch.get("type").or_else(|| target.get("type")).and_then(Value::as_str).unwrap_or(usual);
    let defaults = if wanted == "semantic_vad" { semantic_vad(vad) } else { server_vad(vad) };
    if target.get("type") != defaults.get("type") {
        target.clone_from(&defaults);
    }
    if let Value::Object(target) = target {
        // Inside turn detection `null` has nothing to turn off but the idle timeout: it asks for the default.
        target.extend(patch.into_iter().map(|(key, value)| match defaults.get(&key) {
            Some(default) if value.is_null() => (key, default.clone()),
            _ => (key, value),
        }));
    }
}

/// What can be changed and not be turned off.
const ALWAYS: [&str; 11] = [
    "/output_modalities",
    "/instructions",
    "/tools",
    "/tool_choice",
    "/parallel_tool_calls",
    "/max_output_tokens",
    "/truncation",
    "/audio/input/format",
    "/audio/output/format",
    VOICE,
    "/audio/output/speed",
];

/// Clients rely on a value in these fields, so `null` asks for the default.
fn restore(session: &mut Value, defaults: &Value) {
    for path in ALWAYS {
        if let (Some(value @ Value::Null), Some(default)) = (session.pointer_mut(path), defaults.pointer(path)) {
            value.clone_from(default);
        }
    }
}

/// Checks what is acted upon, and the shape that readers of the object rely on.
fn check(session: &Value, defaults: &Vad) -> Result<(), ApiError> {
    audio_only("session.output_modalities", &session["output_modalities"])?;
    for path in ["/audio", "/audio/input", "/audio/output"] {
        if !session.pointer(path).is_some_and(Value::is_object) {
            let param = format!("session{}", path.replace('/', "."));
            return Err(ApiError::invalid_value(&param, format!("'{param}' is not an object.")));
        }
    }
    if !session["instructions"].is_string() {
        return Err(ApiError::invalid_value("session.instructions", "'session.instructions' is not a string."));
    }
    if !session["tools"].is_array() {
        return Err(ApiError::invalid_value("session.tools", "'session.tools' is not an array."));
    }
    match session.pointer(TURN) {
        Some(turn) => vad(turn, defaults).map(|_| ()),
        None => Ok(()),
    }
}

/// Reads turn detection.
fn vad(turn: &Value, defaults: &Vad) -> Result<TurnDetection, ApiError> {
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
