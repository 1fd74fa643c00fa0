//! From a datagram to its session.
//!
//! ```text
//! STUN              by the route token in USERNAME, also on a known 4-tuple (page reloads reuse ports)
//!                     mine -> session; nobody's -> verify, claim; a ticket's first -> verify, enter, claim;
//!                     another worker's -> verify, hand over; another edge's -> verify, forward
//! DTLS, (S)RT(C)P   by the 4-tuple: this worker's table, then the directory's, then what peers said is theirs
//! (S)RT(C)P         from an unknown one: by its SSRC, one try to open it, here or at the worker that has the session
//! both              from an unknown one otherwise: offered to the peers
//! anything else     dropped, counted
//! ```
//!
//! The last two steps are for clients whose address changed on the way, and are budgeted ([`super::peers`]).
//!
//! Nothing is built or kept for a datagram before its token is authentic and its integrity is checked.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use link::ids::{EdgeId, SessionId};
use link::route::ticket::{TICKET_CHARS, Ticket, added, is_ticket};
use rtc::stun::{Check, IntegrityKey};
use rtc::{Class, ClientFacts, Input, LocalDescription, Path, classify};

use super::EVENTS_LABEL;
use super::Worker;
use super::client::{Client, Side};
use super::clients::Key;
use super::io::Output;
use super::reflex::Reflex;
use super::remote::Remote;
use super::stats::Discard;
use crate::directory::{Entry, Owner, Pending};
use crate::seats::LOCAL;
use crate::signaling::{local_description, ticket_pending};
use crate::tickets::{Entered, Refusal};

/// Where a datagram belongs.
enum Destination {
    Mine(Key),
    /// Perhaps: its SSRC says so.
    Stranger(Key),
    Worker(u32),
    /// Wherever it says when the turn comes that has a set-up step for it.
    Later,
    Peer(EdgeId),
    /// Any of them.
    Peers,
}

/// Where the datagram comes from, and so whether it may go on: to another worker once, to another edge once, so that
/// nobody can ever play ball with it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hop {
    Network,
    Worker,
    Peer,
}

/// Between two tries to open packets from unknown 4-tuples for one session: somebody who only knows its SSRC costs it 100
/// opens per second, and a client whose address changed is heard with one of its next packets.
const STRANGER_INTERVAL: Duration = Duration::from_millis(10);

impl Worker {
    /// Takes a datagram from the network. `unix_seconds` dates the route token; the datagram is opened in place.
    pub fn handle_datagram(&mut self, now: Instant, unix_seconds: u32, path: Path, datagram: &mut [u8]) {
        self.route(now, unix_seconds, path, datagram, Hop::Network);
    }

    /// Takes a datagram that another worker left in this one's mailbox.
    pub fn handle_hand_over(&mut self, now: Instant, unix_seconds: u32, path: Path, datagram: &mut [u8]) {
        self.io.set_clock(now, unix_seconds);
        self.route(now, unix_seconds, path, datagram, Hop::Worker);
    }

    pub(super) fn route(&mut self, now: Instant, unix_seconds: u32, path: Path, datagram: &mut [u8], hop: Hop) {
        self.now = now;
        let class = classify(datagram);
        let destination = match class {
            Class::Stun if hop == Hop::Network && !self.setup.is_served() && !self.admits(now, &path) => {
                Err(Discard::OverBudget)
            }
            Class::Stun => self.route_check(now, unix_seconds, &path, datagram, hop),
            Class::Unknown => Err(Discard::Rtc(rtc::Discard::UnknownProtocol)),
            Class::Dtls | Class::Rtp | Class::Rtcp => match self.paths.get(&path) {
                Some(key) => Ok(Destination::Mine(*key)),
                None => self.route_unknown(now, &path, datagram),
            },
        };
        match destination {
            Ok(Destination::Later) => self.wait_for_step(now, unix_seconds, path, datagram, hop),
            Ok(Destination::Mine(key)) if class == Class::Dtls && self.is_in_setup(key) => {
                if !self.setup.is_served() && !self.budget.take(now, path.remote.ip()) {
                    self.io.stats.discard(Discard::OverBudget);
                } else if self.setup.step() {
                    self.deliver(now, key, path, datagram);
                } else {
                    self.wait_for_step(now, unix_seconds, path, datagram, hop);
                }
            }
            Ok(Destination::Mine(key)) => self.deliver(now, key, path, datagram),
            Ok(Destination::Stranger(key)) => self.try_stranger(now, key, path, datagram),
            Ok(Destination::Worker(worker)) if hop != Hop::Worker && worker != self.config.index => {
                self.io.stats.handed_over += 1;
                self.io.output(Output::HandOver { worker, path, datagram: datagram.to_vec() });
            }
            Ok(Destination::Worker(_)) => self.io.stats.discard(Discard::Misrouted),
            Ok(Destination::Peer(peer)) if hop == Hop::Network => {
                self.forward_up(now, unix_seconds, peer, &path, datagram);
            }
            Ok(Destination::Peers) if hop == Hop::Network => self.offer(now, unix_seconds, &path, datagram),
            Ok(Destination::Peer(_) | Destination::Peers) => {
                self.io.stats.discard(Discard::Rtc(rtc::Discard::UncheckedPath));
            }
            Err(discard) => self.io.stats.discard(discard),
        }
    }

