//! The last audio of a turn.

use std::collections::VecDeque;

use super::Audio;

/// At most as much as a model looks at, at the rate it came in: 16-bit samples, so 250 KiB for 8 s at 16 kHz. The memory is taken
/// when the first turn begins, and touched as far as turns are long.
#[derive(Debug)]
pub(super) struct Recent {
    /// What the model looks at, in samples at 16 kHz.
    window: usize,
    rate: u32,
    samples: VecDeque<i16>,
}

impl Recent {
    /// `window`: in samples at 16 kHz.
    pub(super) fn new(window: usize) -> Self {
        Self { window, rate: 0, samples: VecDeque::new() }
    }

    /// What follows on what was heard; at another rate nothing was.
    pub(super) fn hear(&mut self, pcm: &[i16], rate: u32) {
        if rate != self.rate {
            self.rate = rate;
            self.samples = VecDeque::with_capacity(self.most());
        }
        let pcm = &pcm[pcm.len().saturating_sub(self.most())..];
        let over = (self.samples.len() + pcm.len()).saturating_sub(self.most());
        self.samples.drain(..over);
        self.samples.extend(pcm);
    }

    pub(super) fn clear(&mut self) {
        self.samples.clear();
    }

    /// All of it: a copy, as the user may go on.
    pub(super) fn audio(&self) -> Audio {
        let (first, second) = self.samples.as_slices();
        Audio { pcm: [first, second].concat(), rate: self.rate }
    }

    fn most(&self) -> usize {
        let rate = usize::try_from(self.rate).unwrap_or(0);
        self.window * rate / 16_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audio(pcm: &[i16], rate: u32) -> Audio {
        Audio { pcm: pcm.to_vec(), rate }
    }

    #[test]
    fn the_last_samples_are_kept_in_order_and_no_more() {
        let mut recent = Recent::new(5);
        recent.hear(&[1, 2, 3], 16_000);
        assert_eq!(recent.audio(), audio(&[1, 2, 3], 16_000));
        recent.hear(&[4, 5, 6, 7], 16_000);
        assert_eq!(recent.audio(), audio(&[3, 4, 5, 6, 7], 16_000));
        recent.hear(&[8, 9, 10, 11, 12, 13, 14], 16_000);
        assert_eq!(recent.audio(), audio(&[10, 11, 12, 13, 14], 16_000));
        recent.clear();
        assert_eq!(recent.audio(), audio(&[], 16_000));
        recent.hear(&[1], 16_000);
        assert_eq!(recent.audio(), audio(&[1], 16_000));
    }

    #[test]
    fn a_window_is_as_long_at_every_rate() {
        let mut recent = Recent::new(4);
        recent.hear(&[0; 100], 48_000);
        assert_eq!(recent.audio(), audio(&[0; 12], 48_000));
    }

    #[test]
    fn another_rate_begins_anew() {
        let mut recent = Recent::new(4);
        recent.hear(&[1, 2], 16_000);
        recent.hear(&[3, 4], 24_000);
        assert_eq!(recent.audio(), audio(&[3, 4], 24_000));
    }
}
