//! From a datagram to its session.
//!
//! ```text
//! STUN              by the route token in USERNAME, also on a known 4-tuple (page reloads reuse ports)
//!                     mine -> session; another worker's -> hand over; nobody's -> verify, claim
//! DTLS, (S)RT(C)P   by the 4-tuple: this worker's table, then the directory's
//! anything else     dropped, counted
//! ```
//!
//! Nothing is built or kept for a datagram before its token is authentic and its integrity is checked.

use std::time::Instant;

use link::ids::SessionId;
use rtc::stun::Check;
use rtc::{Class, Input, Path, classify};

use super::Worker;
use super::client::{Client, Side};
use super::clients::Key;
use super::io::Output;
use super::remote::Remote;
use super::stats::Discard;
use crate::directory::{Entry, Owner, Pending};
use crate::seats::LOCAL;

/// Where a datagram belongs.
enum Destination {
    Mine(Key),
    Worker(u32),
    /// Wherever it says when the turn comes that has a set-up step for it.
    Later,
}

/// Whether the datagram may be handed over: once, so that two workers can never play ball with it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hop {
    FromNetwork,
    FromWorker,
}

impl Worker {
    /// Takes a datagram from the network. `unix_seconds` dates the route token; the datagram is opened in place.
    pub fn handle_datagram(&mut self, now: Instant, unix_seconds: u32, path: Path, datagram: &mut [u8]) {
        self.route(now, unix_seconds, path, datagram, Hop::FromNetwork);
    }

    /// Takes a datagram that another worker left in this one's mailbox.
    pub fn handle_hand_over(&mut self, now: Instant, unix_seconds: u32, path: Path, datagram: &mut [u8]) {
        self.route(now, unix_seconds, path, datagram, Hop::FromWorker);
    }

    pub(super) fn route(&mut self, now: Instant, unix_seconds: u32, path: Path, datagram: &mut [u8], hop: Hop) {
        self.now = now;
        let class = classify(datagram);
        let destination = match class {
            Class::Stun if hop == Hop::FromNetwork && !self.setup.is_served() && !self.admits(now, &path) => {
                Err(Discard::OverBudget)
            }
            Class::Stun => self.route_check(now, unix_seconds, datagram),
            Class::Unknown => Err(Discard::Rtc(rtc::Discard::UnknownProtocol)),
            Class::Dtls | Class::Rtp | Class::Rtcp => self.route_path(now, &path),
        };
        match destination {
            Ok(Destination::Later) => self.wait_for_step(now, unix_seconds, path, datagram, hop),
            Ok(Destination::Mine(key)) if class == Class::Dtls && !self.may_handshake(key) => {
                self.wait_for_step(now, unix_seconds, path, datagram, hop);
            }
            Ok(Destination::Mine(key)) => self.deliver(now, key, path, datagram),
            Ok(Destination::Worker(worker)) if hop == Hop::FromNetwork && worker != self.config.index => {
                self.io.stats.handed_over += 1;
                self.io.output(Output::HandOver { worker, path, datagram: datagram.to_vec() });
            }
            Ok(Destination::Worker(_)) => self.io.stats.discard(Discard::Misrouted),
            Err(discard) => self.io.stats.discard(discard),
        }
    }

    /// Whether a check is looked at: on a known 4-tuple always, else as far as budgets go.
    fn admits(&mut self, now: Instant, path: &Path) -> bool {
        self.paths.contains_key(path) || self.budget.take(now, path.remote.ip())
    }

    /// Whether this session's DTLS may do its work in this turn.
    fn may_handshake(&mut self, key: Key) -> bool {
        self.clients.get(key).is_none_or(|client| client.connected) || self.setup.step()
    }

    fn route_path(&mut self, now: Instant, path: &Path) -> Result<Destination, Discard> {
        if let Some(key) = self.paths.get(path) {
            return Ok(Destination::Mine(*key));
        }
        if let Some(worker) = self.directory.worker_of(path) {
            return Ok(Destination::Worker(worker));
        }
        if !self.budget.take(now, path.remote.ip()) {
            return Err(Discard::OverBudget);
        }
        Err(Discard::Rtc(rtc::Discard::UncheckedPath))
    }

    /// A check names its session (RFC 8445 §7.2.2: USERNAME is "ours:theirs").
    fn route_check(&mut self, now: Instant, unix_seconds: u32, datagram: &[u8]) -> Result<Destination, Discard> {
        let check = Check::parse(datagram).map_err(Discard::Rtc)?;
        let route = self.keys.route().open(check.local_ufrag()).ok_or(Discard::ForgedRoute)?;
        if route.edge != self.config.edge {
            return Err(Discard::OtherEdge);
        }
        if let Some(key) = self.by_id.get(&route.session) {
            return Ok(Destination::Mine(*key));
        }
        let entry = self.directory.get(route.session).ok_or(Discard::UnknownSession)?;
        if entry.owner() == Owner::Unclaimed {
            let age = u64::from(unix_seconds.saturating_sub(route.minted));
            if age > self.config.session.setup_timeout.as_secs() {
                return Err(Discard::LateClaim);
            }
            if !check.verify(&entry.key) {
                return Err(Discard::Rtc(rtc::Discard::StunIntegrity));
            }
            if !self.setup.step() {
                return Ok(Destination::Later);
            }
            if let Some(key) = self.claim(now, route.session, &entry) {
                return Ok(Destination::Mine(key));
            }
        }
        match entry.owner() {
            Owner::Worker(worker) => Ok(Destination::Worker(worker)),
            Owner::Unclaimed | Owner::Gone => Err(Discard::UnknownSession),
        }
    }

    /// Becomes the owner of an answered call, unless another worker was faster.
    fn claim(&mut self, now: Instant, id: SessionId, entry: &Entry) -> Option<Key> {
        let pending = self.directory.claim(entry, self.config.index)?;
        let Pending { setup, call, seat } = *pending;
        let seed = self.seed();
        let Some(identity) = self.keys.identity(&setup.local_ufrag) else {
            // Its key opened a token just before. Should it be gone all the same, so is the call.
            self.directory.remove(id);
            return None;
        };
        let session = rtc::Session::new(now, setup, identity, self.config.session.clone(), seed);
        let side = if seat.transceiver() == LOCAL {
            Side::Echo(seat)
        } else {
            Side::Remote(Box::new(Remote::open(now, id, seat, &call, &mut self.io)))
        };
        let key = self.clients.insert(Box::new(Client::new(id, session, call, side)));
        self.by_id.insert(id, key);
        self.io.stats.claimed += 1;
        Some(key)
    }

    fn deliver(&mut self, now: Instant, key: Key, path: Path, datagram: &mut [u8]) {
        let Some(client) = self.clients.get_mut(key) else { return };
        match client.rtc.handle_datagram(now, path, datagram) {
            Input::Media(frame) => client.media(now, frame, &mut self.io),
            Input::Consumed => {}
            Input::Discarded(discard) => self.io.stats.discard(Discard::Rtc(discard)),
        }
        self.service(now, key);
    }
}
