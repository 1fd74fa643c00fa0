//! Where one reply is: what the backend gave of it, what the edge sent, what the user got.
//!
//! Positions are 48 kHz item samples. They count the item's own sound: the silence that fills a last frame or an underrun is
//! in none of them, and what the edge plays again after a step back counts once.
//!
//! **Invariant:** each position only rises, and `heard <= sent <= generated`.
//!
//! * `played_end` is where a cut lies. A client plays out what it has after the edge stops, so it is the last sample sent; or the
//!   last that arrived, when so much behind it is known to be lost that the way has ended ([`OUTAGE`]) and not only chance struck.
//!   A loss before that is not taken off: the client conceals it, and its place in the item passes all the same. The edge tells
//!   of arrivals by their place in the item, so it does not matter how late it learns of a loss; what is told behind the cut
//!   changes nothing.
//! * `heard_at` is where the user was when they began to speak: what had been sent half a round trip and the client's playout
//!   delay earlier. "Heard" is handed to the output device.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::types::Received;

/// Reports kept: one each 100 ms while the edge plays, and one per pause and underrun. 64 reach back 4 s and more, which is the
/// longest round trip and playout delay believed. 32 bytes each.
const MAX_POINTS: usize = 64;

/// Longest round trip, and longest playout delay, believed.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// A client's playout delay as long as nobody has said anything of it: what Chromium's jitter buffer and an ordinary output
/// device take together.
pub(crate) const DEFAULT_CLIENT_DELAY: Duration = Duration::from_millis(80);

/// A frame is on the wire when its first sample is due, and counts as sent with its last.
const FRAME: u64 = 960;

/// Losses at the end that are taken for an end of the way, not for chance: 60 ms.
const OUTAGE: u64 = 3 * FRAME;

/// Where playout was at a time.
#[derive(Debug, Clone, Copy)]
struct Point {
    at: Instant,
    sent: u64,
    /// It stands still from here on, as far as is known.
    still: bool,
}

/// The way to the client and through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    rtt: Duration,
    delay: Duration,
}

impl Way {
    /// `delay`: from a packet's arrival at the client to its sound. Neither is taken for longer than 2 s.
    pub(crate) fn new(rtt: Duration, delay: Duration) -> Self {
        Self { rtt: rtt.min(MAX_DELAY), delay: delay.min(MAX_DELAY) }
    }
}

/// The positions of one item.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    generated: u64,
    sent: u64,
    heard: u64,
    received: Received,
    points: VecDeque<Point>,
}

impl Ledger {
    /// What the backend gave.
    pub(crate) fn generated(&self) -> u64 {
        self.generated
    }

    /// What the edge put on the wire.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// The backend gave more.
    pub(crate) fn generate(&mut self, samples: u64) {
        self.generated = self.generated.saturating_add(samples);
    }

    /// The item's first frame left at `at`.
    pub(crate) fn begin(&mut self, at: Instant) {
        if self.points.is_empty() {
            self.points.push_back(Point { at, sent: 0, still: false });
        }
    }

    /// At `at` the edge was at `sent`, the silence in a last frame included. `still`: it does not play on from there.
    pub(crate) fn report(&mut self, at: Instant, sent: u64, still: bool) {
        self.sent = self.sent.max(sent.min(self.generated));
        let at = self.points.back().map_or(at, |last| last.at.max(at));
        if self.points.len() == MAX_POINTS {
            self.points.pop_front();
        }
        self.points.push_back(Point { at, sent: self.sent, still });
    }

    /// What the client is known to have got; reports may overtake one another.
    pub(crate) fn receive(&mut self, received: Received) {
        if (received.to, received.lost) > (self.received.to, self.received.lost) {
            self.received = received;
        }
    }

