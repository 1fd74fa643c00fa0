//! HTTP signaling: answers offers, ends calls, serves the page.
//!
//! | request | answer |
//! |---|---|
//! | `POST /v1/realtime/calls[?model=][&dcid=]` | 201, the answer, `Location: /v1/realtime/calls/rtc_...`, `Link`s to ICE servers; 429 when one source asks too often |
//! | `POST`, `PATCH /v1/realtime/calls/{id}` | later offers and ICE restarts: [`change`] |
//! | `GET /v1/realtime/calls`, `GET /v1/realtime/calls/{id}` | 204: there is nothing to read (RFC 9725 §4) |
//! | the same with `Fronthaul-Ticket: <ufrag> <pwd>` | 200 or 201: the call is, or will be, what the ticket's page made of it |
//! | `POST /v1/realtime/tickets[?model=]` | 200, [`Issued`] as JSON: what an instant call needs; its body is the session, if any |
//! | `DELETE /v1/realtime/calls/{id}` | 200, or 404 once the call is over |
//! | `POST /v1/realtime/calls/{id}/hangup` | 200, also when repeated |
//! | `POST /v1/realtime/client_secrets` | 200, an ephemeral key: [`secrets`]; the former `sessions` and `transcription_sessions` as well |
//! | `GET /v1/realtime?model=`, `?call_id=`, `?intent=transcription` | 101, a WebSocket: [`websocket`] |
//! | `GET /`, `GET /assets/...` | the page |
//! | `GET /fronthaul.js`, `GET /fronthaul.d.ts` | the client module and its types |
//!
//! The API stands under `/openai/v1/realtime` as well, and everything of it but `GET /v1/realtime/calls` asks for a key where the
//! edge is not open: [`gate`].
//!
//! Browsers call from other origins: every answer carries CORS headers, a preflight is answered with the headers it asks
//! for (`*` would not cover Authorization).

mod body;
mod callers;
mod change;
mod create;
mod error;
mod gate;
mod ice_servers;
mod named;
mod page;
mod secrets;
mod small_webrtc;
#[cfg(test)]
mod tests;
mod ticket;
mod websocket;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use link::ids::SessionId;
use serde::Deserialize;
use tower_http::cors::{AllowHeaders, Any, CorsLayer};

pub use body::{MAX_OFFER_BYTES, MAX_SESSION_BYTES};
pub use callers::{Caller, Callers};
pub use create::{Counts, CreateCall, Created, ECHO, Shared, create_call};
pub use error::ApiError;
pub use ice_servers::{Granted, IceServers};
pub use ticket::{IssueTicket, Issued, Shown, issue_ticket};

pub(crate) use create::ticket_pending;
pub(crate) use ticket::local_description;

use crate::worker::CloseCause;

/// Where calls are made, and under which they are.
const CALLS: &str = "/v1/realtime/calls";

/// Where the API is: as OpenAI's clients ask for it, and as Azure's do.
const ROOTS: [&str; 2] = ["/v1/realtime", "/openai/v1/realtime"];

/// Where Azure's clients of the API's preview ask for WebSockets.
const AZURE_WEBSOCKET: &str = "/openai/realtime";

const ACCEPT_PATCH: HeaderName = HeaderName::from_static("accept-patch");
const ACCEPT_POST: HeaderName = HeaderName::from_static("accept-post");
/// The ticket with which the client of a POST connects meanwhile: `<ufrag> <pwd>`. A header, as queries are logged.
const TICKET: &str = "fronthaul-ticket";

/// How long a browser may remember a preflight's answer.
const PREFLIGHT_MAX_AGE: Duration = Duration::from_secs(7200);

