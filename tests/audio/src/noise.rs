//! Sounds that are no speech, from seeds, at 16 kHz. What is returned has any scale; [`mix`] brings it to a level.

use std::f32::consts::TAU;

use crate::corpus::{Corpus, to_i16};

const RATE: f32 = 16_000.0;

/// Kinds of noise that last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noise {
    /// Equal power in each hertz.
    White,
    /// Equal power in each octave.
    Pink,
    /// 50 Hz and harmonics, slowly swelling.
    Hum,
    /// A keyboard: two clicks a key, four keys a second.
    Clicks,
    /// Eight voices of the corpus at once.
    Babble,
}

impl Noise {
    /// All of them.
    pub(crate) const ALL: [Self; 5] = [Self::White, Self::Pink, Self::Hum, Self::Clicks, Self::Babble];

    /// For people and files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::White => "white",
            Self::Pink => "pink",
            Self::Hum => "hum",
            Self::Clicks => "key clicks",
            Self::Babble => "babble",
        }
    }

    /// This many samples of it.
    pub(crate) fn samples(self, corpus: &Corpus, length: usize, seed: u64) -> Vec<f32> {
        let mut random = Random::new(seed);
        match self {
            Self::White => (0..length).map(|_| random.signed()).collect(),
            Self::Pink => pink(length, seed),
            Self::Hum => hum(length, &mut random),
            Self::Clicks => {
                let mut out = vec![0.0; length];
                let mut at = 0;
                while at < length {
                    key(&mut out[at..], &mut random);
                    at += 2400 + random.below(3200);
                }
                out
            }
            Self::Babble => babble(corpus, length, &mut random),
        }
    }
}

/// Seven rows, each held twice as long as the former (Voss): 3 dB less with each octave.
pub(crate) fn pink(length: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    let mut rows = [0.0_f32; 7];
    let sample = |index: usize| {
        for (row, value) in rows.iter_mut().enumerate() {
            if index.is_multiple_of(1 << row) {
                *value = random.signed();
            }
        }
        rows.iter().sum()
    };
    (0..length).map(sample).collect()
}

fn hum(length: usize, random: &mut Random) -> Vec<f32> {
    let base = 50.0 * (1.0 + 0.002 * random.signed());
    let parts = [(1.0, 1.0), (2.0, 0.7), (3.0, 0.4), (4.0, 0.25), (6.0, 0.15), (10.0, 0.06)];
    let swell = 0.2 + 0.2 * random.unit();
    let sample = |index: usize| {
        let time = index as f32 / RATE;
        let tone: f32 = parts.iter().map(|(harmonic, gain)| gain * (TAU * base * harmonic * time).sin()).sum();
        tone * (1.0 + 0.2 * (TAU * swell * time).sin()) + 0.01 * random.signed()
    };
    (0..length).map(sample).collect()
}

fn babble(corpus: &Corpus, length: usize, random: &mut Random) -> Vec<f32> {
    let clips: Vec<_> = corpus.speech().collect();
    let mut out = vec![0.0; length];
    for _ in 0..8 {
        let from = random.below(clips.len());
        let voice = clips.iter().cycle().skip(from).step_by(7).flat_map(|clip| clip.pcm.iter());
        for (sum, &sample) in out.iter_mut().zip(voice.skip(random.below(16_000))) {
            *sum += f32::from(sample);
        }
    }
    out
}

/// One key at the front of `out`: it goes down, and up again 60 to 120 ms later, each a few milliseconds of ringing.
pub(crate) fn key(out: &mut [f32], random: &mut Random) {
    let up = 960 + random.below(960);
    for (at, gain) in [(0, 1.0), (up, 0.4)] {
        let (pitch, decay) = (1500.0 + 2500.0 * random.unit(), 25.0 + 40.0 * random.unit());
        let gain = gain * (0.5 + 0.5 * random.unit());
        for (index, sample) in out.iter_mut().skip(at).take(320).enumerate() {
            let age = index as f32;
            *sample += gain * (-age / decay).exp() * (random.signed() + 0.5 * (TAU * pitch * age / RATE).sin());
        }
    }
}

