//! Who may still come in: seats, and what each edge is told of them.
//!
//! A lease is what an edge may hold here in total: the seats that the others do not hold. With several edges their
//! leases together exceed the seats, so [`Admission::take`] decides when a call comes; an edge that is refused then goes
//! to the next transceiver.

use std::collections::BTreeMap;

use link::ids::EdgeId;

/// Why a call is not taken: a metric's label and the words to the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// All seats are taken.
    NoSeat,
    /// This process is about to stop.
    Draining,
    /// The model is not served here.
    Model,
    /// The session is here under the same or a later epoch.
    StaleEpoch,
    /// The request makes no sense.
    Malformed,
    /// The link is gone or full, or its worker is hopelessly behind.
    Overloaded,
    /// The link to the edge loses or queues more than voice bears.
    Congested,
}

impl Refusal {
    pub(crate) const ALL: [Self; 7] = [
        Self::NoSeat,
        Self::Draining,
        Self::Model,
        Self::StaleEpoch,
        Self::Malformed,
        Self::Overloaded,
        Self::Congested,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::NoSeat => "no_seat",
            Self::Draining => "draining",
            Self::Model => "model",
            Self::StaleEpoch => "stale_epoch",
            Self::Malformed => "malformed",
            Self::Overloaded => "overloaded",
            Self::Congested => "congested",
        }
    }
}

/// The seats of a process.
#[derive(Debug)]
pub(crate) struct Admission {
    seats: u32,
    held: BTreeMap<EdgeId, u32>,
    draining: bool,
}

impl Admission {
    pub(crate) fn new(seats: u32) -> Self {
        Self { seats, held: BTreeMap::new(), draining: false }
    }

    /// From here on nobody is taken.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining
    }

    /// Calls that this edge may hold in total, running ones included.
    pub(crate) fn lease(&self, edge: EdgeId) -> u32 {
        let held = self.held_by(edge);
        if self.draining { held } else { self.seats - (self.held() - held) }
    }

    /// Takes a seat for a call of this edge.
    pub(crate) fn take(&mut self, edge: EdgeId) -> Result<(), Refusal> {
        if self.draining {
            return Err(Refusal::Draining);
        }
        if self.held() >= self.seats {
            return Err(Refusal::NoSeat);
        }
        *self.held.entry(edge).or_default() += 1;
        Ok(())
    }

    /// Gives a seat of this edge back.
    pub(crate) fn give_back(&mut self, edge: EdgeId) {
        if let Some(held) = self.held.get_mut(&edge) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                self.held.remove(&edge);
            }
        }
    }

    /// What an edge is told when its links are looked at, too: `links` of them that carry calls, each laid out for
    /// `budget` sessions; none that it does not hold yet while one of them is congested.
    pub(crate) fn lease_over(&self, edge: EdgeId, links: u32, budget: u32, congested: bool) -> u32 {
        let held = self.held_by(edge);
        if congested { held } else { self.lease(edge).min(links.saturating_mul(budget)).max(held) }
    }

    /// Seats taken.
    pub(crate) fn held(&self) -> u32 {
        self.held.values().sum()
    }

    fn held_by(&self, edge: EdgeId) -> u32 {
        self.held.get(&edge).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: EdgeId = EdgeId(1);
    const B: EdgeId = EdgeId(2);

    #[test]
    fn a_lease_is_what_the_others_leave() {
        let mut admission = Admission::new(3);
        assert_eq!((admission.lease(A), admission.lease(B)), (3, 3));
        admission.take(A).unwrap();
        assert_eq!((admission.lease(A), admission.lease(B)), (3, 2));
        admission.take(B).unwrap();
        admission.take(B).unwrap();
        assert_eq!((admission.lease(A), admission.lease(B)), (1, 2));
        assert_eq!(admission.take(A), Err(Refusal::NoSeat));
    }

    #[test]
    fn a_seat_given_back_can_be_taken() {
        let mut admission = Admission::new(1);
        admission.take(A).unwrap();
        assert_eq!(admission.take(B), Err(Refusal::NoSeat));
        admission.give_back(A);
        admission.give_back(A);
        admission.take(B).unwrap();
        assert_eq!(admission.held(), 1);
    }

    #[test]
    fn a_lease_grants_what_the_links_are_laid_out_for_and_nothing_over_a_congested_one() {
        let mut admission = Admission::new(5000);
        admission.take(A).unwrap();
        assert_eq!(admission.lease_over(A, 2, 1024, false), 2048);
        assert_eq!(admission.lease_over(A, 2, 1024, true), 1);
        assert_eq!(admission.lease_over(A, 0, 1024, false), 1);
        assert_eq!(admission.lease_over(B, 9, 1024, false), 4999);
    }

    #[test]
    fn while_draining_leases_shrink_to_what_is_held() {
        let mut admission = Admission::new(5);
        admission.take(A).unwrap();
        admission.drain();
        assert_eq!((admission.lease(A), admission.lease(B)), (1, 0));
        assert_eq!(admission.take(A), Err(Refusal::Draining));
    }
}
