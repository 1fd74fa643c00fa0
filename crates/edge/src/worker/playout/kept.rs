//! What was sent last of an utterance, for a step back.

use std::collections::VecDeque;

use super::MAX_SPARE;

/// A step back goes at most 300 ms back, to the frame border before: 320 ms. Of 20 ms frames these are 16, of ~120 bytes
/// 2 kB, and 20 kB if each had the largest size of an Opus frame.
const KEPT_SAMPLES: u64 = 16 * 960;

/// Of shorter frames so many, whatever they last.
const MAX_KEPT: usize = 32;

#[derive(Debug)]
struct Frame {
    /// Item sample.
    first: u64,
    samples: u32,
    payload: Vec<u8>,
}

/// The frames, and which of them plays again next.
#[derive(Debug, Default)]
pub(super) struct Kept {
    frames: VecDeque<Frame>,
    samples: u64,
    again: Option<usize>,
}

impl Kept {
    /// Keeps a frame that is sent, beginning at item sample `first`, in a buffer of one that is not needed any more.
    pub(super) fn keep(&mut self, first: u64, samples: u32, payload: &[u8], spare: &mut Vec<Vec<u8>>) {
        let mut buffer = None;
        while self.samples + u64::from(samples) > KEPT_SAMPLES || self.frames.len() == MAX_KEPT {
            let Some(oldest) = self.frames.pop_front() else { break };
            self.samples -= u64::from(oldest.samples);
            if let Some(more) = buffer.replace(oldest.payload)
                && spare.len() < MAX_SPARE
            {
                spare.push(more);
            }
        }
        let mut buffer = buffer.or_else(|| spare.pop()).unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(payload);
        self.samples += u64::from(samples);
        self.frames.push_back(Frame { first, samples, payload: buffer });
    }

    /// What plays next is the newest frame that begins at or before `from`, else the oldest.
    pub(super) fn step_back(&mut self, from: u64) {
        let until = self.frames.iter().position(|frame| frame.first > from).unwrap_or(self.frames.len());
        self.again = (!self.frames.is_empty()).then(|| until.saturating_sub(1));
    }

    /// Something is to be played again.
    pub(super) fn is_waiting(&self) -> bool {
        self.again.is_some()
    }

    /// Copies the next frame that is played again to `payload`; its samples.
    pub(super) fn next(&mut self, payload: &mut Vec<u8>) -> Option<u32> {
        let at = self.again?;
        let Some(frame) = self.frames.get(at) else {
            self.again = None;
            return None;
        };
        self.again = (at + 1 < self.frames.len()).then_some(at + 1);
        payload.clear();
        payload.extend_from_slice(&frame.payload);
        Some(frame.samples)
    }

    /// The buffers, which are not needed any more.
    pub(super) fn into_buffers(self) -> impl Iterator<Item = Vec<u8>> {
        self.frames.into_iter().map(|frame| frame.payload)
    }
}
