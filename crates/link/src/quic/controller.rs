//! Congestion control for voice: none by window, all by admission, until a path is truly too small.
//!
//! Why: the load of a link is set by its seats, not by what the path takes, and a loss-based window answers random loss
//! by holding frames back until they are worthless. At 40 ms round trip and 1 % random loss, 100 sessions get 43 % of
//! their frames through cubic, after 1.4 s in the median, and 99 % through a window that never closes. On a true
//! bottleneck no controller saves the calls; taking no more of them and encoding lower does.
//!
//! So the window is constant, above what pacing applies to (`u32::MAX`), and the controller says how the path is:
//!
//! | verdict | when | until | what follows |
//! |---|---|---|---|
//! | repeat | more than 0.2 % of the bytes of ~10 s lost, and not congested | below 0.1 % | each frame goes twice |
//! | congested | > 5 % of the bytes of a second lost, 5 packets at least, or a round trip 80 ms above the least of the last 10 to 20 s; while closing, too | one good second | no call is admitted, the downlink is encoded lower |
//! | closing | 5 s of queueing or of 20 % loss; more than half lost of 16 KiB within 300 ms; or 400 ms of sending unanswered | the window bears the load again | a window that halves with loss or queueing and doubles without, each round trip |
//!
//! A second with less than [`LEAST_SAMPLE_PACKETS`] goes on until there are as many, for 10 s at most. While the window
//! closes, media goes only into a path that is empty: the last answer came without queueing, and there is room for a whole
//! packet of control beside it. What was under way when it closed is written off: control does not wait for it.
//!
//! The least round trip is forgotten ([`Least`]): a path that became longer looks like a queue, until nothing shorter was
//! seen for so long. A true queue of ours is gone before, because the window closes.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory};

use super::path::Path;

/// Above `u32::MAX`, at which quinn stops pacing.
const WINDOW_BYTES: u64 = 1 << 32;
const SAMPLE: Duration = Duration::from_secs(1);
/// A sample that does not fill is judged as it is.
const LONGEST_SAMPLE: Duration = Duration::from_secs(10);
/// 5 % of 100 packets is 5 losses, not one.
const LEAST_SAMPLE_PACKETS: u64 = 100;
const LOSS_PERCENT: u64 = 5;
/// Below, a share is chance: one packet of a quiet second, or of the few that streams fill to the brim.
const LEAST_LOST_PACKETS: u64 = 5;
const QUEUEING: Duration = Duration::from_millis(80);
/// Half of the time that a round trip counts as the path's least: more than [`PATIENCE`], so that a queue closes the window
/// before it passes for a longer path.
const LEAST_WINDOW: Duration = Duration::from_secs(10);

/// Loss for repetition is looked at this often, and forgotten by 1 % each time: over about 10 s.
const TICK: Duration = Duration::from_millis(100);
const REPEAT_PPM: u64 = 2_000;
const REPEAT_NO_MORE_PPM: u64 = 1_000;

/// Seconds after which the window closes that were congested by queueing, or by more loss than this: random loss alone
/// is borne, as less sending would not mend it.
const PATIENCE: u32 = 5;
const UNBEARABLE_PERCENT: u64 = 20;
/// Ticks in which a collapse shows by its losses.
const COLLAPSE_TICKS: usize = 3;
/// Ticks that are remembered: [`UNANSWERED`] and a round trip of 400 ms.
const TICKS: usize = 8;
const COLLAPSE_BYTES: u64 = 16 * 1024;
/// Unanswered sending, beyond the least round trip. A peer that did not run for as long looks the same.
const UNANSWERED: Duration = Duration::from_millis(400);

/// Below two packets nothing moves; 1 KiB for heartbeats beside them.
const WINDOW_SLACK_BYTES: u64 = 1024;

/// Keeps its window open as long as the path bears it; says how the path is.
#[derive(Debug, Clone)]
pub struct VoiceController {
    path: Arc<Path>,
    sample: Sample,
    last_number: u64,
    rtt: Duration,
    least: Least,
    /// By the last sample.
    congested: bool,
    bad_seconds: u32,
    /// Bytes sent and lost, fading.
    fading: (u64, u64),
    repeat: bool,
    tick_at: Instant,
    tick: Tick,
    recent: [Tick; TICKS],
    in_flight: u64,
    last_rtt: Duration,
    mtu: u64,
    closing: Option<Closing>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    start: Instant,
    sent: u64,
    lost: u64,
    packets: u64,
    /// At least as many.
    lost_packets: u64,
}

