//! The pulse of a link: heartbeats both ways, the other end's clock, and when to give a silent peer up. Pure.
//!
//! Death. Each end beats each [`BEAT`] and hears the other's; a peer of which no packet came for [`SILENCE`] is gone.
//! 10 beats fit into that, so on a path that loses 10 % of all packets the chance of a false alarm is 10^-10 per beat, once
//! in 30 years; and every packet of media counts as well. QUIC's idle timeout is twice as long and stays as a
//! backstop, and alone counts until the peer's handshake is over too: before, it cannot beat, and on a path of 20 kbit/s the
//! end of it takes seconds. A process that was itself kept from running hears nothing either: after a late beat of its own
//! it begins to listen anew.
//!
//! Clocks. A heartbeat echoes the last one of the other end: `rtt = now - echo - held`, and the other end's clock was
//! `clock32` about half of that ago. Queueing only ever lengthens a round trip, so of the samples of the last
//! [`OFFSET_WINDOW`] the one of the shortest counts; clocks that drift by 100 ppm are 2 ms apart after two of them.

use std::time::{Duration, Instant};

use quinn_proto::{ConnectionStats, Side};

use crate::datagram::{Echo, Heartbeat};

/// Between two heartbeats.
pub const BEAT: Duration = Duration::from_millis(100);

/// Silence after which a peer is gone: 10 beats.
pub const SILENCE: Duration = Duration::from_secs(1);

/// A beat this late says that this process did not run.
const LATE: Duration = Duration::from_millis(300);

/// Half of the time that a sample of the clocks counts.
const OFFSET_WINDOW: Duration = Duration::from_secs(10);

/// One sample of the other end's clock.
#[derive(Debug, Clone, Copy)]
struct Sample {
    rtt_us: u32,
    /// The other end's clock less ours, modulo 2^32.
    offset: u32,
}

/// One end's view. Clocks are [`crate::datagram`]'s: microseconds, modulo 2^32.
#[derive(Debug)]
pub(super) struct Pulse {
    last_beat: Instant,
    last_heard: Instant,
    /// Signs of life that had come when last looked at.
    heard: Option<u64>,
    newest: Option<(u32, Instant)>,
    peer_congested: bool,
    window: Instant,
    /// The best sample of this window and of the one before.
    best: [Option<Sample>; 2],
}

/// The peer's signs of life since the begin: frames of which each of its packets has one. `None`: its handshake is not known to be
/// over (RFC 9001 §4.1.2: the server says so), so that it cannot beat yet.
pub(super) fn heard(side: Side, stats: &ConnectionStats) -> Option<u64> {
    let frames = &stats.frame_rx;
    if side.is_client() && frames.handshake_done == 0 {
        return None;
    }
    Some(frames.acks + frames.crypto + frames.datagram + frames.ping + frames.stream)
}

