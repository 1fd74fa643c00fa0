//! Clients that reach another edge of the PoP than the one that has their session.
//!
//! ```text
//!   client ──▶ edge B (ingress) ──Up, Offer──▶ edge A (owner)      a check by its token, media by what A answered before
//!          ◀──        ◀──Mine, Down──                              or, of unknown 4-tuples, offered to every peer
//! ```
//!
//! The owner answers through the ingress, because the client expects answers from the address that it sends to: for it
//! the 4-tuple becomes a [`Path`] that *leads via* a peer. All the rest of the owner, `rtc` included, takes that for one
//! more path of the session: checked, selected, expired as any other.
//!
//! Raw, over UDP with a MAC rather than over a QUIC connection between each two edges: a client's datagram is as safe
//! between two edges as it was on its way to the first, must not be repeated when it is lost, and the whole of it is one
//! MAC each way. There is no connection whose set-up, death or congestion would take part in the life of a call.
//!
//! # Invariants
//!
//! * A forwarded datagram is never forwarded again.
//! * Nothing is sent to a client for a datagram that did not open: the ingress keeps silent, the owner answers as to its
//!   own.
//! * What strangers can cause is bounded per source and in total: [`OFFERS`], [`UPS`].

mod gate;

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use link::ids::EdgeId;
use link::route::RouteKeys;
use link::route::forward::{Forward, Kind, OVERHEAD};
use rtc::{Path, Transport};

pub use self::gate::{Gate, GateDiscard};
use super::Worker;
use super::budget::{Budget, Limits};
use super::io::{Io, Output};
use super::routing::Hop;
use super::stats::Discard;
use crate::directory::{Command, Directory};

/// The longest datagram of a client's that is forwarded: what a peer's socket takes whole.
const DATAGRAM_MAX: usize = 2048 - OVERHEAD;

/// How long an owner's word for a 4-tuple holds. Checks come each few seconds and are answered each time, so this
/// survives some lost ones, and a dead owner's clients are offered around again in time to be told nothing.
pub const ROUTE_LIFETIME: Duration = Duration::from_secs(30);

/// Packets per second that are offered around: of one source, two calls whose every packet is offered until their owner has
/// answered; of all, each one a MAC and a datagram (~3 us) to every peer.
const OFFERS: Limits = Limits { per_source: 100, per_worker: 4000 };

/// Packets per second of clients whose session is known to be a peer's: of one source, 100 calls behind one NAT or the
/// largest message in a burst; of all, 400 calls at ~5 us per packet, a tenth of a core.
const UPS: Limits = Limits { per_source: 5000, per_worker: 20_000 };

/// What a peer sent, opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarded {
    /// What it is for.
    pub kind: Kind,
    /// Which peer.
    pub from: EdgeId,
    /// The 4-tuple at the edge that the client reaches.
    pub path: Path,
    /// The client's datagram, or what it is to be sent.
    pub datagram: Vec<u8>,
}

/// In the flow label of a path's local address: it leads via the peer in the lower bits. Addresses of the kernel's have
/// none there.
const VIA: u32 = 1 << 16;

/// The 4-tuple `path` of `peer` as a path of ours.
#[must_use]
pub fn via(peer: EdgeId, path: Path) -> Path {
    let ip = match path.local.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let local = SocketAddr::V6(SocketAddrV6::new(ip, path.local.port(), VIA | u32::from(peer.0), 0));
    Path { local, ..path }
}

/// Whether a path leads via a peer: one comparison for each datagram that is sent.
pub(super) fn leads_via(path: &Path) -> bool {
    matches!(path.local, SocketAddr::V6(local) if local.flowinfo() & VIA != 0)
}

/// Undoes [`via`]. `None`: the path is one of ours.
#[must_use]
pub fn peer_of(path: &Path) -> Option<(EdgeId, Path)> {
    let SocketAddr::V6(local) = path.local else { return None };
    let peer = u16::try_from(local.flowinfo() ^ VIA).ok()?;
    let local = SocketAddr::new(IpAddr::V6(*local.ip()).to_canonical(), local.port());
    Some((EdgeId(peer), Path { local, ..*path }))
}

/// What writing to peers takes.
pub(super) struct Port {
    edge: EdgeId,
    directory: Arc<Directory>,
    pub(super) keys: RouteKeys,
    /// Unix seconds at some instant.
    clock: (Instant, u32),
    /// Of the turn before, or of this one: good enough for seconds.
    pub(super) now: Instant,
    offers: Budget,
    ups: Budget,
}

impl Port {
    pub(super) fn new(now: Instant, edge: EdgeId, directory: Arc<Directory>, keys: RouteKeys, seed: u64) -> Self {
        let (offers, ups) = (Budget::new(now, OFFERS, seed), Budget::new(now, UPS, seed));
        Self { edge, directory, keys, clock: (now, 0), now, offers, ups }
    }

    fn seal(&self, kind: Kind, to: EdgeId, path: &Path, datagram: &[u8]) -> Vec<u8> {
        let (then, unix_seconds) = self.clock;
        let since = u32::try_from(self.now.saturating_duration_since(then).as_secs()).unwrap_or(u32::MAX);
        let forward = Forward {
            kind,
            from: self.edge,
            to,
            time: unix_seconds.saturating_add(since),
            seq: self.directory.pop.seq.fetch_add(1, Ordering::Relaxed),
            local: path.local,
            remote: path.remote,
            over_tcp: path.transport == Transport::Tcp,
            datagram,
        };
        let mut sealed = Vec::new();
        self.keys.seal_forward(&forward, &mut sealed);
        sealed
    }
}

