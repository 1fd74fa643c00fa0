//! Voice activity: one speech probability for each 16 ms of 16 kHz PCM, by a small model inside `earshot`.
//!
//! The detector sees 48 ms at a time, so its answer for a frame also rests on the two frames before it. Babble of many voices
//! is speech to it as to every detector.

use std::fmt;

/// Samples of one frame at 16 kHz.
pub const FRAME: usize = 256;

/// One frame in 48 kHz media samples: 16 ms.
pub const FRAME_MEDIA: u64 = 768;

/// The PCM of the detector.
pub const RATE: u32 = 16_000;

/// One stream's detector, which cuts PCM into frames.
pub struct Vad {
    detector: Box<earshot::Detector>,
    /// Samples that do not fill a frame, at most [`FRAME`] - 1.
    partial: [i16; FRAME],
    filled: usize,
}

impl Vad {
    /// Without a past.
    #[must_use]
    pub fn new() -> Self {
        Self { detector: earshot::Detector::default_boxed(), partial: [0; FRAME], filled: 0 }
    }

    /// Takes samples up to the end of the frame they complete; how many it took and, for a complete frame, its probability.
    pub fn push(&mut self, pcm: &[i16]) -> (usize, Option<f32>) {
        let taken = pcm.len().min(FRAME - self.filled);
        self.partial[self.filled..self.filled + taken].copy_from_slice(&pcm[..taken]);
        self.filled += taken;
        if self.filled < FRAME {
            return (taken, None);
        }
        self.filled = 0;
        (taken, Some(self.detector.predict_i16(&self.partial)))
    }

    /// How loud the last complete frame was.
    #[must_use]
    pub fn rms(&self) -> f32 {
        let power: f32 = self.partial.iter().map(|&sample| f32::from(sample).powi(2)).sum();
        #[expect(clippy::cast_precision_loss, reason = "256")]
        let mean = power / FRAME as f32;
        mean.sqrt()
    }

    /// The last complete frame.
    pub(crate) fn frame(&self) -> &[i16; FRAME] {
        &self.partial
    }

    /// Drops an incomplete frame: the clock jumped.
    pub fn discard_partial(&mut self) {
        self.filled = 0;
    }
}

impl Default for Vad {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Vad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vad").field("filled", &self.filled).finish_non_exhaustive()
    }
}