    /// Whether a check is looked at: on a known 4-tuple always, else as far as budgets go.
    fn admits(&mut self, now: Instant, path: &Path) -> bool {
        self.paths.contains_key(path) || self.budget.take(now, path.remote.ip())
    }

    /// Whether this session's DTLS still has its costly part before it.
    fn is_in_setup(&self, key: Key) -> bool {
        self.clients.get(key).is_some_and(|client| !client.connected)
    }

    /// DTLS and (S)RT(C)P from a 4-tuple that no session of this worker proved.
    fn route_unknown(&mut self, now: Instant, path: &Path, datagram: &[u8]) -> Result<Destination, Discard> {
        if let Some(worker) = self.directory.worker_of(path) {
            return Ok(Destination::Worker(worker));
        }
        if let Some(peer) = self.directory.pop.peer_of(path, now) {
            return Ok(Destination::Peer(peer));
        }
        if !self.budget.take(now, path.remote.ip()) {
            return Err(Discard::OverBudget);
        }
        if let Some(ssrc) = ssrc_of(datagram) {
            if let Some(key) = self.ssrcs.get(&ssrc) {
                return Ok(Destination::Stranger(*key));
            }
            if let Some(worker) = self.directory.pop.worker_of(ssrc) {
                return Ok(Destination::Worker(worker));
            }
        }
        if self.directory.pop.peers.is_empty() {
            return Err(Discard::Rtc(rtc::Discard::UncheckedPath));
        }
        Ok(Destination::Peers)
    }

    /// One try to open a packet that says to be of this session, from a 4-tuple that nobody proved.
    fn try_stranger(&mut self, now: Instant, key: Key, path: Path, datagram: &mut [u8]) {
        let Some(client) = self.clients.get_mut(key) else { return };
        if client.stranger_at.is_some_and(|at| now < at) {
            self.io.stats.discard(Discard::OverBudget);
            return;
        }
        client.stranger_at = Some(now + STRANGER_INTERVAL);
        match client.rtc.handle_stranger(now, path, datagram) {
            Input::Media(frame) => client.media(now, frame, &mut self.io),
            Input::Consumed => {}
            Input::Discarded(discard) => {
                self.io.stats.discard(Discard::Rtc(discard));
                return;
            }
        }
        self.service(now, key);
        // An authentic packet that others overtook is heard, and proves nothing.
        self.io.stats.paths_healed += u64::from(self.paths.contains_key(&path));
    }

