//! Answering a call, without I/O: choose the model and a seat, mint the route, answer the offer, enter the session.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use link::ids::{EdgeId, SessionId};
use link::route::Route;
use link::route::ticket::{Ticket, added};
use rand::Rng;
use rtc::{Candidate, ClientFacts, LocalDescription, Negotiated, Offer, Redundancy, SctpInit, Setup, Snap};

use super::error::ApiError;
use super::ice_servers::IceServers;
use super::named::Named;
use super::ticket::{self, Shown};
use crate::auth::{Auth, Grant, Held};
use crate::directory::{AudioFacts, CallInfo, Directory, Pending, Terms};
use crate::keys::Keyring;
use crate::seats::{Seat, Seats};
use crate::tickets::{Admitted, Entered, Refusal};
use crate::waiting::{Place, Waiting};
use crate::websocket::WebSockets;
use crate::worker::EVENTS_LABEL;

/// The model that the edge answers itself.
pub const ECHO: &str = "echo";

/// Seconds until a refused client may try again: the next renewal of the leases.
pub(super) const RETRY_AFTER: u32 = 1;

/// `error.code` of a call beyond the limit of those that wait.
const TOO_MANY: &str = "too_many_unclaimed";

/// `error.code` of a model that a key may not ask for.
pub(super) const MODEL_FORBIDDEN: &str = "model_not_allowed";

/// `error.code` of a call more than a key may have at once.
const TOO_MANY_RUNNING: &str = "too_many_concurrent";

/// What all requests share.
pub struct Shared {
    /// This edge.
    pub edge: EdgeId,
    /// Advertised addresses, in order of preference.
    pub candidates: Vec<Candidate>,
    /// STUN and TURN servers that clients are told of.
    pub ice_servers: IceServers,
    /// Names that clients may ask for, and the model that serves each.
    pub models: BTreeMap<String, String>,
    /// The name taken when a client asks for none, or for one that is not among them.
    pub default_model: String,
    /// How long a call may stay without a valid check.
    pub setup_timeout: Duration,
    /// How clients are asked to send their audio.
    pub uplink: rtc::Uplink,
    /// Make route tokens and passwords, and name the certificate.
    pub keys: Keyring,
    /// Sessions.
    pub directory: Arc<Directory>,
    /// Where calls may go.
    pub seats: Arc<Seats>,
    /// Answered calls that wait for their first check.
    pub waiting: Arc<Waiting>,
    /// Clients that come over WebSocket.
    pub websockets: WebSockets,
    /// Knows who may call.
    pub auth: Auth,
    /// The edge stops: no further calls.
    pub draining: AtomicBool,
    /// What became of requests.
    pub counts: Counts,
}

/// What became of requests for calls.
#[derive(Debug, Default)]
pub struct Counts {
    /// Answered.
    pub created: AtomicU64,
    /// Refused for what the client sent.
    pub refused: AtomicU64,
    /// Refused for want of a seat.
    pub no_seat: AtomicU64,
    /// Refused because one source asked too often, or has too many calls that wait.
    pub limited: AtomicU64,
    /// Refused because the edge stops.
    pub draining: AtomicU64,
    /// Requests of any kind without a key that is known here.
    pub unauthorized: AtomicU64,
    /// Refused because the key forbids it.
    pub forbidden: AtomicU64,
    /// Ephemeral keys made.
    pub secrets: AtomicU64,
    /// Later offers answered, and fragments taken, that went on with the same ICE session.
    pub renegotiated: AtomicU64,
    /// ICE restarts.
    pub restarted: AtomicU64,
    /// Later offers and fragments refused.
    pub change_refused: AtomicU64,
    /// Took the default model because none was named.
    pub model_absent: AtomicU64,
    /// Took the default model because the named one is not known.
    pub model_unmapped: AtomicU64,
    /// Answers with an `a=sctp-init`.
    pub snap_answered: AtomicU64,
    /// Offers whose `a=sctp-init` holds no INIT that can be used.
    pub snap_unusable: AtomicU64,
}

/// A request for a call.
#[derive(Clone, Copy, Default)]
pub struct CreateCall<'a> {
    /// The offer.
    pub offer: &'a str,
    /// `?model=`, which counts when the session names none.
    pub model: Option<&'a str>,
    /// The session as JSON.
    pub session_json: Option<&'a str>,
    /// `?dcid=`: the client opens its channel for events on this stream by itself, without DCEP.
    pub dcid: Option<u16>,
    /// The ticket with which the client connects meanwhile.
    pub ticket: Option<Shown<'a>>,
    /// Who asks, as far as what waits for them is bounded.
    pub source: Option<IpAddr>,
    /// What its key grants. `None`: everything.
    pub grant: Option<&'a Grant>,
    /// The place among the calls of its key that it takes over from a call which it replaces.
    pub in_place_of: Option<&'a Arc<Held>>,
}

