//! The core of one edge worker: every session it owns, from datagram to datagram, without I/O.
//!
//! # Run loop
//!
//! A driver feeds [`Worker::handle_datagram`], [`Worker::handle_hand_over`], [`Worker::handle_peer`], [`Worker::handle_link`],
//! [`Worker::handle_command`] and, at [`Worker::poll_timeout`], [`Worker::handle_timeout`]. After each batch of inputs it
//! drains [`Worker::poll_transmit`] and [`Worker::poll_output`] until both are empty; the latter ends the batch
//! ([`Worker::end_of_batch`]), so that all frames of one receive batch leave in as few link datagrams as they fit.
//!
//! # Invariants
//!
//! * A session never changes its worker.
//! * One turn is bounded: at most [`FRAMES_PER_TURN`] due frames, [`DEADLINES_PER_TURN`] deadlines and one step of a set-up
//!   between two ends of a batch. What is left is due at once: [`Worker::poll_timeout`] lies in the past.
//! * What strangers cost is bounded ([`budget`]), and a datagram of an established flow asks for no budget.
//! * Every session that is claimed is counted as closed exactly once, and leaves nothing behind: no 4-tuple, slot, seat
//!   or directory entry.

mod bridge;
pub mod budget;
mod client;
mod clients;
mod deadlines;
mod events;
mod held;
mod io;
mod paths;
pub mod peers;
pub mod playout;
mod reflex;
mod remote;
mod renew;
mod routing;
mod setup;
mod stats;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use link::ids::{EdgeId, SessionId, Slot, TransceiverId};
use link::route::forward::Kind;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rtc::{Event, Path};

pub use bridge::LinkInput;
pub(crate) use events::{CHANNEL_LABEL as EVENTS_LABEL, session_created};
pub use io::Output;
pub(crate) use routing::ssrc_of;
pub use stats::{CloseCause, Discard, Gauges, Stats};

use self::budget::{Budget, Limits};
use self::client::Side;
use self::clients::{Clients, Key};
use self::deadlines::Deadlines;
pub(crate) use self::held::payload_bytes;
use self::io::Io;
use self::paths::{Keyed, Paths};
use self::peers::Port;
use self::setup::Setup;
use crate::directory::{Command, Directory};
use crate::keys::PopKeys;

/// Frames put on the wire between two ends of a batch: ~3 us each are ~200 us of a turn's 500.
pub const FRAMES_PER_TURN: u32 = 64;

/// Deadlines served per call of [`Worker::handle_timeout`].
pub const DEADLINES_PER_TURN: u32 = 64;

/// What a worker is told at its start.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// Its number among the workers of this edge, from 0.
    pub index: u32,
    /// The edge's id: tokens of other edges are not for us.
    pub edge: EdgeId,
    /// Timers and limits of each session.
    pub session: rtc::Config,
    /// What strangers may cost.
    pub limits: Limits,
    /// Whether the edge may hold playout by itself when the user's level rises.
    pub reflex: bool,
}

/// The core of one worker. See the module for how to drive it. Not `Send`.
pub struct Worker {
    config: WorkerConfig,
    directory: Arc<Directory>,
    keys: PopKeys,
    rng: StdRng,
    now: Instant,
    clients: Clients,
    by_id: HashMap<SessionId, Key>,
    /// Routes DTLS and SRTP only: STUN says itself whose it is.
    paths: Paths,
    slots: HashMap<(TransceiverId, Slot), Key>,
    /// Whose audio has which SSRC: asked for packets from unknown 4-tuples alone.
    ssrcs: HashMap<u32, Key>,
    deadlines: Deadlines,
    budget: Budget,
    setup: Setup,
    frames_left: u32,
    /// What sessions that are over had counted on their playout.
    past_playout: playout::Stats,
    io: Io,
}

