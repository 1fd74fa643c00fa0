//! Noise suppression and automatic gain, as options: between the decoder and the backend.
//!
//! **The detector hears what suppression makes, but not the gain.** Behind suppression it takes a tenth of the noise for speech
//! that it takes otherwise, for two points more of soft speech missed; gain makes it worse (`tests/audio/run` measures both,
//! docs/AUDIO.md has the table). So pauses and turns are 10 ms later where noise is suppressed, on one clock with what the backend hears.
//!
//! [`Enhancer::suppress`] and [`Enhancer::amplify`] take pieces of any length, in order, and change them in place: as many samples come out as go in.
//! Suppression works in frames of 10 ms at 48 kHz that overlap by one, so what it gives is 10 ms behind what it got; pieces that
//! are no multiple of 10 ms (ptime of 2.5 or 5 ms) add what is missing to the next frame, less than 10 ms more. The media clock is that of the
//! input: sound lies 10 ms later on it. Gain adds no delay.
//!
//! Suppression's FFT looks its tables up behind a process-wide lock for reading: an option's price, and it is off by default.

use std::collections::VecDeque;
use std::fmt;

use nnnoiseless::DenoiseState;

/// What is done to the user's audio before a backend gets it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EnhanceConfig {
    /// Suppresses noise by a small model (RNNoise). Costs more CPU than all else that is done for the user's audio, and 10 ms
    /// of delay on the way to the backend. Defaults to false.
    pub noise_suppression: bool,
    /// Brings the user's speech to -23 dBFS, by -6 to +18 dB. Defaults to false.
    pub auto_gain: bool,
}

/// Of the model: 10 ms at [`SUPPRESSION_RATE`].
const FRAME: usize = DenoiseState::FRAME_SIZE;

/// The rate of PCM that noise suppression takes.
pub const SUPPRESSION_RATE: u32 = 48_000;

/// One stream's enhancement.
#[derive(Debug)]
pub struct Enhancer {
    suppressor: Option<Suppressor>,
    gain: Option<Gain>,
}

impl Enhancer {
    /// For PCM at `rate`; noise suppression is left out unless that is [`SUPPRESSION_RATE`]. `None`: nothing is to be done.
    #[must_use]
    pub fn new(config: EnhanceConfig, rate: u32) -> Option<Self> {
        let suppressor = (config.noise_suppression && rate == SUPPRESSION_RATE).then(Suppressor::new);
        let gain = config.auto_gain.then(|| Gain::new(rate));
        (suppressor.is_some() || gain.is_some()).then_some(Self { suppressor, gain })
    }

    /// Takes noise away, if it is to.
    pub fn suppress(&mut self, pcm: &mut [i16]) {
        if let Some(suppressor) = &mut self.suppressor {
            suppressor.process(pcm);
        }
    }

    /// Brings speech to its level, if it is to.
    pub fn amplify(&mut self, pcm: &mut [i16]) {
        if let Some(gain) = &mut self.gain {
            gain.process(pcm);
        }
    }
}

struct Suppressor {
    state: Box<DenoiseState<'static>>,
    /// Less than a frame, between calls.
    input: Vec<f32>,
    /// Made and not given yet: less than a frame, between calls.
    output: VecDeque<i16>,
    frame: [f32; FRAME],
}

impl Suppressor {
    fn new() -> Self {
        Self {
            state: DenoiseState::new(),
            input: Vec::with_capacity(3 * FRAME),
            output: VecDeque::with_capacity(3 * FRAME),
            frame: [0.0; FRAME],
        }
    }

    fn process(&mut self, pcm: &mut [i16]) {
        for part in pcm.chunks_mut(2 * FRAME) {
            self.input.extend(part.iter().map(|&sample| f32::from(sample)));
            let whole = self.input.len() / FRAME * FRAME;
            for frame in self.input[..whole].chunks_exact(FRAME) {
                self.state.process_frame(&mut self.frame, frame);
                self.output.extend(self.frame.iter().map(|&sample| to_i16(sample)));
            }
            self.input.drain(..whole);
            // Short of samples only until the queue holds the rest of a frame.
            let missing = part.len().saturating_sub(self.output.len());
            let (silent, part) = part.split_at_mut(missing);
            silent.fill(0);
            let length = part.len();
            for (sample, made) in part.iter_mut().zip(self.output.drain(..length)) {
                *sample = made;
            }
        }
    }
}