/// Without the offer, in which the client's password stands.
impl fmt::Debug for CreateCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offer: _, model, session_json, dcid, ticket, source, grant, in_place_of } = self;
        let mut call = f.debug_struct("CreateCall");
        call.field("model", model).field("session_json", session_json).field("dcid", dcid);
        call.field("ticket", ticket).field("source", source).field("grant", grant).field("in_place_of", in_place_of);
        call.finish_non_exhaustive()
    }
}

/// An answered call.
#[derive(Clone, PartialEq, Eq)]
pub struct Created {
    /// Its id.
    pub id: SessionId,
    /// The answer, CRLF at the end.
    pub answer: String,
    /// The call was there before: its ticket brought it.
    pub standing: bool,
}

/// Without the answer, in which our password stands.
impl fmt::Debug for Created {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, answer: _, standing } = self;
        f.debug_struct("Created").field("id", id).field("standing", standing).finish_non_exhaustive()
    }
}

/// Answers a call.
///
/// # Errors
/// What the client is told instead. Nothing of the call is left then.
pub fn create_call(
    shared: &Shared,
    now: Instant,
    unix_seconds: u32,
    rng: &mut impl Rng,
    call: CreateCall<'_>,
) -> Result<Created, ApiError> {
    let result = answer(shared, now, unix_seconds, rng, call);
    let counts = &shared.counts;
    let counter = match &result {
        Ok(_) => &counts.created,
        Err(error) if error.code == "no_seat" => &counts.no_seat,
        Err(error) if error.code == TOO_MANY => &counts.limited,
        Err(error) if matches!(error.code, MODEL_FORBIDDEN | TOO_MANY_RUNNING) => &counts.forbidden,
        Err(error) if error.code == "draining" => &counts.draining,
        Err(_) => &counts.refused,
    };
    counter.fetch_add(1, Ordering::Relaxed);
    result
}

fn answer(
    shared: &Shared,
    now: Instant,
    unix_seconds: u32,
    rng: &mut impl Rng,
    call: CreateCall<'_>,
) -> Result<Created, ApiError> {
    // With a ticket the call may be there already.
    if call.ticket.is_none() {
        refuse_draining(shared)?;
    }
    let offer = Offer::parse(call.offer).map_err(|e| ApiError::invalid("invalid_offer", "sdp", e.to_string()))?;
    let named = Named::read(call.session_json)?;
    if let Some(shown) = call.ticket {
        return answer_ticket(shared, now, unix_seconds, &offer, call, shown);
    }
    let model = choose_model(shared, named.model.as_deref().or(call.model), call.grant)?;
    let terms = terms(shared, call.grant, call.in_place_of)?;
    let place = wait(shared, call.source)?;
    let seat = find_seat(shared, model)?;

    let session = SessionId(rng.next_u64());
    let route = Route { edge: shared.edge, transceiver: seat.transceiver(), session, minted: unix_seconds };
    let keys = shared.keys.current();
    let ufrag = keys.route().seal(&route);
    let unreadable = || internal("its route token cannot be read back");
    let password = keys.route().password(&ufrag).ok_or_else(unreadable)?.into();
    let fingerprint = keys.identity(&ufrag).ok_or_else(unreadable)?.fingerprint().to_owned();
    let mut accepted = offer.accept(&LocalDescription {
        ufrag,
        password,
        fingerprint,
        candidates: shared.candidates.clone(),
        // Positive as i64, which is what some parsers make of it (RFC 8866 §5.2).
        session: rng.next_u64() >> 1,
        ssrc: rng.next_u32().max(1),
        sctp_init: SctpInit::Fresh,
        uplink: shared.uplink,
    });
    note_snap(shared, accepted.snap);
    agree_on_events(&mut accepted.setup, call.dcid)?;
    let audio = AudioFacts::of(&accepted.setup);
    let pending = Pending {
        setup: accepted.setup,
        former: Vec::new(),
        call: CallInfo {
            model: model.to_owned(),
            // The edge has no use for it, and would keep as many as it has seats of its own.
            session_config: call.session_json.filter(|_| model != ECHO).unwrap_or_default().to_owned(),
            created_at: u64::from(unix_seconds),
            terms,
            audio,
        },
        seat,
        place,
    };
    if !shared.directory.insert(session, pending, now + shared.setup_timeout) {
        return Err(internal("its id is taken"));
    }
    Ok(Created { id: session, answer: accepted.answer, standing: false })
}

