//! Who may still come in: seats, and what each edge is told of them.
//!
//! A lease is what an edge may hold here in total: the seats that the others do not hold. With several edges their
//! leases together exceed the seats, so [`Admission::take`] decides when a call comes; an edge that is refused then goes
//! to the next transceiver.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use link::grpc::TICKET_USED;
use link::ids::{EdgeId, Epoch, SessionId};

/// Tickets remembered: as many as an edge remembers, 4 MiB. Beyond that none is taken, and clients come without.
const TICKETS_MAX: usize = 65_536;

/// Longest life of a ticket that an edge can be configured to grant, in seconds.
const TICKET_LIFE_MAX: u64 = 600;

/// Clocks of edges may be so far apart, in seconds.
const CLOCKS_APART: u64 = 30;

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
    /// The ticket that brought the call has brought one before.
    TicketUsed,
    /// The request makes no sense.
    Malformed,
    /// The link is gone or full, or its worker is hopelessly behind.
    Overloaded,
    /// The link to the edge loses or queues more than voice bears.
    Congested,
}

impl Refusal {
    pub(crate) const ALL: [Self; 8] = [
        Self::NoSeat,
        Self::Draining,
        Self::Model,
        Self::StaleEpoch,
        Self::TicketUsed,
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
            Self::TicketUsed => TICKET_USED,
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

    /// What an edge is told when its links are looked at, too: no more than there is [`room`] for over them, and no less
    /// than it holds.
    pub(crate) fn lease_over(&self, edge: EdgeId, room: u32) -> u32 {
        self.lease(edge).min(room).max(self.held_by(edge))
    }

    /// Seats taken.
    pub(crate) fn held(&self) -> u32 {
        self.held.values().sum()
    }

    fn held_by(&self, edge: EdgeId) -> u32 {
        self.held.get(&edge).copied().unwrap_or(0)
    }
}

/// Which tickets brought a call here. The edge that issued one refuses a second call by itself, unless it was started again
/// in between; then this is what refuses it.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    /// Sessions by ticket, and the highest epoch of each: the same call may be opened again in a later one.
    used: HashMap<SessionId, Epoch>,
    until: BTreeSet<(u64, SessionId)>,
    /// Unix seconds, as the edges say them.
    clock: u64,
}

impl Tickets {
    /// A call by a ticket comes in: `now` and `expires` in Unix seconds, as its edge says.
    pub(crate) fn take(&mut self, session: SessionId, epoch: Epoch, now: u64, expires: u64) -> Result<(), Refusal> {
        self.clock = self.clock.max(now);
        while let Some(&(until, session)) = self.until.first().filter(|(until, _)| *until + CLOCKS_APART <= self.clock)
        {
            self.until.remove(&(until, session));
            self.used.remove(&session);
        }
        if let Some(highest) = self.used.get_mut(&session) {
            if *highest >= epoch {
                return Err(Refusal::TicketUsed);
            }
            *highest = epoch;
            return Ok(());
        }
        if self.used.len() >= TICKETS_MAX {
            return Err(Refusal::Overloaded);
        }
        self.used.insert(session, epoch);
        self.until.insert((expires.min(now + TICKET_LIFE_MAX), session));
        Ok(())
    }
}

/// A link of an edge, as far as seats go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Carrier {
    pub(crate) calls: u32,
    pub(crate) congested: bool,
    /// The edge's lease is told over it.
    pub(crate) leases: bool,
}

/// Calls that an edge's links may carry: a healthy one the `budget` that it is laid out for, a congested one those that it
/// has. The one with the lease carries none, so it decides nothing; as long as there is no other, one is taken to come.
pub(crate) fn room(links: impl Iterator<Item = Carrier>, budget: u32) -> u32 {
    let carrying = links.filter(|link| link.calls > 0 || !link.leases);
    let each = carrying.map(|link| if link.congested { link.calls } else { budget });
    each.reduce(u32::saturating_add).unwrap_or(budget)
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
    fn a_lease_grants_what_there_is_room_for_over_the_links_and_what_is_held() {
        let mut admission = Admission::new(5000);
        admission.take(A).unwrap();
        assert_eq!(admission.lease_over(A, 2048), 2048);
        assert_eq!(admission.lease_over(A, 0), 1);
        assert_eq!(admission.lease_over(B, 9000), 4999);
    }

    #[test]
    fn a_ticket_brings_one_call_until_it_expires() {
        let mut tickets = Tickets::default();
        let session = SessionId(7);
        assert_eq!(tickets.take(session, Epoch(1), 1000, 1060), Ok(()));
        assert_eq!(tickets.take(session, Epoch(1), 1001, 1060), Err(Refusal::TicketUsed));
        assert_eq!(tickets.take(session, Epoch(2), 1002, 1060), Ok(()), "the call goes on in a later epoch");
        assert_eq!(tickets.take(session, Epoch(2), 1002, 1060), Err(Refusal::TicketUsed));
        assert_eq!(tickets.take(SessionId(8), Epoch(1), 1091, 1100), Ok(()));
        assert_eq!((tickets.used.len(), tickets.until.len()), (1, 1), "what has expired is forgotten");
    }

    #[test]
    fn tickets_are_bounded_in_number_and_in_time() {
        let mut tickets = Tickets::default();
        for session in 0..TICKETS_MAX as u64 {
            tickets.take(SessionId(session), Epoch(1), 1000, u64::MAX).unwrap();
        }
        assert_eq!(tickets.take(SessionId(u64::MAX), Epoch(1), 1000, 1060), Err(Refusal::Overloaded));
        assert_eq!(tickets.take(SessionId(u64::MAX), Epoch(1), 1630, 1690), Ok(()));
    }

    const CONTROL: Carrier = Carrier { calls: 0, congested: false, leases: true };
    const IDLE: Carrier = Carrier { calls: 0, congested: false, leases: false };
    const BUSY: Carrier = Carrier { calls: 7, congested: false, leases: false };

    fn congested(link: Carrier) -> Carrier {
        Carrier { congested: true, ..link }
    }

    #[test]
    fn a_congested_link_takes_its_own_room_alone() {
        assert_eq!(room([CONTROL, IDLE, BUSY].into_iter(), 1000), 2000);
        assert_eq!(room([CONTROL, IDLE, congested(BUSY)].into_iter(), 1000), 1007);
        assert_eq!(room([CONTROL, congested(IDLE), congested(BUSY)].into_iter(), 1000), 7);
    }

    #[test]
    fn a_congested_control_link_decides_nothing() {
        assert_eq!(room([congested(CONTROL), IDLE, BUSY].into_iter(), 1000), 2000);
        assert_eq!(room([congested(CONTROL)].into_iter(), 1000), 1000);
    }

    #[test]
    fn a_link_with_lease_and_calls_carries() {
        let both = Carrier { leases: true, ..BUSY };
        assert_eq!(room([both].into_iter(), 1000), 1000);
        assert_eq!(room([congested(both)].into_iter(), 1000), 7);
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
