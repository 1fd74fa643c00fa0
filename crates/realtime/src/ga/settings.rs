//! The effective session object: defaults, patches, and what is read out of it.
//!
//! Fields not known here are kept and echoed. A patch is applied whole or not at all.

use serde_json::{Map, Value, json};

use super::check::{check, format, modality};
use super::error::ApiError;
use super::patch::{Patch, Patcher, Rule};
use super::vad;
use crate::audio::AudioFormat;
use crate::call::{Modality, ModelSettings};
use crate::limits::{MAX_SESSION_BYTES, MAX_SESSION_VALUES};
use crate::turn::{TurnDetection, Vad};
use crate::{Config, Intent};

const TURN: &str = "/audio/input/turn_detection";
const VOICE: &str = "/audio/output/voice";
const INPUT_FORMAT: &str = "/audio/input/format";
const OUTPUT_FORMAT: &str = "/audio/output/format";
const TRANSCRIPTION: &str = "/audio/input/transcription";

/// What can be changed and not be turned off: clients rely on a value.
const ALWAYS: [&str; 11] = [
    "/output_modalities",
    "/instructions",
    "/tools",
    "/tool_choice",
    "/parallel_tool_calls",
    "/max_output_tokens",
    "/truncation",
    INPUT_FORMAT,
    OUTPUT_FORMAT,
    VOICE,
    "/audio/output/speed",
];

/// Objects that are one value.
const WHOLE: [&str; 7] = ["/tool_choice", "/truncation", "/prompt", "/tracing", INPUT_FORMAT, OUTPUT_FORMAT, VOICE];

/// The session as the client sees it.
#[derive(Debug)]
pub(crate) struct Settings {
    intent: Intent,
    session: Value,
    defaults: Value,
    /// What turn detection begins from.
    vad: Vad,
    /// Of the session, as text.
    bytes: usize,
}

