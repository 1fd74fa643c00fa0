//! How loud a reply is, frame by frame: where its sound may be cut or taken up again, and how much of a stretch is speech.
//!
//! One byte per 20 ms of the item. Frames of samples are measured; of a packet that passes through coded, its size stands for the
//! loudness: a variable bitrate spends little on silence.

use std::collections::VecDeque;

/// 48 kHz samples of a frame.
const FRAME: u64 = 960;

/// Frames kept: 20 minutes of one item, 60 kB. A reply without an end keeps its last ones.
const MAX_FRAMES: usize = 60_000;

/// This much below the loudest frame of the item, in dB, is no speech.
const DEPTH: u8 = 35;

/// Nor is this much above one step of a sample, in dB: the noise of a coder.
const FLOOR: u8 = 24;

/// The loudness of one item, from its begin.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contour {
    /// In dB over one step of a sample.
    levels: VecDeque<u8>,
    /// Frames before the first of `levels`, and how many of them were speech.
    dropped: u64,
    dropped_speech: u64,
    loudest: u8,
    /// Of the frame that is not whole: its sum of squares, its samples, and how many make a frame.
    sum: f64,
    count: usize,
    /// Of the packets that make no frame yet: their bytes and 48 kHz samples.
    bytes: u64,
    samples: u64,
}

impl Contour {
    /// Samples that follow, `frame` of them to 20 ms.
    pub(crate) fn push(&mut self, pcm: &[i16], frame: usize) {
        let mut rest = pcm;
        while !rest.is_empty() {
            let (part, next) = rest.split_at(rest.len().min(frame.saturating_sub(self.count).max(1)));
            self.sum += part.iter().map(|&sample| f64::from(sample).powi(2)).sum::<f64>();
            self.count += part.len();
            rest = next;
            if self.count >= frame {
                self.close();
            }
        }
    }

    /// A coded packet of `samples` at 48 kHz.
    pub(crate) fn push_packet(&mut self, bytes: usize, samples: u32) {
        self.bytes += bytes as u64;
        self.samples += u64::from(samples);
        let frames = self.samples / FRAME;
        if frames == 0 {
            return;
        }
        let per_frame = self.bytes / frames;
        // 3 bytes are silence, 20 a quiet frame, 60 a loud one: it only has to be in order.
        let level = if per_frame <= 3 { 0 } else { u8::try_from(30 + per_frame / 2).unwrap_or(96).min(96) };
        for _ in 0..frames {
            self.add(level);
        }
        self.samples -= frames * FRAME;
        self.bytes = 0;
    }

    /// 48 kHz samples of speech before the item sample `to`, in whole frames.
    pub(crate) fn speech(&self, to: u64) -> u64 {
        let least = self.least();
        let wanted = usize::try_from((to / FRAME).saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        let speech = self.levels.iter().take(wanted).filter(|level| **level >= least).count();
        (self.dropped_speech + u64::try_from(speech).unwrap_or(0)) * FRAME
    }

    /// The frame border in `from..=to` with the least sound on both its sides, the last one of equals. `None`: there is no
    /// border of which both sides are known.
    pub(crate) fn quietest(&self, from: u64, to: u64) -> Option<u64> {
        let level = |frame: u64| {
            let index = usize::try_from(frame.checked_sub(self.dropped)?).ok()?;
            self.levels.get(index).copied()
        };
        let borders = from.div_ceil(FRAME)..=to / FRAME;
        let sound = |border: u64| Some((u16::from(level(border.checked_sub(1)?)?) + u16::from(level(border)?), border));
        let (_, border) = borders.rev().filter_map(sound).min_by_key(|(sound, _)| *sound)?;
        Some(border * FRAME)
    }

    fn least(&self) -> u8 {
        self.loudest.saturating_sub(DEPTH).max(FLOOR)
    }

    fn close(&mut self) {
        #[expect(clippy::cast_precision_loss, reason = "the samples of a frame")]
        let mean = self.sum / self.count.max(1) as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 91: a float cast saturates")]
        self.add((10.0 * mean.max(1.0).log10()) as u8);
        self.sum = 0.0;
        self.count = 0;
    }

    fn add(&mut self, level: u8) {
        if self.levels.len() == MAX_FRAMES
            && let Some(first) = self.levels.pop_front()
        {
            self.dropped += 1;
            self.dropped_speech += u64::from(first >= self.least());
        }
        self.loudest = self.loudest.max(level);
        self.levels.push_back(level);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(samples: usize, amplitude: i16) -> Vec<i16> {
        (0..samples).map(|n| if n % 40 < 20 { amplitude } else { -amplitude }).collect()
    }

    #[test]
    fn speech_is_what_is_loud_enough_and_pauses_are_none() {
        let mut contour = Contour::default();
        for (amplitude, frames) in [(0, 10), (8000, 20), (30, 10), (4000, 5)] {
            // In pieces that are no frames.
            for piece in tone(320 * frames, amplitude).chunks(111) {
                contour.push(piece, 320);
            }
        }
        assert_eq!(contour.speech(10 * FRAME), 0);
        assert_eq!(contour.speech(30 * FRAME), 20 * FRAME);
        assert_eq!(contour.speech(40 * FRAME), 20 * FRAME);
        assert_eq!(contour.speech(u64::MAX), 25 * FRAME);
    }

    #[test]
    fn the_quietest_border_lies_in_the_pause() {
        let mut contour = Contour::default();
        for (amplitude, frames) in [(8000, 10), (20, 3), (8000, 10)] {
            contour.push(&tone(480 * frames, amplitude), 480);
        }
        assert_eq!(contour.quietest(5 * FRAME, 20 * FRAME), Some(12 * FRAME));
        assert_eq!(contour.quietest(14 * FRAME, 20 * FRAME), Some(20 * FRAME));
        assert_eq!(contour.quietest(11 * FRAME + 1, 11 * FRAME + 2), None);
        assert_eq!(contour.quietest(23 * FRAME, 30 * FRAME), None);
    }

    #[test]
    fn of_packets_the_small_ones_are_quiet() {
        let mut contour = Contour::default();
        for bytes in [60, 62, 3, 3, 61, 58] {
            contour.push_packet(bytes, 960);
        }
        contour.push_packet(6, 1920);
        assert_eq!(contour.quietest(FRAME, 5 * FRAME), Some(3 * FRAME));
        assert_eq!(contour.speech(u64::MAX), 4 * FRAME);
    }

    #[test]
    fn a_reply_without_an_end_keeps_its_count() {
        let mut contour = Contour::default();
        for _ in 0..MAX_FRAMES + 500 {
            contour.push_packet(60, 960);
        }
        assert_eq!(contour.levels.len(), MAX_FRAMES);
        assert_eq!(contour.speech(u64::MAX), (MAX_FRAMES as u64 + 500) * FRAME);
    }
}
