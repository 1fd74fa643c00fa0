//! What a client asks of one response.

use serde_json::{Map, Value};

use super::check::{check, modality};
use super::error::ApiError;
use super::patch::Patch;
use super::settings::Settings;
use crate::call::{Modality, ResponseRequest};
use crate::limits::{MAX_METADATA_BYTES, MAX_METADATA_PAIRS};

/// What a response is told to be, as its objects repeat it.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) modality: Modality,
    /// It does not become part of the conversation.
    pub(crate) out_of_band: bool,
    pub(crate) metadata: Value,
    pub(crate) max_output_tokens: Value,
    pub(crate) audio: Value,
}

impl Terms {
    /// What nobody asked for in particular.
    pub(crate) fn of(settings: &Settings) -> Self {
        Self {
            modality: settings.modality(),
            out_of_band: false,
            metadata: Value::Null,
            max_output_tokens: settings.max_output_tokens().clone(),
            audio: settings.output_audio(),
        }
    }
}

/// Reads the `response` of a `response.create`; absent and `null` are the session's.
pub(crate) fn read(mut fields: Map<String, Value>, settings: &Settings) -> Result<(Terms, ResponseRequest), ApiError> {
    fields.retain(|_, value| !value.is_null());
    let object = Value::Object(fields);
    check("response", &object)?;
    let json = if object.as_object().is_some_and(Map::is_empty) { String::new() } else { object.to_string() };
    let mut terms = Terms::of(settings);
    if let Some(asked) = object.get("output_modalities").and_then(modality) {
        terms.modality = asked;
    }
    if let Some(tokens) = object.get("max_output_tokens") {
        terms.max_output_tokens = tokens.clone();
    }
    if let Some(voice) = object.pointer("/audio/output/voice") {
        terms.audio["output"]["voice"] = voice.clone();
    }
    terms.out_of_band = match object.get("conversation").map(Value::as_str) {
        None | Some(Some("auto")) => false,
        Some(Some("none")) => true,
        Some(_) => {
            let message = "Supported values are: 'auto' and 'none'.";
            return Err(ApiError::invalid_value("response.conversation", message));
        }
    };
    let Value::Object(mut fields) = object else { return Err(ApiError::missing("response")) };
    let instructions = fields.get("instructions").and_then(Value::as_str).map(str::to_owned);
    terms.metadata = Patch::take(&mut fields, "metadata").read(metadata)?.over(Value::Null, Value::Null);
    let request = ResponseRequest { modality: terms.modality, out_of_band: terms.out_of_band, instructions, json };
    Ok((terms, request))
}

/// Every event about the response as a whole repeats it.
fn metadata(value: Value) -> Result<Value, ApiError> {
    let fits = value.as_object().is_some_and(|pairs| pairs.len() <= MAX_METADATA_PAIRS)
        && value.to_string().len() <= MAX_METADATA_BYTES;
    if fits {
        return Ok(value);
    }
    let message = format!("'metadata' is not an object of at most {MAX_METADATA_PAIRS} pairs.");
    Err(ApiError::invalid_value("response.metadata", message))
}
