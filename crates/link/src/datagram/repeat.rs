//! Repetition: on a lossy link each frame goes twice, the second time in the datagram of the next frame of its session.
//!
//! Why: a datagram is never sent again, so a link that loses 1 % loses 1 % of all frames. Two datagrams 20 ms apart are
//! lost together in 0.01 % of all cases when losses are random, and the frame then comes 20 ms late instead of never. It
//! costs as many bytes again, which is why it runs on links that lose and never on one that is congested.

use super::{Codec, MediaUp};

/// A frame older than this is not worth its bytes: the listener's repair has concealed it. Also the longest gap between
/// two frames of a talkspurt (120 ms) that is bridged.
const WORTH_US: u64 = 120_000;

/// The last frame of one session, kept while its link repeats.
#[derive(Debug, Default)]
pub struct Previous {
    /// `None`: there is none, or it went twice.
    head: Option<Head>,
    payload: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Head {
    sent_us: u64,
    age_us: u32,
    epoch: u8,
    codec: Codec,
    marker: bool,
    seq: u16,
    rtp_timestamp: u32,
    audio_level: Option<u8>,
}

impl Previous {
    /// Keeps the frame that leaves now. Clocks are microseconds of one monotonic clock.
    pub fn keep(&mut self, now_us: u64, frame: &MediaUp<'_>) {
        let MediaUp { epoch, codec, marker, seq, rtp_timestamp, audio_level, age_us, .. } = *frame;
        self.head = Some(Head { sent_us: now_us, age_us, epoch, codec, marker, seq, rtp_timestamp, audio_level });
        self.payload.clear();
        self.payload.extend_from_slice(frame.payload);
    }

    /// The frame to repeat before `next`, if it left in an earlier datagram, is of the same talk and still worth it.
    pub fn before(&mut self, now_us: u64, next: &MediaUp<'_>) -> Option<MediaUp<'_>> {
        let head = self.head.take()?;
        let since_us = now_us.saturating_sub(head.sent_us);
        if since_us == 0 || since_us > WORTH_US || head.epoch != next.epoch {
            return None;
        }
        Some(MediaUp {
            slot: next.slot,
            epoch: head.epoch,
            codec: head.codec,
            marker: head.marker,
            seq: head.seq,
            rtp_timestamp: head.rtp_timestamp,
            audio_level: head.audio_level,
            age_us: head.age_us.saturating_add(u32::try_from(since_us).unwrap_or(u32::MAX)),
            payload: &self.payload,
        })
    }

    /// The link repeats no more: nothing is kept.
    pub fn forget(&mut self) {
        if self.payload.capacity() > 0 {
            *self = Self::default();
        }
    }
}

/// Which frames of one session came: repetitions and copies of the network's own are told from frames that are fresh.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    newest: u16,
    /// Bit n: `newest - n` came. Zero: nothing did.
    bits: u64,
}

impl Seen {
    /// Notes a frame; `false`: it came before. A number far off starts anew: the sender did.
    #[must_use]
    pub fn fresh(&mut self, seq: u16) -> bool {
        let ahead = seq.wrapping_sub(self.newest);
        let behind = self.newest.wrapping_sub(seq);
        if self.bits == 0 || (ahead >= 64 && behind >= 64) {
            *self = Self { newest: seq, bits: 1 };
            return true;
        }
        if behind < 64 {
            let bit = 1 << behind;
            let fresh = self.bits & bit == 0;
            self.bits |= bit;
            return fresh;
        }
        *self = Self { newest: seq, bits: self.bits << ahead | 1 };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Slot;

    fn frame(seq: u16, payload: &[u8]) -> MediaUp<'_> {
        MediaUp {
            slot: Slot(5),
            epoch: 1,
            codec: Codec::Opus,
            marker: false,
            seq,
            rtp_timestamp: u32::from(seq) * 960,
            audio_level: Some(30),
            age_us: 100,
            payload,
        }
    }

    #[test]
    fn the_frame_before_is_repeated_once_and_has_aged() {
        let mut previous = Previous::default();
        assert_eq!(previous.before(0, &frame(1, b"one")), None);
        previous.keep(0, &frame(1, b"one"));
        let repeated = previous.before(20_000, &frame(2, b"two"));
        assert_eq!(repeated, Some(MediaUp { age_us: 20_100, ..frame(1, b"one") }));
        assert_eq!(previous.before(40_000, &frame(3, b"three")), None);
    }

    #[test]
    fn a_frame_of_the_same_datagram_of_another_epoch_or_of_long_ago_is_not() {
        let mut previous = Previous::default();
        previous.keep(7, &frame(1, b"one"));
        assert_eq!(previous.before(7, &frame(2, b"two")), None);
        previous.keep(7, &frame(1, b"one"));
        assert_eq!(previous.before(20_007, &MediaUp { epoch: 2, ..frame(2, b"two") }), None);
        previous.keep(7, &frame(1, b"one"));
        assert_eq!(previous.before(8 + WORTH_US, &frame(2, b"two")), None);
    }

    #[test]
    fn each_frame_is_fresh_once_in_any_order_and_across_the_wrap() {
        let mut seen = Seen::default();
        for seq in [65_533, 65_535, 65_534, 1, 0, 5] {
            assert!(seen.fresh(seq), "{seq}");
            assert!(!seen.fresh(seq), "{seq} again");
        }
        assert!(!seen.fresh(65_535));
        assert!(seen.fresh(3));
    }

    #[test]
    fn a_sender_that_begins_anew_is_heard() {
        let mut seen = Seen::default();
        assert!(seen.fresh(1000));
        assert!(seen.fresh(30_000));
        assert!(seen.fresh(29_000));
        assert!(seen.fresh(29_001));
        assert!(!seen.fresh(29_000));
    }
}