    /// A check names its session (RFC 8445 §7.2.2: USERNAME is "ours:theirs").
    fn route_check(
        &mut self,
        now: Instant,
        unix_seconds: u32,
        path: &Path,
        datagram: &[u8],
        hop: Hop,
    ) -> Result<Destination, Discard> {
        let check = Check::parse(datagram).map_err(Discard::Rtc)?;
        let route = self.keys.route().open(check.local_ufrag()).ok_or(Discard::ForgedRoute)?;
        if route.edge != self.config.edge {
            return self.route_to_peer(route.edge, &check, hop);
        }
        if let Some(key) = self.by_id.get(&route.session).copied() {
            let carries = check.sped_data().is_some_and(|datagram| !datagram.is_empty());
            if !carries || !self.is_in_setup(key) {
                return Ok(Destination::Mine(key));
            }
            if !self.clients.get(key).is_some_and(|client| client.rtc.is_authentic(&check)) {
                return Err(Discard::Rtc(rtc::Discard::StunIntegrity));
            }
            // DTLS that rides on a check costs what it does by itself, and pays as much.
            if !self.setup.is_served() && !self.budget.take(now, path.remote.ip()) {
                return Err(Discard::OverBudget);
            }
            return Ok(if self.setup.step() { Destination::Mine(key) } else { Destination::Later });
        }
        let (entry, mut stepped) = match self.directory.get(route.session) {
            Some(entry) => (entry, false),
            None => {
                let ticket = self.verify_ticket(unix_seconds, &check)?;
                if !self.setup.step() {
                    return Ok(Destination::Later);
                }
                self.enter_ticket(now, unix_seconds, &check, &ticket)?;
                (self.directory.get(route.session).ok_or(Discard::UnknownSession)?, true)
            }
        };
        if entry.owner() == Owner::Unclaimed {
            let age = u64::from(unix_seconds.saturating_sub(route.minted));
            // A ticket waits for its click; its session is given up as any other when nobody claims it.
            if age > self.config.session.setup_timeout.as_secs() && !is_ticket(check.local_ufrag()) {
                return Err(Discard::LateClaim);
            }
            if !self.is_authentic(&check, &entry) {
                return Err(Discard::Rtc(rtc::Discard::StunIntegrity));
            }
            stepped = stepped || self.setup.step();
            if !stepped {
                return Ok(Destination::Later);
            }
            if let Some(key) = self.claim(now, route.session, &entry) {
                return Ok(Destination::Mine(key));
            }
        }
        match entry.owner() {
            // A token alone, which anybody on the way can read, makes no work for another thread.
            Owner::Worker(_) if hop != Hop::Worker && !self.is_authentic(&check, &entry) => {
                Err(Discard::Rtc(rtc::Discard::StunIntegrity))
            }
            Owner::Worker(worker) => Ok(Destination::Worker(worker)),
            Owner::Unclaimed | Owner::Gone => Err(Discard::UnknownSession),
        }
    }

    /// The ticket in a check of a session that nobody knows: authentic, and to be honored as far as that costs little to say.
    /// Whoever replays checks of calls that are over gets no further.
    fn verify_ticket(&self, unix_seconds: u32, check: &Check<'_>) -> Result<Ticket, Discard> {
        let tickets = self.directory.tickets().ok_or(Discard::UnknownSession)?;
        let ticket = self.keys.route().open_ticket(check.local_ufrag()).ok_or(Discard::UnknownSession)?;
        tickets.look(&ticket, unix_seconds).map_err(Discard::Ticket)?;
        let password = self.keys.route().password_bytes(check.local_ufrag());
        let password = password.as_ref().and_then(|bytes| std::str::from_utf8(bytes).ok());
        if password.is_some_and(|password| check.verify(&IntegrityKey::new(password))) {
            Ok(ticket)
        } else {
            Err(Discard::Rtc(rtc::Discard::StunIntegrity))
        }
    }

