//! When a reply may begin: at once, unless the backend has shown that it gives its audio late and in bursts.
//!
//! **Why.** A backend that gives 600 ms each 700 ms runs the edge dry at the end of each burst. Begun a little later, a reply of
//! ordinary length plays without a hole; and when the edge has run dry all the same, one longer hole at a frame border is less
//! of a hiccup than many short ones.
//!
//! **How much.** The lateness of a piece is how long it came after the end of all before it, had they played from the first
//! piece's arrival on. A reply that begins by its greatest lateness later than it could has no hole. The next reply waits so
//! much, at most [`MOST`]; each reply that was less late lets a quarter of the difference go. Nothing is waited for when
//! nothing was ever late, or when all of the reply is there.

use std::time::{Duration, Instant};

/// Longest wait before a reply, or behind a hole in it: what delays the answer most users would notice, and 4/7 of a burst.
const MOST: Duration = Duration::from_millis(400);

/// Shortest wait behind a hole.
const AFTER_HOLE: Duration = Duration::from_millis(100);

/// Less lateness than a frame is none.
const LEAST: Duration = Duration::from_millis(20);

/// What the replies so far have taught.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Preroll {
    wanted: Duration,
}

/// How the audio of one reply comes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    first: Instant,
    latest: Duration,
}

impl Arrival {
    /// The first piece comes.
    pub(crate) fn new(now: Instant) -> Self {
        Self { first: now, latest: Duration::ZERO }
    }

    /// A piece comes behind `before` of audio.
    pub(crate) fn piece(&mut self, now: Instant, before: Duration) {
        let late = now.saturating_duration_since(self.first).saturating_sub(before);
        self.latest = self.latest.max(late);
    }
}

impl Preroll {
    /// How long the next reply waits.
    pub(crate) fn wanted(self) -> Duration {
        self.wanted
    }

    /// How long a reply waits that ran dry.
    pub(crate) fn after_hole(self, arrival: &Arrival) -> Duration {
        self.wanted.max(arrival.latest).clamp(AFTER_HOLE, MOST)
    }

    /// All of a reply is there.
    pub(crate) fn learn(&mut self, arrival: &Arrival) {
        let late = arrival.latest.min(MOST);
        self.wanted = if late >= self.wanted { late } else { self.wanted - (self.wanted - late) / 4 };
        if self.wanted < LEAST {
            self.wanted = Duration::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A reply of pieces of `length`, one each `period`.
    fn reply(pieces: u64, length: u64, period: u64) -> Arrival {
        let start = Instant::now();
        let mut arrival = Arrival::new(start);
        for piece in 0..pieces {
            arrival.piece(start + ms(piece * period), ms(piece * length));
        }
        arrival
    }

    #[test]
    fn a_backend_faster_than_speech_is_never_waited_for() {
        let mut preroll = Preroll::default();
        preroll.learn(&reply(50, 100, 30));
        preroll.learn(&reply(50, 100, 100));
        assert_eq!(preroll.wanted(), Duration::ZERO);
    }

    #[test]
    fn a_late_one_is_waited_for_as_long_as_it_was_late_and_no_longer_than_bounded() {
        let mut preroll = Preroll::default();
        preroll.learn(&reply(3, 600, 700));
        assert_eq!(preroll.wanted(), ms(200));
        preroll.learn(&reply(20, 600, 700));
        assert_eq!(preroll.wanted(), MOST);
    }

    #[test]
    fn what_was_learnt_is_let_go_reply_by_reply() {
        let mut preroll = Preroll::default();
        preroll.learn(&reply(5, 600, 700));
        assert_eq!(preroll.wanted(), ms(400));
        let mut replies = 0;
        while preroll.wanted() > Duration::ZERO {
            preroll.learn(&reply(10, 100, 50));
            replies += 1;
        }
        assert!((8..14).contains(&replies), "{replies}");
    }
}
