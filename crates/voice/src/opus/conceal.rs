//! What fills a hole that no copy fills: the last pitch period, repeated and faded.
//!
//! libopus has a concealment of its own. That of `unsafe-libopus` 0.2.0 is not usable: in SILK (`silk/PLC.rs`, `silk/CNG.rs`) samples are
//! clamped to at least 0x8000 as a positive number, so each concealed sample is 32767 at the output. A test keeps watch on
//! what comes out here instead.

/// Full strength for 10 ms, silence from 100 ms on.
const HOLD_MS: u32 = 10;
const FADE_END_MS: u32 = 100;

/// Samples that predict the next: enough for the formants of speech at 16 and at 48 kHz.
const ORDER: usize = 24;

/// The past of one stream, and the hole in it.
#[derive(Debug)]
pub(crate) struct Concealment {
    rate: u32,
    /// The last 30 ms.
    past: Vec<i16>,
    /// The period that fills the hole.
    period: Vec<i16>,
    /// Samples filled since the last real one.
    filled: u32,
}

impl Concealment {
    pub(crate) fn new(rate: u32) -> Self {
        let past = vec![0; Self::samples(rate, 30) as usize];
        Self { rate, past, period: Vec::with_capacity(Self::samples(rate, 15) as usize), filled: 0 }
    }

    /// Something was filled since the last real sample.
    pub(crate) fn is_active(&self) -> bool {
        self.filled > 0
    }

    /// Real samples: the hole, if there was one, is blended into them for 2.5 ms.
    pub(crate) fn real(&mut self, pcm: &mut [i16]) {
        if self.filled > 0 {
            let blend = (self.rate / 400) as usize;
            for (index, sample) in pcm.iter_mut().take(blend).enumerate() {
                let (weight, all) = (i32::try_from(index).unwrap_or(0) + 1, i32::try_from(blend).unwrap_or(1) + 1);
                let mixed = (i32::from(self.next()) * (all - weight) + i32::from(*sample) * weight) / all;
                *sample = i16::try_from(mixed).unwrap_or(0);
            }
            self.filled = 0;
        }
        let keep = self.past.len().saturating_sub(pcm.len());
        let size = self.past.len();
        self.past.copy_within(size - keep.., 0);
        self.past[keep..].copy_from_slice(&pcm[pcm.len().saturating_sub(size - keep)..]);
    }

    /// Fills `out`.
    pub(crate) fn fill(&mut self, out: &mut [i16]) {
        if self.filled == 0 {
            let lag = self.pitch();
            self.period.clear();
            self.period.extend_from_slice(&self.past[self.past.len() - lag..]);
        }
        for sample in out {
            *sample = self.next();
        }
    }

    /// Fills `out` with silence into which the past rings out within 5 ms: as a filter would that has made it and is given
    /// nothing any more, so that there is no step in the sound or its slope.
    pub(crate) fn ring_out(&mut self, out: &mut [i16]) {
        let mut past: Vec<f64> = self.past.iter().map(|sample| f64::from(*sample)).collect();
        let taps = predictor(&past);
        let length = (self.rate / 200) as usize;
        for (index, sample) in out.iter_mut().enumerate() {
            if index >= length {
                *sample = 0;
                continue;
            }
            let next: f64 = taps.iter().zip(past.iter().rev()).map(|(tap, sample)| tap * sample).sum();
            past.push(next);
            #[expect(clippy::cast_precision_loss, reason = "240 at most")]
            let fade = (std::f64::consts::FRAC_PI_2 * (index + 1) as f64 / length as f64).cos().powi(2);
            #[expect(clippy::cast_possible_truncation, reason = "within an i16's range")]
            let faded = (next * fade).clamp(-32_768.0, 32_767.0) as i16;
            *sample = faded;
        }
        self.real(out);
    }

    pub(crate) fn reset(&mut self) {
        self.past.fill(0);
        self.filled = 0;
    }

    fn next(&mut self) -> i16 {
        let (hold, end) = (Self::samples(self.rate, HOLD_MS), Self::samples(self.rate, FADE_END_MS));
        let at = self.filled;
        self.filled = self.filled.saturating_add(1);
        let strength = end.saturating_sub(at.max(hold));
        if strength == 0 || self.period.is_empty() {
            return 0;
        }
        let sample = i64::from(self.period[at as usize % self.period.len()]);
        i16::try_from(sample * i64::from(strength) / i64::from(end - hold)).unwrap_or(0)
    }

    /// The lag of 2.5 to 15 ms at which the last 10 ms are most like what came before.
    fn pitch(&self) -> usize {
        let (least, most) = ((self.rate / 400) as usize, Self::samples(self.rate, 15) as usize);
        let length = Self::samples(self.rate, 10) as usize;
        // One of three samples at 48 kHz: pitch is far below 8 kHz.
        let step = (self.rate / 16_000).max(1) as usize;
        let template = &self.past[self.past.len() - length..];
        let mut best = (0.0, most);
        for lag in (least..=most).step_by(step) {
            let from = self.past.len() - length - lag;
            let (mut product, mut energy) = (0.0_f32, 1.0_f32);
            for (a, b) in template.iter().zip(&self.past[from..]).step_by(step) {
                let (a, b) = (f32::from(*a), f32::from(*b));
                product += a * b;
                energy += b * b;
            }
            let likeness = product / energy.sqrt();
            if likeness > best.0 {
                best = (likeness, lag);
            }
        }
        best.1
    }

    fn samples(rate: u32, ms: u32) -> u32 {
        rate / 1000 * ms
    }
}

/// Weights of the last samples, newest first, that predict the next: linear prediction by Levinson and Durbin over a Hann window,
/// whose filter is stable. A millionth of noise keeps it so where the sound has only a part of the band.
fn predictor(past: &[f64]) -> [f64; ORDER] {
    #[expect(clippy::cast_precision_loss, reason = "1440 at most")]
    let window = |index: usize| (std::f64::consts::PI * (index as f64 + 0.5) / past.len() as f64).sin().powi(2);
    let shaped: Vec<f64> = past.iter().enumerate().map(|(index, sample)| sample * window(index)).collect();
    let alike: [f64; ORDER + 1] =
        std::array::from_fn(|lag| shaped.iter().zip(shaped.iter().skip(lag)).map(|(a, b)| a * b).sum());
    let mut taps = [0.0; ORDER];
    let mut rest = alike[0] * (1.0 + 1e-6) + 1e-3;
    for order in 0..ORDER {
        let told: f64 = (0..order).map(|tap| taps[tap] * alike[order - tap]).sum();
        let reflection = (alike[order + 1] - told) / rest;
        let before = taps;
        taps[order] = reflection;
        for tap in 0..order {
            taps[tap] -= reflection * before[order - 1 - tap];
        }
        rest *= 1.0 - reflection * reflection;
    }
    taps
}