    /// How far the user had heard at `at`, a time of theirs in the edge's past: what reaches the edge at `at + rtt / 2` was said
    /// then.
    pub(crate) fn heard_at(&mut self, at: Instant, way: Way) -> u64 {
        let then = at.checked_sub(way.rtt / 2).and_then(|at| at.checked_sub(way.delay));
        let sent = then.map_or(0, |then| self.sent_at(then)).saturating_sub(FRAME);
        self.heard = self.heard.max(sent);
        self.heard
    }

    /// Where the item ends when nothing more of it is sent.
    pub(crate) fn played_end(&self) -> u64 {
        let Received { to, lost } = self.received;
        let end = if lost < OUTAGE { self.sent } else { to.min(self.sent) };
        end.max(self.heard)
    }

    /// What had been sent at `at`. Between two reports playout may have stood still and then went on: an underrun is a report of
    /// its own, so it did not go on first. Behind the last report it is where that says.
    fn sent_at(&self, at: Instant) -> u64 {
        let next = self.points.partition_point(|point| point.at <= at);
        let Some(before) = next.checked_sub(1).and_then(|index| self.points.get(index)) else { return 0 };
        if before.still {
            return before.sent;
        }
        let most = before.sent.saturating_add(samples(at - before.at));
        match self.points.get(next) {
            Some(after) => after.sent.saturating_sub(samples(after.at - at)).clamp(before.sent, most.max(before.sent)),
            None => most.min(self.sent),
        }
    }
}