/// For a whole body, which is one or two packets for most and 200 KiB for few.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// Everything that signaling serves.
pub fn router(shared: Arc<Shared>) -> Router {
    let mut api = Router::new();
    for root in ROOTS {
        let at = |path: &str| format!("{root}/{path}");
        api = api
            .route(&at("calls"), post(create))
            .route(&at("calls/{id}"), delete(end).post(change::offer).patch(change::patch).get(change::get))
            .route(&at("calls/{id}/hangup"), post(hang_up))
            .route(&at("client_secrets"), post(secrets::create))
            .route(&at("sessions"), post(secrets::create_former))
            .route(&at("transcription_sessions"), post(secrets::create_former))
            .route(&at("tickets"), post(issue))
            .route(root, get(websocket::upgrade));
    }
    let api = api
        .route(AZURE_WEBSOCKET, get(websocket::upgrade))
        .route(small_webrtc::PATH, post(small_webrtc::offer).patch(small_webrtc::trickle));
    let api = api.route_layer(from_fn_with_state(Arc::clone(&shared), gate::admit));
    let open = ROOTS
        .iter()
        .fold(Router::new(), |open, root| open.route(&format!("{root}/calls"), get(async || StatusCode::NO_CONTENT)));
    open.merge(api)
        .merge(page::router())
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(cors())
        .layer(from_fn(say_what_is_taken))
        .with_state(shared)
}

/// OPTIONS say what POST and PATCH take (RFC 9725 §4.2, RFC 5789 §3.1).
async fn say_what_is_taken(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let path = path.strip_prefix("/openai").unwrap_or(path);
    let is_call = path.strip_prefix(CALLS).is_some_and(|rest| rest.starts_with('/'));
    let (post, patch) = match path {
        CALLS => (Some(change::SDP), None),
        small_webrtc::PATH => (Some(small_webrtc::JSON), Some(small_webrtc::JSON)),
        _ if is_call => (Some(change::SDP), Some(change::FRAGMENT)),
        _ => (None, None),
    };
    let asks = request.method() == Method::OPTIONS;
    let mut response = next.run(request).await;
    let said = [(ACCEPT_POST, post), (ACCEPT_PATCH, patch)];
    for (name, taken) in said.into_iter().filter_map(|(name, taken)| Some((name, taken?))).filter(|_| asks) {
        response.headers_mut().insert(name, HeaderValue::from_static(taken));
    }
    response
}

/// The id in a path, which need not be text.
type CallId = Result<Path<String>, PathRejection>;

#[derive(Deserialize)]
struct CreateQuery {
    model: Option<String>,
    dcid: Option<String>,
}

/// Reads `?dcid=`, the stream of a negotiated channel for events. 65535 is no stream of WebRTC (RFC 8832 §6).
fn read_dcid(dcid: Option<&str>) -> Result<Option<u16>, ApiError> {
    let read = |text: &str| text.parse().ok().filter(|id| *id < u16::MAX);
    dcid.map(|text| {
        let message = || format!("dcid {text:?} is no stream: send the id of the negotiated channel, 0 to 65534.");
        read(text).ok_or_else(|| ApiError::invalid("invalid_query", "dcid", message()))
    })
    .transpose()
}

async fn create(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<CreateQuery>, QueryRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let refused = |_: &ApiError| {
        shared.counts.refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    };
    let caller = request.extensions().get::<Caller>().cloned();
    if let Some(caller) = &caller {
        caller.pay(Instant::now()).inspect_err(|_| {
            shared.counts.limited.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        })?;
    }
    let grant = gate::grant_of(&request);
    let Query(query) = query
        .map_err(|error| ApiError::invalid("invalid_query", "model", format!("{}.", error.body_text())))
        .inspect_err(refused)?;
    let dcid = read_dcid(query.dcid.as_deref()).inspect_err(refused)?;
    let shown = request.headers().get(TICKET).map(|value| value.to_str().unwrap_or_default().to_owned());
    let ticket = shown.as_deref().map(|value| Shown::read(value).ok_or_else(ticket::unreadable));
    let ticket = ticket.transpose().inspect_err(refused)?;
    let mut parts = body::read_within(BODY_PATIENCE, request).await.inspect_err(refused)?;
    if let Some(preset) = grant.as_ref().and_then(|grant| grant.preset.as_deref()) {
        parts.session = Some(secrets::laid_over(preset, parts.session.as_deref()).inspect_err(refused)?);
    }
    let call = CreateCall {
        offer: &parts.sdp,
        model: query.model.as_deref(),
        session_json: parts.session.as_deref(),
        dcid,
        ticket,
        source: caller.as_ref().map(Caller::source),
        grant: grant.as_deref(),
        in_place_of: None,
    };
    let unix_seconds = net::clock::unix_seconds();
    let created = create_call(&shared, Instant::now(), unix_seconds, &mut rand::rng(), call)?;
    tracing::info!(call = %created.id, standing = created.standing, "call answered");
    let location = format!("/v1/realtime/calls/{}", created.id);
    let headers = [
        (header::CONTENT_TYPE, change::SDP.to_owned()),
        (header::LOCATION, location),
        (header::ETAG, change::entity_tag(1)),
        (ACCEPT_PATCH, change::FRAGMENT.to_owned()),
    ];
    let status = if created.standing { StatusCode::OK } else { StatusCode::CREATED };
    let links = ice_servers::link_headers(&shared.ice_servers.grant(unix_seconds, &mut rand::rng()));
    Ok((status, headers, links, created.answer).into_response())
}

