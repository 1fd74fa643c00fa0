//! Decimation by 2 or 3, for backends that are not at the detector's rate.
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
        let length = 16 * factor;
        #[expect(clippy::cast_precision_loss, reason = "at most 48 taps")]
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
        Self { factor, history: vec![0.0; 2 * length], taps, at: 0, phase: 0 }
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
