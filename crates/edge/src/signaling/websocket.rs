//! `GET /v1/realtime`: a session over WebSocket, or the events of a call that runs.
//!
//! Everything that can be refused is refused here, as JSON; behind the 101 errors are events and close codes.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use link::ids::SessionId;
use link::proto::{OpenRequest, Transport};
use rand::Rng as _;

use super::callers::Caller;
use super::create::{RETRY_AFTER, Shared, choose_model, find_seat, refuse_draining, terms};
use super::error::ApiError;
use super::gate;
use super::named::Named;
use crate::auth::Grant;
use crate::directory::Terms;
use crate::websocket::{Asked, Azure, EXTENSION, Handshake, Joining, SUBPROTOCOL, Wanted, Whereabouts, whereabouts};

/// What a session is for that answers nothing: its intent and its type.
const TRANSCRIPTION: &str = "transcription";

/// Answers `GET /v1/realtime`.
pub(super) async fn upgrade(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, ApiError> {
    take(&shared, request).inspect_err(|error| {
        let counts = &shared.counts;
        let counter = match error.code {
            "too_many_calls" | "too_many_websockets" => &counts.limited,
            "no_seat" => &counts.no_seat,
            "draining" => &counts.draining,
            "model_not_allowed" | "too_many_concurrent" => &counts.forbidden,
            _ => &counts.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    })
}

fn take(shared: &Shared, mut request: Request) -> Result<Response, ApiError> {
    let caller = request.extensions().get::<Caller>().cloned();
    if let Some(caller) = &caller {
        caller.pay(Instant::now())?;
    }
    let handshake = Handshake::read(request.headers()).ok_or_else(no_websocket)?;
    let grant = gate::grant_of(&request);
    let azure = if request.uri().path() == super::AZURE_WEBSOCKET { Azure::Yes } else { Azure::No };
    let asked = Asked::read(request.uri().query().unwrap_or_default(), azure)?;
    refuse_draining(shared)?;
    let source = caller.as_ref().map_or_else(|| Ipv4Addr::LOCALHOST.into(), Caller::source);
    let place = shared.websockets.places.take(source).ok_or_else(|| {
        let message = "Too many WebSockets are open, of your address or at all; close one, or try later.";
        let error = ApiError::status(StatusCode::TOO_MANY_REQUESTS, "too_many_websockets", message);
        ApiError { retry_after: Some(RETRY_AFTER), ..error }
    })?;
    let wanted = if handshake.beta {
        Wanted::Beta
    } else {
        match asked {
            Asked::Model(model) => session(shared, grant.as_deref(), Some(&model), "")?,
            Asked::Transcription => session(shared, grant.as_deref(), None, TRANSCRIPTION)?,
            // An ephemeral key says what it is for.
            Asked::Unsaid if grant.as_ref().is_some_and(|grant| !grant.mints) => {
                session(shared, grant.as_deref(), None, "")?
            }
            Asked::Unsaid => return Err(unsaid()),
            Asked::Call(..) if grant.as_ref().is_some_and(|grant| !grant.mints) => return Err(no_sideband()),
            Asked::Call(id, session) => {
                let owned = |session: &SessionId| gate::owns(shared, grant.as_ref(), *session);
                let session = session.filter(owned).ok_or_else(|| super::no_such_call(&id))?;
                if whereabouts(&shared.directory, session) == Whereabouts::Gone {
                    return Err(super::no_such_call(&id));
                }
                Wanted::Sideband { session, tenant: grant.as_deref().map_or(0, |grant| grant.tenant) }
            }
        }
    };
    let upgrade = hyper::upgrade::on(&mut request);
    if !shared.websockets.join(Joining { upgrade, wanted, deflate: handshake.deflate, place }) {
        return Err(ApiError::unavailable("busy", RETRY_AFTER, "Too many clients join at this moment; try again."));
    }
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::try_from(handshake.accept) {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    if handshake.subprotocol {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    }
    if handshake.deflate {
        headers.insert(header::SEC_WEBSOCKET_EXTENSIONS, HeaderValue::from_static(EXTENSION));
    }
    Ok(response)
}

/// A seat for a session, and what the transceiver is asked. The session of a key counts before the query.
fn session(shared: &Shared, grant: Option<&Grant>, model: Option<&str>, intent: &str) -> Result<Wanted, ApiError> {
    let preset = grant.and_then(|grant| grant.preset.as_deref());
    let named = Named::read(preset)?;
    if intent == TRANSCRIPTION && named.kind.as_deref().is_some_and(|kind| kind != TRANSCRIPTION) {
        let message =
            "The key's session has another type than intent=transcription: leave out the intent, or use a key without.";
        return Err(ApiError::invalid("invalid_query", "intent", message));
    }
    let model = choose_model(shared, named.model.as_deref().or(model), grant)?;
    let Terms { tenant, max_seconds, held, .. } = terms(shared, grant, None)?;
    let seat = find_seat(shared, model)?;
    let session = SessionId(rand::rng().next_u64());
    let request = OpenRequest {
        session: session.0,
        epoch: 1,
        call_id: session.to_string(),
        model: model.to_owned(),
        session_config: preset.unwrap_or_default().to_owned(),
        created_at: net::clock::unix_seconds().into(),
        tenant: tenant.into(),
        transport: Transport::Websocket.into(),
        intent: intent.to_owned(),
        max_seconds,
        ..OpenRequest::default()
    };
    shared.counts.created.fetch_add(1, Ordering::Relaxed);
    Ok(Wanted::Session { request: Box::new(request), seat, held })
}

/// A sideband acts for the application: whoever has the key of a page would hear and steer calls with it, and take the places of the app's own.
fn no_sideband() -> ApiError {
    let message = "A sideband needs an API key or a token: an ephemeral key is for the call itself.";
    ApiError::status(StatusCode::FORBIDDEN, "key_may_not_attach", message)
}

fn unsaid() -> ApiError {
    let message =
        "Say what the WebSocket is for: ?model=, ?call_id= or ?intent=transcription, or show an ephemeral key.";
    ApiError::invalid("invalid_query", "model", message)
}

/// RFC 6455 §4.4, and for those who asked for something else altogether.
fn no_websocket() -> ApiError {
    let message = "This is a WebSocket: send the headers Connection: Upgrade, Upgrade: websocket, Sec-WebSocket-Version: 13 and \
                   Sec-WebSocket-Key over HTTP/1.1. Calls over WebRTC are made by POST at /v1/realtime/calls.";
    ApiError::status(StatusCode::UPGRADE_REQUIRED, "upgrade_required", message)
}
