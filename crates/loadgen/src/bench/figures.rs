//! From what flows saw to what a reader wants to know.

use serde::Serialize;

use super::driver::Window;

/// A frame that is this much later than its flow's quickest counts as late.
const LATE_NANOS: u32 = 10_000_000;

/// A median round trip above this is a queue; playout of the whole path has some 60 ms by design.
const STANDING_US: f64 = 150_000.0;

/// A generator that is later than this at the 99th percentile measures itself.
const GENERATOR_LAG_US: f64 = 5_000.0;

/// Percentiles, in microseconds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
pub struct Percentiles {
    /// Median.
    pub p50: f64,
    /// 95 of 100 are at most this.
    pub p95: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1000.
    pub p999: f64,
    /// The worst.
    pub max: f64,
}

impl Percentiles {
    /// Of nanoseconds in any order; zeroes when there are none.
    #[must_use]
    pub fn of(mut nanos: Vec<u32>) -> Self {
        nanos.sort_unstable();
        let at = |share: f64| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
            let rank = (share * nanos.len() as f64).ceil() as usize;
            nanos.get(rank.saturating_sub(1)).map_or(0.0, |nanos| f64::from(*nanos) / 1000.0)
        };
        Self { p50: at(0.5), p95: at(0.95), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }
}

/// One measured window in figures.
#[derive(Debug, Default, Clone, Serialize)]
pub struct Traffic {
    /// Flows that were up.
    pub flows: usize,
    /// Frames sent in the window.
    pub sent: u64,
    /// Those of them that came back.
    pub received: u64,
    /// Share that did not.
    pub loss: f64,
    /// Share that came back more than 10 ms later than the quickest frame of its flow.
    pub late: f64,
    /// Round trips.
    pub rtt_us: Percentiles,
    /// By how much round trips exceed the quickest of their flow.
    pub lateness_us: Percentiles,
    /// By how much the generator itself sent frames after they were due.
    pub generator_lag_us: Percentiles,
    /// Datagrams that the generator could not send.
    pub generator_unsent: u64,
    /// Calls that ended in the window without being asked to.
    pub lost_calls: u64,
}

impl Traffic {
    pub(crate) fn of(window: &Window) -> Self {
        let sent: u64 = window.flows.iter().map(|(_, flow)| flow.sent).sum();
        let received: u64 = window.flows.iter().map(|(_, flow)| flow.received).sum();
        let mut lateness = Vec::new();
        for (_, flow) in &window.flows {
            let quickest = flow.round_trips.iter().min().copied().unwrap_or_default();
            lateness.extend(flow.round_trips.iter().map(|nanos| nanos - quickest));
        }
        let late = lateness.iter().filter(|nanos| **nanos > LATE_NANOS).count() as u64;
        Self {
            flows: window.flows.len(),
            sent,
            received,
            loss: share(sent - received, sent),
            late: share(late, sent),
            rtt_us: Percentiles::of(
                window.flows.iter().flat_map(|(_, flow)| flow.round_trips.iter().copied()).collect(),
            ),
            lateness_us: Percentiles::of(lateness),
            generator_lag_us: Percentiles::of(window.lags.clone()),
            generator_unsent: window.unsent,
            lost_calls: window.lost_calls,
        }
    }

    /// Whether people would notice nothing: 99 of 100 frames less than 10 ms late, less than one in a thousand lost, and no
    /// queue that all of them stand in.
    #[must_use]
    pub fn frame_stable(&self) -> bool {
        self.lateness_us.p99 < 10_000.0 && self.loss < 0.001 && self.lost_calls == 0 && self.rtt_us.p50 < STANDING_US
    }

    /// Whether the generator was so late itself that round trips say more about it than about the server.
    #[must_use]
    pub fn generator_limited(&self) -> bool {
        self.generator_lag_us.p99 > GENERATOR_LAG_US
    }
}

/// `part` of `whole`; 0 of nothing.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::pulse::Seen;

    #[test]
    fn percentiles_are_ranks_of_what_was_measured() {
        let of_a_thousand = Percentiles::of((1..=1000).rev().map(|us| us * 1000).collect());
        assert_eq!(of_a_thousand, Percentiles { p50: 500.0, p95: 950.0, p99: 990.0, p999: 999.0, max: 1000.0 });
        assert_eq!(Percentiles::of(Vec::new()), Percentiles::default());
    }

    #[test]
    fn lateness_is_against_the_quickest_of_the_same_flow() {
        let flow = |round_trips: Vec<u32>| (0, Seen { sent: 3, received: 2, duplicates: 0, round_trips });
        let flows = vec![flow(vec![1_000, 2_000]), flow(vec![30_000_000, 45_000_000])];
        let traffic = Traffic::of(&Window { flows, ..Window::default() });
        assert_eq!((traffic.sent, traffic.received), (6, 4));
        assert!((traffic.loss - 1.0 / 3.0).abs() < 1e-9);
        assert!((traffic.late - 1.0 / 6.0).abs() < 1e-9);
        assert_eq!(traffic.lateness_us.max, 15_000.0);
        assert!(!traffic.frame_stable());
    }
}
