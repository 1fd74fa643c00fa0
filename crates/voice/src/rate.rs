//! PCM of any rate to one that Opus codes.
//!
//! A windowed sinc, 64 samples of the lower rate long: level to 83 % of the band, 75 dB down beyond it. Its delay of half of that is
//! taken off at the begin and given at the end. It is worked out for each place between two samples that occurs, which are few
//! (3 from 16 to 24 kHz), or for 256 of them with straight lines between. Where a sample lies is counted in whole numbers: an hour of
//! 44.1 kHz is as long behind it as before.

/// Half the length of the window, in samples of the lower rate.
const HALF: u32 = 32;

/// The most places between two samples for which the window is worked out.
const PHASES: u32 = 256;

/// Rates taken: a telephone's to a studio's. Outside of them a label is an error, not a rate.
pub(crate) const RATES: std::ops::RangeInclusive<u32> = 8_000..=96_000;

/// One stream of samples, brought to another rate.
#[derive(Debug)]
pub struct Resampler {
    /// Both rates, less what divides both.
    from: u32,
    to: u32,
    phases: u32,
    /// Samples under the window.
    taps: usize,
    /// `phases + 1` windows, the last one a sample later than the first.
    windows: Vec<f32>,
    /// The last samples, and those that follow.
    input: Vec<f32>,
    /// Where the next sample out lies behind the first window's middle, in parts of `to` per sample in.
    at: u64,
}

/// The rate nearest above among those that Opus codes.
pub(crate) fn coded(rate: u32) -> u32 {
    match rate {
        ..=16_000 => 16_000,
        16_001..=24_000 => 24_000,
        _ => 48_000,
    }
}

impl Resampler {
    /// Both in samples per second, 8000 to 96000.
    #[must_use]
    pub fn new(from: u32, to: u32) -> Self {
        // What the lower of both rates cannot hold is taken away.
        let cutoff = 0.92 * (f64::from(to) / f64::from(from)).min(1.0);
        let half = (HALF * from).div_ceil(from.min(to)) as usize;
        let both = greatest_common_divisor(from, to);
        let (from, to) = (from / both, to / both);
        let (phases, taps) = (to.min(PHASES), 2 * half);
        let window = |phase: u32| {
            let place = f64::from(phase) / f64::from(phases);
            let taps: Vec<f64> = (0..taps).map(|tap| weight(tap, half, place, cutoff)).collect();
            let sum: f64 = taps.iter().sum();
            #[expect(clippy::cast_possible_truncation, reason = "24 bits are more than a sample has")]
            taps.into_iter().map(move |tap| (tap / sum) as f32).collect::<Vec<_>>()
        };
        Self {
            from,
            to,
            phases,
            taps,
            windows: (0..=phases).flat_map(window).collect(),
            input: vec![0.0; half - 1],
            at: 0,
        }
    }

    /// Appends what can be made of the samples so far.
    pub fn process(&mut self, pcm: &[i16], out: &mut Vec<i16>) {
        self.input.extend(pcm.iter().map(|&sample| f32::from(sample)));
        let to = u64::from(self.to);
        loop {
            let first = usize::try_from(self.at / to).unwrap_or(usize::MAX);
            let Some(samples) = self.input.get(first..first.saturating_add(self.taps)) else { break };
            let place = self.at % to * u64::from(self.phases);
            let phase = usize::try_from(place / to).unwrap_or(0);
            #[expect(clippy::cast_precision_loss, reason = "a part of one")]
            let between = (place % to) as f32 / to as f32;
            let (near, far) = self.windows[phase * self.taps..(phase + 2) * self.taps].split_at(self.taps);
            let dot = |window: &[f32]| window.iter().zip(samples).map(|(tap, sample)| tap * sample).sum::<f32>();
            let sample = if between > 0.0 { dot(near) * (1.0 - between) + dot(far) * between } else { dot(near) };
            #[expect(clippy::cast_possible_truncation, reason = "a float cast saturates")]
            out.push(sample.round() as i16);
            self.at += u64::from(self.from);
        }
        let done = usize::try_from(self.at / to).unwrap_or(usize::MAX).min(self.input.len());
        self.input.drain(..done);
        self.at -= done as u64 * to;
    }

