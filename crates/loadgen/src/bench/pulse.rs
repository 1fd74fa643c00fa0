//! One flow's frames: when each is due, when it left, how long it was away.

use std::time::{Duration, Instant};

/// Between two frames.
pub(crate) const FRAME: Duration = Duration::from_millis(20);

/// Frames that may be away at once: 2.5 s of them. What comes back later counts as lost.
const AWAY: usize = 128;

/// What a flow saw of the frames that were sent inside the measured window.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) duplicates: u64,
    /// Round trips in nanoseconds, at most 4.29 s each.
    pub(crate) round_trips: Vec<u32>,
}

/// A frame that left and is not back, in eight bytes, so that a flow's lie on few cache lines; 0 is none. From the low end:
/// whether it was measured, 1 bit; its number over [`AWAY`], 16 bits; nanoseconds since the flow began, 1 more than there were,
/// 47 bits, which are 39 hours.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Away(u64);

impl Away {
    const NONE: Self = Self(0);

    fn new(count: u32, left: Duration, measured: bool) -> Self {
        let nanos = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        Self(((nanos + 1) << 17) | (Self::round(count) << 1) | u64::from(measured))
    }

    fn round(count: u32) -> u64 {
        u64::from(count) / AWAY as u64 % (1 << 16)
    }

    /// Since the flow began; none when another frame has this place.
    fn left(self, count: u32) -> Option<Duration> {
        let same = (self.0 >> 1) % (1 << 16) == Self::round(count);
        (self != Self::NONE && same).then(|| Duration::from_nanos((self.0 >> 17) - 1))
    }

    fn measured(self) -> bool {
        self.0 & 1 == 1
    }
}

/// The clock and the ledger of one flow.
pub(crate) struct Pulse {
    begun: Instant,
    due: Instant,
    count: u32,
    away: Box<[Away; AWAY]>,
    seen: Seen,
    /// Whether anything has come back yet.
    heard: bool,
}

impl Pulse {
    /// A flow whose frames are due at `origin` + n x 20 ms + its own phase, from `now` on. Golden-ratio phases spread any
    /// number of flows evenly.
    pub(crate) fn new(origin: Instant, now: Instant, index: usize) -> Self {
        let phase = FRAME.mul_f64((index as f64 * 0.618_033_988_75).fract());
        let since = now.saturating_duration_since(origin).as_nanos() / FRAME.as_nanos() + 1;
        let slots = u32::try_from(since).unwrap_or(u32::MAX);
        Self {
            begun: now,
            due: origin + FRAME * slots + phase,
            count: 0,
            away: Box::new([Away::NONE; AWAY]),
            seen: Seen::default(),
            heard: false,
        }
    }

    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    pub(crate) fn heard(&self) -> bool {
        self.heard
    }

    /// The frame that is due leaves now; gives its number.
    pub(crate) fn leave(&mut self, now: Instant, measured: bool) -> u32 {
        let count = self.count;
        self.away[place(count)] = Away::new(count, now.saturating_duration_since(self.begun), measured);
        self.seen.sent += u64::from(measured);
        self.count = count.wrapping_add(1);
        self.due += FRAME;
        count
    }

    /// Something came that is no frame of ours.
    pub(crate) fn hear(&mut self) {
        self.heard = true;
    }

    /// A frame is back.
    pub(crate) fn back(&mut self, now: Instant, count: u32) {
        self.heard = true;
        let away = self.away[place(count)];
        let Some(left) = away.left(count) else {
            self.seen.duplicates += 1;
            return;
        };
        self.away[place(count)] = Away::NONE;
        if away.measured() {
            self.seen.received += 1;
            let nanos = now.saturating_duration_since(self.begun + left).as_nanos();
            self.seen.round_trips.push(u32::try_from(nanos).unwrap_or(u32::MAX));
        }
    }

    /// What was seen, starting anew.
    pub(crate) fn take_seen(&mut self) -> Seen {
        std::mem::take(&mut self.seen)
    }
}

fn place(count: u32) -> usize {
    count as usize % AWAY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_keep_their_schedule_and_are_told_apart() {
        let origin = Instant::now();
        let mut pulse = Pulse::new(origin, origin + Duration::from_millis(30), 0);
        assert_eq!(pulse.due(), origin + Duration::from_millis(40));
        let now = origin + Duration::from_millis(41);
        assert_eq!([pulse.leave(now, false), pulse.leave(now, true)], [0, 1]);
        assert_eq!(pulse.due(), origin + Duration::from_millis(80));
        pulse.back(now + Duration::from_micros(50), 1);
        pulse.back(now + Duration::from_micros(60), 1);
        let seen = pulse.take_seen();
        assert_eq!((seen.sent, seen.received, seen.duplicates, seen.round_trips), (1, 1, 1, vec![50_000]));
    }

    #[test]
    fn a_frame_that_comes_back_after_its_place_was_taken_is_no_round_trip() {
        let now = Instant::now();
        let mut pulse = Pulse::new(now, now, 0);
        for _ in 0..=AWAY {
            pulse.leave(now, true);
        }
        pulse.back(now, 0);
        assert_eq!(pulse.take_seen().received, 0);
    }
}
