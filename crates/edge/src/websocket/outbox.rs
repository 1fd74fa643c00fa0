//! What waits for a client that does not read at once.

use std::collections::VecDeque;

/// Bytes of events that may wait for one client: a minute of audio at 24 kHz, as base64, is 3.8 MiB, and is sent ahead of time.
pub const OUTBOX_MAX: usize = 4 << 20;

/// Bytes that wait for all clients of an edge before those go that hold more than [`FAIR`]: of 4096 clients, 64 with a full outbox each, or 1024 of which each
/// holds its fair part. What is beyond is the connections' own: 1.1 MiB each at most.
pub const QUEUED_MAX: usize = 256 << 20;

/// What one client may hold even then: an event of the largest.
pub const FAIR: usize = 256 << 10;

/// What each message costs beside its bytes, so that small ones are bounded as well: 65536 of them.
const EACH: usize = 64;

/// The client reads so slowly that there is no room for the next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowReader;

/// Messages in order, bounded by their bytes.
#[derive(Debug, Default)]
pub struct Outbox {
    messages: VecDeque<String>,
    bytes: usize,
}

impl Outbox {
    /// Queues an event.
    ///
    /// # Errors
    /// There is no room.
    pub fn push(&mut self, event: String) -> Result<(), SlowReader> {
        let bytes = self.bytes + event.len() + EACH;
        // One event alone is taken, however large.
        if bytes > OUTBOX_MAX && !self.messages.is_empty() {
            return Err(SlowReader);
        }
        self.bytes = bytes;
        self.messages.push_back(event);
        Ok(())
    }

    /// The oldest.
    pub fn pop(&mut self) -> Option<String> {
        let event = self.messages.pop_front()?;
        self.bytes -= event.len() + EACH;
        Some(event)
    }

    /// Messages that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// What waits, with its overhead.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_leave_in_order_and_their_bytes_are_given_back() {
        let mut outbox = Outbox::default();
        for event in ["one", "two"] {
            outbox.push(event.to_owned()).unwrap();
        }
        assert_eq!(outbox.bytes(), 6 + 2 * EACH);
        assert_eq!([outbox.pop(), outbox.pop(), outbox.pop()], [Some("one".to_owned()), Some("two".to_owned()), None]);
        assert_eq!(outbox.bytes(), 0);
    }

    #[test]
    fn four_mebibytes_may_wait() {
        let mut outbox = Outbox::default();
        let event = "x".repeat((1 << 20) - EACH);
        for _ in 0..4 {
            outbox.push(event.clone()).unwrap();
        }
        assert_eq!(outbox.push(String::new()), Err(SlowReader));
        outbox.pop();
        assert_eq!(outbox.push(String::new()), Ok(()));
    }
}
