//! Set-up work, a step at a time: what a turn has no step left for waits here.
//!
//! A step is the claim of a session (its machine is built, as the DTLS client it also draws a key) or one DTLS datagram
//! of a session that is not connected (up to a certificate's verification and a signature), by itself or in a check: 50
//! to 300 us each, where a media packet takes two. With SPED a claim is both, as the first check carries the
//! ClientHello. A storm of set-ups in one receive batch would hold every running call up for 20 ms; one step per turn
//! holds it up for 0.3 ms. Datagrams wait in the order in which they came, and whoever finds the queue full is dropped:
//! checks and DTLS flights are repeated by their senders. A 4-tuple has [`WAITING_PER_PATH`] places: one that sends more
//! displaces its own, so that it takes its turn among the others and no more.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rtc::Path;

use super::Worker;
use super::routing::Hop;
use super::stats::Discard;

/// Steps in one turn of a worker.
const STEPS_PER_TURN: u32 = 1;

/// Datagrams that wait: at 0.3 ms each the last one waits for 80 ms, less than it takes a client to repeat it. 256 of 1500
/// bytes are 384 KiB.
const WAITING_MAX: usize = 256;

/// Datagrams of one 4-tuple that wait: the longest DTLS flight of a client's.
const WAITING_PER_PATH: usize = 4;

/// What waits longer than this was repeated: the repetition comes in its turn.
const WAITING_FOR: Duration = Duration::from_millis(500);

/// Datagrams looked at in one turn: those that need no step after all are as cheap as any other.
const LOOKS_PER_TURN: usize = 64;

struct Waiting {
    at: Instant,
    unix_seconds: u32,
    path: Path,
    datagram: Vec<u8>,
    hop: Hop,
}

/// The queue of one worker.
#[derive(Default)]
pub(super) struct Setup {
    waiting: VecDeque<Waiting>,
    steps_taken: u32,
    /// The datagram that is being routed is the one whose turn it is.
    first: bool,
}

impl Setup {
    /// The next turn begins.
    pub(super) fn next_turn(&mut self) {
        self.steps_taken = 0;
    }

    /// Whether something waits for the next turn.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the datagram that is being routed waited here: it was admitted before.
    pub(super) fn is_served(&self) -> bool {
        self.first
    }

    /// Takes a step for the datagram that is being routed. `false`: it has to wait, behind those that came before.
    pub(super) fn step(&mut self) -> bool {
        let may = self.steps_taken < STEPS_PER_TURN && (self.first || self.waiting.is_empty());
        self.steps_taken += u32::from(may);
        may
    }
}

impl Worker {
    /// Keeps a datagram for a turn that has a step for it.
    pub(super) fn wait_for_step(&mut self, now: Instant, unix_seconds: u32, path: Path, datagram: &[u8], hop: Hop) {
        let waiting = &mut self.setup.waiting;
        // 256 comparisons, and each datagram that comes here was paid for.
        let mut own = waiting.iter().enumerate().filter(|(_, waiting)| waiting.path == path).map(|(at, _)| at);
        let oldest = own.next();
        let displaced = if own.count() + 1 >= WAITING_PER_PATH { oldest } else { None };
        if let Some(displaced) = displaced.and_then(|at| waiting.remove(at)) {
            self.io.stats.discard(Discard::SetupQueue);
            self.io.recycle(displaced.datagram);
        }
        if self.setup.waiting.len() == WAITING_MAX {
            self.io.stats.discard(Discard::SetupQueue);
            return;
        }
        let mut kept = self.io.buffer();
        kept.clear();
        kept.extend_from_slice(datagram);
        self.setup.waiting.push_back(Waiting { at: now, unix_seconds, path, datagram: kept, hop });
    }

    /// Serves what waits, as far as this turn's steps go.
    pub(super) fn serve_setup(&mut self, now: Instant) {
        for _ in 0..LOOKS_PER_TURN {
            if self.setup.steps_taken == STEPS_PER_TURN {
                return;
            }
            let Some(mut waiting) = self.setup.waiting.pop_front() else { return };
            if now.saturating_duration_since(waiting.at) > WAITING_FOR {
                self.io.stats.discard(Discard::SetupQueue);
            } else {
                self.setup.first = true;
                self.route(now, waiting.unix_seconds, waiting.path, &mut waiting.datagram, waiting.hop);
                self.setup.first = false;
            }
            self.io.recycle(waiting.datagram);
        }
    }
}
