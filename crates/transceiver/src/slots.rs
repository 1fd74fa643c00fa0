//! Slots: the small numbers that name sessions on one link.
//!
//! A slot that was freed rests for [`QUARANTINE`] before another session gets it, so that datagrams still on their way
//! for the former one meet nobody, or the wrong epoch at worst, never another caller.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use link::ids::Slot;

/// Longer than any datagram lives on a path, and longer than an edge needs to notice a release.
pub(crate) const QUARANTINE: Duration = Duration::from_secs(5);

/// The slots of one link, with what each names.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    /// Index is the slot. As many as were ever in use or resting at once.
    table: Vec<Option<T>>,
    /// Resting slots, the one freed first in front.
    resting: VecDeque<(Instant, Slot)>,
    /// Slots that rested: taken before the table grows.
    free: Vec<Slot>,
    in_use: usize,
}

impl<T> Slots<T> {
    pub(crate) fn new() -> Self {
        Self { table: Vec::new(), resting: VecDeque::new(), free: Vec::new(), in_use: 0 }
    }

    /// A slot that names `target`.
    pub(crate) fn allocate(&mut self, now: Instant, target: T) -> Slot {
        self.expire(now);
        self.in_use += 1;
        if let Some(slot) = self.free.pop()
            && let Some(entry) = self.entry(slot)
        {
            *entry = Some(target);
            return slot;
        }
        // Seats bound the table far below 2^32.
        let slot = Slot(u32::try_from(self.table.len()).unwrap_or(u32::MAX));
        self.table.push(Some(target));
        slot
    }

    /// What a slot names.
    pub(crate) fn get(&self, slot: Slot) -> Option<&T> {
        self.table.get(usize::try_from(slot.0).ok()?)?.as_ref()
    }

    /// Frees a slot, into quarantine.
    pub(crate) fn release(&mut self, now: Instant, slot: Slot) {
        if self.entry(slot).is_some_and(|entry| entry.take().is_some()) {
            self.in_use -= 1;
            self.resting.push_back((now, slot));
        }
    }

    pub(crate) fn in_use(&self) -> usize {
        self.in_use
    }

    pub(crate) fn quarantined(&mut self, now: Instant) -> usize {
        self.expire(now);
        self.resting.len()
    }

    fn expire(&mut self, now: Instant) {
        while let Some((freed, slot)) = self.resting.front()
            && now.saturating_duration_since(*freed) >= QUARANTINE
        {
            self.free.push(*slot);
            self.resting.pop_front();
        }
    }

    fn entry(&mut self, slot: Slot) -> Option<&mut Option<T>> {
        self.table.get_mut(usize::try_from(slot.0).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_slot_rests_for_five_seconds() {
        let now = Instant::now();
        let mut slots = Slots::new();
        let slot = slots.allocate(now, "a");
        slots.release(now, slot);
        assert_eq!(slots.get(slot), None);
        assert_ne!(slots.allocate(now + QUARANTINE - Duration::from_millis(1), "b"), slot);
        assert_eq!(slots.quarantined(now + QUARANTINE), 0);
        assert_eq!(slots.allocate(now + QUARANTINE, "c"), slot);
        assert_eq!(slots.get(slot), Some(&"c"));
    }

    #[test]
    fn slots_in_use_differ_and_are_counted() {
        let now = Instant::now();
        let mut slots = Slots::new();
        let allocated: Vec<Slot> = (0..5).map(|n| slots.allocate(now, n)).collect();
        assert_eq!(allocated, (0..5).map(Slot).collect::<Vec<_>>());
        slots.release(now, Slot(2));
        assert_eq!((slots.in_use(), slots.quarantined(now)), (4, 1));
    }

    #[test]
    fn freeing_twice_or_freeing_what_never_was_changes_nothing() {
        let now = Instant::now();
        let mut slots = Slots::new();
        let slot = slots.allocate(now, ());
        slots.release(now, slot);
        slots.release(now, slot);
        slots.release(now, Slot(9));
        assert_eq!((slots.in_use(), slots.quarantined(now)), (0, 1));
        assert_eq!(slots.get(Slot(u32::MAX)), None);
    }
}