impl Sample {
    fn new(start: Instant) -> Self {
        Self { start, sent: 0, lost: 0, packets: 0, lost_packets: 0 }
    }

    fn lost_more_than(&self, percent: u64) -> bool {
        self.lost_packets >= LEAST_LOST_PACKETS && self.lost * 100 > self.sent * percent
    }
}

/// The shortest round trip of this window and of the one before.
#[derive(Debug, Clone, Copy)]
struct Least {
    window: Instant,
    best: [Option<Duration>; 2],
}

impl Least {
    fn new(now: Instant) -> Self {
        Self { window: now, best: [None; 2] }
    }

    fn see(&mut self, now: Instant, rtt: Duration) {
        let age = now.saturating_duration_since(self.window);
        if age >= LEAST_WINDOW {
            let former = if age >= 2 * LEAST_WINDOW { None } else { self.best[0] };
            (self.window, self.best) = (now, [None, former]);
        }
        self.best[0] = Some(self.best[0].map_or(rtt, |best| best.min(rtt)));
    }

    fn get(&self) -> Option<Duration> {
        self.best.into_iter().flatten().min()
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Tick {
    sent: u64,
    acked: u64,
    lost: u64,
}

#[derive(Debug, Clone, Copy)]
struct Closing {
    window: u64,
    /// The window that bears the load: then it is open.
    enough: u64,
    /// Losses and delays of what was sent before it are old news.
    reduced: Instant,
    since: Instant,
    /// Of what was under way when it closed, what is neither acknowledged nor lost.
    written_off: u64,
}

impl VoiceController {
    pub(super) fn new(now: Instant, mtu: u16, path: Arc<Path>) -> Self {
        Self {
            path,
            sample: Sample::new(now),
            last_number: 0,
            rtt: Duration::ZERO,
            least: Least::new(now),
            congested: false,
            bad_seconds: 0,
            fading: (0, 0),
            repeat: false,
            tick_at: now + TICK,
            tick: Tick::default(),
            recent: [Tick::default(); TICKS],
            in_flight: 0,
            last_rtt: Duration::ZERO,
            mtu: mtu.into(),
            closing: None,
        }
    }

    /// Judges what has come to an end by now.
    fn judge(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.sample.start);
        if elapsed >= LONGEST_SAMPLE || (elapsed >= SAMPLE && self.sample.packets >= LEAST_SAMPLE_PACKETS) {
            let queueing = self.rtt > self.least_rtt() + QUEUEING;
            self.congested = queueing || self.sample.lost_more_than(LOSS_PERCENT);
            let unbearable = queueing || self.sample.lost_more_than(UNBEARABLE_PERCENT);
            self.bad_seconds = if unbearable { self.bad_seconds + 1 } else { 0 };
            self.sample = Sample::new(now);
            if self.bad_seconds >= PATIENCE {
                self.close(now);
            }
            self.tell();
        }
        if now >= self.tick_at {
            self.tick_at = now + TICK;
            let Tick { sent, lost, .. } = self.tick;
            // What a congested path loses, repetition would not bring.
            let lost = if self.is_congested() { 0 } else { lost };
            self.fading = (self.fading.0 * 99 / 100 + sent, self.fading.1 * 99 / 100 + lost);
            self.recent.rotate_right(1);
            self.recent[0] = std::mem::take(&mut self.tick);
            let loss_ppm = self.fading.1 * 1_000_000 / self.fading.0.max(1);
            self.repeat = loss_ppm > if self.repeat { REPEAT_NO_MORE_PPM } else { REPEAT_PPM };
            self.path.set_loss_ppm(loss_ppm);
            self.tell();
        }
        if self.closing.is_none() && self.collapsed() {
            self.congested = true;
            self.sample = Sample::new(now);
            self.close(now);
            self.tell();
        }
        let room = self.closing.is_none_or(|closing| {
            let fresh = self.in_flight.saturating_sub(closing.written_off);
            !self.is_queueing() && fresh + 2 * self.mtu <= closing.window
        });
        self.path.set_room(room);
    }

    /// Most of what goes into the path does not come out, or not for long.
    fn collapsed(&self) -> bool {
        let ticks = self.recent[..COLLAPSE_TICKS].iter().chain([&self.tick]);
        let (lost, acked) = ticks.fold((0, 0), |(lost, acked), tick| (lost + tick.lost, acked + tick.acked));
        // More is under way than was sent of late: something older is.
        let patience = (self.least_rtt() + UNANSWERED).as_micros().div_ceil(TICK.as_micros());
        let patience = usize::try_from(patience).unwrap_or(TICKS).min(TICKS);
        let sent: u64 = self.recent[..patience].iter().chain([&self.tick]).map(|tick| tick.sent).sum();
        let unanswered = self.in_flight > sent;
        (lost >= COLLAPSE_BYTES && lost > acked) || (self.in_flight >= COLLAPSE_BYTES && unanswered)
    }

    /// What is sent in such a time, as things go.
    fn sent_within(&self, time: Duration) -> u64 {
        let sent: u64 = self.recent.iter().map(|tick| tick.sent).sum();
        let span = TICK.as_micros() * TICKS as u128;
        u64::try_from(u128::from(sent) * time.as_micros() / span).unwrap_or(u64::MAX)
    }

    fn least_rtt(&self) -> Duration {
        self.least.get().unwrap_or(self.last_rtt)
    }

    fn is_queueing(&self) -> bool {
        self.last_rtt > self.least_rtt() + QUEUEING
    }

    /// Less than it should takes a closing window as well, whatever the last sample says: it has no media in it.
    fn is_congested(&self) -> bool {
        self.congested || self.closing.is_some()
    }

    fn close(&mut self, now: Instant) {
        let closing = Closing {
            window: self.least_window(),
            enough: self.sent_within(self.least_rtt() + QUEUEING).max(COLLAPSE_BYTES),
            reduced: now,
            since: now,
            written_off: self.in_flight,
        };
        self.closing.get_or_insert(closing);
        self.fading.1 = 0;
    }

    /// A packet came. `smoothed` is the round trip over some of them.
    fn acked(&mut self, now: Instant, sent: Instant, bytes: u64, smoothed: Duration) {
        self.tick.acked += bytes;
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.rtt = smoothed;
        self.last_rtt = now.saturating_duration_since(sent);
        self.least.see(now, self.last_rtt);
        let queueing = self.is_queueing();
        if let Some(closing) = &mut self.closing {
            if sent <= closing.since {
                closing.written_off = closing.written_off.saturating_sub(bytes);
            } else if queueing {
                self.reduce(now, sent);
            } else {
                // Media keeps off a full window, so nothing here is ever limited by it: what came back is what tells.
                closing.window += bytes;
                if closing.window >= closing.enough {
                    self.closing = None;
                    self.bad_seconds = 0;
                    self.tell();
                }
            }
        }
        self.judge(now);
    }

    /// Halves the window, once per round trip.
    fn reduce(&mut self, now: Instant, sent: Instant) {
        let least = self.least_window();
        if let Some(closing) = &mut self.closing
            && sent > closing.reduced
        {
            closing.window = (closing.window / 2).max(least);
            closing.reduced = now;
        }
    }

    fn least_window(&self) -> u64 {
        2 * self.mtu + WINDOW_SLACK_BYTES
    }

    fn tell(&self) {
        let (repeat, congested, closing) = (self.repeat, self.is_congested(), self.closing.is_some());
        self.path.change(|state| {
            state.repeat = repeat && !congested;
            state.congested = congested;
            state.closing = closing;
        });
    }
}

impl Controller for VoiceController {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        // Several at once with segmentation; each of the handshake's spaces counts from 0.
        self.sample.packets += last_packet_number.saturating_sub(self.last_number).max(1);
        self.last_number = last_packet_number;
        self.sample.sent += bytes;
        self.tick.sent += bytes;
        self.in_flight += bytes;
        self.judge(now);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, _app_limited: bool, rtt: &RttEstimator) {
        self.acked(now, sent, bytes, rtt.get());
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, _app_limited: bool, _largest: Option<u64>) {
        // Exact, where the sum of what was sent has acknowledgements in it that nobody acknowledges.
        self.in_flight = in_flight;
        self.judge(now);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, _is_persistent: bool, lost_bytes: u64) {
        self.sample.lost += lost_bytes;
        // quinn tells bytes alone, and none where a mark stands for loss.
        self.sample.lost_packets += lost_bytes.div_ceil(self.mtu.max(1));
        self.tick.lost += lost_bytes;
        self.in_flight = self.in_flight.saturating_sub(lost_bytes);
        if let Some(closing) = &mut self.closing {
            closing.written_off = closing.written_off.saturating_sub(lost_bytes);
        }
        self.reduce(now, sent);
        self.judge(now);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu.into();
        let least = self.least_window();
        if let Some(closing) = &mut self.closing {
            closing.window = closing.window.max(least);
        }
    }

