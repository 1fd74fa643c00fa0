//! Later offers and ICE restarts of a call, at its Location (RFC 9725 §4.3 and beyond).
//!
//! | request | answer |
//! |---|---|
//! | `POST`, `application/sdp` | 200 and the answer: the same call with another ICE session, direction or line; 422 when the offer would change what cannot change |
//! | `PATCH`, `application/trickle-ice-sdpfrag`, `If-Match: "<tag>"` | 204: candidates, read and not needed |
//! | `PATCH`, `application/trickle-ice-sdpfrag`, `If-Match: *` | 200 and a fragment: ICE restarts; 204 when the credentials are the call's |
//!
//! 404 for a call that is over or another edge's, 412 for a tag of another ICE session, 428 without one, 415 for other
//! types. Whatever the answer, a call that is refused something goes on as it was.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use link::ids::SessionId;
use rtc::{Fragment, Offer};
use tokio::sync::oneshot;

use super::callers::Caller;
use super::create::Shared;
use super::error::ApiError;
use super::{BODY_PATIENCE, CallId, MAX_OFFER_BYTES, body, gate, no_such_call, read_id};
use crate::directory::Owner;
use crate::renew::{Ask, Change, Changed, Refusal};

/// Of fragments.
pub(super) const FRAGMENT: &str = "application/trickle-ice-sdpfrag";

/// Of offers and answers.
pub(super) const SDP: &str = "application/sdp";

/// How long a worker may take to answer: it is asked between two batches of datagrams.
const OWNER_PATIENCE: Duration = Duration::from_secs(2);

/// Seconds until who met a busy worker may try again.
const RETRY_AFTER: u32 = 1;

/// The entity tag of an ICE session (RFC 9725 §4.3.1): strong, and unlike any other of its call.
pub(super) fn entity_tag(ice_session: u32) -> String {
    format!("\"{ice_session}\"")
}

/// `POST` to a Location.
pub(super) async fn offer(
    State(shared): State<Arc<Shared>>,
    id: CallId,
    request: Request,
) -> Result<Response, ApiError> {
    let result = take_offer(&shared, id, request).await;
    count(&shared, result.as_ref().map(|changed| changed.restarted).ok());
    let Changed { answer, ice_session, .. } = result?;
    let headers = [(header::CONTENT_TYPE, SDP.to_owned()), (header::ETAG, entity_tag(ice_session))];
    Ok((StatusCode::OK, headers, answer.unwrap_or_default()).into_response())
}

/// `PATCH` of a Location.
pub(super) async fn patch(
    State(shared): State<Arc<Shared>>,
    id: CallId,
    request: Request,
) -> Result<Response, ApiError> {
    let result = take_fragment(&shared, id, request).await;
    count(&shared, result.as_ref().map(|changed| changed.restarted).ok());
    let Changed { answer, ice_session, .. } = result?;
    let Some(fragment) = answer else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let headers = [(header::CONTENT_TYPE, FRAGMENT.to_owned()), (header::ETAG, entity_tag(ice_session))];
    Ok((StatusCode::OK, headers, fragment).into_response())
}

/// `GET` of a Location: there is nothing to read, only that it is there.
pub(super) async fn get(
    State(shared): State<Arc<Shared>>,
    id: CallId,
    request: Request,
) -> Result<StatusCode, ApiError> {
    match find(&shared, id, &request) {
        Ok(_) => Ok(StatusCode::NO_CONTENT),
        // Whoever guesses pays as who calls.
        Err(error) => pay(&shared, &request).and(Err(error)),
    }
}

async fn take_offer(shared: &Shared, id: CallId, request: Request) -> Result<Changed, ApiError> {
    pay(shared, &request)?;
    let (id, session) = find(shared, id, &request)?;
    let text = body::read_text_within(BODY_PATIENCE, request, SDP, MAX_OFFER_BYTES).await?;
    let offer = Offer::parse(&text).map_err(|e| ApiError::invalid("invalid_offer", "sdp", e.to_string()))?;
    let changed = ask(shared, &id, session, Change::Offer(Box::new(offer))).await?;
    tracing::info!(call = %session, restarted = changed.restarted, "later offer answered");
    Ok(changed)
}

async fn take_fragment(shared: &Shared, id: CallId, request: Request) -> Result<Changed, ApiError> {
    pay(shared, &request)?;
    let (id, session) = find(shared, id, &request)?;
    let tag = if_match(request.headers());
    let text = body::read_text_within(BODY_PATIENCE, request, FRAGMENT, MAX_OFFER_BYTES).await?;
    let tag = tag?;
    let fragment = Fragment::parse(&text).map_err(|e| ApiError::invalid("invalid_fragment", "body", e.to_string()))?;
    let changed = ask(shared, &id, session, Change::Fragment(fragment, tag)).await?;
    if changed.restarted {
        tracing::info!(call = %session, "ICE restarted");
    }
    Ok(changed)
}