impl fmt::Debug for Suppressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suppressor").field("waiting", &self.input.len()).finish_non_exhaustive()
    }
}

/// Mean power that speech is brought to: -23 dBFS.
const TARGET: f32 = 5_381_000.0;
/// Gain as amplitude: -6 to +18 dB. Less would not be heard, more would be noise.
const GAINS: std::ops::RangeInclusive<f32> = 0.5..=8.0;
/// Power below which nothing is speech: -60 dBFS.
const SOFTEST: f32 = 1074.0;
/// Speech lies this far above the quiet: 10 dB.
const ABOVE: f32 = 10.0;
/// The quiet rises by 1.3 dB a second, so that speech of some seconds does not become it.
const RISE: f32 = 1.003;
/// Part of a block in the level of speech: a second of speech is remembered.
const MEMORY: f32 = 0.01;
/// A block moves the gain by no more than this: 6 dB a second.
const SLEW: f32 = 1.007;
/// No sample gets beyond this: 1 dB below full scale.
const PEAK: f32 = 29_200.0;

/// Follows the level of speech and nothing else: in silence and noise the gain stands still.
#[derive(Debug)]
struct Gain {
    /// 10 ms.
    block: usize,
    quiet: f32,
    /// Mean power of speech; 0: none so far.
    level: f32,
    gain: f32,
}

impl Gain {
    fn new(rate: u32) -> Self {
        Self { block: (rate / 100) as usize, quiet: f32::MAX, level: 0.0, gain: 1.0 }
    }

    fn process(&mut self, pcm: &mut [i16]) {
        for block in pcm.chunks_mut(self.block) {
            let from = self.gain;
            self.follow(block);
            let peak = block.iter().map(|sample| f32::from(*sample).abs()).fold(1.0, f32::max);
            // Limited as a whole: a gain that fell within the block would come too late for its first samples.
            let (from, to) = (from.min(PEAK / peak), self.gain.min(PEAK / peak));
            self.gain = to;
            let step = (to - from) / block.len() as f32;
            let mut gain = from;
            for sample in block {
                gain += step;
                *sample = to_i16(f32::from(*sample) * gain);
            }
        }
    }

    fn follow(&mut self, block: &[i16]) {
        let power = block.iter().map(|&sample| f32::from(sample).powi(2)).sum::<f32>() / block.len() as f32;
        self.quiet = power.max(1.0).min(self.quiet * RISE);
        if power < SOFTEST || power < self.quiet * ABOVE {
            return;
        }
        self.level = if self.level > 0.0 { self.level + MEMORY * (power - self.level) } else { power };
        let wanted = (TARGET / self.level).sqrt().clamp(*GAINS.start(), *GAINS.end());
        self.gain = wanted.clamp(self.gain / SLEW, self.gain * SLEW);
    }
}

fn to_i16(sample: f32) -> i16 {
    #[expect(clippy::cast_possible_truncation, reason = "clamped to what an i16 holds")]
    let sample = sample.round().clamp(-32_768.0, 32_767.0) as i16;
    sample
}

#[cfg(test)]
mod tests {
    use super::{EnhanceConfig, Enhancer};
    use crate::babble::speech;

    const SUPPRESSION: EnhanceConfig = EnhanceConfig { noise_suppression: true, auto_gain: false };
    const GAIN: EnhanceConfig = EnhanceConfig { noise_suppression: false, auto_gain: true };

    fn enhanced(config: EnhanceConfig, rate: u32, pcm: &[i16], piece: usize) -> Vec<i16> {
        let mut pcm = pcm.to_vec();
        let mut enhancer = Enhancer::new(config, rate).unwrap();
        for piece in pcm.chunks_mut(piece) {
            enhancer.suppress(piece);
            enhancer.amplify(piece);
        }
        pcm
    }

