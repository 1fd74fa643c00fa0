//! `POST /v1/realtime/tickets`: a ticket for an instant call, without I/O.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use axum::http::StatusCode;
use link::ids::SessionId;
use link::route::Route;
use link::route::ticket::{DEFAULT_TENANT, Derived, Ticket};
use rand::Rng;
use rtc::{LocalDescription, Password, Redundancy, SctpInit};
use serde::{Serialize, Serializer};

use super::create::{ECHO, RETRY_AFTER, Shared, choose_model, internal};
use super::error::ApiError;
use super::ice_servers::Granted;
use super::named::Named;
use crate::auth::{Grant, shorter};
use crate::keys::PopKeys;
use crate::seats::LOCAL;
use crate::tickets::Tickets;

/// SPED's names in `a=ice-options`: an answer repeats those that the offer has.
const SPED: &str = "sped googspedv1 goog-sped-v1";

/// RFC 8839 §5.4.
const UFRAG_MAX: usize = 256;

/// What a page needs to write its answer by itself. docs/WEBRTC.md says how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Issued {
    /// The call's id, `rtc_...`.
    pub session_id: String,
    /// What the answer's ufrag begins with.
    pub ufrag: String,
    /// The answer's `a=ice-pwd`.
    #[serde(serialize_with = "exposed")]
    pub pwd: Password,
    /// The answer's `a=fingerprint`.
    pub fingerprint: String,
    /// The answer's `a=candidate` lines, without `a=`.
    pub candidates: Vec<String>,
    /// The answer's `a=sctp-init`, should the offer have one.
    pub sctp_init: String,
    /// Names of SPED: the answer's `a=ice-options` are those of them that the offer has.
    pub ice_options: &'static str,
    /// The answer's `a=setup` when the offer has SPED; `active` when it has not.
    pub setup: &'static str,
    /// The answer's `a=sctp-port`.
    pub sctp_port: u16,
    /// The answer's `a=max-message-size`.
    pub max_message_size: u32,
    /// SSRC of the edge's audio.
    pub ssrc: u32,
    /// Its CNAME; the answer's `a=msid` is `stream-<cname> audio-<cname>`.
    pub cname: String,
    /// The answer's `a=fmtp` of Opus, behind the payload type.
    pub opus_parameters: String,
    /// What becomes of RED in the answer: `off`, not taken; `offered`, behind Opus; `prefer`, before it, so that it is sent.
    pub red: &'static str,
    /// The answer's `o=` id.
    pub sdp_session: String,
    /// STUN and TURN servers, as `RTCPeerConnection` takes them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ice_servers: Vec<Granted>,
    /// From now on.
    pub expires_in_ms: u64,
    /// Longest duration of the call, in seconds; 0 for no limit.
    pub max_call_seconds: u32,
}

/// For the page that asked.
fn exposed<S: Serializer>(password: &Password, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(password.expose())
}

/// A request for a ticket.
#[derive(Debug, Clone, Copy, Default)]
pub struct IssueTicket<'a> {
    /// `?model=`, which counts when the session names none.
    pub model: Option<&'a str>,
    /// The session as JSON.
    pub session_json: Option<&'a str>,
    /// Who asks, as far as what is kept for them is bounded.
    pub source: Option<IpAddr>,
    /// What its key grants. `None`: everything.
    pub grant: Option<&'a Grant>,
}

/// Issues a ticket.
///
/// # Errors
/// What the client is told instead. Nothing is left then.
pub fn issue_ticket(
    shared: &Shared,
    unix_seconds: u32,
    rng: &mut impl Rng,
    asked: IssueTicket<'_>,
) -> Result<Issued, ApiError> {
    if shared.draining.load(Ordering::Relaxed) {
        return Err(ApiError::unavailable("draining", RETRY_AFTER, "This edge is about to stop; try another one."));
    }
    let tickets = shared.directory.tickets().ok_or_else(off)?;
    let model = choose_model(shared, Named::read(asked.session_json)?.model.as_deref().or(asked.model), asked.grant)?;
    let transceiver = if model == ECHO { Some(LOCAL) } else { shared.seats.best(model) };
    let transceiver = transceiver.ok_or_else(|| {
        ApiError::unavailable("no_seat", RETRY_AFTER, format!("No seat is free for model {model:?}; try again."))
    })?;
    let terms = tickets.terms();
    let max_tens = max_tens(terms.max_call_tens, asked.grant)?;
    // The edge has no use for the config of a call of its own.
    let config = asked.session_json.filter(|_| model != ECHO);
    // It is used up to its end, however soon the key ends: not beyond it.
    let left = asked.grant.and_then(|grant| grant.expires).map(|expires| expires.saturating_sub(unix_seconds.into()));
    let lifetime = left.map_or(terms.lifetime_seconds, |left| {
        u16::try_from(left).unwrap_or(u16::MAX).clamp(1, terms.lifetime_seconds)
    });
    let ticket = Ticket {
        route: Route { edge: shared.edge, transceiver, session: SessionId(rng.next_u64()), minted: unix_seconds },
        lifetime,
        max_tens,
        tenant: asked.grant.map_or(DEFAULT_TENANT, |grant| grant.tenant),
        model: tickets.model_field(model, transceiver),
        has_config: config.is_some(),
    };
    let keys = shared.keys.current();
    let ufrag = keys.route().seal_ticket(&ticket);
    let local = describe(shared, &keys, &ufrag).ok_or_else(|| internal("its token cannot be read back"))?;
    let sctp_init = local.sctp_init.value().ok_or_else(|| internal("its SCTP association cannot be described"))?;
    if !tickets.hand_out(&ticket, unix_seconds, asked.source) {
        let message = "Too many tickets of your address wait for their calls; connect without a ticket, or try later.";
        return Err(ApiError::unavailable("ticket_table_full", RETRY_AFTER, message));
    }
    if let Some(json) = config
        && !tickets.keep_config(&ticket, unix_seconds, asked.source, json)
    {
        let message = "Too many sessions of your address wait for their calls; connect without a ticket, or try later.";
        return Err(ApiError::unavailable("ticket_table_full", RETRY_AFTER, message));
    }
    tickets.issued.fetch_add(1, Ordering::Relaxed);
    Ok(Issued {
        session_id: ticket.route.session.to_string(),
        pwd: local.password.clone(),
        fingerprint: format!("sha-256 {}", local.fingerprint),
        candidates: local.candidate_lines(),
        sctp_init,
        ice_options: SPED,
        setup: "passive",
        opus_parameters: local.uplink.opus_parameters(),
        red: match local.uplink.red {
            Redundancy::Off => "off",
            Redundancy::Offered => "offered",
            Redundancy::Prefer => "prefer",
        },
        sctp_port: 5000,
        max_message_size: 256 << 10,
        ssrc: local.ssrc,
        sdp_session: local.origin().to_string(),
        cname: local.cname(),
        ice_servers: shared.ice_servers.grant(unix_seconds, rng),
        expires_in_ms: u64::from(lifetime) * 1000,
        max_call_seconds: ticket.max_seconds(),
        ufrag,
    })
}

