//! How the reply is encoded as the ways to the user are: bitrate, in-band copies and DTX.
//!
//! **Why.** In-band copies mend most single losses and cost bits even when nothing is lost; so they are made for as much loss as
//! there is. Losing a fifth and more is a queue that overflows: fewer bits help then, as they do on a congested link, where silence
//! is not sent either.
//!
//! **When.** Loss is what the client told last, as reports of the edge say it again and again. A step up takes two words of the
//! client in a row (about 200 ms where it tells packet by packet, two receiver reports else), since one may be a burst; a step down
//! takes [`CALM`] of less than two thirds of what the step began at. So a loss that wavers about a threshold changes nothing.

use std::time::{Duration, Instant};

/// What the encoder is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Coding {
    /// Bits per second.
    pub(crate) bitrate: i32,
    /// For which the in-band copies are made.
    pub(crate) loss_percent: i32,
    pub(crate) dtx: bool,
}

struct Step {
    /// Of 256.
    from: u8,
    loss_percent: i32,
    /// Of the configured bitrate, in percent.
    bitrate: i32,
}

/// From 0, 2, 5, 10 and 20 % of loss on.
const STEPS: [Step; 5] = [
    Step { from: 0, loss_percent: 0, bitrate: 100 },
    Step { from: 5, loss_percent: 5, bitrate: 100 },
    Step { from: 13, loss_percent: 10, bitrate: 100 },
    Step { from: 26, loss_percent: 20, bitrate: 100 },
    Step { from: 51, loss_percent: 30, bitrate: 75 },
];

/// Before a step down.
const CALM: Duration = Duration::from_secs(5);

/// On a congested link speech has half the bits, and no less than is understood well.
const CONGESTED: i32 = 12_000;

/// The machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Adapt {
    /// As configured.
    bitrate: i32,
    step: usize,
    /// What the client told, by its number, wanted a step up.
    rising: Option<u8>,
    /// Since when the loss is small enough for a step down.
    calm: Option<Instant>,
    congested: bool,
}

impl Adapt {
    pub(crate) fn new(bitrate: i32) -> Self {
        Self { bitrate, step: 0, rising: None, calm: None, congested: false }
    }

    /// A report: the part of what goes to the client that is lost, in 1/256, and the number under which the client told it.
    pub(crate) fn loss(&mut self, now: Instant, loss: u8, told: u8) {
        let wanted = STEPS.iter().rposition(|step| step.from <= loss).unwrap_or(0);
        if wanted > self.step {
            self.calm = None;
            if self.rising.get_or_insert(told) != &told {
                self.step = wanted;
                self.rising = None;
            }
            return;
        }
        self.rising = None;
        if self.step == 0 || u32::from(loss) * 3 >= u32::from(STEPS[self.step].from) * 2 {
            self.calm = None;
        } else if now.saturating_duration_since(*self.calm.get_or_insert(now)) >= CALM {
            self.step -= 1;
            self.calm = Some(now);
        }
    }

    /// The link between edge and transceiver is congested, or no longer.
    pub(crate) fn set_congested(&mut self, congested: bool) {
        self.congested = congested;
    }

    /// What the encoder is to be told.
    pub(crate) fn coding(&self) -> Coding {
        let step = &STEPS[self.step];
        let least = CONGESTED.min(self.bitrate);
        let bitrate = if step.bitrate == 100 { self.bitrate } else { (self.bitrate / 100 * step.bitrate).max(least) };
        let bitrate = if self.congested { (bitrate / 2).max(least) } else { bitrate };
        Coding { bitrate, loss_percent: step.loss_percent, dtx: self.congested || step.bitrate < 100 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn low8(report: u32) -> u8 {
        u8::try_from(report & 0xff).unwrap()
    }

    /// A report each 100 ms for so many seconds; what the encoder is told then.
    fn run(adapt: &mut Adapt, now: &mut Instant, seconds: u32, loss: impl Fn(u32) -> u8) -> Coding {
        for report in 0..seconds * 10 {
            *now += Duration::from_millis(100);
            adapt.loss(*now, loss(report), low8(report));
        }
        adapt.coding()
    }

    #[test]
    fn without_loss_nothing_is_spent_on_it() {
        let (mut adapt, mut now) = (Adapt::new(24_000), Instant::now());
        let calm = Coding { bitrate: 24_000, loss_percent: 0, dtx: false };
        assert_eq!(adapt.coding(), calm);
        // One burst in a second is not yet loss.
        assert_eq!(run(&mut adapt, &mut now, 10, |report| if report % 10 == 0 { 40 } else { 0 }), calm);
    }

    #[test]
    fn copies_follow_the_loss_up_within_two_reports() {
        let (mut adapt, now) = (Adapt::new(24_000), Instant::now());
        adapt.loss(now, 28, 255);
        assert_eq!(adapt.coding().loss_percent, 0);
        adapt.loss(now, 28, 0);
        assert_eq!(adapt.coding().loss_percent, 20);
        assert_eq!(adapt.coding().bitrate, 24_000);
    }

    #[test]
    fn a_burst_in_one_receiver_report_is_one_however_often_the_edge_repeats_it() {
        let (mut adapt, mut now) = (Adapt::new(24_000), Instant::now());
        for (told, loss) in [(1, 0), (2, 40), (3, 0), (4, 40), (5, 40)] {
            // Each 5 s.
            for _ in 0..50 {
                now += Duration::from_millis(100);
                adapt.loss(now, loss, told);
            }
            assert_eq!(adapt.coding().loss_percent, if told < 5 { 0 } else { 20 }, "report {told}");
        }
    }

    #[test]
    fn they_go_down_a_step_each_5_s() {
        let (mut adapt, mut now) = (Adapt::new(24_000), Instant::now());
        assert_eq!(run(&mut adapt, &mut now, 1, |_| 28).loss_percent, 20);
        assert_eq!(run(&mut adapt, &mut now, 5, |_| 0).loss_percent, 20);
        assert_eq!(run(&mut adapt, &mut now, 1, |_| 0).loss_percent, 10);
        assert_eq!(run(&mut adapt, &mut now, 10, |_| 0).loss_percent, 0);
    }

    #[test]
    fn a_loss_that_wavers_about_a_threshold_changes_nothing() {
        let (mut adapt, mut now) = (Adapt::new(24_000), Instant::now());
        run(&mut adapt, &mut now, 1, |_| 14);
        for _ in 0..60 {
            assert_eq!(run(&mut adapt, &mut now, 1, |report| 12 + u8::try_from(report % 3).unwrap()).loss_percent, 10);
        }
    }

    #[test]
    fn a_fifth_lost_and_a_congested_link_take_bits_and_silence_is_not_sent() {
        let (mut adapt, mut now) = (Adapt::new(24_000), Instant::now());
        let heavy = run(&mut adapt, &mut now, 1, |_| 60);
        assert_eq!(heavy, Coding { bitrate: 18_000, loss_percent: 30, dtx: true });
        adapt.set_congested(true);
        assert_eq!(adapt.coding().bitrate, 12_000);
        adapt.set_congested(false);
        assert_eq!(adapt.coding(), heavy);
        let mut low = Adapt::new(8_000);
        low.set_congested(true);
        assert_eq!(low.coding(), Coding { bitrate: 8_000, loss_percent: 0, dtx: true });
    }
}
