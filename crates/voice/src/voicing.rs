//! Which frames of the user's are voiced, where a run of them began, and whether there is any sound at all.
//!
//! The detector remembers: it still says speech up to 100 ms after the last sound. A frame more than 26 dB below the
//! loudest of the last half second is not itself voiced. It is slow as well: the soft first sounds of a word are not
//! speech to it yet. What led up to the first voiced frame, above the quiet before it, belongs to the onset. While they last
//! they are [`Voicing::stirring`]: too little for a turn, enough for a guess that costs nothing when it is wrong.

use crate::vad::FRAME_MEDIA;

/// Frames of speech that make an onset.
pub(crate) const ONSET: u32 = 3;
/// How far before its first voiced frame an onset may reach back: 10 frames, a soft syllable.
const ATTACK: u64 = 10 * FRAME_MEDIA;
/// Part of the loudest that is voiced still.
const FLOOR: f32 = 1.0 / 20.0;
/// Of the loudest, per frame of 16 ms: 8 dB in 480 ms.
const DECAY: f32 = 0.97;
/// Of the quietest: 5 dB in 480 ms, so that speech does not become the quiet it is held against.
const RISE: f32 = 1.02;
const ABOVE: f32 = 2.0;
/// Of the quietest, 12 dB: what rises so far over it has begun just now.
const STIRS: f32 = 4.0;
/// -60 dBFS: coding noise in digital silence is no attack.
const SOFTEST: f32 = 33.0;
/// Louder than this is not digital zero, coded and decoded.
const ZERO: f32 = 1.0;

/// Follows one stream.
#[derive(Debug)]
pub(crate) struct Voicing {
    /// Voiced frames in a row.
    pub(crate) run: u32,
    /// Where they began.
    pub(crate) run_from: u64,
    /// Frames in a row that could be the beginning of speech.
    pub(crate) stirring: u32,
    /// First and last voiced sample since the last reset, for manual turns.
    pub(crate) span: Option<(u64, u64)>,
    /// Frames of digital zero in a row.
    pub(crate) zeros: u64,
    /// Loudest recent frame, decaying.
    peak: f32,
    /// Quietest recent frame, rising.
    quiet: f32,
    /// Where the frames began that lie above [`Voicing::quiet`] without a break.
    above_from: Option<u64>,
}

impl Voicing {
    pub(crate) fn new() -> Self {
        Self { run: 0, run_from: 0, stirring: 0, span: None, zeros: 0, peak: 0.0, quiet: f32::MAX, above_from: None }
    }

    /// What goes on has no onset.
    pub(crate) fn forget_run(&mut self) {
        self.run = 0;
        self.stirring = 0;
    }

    /// One frame that ends at media time `end`; `speech`: the detector says so, `perhaps`: it nearly does. Whether it is voiced.
    pub(crate) fn frame(&mut self, end: u64, speech: bool, perhaps: bool, rms: f32) -> bool {
        self.peak = rms.max(self.peak * DECAY);
        let voiced = speech && rms > self.peak * FLOOR;
        let start = end.saturating_sub(FRAME_MEDIA);
        self.quiet = rms.min(self.quiet * RISE + 1.0);
        self.above_from = (rms > self.quiet * ABOVE + SOFTEST).then(|| self.above_from.unwrap_or(start));
        let stirs = perhaps && rms > self.quiet * STIRS + SOFTEST;
        self.stirring = if stirs { self.stirring + 1 } else { 0 };
        if voiced {
            if self.run == 0 {
                let attack = self.above_from.unwrap_or(start).max(start.saturating_sub(ATTACK));
                // It does not reach into speech that counted already.
                self.run_from = attack.max(self.span.map_or(0, |(_, to)| to));
            }
            self.run += 1;
        } else {
            self.run = 0;
        }
        if voiced && self.run >= ONSET {
            self.span = Some((self.span.map_or(self.run_from, |(from, _)| from), end));
        }
        self.zeros = if rms > ZERO { 0 } else { self.zeros + 1 };
        voiced
    }
}
