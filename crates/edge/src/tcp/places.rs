//! How many connections there may be: in all, and of one source.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::worker::budget::source_key;

/// Places for connections of one kind.
#[derive(Debug, Clone)]
pub struct Places(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    in_all: usize,
    per_source: usize,
    /// As many entries as there are connections, at most. A lock per connection, none per packet.
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    in_all: usize,
    sources: HashMap<u64, usize>,
}

/// One of them, until dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    source: Option<u64>,
}

impl Places {
    /// `per_source` counts for one IPv4 address or IPv6 /64.
    #[must_use]
    pub fn new(in_all: usize, per_source: usize) -> Self {
        Self(Arc::new(Inner { in_all, per_source, taken: Mutex::default() }))
    }

    /// A place for a connection from `source`, if there is one. This machine is as many sources as it likes: what comes
    /// from there is a proxy, or ours.
    #[must_use]
    pub fn take(&self, source: IpAddr) -> Option<Place> {
        let source = source.to_canonical();
        let key = (!source.is_loopback()).then(|| source_key(source));
        let mut taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.in_all >= self.0.in_all {
            return None;
        }
        if let Some(key) = key {
            let count = taken.sources.get(&key).copied().unwrap_or_default();
            if count >= self.0.per_source {
                return None;
            }
            taken.sources.insert(key, count + 1);
        }
        taken.in_all += 1;
        Some(Place { places: self.clone(), source: key })
    }

    /// How many are taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner).in_all
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.in_all -= 1;
        let Some(source) = self.source else { return };
        if let Some(count) = taken.sources.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                taken.sources.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u8) -> IpAddr {
        IpAddr::from([203, 0, 113, number])
    }

    #[test]
    fn one_source_leaves_places_to_others() {
        let places = Places::new(10, 4);
        let held: Vec<_> = std::iter::from_fn(|| places.take(host(1))).collect();
        assert_eq!(held.len(), 4);
        assert!(places.take(host(2)).is_some());
    }

    #[test]
    fn all_sources_together_have_no_more_than_there_are() {
        let places = Places::new(10, 4);
        let held: Vec<_> = (1..=100).filter_map(|number| places.take(host(number))).collect();
        assert_eq!((held.len(), places.taken()), (10, 10));
        drop(held);
        assert_eq!(places.taken(), 0);
        assert!(places.take(host(1)).is_some());
    }

    #[test]
    fn a_place_that_is_left_is_free_again() {
        let places = Places::new(10, 1);
        for _ in 0..1000 {
            assert!(places.take(host(1)).is_some());
        }
        assert!(places.0.taken.lock().unwrap().sources.is_empty());
    }

    #[test]
    fn this_machine_is_many_sources() {
        let places = Places::new(10, 1);
        let held: Vec<_> = std::iter::from_fn(|| places.take(IpAddr::from([127, 0, 0, 1]))).collect();
        assert_eq!(held.len(), 10);
    }
}
