//! Sounds at 16 kHz: something a detector takes for speech, and things it should not.

/// Voiced syllables of 180 ms, four vowels a second and a half, with the pitch of a sentence. It begins and ends sharply.
pub(crate) fn speech(ms: usize, seed: u32) -> Vec<i16> {
    voice::babble::speech(16_000, ms, seed)
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

/// A hum through closed lips: pitch and a few weak harmonics, rising and falling within 20 ms.
pub(crate) fn hum(ms: usize, pitch: f32) -> Vec<i16> {
    let length = ms * 16;
    let sample = |index: usize| {
        let phase = std::f32::consts::TAU * pitch * index as f32 / 16_000.0;
        let edge = (index.min(length - index) as f32 / 320.0).min(1.0);
        (5000.0 * edge * (phase.sin() + 0.35 * (2.0 * phase).sin() + 0.08 * (3.0 * phase).sin())) as i16
    };
    (0..length).map(sample).collect()
}

/// A key: a sharp impulse that rings for 6 ms, and its release 80 ms later.
pub(crate) fn click(seed: u32) -> Vec<i16> {
    let mut out = noise(100, 20, seed);
    let key = noise(6, 14_000, seed + 1);
    for at in [0, 1280] {
        for (index, sample) in key.iter().enumerate() {
            let fade = 1.0 - index as f32 / key.len() as f32;
            out[at + index] = out[at + index].saturating_add((f32::from(*sample) * fade * fade) as i16);
        }
    }
    out
}

/// A burst of breath, sharp at its begin and fading over 300 ms, lower than white.
pub(crate) fn cough(seed: u32) -> Vec<i16> {
    let mut low = 0.0_f32;
    let burst = noise(300, 16_000, seed);
    let sample = |(index, sample): (usize, &i16)| {
        let fade = (-(index as f32) / 1600.0).exp();
        low += 0.35 * (f32::from(*sample) - low);
        (low * fade) as i16
    };
    burst.iter().enumerate().map(sample).collect()
}