/// Answers the offer of a client that connects by its ticket meanwhile: the same call, whoever of the two comes first. Its
/// answer is the one that the page wrote by itself.
fn answer_ticket(
    shared: &Shared,
    now: Instant,
    unix_seconds: u32,
    offer: &Offer,
    call: CreateCall<'_>,
    shown: Shown<'_>,
) -> Result<Created, ApiError> {
    let tickets = shared.directory.tickets().ok_or_else(ticket::off)?;
    let keys = shared.keys.current();
    let granted = shown.open(&keys).ok_or_else(ticket::unreadable)?;
    if call.grant.is_some_and(|grant| grant.tenant != granted.tenant) {
        return Err(ticket::unreadable());
    }
    let token = shown.ufrag.get(..link::route::ticket::TICKET_CHARS).unwrap_or_default();
    let draining = shared.draining.load(Ordering::Relaxed);
    if draining && shared.directory.get(granted.route.session).is_none() {
        return Err(ticket::refused(tickets, Refusal::Draining));
    }
    let unfit = |message: &str| ApiError::invalid("ticket_offer", "sdp", message);
    let unreadable = || unfit("What stands behind the ticket cannot be read; connect without a ticket.");
    let told = if shown.ufrag == token {
        None
    } else {
        Some(added(shown.ufrag).and_then(ClientFacts::read).ok_or_else(unreadable)?)
    };
    let dcid = call.dcid.or_else(|| told.and_then(|told| told.dcid));
    let facts = ClientFacts::of(offer, dcid).ok_or_else(|| {
        unfit("The offer says what does not fit behind a ticket, as docs/WEBRTC.md lists; connect without a ticket.")
    })?;
    if told.is_some_and(|told| !told.fit(&facts)) {
        return Err(unfit("What stands behind the ticket is not what the offer says; connect without a ticket."));
    }
    let mut local = ticket::describe(shared, &keys, token).ok_or_else(ticket::unreadable)?;
    // The page's choice, or ours where it leaves the answer to us.
    let ours = if local.uplink.red == Redundancy::Off { facts.without_red() } else { facts };
    let facts = told.unwrap_or(ours);
    if !facts.audio.is_some_and(|audio| audio.red) {
        local.uplink.red = Redundancy::Off;
    }
    // That of the answer which the client has, whatever it added, so that its checks are this call's.
    local.ufrag = if shown.ufrag == token { format!("{token}{}", facts.write()) } else { shown.ufrag.to_owned() };
    let mut accepted = offer.accept(&local);
    note_snap(shared, accepted.snap);
    agree_on_events(&mut accepted.setup, dcid)?;
    // Whoever comes first, check or POST: the session is made of the same.
    let setup = facts
        .setup(&local, &accepted.setup.remote_ufrag, EVENTS_LABEL)
        .ok_or_else(|| unfit("The offer's a=sctp-init cannot be used; connect without a ticket."))?;
    let here = shared.directory.get(granted.route.session).is_some();
    let place = if here { None } else { wait(shared, call.source)? };
    let make = |admitted| Pending { place, ..ticket_pending(&granted, unix_seconds, setup, admitted) };
    let until = now + shared.setup_timeout;
    let config = call.session_json;
    let entered = tickets.enter(&shared.directory, &granted, unix_seconds, until, config, make);
    let standing = entered.map_err(|refusal| ticket::refused(tickets, refusal))? == Entered::Standing;
    let counter = if standing { &tickets.standing } else { &tickets.by_post };
    counter.fetch_add(1, Ordering::Relaxed);
    Ok(Created { id: granted.route.session, answer: accepted.answer, standing })
}

/// What a worker claims of a call that came by a ticket.
pub(crate) fn ticket_pending(ticket: &Ticket, unix_seconds: u32, setup: Setup, admitted: Admitted) -> Pending {
    let Admitted { model, config, seat } = admitted;
    let session_config = if model == ECHO { String::new() } else { config };
    let terms = Terms {
        tenant: ticket.tenant,
        max_seconds: ticket.max_seconds(),
        ticket_expires: ticket.expires(),
        held: None,
        maker: None,
    };
    let audio = AudioFacts::of(&setup);
    let call = CallInfo { model, session_config, created_at: u64::from(unix_seconds), terms, audio };
    Pending { setup, former: Vec::new(), call, seat, place: None }
}

/// Nobody comes in any more while the edge stops.
pub(super) fn refuse_draining(shared: &Shared) -> Result<(), ApiError> {
    if shared.draining.load(Ordering::Relaxed) {
        return Err(ApiError::unavailable("draining", RETRY_AFTER, "This edge is about to stop; try another one."));
    }
    Ok(())
}

