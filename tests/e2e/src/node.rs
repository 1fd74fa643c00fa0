//! A transceiver of the world: who may come in, and one [`Call`] per session.

use std::collections::BTreeMap;
use std::time::Instant;

use link::datagram::{self, Batch};
use link::ids::{Epoch, SessionId, Slot, TransceiverId};
use link::proto::{EdgeMessage, OpenRequest, ReleaseRequest};
use transceiver::call::{Call, CallConfig, CallOutput};

use crate::plan::NodePlan;

/// A call on the link to one worker.
pub(crate) type Key = (usize, Slot);

/// One transceiver.
pub struct Node {
    pub(crate) id: TransceiverId,
    config: CallConfig,
    seats: usize,
    refusing: bool,
    /// Slots are never used twice, so none needs to rest.
    next_slot: u32,
    calls: BTreeMap<Key, Seat>,
    /// Frames, reports and messages that met no call.
    pub strays: u64,
}

pub(crate) struct Seat {
    pub(crate) call: Call,
    pub(crate) session: SessionId,
    pub(crate) epoch: Epoch,
    ended: bool,
}

impl Node {
    pub(crate) fn new(plan: &NodePlan, reflex: bool) -> Self {
        let NodePlan { id, seats, refusing } = *plan;
        let mut config = CallConfig::default();
        config.voice.interruption.reflex = reflex;
        let id = TransceiverId(id);
        Self { id, config, seats, refusing, next_slot: 1, calls: BTreeMap::new(), strays: 0 }
    }

    /// In the log.
    pub(crate) fn name(&self) -> String {
        format!("transceiver{}", self.id.0)
    }

    /// Running calls.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// The call of a session.
    #[must_use]
    pub fn call(&self, session: SessionId) -> Option<&Call> {
        self.calls.values().find(|seat| seat.session == session).map(|seat| &seat.call)
    }

    pub(crate) fn open(
        &mut self,
        now: Instant,
        worker: usize,
        request: &OpenRequest,
        seed: u64,
    ) -> Result<Slot, &'static str> {
        let (session, epoch) = (SessionId(request.session), Epoch(request.epoch));
        if self.refusing || self.calls.len() >= self.seats {
            return Err("no_seat");
        }
        if self.calls.values().any(|seat| seat.session == session && seat.epoch >= epoch) {
            return Err("stale_epoch");
        }
        self.calls.retain(|_, seat| seat.session != session);
        let slot = Slot(self.next_slot);
        self.next_slot += 1;
        let call = Call::new(now, self.config.clone(), request, slot, seed);
        self.calls.insert((worker, slot), Seat { call, session, epoch, ended: false });
        Ok(slot)
    }

    pub(crate) fn release(&mut self, worker: usize, request: &ReleaseRequest) {
        let (session, epoch) = (SessionId(request.session), Epoch(request.epoch));
        self.calls.retain(|(w, _), seat| *w != worker || seat.session != session || seat.epoch != epoch);
    }

    pub(crate) fn message(
        &mut self,
        now: Instant,
        worker: usize,
        (session, epoch): (SessionId, Epoch),
        message: EdgeMessage,
    ) {
        let mut seats = self.calls.iter_mut().filter(|((w, _), _)| *w == worker).map(|(_, seat)| seat);
        match seats.find(|seat| seat.session == session && seat.epoch == epoch) {
            Some(seat) => seat.call.handle_message(now, message),
            None => self.strays += 1,
        }
    }

    /// Takes a batch; gives back the slots and sequence numbers of the frames in it.
    pub(crate) fn batch(&mut self, now: Instant, worker: usize, batch: &[u8]) -> Vec<(Slot, u16)> {
        let mut taken = Vec::new();
        match datagram::parse(batch).expect("a batch as the edge writes them") {
            Batch::MediaUp { frames, .. } => {
                for frame in frames {
                    let frame = frame.expect("a whole frame");
                    match self.calls.get_mut(&(worker, frame.slot)) {
                        Some(seat) => {
                            taken.push((frame.slot, frame.seq));
                            seat.call.handle_media(now, &frame);
                        }
                        None => self.strays += 1,
                    }
                }
            }
            Batch::Playout { reports, .. } => {
                for report in reports {
                    let report = report.expect("a whole report");
                    match self.calls.get_mut(&(worker, report.slot)) {
                        Some(seat) => seat.call.handle_report(now, &report),
                        None => self.strays += 1,
                    }
                }
            }
            Batch::MediaDown { .. } | Batch::Heartbeat(_) => panic!("the edge sends none of these"),
        }
        taken
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.calls.values().filter_map(|seat| seat.call.poll_timeout()).min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for seat in self.calls.values_mut() {
            if seat.call.poll_timeout().is_some_and(|due| due <= now) {
                seat.call.handle_timeout(now);
            }
        }
    }

    /// Everything that calls want done, call by call; those that ended are gone afterwards.
    pub(crate) fn drain(&mut self) -> Vec<(Key, SessionId, Epoch, CallOutput)> {
        let mut outputs = Vec::new();
        for (key, seat) in &mut self.calls {
            while let Some(output) = seat.call.poll_output() {
                seat.ended |= output == CallOutput::Ended;
                outputs.push((*key, seat.session, seat.epoch, output));
            }
        }
        self.calls.retain(|_, seat| !seat.ended);
        outputs
    }
}