/// A key with the desk under it: a thud of 120 to 280 Hz that dies away in 25 to 55 ms.
pub(crate) fn knock(seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    let mut out = vec![0.0; 3200];
    key(&mut out, &mut random);
    let (pitch, decay) = (120.0 + 160.0 * random.unit(), 400.0 + 500.0 * random.unit());
    for (index, sample) in out.iter_mut().enumerate() {
        let age = index as f32;
        *sample += 0.9 * (-age / decay).exp() * (TAU * pitch * age / RATE).sin();
    }
    out
}

/// A cough with a voice in it: as [`cough`], but what follows the burst is as much pulses of the throat as breath, and both go
/// through a mouth with two resonances.
pub(crate) fn throaty_cough(seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    let burst = 480 + random.below(320);
    let breath = 1600 + random.below(1600);
    let pitch = 180.0 + 120.0 * random.unit();
    let mut throat =
        [Resonance::new(600.0 + 300.0 * random.unit(), 120.0), Resonance::new(1200.0 + 600.0 * random.unit(), 180.0)];
    let mut phase = 0.0_f32;
    let sample = |index: usize| {
        let (age, length) = (index as f32, (burst + breath) as f32);
        let envelope = if index < burst {
            (age / 64.0).min(1.0)
        } else {
            0.7 * (1.0 - (age - burst as f32) / breath as f32).powi(2)
        };
        phase += pitch * (1.0 - 0.3 * age / length) * (1.0 + 0.05 * random.signed()) / RATE;
        let mut pulse = 0.0;
        if phase >= 1.0 {
            phase -= 1.0;
            pulse = if index > burst / 2 { 4.0 + 2.0 * random.unit() } else { 0.0 };
        }
        let source = envelope * (0.5 * random.signed() + pulse);
        throat.iter_mut().fold(source, |sample, resonance| resonance.pass(sample))
    };
    (0..burst + breath).map(sample).collect()
}

/// Two poles.
struct Resonance {
    coefficients: [f32; 2],
    past: [f32; 2],
}

impl Resonance {
    fn new(frequency: f32, bandwidth: f32) -> Self {
        let radius = (-std::f32::consts::PI * bandwidth / RATE).exp();
        let coefficients = [2.0 * radius * (TAU * frequency / RATE).cos(), -radius * radius];
        Self { coefficients, past: [0.0; 2] }
    }

    fn pass(&mut self, sample: f32) -> f32 {
        let out = sample + self.coefficients[0] * self.past[0] + self.coefficients[1] * self.past[1];
        self.past = [out, self.past[0]];
        out
    }
}

/// A cough: a burst of 30 to 50 ms, breath of 100 to 200 ms that dies away, a rough voice under its end.
pub(crate) fn cough(seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    let burst = 480 + random.below(320);
    let breath = 1600 + random.below(1600);
    let (mut low, mut band, pitch) = (0.0_f32, 0.0_f32, 130.0 + 60.0 * random.unit());
    let sample = |index: usize| {
        let envelope = if index < burst {
            (index as f32 / 64.0).min(1.0)
        } else {
            0.6 * (1.0 - (index - burst) as f32 / breath as f32).powi(2)
        };
        // White noise through a resonance near 1 kHz, as a throat is.
        low += 0.35 * band;
        band += 0.35 * (random.signed() - low - 0.6 * band);
        let rough = if index > burst { 0.3 * (TAU * pitch * index as f32 / RATE).sin().signum() } else { 0.0 };
        envelope * (band + rough * random.unit())
    };
    (0..burst + breath).map(sample).collect()
}

/// Mean power.
pub(crate) fn power(samples: &[f32]) -> f32 {
    samples.iter().map(|sample| sample * sample).sum::<f32>() / samples.len().max(1) as f32
}

/// Adds `noise` to `pcm` so that its mean power is `wanted`.
pub(crate) fn mix(pcm: &mut [i16], noise: &[f32], wanted: f32) {
    let gain = (wanted / power(noise).max(f32::MIN_POSITIVE)).sqrt();
    for (sample, noise) in pcm.iter_mut().zip(noise) {
        *sample = to_i16(f32::from(*sample) + gain * noise);
    }
}

/// Xorshift: a seed and nothing else.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Seeds that are near give numbers that are not.
    pub(crate) fn new(seed: u64) -> Self {
        Self((seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9).max(1))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// From 0 to 1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 24) as f32
    }

    /// From -1 to 1.
    pub(crate) fn signed(&mut self) -> f32 {
        2.0 * self.unit() - 1.0
    }

    /// Below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap_or_default()
    }
}
