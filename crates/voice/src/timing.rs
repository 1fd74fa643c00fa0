//! Where the time goes between the end of the user's speech and the agent's.

use std::time::Instant;

use crate::backend::ResponseId;
use crate::types::TurnTiming;

/// When a frame came, and when it was released and judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heard {
    pub(crate) arrived: Instant,
    pub(crate) released: Instant,
    pub(crate) age_us: u32,
    pub(crate) decided: Instant,
}

/// The timing of an answer that the edge does not play yet.
#[derive(Debug)]
pub(crate) struct PendingTiming {
    pub(crate) response: ResponseId,
    pub(crate) heard: Heard,
    pub(crate) first_audio: Option<Instant>,
    pub(crate) first_frame: Option<Instant>,
}

impl PendingTiming {
    /// The edge plays it: the parts, which sum to the whole.
    pub(crate) fn complete(self, started: Instant) -> TurnTiming {
        let Heard { arrived, released, age_us, decided } = self.heard;
        let first_audio = self.first_audio.unwrap_or(started);
        let first_frame = self.first_frame.unwrap_or(started);
        let between = |from: Instant, to: Instant| {
            u64::try_from(to.saturating_duration_since(from).as_micros()).unwrap_or(u64::MAX)
        };
        let mut timing = TurnTiming {
            uplink_us: u64::from(age_us),
            repair_us: between(arrived, released),
            silence_us: between(released, decided),
            backend_us: between(decided, first_audio),
            encode_us: between(first_audio, first_frame),
            playout_us: between(first_frame, started),
            total_us: 0,
        };
        timing.total_us = timing.uplink_us
            + timing.repair_us
            + timing.silence_us
            + timing.backend_us
            + timing.encode_us
            + timing.playout_us;
        timing
    }
}
