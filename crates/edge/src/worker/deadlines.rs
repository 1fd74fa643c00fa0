//! The deadlines of all sessions of one worker: a min-heap with lazy removal.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use super::clients::Key;

/// Stale entries tolerated before the heap is rebuilt: a session leaves one behind each time an earlier deadline
/// displaces a later one.
const STALE_PER_SESSION: usize = 4;

/// Who wants to be woken when. An entry counts only while its session still says that it is armed for that instant.
#[derive(Default)]
pub(crate) struct Deadlines {
    heap: BinaryHeap<Reverse<(Instant, Key)>>,
}

impl Deadlines {
    /// Makes sure that `key` is woken at `wanted`. `armed` is the session's memory of its entry that counts. A later
    /// deadline than the armed one adds nothing: the wake-up comes early, finds nothing due and arms again.
    pub(crate) fn arm(&mut self, key: Key, armed: &mut Option<Instant>, wanted: Option<Instant>) {
        let Some(wanted) = wanted else { return };
        if armed.is_none_or(|at| wanted < at) {
            *armed = Some(wanted);
            self.heap.push(Reverse((wanted, key)));
        }
    }

    /// The earliest entry, which may be stale.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the earliest entry that is due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Instant, Key)> {
        let Reverse((at, _)) = self.heap.peek()?;
        if *at > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// Drops stale entries once they are many.
    pub(crate) fn tidy(&mut self, sessions: usize, is_armed: impl Fn(Key, Instant) -> bool) {
        if self.heap.len() > 64 + STALE_PER_SESSION * sessions {
            self.heap.retain(|Reverse((at, key))| is_armed(*key, *at));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(index: u32) -> Key {
        Key { index, generation: 0 }
    }

    #[test]
    fn the_earliest_wins_and_ties_go_by_key() {
        let mut deadlines = Deadlines::default();
        let now = Instant::now();
        let (mut a, mut b) = (None, None);
        deadlines.arm(key(2), &mut b, Some(now));
        deadlines.arm(key(1), &mut a, Some(now));
        assert_eq!(deadlines.pop(now), Some((now, key(1))));
        assert_eq!(deadlines.pop(now), Some((now, key(2))));
        assert_eq!(deadlines.pop(now), None);
    }

    #[test]
    fn a_later_wish_adds_no_entry() {
        let mut deadlines = Deadlines::default();
        let now = Instant::now();
        let mut armed = None;
        deadlines.arm(key(1), &mut armed, Some(now));
        deadlines.arm(key(1), &mut armed, Some(now + Duration::from_secs(1)));
        assert_eq!(armed, Some(now));
        assert_eq!(deadlines.heap.len(), 1);
    }

    #[test]
    fn stale_entries_are_swept_when_they_pile_up() {
        let mut deadlines = Deadlines::default();
        let now = Instant::now();
        let mut armed = None;
        for ms in (1..=1000).rev() {
            deadlines.arm(key(1), &mut armed, Some(now + Duration::from_millis(ms)));
        }
        deadlines.tidy(1, |_, at| armed == Some(at));
        assert_eq!(deadlines.heap.len(), 1);
    }
}