    fn decibels(pcm: &[i16]) -> f32 {
        let power = pcm.iter().map(|&sample| f32::from(sample).powi(2)).sum::<f32>() / pcm.len() as f32;
        10.0 * (power.max(1e-3) / 32_768.0_f32.powi(2)).log10()
    }

    fn scaled(pcm: &[i16], wanted: f32) -> Vec<i16> {
        let gain = 10_f32.powf((wanted - decibels(pcm)) / 20.0);
        pcm.iter().map(|&sample| super::to_i16(f32::from(sample) * gain)).collect()
    }

    /// Syllables with pauses of a third between them, as speech has.
    fn sentence(rate: u32, ms: usize) -> Vec<i16> {
        let mut pcm = speech(rate, ms, 3);
        let part = rate as usize / 2;
        pcm.chunks_mut(part).for_each(|word| word[part * 2 / 3..].fill(0));
        pcm
    }

    fn noise(length: usize) -> Vec<i16> {
        let mut state = 1_u32;
        let sample = |_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            i16::try_from(state % 2001).unwrap() - 1000
        };
        (0..length).map(sample).collect()
    }

    #[test]
    fn nothing_wanted_is_nothing_done_and_suppression_needs_its_rate() {
        assert!(Enhancer::new(EnhanceConfig::default(), 48_000).is_none());
        assert!(Enhancer::new(SUPPRESSION, 16_000).is_none());
        assert!(Enhancer::new(GAIN, 16_000).is_some());
    }

    #[test]
    fn steady_noise_is_suppressed() {
        let noise = noise(48_000 * 4);
        let out = enhanced(SUPPRESSION, 48_000, &noise, 960);
        let (before, after) = (decibels(&noise[96_000..]), decibels(&out[96_000..]));
        assert!(after < before - 10.0, "{before} dBFS became {after}");
    }

    #[test]
    fn suppressed_speech_is_speech_10_ms_later_at_every_ptime() {
        let said = sentence(48_000, 3000);
        let likeness = |out: &[i16], late: usize| {
            let pairs = || said.iter().zip(&out[late..]).skip(48_000);
            let dot: f64 = pairs().map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
            let power = |pcm: &[i16]| pcm[48_000..].iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
            dot / (power(&said) * power(out)).sqrt()
        };
        for (ptime, late) in [(960, 480), (480, 480), (2880, 480), (5760, 480), (120, 840), (240, 720)] {
            let out = enhanced(SUPPRESSION, 48_000, &said, ptime);
            assert_eq!(out.len(), said.len());
            let best = likeness(&out, late);
            assert!(best > 0.6, "ptime {ptime}: {best} at {late}");
            assert!(likeness(&out, late - 120) < best && likeness(&out, late + 120) < best, "ptime {ptime}");
        }
    }

    #[test]
    fn soft_speech_becomes_as_loud_as_wanted_and_loud_speech_too() {
        for (level, wanted) in [(-38.0, -23.0), (-18.0, -23.0), (-50.0, -32.0)] {
            let said = scaled(&sentence(16_000, 20_000), level);
            let out = enhanced(GAIN, 16_000, &said, 320);
            // The pauses are a third of it: 1.8 dB.
            let heard = decibels(&out[16_000 * 15..]) + 1.8;
            assert!((heard - wanted).abs() < 3.0, "{level} dBFS became {heard}, not {wanted}");
        }
    }

    #[test]
    fn noise_alone_moves_no_gain() {
        let noise = scaled(&noise(16_000 * 20), -50.0);
        assert_eq!(enhanced(GAIN, 16_000, &noise, 320), noise);
    }

    #[test]
    fn a_shout_after_soft_speech_is_not_clipped() {
        let mut said = scaled(&sentence(16_000, 10_000), -45.0);
        let calm = said.len();
        said.extend(scaled(&sentence(16_000, 1000), -12.0));
        let out = enhanced(GAIN, 16_000, &said, 320);
        let loudest = out[calm..].iter().map(|sample| sample.unsigned_abs()).max().unwrap();
        assert!(loudest <= 29_201, "{loudest}");
    }
}
