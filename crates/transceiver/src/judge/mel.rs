//! The features that Whisper's encoder hears, which smart-turn v3 is built on: 80 bands of a log-mel spectrogram, 100 frames per second.
//!
//! As `WhisperFeatureExtractor` of Hugging Face's transformers makes them with `do_normalize`: the whole window is brought to mean 0 and
//! variance 1; frames of 400 samples each 160, centered, mirrored at the borders, under a Hann window; power per band of Slaney's mel
//! scale, of one area each; log10, at most 8 below the loudest, and brought to about -1..1.

use std::f64::consts::PI;
use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};

/// Bands of a frame.
pub(super) const BANDS: usize = 80;
/// Frames of [`SAMPLES`].
pub(super) const FRAMES: usize = SAMPLES / HOP;
/// What smart-turn looks at: 8 s at 16 kHz.
pub(super) const SAMPLES: usize = 128_000;

const RATE: f64 = 16_000.0;
const HOP: usize = 160;
const FFT: usize = 400;

/// What does not change from window to window.
pub(super) struct LogMel {
    fft: Arc<dyn RealToComplex<f32>>,
    hann: Vec<f32>,
    bands: Vec<Band>,
    frame: Vec<f32>,
    spectrum: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
    /// Of each bin of a frame.
    powers: Vec<f32>,
}

/// Weights of the bins from `first` on.
struct Band {
    first: usize,
    weights: Vec<f32>,
}

impl LogMel {
    pub(super) fn new() -> Self {
        let fft = RealFftPlanner::new().plan_fft_forward(FFT);
        let (frame, spectrum, scratch) = (fft.make_input_vec(), fft.make_output_vec(), fft.make_scratch_vec());
        Self { fft, hann: (0..FFT).map(hann).collect(), bands: bands(), frame, spectrum, scratch, powers: Vec::new() }
    }

    /// Features of [`SAMPLES`] samples: [`BANDS`] rows of [`FRAMES`]. The samples are normalized in place.
    pub(super) fn features(&mut self, samples: &mut [f32], features: &mut Vec<f32>) {
        normalize(samples);
        features.clear();
        features.resize(BANDS * FRAMES, 0.0);
        for frame in 0..FRAMES {
            self.power(samples, frame);
            for (row, band) in self.bands.iter().enumerate() {
                let bins = self.powers[band.first..].iter().zip(&band.weights);
                let power: f32 = bins.map(|(power, weight)| power * weight).sum();
                features[row * FRAMES + frame] = power.max(1e-10).log10();
            }
        }
        let loudest = features.iter().copied().fold(f32::MIN, f32::max);
        for feature in features {
            *feature = (feature.max(loudest - 8.0) + 4.0) / 4.0;
        }
    }

    fn power(&mut self, samples: &[f32], frame: usize) {
        // The frame's middle is at `frame * HOP`.
        for (place, (input, weight)) in self.frame.iter_mut().zip(&self.hann).enumerate() {
            *input = samples[mirrored(frame * HOP + place, samples.len())] * weight;
        }
        // Errors are lengths that do not fit, and these are the planner's own.
        let done = self.fft.process_with_scratch(&mut self.frame, &mut self.spectrum, &mut self.scratch);
        debug_assert!(done.is_ok());
        self.powers.clear();
        self.powers.extend(self.spectrum.iter().map(Complex::norm_sqr));
    }
}

/// Where a place lies that is counted from `FFT / 2` before the first of so many samples.
fn mirrored(place: usize, length: usize) -> usize {
    let index = place.abs_diff(FFT / 2);
    if place > FFT / 2 && index >= length { 2 * (length - 1) - index } else { index }
}

/// Mean 0, variance 1.
fn normalize(samples: &mut [f32]) {
    let length = samples.len().max(1) as f64;
    let mean = samples.iter().map(|&sample| f64::from(sample)).sum::<f64>() / length;
    let variance = samples.iter().map(|&sample| (f64::from(sample) - mean).powi(2)).sum::<f64>() / length;
    let scale = 1.0 / (variance + 1e-7).sqrt();
    for sample in samples {
        *sample = single((f64::from(*sample) - mean) * scale);
    }
}

fn hann(place: usize) -> f32 {
    single(0.5 - 0.5 * (2.0 * PI * place as f64 / FFT as f64).cos())
}

/// Triangles between the corners of the mel scale, each of area 1 in Hz.
fn bands() -> Vec<Band> {
    let most = mel_of(RATE / 2.0);
    let corners: Vec<f64> = (0..BANDS + 2).map(|corner| hertz_of(most * corner as f64 / (BANDS + 1) as f64)).collect();
    corners.windows(3).map(|corners| band(corners[0], corners[1], corners[2])).collect()
}

fn band(from: f64, middle: f64, to: f64) -> Band {
    let weight = |bin: usize| {
        let hertz = bin as f64 * RATE / FFT as f64;
        let (up, down) = ((hertz - from) / (middle - from), (to - hertz) / (to - middle));
        up.min(down).max(0.0) * 2.0 / (to - from)
    };
    let bins = FFT / 2 + 1;
    let first = (0..bins).find(|&bin| weight(bin) > 0.0).unwrap_or(bins);
    let weights = (first..bins).map(weight).take_while(|weight| *weight > 0.0).map(single).collect();
    Band { first, weights }
}

/// Slaney's scale: linear below 1 kHz, logarithmic above.
fn mel_of(hertz: f64) -> f64 {
    if hertz < 1000.0 { 3.0 * hertz / 200.0 } else { 15.0 + (hertz / 1000.0).ln() * 27.0 / 6.4_f64.ln() }
}

fn hertz_of(mel: f64) -> f64 {
    if mel < 15.0 { 200.0 * mel / 3.0 } else { 1000.0 * ((mel - 15.0) * 6.4_f64.ln() / 27.0).exp() }
}

#[expect(clippy::cast_possible_truncation, reason = "24 bits are more than a sample has")]
fn single(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
pub(super) mod tests;
