//! Tickets of instant calls: routes handed out before there is an offer, each good for one call (docs/WEBRTC.md).
//!
//! A ticket carries what its call needs, sealed, so handing one out leaves nothing here but a session's config, should its
//! page have one. Who comes first with it, the client's check or the POST of its offer, enters the session into the
//! [`Directory`]; from there on it is a session as any other, and the ticket is used up.
//!
//! # Invariant
//!
//! A ticket enters the directory once: that it was used is remembered until it expires, or it is refused.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use link::ids::{SessionId, TransceiverId};
use link::route::ticket::{Ticket, model_id};

use crate::directory::{Directory, Pending};
use crate::seats::{LOCAL, Seat, Seats};
use crate::worker::budget::source_key;

/// Used tickets remembered. With 60 s of life that is 1000 calls per second, more than one edge sets up; at ~64 bytes they
/// are 4 MiB. Beyond that instant calls are refused and their pages post.
const USED_MAX: usize = 65_536;

/// Tickets handed out that have not expired, used or not: four times the used ones, as pages fetch them before the click. At
/// 16 bytes they are 4 MiB.
const ISSUED_MAX: usize = 4 * USED_MAX;

/// Those of one source (IPv4 address or IPv6 /64): whatever it does with them, a sixteenth of the used ones is its part. They
/// are counted where they are handed out, which takes a connection, so that no forged address of a check spends another's.
const ISSUED_PER_SOURCE: usize = 4096;

/// Bytes of configs that wait for their calls, of all sources and of one (IPv4 address or IPv6 /64).
const CONFIG_BYTES_MAX: usize = 32 << 20;
const CONFIG_BYTES_PER_SOURCE: usize = 2 << 20;

/// What a config counts beside its text: the tables' entries. So there are 65536 of them at most, 4096 of one source.
const CONFIG_OVERHEAD: usize = 512;

/// What tickets grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Seconds from the issue to the last first check.
    pub lifetime_seconds: u16,
    /// Longest duration of a call, in tens of seconds; 0 for no limit.
    pub max_call_tens: u16,
}

/// Why a ticket is not honored. Each is a counter's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Its time is over.
    Expired,
    /// Its call was, and is over.
    Used,
    /// It is for this edge's own calls, and of a run of the edge that is over: nobody knows whether it was used.
    Restarted,
    /// What the client added says nothing that a call can come of.
    Facts,
    /// The transceiver that it names leases no seat.
    NoSeat,
    /// Its model is not served any more.
    Model,
    /// The config that it refers to is not here any more.
    Config,
    /// Too many used tickets are remembered.
    Full,
    /// This edge stops.
    Draining,
}

impl Refusal {
    /// Every one, in the order of the counters.
    pub const ALL: [Self; 9] = [
        Self::Expired,
        Self::Used,
        Self::Restarted,
        Self::Facts,
        Self::NoSeat,
        Self::Model,
        Self::Config,
        Self::Full,
        Self::Draining,
    ];

    /// The value of the metric's label `reason`, and `error.code` of a refused POST.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Expired => "ticket_expired",
            Self::Used => "ticket_used",
            Self::Restarted => "ticket_restarted",
            Self::Facts => "ticket_facts",
            Self::NoSeat => "ticket_no_seat",
            Self::Model => "ticket_model",
            Self::Config => "ticket_config",
            Self::Full => "ticket_table_full",
            Self::Draining => "ticket_draining",
        }
    }
}

/// What became of a ticket that was honored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entered {
    /// Its session is in the directory since this moment.
    First,
    /// Its session was there before.
    Standing,
}

/// What a ticket's session is made of.
#[derive(Debug)]
pub struct Admitted {
    /// The model's name.
    pub model: String,
    /// The session's config as JSON, or empty.
    pub config: String,
    /// The seat.
    pub seat: Seat,
}

