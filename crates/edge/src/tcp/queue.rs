//! What a connection could not be given yet.

use std::collections::VecDeque;

use rtc::{Class, classify};

/// Frames that wait for a slow reader: 64 frames of 20 ms are 1.3 s, after which audio is of no use to anybody. 64 of 1200
/// bytes are 77 KiB.
const FRAMES_MAX: usize = 64;

/// Frames in order, each behind its length.
///
/// Whoever comes when there are [`FRAMES_MAX`] displaces the oldest audio; without any, the oldest of all: whatever else
/// there is (checks, DTLS, SCTP) is sent again by its own protocol. A frame that was begun is never dropped, as the stream
/// would lose its frames.
#[derive(Debug, Default)]
pub struct SendQueue {
    frames: VecDeque<Vec<u8>>,
    /// Bytes of the first one that are sent.
    sent: usize,
    /// Sent ones, for reuse.
    spare: Vec<Vec<u8>>,
    dropped: u64,
}

impl SendQueue {
    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Puts a datagram behind the others.
    pub fn push(&mut self, datagram: &[u8]) {
        let Ok(length) = u16::try_from(datagram.len()) else { return };
        if self.frames.len() >= FRAMES_MAX {
            self.displace();
        }
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.clear();
        frame.extend_from_slice(&length.to_be_bytes());
        frame.extend_from_slice(datagram);
        self.frames.push_back(frame);
    }

    /// Puts a datagram into the empty queue of whose frame `sent` bytes have left.
    pub fn push_begun(&mut self, datagram: &[u8], sent: usize) {
        debug_assert!(self.is_empty(), "a frame was begun before those that wait");
        self.push(datagram);
        self.sent = sent;
    }

    /// What to send next.
    #[must_use]
    pub fn front(&self) -> Option<&[u8]> {
        self.frames.front()?.get(self.sent..)
    }

    /// So much of [`Self::front`] was sent.
    pub fn wrote(&mut self, count: usize) {
        self.sent += count;
        if self.frames.front().is_some_and(|frame| self.sent >= frame.len())
            && let Some(frame) = self.frames.pop_front()
        {
            self.sent = 0;
            if self.spare.len() < FRAMES_MAX {
                self.spare.push(frame);
            }
        }
    }

    /// Frames dropped since this was asked last.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    fn displace(&mut self) {
        let first = usize::from(self.sent > 0);
        let audio = |frame: &Vec<u8>| frame.get(2..).is_some_and(|datagram| classify(datagram) == Class::Rtp);
        let at = (first..self.frames.len()).find(|at| self.frames.get(*at).is_some_and(audio)).unwrap_or(first);
        if let Some(frame) = self.frames.remove(at) {
            self.dropped += 1;
            self.spare.push(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTP: u8 = 0x80;
    const DTLS: u8 = 22;

    fn datagram(first: u8, number: u8) -> Vec<u8> {
        // RTP with payload type 111.
        vec![first, 111, number, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    }

    fn drain(queue: &mut SendQueue) -> Vec<(u8, u8)> {
        let mut found = Vec::new();
        while let Some(frame) = queue.front() {
            found.push((frame[2], frame[4]));
            let length = frame.len();
            queue.wrote(length);
        }
        found
    }

    #[test]
    fn the_oldest_audio_goes_first() {
        let mut queue = SendQueue::default();
        queue.push(&datagram(DTLS, 0));
        for number in 1..=70 {
            queue.push(&datagram(RTP, number));
        }
        assert_eq!(queue.take_dropped(), 7);
        let left = drain(&mut queue);
        assert_eq!(left.len(), 64);
        assert_eq!((left[0], left[1]), ((DTLS, 0), (RTP, 8)));
    }

    #[test]
    fn without_audio_the_oldest_goes() {
        let mut queue = SendQueue::default();
        for number in 0..65 {
            queue.push(&datagram(DTLS, number));
        }
        assert_eq!(drain(&mut queue)[0], (DTLS, 1));
    }

    #[test]
    fn a_frame_that_was_begun_stays() {
        let mut queue = SendQueue::default();
        queue.push_begun(&datagram(RTP, 0), 3);
        for number in 1..=100 {
            queue.push(&datagram(RTP, number));
        }
        assert_eq!(queue.front().unwrap(), &[&datagram(RTP, 0)[1..]].concat()[..]);
        assert_eq!(queue.take_dropped(), 37);
        assert_eq!(queue.take_dropped(), 0);
    }

    #[test]
    fn what_is_sent_in_parts_is_sent_once() {
        let mut queue = SendQueue::default();
        queue.push(&[1, 2, 3]);
        queue.push(&[4]);
        let mut sent = Vec::new();
        while let Some(front) = queue.front() {
            sent.push(front[0]);
            queue.wrote(1);
        }
        assert_eq!(sent, [0, 3, 1, 2, 3, 0, 1, 4]);
    }
}
