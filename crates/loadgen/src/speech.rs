//! Recordings, and what tells one from another: the best normalized correlation per window.
//!
//! PCM here is mono `f32` at [`RATE`].

use std::path::Path;

/// Samples per second of every recording compared here: wide band, as far as the codecs carry speech.
pub const RATE: usize = 16_000;

/// Half a second: the window in which the measure is taken.
const WINDOW: usize = RATE / 2;
/// 60 ms: how far a window may have slipped against its neighbors.
const REACH: isize = 16 * 60;
/// 150 ms: how far the begins of two recordings may differ.
const SLIP: isize = 16 * 150;
/// RMS of 10 ms from which it counts as sound.
const LOUD: f32 = 0.01;

/// Why a recording was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No WAV file.
    #[error("{path}: {source}")]
    Wav {
        /// Which file.
        path: String,
        /// Why.
        source: hound::Error,
    },
    /// Another format.
    #[error("{path}: needs 16-bit mono at 48000 Hz, has {channels} channels at {rate} Hz")]
    Format {
        /// Which file.
        path: String,
        /// Its channels.
        channels: u16,
        /// Its rate.
        rate: u32,
    },
}

/// Reads a 16-bit mono WAV file at 48 kHz.
///
/// # Errors
/// The file and what is wrong with it.
pub fn read_wav(path: &Path) -> Result<Vec<i16>, ReadError> {
    let name = || path.display().to_string();
    let wav = |source| ReadError::Wav { path: name(), source };
    let mut reader = hound::WavReader::open(path).map_err(wav)?;
    let spec = reader.spec();
    if (spec.channels, spec.sample_rate, spec.bits_per_sample) != (1, 48_000, 16) {
        return Err(ReadError::Format { path: name(), channels: spec.channels, rate: spec.sample_rate });
    }
    reader.samples::<i16>().collect::<Result<_, _>>().map_err(wav)
}

/// Averages `factor` samples into one.
#[must_use]
pub fn decimate(pcm: &[i16], factor: usize) -> Vec<f32> {
    pcm.chunks_exact(factor)
        .map(|chunk| chunk.iter().map(|&sample| f32::from(sample)).sum::<f32>() / (32768.0 * chunk.len() as f32))
        .collect()
}

/// First to last 10 ms with sound, in samples; `None` for silence.
#[must_use]
pub fn sounding(pcm: &[f32]) -> Option<std::ops::Range<usize>> {
    const STEP: usize = RATE / 100;
    let loud = |chunk: &[f32]| (chunk.iter().map(|sample| sample * sample).sum::<f32>() / STEP as f32).sqrt() >= LOUD;
    let first = pcm.chunks_exact(STEP).position(loud)?;
    let last = pcm.chunks_exact(STEP).rposition(loud)?;
    Some(first * STEP..(last + 1) * STEP)
}

/// Median over the windows of `said` of the best normalized correlation with `heard` within +-60 ms. Both begin with sound,
/// within 150 ms of one another: a soft first sound may lie below what counts as sound on one side.
#[must_use]
pub fn likeness(heard: &[f32], said: &[f32]) -> f32 {
    let offset = (-SLIP..=SLIP)
        .step_by(4)
        .map(|lag| (lag, correlation(heard, said, lag)))
        .max_by(|(_, a), (_, b)| a.total_cmp(b))
        .map_or(0, |(lag, _)| lag);
    let length = heard.len().min(said.len());
    let window = |n: usize| {
        let at = n * WINDOW;
        let reach = offset - REACH..=offset + REACH;
        reach.map(|lag| correlation(heard, &said[at..][..WINDOW], lag + signed(at))).fold(0.0, f32::max)
    };
    let mut found: Vec<f32> = (0..length / WINDOW).map(window).collect();
    found.sort_by(f32::total_cmp);
    match found.len() {
        0 => 0.0,
        even if even % 2 == 0 => f32::midpoint(found[even / 2 - 1], found[even / 2]),
        odd => found[odd / 2],
    }
}

/// Of `said` with what lies `lag` samples into `heard`; what lies outside of it does not count.
fn correlation(heard: &[f32], said: &[f32], lag: isize) -> f32 {
    let skipped = lag.min(0).unsigned_abs();
    let (Some(said), Some(heard)) = (said.get(skipped..), heard.get(lag.max(0).unsigned_abs()..)) else { return 0.0 };
    normalized(heard, said)
}

fn signed(at: usize) -> isize {
    isize::try_from(at).unwrap_or(isize::MAX)
}

fn normalized(a: &[f32], b: &[f32]) -> f32 {
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        ab += x * y;
        aa += x * x;
        bb += y * y;
    }
    if aa > 0.0 && bb > 0.0 { ab / (aa * bb).sqrt() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise that differs by seed.
    fn noise(seed: u32, samples: usize) -> Vec<f32> {
        let mut state = seed;
        (0..samples)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 16) as f32 / 65536.0 - 0.5
            })
            .collect()
    }

    #[test]
    fn a_recording_is_like_itself_when_shifted_and_scaled() {
        let said = noise(1, RATE * 2);
        let heard: Vec<f32> = [0.0; 200].into_iter().chain(said.iter().map(|sample| sample * 0.3)).collect();
        assert!(likeness(&heard, &said) > 0.99);
    }

    #[test]
    fn a_recording_is_unlike_another() {
        assert!(likeness(&noise(1, RATE * 2), &noise(2, RATE * 2)) < 0.2);
    }

    #[test]
    fn silence_is_like_nothing() {
        assert_eq!(likeness(&vec![0.0; RATE], &noise(1, RATE)), 0.0);
        assert_eq!(sounding(&vec![0.0; RATE]), None);
    }

    #[test]
    fn sound_is_found_between_silences() {
        let mut pcm = vec![0.0; RATE];
        pcm.extend(noise(3, RATE));
        pcm.extend(vec![0.0; RATE]);
        assert_eq!(sounding(&pcm), Some(RATE..2 * RATE));
    }
}