    /// Appends the rest: the stream is over.
    pub fn finish(&mut self, out: &mut Vec<i16>) {
        self.process(&vec![0; self.taps / 2], out);
    }
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Of a sample `tap` places from the window's begin, for an output `place` behind its middle.
fn weight(tap: usize, half: usize, place: f64, cutoff: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "at most 768: from 96 to 8 kHz")]
    let (tap, half) = (tap as f64, half as f64);
    let x = tap - (half - 1.0) - place;
    let sinc = if x.abs() < 1e-9 {
        1.0
    } else {
        (std::f64::consts::PI * cutoff * x).sin() / (std::f64::consts::PI * cutoff * x)
    };
    let turn = std::f64::consts::PI * x / half;
    // Blackman: the stop band matters more than the edge.
    if x.abs() > half { 0.0 } else { sinc * (0.42 + 0.5 * turn.cos() + 0.08 * (2.0 * turn).cos()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "signals that fit")]

    use super::*;

    /// Signal to error, in dB, of the worst tone of [`PAIRS`].
    const BOUNDS: [f64; 4] = [60.0, 60.0, 60.0, 60.0];

    fn tone(rate: u32, hertz: f64, seconds: f64) -> Vec<i16> {
        let samples = (f64::from(rate) * seconds) as usize;
        let turn = 2.0 * std::f64::consts::PI * hertz / f64::from(rate);
        (0..samples).map(|n| (10_000.0 * (turn * n as f64).sin()).round() as i16).collect()
    }

    fn resampled(from: u32, to: u32, pcm: &[i16]) -> Vec<i16> {
        let (mut resampler, mut out) = (Resampler::new(from, to), Vec::new());
        for piece in pcm.chunks(333) {
            resampler.process(piece, &mut out);
        }
        resampler.finish(&mut out);
        out
    }

    /// Signal to error in dB.
    fn quality(wanted: &[i16], got: &[i16]) -> f64 {
        let (skip, pairs) = (200, wanted.len().min(got.len()) - 400);
        let pairs = wanted.iter().zip(got).skip(skip).take(pairs);
        let (mut signal, mut error) = (0.0, 0.0);
        for (&wanted, &got) in pairs {
            signal += f64::from(wanted).powi(2);
            error += f64::from(i32::from(wanted) - i32::from(got)).powi(2);
        }
        10.0 * (signal / error.max(1e-9)).log10()
    }

    #[test]
    fn a_tone_is_the_same_tone_at_every_rate_and_in_step() {
        for from in [8_000, 11_025, 12_000, 22_050, 32_000, 44_100, 96_000, 44_099] {
            let to = coded(from);
            let got = resampled(from, to, &tone(from, 1000.0, 1.0));
            assert!(got.len().abs_diff(to as usize) <= 1, "{from}: {} of {to}", got.len());
            let quality = quality(&tone(to, 1000.0, 1.0), &got);
            println!("{from} Hz to {to} Hz: {quality:.1} dB");
            assert!(quality > 55.0, "{from}: {quality}");
        }
    }

    /// The rates between which clients of a WebSocket are heard and answered: 24 kHz and 8 kHz outside, 16 kHz and 24 kHz inside.
    const PAIRS: [(u32, u32); 4] = [(24_000, 16_000), (16_000, 24_000), (8_000, 16_000), (24_000, 8_000)];

    /// Tones up to 80 % of the lower rate's band, by every 250 Hz.
    #[test]
    fn tones_across_the_band_are_the_same_tones() {
        for ((from, to), (least, bound)) in PAIRS.into_iter().zip(BOUNDS.map(|bound| (f64::INFINITY, bound))) {
            let top = f64::from(from.min(to)) / 2.0 * 0.8;
            let tones = (1..).map(|step| 250.0 * f64::from(step)).take_while(|hertz| *hertz <= top);
            let worst = tones.fold(least, |worst: f64, hertz| {
                let got = resampled(from, to, &tone(from, hertz, 0.5));
                worst.min(quality(&tone(to, hertz, 0.5), &got))
            });
            println!("{from} Hz to {to} Hz, up to {top} Hz: {worst:.1} dB");
            assert!(worst > bound, "{from} to {to}: {worst:.1} dB");
        }
    }

    /// A sweep across all that the lower rate holds keeps its level to 85 % of the band, and nothing else appears.
    #[test]
    fn a_sweep_keeps_its_level_and_what_does_not_fit_is_gone() {
        for (from, to) in PAIRS {
            let band = f64::from(from.min(to)) / 2.0;
            let level = |hertz: f64| {
                let got = resampled(from, to, &tone(from, hertz, 0.25));
                let inside = &got[300..got.len() - 300];
                let power = inside.iter().map(|&sample| f64::from(sample).powi(2)).sum::<f64>() / inside.len() as f64;
                10.0 * (power / (10_000.0_f64.powi(2) / 2.0)).max(1e-12).log10()
            };
            for step in 1..=17 {
                let hertz = band * 0.05 * f64::from(step);
                assert!(level(hertz).abs() < 0.1, "{from} to {to}: {:.2} dB at {hertz} Hz", level(hertz));
            }
            let top = f64::from(from) / 2.0;
            for step in 0..8 {
                let hertz = band * 1.1 + (top - band * 1.1) * f64::from(step) / 8.0;
                if hertz < top {
                    assert!(level(hertz) < -60.0, "{from} to {to}: {:.1} dB at {hertz} Hz", level(hertz));
                }
            }
        }
    }

    #[test]
    fn what_the_lower_rate_cannot_hold_is_gone() {
        let got = resampled(96_000, 48_000, &tone(96_000, 30_000.0, 0.5));
        let loudest = got[500..20_000].iter().map(|sample| sample.unsigned_abs()).max().unwrap();
        assert!(loudest < 30, "{loudest}");
    }

    #[test]
    fn a_minute_of_44_1_khz_stays_a_minute() {
        let (mut resampler, mut out, mut total) = (Resampler::new(44_100, 48_000), Vec::new(), 0_u64);
        let second = vec![100; 44_100];
        for _ in 0..60 {
            resampler.process(&second, &mut out);
            total += out.len() as u64;
            out.clear();
        }
        resampler.finish(&mut out);
        assert_eq!(total + out.len() as u64, 60 * 48_000);
        assert!(resampler.input.len() < 2 * resampler.taps);
    }
}
