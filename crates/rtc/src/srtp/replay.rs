//! Which of the last 128 indexes of a stream were seen (RFC 3711 §3.3.2).

/// Packets behind the highest that may still come: 2.5 s of 20 ms frames, more than any jitter buffer waits.
const SIZE: u64 = 128;

/// A window that ends at the highest index. Bit n stands for the index n below it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    highest: u64,
    seen: u128,
}

impl Window {
    /// A window whose first index is `index`, seen.
    pub(super) fn new(index: u64) -> Self {
        Self { highest: index, seen: 1 }
    }

    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    /// Neither seen nor too old to tell.
    pub(super) fn is_fresh(&self, index: u64) -> bool {
        match self.highest.checked_sub(index) {
            None => true,
            Some(behind) => behind < SIZE && self.seen & 1 << behind == 0,
        }
    }

    /// Marks an authenticated index.
    pub(super) fn accept(&mut self, index: u64) {
        match self.highest.checked_sub(index) {
            None => {
                let ahead = index - self.highest;
                self.seen = if ahead < SIZE { self.seen << ahead | 1 } else { 1 };
                self.highest = index;
            }
            Some(behind) if behind < SIZE => self.seen |= 1 << behind,
            Some(_) => {}
        }
    }
}