/// 48 kHz samples of a time.
fn samples(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).map_or(u64::MAX / 2, |micros| micros.saturating_mul(48) / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 48;

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    fn way(rtt: u64, delay: u64) -> Way {
        Way::new(Duration::from_millis(rtt), Duration::from_millis(delay))
    }

    /// Plays from 0 to 1000 ms, reported each 100 ms, of an item of 10 s.
    fn playing(start: Instant) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.generate(10_000 * MS);
        ledger.begin(start);
        for ms in (100..=1000).step_by(100) {
            ledger.report(at(start, ms), ms * MS, false);
        }
        ledger
    }

    #[test]
    fn the_user_is_half_a_round_trip_and_the_playout_delay_behind() {
        let start = Instant::now();
        let mut ledger = playing(start);
        assert_eq!(ledger.heard_at(at(start, 950), way(60, 70)), (950 - 30 - 70 - 20) * MS);
        assert_eq!(ledger.heard_at(at(start, 990), way(0, 0)), (990 - 20) * MS);
    }

    #[test]
    fn before_the_first_frame_is_heard_nothing_is() {
        let start = Instant::now();
        let mut ledger = playing(start);
        assert_eq!(ledger.heard_at(at(start, 80), way(40, 60)), 0);
        assert_eq!(Ledger::default().heard_at(start, way(0, 0)), 0);
    }

    #[test]
    fn what_was_heard_never_falls_and_is_never_more_than_was_sent() {
        let start = Instant::now();
        let mut ledger = playing(start);
        let heard = ledger.heard_at(at(start, 800), way(0, 0));
        assert_eq!(ledger.heard_at(at(start, 300), way(0, 0)), heard);
        assert!(ledger.heard_at(at(start, 60_000), way(0, 0)) <= ledger.sent());
        assert_eq!(ledger.sent(), 1000 * MS);
    }

    #[test]
    fn a_pause_is_no_time_in_which_anything_was_heard() {
        let start = Instant::now();
        let mut ledger = playing(start);
        ledger.report(at(start, 1040), 1040 * MS, true);
        ledger.report(at(start, 1540), 1040 * MS, false);
        ledger.report(at(start, 1600), 1100 * MS, false);
        assert_eq!(ledger.heard_at(at(start, 1400), way(0, 0)), 1020 * MS);
        assert_eq!(ledger.heard_at(at(start, 1590), way(0, 0)), 1070 * MS);
    }

    #[test]
    fn an_underrun_stands_first_and_plays_then() {
        let start = Instant::now();
        let mut ledger = playing(start);
        ledger.report(at(start, 1020), 1020 * MS, false);
        // 50 ms of nothing, then 30 ms played.
        ledger.report(at(start, 1100), 1050 * MS, false);
        assert_eq!(ledger.heard_at(at(start, 1060), way(0, 0)), 1000 * MS);
        assert_eq!(ledger.heard_at(at(start, 1090), way(0, 0)), 1020 * MS);
    }

    #[test]
    fn a_replay_counts_once() {
        let start = Instant::now();
        let mut ledger = playing(start);
        ledger.report(at(start, 1100), 800 * MS, false);
        assert_eq!(ledger.sent(), 1000 * MS);
        assert_eq!(ledger.played_end(), 1000 * MS);
    }

    #[test]
    fn the_silence_in_a_last_frame_is_not_the_items() {
        let start = Instant::now();
        let mut ledger = Ledger::default();
        ledger.generate(1200);
        ledger.begin(start);
        ledger.report(at(start, 40), 1920, true);
        assert_eq!(ledger.sent(), 1200);
    }

    fn received(to: u64, lost: u64) -> Received {
        Received { to: to * MS, lost: lost * MS }
    }

    #[test]
    fn single_losses_leave_the_end_where_it_is_and_an_outage_moves_it() {
        let start = Instant::now();
        let mut ledger = playing(start);
        ledger.report(at(start, 1100), 1100 * MS, false);
        ledger.receive(received(1000, 40));
        assert_eq!(ledger.played_end(), 1100 * MS);
        ledger.report(at(start, 1300), 1300 * MS, false);
        ledger.receive(received(1000, 200));
        assert_eq!(ledger.played_end(), 1000 * MS);
        // What is on its way goes the way of what was sent before it; a pause between two reports and the cut change nothing.
        ledger.report(at(start, 1350), 1340 * MS, true);
        ledger.report(at(start, 1380), 1340 * MS, true);
        ledger.receive(received(1000, 240));
        assert_eq!(ledger.played_end(), 1000 * MS);
        // Something arrived again.
        ledger.report(at(start, 1400), 1400 * MS, false);
        ledger.receive(received(1380, 0));
        assert_eq!(ledger.played_end(), 1400 * MS);
    }

    #[test]
    fn a_burst_in_the_middle_of_speech_moves_nothing_though_it_is_told_200_ms_late() {
        let start = Instant::now();
        let mut ledger = playing(start);
        // 600 to 700 ms were lost.
        for ms in (1000..=1400).step_by(100) {
            ledger.report(at(start, ms), ms * MS, false);
            let arrived = if (800..900).contains(&(ms - 200)) { 600 } else { ms - 200 };
            ledger.receive(received(arrived, 0));
            assert_eq!(ledger.played_end(), ms * MS);
        }
        ledger.report(at(start, 1450), 1440 * MS, true);
        assert_eq!(ledger.played_end(), 1440 * MS);
    }

    #[test]
    fn reports_that_overtook_one_another_and_lies_change_nothing() {
        let start = Instant::now();
        let mut ledger = playing(start);
        ledger.receive(received(900, 0));
        ledger.receive(received(500, 300));
        assert_eq!(ledger.played_end(), 1000 * MS);
        ledger.receive(Received { to: u64::MAX, lost: u64::MAX });
        assert_eq!(ledger.played_end(), 1000 * MS);
    }

    #[test]
    fn what_is_kept_is_bounded_and_reaches_back_four_seconds() {
        let start = Instant::now();
        let mut ledger = Ledger::default();
        ledger.generate(1_000_000 * MS);
        for ms in (100..=100_000).step_by(100) {
            ledger.report(at(start, ms), ms * MS, false);
        }
        assert_eq!(ledger.points.len(), MAX_POINTS);
        let expected = (100_000 - 1000 - 2000 - 20) * MS;
        assert_eq!(ledger.heard_at(at(start, 100_000), way(5000, 5000)), expected);
    }
}
