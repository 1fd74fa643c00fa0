//! A seeded virtual network and clock, for tests of cores that have no I/O.
//!
//! # Run loop
//!
//! A test owns a [`Sim`] and the machines under test. It
//!
//! 1. adds a wire per direction ([`Sim::add_wire`]);
//! 2. drains each machine: what it transmits goes to [`Sim::send`], what it tells to [`Sim::log`];
//! 3. calls [`Sim::step`] with the earliest timeout of all machines, which moves the clock to whatever is due first and
//!    says what it is; feeds that to its machine, and goes on with 2.
//!
//! ```
//! # use std::time::{Duration, Instant};
//! use sim::{Conditions, Sim, Step};
//!
//! let mut sim = Sim::new(Instant::now(), 1);
//! let up = sim.add_wire(Conditions { delay: Duration::from_millis(20), ..Conditions::default() });
//! sim.send(up, "hello");
//! let Step::Delivery(delivery) = sim.step(None) else { panic!() };
//! assert_eq!((delivery.wire, delivery.payload), (up, "hello"));
//! assert_eq!(sim.elapsed(), Duration::from_millis(20));
//! ```
//!
//! # Invariant
//!
//! Everything follows from the seed and the order of the calls: two runs that do the same see the same deliveries at the
//! same virtual times, and render the same [`Log`]. Each wire draws from a generator of its own, so what one carries
//! changes nothing on another.

mod log;
mod random;
mod wire;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Display;
use std::time::{Duration, Instant};

pub use log::{Entry, Log};
pub use random::Random;
pub use wire::{Conditions, Loss, WireId, WireStats};

use wire::Wire;

/// The virtual network and clock. `P` is what the wires carry: datagrams, frames, messages.
#[derive(Debug)]
pub struct Sim<P> {
    seed: u64,
    base: Instant,
    elapsed: Duration,
    wires: Vec<Wire>,
    queue: BinaryHeap<Reverse<Queued<P>>>,
    sent: u64,
    log: Log,
}

/// What [`Sim::step`] came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<P> {
    /// A payload arrived.
    Delivery(Delivery<P>),
    /// The clock stands at the given timeout, and nothing arrived before.
    Timeout,
    /// Nothing is under way and nobody waits.
    Idle,
}

/// A payload that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery<P> {
    /// Over which wire.
    pub wire: WireId,
    /// The payload's place in the order of all [`Sim::send`] calls, from 0; a duplicate has that of its original.
    pub sent: u64,
    /// What was sent.
    pub payload: P,
}

impl<P: Clone> Sim<P> {
    /// A network without wires. `base` is what the clock says at the start: any instant will do.
    #[must_use]
    pub fn new(base: Instant, seed: u64) -> Self {
        Self {
            seed,
            base,
            elapsed: Duration::ZERO,
            wires: Vec::new(),
            queue: BinaryHeap::new(),
            sent: 0,
            log: Log::default(),
        }
    }

    /// The seed, for the message of a failed assertion.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A generator for the test's own choices, or for the seed of a machine. Equal labels give equal generators.
    #[must_use]
    pub fn random(&self, label: u64) -> Random {
        Random::new(self.seed, label)
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.base + self.elapsed
    }

    /// Virtual time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Adds one direction of a connection.
    pub fn add_wire(&mut self, conditions: Conditions) -> WireId {
        let id = WireId(self.wires.len());
        // From the other end than the labels that a test would use.
        let label = u64::MAX - u64::try_from(id.0).unwrap_or(u64::MAX);
        self.wires.push(Wire::new(conditions, Random::new(self.seed, label)));
        id
    }

    /// Changes a wire for what is sent from here on; what is under way arrives as it would have.
    ///
    /// # Panics
    /// If the wire is another `Sim`'s.
    pub fn set_conditions(&mut self, wire: WireId, conditions: Conditions) {
        self.wires[wire.0].conditions = conditions;
    }

    /// What a wire did so far.
    ///
    /// # Panics
    /// If the wire is another `Sim`'s.
    #[must_use]
    pub fn stats(&self, wire: WireId) -> WireStats {
        self.wires[wire.0].stats
    }

    /// Puts a payload on a wire, which may lose, delay or double it.
    ///
    /// # Panics
    /// If the wire is another `Sim`'s.
    pub fn send(&mut self, wire: WireId, payload: P) {
        let sent = self.sent;
        self.sent += 1;
        let [first, second] = self.wires[wire.0].carry(self.elapsed);
        if let Some(at) = second {
            self.enqueue(at, Delivery { wire, sent, payload: payload.clone() });
        }
        if let Some(at) = first {
            self.enqueue(at, Delivery { wire, sent, payload });
        }
    }

    /// When the next payload arrives.
    #[must_use]
    pub fn next_delivery(&self) -> Option<Instant> {
        self.queue.peek().map(|Reverse(next)| self.base + next.at)
    }

    /// Moves the clock to the next delivery or to `timeout`, whichever is first (a delivery when both are), and says
    /// which. A timeout in the past is due now.
    pub fn step(&mut self, timeout: Option<Instant>) -> Step<P> {
        let timeout = timeout.map(|timeout| timeout.saturating_duration_since(self.base).max(self.elapsed));
        let delivery = self.queue.peek().map(|Reverse(next)| next.at);
        match (delivery, timeout) {
            (Some(at), timeout) if timeout.is_none_or(|timeout| at <= timeout) => {
                self.elapsed = at;
                self.queue.pop().map_or(Step::Idle, |Reverse(next)| Step::Delivery(next.delivery))
            }
            (_, Some(timeout)) => {
                self.elapsed = timeout;
                Step::Timeout
            }
            (_, None) => Step::Idle,
        }
    }

    /// Notes an event at the present virtual time. `ids` tells which session, item, packet: `format_args!("item={id}")`.
    pub fn log(&mut self, actor: &str, event: &str, ids: impl Display) {
        self.log.push(self.elapsed, actor, event, ids);
    }

    /// All events noted, in order.
    #[must_use]
    pub fn events(&self) -> &Log {
        &self.log
    }

    fn enqueue(&mut self, at: Duration, delivery: Delivery<P>) {
        self.queue.push(Reverse(Queued { at, delivery }));
    }
}

/// Ordered by time, then by the order of sending.
#[derive(Debug)]
struct Queued<P> {
    at: Duration,
    delivery: Delivery<P>,
}

impl<P> Ord for Queued<P> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.delivery.sent).cmp(&(other.at, other.delivery.sent))
    }
}

impl<P> PartialOrd for Queued<P> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> PartialEq for Queued<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<P> Eq for Queued<P> {}