/// A seat for a call.
pub(super) fn find_seat(shared: &Shared, model: &str) -> Result<Seat, ApiError> {
    let seat = if model == ECHO { shared.seats.take_local() } else { shared.seats.take(model, &[]) };
    seat.ok_or_else(|| {
        ApiError::unavailable("no_seat", RETRY_AFTER, format!("No seat is free for model {model:?}; try again."))
    })
}

/// What a grant says of one call, which counts from here on unless it takes the place of another.
pub(super) fn terms(
    shared: &Shared,
    grant: Option<&Grant>,
    in_place_of: Option<&Arc<Held>>,
) -> Result<Terms, ApiError> {
    let Some(grant) = grant else { return Ok(Terms::default()) };
    let terms = |held| Terms {
        tenant: grant.tenant,
        max_seconds: grant.max_seconds,
        ticket_expires: 0,
        held,
        maker: Some(Arc::clone(&grant.subject)),
    };
    if let Some(held) = in_place_of.filter(|held| held.is_of(grant)) {
        return Ok(terms(Some(Arc::clone(held))));
    }
    let held = shared.auth.running.take(grant).ok_or_else(|| {
        let message = "The key has as many calls as it may have at once; end one, or try later.";
        let error = ApiError::status(StatusCode::TOO_MANY_REQUESTS, TOO_MANY_RUNNING, message);
        ApiError { retry_after: Some(RETRY_AFTER), ..error }
    })?;
    Ok(terms((!grant.counted.is_empty()).then(|| Arc::new(held))))
}

/// A place for a call that waits for its first check.
fn wait(shared: &Shared, source: Option<IpAddr>) -> Result<Option<Place>, ApiError> {
    let Some(source) = source else { return Ok(None) };
    shared.waiting.take(source).map(Some).ok_or_else(|| {
        let message =
            "Too many calls of your address wait for their client's first packet; let them connect, or try later.";
        let error = ApiError::status(StatusCode::TOO_MANY_REQUESTS, TOO_MANY, message);
        ApiError { retry_after: Some(RETRY_AFTER), ..error }
    })
}

fn note_snap(shared: &Shared, snap: Snap) {
    match snap {
        Snap::NotOffered => {}
        Snap::Answered => drop(shared.counts.snap_answered.fetch_add(1, Ordering::Relaxed)),
        Snap::Unusable => drop(shared.counts.snap_unusable.fetch_add(1, Ordering::Relaxed)),
    }
}

/// The channel for events is negotiated, if the client says on which stream.
fn agree_on_events(setup: &mut Setup, dcid: Option<u16>) -> Result<(), ApiError> {
    let Some(id) = dcid else { return Ok(()) };
    let sctp = setup.sctp.as_mut().ok_or_else(|| {
        let message = "dcid names a data channel, but the offer has no usable m=application line; offer one.";
        ApiError::invalid("invalid_offer", "dcid", message)
    })?;
    // The offer's own a=dcmap says more.
    if sctp.negotiated.iter().all(|channel| channel.id != id) {
        sctp.negotiated.push(Negotiated::reliable(id, EVENTS_LABEL));
    }
    Ok(())
}

/// The model that serves a call. A name that is not known gives the default one, or the first that the grant allows.
///
/// # Errors
/// The grant does not allow the one that was asked for.
pub(super) fn choose_model<'a>(
    shared: &'a Shared,
    asked: Option<&str>,
    grant: Option<&Grant>,
) -> Result<&'a str, ApiError> {
    let allows = |name: &str| grant.is_none_or(|grant| grant.allows(name));
    let asked = asked.filter(|name| !name.is_empty());
    if let Some((name, model)) = asked.and_then(|name| shared.models.get_key_value(name)) {
        return if allows(name) { Ok(model) } else { Err(model_forbidden(name)) };
    }
    let cause = if asked.is_some() { &shared.counts.model_unmapped } else { &shared.counts.model_absent };
    cause.fetch_add(1, Ordering::Relaxed);
    let fallback = shared.default_model.as_str();
    if allows(fallback) {
        return Ok(shared.models.get(fallback).map_or(fallback, String::as_str));
    }
    let allowed = shared.models.iter().find(|(name, _)| allows(name));
    allowed.map(|(_, model)| model.as_str()).ok_or_else(|| model_forbidden(fallback))
}

pub(super) fn model_forbidden(name: &str) -> ApiError {
    let message = format!("The key does not allow model {name:?}: ask for one that it allows, or use another key.");
    ApiError {
        param: Some("session.model".into()),
        ..ApiError::status(StatusCode::FORBIDDEN, MODEL_FORBIDDEN, message)
    }
}

pub(super) fn internal(what: &str) -> ApiError {
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    ApiError::status(status, "internal_error", format!("The call could not be set up: {what}; try again."))
}
