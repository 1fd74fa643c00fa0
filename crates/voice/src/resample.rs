//! Decimation by 2 or 3, for backends that are not at the detector's rate, and interpolation by 2 or 6, for telephones.
//!
//! A windowed sinc of 16 taps per phase: flat to about 80 % of the new band, 60 dB down beyond it, a delay of 0.5 ms at
//! 48 kHz to 16 kHz, which is inside a frame of the detector and is not corrected.

/// One stream's filter.
#[derive(Debug)]
pub(crate) struct Decimator {
    factor: usize,
    taps: Vec<f32>,
    /// The last `taps.len()` samples, twice in a row so that a window is always contiguous.
    history: Vec<f32>,
    at: usize,
    phase: usize,
}

impl Decimator {
    /// Keeps one sample of `factor`.
    pub(crate) fn new(factor: usize) -> Self {
        let factor = factor.max(1);
        let taps = low_pass(factor);
        Self { factor, history: vec![0.0; 2 * taps.len()], taps, at: 0, phase: 0 }
    }

    /// Appends the decimated samples to `out`.
    pub(crate) fn process(&mut self, pcm: &[i16], out: &mut Vec<i16>) {
        let length = self.taps.len();
        for &sample in pcm {
            self.history[self.at] = f32::from(sample);
            self.history[self.at + length] = f32::from(sample);
            self.at = (self.at + 1) % length;
            self.phase += 1;
            if self.phase < self.factor {
                continue;
            }
            self.phase = 0;
            let window = &self.history[self.at..self.at + length];
            let sum: f32 = window.iter().zip(&self.taps).map(|(sample, tap)| sample * tap).sum();
            #[expect(clippy::cast_possible_truncation, reason = "a float cast saturates")]
            out.push(sum.round() as i16);
        }
    }
}

/// Taps that sum to one and keep what both rates can hold.
fn low_pass(factor: usize) -> Vec<f32> {
    let length = TAPS * factor;
    #[expect(clippy::cast_precision_loss, reason = "at most 96 taps")]
    let tap = |index: usize| {
        let cutoff = 0.9 / factor as f32;
        let x = index as f32 - (length - 1) as f32 / 2.0;
        let sinc = (std::f32::consts::PI * cutoff * x).sin() / (std::f32::consts::PI * x);
        let turn = 2.0 * std::f32::consts::PI * index as f32 / (length - 1) as f32;
        // Blackman: the stop band matters more than the edge.
        sinc * (0.42 - 0.5 * turn.cos() + 0.08 * (2.0 * turn).cos())
    };
    let mut taps: Vec<f32> = (0..length).map(tap).collect();
    let sum: f32 = taps.iter().sum();
    taps.iter_mut().for_each(|tap| *tap /= sum);
    taps
}

/// Taps per phase.
const TAPS: usize = 16;

/// One stream's filter to a higher rate.
#[derive(Debug)]
pub(crate) struct Interpolator {
    factor: usize,
    taps: Vec<f32>,
    /// The last samples, the newest first.
    history: [f32; TAPS],
}

impl Interpolator {
    /// Makes `factor` samples of each.
    pub(crate) fn new(factor: usize) -> Self {
        let factor = factor.max(1);
        Self { factor, taps: low_pass(factor), history: [0.0; TAPS] }
    }

    /// Writes as many samples as `out` has room for; the rest of it is silence.
    pub(crate) fn process(&mut self, pcm: &[i16], out: &mut [i16]) {
        #[expect(clippy::cast_precision_loss, reason = "at most 6")]
        let gain = self.factor as f32;
        let mut out = out.chunks_exact_mut(self.factor);
        for (sample, out) in pcm.iter().zip(&mut out) {
            self.history.copy_within(..TAPS - 1, 1);
            self.history[0] = f32::from(*sample);
            for (phase, out) in out.iter_mut().enumerate() {
                let taps = self.taps.iter().skip(phase).step_by(self.factor);
                let sum: f32 = self.history.iter().zip(taps).map(|(sample, tap)| sample * tap).sum();
                #[expect(clippy::cast_possible_truncation, reason = "a float cast saturates")]
                {
                    *out = (sum * gain).round() as i16;
                }
            }
        }
        out.for_each(|rest| rest.fill(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tone of 1 kHz at 8 kHz keeps its level and its pitch, and its image at 7 kHz is gone.
    #[test]
    fn a_tone_is_the_same_tone_at_a_higher_rate() {
        for factor in [2, 6] {
            let tone =
                |rate: f64, index: u32| 10_000.0 * (std::f64::consts::TAU * 1000.0 * f64::from(index) / rate).sin();
            #[expect(clippy::cast_possible_truncation, reason = "within i16")]
            let pcm: Vec<i16> = (0..800).map(|index| tone(8000.0, index) as i16).collect();
            let mut out = vec![0; 800 * factor];
            let mut interpolator = Interpolator::new(factor);
            for (pcm, out) in pcm.chunks(160).zip(out.chunks_mut(160 * factor)) {
                interpolator.process(pcm, out);
            }
            // The filter's delay: half its length.
            let rate = 8000.0 * factor as f64;
            let delay = (TAPS * factor - 1) as f64 / 2.0;
            let error: f64 = (400 * factor..800 * factor)
                .map(|index| {
                    let at = index as f64 - delay;
                    let expected = 10_000.0 * (std::f64::consts::TAU * 1000.0 * at / rate).sin();
                    (f64::from(out[index]) - expected).powi(2)
                })
                .sum();
            let rms = (error / (400 * factor) as f64).sqrt();
            assert!(rms < 70.0, "factor {factor}: {rms} of 7071");
        }
    }
}
