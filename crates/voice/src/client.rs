//! The client's own word on how late its user hears.
//!
//! Invariant: what is kept lies within [`MAX_DELAY_US`] and changes at most once in [`EVERY`], whatever a client sends.

use std::time::{Duration, Instant};

/// Longest delay that is believed.
const MAX_DELAY_US: u32 = 2_000_000;

/// A client that measures over a second has nothing new sooner; one that sends more would only make positions jump.
const EVERY: Duration = Duration::from_millis(250);

/// How much later than it receives a client plays out, as it last said.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClientDelay {
    told: Option<(Instant, u32)>,
    /// Reports that came too soon.
    pub(crate) hasty: u64,
}

impl ClientDelay {
    pub(crate) fn set(&mut self, now: Instant, delay_us: u32) {
        if self.told.is_some_and(|(at, _)| now < at + EVERY) {
            self.hasty += 1;
            return;
        }
        self.told = Some((now, delay_us.min(MAX_DELAY_US)));
    }

    pub(crate) fn get(self) -> Option<u32> {
        self.told.map(|(_, delay_us)| delay_us)
    }
}
