//! `POST /v1/realtime/client_secrets`: ephemeral keys for clients that must not have a lasting one.
//!
//! ```text
//! { "expires_after": { "anchor": "created_at", "seconds": 10..7200 },         both optional; 600 s
//!   "session": { "type": "realtime" | "transcription", ... },                 what the key's calls begin with
//!   "limits": { "max_seconds", "max_concurrent", "models" } }                 ours: what its calls may
//! ```
//!
//! The key carries the session as it was given; the answer shows it as its calls will see it, defaults filled in.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use rand::{Rng as _, RngExt as _};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::callers::Caller;
use super::create::{Shared, choose_model, model_forbidden};
use super::error::ApiError;
use super::gate::grant_of;
use super::named::Named;
use super::{BODY_PATIENCE, body};
use crate::auth::{Allowance, Grant, PRESET_MAX, Terms};

/// Seconds that a key lives when nothing is said.
const LIFETIME: u64 = 600;

#[derive(Deserialize, Default)]
struct Asked {
    expires_after: Option<ExpiresAfter>,
    session: Option<Map<String, Value>>,
    limits: Option<Allowance>,
}

#[derive(Deserialize)]
struct ExpiresAfter {
    anchor: Option<String>,
    seconds: Option<u64>,
}

/// `POST /v1/realtime/client_secrets`.
pub(super) async fn create(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, ApiError> {
    let (grant, text) = read(&shared, request).await?;
    let asked: Asked = if text.is_empty() { Asked::default() } else { parse(&text)? };
    let made = make(&shared, &grant, asked)?;
    answer(json!({ "value": made.value, "expires_at": made.expires, "session": made.session }))
}

/// `POST /v1/realtime/sessions`, the same in its former shape: the body is the session, the answer has the key in it.
pub(super) async fn create_former(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, ApiError> {
    let transcribes = request.uri().path().ends_with("/transcription_sessions");
    let (grant, text) = read(&shared, request).await?;
    let mut session: Option<Map<String, Value>> = if text.is_empty() { None } else { Some(parse(&text)?) };
    if transcribes {
        session.get_or_insert_default().entry("type").or_insert_with(|| "transcription".into());
    }
    let mut made = make(&shared, &grant, Asked { session, ..Asked::default() })?;
    made.session.insert("client_secret".to_owned(), json!({ "value": made.value, "expires_at": made.expires }));
    answer(Value::Object(made.session))
}

fn answer(body: Value) -> Result<Response, ApiError> {
    Ok((StatusCode::OK, [(header::CACHE_CONTROL, "no-store")], Json(body)).into_response())
}

async fn read(shared: &Shared, request: Request) -> Result<(Arc<Grant>, String), ApiError> {
    if let Some(caller) = request.extensions().get::<Caller>() {
        caller.pay(Instant::now()).inspect_err(|_| {
            shared.counts.limited.fetch_add(1, Ordering::Relaxed);
        })?;
    }
    let grant = grant_of(&request).unwrap_or_else(|| Arc::new(Grant::open()));
    if !grant.mints {
        let message = "An ephemeral key makes no other one: use the API key or token that it was made of.";
        return Err(ApiError::status(StatusCode::FORBIDDEN, "insufficient_permissions", message));
    }
    let text = body::session_within(BODY_PATIENCE, request).await?.unwrap_or_default();
    Ok((grant, text))
}

fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, ApiError> {
    serde_json::from_str(text).map_err(|error| ApiError::invalid("invalid_json", "body", format!("The body: {error}.")))
}

struct Made {
    value: String,
    expires: u64,
    session: Map<String, Value>,
}

fn make(shared: &Shared, grant: &Grant, asked: Asked) -> Result<Made, ApiError> {
    let after = asked.expires_after.as_ref();
    if after.and_then(|after| after.anchor.as_deref()).is_some_and(|anchor| anchor != "created_at") {
        let message = "expires_after.anchor can be \"created_at\" alone.";
        return Err(ApiError::invalid("invalid_value", "expires_after.anchor", message));
    }
    let seconds = after.and_then(|after| after.seconds).unwrap_or(LIFETIME);
    if !(10..=7200).contains(&seconds) {
        let message = format!("expires_after.seconds is {seconds}: choose 10 to 7200.");
        return Err(ApiError::invalid("integer_out_of_range", "expires_after.seconds", message));
    }
    let allowance = asked.limits.unwrap_or_default();
    if let Some(model) = allowance.models.iter().find(|model| !grant.allows(model)) {
        return Err(model_forbidden(model));
    }
    if let Some(model) = allowance.models.iter().find(|model| !shared.models.contains_key(*model)) {
        let known: Vec<&str> = shared.models.keys().map(String::as_str).collect();
        let message = format!("limits.models names {model:?}, which is not served here: {} are.", known.join(", "));
        return Err(ApiError::invalid("invalid_value", "limits.models", message));
    }
    let preset = asked.session.map(preset).transpose()?;
    let narrowed = grant.narrowed("", &allowance);
    let model = choose_model(shared, Named::read(preset.as_deref())?.model.as_deref(), Some(&narrowed))?;
    let session = effective(model, preset.as_deref(), rand::rng().next_u64())?;
    let expires = u64::from(net::clock::unix_seconds()) + seconds;
    let terms = Terms { expires, allowance, preset: preset.as_deref() };
    let minted = grant.mint(shared.keys.current().route(), rand::rng().random(), &terms);
    shared.counts.secrets.fetch_add(1, Ordering::Relaxed);
    Ok(Made { value: minted.value, expires: minted.expires, session })
}

/// The session as the calls of a key begin with it, but that none has begun.
fn effective(model: &str, preset: Option<&str>, seed: u64) -> Result<Map<String, Value>, ApiError> {
    let requested = preset.unwrap_or_default().to_owned();
    let config = realtime::Config { seed, model: model.to_owned(), requested, ..realtime::Config::default() };
    match realtime::effective_session(&config) {
        Ok(Value::Object(mut session)) => {
            session.insert("expires_at".to_owned(), 0.into());
            Ok(session)
        }
        Ok(_) => Ok(Map::new()),
        Err(unfit) => {
            let param = unfit.param.unwrap_or_else(|| "session".to_owned());
            Err(ApiError::invalid(unfit.code.unwrap_or("invalid_value"), param, unfit.message))
        }
    }
}

/// The session that a key carries.
fn preset(session: Map<String, Value>) -> Result<String, ApiError> {
    let kind = session.get("type").and_then(Value::as_str);
    if session.contains_key("type") && !matches!(kind, Some("realtime" | "transcription")) {
        let message = "session.type can be \"realtime\" or \"transcription\".";
        return Err(ApiError::invalid("invalid_value", "session.type", message));
    }
    let text = Value::Object(session).to_string();
    if text.len() > PRESET_MAX {
        let message = format!(
            "The session has {} bytes, and a key carries at most {PRESET_MAX}, as it travels in a header: send the rest with \
             session.update.",
            text.len()
        );
        return Err(ApiError::invalid("string_above_max_length", "session", message));
    }
    Ok(text)
}

/// A session laid over a key's preset, field by field: what it does not name stays, and `null` is a value like others.
pub(super) fn laid_over(preset: &str, session: Option<&str>) -> Result<String, ApiError> {
    let Some(session) = session else { return Ok(preset.to_owned()) };
    if realtime::values_at_most(session) > realtime::MAX_SESSION_VALUES {
        let message = format!("The session has more than {} JSON values.", realtime::MAX_SESSION_VALUES);
        return Err(ApiError::invalid("invalid_value", "session", message));
    }
    let mut whole: Value = parse(preset)?;
    let over: Value = serde_json::from_str(session)
        .map_err(|e| ApiError::invalid("invalid_json", "session", format!("The part session is not JSON: {e}.")))?;
    lay(&mut whole, over);
    Ok(whole.to_string())
}

/// As deep as JSON that was read is: the reader bounds it.
fn lay(whole: &mut Value, over: Value) {
    match (whole, over) {
        (Value::Object(whole), Value::Object(over)) => {
            for (name, value) in over {
                match whole.get_mut(&name) {
                    Some(field) => lay(field, value),
                    None => drop(whole.insert(name, value)),
                }
            }
        }
        (whole, over) => *whole = over,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_laid_over_a_preset_field_by_field() {
        let preset = r#"{"instructions":"Be brief.","audio":{"input":{"turn_detection":{"type":"server_vad"}},"output":{"voice":"a"}}}"#;
        let session = r#"{"audio":{"input":{"turn_detection":null},"output":{"speed":1.5}},"tools":[]}"#;
        let whole: Value = serde_json::from_str(&laid_over(preset, Some(session)).unwrap()).unwrap();
        let expected = json!({
            "instructions": "Be brief.",
            "audio": { "input": { "turn_detection": null }, "output": { "voice": "a", "speed": 1.5 } },
            "tools": [],
        });
        assert_eq!(whole, expected);
        assert_eq!(laid_over(preset, None).unwrap(), preset);
        assert_eq!(laid_over(preset, Some("{")).unwrap_err().code, "invalid_json");
    }
}