    /// The call of a ticket, of which this is the first check, becomes one that signaling might have answered.
    fn enter_ticket(
        &mut self,
        now: Instant,
        unix_seconds: u32,
        check: &Check<'_>,
        ticket: &Ticket,
    ) -> Result<(), Discard> {
        let ufrag = check.local_ufrag();
        let facts = added(ufrag).and_then(ClientFacts::read).ok_or(Discard::Ticket(Refusal::Facts))?;
        let token = ufrag.get(..TICKET_CHARS).unwrap_or_default();
        let setup = local_description(&self.keys, token)
            .map(|local| LocalDescription { ufrag: ufrag.to_owned(), ..local })
            .and_then(|local| facts.setup(&local, check.remote_ufrag(), EVENTS_LABEL))
            .ok_or(Discard::Ticket(Refusal::Facts))?;
        let tickets = self.directory.tickets().ok_or(Discard::UnknownSession)?;
        let until = now + self.config.session.setup_timeout;
        let make = |admitted| ticket_pending(ticket, unix_seconds, setup, admitted);
        let entered = tickets.enter(&self.directory, ticket, unix_seconds, until, None, make);
        if entered.map_err(Discard::Ticket)? == Entered::First {
            tickets.by_check.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A check for a session of another edge: the password follows from the token, so that it can be verified here.
    fn route_to_peer(&self, edge: EdgeId, check: &Check<'_>, hop: Hop) -> Result<Destination, Discard> {
        if hop != Hop::Network || !self.directory.pop.peers.contains(&edge) {
            return Err(Discard::OtherEdge);
        }
        if self.is_of_its_token(check) {
            Ok(Destination::Peer(edge))
        } else {
            Err(Discard::Rtc(rtc::Discard::StunIntegrity))
        }
    }

    /// Whether a check knows a password of its session's. After an ICE restart there is more than one, and the entry has
    /// the first alone; which of them is still valid is for the session to say.
    fn is_authentic(&self, check: &Check<'_>, entry: &Entry) -> bool {
        check.verify(&entry.key) || (entry.versions.ice_session() > 1 && self.is_of_its_token(check))
    }

    /// Whether a check knows the password that follows from its token.
    fn is_of_its_token(&self, check: &Check<'_>) -> bool {
        let password = self.keys.route().password_bytes(check.local_ufrag());
        let password = password.as_ref().and_then(|bytes| std::str::from_utf8(bytes).ok());
        password.is_some_and(|password| check.verify(&IntegrityKey::new(password)))
    }

    /// Becomes the owner of an answered call, unless another worker was faster.
    fn claim(&mut self, now: Instant, id: SessionId, entry: &Entry) -> Option<Key> {
        let pending = self.directory.claim(entry, self.config.index)?;
        let Some(identity) = self.keys.identity(pending.first_ufrag()).cloned() else {
            // Its key opened a token just before. Should it be gone all the same, so is the call.
            self.directory.remove(id);
            return None;
        };
        let Pending { setup, former, call, seat, place: _ } = *pending;
        self.io.stats.snap += u64::from(setup.sctp.as_ref().is_some_and(|sctp| sctp.snap.is_some()));
        let mut session = rtc::Session::new(now, setup, &identity, self.config.session.clone(), self.seed());
        session.keep_former(&former);
        let side = if seat.transceiver() == LOCAL {
            Side::Echo(seat)
        } else {
            Side::Remote(Box::new(Remote::open(now, id, seat, &call, Reflex::new(self.config.reflex), &mut self.io)))
        };
        let mut client = Client::new(id, session, call, side);
        let granted = Some(client.call.terms.max_seconds).filter(|seconds| *seconds != 0);
        client.ends_at = granted.map(|seconds| now + Duration::from_secs(seconds.into()));
        let key = self.clients.insert(Box::new(client));
        self.by_id.insert(id, key);
        self.io.stats.claimed += 1;
        Some(key)
    }

    fn deliver(&mut self, now: Instant, key: Key, path: Path, datagram: &mut [u8]) {
        let Some(client) = self.clients.get_mut(key) else { return };
        match client.rtc.handle_datagram(now, path, datagram) {
            Input::Media(frame) => {
                client.media(now, frame, &mut self.io);
                // Media moves no deadline: nearly every datagram ends here.
                if client.rtc.is_drained() {
                    return;
                }
            }
            Input::Consumed => {}
            Input::Discarded(discard) => self.io.stats.discard(Discard::Rtc(discard)),
        }
        self.service(now, key);
    }
}

/// The SSRC that an RTP or RTCP packet states (RFC 3550 §5.1, §6.4.1).
pub(crate) fn ssrc_of(datagram: &[u8]) -> Option<u32> {
    let at = match classify(datagram) {
        Class::Rtp => 8,
        Class::Rtcp => 4,
        Class::Stun | Class::Dtls | Class::Unknown => return None,
    };
    datagram.get(at..)?.first_chunk().map(|ssrc| u32::from_be_bytes(*ssrc))
}