impl Settings {
    /// The defaults, for sessions of that intent.
    pub(crate) fn new(id: &str, intent: Intent, config: &Config) -> Self {
        let turn = vad::turn_detection(&config.vad, intent == Intent::Transcription);
        let input = json!({
            "format": {"type": "audio/pcm", "rate": 24000},
            "transcription": null,
            "noise_reduction": null,
            "turn_detection": turn,
        });
        let expires_at = config.created_at.saturating_add(config.lifetime.as_secs());
        let session = match intent {
            Intent::Conversation => json!({
                "type": "realtime",
                "object": "realtime.session",
                "id": id,
                "model": config.model,
                "expires_at": expires_at,
                "output_modalities": ["audio"],
                "instructions": "",
                "audio": {
                    "input": input,
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
            }),
            Intent::Transcription => json!({
                "type": "transcription",
                "object": "realtime.transcription_session",
                "id": id,
                "expires_at": expires_at,
                "audio": {"input": input},
                "include": null,
            }),
        };
        let bytes = session.to_string().len();
        Self { intent, defaults: session.clone(), session, vad: config.vad, bytes }
    }

    pub(crate) fn as_json(&self) -> &Value {
        &self.session
    }

    pub(crate) fn is_transcription(&self) -> bool {
        self.intent == Intent::Transcription
    }

    /// Of the session, as text: what repeating it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Applies a patch, or says why not and changes nothing. `audio_began`: the assistant was heard, its voice is fixed.
    pub(crate) fn patch(&mut self, mut patch: Map<String, Value>, audio_began: bool) -> Result<(), ApiError> {
        if let Some(kind) = Patch::take(&mut patch, "type").value()
            && Some(&kind) != self.session.get("type")
        {
            let message = format!("Supported values are: '{}'.", self.session["type"].as_str().unwrap_or_default());
            return Err(ApiError::invalid_value("session.type", message));
        }
        // Read-only, and repeated by every SDK: ignored rather than refused.
        for read_only in ["id", "object", "model", "expires_at"] {
            patch.remove(read_only);
        }
        let transcription = self.is_transcription();
        let patcher = Patcher {
            defaults: &self.defaults,
            rule: |path: &str| Rule { always: ALWAYS.contains(&path), whole: WHOLE.contains(&path) },
            special: |path: &str, target: &mut Value, patch: &Map<String, Value>| {
                let is_turn = path == TURN;
                if is_turn {
                    vad::merge(target, patch, &self.vad, transcription);
                }
                is_turn
            },
        };
        let mut next = self.session.clone();
        patcher.apply(&mut next, Patch::Value(Value::Object(patch)), "");
        for path in [INPUT_FORMAT, OUTPUT_FORMAT] {
            complete_format(&mut next, path);
        }
        check("session", &next)?;
        if let Some(turn) = next.pointer(TURN) {
            vad::read(turn, &self.vad)?;
        }
        if audio_began && next.pointer(VOICE) != self.session.pointer(VOICE) {
            return Err(ApiError::voice_fixed());
        }
        let bytes = next.to_string().len();
        if bytes > MAX_SESSION_BYTES || values(&next) > MAX_SESSION_VALUES {
            return Err(ApiError::session_too_large(MAX_SESSION_BYTES));
        }
        (self.session, self.bytes) = (next, bytes);
        Ok(())
    }

    /// How turns are found now. A session that only transcribes answers and interrupts nothing.
    pub(crate) fn turn(&self) -> TurnDetection {
        let turn = self.session.pointer(TURN).and_then(|turn| vad::read(turn, &self.vad).ok());
        match turn {
            Some(TurnDetection::Vad(vad)) if self.is_transcription() => {
                let idle_timeout_ms = None;
                TurnDetection::Vad(Vad { create_response: false, interrupt_response: false, idle_timeout_ms, ..vad })
            }
            turn => turn.unwrap_or(TurnDetection::Manual),
        }
    }

    pub(crate) fn modality(&self) -> Modality {
        modality(&self.session["output_modalities"]).unwrap_or(Modality::Audio)
    }

    pub(crate) fn input_format(&self) -> AudioFormat {
        self.session.pointer(INPUT_FORMAT).and_then(format).unwrap_or(AudioFormat::Pcm16)
    }

    pub(crate) fn output_format(&self) -> AudioFormat {
        self.session.pointer(OUTPUT_FORMAT).and_then(format).unwrap_or(AudioFormat::Pcm16)
    }

    /// The client wants the user's words.
    pub(crate) fn transcribes(&self) -> bool {
        self.is_transcription() || self.session.pointer(TRANSCRIPTION).is_some_and(Value::is_object)
    }

    /// Voice and format, as response objects repeat them.
    pub(crate) fn output_audio(&self) -> Value {
        let output = &self.session["audio"]["output"];
        json!({"output": {"format": output["format"], "voice": output["voice"]}})
    }

    pub(crate) fn max_output_tokens(&self) -> &Value {
        &self.session["max_output_tokens"]
    }

    pub(crate) fn model(&self) -> ModelSettings {
        let text = |path| match self.session.pointer(path) {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => String::new(),
        };
        let json = |path| self.session.pointer(path).filter(|value| !value.is_null()).map(Value::to_string);
        let tokens = self.max_output_tokens().as_u64().and_then(|tokens| u32::try_from(tokens).ok());
        ModelSettings {
            modality: self.modality(),
            instructions: text("/instructions"),
            tools: json("/tools").unwrap_or_default(),
            tool_choice: json("/tool_choice").unwrap_or_default(),
            voice: text(VOICE),
            speed: self.session.pointer("/audio/output/speed").and_then(Value::as_f64).unwrap_or(1.0),
            max_output_tokens: tokens,
            transcription: json(TRANSCRIPTION),
            transcribes_only: self.is_transcription(),
            json: self.of_model(),
        }
    }

    /// The session as text, but for what is the call's own: how turns are found and how audio travels.
    fn of_model(&self) -> String {
        let mut session = self.session.clone();
        for side in ["/audio/input", "/audio/output"] {
            if let Some(Value::Object(side)) = session.pointer_mut(side) {
                side.remove("turn_detection");
                side.remove("format");
            }
        }
        session.to_string()
    }
}

/// PCM has one rate, which need not be said.
fn complete_format(session: &mut Value, path: &str) {
    if let Some(Value::Object(format)) = session.pointer_mut(path)
        && format.get("type").is_some_and(|kind| kind == "audio/pcm")
        && format.get("rate").is_none_or(Value::is_null)
    {
        format.insert("rate".to_owned(), 24_000.into());
    }
}

/// How many values there are inside one. Its depth is bounded by the parser.
fn values(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(values).sum(),
        Value::Object(fields) => fields.values().map(values).sum(),
        _ => 0,
    }
}