/// The office.
#[derive(Debug)]
pub struct Tickets {
    terms: Terms,
    seats: Arc<Seats>,
    models: BTreeMap<u32, String>,
    /// Tells this run of the edge from others.
    run: u32,
    closed: AtomicBool,
    state: Mutex<State>,
    /// Handed out.
    pub issued: AtomicU64,
    /// Whose session a check entered.
    pub by_check: AtomicU64,
    /// Whose session a POST entered.
    pub by_post: AtomicU64,
    /// POSTs that found the session there: the client was told to go on.
    pub standing: AtomicU64,
    /// POSTs refused.
    pub refused: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    used: HashSet<SessionId>,
    /// Of used ones, until when they are to be remembered.
    until: BTreeSet<(u32, SessionId)>,
    configs: HashMap<SessionId, Config>,
    config_until: BTreeSet<(u32, SessionId)>,
    config_bytes: usize,
    by_source: HashMap<u64, usize>,
    /// Of those handed out, when each expires and whose it is. One behind others that live longer is kept as long as these.
    issued: VecDeque<(u32, u64)>,
    issued_by_source: HashMap<u64, usize>,
}

#[derive(Debug)]
struct Config {
    expires: u32,
    source: u64,
    json: String,
}

impl Tickets {
    /// For calls of these models. `run` tells this run of the edge from others: drawn by chance at the start.
    pub fn new<'a>(terms: Terms, seats: Arc<Seats>, models: impl IntoIterator<Item = &'a String>, run: u32) -> Self {
        Self {
            terms,
            seats,
            models: models.into_iter().map(|model| (model_id(model), model.clone())).collect(),
            run,
            closed: AtomicBool::new(false),
            state: Mutex::default(),
            issued: AtomicU64::new(0),
            by_check: AtomicU64::new(0),
            by_post: AtomicU64::new(0),
            standing: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// What they grant.
    #[must_use]
    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// What a ticket says of its model. That a ticket was used is known to its transceiver also after a restart of the edge;
    /// of those whose calls the edge answers itself nobody knows, so these are bound to this run, by the one field that
    /// says nothing of such a call otherwise.
    #[must_use]
    pub fn model_field(&self, model: &str, transceiver: TransceiverId) -> u32 {
        model_id(model) ^ self.mask(transceiver)
    }

    fn mask(&self, transceiver: TransceiverId) -> u32 {
        if transceiver == LOCAL { self.run } else { 0 }
    }

    /// The model's name.
    fn model_of(&self, ticket: &Ticket) -> Result<&String, Refusal> {
        let transceiver = ticket.route.transceiver;
        let unknown = if transceiver == LOCAL { Refusal::Restarted } else { Refusal::Model };
        self.models.get(&(ticket.model ^ self.mask(transceiver))).ok_or(unknown)
    }

    /// No further calls.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Counts a ticket that is handed out to its source, until it expires. `false`: there are too many, and it is not.
    #[must_use]
    pub fn hand_out(&self, ticket: &Ticket, now: u32, source: Option<IpAddr>) -> bool {
        let mut state = self.lock(now);
        let source = source.map_or(0, source_key);
        let of_source = state.issued_by_source.get(&source).copied().unwrap_or(0);
        if state.issued.len() >= ISSUED_MAX || of_source >= ISSUED_PER_SOURCE {
            return false;
        }
        *state.issued_by_source.entry(source).or_default() += 1;
        state.issued.push_back((ticket.expires(), source));
        true
    }

    /// Keeps a session's config until its call or until the ticket expires. `false`: there is no room for it.
    #[must_use]
    pub fn keep_config(&self, ticket: &Ticket, now: u32, source: Option<IpAddr>, json: &str) -> bool {
        let mut state = self.lock(now);
        let source = source.map_or(0, source_key);
        let bytes = json.len() + CONFIG_OVERHEAD;
        let of_source = state.by_source.get(&source).copied().unwrap_or(0);
        if state.config_bytes + bytes > CONFIG_BYTES_MAX || of_source + bytes > CONFIG_BYTES_PER_SOURCE {
            return false;
        }
        let (session, expires) = (ticket.route.session, ticket.expires());
        state.config_bytes += bytes;
        *state.by_source.entry(source).or_default() += bytes;
        state.configs.insert(session, Config { expires, source, json: json.to_owned() });
        state.config_until.insert((expires, session));
        true
    }

    /// Whether a ticket can still be honored, as far as that costs little to say.
    ///
    /// # Errors
    /// Why not.
    pub fn look(&self, ticket: &Ticket, now: u32) -> Result<(), Refusal> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Refusal::Draining);
        }
        if now >= ticket.expires() {
            return Err(Refusal::Expired);
        }
        self.model_of(ticket)?;
        if self.lock(now).used.contains(&ticket.route.session) {
            return Err(Refusal::Used);
        }
        Ok(())
    }

    /// Honors a ticket: takes its seat and enters what `make` makes of it into the directory, to be claimed before `until`,
    /// unless its session is there already. A `config` of the caller's counts before the kept one.
    ///
    /// # Errors
    /// Why not; nothing is left then.
    pub fn enter(
        &self,
        directory: &Directory,
        ticket: &Ticket,
        now: u32,
        until: Instant,
        config: Option<&str>,
        make: impl FnOnce(Admitted) -> Pending,
    ) -> Result<Entered, Refusal> {
        let session = ticket.route.session;
        // Neither its time nor the edge's end is for a call that there is.
        if directory.get(session).is_some() {
            return Ok(Entered::Standing);
        }
        if self.closed.load(Ordering::Relaxed) {
            return Err(Refusal::Draining);
        }
        if now >= ticket.expires() {
            return Err(Refusal::Expired);
        }
        let model = self.model_of(ticket)?.clone();
        let mut state = self.lock(now);
        if state.used.contains(&session) {
            return if directory.get(session).is_some() { Ok(Entered::Standing) } else { Err(Refusal::Used) };
        }
        if state.used.len() >= USED_MAX {
            return Err(Refusal::Full);
        }
        if ticket.has_config && config.is_none() && !state.configs.contains_key(&session) {
            return Err(Refusal::Config);
        }
        let seat = self.seats.take_at(ticket.route.transceiver, &model).ok_or(Refusal::NoSeat)?;
        let kept = state.take_config(session);
        let config = config.map(str::to_owned).or(kept).unwrap_or_default();
        // An id that a call drew by chance as well: as good as used.
        if !directory.insert(session, make(Admitted { model, config, seat }), until) {
            return Err(Refusal::Used);
        }
        state.used.insert(session);
        state.until.insert((ticket.expires(), session));
        Ok(Entered::First)
    }

    /// Used tickets remembered, and bytes of configs kept.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.used.len(), state.config_bytes)
    }

    /// Without what has expired.
    fn lock(&self, now: u32) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(&(expires, session)) = state.until.first().filter(|(expires, _)| *expires <= now) {
            state.until.remove(&(expires, session));
            state.used.remove(&session);
        }
        while let Some((_, source)) = state.issued.pop_front_if(|(expires, _)| *expires <= now) {
            state.one_less(source);
        }
        while let Some(&(_, session)) = state.config_until.first().filter(|(expires, _)| *expires <= now) {
            state.take_config(session);
        }
        state
    }
}

