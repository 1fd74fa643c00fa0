//! What fills a hole that no copy fills: the last pitch period, repeated and faded.
//!
//! libopus has a concealment of its own. That of `unsafe-libopus` 0.2.0 is not usable: in SILK (`silk/PLC.rs`, `silk/CNG.rs`) samples are
//! clamped to at least 0x8000 as a positive number, so each concealed sample is 32767 at the output. A test keeps watch on
//! what comes out here instead.

/// Full strength for 10 ms, silence from 100 ms on.
const HOLD_MS: u32 = 10;
const FADE_END_MS: u32 = 100;

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