impl Io {
    /// Tells the time to what dates datagrams between edges.
    pub(super) fn set_clock(&mut self, now: Instant, unix_seconds: u32) {
        if let Some(port) = &mut self.port {
            port.clock = (now, unix_seconds);
            port.now = now;
        }
    }

    /// Writes to a peer.
    pub(super) fn forward(&mut self, kind: Kind, peer: EdgeId, path: &Path, datagram: &[u8]) {
        let Some(port) = &self.port else { return };
        if datagram.len() > DATAGRAM_MAX {
            self.stats.peer_oversize += 1;
            return;
        }
        let bytes = port.seal(kind, peer, path, datagram);
        *match kind {
            Kind::Up => &mut self.stats.peer_up,
            Kind::Offer => &mut self.stats.peer_offers,
            Kind::Down => &mut self.stats.peer_down,
            Kind::Mine => &mut self.stats.peer_mine,
        } += 1;
        self.output(Output::Forward { peer, bytes });
    }

    /// Sends a datagram for a client that another edge reaches.
    #[cold]
    pub(super) fn transmit_via(&mut self, path: &Path, datagram: &[u8]) {
        if let Some((peer, path)) = peer_of(path) {
            self.forward(Kind::Down, peer, &path, datagram);
        }
    }
}

impl Worker {
    /// Takes what a peer sent and [`Gate::open`] let in.
    pub fn handle_peer(&mut self, now: Instant, unix_seconds: u32, forwarded: Forwarded) {
        self.now = now;
        let Forwarded { kind, from, path, mut datagram } = forwarded;
        self.io.set_clock(now, unix_seconds);
        match kind {
            Kind::Up | Kind::Offer => {
                let here = self.path_of(from, path, &datagram);
                if kind == Kind::Offer && self.paths.contains_key(&here) {
                    self.io.forward(Kind::Mine, from, &path, &[]);
                }
                self.route(now, unix_seconds, here, &mut datagram, Hop::Peer);
            }
            Kind::Down => {
                self.directory.pop.learn(path, from, now);
                // The answer to a check that was valid just now, as a local one's is. Media says nothing: it may be what
                // a call that was left still plays.
                if rtc::classify(&datagram) == rtc::Class::Stun {
                    self.give_away(path);
                }
                self.io.transmit(path, datagram);
            }
            Kind::Mine => {
                self.directory.pop.learn(path, from, now);
                self.give_away(path);
            }
        }
    }

    /// A peer's session proved a 4-tuple: who had it here is told, as when another worker's did. A page that was loaded
    /// again comes from the same port, and its call may be another edge's.
    fn give_away(&mut self, path: Path) {
        let directory = Arc::clone(&self.directory);
        if let Some(worker) = directory.give_path_away(&path) {
            if worker == self.config.index {
                self.path_taken(path);
            } else if let Some(mailbox) = directory.mailbox(worker) {
                mailbox.command(Command::PathTaken(path));
            }
        }
    }

    /// The path that stands for a peer's 4-tuple: where edges share one address (anycast), the 4-tuple itself may be
    /// known here, and then the packet counts as arrived here. Checks always say through whom they came.
    fn path_of(&self, from: EdgeId, path: Path, datagram: &[u8]) -> Path {
        let through = via(from, path);
        let known = |path: &Path| self.paths.contains_key(path) || self.directory.worker_of(path).is_some();
        let check = rtc::classify(datagram) == rtc::Class::Stun;
        if !check && !known(&through) && known(&path) { path } else { through }
    }

    /// Forwards a client's datagram to the edge that has its session.
    pub(super) fn forward_up(&mut self, now: Instant, unix_seconds: u32, peer: EdgeId, path: &Path, datagram: &[u8]) {
        self.io.set_clock(now, unix_seconds);
        if self.io.port.as_mut().is_some_and(|port| port.ups.take(now, path.remote.ip())) {
            self.io.forward(Kind::Up, peer, path, datagram);
        } else {
            self.io.stats.discard(Discard::OverBudget);
        }
    }

    /// Offers a datagram of an unknown client to every peer.
    pub(super) fn offer(&mut self, now: Instant, unix_seconds: u32, path: &Path, datagram: &[u8]) {
        self.io.set_clock(now, unix_seconds);
        if !self.io.port.as_mut().is_some_and(|port| port.offers.take(now, path.remote.ip())) {
            self.io.stats.discard(Discard::OverBudget);
            return;
        }
        let directory = Arc::clone(&self.directory);
        for peer in &directory.pop.peers {
            self.io.forward(Kind::Offer, *peer, path, datagram);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_via_a_peer_is_another_one_and_leads_back() {
        let addresses = ["192.0.2.1:3478", "[2001:db8::1]:3478"].map(|local| local.parse().unwrap());
        let remote = "198.51.100.7:40000".parse().unwrap();
        for path in addresses.map(|local| [Path::udp(local, remote), Path::tcp(local, remote)]).concat() {
            for peer in [EdgeId(1), EdgeId(2), EdgeId(u16::MAX)] {
                let through = via(peer, path);
                assert_ne!(through, path);
                assert!(leads_via(&through) && !leads_via(&path));
                assert_eq!(peer_of(&through), Some((peer, path)));
            }
            assert_eq!(peer_of(&path), None);
            assert_ne!(via(EdgeId(1), path), via(EdgeId(2), path));
        }
    }
}