/// Later offers cost as much as first ones, and are paid for alike.
pub(super) fn pay(shared: &Shared, request: &Request) -> Result<(), ApiError> {
    let Some(caller) = request.extensions().get::<Caller>() else { return Ok(()) };
    caller.pay(Instant::now()).inspect_err(|_| {
        shared.counts.limited.fetch_add(1, Ordering::Relaxed);
    })
}

fn find(shared: &Shared, id: CallId, request: &Request) -> Result<(String, SessionId), ApiError> {
    let (id, session) = read_id(id)?;
    let owned = gate::owns(shared, gate::grant_of(request).as_ref(), session);
    if owned { Ok((id, session)) } else { Err(not_here(shared, &id)) }
}

/// The id alone does not say which edge has the call.
fn not_here(shared: &Shared, id: &str) -> ApiError {
    let mut error = no_such_call(id);
    if !shared.directory.pop.peers.is_empty() {
        error.message += " Send it to the edge that answered the call.";
    }
    error
}

/// The ICE sessions that a fragment is meant for, of which one has to be the call's (RFC 9110 §13.1.1); `None`: any. Tags of
/// other shapes are of no session of ours.
fn if_match(headers: &HeaderMap) -> Result<Option<Vec<u32>>, ApiError> {
    let tags = headers.get_all(header::IF_MATCH);
    let mut tags =
        tags.iter().flat_map(|value| value.to_str().unwrap_or_default().split(',')).map(str::trim).peekable();
    if tags.peek().is_none() {
        let message = "If-Match is missing: send the ETag of the call, or * to restart ICE.";
        return Err(ApiError::status(StatusCode::PRECONDITION_REQUIRED, "precondition_required", message));
    }
    let mut sessions = Vec::new();
    for text in tags {
        // The RFC's own example has the star in quotes.
        if matches!(text, "*" | "\"*\"") {
            return Ok(None);
        }
        let number =
            text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).and_then(|text| text.parse::<u32>().ok());
        sessions.extend(number);
    }
    Ok(Some(sessions))
}

/// Asks whoever has a call to change it.
pub(super) async fn ask(shared: &Shared, id: &str, session: SessionId, change: Change) -> Result<Changed, ApiError> {
    let busy = || ApiError::unavailable("busy", RETRY_AFTER, "The call's worker has too much to do; try again.");
    // A call that is claimed in between is asked of its worker.
    for _ in 0..2 {
        let entry = shared.directory.get(session).ok_or_else(|| not_here(shared, id))?;
        match entry.owner() {
            Owner::Unclaimed => {
                let dated = (shared.edge, session, net::clock::unix_seconds());
                let keys = shared.keys.current();
                let changed = shared.directory.change_pending(&entry, &keys, dated, &change, &shared.candidates);
                if let Some(changed) = changed {
                    return changed.map_err(|refusal| refused(shared, id, refusal));
                }
            }
            Owner::Worker(worker) => {
                let mailbox = shared.directory.mailbox(worker).ok_or_else(|| not_here(shared, id))?;
                let (reply, answer) = oneshot::channel();
                if !mailbox.ask(Ask { session, change, candidates: shared.candidates.clone(), reply }) {
                    return Err(busy());
                }
                return match tokio::time::timeout(OWNER_PATIENCE, answer).await {
                    Ok(Ok(changed)) => changed.map_err(|refusal| refused(shared, id, refusal)),
                    // The worker ended.
                    Ok(Err(_)) => Err(not_here(shared, id)),
                    Err(_) => Err(busy()),
                };
            }
            Owner::Gone => break,
        }
    }
    Err(not_here(shared, id))
}

fn refused(shared: &Shared, id: &str, refusal: Refusal) -> ApiError {
    let precondition = StatusCode::PRECONDITION_FAILED;
    match refusal {
        Refusal::NoSuchCall => not_here(shared, id),
        Refusal::Busy => ApiError::unavailable("busy", RETRY_AFTER, "The call cannot be changed now; try again."),
        Refusal::Offer(error) => ApiError {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            ..ApiError::invalid("offer_changes_call", "sdp", error.to_string())
        },
        Refusal::OtherIceSession => {
            let message = "If-Match names another ICE session than the call's: take the ETag of its last answer.";
            ApiError::status(precondition, "precondition_failed", message)
        }
        Refusal::OtherCredentials => {
            let message = "The fragment has other credentials than the ICE session: to restart ICE send If-Match: *.";
            ApiError::invalid("invalid_fragment", "body", message)
        }
    }
}

/// `restarted`; `None`: refused.
pub(super) fn count(shared: &Shared, restarted: Option<bool>) {
    let counts = &shared.counts;
    let counter = match restarted {
        Some(true) => &counts.restarted,
        Some(false) => &counts.renegotiated,
        None => &counts.change_refused,
    };
    counter.fetch_add(1, Ordering::Relaxed);
}
