//! Sounds at 16 kHz that a detector takes for speech, and how alike two of them are.

use std::f32::consts::{PI, TAU};

const RATE: f32 = 16_000.0;

/// First three formants of a few vowels, in Hz.
const VOWELS: [[f32; 3]; 4] =
    [[730.0, 1090.0, 2440.0], [300.0, 2250.0, 3000.0], [530.0, 1840.0, 2480.0], [570.0, 840.0, 2410.0]];

/// Vowels of 150 to 230 ms over a buzz whose pitch rises and falls; the seed chooses them.
pub(crate) fn speech(ms: usize, seed: u32) -> Vec<i16> {
    let mut random = seed.wrapping_mul(2_654_435_761).max(1);
    let mut below = move |bound: u32| {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        random % bound
    };
    let mut out = Vec::with_capacity(ms * 16);
    let mut phase = 0.0_f32;
    while out.len() < ms * 16 {
        let vowel = VOWELS[below(4) as usize];
        let mut past = [[0.0_f32; 2]; 3];
        let (length, base) = (16 * (150 + below(80) as usize), 110.0 + below(40) as f32);
        for index in 0..length {
            let x = index as f32 / length as f32;
            phase = (phase + base * (1.0 + 0.15 * (x * PI).sin()) / RATE).fract();
            let pulse = if phase < 0.6 { (phase / 0.6).powi(2) } else { 0.0 } - 0.2;
            let breath = (below(2001) as f32 / 1000.0 - 1.0) * 0.02;
            let mut sample = 0.0;
            let mut input = pulse + breath;
            for (formant, (frequency, past)) in vowel.iter().zip(&mut past).enumerate() {
                // A two-pole resonator.
                let radius = (-PI * [80.0, 100.0, 140.0][formant] / RATE).exp();
                let (b, c) = (2.0 * radius * (TAU * frequency / RATE).cos(), -radius * radius);
                let y = (1.0 - b - c) * input + b * past[0] + c * past[1];
                *past = [y, past[0]];
                sample += [1.0, 0.6, 0.35][formant] * y;
                input = if formant == 0 { y } else { input };
            }
            let envelope = (x * 12.0).min((1.0 - x) * 8.0).clamp(0.25, 1.0);
            #[expect(clippy::cast_possible_truncation, reason = "clamped to less than an i16")]
            let sample = (sample * envelope * 6000.0).clamp(-30_000.0, 30_000.0) as i16;
            out.push(sample);
        }
    }
    out.truncate(ms * 16);
    out
}

/// Best normalized correlation of `wanted` in `heard`, at the lags of its first 300 ms. Every fourth sample is enough to
/// tell two sentences apart.
pub(crate) fn correlation(wanted: &[i16], heard: &[i16]) -> f64 {
    const STEP: usize = 4;
    let wanted: Vec<i64> = wanted.iter().step_by(STEP).map(|&x| i64::from(x)).collect();
    let wanted_energy: i64 = wanted.iter().map(|x| x * x).sum();
    let mut best = 0.0_f64;
    for lag in 0..4800.min(heard.len()) {
        let (mut dot, mut energy) = (0, 0);
        for (&x, &y) in wanted.iter().zip(heard[lag..].iter().step_by(STEP)) {
            dot += x * i64::from(y);
            energy += i64::from(y) * i64::from(y);
        }
        best = best.max(dot as f64 / (energy as f64 * wanted_energy as f64).sqrt().max(1.0));
    }
    best
}