/// Issues a ticket. Asked for as often as calls are, as each is one.
async fn issue(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<CreateQuery>, QueryRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let caller = request.extensions().get::<Caller>().cloned();
    if let Some(caller) = &caller {
        caller.pay(Instant::now()).inspect_err(|_| {
            shared.counts.limited.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        })?;
    }
    let Query(query) =
        query.map_err(|error| ApiError::invalid("invalid_query", "model", format!("{}.", error.body_text())))?;
    let grant = gate::grant_of(&request);
    let mut session = body::session_within(BODY_PATIENCE, request).await?;
    if let Some(preset) = grant.as_ref().and_then(|grant| grant.preset.as_deref()) {
        session = Some(secrets::laid_over(preset, session.as_deref())?);
    }
    let asked = IssueTicket {
        model: query.model.as_deref(),
        session_json: session.as_deref(),
        source: caller.as_ref().map(Caller::source),
        grant: grant.as_deref(),
    };
    let issued = issue_ticket(&shared, net::clock::unix_seconds(), &mut rand::rng(), asked)?;
    let headers = [(header::CACHE_CONTROL, "no-store")];
    Ok((StatusCode::OK, headers, axum::Json(issued)).into_response())
}

async fn end(State(shared): State<Arc<Shared>>, id: CallId, request: Request) -> Result<StatusCode, ApiError> {
    let (id, session) = read_id(id)?;
    let owned = gate::owns(&shared, gate::grant_of(&request).as_ref(), session);
    if owned && shared.directory.close(session, CloseCause::HangUp) {
        Ok(StatusCode::OK)
    } else {
        // Whoever guesses pays as who calls.
        change::pay(&shared, &request).and_then(|()| Err(no_such_call(&id)))
    }
}

/// A repeated hangup, whose first answer may have been lost, succeeds: ids cannot be guessed, so one that reads like an
/// id was a call.
async fn hang_up(State(shared): State<Arc<Shared>>, id: CallId, request: Request) -> Result<StatusCode, ApiError> {
    let (_, session) = read_id(id)?;
    if gate::owns(&shared, gate::grant_of(&request).as_ref(), session) {
        shared.directory.close(session, CloseCause::HangUp);
    }
    Ok(StatusCode::OK)
}

async fn unknown_path(request: Request) -> ApiError {
    ApiError::not_found("unknown_url", format!("Unknown request URL: {} {}.", request.method(), request.uri().path()))
}

async fn wrong_method(request: Request) -> ApiError {
    let message = format!("{} is not allowed on {}.", request.method(), request.uri().path());
    ApiError::status(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}

fn no_such_call(id: &str) -> ApiError {
    ApiError::not_found("call_id_not_found", format!("No session found for the provided call_id {id:?}."))
}

/// Reads `rtc_` and 16 hex digits.
fn read_id(id: CallId) -> Result<(String, SessionId), ApiError> {
    let Path(id) = id.map_err(|error| ApiError::not_found("call_id_not_found", format!("{}.", error.body_text())))?;
    let session = id.parse().map_err(|_| no_such_call(&id))?;
    Ok((id, session))
}

fn cors() -> CorsLayer {
    CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([Method::GET, Method::POST, Method::PATCH, Method::DELETE, Method::OPTIONS])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([header::LOCATION, header::ETAG, header::LINK, ACCEPT_PATCH, header::RETRY_AFTER])
        .max_age(PREFLIGHT_MAX_AGE)
}
