//! `/api/offer`: calls as pipecat's SmallWebRTC clients make them (pipecat `transports/smallwebrtc/request_handler.py`).
//!
//! | request | answer |
//! |---|---|
//! | `POST {sdp, type, pc_id?, restart_pc?, request_data?}` | 200 `{sdp, type, pc_id}`: a call; `pc_id` is its id |
//! | the same with the `pc_id` of a call | 200: the same call, with a later offer of its peer connection |
//! | and `restart_pc: true` | 200: a call in its place, with another `pc_id`; the former is over |
//! | `PATCH {pc_id, candidates: [{candidate, ...}]}` | 200 `{"status": "success"}`: candidates, read and not needed |
//!
//! A `pc_id` that is no call of the tenant's (any more) is none, as clients have nothing else to try. What goes over their data
//! channel `chat` is left alone: the API's events have a channel of their own.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use link::ids::SessionId;
use rtc::{Fragment, Offer};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::callers::Caller;
use super::create::{CreateCall, Shared, create_call};
use super::error::ApiError;
use super::{
    BODY_PATIENCE, CreateQuery, MAX_OFFER_BYTES, MAX_SESSION_BYTES, body, change, gate, no_such_call, secrets,
};
use crate::auth::Grant;
use crate::renew::Change;
use crate::worker::CloseCause;

/// Where such clients ask.
pub(super) const PATH: &str = "/api/offer";

/// Of what they send, and are sent.
pub(super) const JSON: &str = "application/json";

#[derive(Deserialize)]
struct Asked {
    sdp: String,
    #[serde(rename = "type")]
    kind: String,
    pc_id: Option<String>,
    restart_pc: Option<bool>,
    /// Of the app's own; its `session` is ours.
    request_data: Option<Value>,
    #[serde(rename = "requestData")]
    request_data_in_camel_case: Option<Value>,
}

#[derive(Deserialize)]
struct Trickled {
    pc_id: String,
    candidates: Vec<Candidate>,
}

/// Without the m-line that it is for: one transport carries them all.
#[derive(Deserialize)]
struct Candidate {
    candidate: String,
}

/// `POST`.
pub(super) async fn offer(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<CreateQuery>, QueryRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    change::pay(&shared, &request)?;
    let refused = |_: &ApiError| {
        shared.counts.refused.fetch_add(1, Ordering::Relaxed);
    };
    let caller = request.extensions().get::<Caller>().cloned();
    let grant = gate::grant_of(&request);
    let Query(query) = query
        .map_err(|error| ApiError::invalid("invalid_query", "model", format!("{}.", error.body_text())))
        .inspect_err(refused)?;
    let asked = read_offer(request).await.inspect_err(refused)?;
    let session = session_of(&asked, grant.as_deref()).inspect_err(refused)?;
    let known = asked.pc_id.as_deref().and_then(|id| id.parse::<SessionId>().ok());
    let known = known.filter(|session| gate::owns(&shared, grant.as_ref(), *session));

    let mut place = None;
    if let Some(session) = known {
        let offer = Offer::parse(&asked.sdp).map_err(|e| ApiError::invalid("invalid_offer", "sdp", e.to_string()));
        let offer = offer.inspect_err(refused)?;
        if asked.restart_pc != Some(true) {
            match renegotiate(&shared, session, offer).await {
                // It ended meanwhile.
                Err(error) if error.status == StatusCode::NOT_FOUND => {}
                answered => return answered.map(|sdp| answer(session, &sdp)),
            }
        }
        place = shared.directory.replace(session, CloseCause::HangUp);
    }
    let call = CreateCall {
        offer: &asked.sdp,
        model: query.model.as_deref(),
        session_json: session.as_deref(),
        source: caller.as_ref().map(Caller::source),
        grant: grant.as_deref(),
        in_place_of: place.as_ref(),
        ..CreateCall::default()
    };
    let created = create_call(&shared, Instant::now(), net::clock::unix_seconds(), &mut rand::rng(), call)?;
    tracing::info!(call = %created.id, instead = known.map(tracing::field::display), "call answered");
    Ok(answer(created.id, &created.answer))
}

/// `PATCH`.
pub(super) async fn trickle(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, ApiError> {
    change::pay(&shared, &request)?;
    let grant = gate::grant_of(&request);
    let Trickled { pc_id, candidates } = read(request, MAX_OFFER_BYTES).await?;
    let session = pc_id.parse::<SessionId>().ok().filter(|session| gate::owns(&shared, grant.as_ref(), *session));
    session.ok_or_else(|| no_such_call(&pc_id))?;
    for Candidate { candidate } in candidates {
        check(&candidate)?;
    }
    Ok(Json(json!({ "status": "success" })).into_response())
}

fn answer(call: SessionId, sdp: &str) -> Response {
    Json(json!({ "sdp": sdp, "type": "answer", "pc_id": call.to_string() })).into_response()
}

async fn read<T: DeserializeOwned>(request: Request, limit: usize) -> Result<T, ApiError> {
    let text = body::read_text_within(BODY_PATIENCE, request, JSON, limit).await?;
    serde_json::from_str(&text)
        .map_err(|error| ApiError::invalid("invalid_json", "body", format!("The body: {error}.")))
}

async fn read_offer(request: Request) -> Result<Asked, ApiError> {
    let asked: Asked = read(request, MAX_OFFER_BYTES + MAX_SESSION_BYTES).await?;
    if asked.kind != "offer" {
        let message = format!("type is {:?}: send an offer; the answer is ours.", asked.kind);
        return Err(ApiError::invalid("invalid_value", "type", message));
    }
    body::at_most(asked.sdp.len(), "sdp", MAX_OFFER_BYTES)?;
    Ok(asked)
}

/// The session that the app asks for, over that of the key.
fn session_of(asked: &Asked, grant: Option<&Grant>) -> Result<Option<String>, ApiError> {
    let data = asked.request_data.as_ref().or(asked.request_data_in_camel_case.as_ref());
    let session = data.and_then(|data| data.get("session")).filter(|session| !session.is_null()).map(Value::to_string);
    body::at_most(session.as_ref().map_or(0, String::len), "session", MAX_SESSION_BYTES)?;
    match grant.and_then(|grant| grant.preset.as_deref()) {
        Some(preset) => secrets::laid_over(preset, session.as_deref()).map(Some),
        None => Ok(session),
    }
}

async fn renegotiate(shared: &Shared, session: SessionId, offer: Offer) -> Result<String, ApiError> {
    let changed = change::ask(shared, &session.to_string(), session, Change::Offer(Box::new(offer))).await;
    change::count(shared, changed.as_ref().map(|changed| changed.restarted).ok());
    let changed = changed?;
    tracing::info!(call = %session, restarted = changed.restarted, "later offer answered");
    Ok(changed.answer.unwrap_or_default())
}

/// A candidate as browsers have it; an empty one ends the list of an m-line (RFC 8840 §4.1).
fn check(candidate: &str) -> Result<(), ApiError> {
    let invalid = |what: &str| ApiError::invalid("invalid_candidate", "candidates", format!("{candidate:?}: {what}."));
    if candidate.is_empty() {
        return Ok(());
    }
    if candidate.contains(['\r', '\n']) || !candidate.starts_with("candidate:") {
        return Err(invalid("send one candidate as RTCIceCandidate.candidate has it"));
    }
    Fragment::parse(&format!("a={candidate}\r\n")).map(drop).map_err(|error| invalid(&error.to_string()))
}
