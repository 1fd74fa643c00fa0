//! Whether a backend's audio has the rate that its label says.
//!
//! The label is the contract: audio is played as labeled. But a backend that sends 24 kHz under a label of 16 kHz is heard slow and
//! low, and nothing else says so. Two things give it away, and are reported, not acted upon:
//!
//! * **Wall clock**: audio that comes evenly, half again as fast as it lasts, over seconds. Backends are often faster than speech, but
//!   seldom evenly, and seldom by just the ratio of two rates in use.
//! * **Text**: a reply takes half again as much speech for its words as this voice's others did.
//!
//! A difference of less than a fifth is no label's fault but a voice's.

use std::time::{Duration, Instant};

/// Rates in use.
const RATES: [u32; 8] = [8_000, 11_025, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000];

/// How far a ratio may be from that of two rates, in thousandths: by the clock, and by the text.
const CLOCK_SLACK: u64 = 30;
const TEXT_SLACK: u64 = 100;

/// Less audio says nothing.
const LEAST: Duration = Duration::from_secs(3);

/// How one reply's audio comes by the clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Label {
    first: Instant,
    /// Time and audio at the first half's end.
    half: Option<(Duration, Duration)>,
    told: bool,
}

impl Label {
    /// The first piece comes.
    pub(crate) fn new(now: Instant) -> Self {
        Self { first: now, half: None, told: false }
    }

    /// A piece comes behind `before` of audio, labeled `declared`: the rate that it seems to have, told once.
    pub(crate) fn piece(&mut self, now: Instant, before: Duration, declared: u32) -> Option<u32> {
        let passed = now.saturating_duration_since(self.first);
        if self.half.is_none() && passed >= LEAST / 2 {
            self.half = Some((passed, before));
        }
        let (half, half_before) = self.half.filter(|_| !self.told && passed >= LEAST)?;
        let early = ratio(half_before, half);
        let late = ratio(before.saturating_sub(half_before), passed.saturating_sub(half));
        if early.abs_diff(late) > early / 20 {
            return None;
        }
        let likely = likely(ratio(before, passed), declared, CLOCK_SLACK)?;
        self.told = true;
        Some(likely)
    }

    /// A reply is whole; its words should have taken `expected` of speech and took `speech`.
    pub(crate) fn text(&mut self, speech: Duration, expected: Duration, declared: u32) -> Option<u32> {
        if self.told || speech.min(expected) < LEAST {
            return None;
        }
        let likely = likely(ratio(speech, expected), declared, TEXT_SLACK)?;
        self.told = true;
        Some(likely)
    }
}

/// In thousandths.
fn ratio(part: Duration, whole: Duration) -> u64 {
    let thousandths = part.as_micros() * 1000 / whole.as_micros().max(1);
    u64::try_from(thousandths).unwrap_or(u64::MAX)
}

/// The rate in use that is `ratio` times the declared one, if it is not that itself.
fn likely(ratio: u64, declared: u32, slack: u64) -> Option<u32> {
    if (800..=1200).contains(&ratio) {
        return None;
    }
    let off = |rate: u32| ratio.abs_diff(u64::from(rate) * 1000 / u64::from(declared.max(1)));
    let best = RATES.into_iter().min_by_key(|rate| off(*rate))?;
    (off(best) * 1000 <= slack * ratio).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// What is said of 10 s in which a piece of `length` comes each `period`.
    fn paced(length: u64, period: u64, declared: u32) -> Option<u32> {
        let start = Instant::now();
        let mut label = Label::new(start);
        let pieces = 10_000 / period;
        let said: Vec<u32> = (0..pieces)
            .filter_map(|piece| label.piece(start + ms(piece * period), ms(piece * length), declared))
            .collect();
        assert!(said.len() <= 1);
        said.first().copied()
    }

    #[test]
    fn a05_24_khz_in_real_time_under_a_label_of_16_khz_is_told() {
        assert_eq!(paced(150, 100, 16_000), Some(24_000));
        assert_eq!(paced(200, 100, 24_000), Some(48_000));
    }

    #[test]
    fn a05_16_khz_in_real_time_under_a_label_of_24_khz_is_told() {
        assert_eq!(paced(200, 300, 24_000), Some(16_000));
    }

    #[test]
    fn a_backend_as_fast_as_speech_or_of_its_own_speed_is_not() {
        for (length, period) in [(100, 100), (110, 100), (85, 100), (600, 700), (170, 100), (400, 100)] {
            assert_eq!(paced(length, period, 16_000), None, "{length} each {period}");
        }
    }

    #[test]
    fn a_burst_and_a_pause_are_no_rate() {
        let start = Instant::now();
        let mut label = Label::new(start);
        // 5 s at once, then nothing but the last piece.
        for piece in 0..50 {
            assert_eq!(label.piece(start + ms(piece), ms(piece * 100), 16_000), None);
        }
        assert_eq!(label.piece(start + ms(3333), ms(5000), 16_000), None);
    }

    #[test]
    fn a05_words_that_take_half_again_as_long_are_told() {
        let mut label = Label::new(Instant::now());
        assert_eq!(label.text(ms(6000), ms(4900), 16_000), None);
        assert_eq!(label.text(ms(6100), ms(4000), 16_000), Some(24_000));
        assert_eq!(label.text(ms(6100), ms(4000), 16_000), None, "once");
    }
}
