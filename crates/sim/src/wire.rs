//! One direction of a connection.

use std::time::Duration;

use crate::Random;

/// A wire of a [`Sim`](crate::Sim).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WireId(pub(crate) usize);

/// How a wire treats what it carries. The default is a wire that delivers everything at once.
///
/// ```text
/// sent -- loss? -- delay + 0..jitter, not before its predecessor -- reordered? + reorder_delay -- duplicated? -- arrives
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conditions {
    /// The least that each payload takes. Defaults to 0.
    pub delay: Duration,
    /// The most that is added to it, uniformly drawn; a payload held up holds up those behind it. Defaults to 0.
    pub jitter: Duration,
    /// Defaults to [`Loss::None`].
    pub loss: Loss,
    /// Probability that a payload is held back by `reorder_delay` while those behind it pass. Defaults to 0.
    pub reorder: f64,
    /// Defaults to 30 ms: one and a half frames of audio.
    pub reorder_delay: Duration,
    /// Probability that a payload arrives twice, the second time up to `jitter` later. Defaults to 0.
    pub duplicate: f64,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: Loss::None,
            reorder: 0.0,
            reorder_delay: Duration::from_millis(30),
            duplicate: 0.0,
        }
    }
}

/// How payloads get lost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// None does.
    None,
    /// Each with this probability, whatever became of the others.
    Uniform(f64),
    /// In bursts (Gilbert and Elliott): the wire changes between two states before each payload.
    Bursts {
        /// Probability to change from good to bad.
        enter: f64,
        /// Probability to change from bad to good: bursts last 1 / `leave` payloads on average.
        leave: f64,
        /// Probability of loss in the good state, often 0.
        good: f64,
        /// Probability of loss in the bad state, often 1.
        bad: f64,
    },
}

/// What a wire did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WireStats {
    /// Payloads put on it.
    pub sent: u64,
    /// Of them, lost.
    pub lost: u64,
    /// Of them, held back while others passed.
    pub reordered: u64,
    /// Of them, delivered twice.
    pub duplicated: u64,
}

#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) conditions: Conditions,
    pub(crate) stats: WireStats,
    random: Random,
    /// The bad state of [`Loss::Bursts`].
    bad: bool,
    /// Arrival of the latest payload that kept its place.
    last: Duration,
}

impl Wire {
    pub(crate) fn new(conditions: Conditions, random: Random) -> Self {
        Self { conditions, stats: WireStats::default(), random, bad: false, last: Duration::ZERO }
    }

    /// When a payload sent at `now` arrives: never, once, or twice.
    pub(crate) fn carry(&mut self, now: Duration) -> [Option<Duration>; 2] {
        self.stats.sent += 1;
        if self.loses() {
            self.stats.lost += 1;
            return [None; 2];
        }
        let mut at = (now + self.conditions.delay + self.jitter()).max(self.last);
        if self.random.chance(self.conditions.reorder) {
            self.stats.reordered += 1;
            at += self.conditions.reorder_delay;
        } else {
            self.last = at;
        }
        if !self.random.chance(self.conditions.duplicate) {
            return [Some(at), None];
        }
        self.stats.duplicated += 1;
        [Some(at), Some(at + self.jitter())]
    }

    fn loses(&mut self) -> bool {
        let probability = match self.conditions.loss {
            Loss::None => 0.0,
            Loss::Uniform(probability) => probability,
            Loss::Bursts { enter, leave, good, bad } => {
                self.bad ^= self.random.chance(if self.bad { leave } else { enter });
                if self.bad { bad } else { good }
            }
        };
        self.random.chance(probability)
    }

    fn jitter(&mut self) -> Duration {
        let most = u64::try_from(self.conditions.jitter.as_nanos()).unwrap_or(u64::MAX - 1);
        Duration::from_nanos(self.random.below(most + 1))
    }
}