impl State {
    fn one_less(&mut self, source: u64) {
        if let Some(of_source) = self.issued_by_source.get_mut(&source) {
            *of_source = of_source.saturating_sub(1);
            if *of_source == 0 {
                self.issued_by_source.remove(&source);
            }
        }
    }

    fn take_config(&mut self, session: SessionId) -> Option<String> {
        let config = self.configs.remove(&session)?;
        self.config_until.remove(&(config.expires, session));
        let bytes = config.json.len() + CONFIG_OVERHEAD;
        self.config_bytes = self.config_bytes.saturating_sub(bytes);
        if let Some(of_source) = self.by_source.get_mut(&config.source) {
            *of_source = of_source.saturating_sub(bytes);
            if *of_source == 0 {
                self.by_source.remove(&config.source);
            }
        }
        Some(config.json)
    }
}

#[cfg(test)]
mod tests {
    use link::ids::EdgeId;
    use link::route::Route;

    use super::*;

    fn office() -> Tickets {
        let terms = Terms { lifetime_seconds: 60, max_call_tens: 0 };
        Tickets::new(terms, Seats::new(10), [&"echo".to_owned()], 7)
    }

    fn ticket(session: u64) -> Ticket {
        let route = Route { edge: EdgeId(1), transceiver: LOCAL, session: SessionId(session), minted: 1000 };
        Ticket { route, lifetime: 60, max_tens: 0, tenant: 0, model: model_id("echo") ^ 7, has_config: true }
    }