impl Worker {
    /// A worker without sessions. `seed` feeds every random choice that is not a secret of DTLS.
    #[must_use]
    pub fn new(now: Instant, config: WorkerConfig, directory: Arc<Directory>, keys: PopKeys, seed: [u8; 32]) -> Self {
        let mut rng = StdRng::from_seed(seed);
        let budget = Budget::new(now, config.limits, rng.next_u64());
        let mut io = Io::new(now);
        if !directory.pop.peers.is_empty() {
            let port = Port::new(now, config.edge, Arc::clone(&directory), keys.route().clone(), rng.next_u64());
            io.port = Some(Box::new(port));
        }
        let paths = Paths::with_hasher(Keyed::new(&mut rng));
        Self {
            config,
            directory,
            keys,
            rng,
            now,
            clients: Clients::default(),
            by_id: HashMap::new(),
            paths,
            slots: HashMap::new(),
            ssrcs: HashMap::new(),
            deadlines: Deadlines::default(),
            budget,
            setup: Setup::default(),
            frames_left: FRAMES_PER_TURN,
            past_playout: playout::Stats::default(),
            io,
        }
    }

    /// Takes a command of signaling's or of another worker's.
    pub fn handle_command(&mut self, now: Instant, command: Command) {
        self.now = now;
        match command {
            Command::Close { session, cause } => {
                if let Some(key) = self.by_id.get(&session) {
                    self.finish(now, *key, cause);
                }
            }
            Command::CloseAll { cause } => {
                for key in self.clients.keys() {
                    self.finish(now, key, cause);
                }
            }
            Command::Keys(keys) => {
                if let Some(port) = &mut self.io.port {
                    port.keys = keys.route().clone();
                }
                self.keys = keys;
            }
            Command::PathTaken(path) => self.path_taken(path),
        }
    }

    /// Another session proved this 4-tuple: datagrams that do not say whose they are no longer come here.
    fn path_taken(&mut self, path: Path) {
        if let Some(key) = self.paths.remove(&path)
            && let Some(client) = self.clients.get_mut(key)
        {
            client.paths.retain(|p| *p != path);
        }
    }

