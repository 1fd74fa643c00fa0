//! What a client said before its transceiver had answered Open: kept in order, bounded.

use std::collections::VecDeque;
use std::time::Instant;

use link::proto::{EdgeMessage, edge_message};
use rtc::{Codec, MediaFrame};

/// 2 s of 20 ms frames: beyond the 500 ms in which a call is placed elsewhere nothing older is worth hearing.
const MAX_FRAMES: usize = 100;

/// Messages: a client says a handful before its first answer.
const MAX_MESSAGES: usize = 64;

/// Bytes in messages: four of the largest.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// One frame, with the time at which it came.
pub(crate) struct HeldFrame {
    pub(crate) arrived: Instant,
    pub(crate) codec: Codec,
    pub(crate) seq: u16,
    pub(crate) rtp_timestamp: u32,
    pub(crate) marker: bool,
    pub(crate) audio_level: Option<u8>,
    pub(crate) payload: Vec<u8>,
}

/// Both queues.
#[derive(Default)]
pub(crate) struct Held {
    frames: VecDeque<HeldFrame>,
    messages: VecDeque<EdgeMessage>,
    message_bytes: usize,
}

impl Held {
    /// Keeps a frame; `false` when the oldest was dropped for it.
    #[must_use]
    pub(crate) fn frame(&mut self, arrived: Instant, frame: MediaFrame<'_>) -> bool {
        let full = self.frames.len() >= MAX_FRAMES;
        if full {
            self.frames.pop_front();
        }
        self.frames.push_back(HeldFrame {
            arrived,
            codec: frame.codec,
            seq: frame.seq,
            rtp_timestamp: frame.rtp_timestamp,
            marker: frame.marker,
            audio_level: frame.audio_level,
            payload: frame.payload.to_vec(),
        });
        !full
    }

    /// Keeps a message; `false` when there is no room: of a dialogue the beginning counts, so the newest is dropped.
    #[must_use]
    pub(crate) fn message(&mut self, message: EdgeMessage) -> bool {
        let bytes = payload_bytes(&message);
        if self.messages.len() >= MAX_MESSAGES || self.message_bytes + bytes > MAX_MESSAGE_BYTES {
            return false;
        }
        self.message_bytes += bytes;
        self.messages.push_back(message);
        true
    }

    /// Everything, leaving nothing.
    pub(crate) fn take(&mut self) -> (VecDeque<EdgeMessage>, VecDeque<HeldFrame>) {
        self.message_bytes = 0;
        (std::mem::take(&mut self.messages), std::mem::take(&mut self.frames))
    }
}

/// The part of a message whose length the client chooses.
pub(crate) fn payload_bytes(message: &EdgeMessage) -> usize {
    match &message.kind {
        Some(edge_message::Kind::ChannelMessage(message)) => message.data.len(),
        Some(edge_message::Kind::ChannelOpened(opened)) => opened.label.len(),
        Some(edge_message::Kind::OversizeFrame(frame)) => frame.payload.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use link::proto::{ChannelMessage, ChannelOpened, Connected};

    use super::*;

    fn channel_message(bytes: usize) -> EdgeMessage {
        let data = vec![0; bytes];
        let message = ChannelMessage { channel: 1, binary: false, data };
        EdgeMessage { kind: Some(edge_message::Kind::ChannelMessage(message)) }
    }

    #[test]
    fn the_newest_hundred_frames_are_kept() {
        let mut held = Held::default();
        let now = Instant::now();
        for seq in 0..150 {
            let codec = Codec::Opus;
            let frame = MediaFrame { codec, seq, rtp_timestamp: 0, marker: false, audio_level: None, payload: &[1] };
            assert_eq!(held.frame(now, frame), seq < 100);
        }
        let (_, frames) = held.take();
        assert_eq!((frames.len(), frames[0].seq, frames[99].seq), (100, 50, 149));
    }

    #[test]
    fn labels_of_channels_count() {
        let label = "l".repeat(65_535);
        let opened = || edge_message::Kind::ChannelOpened(ChannelOpened { channel: 1, label: label.clone() });
        let mut held = Held::default();
        let kept = (0..64).filter(|_| held.message(EdgeMessage { kind: Some(opened()) })).count();
        assert_eq!(kept, 16);
    }

    #[test]
    fn messages_are_bounded_by_number_and_by_bytes() {
        let mut held = Held::default();
        assert!((0..4).all(|_| held.message(channel_message(256 << 10))));
        assert!(!held.message(channel_message(1)));
        assert!(held.message(EdgeMessage { kind: Some(edge_message::Kind::Connected(Connected {})) }));
        assert_eq!(held.take().0.len(), 5);
        assert!((0..64).all(|_| held.message(channel_message(1))));
        assert!(!held.message(channel_message(1)));
    }
}
