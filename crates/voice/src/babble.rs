//! Sound that a detector takes for speech and a codec treats as such, from a seed: for benches and tests, which need a
//! voice without recordings.
//!
//! Voiced syllables of 150 to 230 ms: a glottal buzz, whose pitch rises and falls, through the formants of vowels.

use std::f32::consts::{PI, TAU};

/// First three formants of a few vowels, in Hz: three resonances make a voice of a buzz.
const VOWELS: [[f32; 3]; 5] = [
    [730.0, 1090.0, 2440.0],
    [270.0, 2290.0, 3010.0],
    [530.0, 1840.0, 2480.0],
    [570.0, 840.0, 2410.0],
    [440.0, 1020.0, 2240.0],
];

/// Mono speech of `ms` at `rate` samples per second. It begins and ends sharply.
#[must_use]
pub fn speech(rate: u32, ms: usize, seed: u32) -> Vec<i16> {
    let per_ms = usize::try_from(rate / 1000).unwrap_or(16);
    let rate = rate as f32;
    let mut random = Random(seed.wrapping_mul(2_654_435_761).max(1));
    let mut out = Vec::with_capacity(ms * per_ms);
    let mut phase = 0.0_f32;
    while out.len() < ms * per_ms {
        let vowel = VOWELS[random.below(5) as usize];
        let [mut low, mut middle, mut high] =
            [(vowel[0], 80.0), (vowel[1], 100.0), (vowel[2], 140.0)].map(|(f, width)| Resonator::new(rate, f, width));
        let length = per_ms * (150 + random.below(80) as usize);
        let base = 110.0 + random.below(40) as f32;
        for index in 0..length {
            let x = index as f32 / length as f32;
            let pitch = base * (1.0 + 0.15 * (x * PI).sin());
            phase = (phase + pitch / rate).fract();
            // A glottal pulse: rises slowly, closes fast.
            let pulse = if phase < 0.6 { (phase / 0.6).powi(2) } else { 0.0 } - 0.2;
            let breath = (random.below(2001) as f32 / 1000.0 - 1.0) * 0.02;
            let voice = pulse + breath;
            let sample = low.step(voice) + 0.6 * middle.step(voice) + 0.35 * high.step(voice);
            let envelope = (x * 12.0).min((1.0 - x) * 8.0).clamp(0.25, 1.0);
            #[expect(clippy::cast_possible_truncation, reason = "clamped to what an i16 holds")]
            out.push((sample * envelope * 6000.0).clamp(-30_000.0, 30_000.0) as i16);
        }
    }
    out.truncate(ms * per_ms);
    out
}

/// A two-pole resonator.
struct Resonator {
    a: f32,
    b: f32,
    c: f32,
    past: [f32; 2],
}

impl Resonator {
    fn new(rate: f32, frequency: f32, bandwidth: f32) -> Self {
        let radius = (-PI * bandwidth / rate).exp();
        let (b, c) = (2.0 * radius * (TAU * frequency / rate).cos(), -radius * radius);
        Self { a: 1.0 - b - c, b, c, past: [0.0; 2] }
    }

    fn step(&mut self, x: f32) -> f32 {
        let y = self.a * x + self.b * self.past[0] + self.c * self.past[1];
        self.past = [y, self.past[0]];
        y
    }
}

/// Xorshift; the seed is not 0.
pub(crate) struct Random(pub(crate) u32);

impl Random {
    /// Below `bound`.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        u32::try_from((u64::from(self.0) * u64::from(bound)) >> 32).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::speech;
    use crate::vad::Vad;

    #[test]
    fn a_seed_is_a_voice_and_the_detector_hears_speech() {
        assert_eq!(speech(16_000, 500, 7), speech(16_000, 500, 7));
        assert_ne!(speech(16_000, 500, 7), speech(16_000, 500, 8));
        assert_eq!(speech(24_000, 500, 7).len(), 12_000);
        let (pcm, mut vad) = (speech(16_000, 2000, 7), Vad::new());
        let (mut rest, mut voiced, mut frames) = (&pcm[..], 0, 0);
        while !rest.is_empty() {
            let (taken, probability) = vad.push(rest);
            rest = &rest[taken..];
            if let Some(probability) = probability {
                frames += 1;
                voiced += usize::from(probability >= 0.5);
            }
        }
        assert!(voiced * 10 > frames * 8, "{voiced} of {frames} frames are voiced");
    }
}
