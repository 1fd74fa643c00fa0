//! Seats: how many calls this edge may place, and where.
//!
//! Each transceiver leases this edge a number of seats, running calls included, and renews the lease each second. A call
//! takes its [`Seat`] when it is answered and holds it for life; dropping the seat gives it back, so a call that is never
//! claimed, refused, hung up or moved cannot leak one. Transceiver 0 stands for the calls that the edge answers itself.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use link::ids::TransceiverId;

/// The edge itself, as a place for calls.
pub const LOCAL: TransceiverId = TransceiverId(0);

/// All leases. One lock, taken once per call and never on the media path.
#[derive(Debug)]
pub struct Seats {
    places: Mutex<BTreeMap<TransceiverId, Place>>,
}

#[derive(Debug, Default)]
struct Place {
    models: Vec<String>,
    granted: u32,
    used: u32,
    draining: bool,
}

impl Place {
    fn free(&self) -> u32 {
        if self.draining { 0 } else { self.granted.saturating_sub(self.used) }
    }
}

/// What is known of one transceiver, for tools and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceStatus {
    /// Which.
    pub transceiver: TransceiverId,
    /// Models it serves.
    pub models: Vec<String>,
    /// Seats leased to this edge.
    pub granted: u32,
    /// Seats held by calls.
    pub used: u32,
    /// It takes no further calls.
    pub draining: bool,
}

impl Seats {
    /// `local` seats for calls that the edge answers itself; transceivers come with their leases.
    #[must_use]
    pub fn new(local: u32) -> Arc<Self> {
        let mut places = BTreeMap::new();
        places.insert(LOCAL, Place { granted: local, ..Place::default() });
        Arc::new(Self { places: Mutex::new(places) })
    }

    /// Takes a seat of the edge's own.
    #[must_use]
    pub fn take_local(self: &Arc<Self>) -> Option<Seat> {
        let mut places = self.lock();
        let place = places.get_mut(&LOCAL).filter(|p| p.free() > 0)?;
        place.used += 1;
        Some(Seat { seats: Arc::clone(self), transceiver: LOCAL })
    }

    /// Takes a seat at the transceiver that serves `model` and has most seats free, `except` these.
    #[must_use]
    pub fn take(self: &Arc<Self>, model: &str, except: &[TransceiverId]) -> Option<Seat> {
        let mut places = self.lock();
        let (id, place) = places
            .iter_mut()
            .filter(|(id, place)| {
                **id != LOCAL && !except.contains(id) && place.free() > 0 && place.models.iter().any(|m| m == model)
            })
            .max_by_key(|(id, place)| (place.free(), std::cmp::Reverse(**id)))?;
        place.used += 1;
        Some(Seat { seats: Arc::clone(self), transceiver: *id })
    }

    /// Takes a seat at this very place.
    #[must_use]
    pub fn take_at(self: &Arc<Self>, transceiver: TransceiverId, model: &str) -> Option<Seat> {
        let mut places = self.lock();
        let place = places.get_mut(&transceiver).filter(|place| place.free() > 0)?;
        if transceiver != LOCAL && place.models.iter().all(|served| served != model) {
            return None;
        }
        place.used += 1;
        Some(Seat { seats: Arc::clone(self), transceiver })
    }

    /// Where a call for `model` would go; nothing is taken.
    #[must_use]
    pub fn best(self: &Arc<Self>, model: &str) -> Option<TransceiverId> {
        self.take(model, &[]).map(|seat| seat.transceiver())
    }

    /// A transceiver said which models it serves.
    pub fn hello(&self, transceiver: TransceiverId, models: Vec<String>) {
        self.lock().entry(transceiver).or_default().models = models;
    }

    /// A transceiver renewed its lease.
    pub fn grant(&self, transceiver: TransceiverId, seats: u32, draining: bool) {
        let mut places = self.lock();
        let place = places.entry(transceiver).or_default();
        place.granted = seats;
        place.draining = draining;
    }

    /// A lease ran out: no further calls there until it is renewed.
    pub fn lapse(&self, transceiver: TransceiverId) {
        self.grant(transceiver, 0, false);
    }

    /// Seats held by calls.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.lock().values().map(|p| p.used).sum()
    }

    /// Every place, by id.
    #[must_use]
    pub fn status(&self) -> Vec<PlaceStatus> {
        self.lock()
            .iter()
            .map(|(id, place)| PlaceStatus {
                transceiver: *id,
                models: place.models.clone(),
                granted: place.granted,
                used: place.used,
                draining: place.draining,
            })
            .collect()
    }

    /// Counts stay right whatever panicked while holding the lock: each change is one addition.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<TransceiverId, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One call's seat; given back when dropped.
pub struct Seat {
    seats: Arc<Seats>,
    transceiver: TransceiverId,
}

impl Seat {
    /// Where the call sits; [`LOCAL`] when the edge answers it.
    #[must_use]
    pub fn transceiver(&self) -> TransceiverId {
        self.transceiver
    }

    /// A seat elsewhere for the same call, `except` at these.
    #[must_use]
    pub fn take_other(&self, model: &str, except: &[TransceiverId]) -> Option<Self> {
        self.seats.take(model, except)
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Seat").field(&self.transceiver).finish()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(place) = self.seats.lock().get_mut(&self.transceiver) {
            place.used = place.used.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TransceiverId = TransceiverId(1);
    const B: TransceiverId = TransceiverId(2);

    fn two_transceivers() -> Arc<Seats> {
        let seats = Seats::new(1);
        seats.hello(A, vec!["parrot".into()]);
        seats.hello(B, vec!["parrot".into(), "loopback".into()]);
        seats.grant(A, 2, false);
        seats.grant(B, 1, false);
        seats
    }

    #[test]
    fn a_dropped_seat_is_free_again() {
        let seats = Seats::new(1);
        let seat = seats.take_local();
        assert!(seat.is_some());
        assert!(seats.take_local().is_none());
        drop(seat);
        assert!(seats.take_local().is_some());
        assert_eq!(seats.used(), 0);
    }

    #[test]
    fn the_transceiver_with_most_room_comes_first_and_models_are_respected() {
        let seats = two_transceivers();
        let first = seats.take("parrot", &[]).unwrap();
        assert_eq!(first.transceiver(), A);
        assert_eq!(first.take_other("parrot", &[A]).unwrap().transceiver(), B);
        assert_eq!(seats.take("loopback", &[]).unwrap().transceiver(), B);
        assert!(seats.take("unheard", &[]).is_none());
        assert!(seats.take("parrot", &[A, B]).is_none());
    }

    #[test]
    fn a_lapsed_or_draining_transceiver_takes_no_call() {
        let seats = two_transceivers();
        seats.lapse(A);
        seats.grant(B, 1, true);
        assert!(seats.take("parrot", &[]).is_none());
    }

    #[test]
    fn running_calls_count_against_a_smaller_lease() {
        let seats = two_transceivers();
        let _one = seats.take("parrot", &[B]).unwrap();
        seats.grant(A, 1, false);
        assert!(seats.take("parrot", &[B]).is_none());
    }
}
