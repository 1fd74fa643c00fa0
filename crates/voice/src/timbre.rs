//! Whether a sound could be part of a word, from one frame of 16 ms.
//!
//! The vowels that carry a word are voiced, so they repeat with the pitch, and they come from an open mouth, so much of their
//! power lies above the lowest harmonics. A hum ("mm-hm") repeats and is closed; a cough, a click and breath do not repeat. Not every
//! frame of a word passes, and it need not: the gate asks for a few.
//!
//! Cost: 16,000 multiplications per frame looked at, about 10 us; it is asked for only while something may be interrupted.

use crate::vad::FRAME;

/// Samples at 8 kHz of two frames: enough for two periods of 63 Hz.
const WINDOW: usize = FRAME;
/// Periods of 400 down to 63 Hz, at 8 kHz.
const LAGS: std::ops::RangeInclusive<usize> = 20..=127;
/// From this normalized autocorrelation on a sound repeats; noise reaches 0.3.
const PERIODIC: f32 = 0.5;
/// Power of the difference of neighbours at 4 kHz, by power: 0.35 is that of a tone of 380 Hz.
const OPEN_LOW: f32 = 0.35;
/// The same at 16 kHz, for vowels whose second resonance alone is high ("ee"): that of a tone of 510 Hz.
const OPEN_HIGH: f32 = 0.04;

/// Looks at the frames of one stream.
#[derive(Debug)]
pub(crate) struct Timbre {
    /// The last two frames at 8 kHz.
    past: [f32; WINDOW],
    /// Power of the difference of neighbours in frames without a voice, rising slowly, falling at once.
    hiss: Option<f32>,
}

impl Timbre {
    pub(crate) fn new() -> Self {
        Self { past: [0.0; WINDOW], hiss: None }
    }

    /// The next frame; `look`: whether to look at it. Whether it could be part of a word.
    pub(crate) fn frame(&mut self, pcm: &[i16; FRAME], look: bool) -> bool {
        self.past.copy_within(WINDOW / 2.., 0);
        for (half, pair) in self.past[WINDOW / 2..].iter_mut().zip(pcm.chunks_exact(2)) {
            *half = (f32::from(pair[0]) + f32::from(pair[1])) / 2.0;
        }
        let difference = change(pcm.iter().map(|&sample| f32::from(sample)));
        if !look {
            self.hiss = Some(self.hiss.map_or(difference, |hiss| difference.min(hiss.mul_add(1.05, 1.0))));
            return false;
        }
        self.is_open(pcm, difference) && self.is_periodic()
    }

    fn is_open(&self, pcm: &[i16; FRAME], difference: f32) -> bool {
        let power: f32 = pcm.iter().map(|&sample| f32::from(sample).powi(2)).sum();
        let quarter =
            || pcm.chunks_exact(4).map(|four| four.iter().map(|&sample| f32::from(sample)).sum::<f32>() / 4.0);
        let low: f32 = quarter().map(|sample| sample * sample).sum();
        change(quarter()) > OPEN_LOW * low || difference - 1.5 * self.hiss.unwrap_or(0.0) > OPEN_HIGH * power
    }

    fn is_periodic(&self) -> bool {
        let mean = self.past.iter().sum::<f32>() / WINDOW as f32;
        let window = self.past.map(|sample| sample - mean);
        LAGS.into_iter().any(|lag| {
            let (late, early) = (&window[lag..], &window[..WINDOW - lag]);
            let (mut dot, mut a, mut b) = (0.0_f32, 1.0_f32, 1.0_f32);
            for (x, y) in late.iter().zip(early) {
                dot += x * y;
                a += x * x;
                b += y * y;
            }
            dot > 0.0 && dot * dot > PERIODIC * PERIODIC * a * b
        })
    }
}

/// Power of the difference of neighbours.
fn change(samples: impl Iterator<Item = f32>) -> f32 {
    let mut before = None;
    let step = |sample: f32| before.replace(sample).map_or(0.0, |before: f32| (sample - before).powi(2));
    samples.map(step).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of the frames could be part of a word.
    fn wordlike(pcm: &[i16]) -> (usize, usize) {
        let mut timbre = Timbre::new();
        let frames = pcm.as_chunks::<FRAME>().0;
        (frames.iter().filter(|frame| timbre.frame(frame, true)).count(), frames.len())
    }

    /// Pitch and a few weak harmonics, as through closed lips.
    fn hum(ms: usize, pitch: f32) -> Vec<i16> {
        let sample = |index: usize| {
            let phase = std::f32::consts::TAU * pitch * index as f32 / 16_000.0;
            #[expect(clippy::cast_possible_truncation, reason = "at most 6000")]
            let sample = (4000.0 * (phase.sin() + 0.35 * (2.0 * phase).sin() + 0.08 * (3.0 * phase).sin())) as i16;
            sample
        };
        (0..ms * 16).map(sample).collect()
    }

    fn noise(ms: usize, amplitude: i32) -> Vec<i16> {
        let mut state = 12_345_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            i16::try_from((i32::try_from(state >> 8).unwrap_or(0) % (2 * amplitude)) - amplitude).unwrap_or(0)
        };
        (0..ms * 16).map(|_| next()).collect()
    }

    #[test]
    fn most_frames_of_speech_could_be_words() {
        for seed in 1..20 {
            let (count, of) = wordlike(&crate::babble::speech(16_000, 1000, seed));
            println!("seed {seed}: {count} of {of}");
            assert!(count * 2 > of, "seed {seed}: {count} of {of}");
        }
    }

    #[test]
    fn a_hum_is_no_word() {
        for pitch in [90.0, 130.0, 180.0, 220.0] {
            let (count, _) = wordlike(&hum(1000, pitch));
            assert_eq!(count, 0, "{pitch} Hz");
        }
    }

    #[test]
    fn a_hum_in_noise_is_no_word() {
        let mixed: Vec<i16> = hum(1000, 150.0).iter().zip(noise(1000, 2500)).map(|(a, b)| a + b).collect();
        let mut timbre = Timbre::new();
        for frame in noise(500, 2500).as_chunks::<FRAME>().0 {
            timbre.frame(frame, false);
        }
        let count = mixed.as_chunks::<FRAME>().0.iter().filter(|frame| timbre.frame(frame, true)).count();
        assert!(count <= 3, "{count}");
    }

    #[test]
    fn noise_and_clicks_are_no_words() {
        let (count, of) = wordlike(&noise(1000, 8000));
        assert!(count * 20 <= of, "{count} of {of}");
        let mut clicks = vec![0_i16; 16_000];
        for at in [1000, 5000, 9000] {
            for (index, sample) in clicks[at..at + 80].iter_mut().enumerate() {
                *sample = if index % 2 == 0 { 12_000 } else { -12_000 } / (1 + i16::try_from(index / 8).unwrap_or(9));
            }
        }
        let (count, _) = wordlike(&clicks);
        assert!(count <= 3, "{count}");
    }
}