    fn window(&self) -> u64 {
        self.closing.map_or(WINDOW_BYTES, |closing| closing.window + closing.written_off)
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

/// Makes the [`VoiceController`] of one link.
#[derive(Debug, Clone)]
pub(super) struct VoiceControllerFactory(pub(super) Arc<Path>);

impl ControllerFactory for VoiceControllerFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(VoiceController::new(now, current_mtu, Arc::clone(&self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::path::PathState;
    use super::*;

    const RTT: Duration = Duration::from_millis(40);

    struct Driven {
        controller: VoiceController,
        path: Arc<Path>,
        now: Instant,
    }

    impl Driven {
        fn new() -> Self {
            let (now, path) = (Instant::now(), Arc::new(Path::new()));
            Self { controller: VoiceController::new(now, 1200, Arc::clone(&path)), path, now }
        }

        /// A second of 1000 packets of 100 bytes, of which so many are lost: evenly, and acknowledged otherwise.
        fn second(&mut self, lost_per_mille: u64, rtt: Duration) -> PathState {
            for packet in 0..1000 {
                self.packet(Duration::from_millis(1), 100, (packet * lost_per_mille) % 1000 < lost_per_mille, rtt);
            }
            self.controller.judge(self.now);
            self.path.state()
        }

        /// One packet after such a time, and at once what became of it.
        fn packet(&mut self, after: Duration, bytes: u64, lost: bool, rtt: Duration) {
            self.now += after;
            self.controller.on_sent(self.now, bytes, 0);
            if lost {
                self.controller.on_congestion_event(self.now, self.now, false, bytes);
            } else {
                self.controller.acked(self.now, self.now - rtt, bytes, rtt);
            }
        }
    }

    #[test]
    fn one_percent_of_loss_is_repetition_and_an_open_window() {
        let mut driven = Driven::new();
        assert_eq!(driven.second(0, RTT), PathState::default());
        for _ in 0..20 {
            assert_eq!(driven.second(10, RTT), PathState { repeat: true, ..PathState::default() });
        }
        assert!(driven.controller.window() > u64::from(u32::MAX));
        assert!(driven.controller.initial_window() > u64::from(u32::MAX));
        assert!((8_000..12_000).contains(&driven.path.loss_ppm()), "{}", driven.path.loss_ppm());
    }

    #[test]
    fn repetition_ends_when_the_loss_has_been_gone_for_a_while() {
        let mut driven = Driven::new();
        (0..10).for_each(|_| assert!(!driven.second(10, RTT).congested));
        assert!(driven.second(0, RTT).repeat);
        (0..30).for_each(|_| assert!(!driven.second(0, RTT).congested));
        assert!(!driven.path.state().repeat);
    }

    #[test]
    fn loss_above_5_percent_in_a_second_is_congestion_without_repetition_until_a_good_second() {
        let mut driven = Driven::new();
        assert!(!driven.second(50, RTT).congested);
        let congested = PathState { congested: true, ..PathState::default() };
        assert_eq!(driven.second(60, RTT), congested);
        assert!(!driven.second(0, RTT).congested);
    }

    #[test]
    fn a_round_trip_80_ms_above_the_least_is_congestion() {
        let mut driven = Driven::new();
        assert!(!driven.second(0, RTT).congested);
        assert!(!driven.second(0, RTT + QUEUEING).congested);
        assert!(driven.second(0, RTT + QUEUEING + Duration::from_millis(1)).congested);
    }

    #[test]
    fn the_window_closes_after_five_seconds_of_queueing_and_not_for_random_loss() {
        let mut driven = Driven::new();
        for _ in 0..20 {
            assert!(!driven.second(100, RTT).closing);
        }
        for _ in 0..4 {
            assert!(!driven.second(0, 4 * RTT).closing);
        }
        assert!(driven.second(0, 4 * RTT).closing);
        assert!(driven.controller.window() < 100_000);
    }

    #[test]
    fn a_path_that_became_100_ms_longer_is_congested_for_20_s_at_most_and_healthy_then() {
        let mut driven = Driven::new();
        for _ in 0..15 {
            assert!(!driven.second(0, RTT).is_congested());
        }
        let longer = RTT + Duration::from_millis(100);
        assert!((0..2).any(|_| driven.second(0, longer).congested), "it looks like a queue");
        let mut seconds = 2;
        while driven.second(0, longer).is_congested() {
            seconds += 1;
            assert!(seconds <= 20, "for good");
        }
        assert!(seconds >= 10, "{seconds} s: a queue of {PATIENCE} s would pass as well");
        for _ in 0..60 {
            assert_eq!(driven.second(0, longer), PathState::default());
        }
        assert!(driven.controller.window() > u64::from(u32::MAX), "the window is open again");
    }

    #[test]
    fn a_closing_link_is_congested_until_its_window_is_open() {
        let mut driven = Driven::new();
        driven.second(0, RTT);
        while !driven.path.is_closing() {
            driven.second(0, 4 * RTT);
        }
        // Good seconds that bring nothing back: the window stays.
        for _ in 0..10 {
            driven.now += SAMPLE;
            driven.controller.rtt = RTT;
            (0..LEAST_SAMPLE_PACKETS).for_each(|_| driven.controller.on_sent(driven.now, 0, 0));
            let state = driven.path.state();
            assert!(!driven.controller.congested && state.closing);
            assert!(state.congested, "the heartbeat's flag");
            assert!(state.is_congested() && !state.repeat);
        }
        while driven.path.is_closing() {
            driven.second(0, RTT);
        }
        assert!(!driven.path.state().is_congested());
    }

    #[test]
    fn one_percent_of_large_packets_is_no_congestion_however_few_they_are() {
        // 15 and 60 full packets per second, ten minutes.
        for per_second in [15, 60] {
            let mut driven = Driven::new();
            for packet in 1..per_second * 600 {
                driven.packet(SAMPLE / per_second, 1200, packet % 100 == 0, RTT);
                assert!(!driven.path.state().congested, "{per_second} per second, packet {packet}");
            }
            // And 10 % of them is.
            for packet in 1..per_second * 20 {
                driven.packet(SAMPLE / per_second, 1200, packet % 10 == 0, RTT);
            }
            assert!(driven.path.state().congested, "{per_second} per second");
        }
    }

    #[test]
    fn four_lost_packets_are_chance_whatever_their_share() {
        let mut driven = Driven::new();
        for lost in [4, 5] {
            // 40 in 10 s: the sample does not fill.
            for packet in 0..40 {
                driven.packet(LONGEST_SAMPLE / 40, 1200, packet < lost, RTT);
            }
            assert_eq!(driven.path.state().congested, lost == 5, "{lost} of 40");
        }
    }

    #[test]
    fn packets_of_one_segmented_send_count_one_by_one() {
        let mut driven = Driven::new();
        driven.controller.on_sent(driven.now, 9 * 1200, 9);
        driven.controller.on_sent(driven.now, 10 * 1200, 19);
        assert_eq!(driven.controller.sample.packets, 19);
    }

    #[test]
    fn a_path_that_swallows_most_of_it_closes_the_window_at_once() {
        let mut driven = Driven::new();
        driven.second(0, RTT);
        let begin = driven.now;
        while !driven.path.is_closing() {
            driven.now += Duration::from_millis(1);
            driven.controller.on_sent(driven.now, 1000, 0);
            driven.controller.on_congestion_event(driven.now, driven.now, false, 900);
        }
        assert!(driven.now - begin < Duration::from_millis(50), "{:?}", driven.now - begin);
        assert!(driven.path.state().is_congested());
    }

    #[test]
    fn a_path_that_answers_nothing_closes_the_window_within_half_a_second() {
        let mut driven = Driven::new();
        driven.second(0, RTT);
        let begin = driven.now;
        while !driven.path.is_closing() {
            driven.now += Duration::from_millis(1);
            driven.controller.on_sent(driven.now, 100, 0);
        }
        assert!(driven.now - begin <= RTT + UNANSWERED + 2 * TICK, "{:?}", driven.now - begin);
        assert!(driven.controller.window() > driven.controller.in_flight, "control goes on");
    }

    #[test]
    fn a_quiet_second_changes_no_verdict_and_ten_of_them_do() {
        let mut driven = Driven::new();
        assert!(driven.second(100, RTT).congested);
        for _ in 1..LEAST_SAMPLE_PACKETS {
            driven.controller.on_sent(driven.now, 1200, 0);
            driven.controller.acked(driven.now, driven.now - RTT, 1200, RTT);
        }
        driven.controller.judge(driven.now + SAMPLE);
        assert!(driven.path.state().congested);
        driven.controller.judge(driven.now + LONGEST_SAMPLE);
        assert!(!driven.path.state().congested);
    }
}
