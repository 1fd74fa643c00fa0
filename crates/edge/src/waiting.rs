//! How many answered calls of one source wait for their first check.
//!
//! Each holds a seat and some 10 KB until its set-up timeout is over. A client that gets through claims its call within a second
//! of the answer, so whoever has many waiting either connects nothing, as behind a network without UDP, or means no good.
//!
//! # Invariant
//!
//! A source is known as long as a call of its waits, so there are never more sources than such calls.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::worker::budget::source_key;

/// The calls that wait, by the IPv4 address or IPv6 /64 that asked for them.
#[derive(Debug)]
pub struct Waiting {
    per_source: u32,
    sources: Mutex<HashMap<u64, u32>>,
}

impl Waiting {
    /// `per_source` calls of one source may wait at once.
    #[must_use]
    pub fn new(per_source: u32) -> Arc<Self> {
        Arc::new(Self { per_source, sources: Mutex::default() })
    }

    /// A place for one call of this source. `None`: it has as many already.
    #[must_use]
    pub fn take(self: &Arc<Self>, source: IpAddr) -> Option<Place> {
        let source = source_key(source);
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let count = sources.get(&source).copied().unwrap_or(0);
        if count >= self.per_source {
            return None;
        }
        sources.insert(source, count + 1);
        Some(Place { waiting: Arc::clone(self), source })
    }

    /// Sources with calls that wait.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// One call's place; given back when dropped.
pub struct Place {
    waiting: Arc<Waiting>,
    source: u64,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut sources = self.waiting.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = sources.entry(self.source) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_gets_its_places_and_a_dropped_one_is_free_again() {
        let waiting = Waiting::new(2);
        let (one, other): (IpAddr, IpAddr) = ("2001:db8::1".parse().unwrap(), "192.0.2.1".parse().unwrap());
        let held = [waiting.take(one), waiting.take("2001:db8::2".parse().unwrap())];
        assert!(held.iter().all(Option::is_some));
        assert!(waiting.take(one).is_none(), "the same /64 has two");
        assert!(waiting.take(other).is_some(), "others have theirs");
        assert_eq!(waiting.sources(), 1);
        drop(held);
        assert_eq!(waiting.sources(), 0);
        assert!(waiting.take(one).is_some());
    }
}
