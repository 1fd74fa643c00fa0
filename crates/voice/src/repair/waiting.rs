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
    last_reorder: Option<Instant>,
    /// From the sight of a hole to the packet that was missing, smoothed.
    repair_time: Option<Duration>,
    vain: u8,
}

impl Waiting {
    /// A packet came behind one with a higher number, `since` the hole that it left was seen.
    pub(super) fn came_late(&mut self, now: Instant, since: Option<Duration>) {
        self.last_reorder = Some(now);
        self.vain = 0;
        if let Some(since) = since.filter(|since| *since <= SENT_AGAIN_MAX) {
            self.repair_time = Some(self.repair_time.map_or(since, |smoothed| (smoothed * 3 + since) / 4));
        }
    }

    /// A hole waited and was filled all the same.
    pub(super) fn was_in_vain(&mut self) {
        self.vain = self.vain.saturating_add(1);
    }

    /// For how long what is behind a hole waits for it; `None`: not at all.
    ///
    /// With NACK one and a half times what a packet sent again takes, as long as that is not more than `nack_wait_ms`; where it
    /// is, waiting would be in vain and late repair has to do. Without, one ptime once packets came out of order.
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