    #[test]
    fn configs_are_bounded_per_source_and_go_when_they_expire() {
        let tickets = office();
        let (one, other) = (Some("192.0.2.1".parse().unwrap()), Some("192.0.2.2".parse().unwrap()));
        let json = "x".repeat(100_000);
        let kept = (0..100).filter(|session| tickets.keep_config(&ticket(*session), 1000, one, &json)).count();
        assert_eq!(kept, CONFIG_BYTES_PER_SOURCE / (100_000 + CONFIG_OVERHEAD));
        assert!(tickets.keep_config(&ticket(200), 1000, other, &json), "others have room");
        assert!(tickets.keep_config(&ticket(201), 1060, one, &json));
        assert_eq!(tickets.held(), (0, 100_000 + CONFIG_OVERHEAD), "all but the last are forgotten");
    }

    #[test]
    fn one_source_gets_its_part_of_the_tickets_until_they_expire() {
        let tickets = office();
        let (one, other) = (Some("2001:db8::1".parse().unwrap()), Some("192.0.2.2".parse().unwrap()));
        let got = (0..5000).filter(|session| tickets.hand_out(&ticket(*session), 1000, one)).count();
        assert_eq!(got, ISSUED_PER_SOURCE);
        assert!(!tickets.hand_out(&ticket(1), 1059, Some("2001:db8::2".parse().unwrap())), "the same /64");
        assert!(tickets.hand_out(&ticket(1), 1059, other), "others have theirs");
        assert!(tickets.hand_out(&ticket(1), 1060, one));
        assert_eq!(tickets.lock(1060).issued_by_source.len(), 0, "who has none left is forgotten");
    }

    #[test]
    fn configs_are_bounded_in_total() {
        let tickets = office();
        let source = |session: u64| Some(std::net::Ipv4Addr::from(u32::try_from(session).unwrap()).into());
        let kept = (0..400)
            .filter(|session| tickets.keep_config(&ticket(*session), 1000, source(*session), &"x".repeat(200_000)));
        assert_eq!(kept.count(), CONFIG_BYTES_MAX / (200_000 + CONFIG_OVERHEAD));
    }

    #[test]
    fn a_ticket_whose_config_is_gone_is_refused_and_one_without_is_not() {
        let (tickets, directory) = (office(), Directory::new(1));
        let enter = |ticket: &Ticket| {
            let make = |admitted: Admitted| panic!("{admitted:?}");
            tickets.enter(&directory, ticket, 1000, Instant::now(), None, make)
        };
        assert_eq!(enter(&ticket(1)), Err(Refusal::Config));
        let route = Route { transceiver: TransceiverId(9), ..ticket(1).route };
        assert_eq!(enter(&Ticket { model: 1, route, ..ticket(1) }), Err(Refusal::Model));
        let elsewhere = Ticket { model: model_id("echo"), route, has_config: false, ..ticket(1) };
        assert_eq!(enter(&elsewhere), Err(Refusal::NoSeat), "any run of the edge takes it");
        let model = tickets.model_field("echo", LOCAL) ^ 1;
        assert_eq!(enter(&Ticket { model, has_config: false, ..ticket(1) }), Err(Refusal::Restarted));
        tickets.close();
        assert_eq!(enter(&ticket(1)), Err(Refusal::Draining));
        assert_eq!(tickets.held(), (0, 0));
    }
}
