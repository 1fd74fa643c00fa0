//! Where holes were filled, so that a packet that comes after all still has its place.

use std::time::{Duration, Instant};

/// Holes remembered: at one in two packets of 20 ms, the last 400 ms have 10.
const HOLES: usize = 16;

/// The last holes that were filled.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Holes {
    filled: [Option<Filled>; HOLES],
    next: usize,
}

/// One of them: `samples` from `timestamp` on became those from `media_time` on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filled {
    pub(super) timestamp: u32,
    pub(super) samples: u32,
    pub(super) media_time: u64,
    /// When the packet behind it came.
    pub(super) seen: Instant,
    pub(super) at: Instant,
}

impl Holes {
    pub(super) fn keep(&mut self, filled: Filled) {
        if let Some(place) = self.filled.get_mut(self.next % HOLES) {
            *place = Some(filled);
        }
        self.next = (self.next + 1) % HOLES;
    }

    /// The hole that a packet belongs into, and the packet's media time.
    pub(super) fn find(&self, timestamp: u32, samples: u32) -> Option<(Filled, u64)> {
        self.filled.iter().flatten().find_map(|filled| {
            let into = timestamp.wrapping_sub(filled.timestamp);
            let fits = into.checked_add(samples).is_some_and(|end| end <= filled.samples);
            fits.then(|| (*filled, filled.media_time + u64::from(into)))
        })
    }

    /// The stream starts over: its timestamps mean something else.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Filled {
    pub(super) fn is_fresh(&self, now: Instant, within: Duration) -> bool {
        now.saturating_duration_since(self.at) <= within
    }
}
