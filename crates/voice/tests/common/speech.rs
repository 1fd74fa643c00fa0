//! Sounds at 16 kHz: something a detector takes for speech, and things it should not.

use std::f32::consts::TAU;

const RATE: f32 = 16_000.0;

/// Formants of a few vowels, in Hz: three resonances make a voice of a buzz.
const VOWELS: [[f32; 3]; 5] = [
    [730.0, 1090.0, 2440.0],
    [270.0, 2290.0, 3010.0],
    [530.0, 1840.0, 2480.0],
    [570.0, 840.0, 2410.0],
    [440.0, 1020.0, 2240.0],
];

/// A two-pole resonator.
struct Resonator {
    a: f32,
    b: f32,
    c: f32,
    past: [f32; 2],
}

impl Resonator {
    fn new(frequency: f32, bandwidth: f32) -> Self {
        let radius = (-std::f32::consts::PI * bandwidth / RATE).exp();
        let (b, c) = (2.0 * radius * (TAU * frequency / RATE).cos(), -radius * radius);
        Self { a: 1.0 - b - c, b, c, past: [0.0; 2] }
    }

    fn step(&mut self, x: f32) -> f32 {
        let y = self.a * x + self.b * self.past[0] + self.c * self.past[1];
        self.past = [y, self.past[0]];
        y
    }
}

/// Voiced syllables of 180 ms, four vowels a second and a half, with the pitch of a sentence. It begins and ends sharply.
pub(crate) fn speech(ms: usize, seed: u32) -> Vec<i16> {
    let mut random = Random(seed.wrapping_mul(2_654_435_761).max(1));
    let mut out = Vec::with_capacity(ms * 16);
    let mut phase = 0.0_f32;
    while out.len() < ms * 16 {
        let vowel = VOWELS[random.below(5) as usize];
        let mut formants =
            [Resonator::new(vowel[0], 80.0), Resonator::new(vowel[1], 100.0), Resonator::new(vowel[2], 140.0)];
        let length = 16 * (150 + random.below(80) as usize);
        let base = 110.0 + random.below(40) as f32;
        for index in 0..length {
            let x = index as f32 / length as f32;
            let pitch = base * (1.0 + 0.15 * (x * TAU / 2.0).sin());
            phase = (phase + pitch / RATE).fract();
            // A glottal pulse: rises slowly, closes fast.
            let pulse = if phase < 0.6 { (phase / 0.6).powi(2) } else { 0.0 } - 0.2;
            let breath = (random.below(2001) as f32 / 1000.0 - 1.0) * 0.02;
            let mut sample = pulse + breath;
            sample = formants[0].step(sample) + 0.6 * formants[1].step(sample) + 0.35 * formants[2].step(sample);
            let envelope = (x * 12.0).min((1.0 - x) * 8.0).clamp(0.25, 1.0);
            out.push((sample * envelope * 6000.0).clamp(-30_000.0, 30_000.0) as i16);
        }
    }
    out.truncate(ms * 16);
    out
}

/// White noise of this amplitude.
pub(crate) fn noise(ms: usize, amplitude: i16, seed: u32) -> Vec<i16> {
    let mut random = Random(seed.max(1));
    (0..ms * 16).map(|_| (random.below(2 * amplitude as u32 + 1) as i32 - i32::from(amplitude)) as i16).collect()
}

pub(crate) fn silence(ms: usize) -> Vec<i16> {
    vec![0; ms * 16]
}

/// Xorshift: a seed and nothing else.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u32);

impl Random {
    pub(crate) fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }

    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.next()) * u64::from(bound)) >> 32) as u32
    }
}

/// Best normalized correlation of `wanted` in `heard`, when it begins there in the first `lags` samples.
pub(crate) fn correlation(wanted: &[i16], heard: &[i16], lags: usize) -> f64 {
    let energy = |pcm: &[i16]| pcm.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
    let wanted_energy = energy(wanted);
    let windows = heard.windows(wanted.len()).take(lags);
    let one = |part: &[i16]| {
        let dot: f64 = part.iter().zip(wanted).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
        dot / (energy(part) * wanted_energy).sqrt().max(1.0)
    };
    windows.map(one).fold(0.0, f64::max)
}