    /// Does what is due, at most [`DEADLINES_PER_TURN`] sessions of it.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        for _ in 0..DEADLINES_PER_TURN {
            if self.frames_left == 0 {
                break;
            }
            let Some((at, key)) = self.deadlines.pop(now) else { break };
            let Some(client) = self.clients.get_mut(key) else { continue };
            if client.armed != Some(at) {
                continue;
            }
            client.armed = None;
            client.handle_timeout(now, &mut self.io);
            self.service(now, key);
        }
        self.serve_setup(now);
    }

    /// When [`Self::handle_timeout`] wants to be called next; may come early, never late.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.setup.is_waiting() { Some(self.now) } else { self.deadlines.next() }
    }

    /// The next datagram to a client: it is put into `out`, whose old buffer is kept for reuse.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Path> {
        self.io.poll_transmit(out)
    }

    /// The next thing to do for the worker; ends the batch before it says that there is nothing left.
    pub fn poll_output(&mut self) -> Option<Output> {
        if let Some(output) = self.io.poll_output() {
            return Some(output);
        }
        self.end_of_batch(self.now);
        self.io.poll_output()
    }

    /// Lets pending link datagrams go and opens the next turn.
    pub fn end_of_batch(&mut self, now: Instant) {
        self.frames_left = FRAMES_PER_TURN;
        self.setup.next_turn();
        self.io.end_of_batch(now);
    }

    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.io.stats;
        let running = self.clients.iter().filter_map(|client| match &client.side {
            Side::Remote(remote) => Some(remote.playout.stats()),
            Side::Echo(_) => None,
        });
        for rtc in self.clients.iter().map(|client| client.rtc.stats()) {
            stats.streams_unopened += rtc.streams_unopened;
            stats.feedback += rtc.feedback;
        }
        for playout in running.chain([&self.past_playout]) {
            stats.underruns += playout.underruns;
            stats.stale_frames += playout.stale;
            stats.refused_frames += playout.refused;
            stats.skipped_slots += playout.skipped_slots;
            stats.replayed_frames += playout.replayed;
            stats.clip_frames += playout.clip_frames;
            stats.clips_dropped += playout.clips_dropped;
        }
        stats
    }

    /// What is held right now.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let utterances = self.clients.iter().map(|client| match &client.side {
            Side::Remote(remote) => remote.playout.open_utterances(),
            Side::Echo(_) => 0,
        });
        Gauges { sessions: self.clients.len(), paths: self.paths.len(), utterances: utterances.sum() }
    }

    /// Drains a session after an input and arms its next deadline.
    fn service(&mut self, now: Instant, key: Key) {
        let Self { clients, paths, ssrcs, directory, io, config, frames_left, .. } = self;
        let Some(client) = clients.get_mut(key) else { return };
        let mut closed = None;
        while let Some(event) = client.rtc.poll_event() {
            match event {
                // Mostly a check that renews: the shared table is left alone then.
                Event::PathAdded(path) if paths.get(&path) == Some(&key) => {}
                Event::PathAdded(path) => {
                    paths.insert(path, key);
                    directory.add_path(path, config.index);
                    if !client.paths.contains(&path) {
                        client.paths.push(path);
                    }
                    if let Some((peer, path)) = peers::peer_of(&path) {
                        io.forward(Kind::Mine, peer, &path, &[]);
                    }
                }
                Event::PathRemoved(path) => {
                    client.paths.retain(|p| *p != path);
                    // A later session may sit behind the same 4-tuple.
                    if paths.get(&path) == Some(&key) {
                        paths.remove(&path);
                        directory.remove_path(&path, config.index);
                    }
                }
                Event::SsrcHeard(ssrc) => {
                    if let Some(former) = client.ssrc.take() {
                        ssrcs.remove(&former);
                        directory.pop.remove_ssrc(former);
                    }
                    if directory.pop.add_ssrc(ssrc, config.index) {
                        ssrcs.insert(ssrc, key);
                        client.ssrc = Some(ssrc);
                    }
                }
                Event::Closed(reason) => closed = Some(CloseCause::Client(reason)),
                other => client.handle_event(now, other, io),
            }
        }
        client.play(now, frames_left, io);
        client.drain_transmits(io);
        if let Some(cause) = closed.or_else(|| client.ended(now)) {
            self.finish(now, key, cause);
            return;
        }
        let wanted = client.poll_timeout(io);
        self.deadlines.arm(key, &mut client.armed, wanted);
        let clients = &self.clients;
        self.deadlines.tidy(clients.len(), |key, at| clients.get(key).is_some_and(|c| c.armed == Some(at)));
    }

    /// Ends a session and takes back all that it holds.
    fn finish(&mut self, now: Instant, key: Key, cause: CloseCause) {
        let Some(mut client) = self.clients.remove(key) else { return };
        if !matches!(cause, CloseCause::Client(_)) {
            client.rtc.close(now);
        }
        client.drain_transmits(&mut self.io);
        self.io.stats.streams_unopened += client.rtc.stats().streams_unopened;
        self.io.stats.feedback += client.rtc.stats().feedback;
        if let Side::Remote(remote) = &mut client.side {
            if let Some(slot) = remote.slot().map(|slot| (remote.transceiver(), slot))
                && self.slots.get(&slot) == Some(&key)
            {
                self.slots.remove(&slot);
            }
            remote.end(cause.label(), &mut self.io);
            let stats = remote.playout.stats();
            self.past_playout.underruns += stats.underruns;
            self.past_playout.stale += stats.stale;
            self.past_playout.refused += stats.refused;
            self.past_playout.skipped_slots += stats.skipped_slots;
            self.past_playout.replayed += stats.replayed;
            self.past_playout.clip_frames += stats.clip_frames;
            self.past_playout.clips_dropped += stats.clips_dropped;
        }
        for path in &client.paths {
            if self.paths.get(path) == Some(&key) {
                self.paths.remove(path);
                self.directory.remove_path(path, self.config.index);
            }
        }
        if let Some(ssrc) = client.ssrc {
            self.ssrcs.remove(&ssrc);
            self.directory.pop.remove_ssrc(ssrc);
        }
        self.by_id.remove(&client.id);
        self.directory.remove(client.id);
        self.io.stats.close(cause);
    }

    fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        seed
    }
}