impl Pulse {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            last_beat: now,
            last_heard: now,
            heard: None,
            newest: None,
            peer_congested: false,
            window: now,
            best: [None; 2],
        }
    }

    /// The next heartbeat, or `None`: the peer is gone. `heard` is [`heard`] by now.
    pub(super) fn beat(
        &mut self,
        now: Instant,
        clock32: u32,
        heard: Option<u64>,
        congested: bool,
    ) -> Option<Heartbeat> {
        let stalled = now.saturating_duration_since(self.last_beat) > LATE;
        self.last_beat = now;
        if heard.is_none() || heard != self.heard || stalled {
            self.heard = heard;
            self.last_heard = now;
        }
        if now.saturating_duration_since(self.last_heard) >= SILENCE {
            return None;
        }
        let echo =
            self.newest.map(|(clock32, at)| Echo { clock32, held_us: micros(now.saturating_duration_since(at)) });
        Some(Heartbeat { clock32, congested, echo })
    }

    /// A heartbeat of the peer's, at `now`, which is `clock32` here.
    pub(super) fn handle(&mut self, now: Instant, clock32: u32, beat: &Heartbeat) {
        self.newest = Some((beat.clock32, now));
        self.peer_congested = beat.congested;
        let Some(echo) = beat.echo else { return };
        let rtt_us = clock32.wrapping_sub(echo.clock32).wrapping_sub(echo.held_us);
        // An echo of a former life of this process, or of a clock that does not run evenly.
        if rtt_us > micros(SILENCE) {
            return;
        }
        if now.saturating_duration_since(self.window) >= OFFSET_WINDOW {
            self.window = now;
            self.best = [None, self.best[0]];
        }
        let offset = beat.clock32.wrapping_add(rtt_us / 2).wrapping_sub(clock32);
        if self.best[0].is_none_or(|best| rtt_us < best.rtt_us) {
            self.best[0] = Some(Sample { rtt_us, offset });
        }
    }

    /// Microseconds that a datagram was on its way: sent at `sent` on the peer's clock, here at `clock32` on ours. `None`
    /// before the first echo.
    pub(super) fn transit_us(&self, clock32: u32, sent: u32) -> Option<u32> {
        let best = self.best.iter().flatten().min_by_key(|best| best.rtt_us)?;
        let transit = clock32.wrapping_add(best.offset).wrapping_sub(sent);
        // Just below zero when the path back is the longer one.
        Some(if transit > u32::MAX / 2 { 0 } else { transit })
    }

    /// The peer says that its direction is congested.
    pub(super) fn peer_congested(&self) -> bool {
        self.peer_congested
    }
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Two ends whose clocks differ, and a path between them.
    struct Pair {
        start: Instant,
        now: Instant,
        ends: [Pulse; 2],
        offset: [u32; 2],
    }

    impl Pair {
        fn new() -> Self {
            let now = Instant::now();
            Self { start: now, now, ends: [Pulse::new(now), Pulse::new(now)], offset: [5, u32::MAX - 1_000_000] }
        }

        fn clock(&self, end: usize) -> u32 {
            micros(self.now - self.start).wrapping_add(self.offset[end])
        }

        /// A beat of `end` that takes `delay` to the other one.
        fn beat(&mut self, end: usize, delay: Duration) {
            let clock = self.clock(end);
            let beat = self.ends[end].beat(self.now, clock, Some(0), false).expect("nobody died");
            self.now += delay;
            let other = 1 - end;
            let clock = self.clock(other);
            self.ends[other].handle(self.now, clock, &beat);
        }
    }

    #[test]
    fn clocks_are_compared_by_the_shortest_round_trip() {
        let mut pair = Pair::new();
        for queueing in [30, 0, 0, 80] {
            pair.beat(0, 20 * MS + queueing * MS);
            pair.beat(1, 20 * MS + queueing * MS / 2);
            pair.now += 10 * MS;
        }
        let sent = pair.clock(0);
        pair.now += 33 * MS;
        let transit = pair.ends[1].transit_us(pair.clock(1), sent).unwrap();
        assert!(transit.abs_diff(33_000) <= 1, "{transit}");
    }

    #[test]
    fn before_the_first_echo_nothing_is_known() {
        let mut pair = Pair::new();
        pair.beat(0, MS);
        assert_eq!(pair.ends[1].transit_us(0, 0), None);
    }

    #[test]
    fn a_peer_is_gone_after_a_second_of_silence_and_no_sooner() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start);
        for beat in 1..10 {
            assert!(pulse.beat(start + beat * BEAT, 0, Some(7), false).is_some(), "beat {beat}");
        }
        assert!(pulse.beat(start + 10 * BEAT, 0, Some(7), false).is_some(), "heard with the first beat");
        assert_eq!(pulse.beat(start + 11 * BEAT, 0, Some(7), false), None);
    }

    #[test]
    fn a_peer_whose_handshake_is_not_over_is_not_silent() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start);
        for beat in 1..30 {
            assert!(pulse.beat(start + beat * BEAT, 0, None, false).is_some(), "beat {beat}");
        }
        for beat in 30..40 {
            assert!(pulse.beat(start + beat * BEAT, 0, Some(7), false).is_some(), "beat {beat}");
        }
        assert_eq!(pulse.beat(start + 40 * BEAT, 0, Some(7), false), None);
    }

    #[test]
    fn any_packet_is_a_sign_of_life() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start);
        for beat in 1..100 {
            assert!(pulse.beat(start + beat * BEAT, 0, Some(u64::from(beat / 9)), false).is_some(), "beat {beat}");
        }
    }

    #[test]
    fn a_process_that_did_not_run_listens_anew() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start);
        let woken = start + Duration::from_secs(60);
        assert!(pulse.beat(woken, 0, Some(0), false).is_some());
        assert!(pulse.beat(woken + 9 * BEAT, 0, Some(0), false).is_some());
    }

    #[test]
    fn congestion_is_told_in_both_directions() {
        let now = Instant::now();
        let (mut one, mut other) = (Pulse::new(now), Pulse::new(now));
        other.handle(now, 0, &one.beat(now, 0, Some(0), true).unwrap());
        assert!(other.peer_congested());
        other.handle(now, 0, &one.beat(now, 0, Some(0), false).unwrap());
        assert!(!other.peer_congested());
    }
}
