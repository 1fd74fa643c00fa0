//! Congestion control for voice: none by window, all by admission.
//!
//! Why: the load of a link is set by its seats, not by what the path takes, and a loss-based window answers random loss
//! by holding frames back until they are worthless. At 40 ms round trip and 1 % random loss, 100 sessions get 43 % of
//! their frames through cubic, after 1.4 s in the median, and 99 % through a window that never closes. On a true
//! bottleneck no controller saves the calls; taking no more of them and encoding lower does.
//!
//! So the window is constant, above what pacing applies to (`u32::MAX`), and the controller only says when the path is
//! [congested](VoiceController::is_congested): more than 5 % of the bytes of a second lost, or a smoothed round trip
//! 80 ms above the least. It needs a second with at least [`LEAST_SAMPLE_BYTES`] to judge, keeps its verdict through quieter
//! ones, and takes it back after one good second. Falling back to a closing window is not implemented.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory};

/// Above `u32::MAX`, at which quinn stops pacing.
const WINDOW_BYTES: u64 = 1 << 32;
const SAMPLE: Duration = Duration::from_secs(1);
/// 5 % of 100 packets is 5 losses, not one.
const LEAST_SAMPLE_BYTES: u64 = 100 * 150;
const LOSS_PERCENT: u64 = 5;
const QUEUEING: Duration = Duration::from_millis(80);

/// Never closes its window; says whether the path is congested.
#[derive(Debug, Clone)]
pub struct VoiceController {
    sample_start: Instant,
    sent_bytes: u64,
    lost_bytes: u64,
    congested: bool,
}

impl VoiceController {
    /// A controller that has seen nothing.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { sample_start: now, sent_bytes: 0, lost_bytes: 0, congested: false }
    }

    /// Whether to admit no one: the path loses or queues more than voice bears.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.congested
    }

    /// Judges the second that ended, if one did.
    fn judge(&mut self, now: Instant, rtt: Duration, least_rtt: Duration) {
        if now.saturating_duration_since(self.sample_start) < SAMPLE {
            return;
        }
        if self.sent_bytes >= LEAST_SAMPLE_BYTES {
            let lossy = self.lost_bytes * 100 > self.sent_bytes * LOSS_PERCENT;
            self.congested = lossy || rtt > least_rtt + QUEUEING;
        }
        self.sample_start = now;
        self.sent_bytes = 0;
        self.lost_bytes = 0;
    }
}

impl Controller for VoiceController {
    fn on_sent(&mut self, _now: Instant, bytes: u64, _last_packet_number: u64) {
        self.sent_bytes += bytes;
    }

    fn on_ack(&mut self, now: Instant, _sent: Instant, _bytes: u64, _app_limited: bool, rtt: &RttEstimator) {
        self.judge(now, rtt.get(), rtt.min());
    }

    fn on_congestion_event(&mut self, _now: Instant, _sent: Instant, _is_persistent: bool, lost_bytes: u64) {
        self.lost_bytes += lost_bytes;
    }

    fn on_mtu_update(&mut self, _new_mtu: u16) {}

    fn window(&self) -> u64 {
        WINDOW_BYTES
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        WINDOW_BYTES
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Makes a [`VoiceController`] for each path.
#[derive(Debug, Clone, Copy, Default)]
pub struct VoiceControllerFactory;

impl ControllerFactory for VoiceControllerFactory {
    fn build(self: Arc<Self>, now: Instant, _current_mtu: u16) -> Box<dyn Controller> {
        Box::new(VoiceController::new(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(40);

    fn second(controller: &mut VoiceController, at: &mut Instant, lost: u64, rtt: Duration) -> bool {
        controller.on_sent(*at, 100_000, 0);
        controller.on_congestion_event(*at, *at, true, lost);
        *at += SAMPLE;
        controller.judge(*at, rtt, RTT);
        controller.is_congested()
    }

    #[test]
    fn the_window_never_closes() {
        let mut controller = VoiceController::new(Instant::now());
        let mut now = Instant::now();
        second(&mut controller, &mut now, 100_000, RTT);
        assert!(controller.window() > u64::from(u32::MAX));
        assert!(controller.initial_window() > u64::from(u32::MAX));
    }

    #[test]
    fn loss_above_5_percent_in_a_second_is_congestion_until_a_good_second() {
        let mut now = Instant::now();
        let mut controller = VoiceController::new(now);
        assert!(!second(&mut controller, &mut now, 5_000, RTT));
        assert!(second(&mut controller, &mut now, 5_001, RTT));
        assert!(!second(&mut controller, &mut now, 0, RTT));
    }

    #[test]
    fn a_round_trip_80_ms_above_the_least_is_congestion() {
        let mut now = Instant::now();
        let mut controller = VoiceController::new(now);
        assert!(!second(&mut controller, &mut now, 0, RTT + QUEUEING));
        assert!(second(&mut controller, &mut now, 0, RTT + QUEUEING + Duration::from_millis(1)));
    }

    #[test]
    fn a_quiet_second_changes_no_verdict() {
        let mut now = Instant::now();
        let mut controller = VoiceController::new(now);
        assert!(second(&mut controller, &mut now, 50_000, RTT));
        controller.on_sent(now, LEAST_SAMPLE_BYTES - 1, 0);
        now += SAMPLE;
        controller.judge(now, RTT, RTT);
        assert!(controller.is_congested());
    }
}
