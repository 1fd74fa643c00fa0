//! Media that waits for a path whose window is closing: as long as it is worth it, and no longer. Pure.
//!
//! quinn's own queue knows bytes and no time, and puts datagrams before streams: a second of media in it would be a second
//! of delay for everything. So it gets a datagram only when that can leave at once; the rest waits here.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

/// What waits longer is dropped: the listener's repair has concealed it by then (it waits 60 ms at most for a packet).
pub(super) const WORTH: Duration = Duration::from_millis(60);

/// 60 ms of 1024 speaking sessions: 1024 x 50/s x 135 B x 0.06 s = 415 kB, in batches of 1 kB.
const MOST: usize = 415;

/// Oldest in front.
#[derive(Debug, Default)]
pub(super) struct MediaQueue {
    waiting: VecDeque<(Instant, Bytes)>,
    /// Dropped because they were too old, or too many.
    pub(super) dropped: u64,
}

impl MediaQueue {
    pub(super) fn push(&mut self, now: Instant, datagram: Bytes) {
        if self.waiting.len() == MOST {
            self.waiting.pop_front();
            self.dropped += 1;
        }
        self.waiting.push_back((now, datagram));
        self.expire(now);
    }

    /// The oldest one that is still worth it.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Bytes> {
        self.expire(now);
        self.waiting.pop_front().map(|(_, datagram)| datagram)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn expire(&mut self, now: Instant) {
        while self.waiting.front().is_some_and(|(since, _)| now.saturating_duration_since(*since) >= WORTH) {
            self.waiting.pop_front();
            self.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first_and_what_waited_too_long_is_dropped() {
        let now = Instant::now();
        let mut queue = MediaQueue::default();
        for n in 0..10_u8 {
            queue.push(now + Duration::from_millis(10) * n.into(), Bytes::copy_from_slice(&[n]));
        }
        // At 90 ms those of 0 to 30 ms are 60 ms old.
        let left: Vec<u8> = std::iter::from_fn(|| queue.pop(now + Duration::from_millis(90))).map(|d| d[0]).collect();
        assert_eq!(left, [4, 5, 6, 7, 8, 9]);
        assert_eq!(queue.dropped, 4);
    }

    #[test]
    fn a_flood_within_the_time_is_bounded() {
        let now = Instant::now();
        let mut queue = MediaQueue::default();
        for _ in 0..1000 {
            queue.push(now, Bytes::from_static(b"x"));
        }
        assert_eq!((queue.waiting.len(), queue.dropped), (MOST, 585));
    }
}