/// The longest call of a ticket, in the tens of seconds that it can say, and never longer than the grant's.
fn max_tens(most: u16, grant: Option<&Grant>) -> Result<u16, ApiError> {
    let Some(grant) = grant else { return Ok(most) };
    let own = u16::try_from(grant.max_seconds / 10).unwrap_or(u16::MAX);
    // A ticket's call may begin with a check, and nobody but its key's edge would count it.
    if !grant.counted.is_empty() || (grant.max_seconds != 0 && own == 0) {
        let message = "A ticket cannot keep to what the key limits; connect without one.";
        return Err(ApiError::status(StatusCode::CONFLICT, "ticket_limited", message));
    }
    Ok(u16::try_from(shorter(most.into(), own.into())).unwrap_or(most))
}

/// Our side of the answer that belongs to a ticket, the same whoever asks.
pub(crate) fn describe(shared: &Shared, keys: &PopKeys, ufrag: &str) -> Option<LocalDescription> {
    let mut local = local_description(keys, ufrag)?;
    local.candidates.clone_from(&shared.candidates);
    local.uplink = shared.uplink;
    Some(local)
}

/// The same without addresses, which only the client needs.
pub(crate) fn local_description(keys: &PopKeys, ufrag: &str) -> Option<LocalDescription> {
    let Derived { sctp_tag, sctp_tsn, ssrc, sdp_session } = keys.route().derive(ufrag)?;
    Some(LocalDescription {
        ufrag: ufrag.to_owned(),
        password: keys.route().password(ufrag)?.into(),
        fingerprint: keys.identity(ufrag)?.fingerprint().to_owned(),
        candidates: Vec::new(),
        session: sdp_session,
        ssrc,
        sctp_init: SctpInit::Given { tag: sctp_tag, tsn: sctp_tsn },
        uplink: rtc::Uplink::default(),
    })
}

/// A ticket as a POST shows it: ufrag and password, so that whoever saw the ufrag in a check can do nothing with it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Shown<'a> {
    /// The ufrag of the answer that the page wrote: the ticket and what the page added. The ticket alone is as good, if the
    /// page adds what [`rtc::ClientFacts`] says.
    pub ufrag: &'a str,
    /// Its password.
    pub pwd: &'a str,
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").field("ufrag", &self.ufrag).finish_non_exhaustive()
    }
}

impl<'a> Shown<'a> {
    /// Reads `<ufrag> <pwd>`.
    #[must_use]
    pub fn read(value: &'a str) -> Option<Self> {
        let (ufrag, pwd) = value.trim().split_once(' ')?;
        let fits =
            ufrag.len() <= UFRAG_MAX && ufrag.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'+' || c == b'/');
        fits.then_some(Self { ufrag, pwd: pwd.trim() })
    }

    /// Opens it.
    pub(super) fn open(self, keys: &PopKeys) -> Option<Ticket> {
        if keys.route().is_password(self.ufrag, self.pwd) { keys.route().open_ticket(self.ufrag) } else { None }
    }
}

pub(super) fn unreadable() -> ApiError {
    let message = "The ticket is none of this edge's; send Fronthaul-Ticket: <ufrag> <pwd>, as it was issued.";
    ApiError::invalid("ticket_invalid", "Fronthaul-Ticket", message)
}

pub(super) fn refused(tickets: &Tickets, refusal: crate::tickets::Refusal) -> ApiError {
    use crate::tickets::Refusal;
    tickets.refused.fetch_add(1, Ordering::Relaxed);
    let (status, message) = match refusal {
        Refusal::Expired => (StatusCode::GONE, "The ticket has expired; connect without it."),
        Refusal::Used => (StatusCode::CONFLICT, "The ticket was used, and its call is over; connect without it."),
        Refusal::Restarted | Refusal::Facts | Refusal::Model | Refusal::Config => {
            (StatusCode::CONFLICT, "This edge no longer knows what the ticket refers to; connect without it.")
        }
        Refusal::NoSeat | Refusal::Full | Refusal::Draining => {
            (StatusCode::SERVICE_UNAVAILABLE, "The ticket's call cannot be seated; connect without it.")
        }
    };
    ApiError { retry_after: None, ..ApiError::status(status, refusal.label(), message) }
}

pub(super) fn off() -> ApiError {
    ApiError::not_found("tickets_off", "This edge issues no tickets; post an offer to /v1/realtime/calls.")
}
