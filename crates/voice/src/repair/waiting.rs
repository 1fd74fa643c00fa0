//! How long a hole may cost: what is known of the network's order and of the client's answers to NACK.

use std::time::{Duration, Instant};

use super::RepairConfig;

/// Reordering is remembered for this long.
const REORDER_MEMORY: Duration = Duration::from_secs(10);

/// A packet that was asked for comes within a round trip or two; what comes later was on its way for another reason.
const SENT_AGAIN_MAX: Duration = Duration::from_secs(1);

/// Waits in vain, one after the other, after which nobody waits any more: a client that agreed on NACK and never sends again
/// would cost each hole the whole wait.
const VAIN_MAX: u8 = 4;

/// What was seen of late packets.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Waiting {
    /// Round trip to the client; zero until known.
    round_trip: Duration,
    last_reorder: Option<Instant>,
    /// From the sight of a hole to the packet that was missing, smoothed.
    repair_time: Option<Duration>,
    vain: u8,
}

impl Waiting {
    /// The round trip to the client, as it was measured last.
    pub(super) fn set_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = round_trip;
    }

    /// A packet came behind one with a higher number, `since` the hole that it left was seen.
    ///
    /// It was sent again if it can have been asked for: the round trip has passed, a quarter of it taken for measuring. Else it
    /// was overtaken, and waiting one ptime would have had it if it came within one.
    pub(super) fn came_late(&mut self, now: Instant, config: &RepairConfig, ptime: Duration, since: Option<Duration>) {
        self.vain = 0;
        let Some(since) = since else { return };
        let known = !self.round_trip.is_zero();
        let asked_for = config.nack && since >= self.round_trip * 3 / 4;
        if asked_for && since <= SENT_AGAIN_MAX {
            self.repair_time = Some(self.repair_time.map_or(since, |smoothed| (smoothed * 3 + since) / 4));
        }
        if since <= ptime && !(asked_for && known) {
            self.last_reorder = Some(now);
        }
    }

    /// A hole waited and was filled all the same.
    pub(super) fn was_in_vain(&mut self) {
        self.vain = self.vain.saturating_add(1);
    }

    /// For how long what is behind a hole waits for it; `None`: not at all.
    ///
    /// With NACK one and a half times what a packet sent again takes, as long as that is not more than `nack_wait_ms`; where it
    /// is, waiting would be in vain and late repair has to do. Without, one ptime once packets came out of order by no more.
    pub(super) fn time(&self, now: Instant, config: &RepairConfig, ptime: Duration) -> Option<Duration> {
        let longest = Duration::from_millis(config.nack_wait_ms.into());
        if config.nack && self.vain < VAIN_MAX {
            match self.repair_time {
                None => return Some(longest),
                Some(smoothed) if smoothed <= longest => return Some(longest.min(smoothed * 3 / 2)),
                Some(_) => {}
            }
        }
        let reorders = self.last_reorder.is_some_and(|last| now.saturating_duration_since(last) < REORDER_MEMORY);
        reorders.then_some(ptime)
    }
}
