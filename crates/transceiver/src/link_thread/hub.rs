//! What the link thread knows: links with their slots, calls with their queues, seats, workers.
//!
//! Invariant: a call has exactly one seat, one slot and one entry in `sessions` from [`Hub::open`] to [`Hub::end_call`],
//! and every way a call can end leads there: a Release, the end of its session stream, the end of its link, its own end
//! in the worker.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use link::datagram::{BatchWriter, Codec, MediaUp, Previous};
use link::ids::{EdgeId, Epoch, SessionId, Slot};
use link::proto::{
    ChannelMessage, Downlink, LeaseGrant, OpenRequest, ReleaseRequest, SessionHeader, TransceiverMessage,
    transceiver_message,
};
use link::quic::{Link, PathState, Peer, SESSIONS_PER_LINK, clock_base, clock32_at};
use tokio::sync::mpsc;

use super::queues::{Attached, CallQueues, Sending};
use crate::admission::{Admission, Carrier, Refusal, Tickets, room};
use crate::backend::Models;
use crate::call::CallOutput;
use crate::ring::{CallKey, Control, FromWorker, ToWorker};
use crate::slots::Slots;

/// What a stream that is to be attached is told where there is no call for it.
const NO_CALL: &str = "call_id_not_found";

/// An edge opens the session stream right after the answer to Open.
const STREAM_TIMEOUT: Duration = Duration::from_secs(10);

/// Streams attached to one call: an app's server, a monitor, and two that reconnect before the former are known to be gone.
const ATTACHED_MAX: usize = 4;

/// What a slot names, for the reader of datagrams.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub(super) key: CallKey,
    pub(super) worker: usize,
}

/// The slots of one link, shared with the reader of its datagrams.
pub(super) type LinkSlots = Rc<RefCell<Slots<Target>>>;

/// One worker, shared between everything on the link thread that feeds it.
pub(super) type SharedWorker = Rc<RefCell<ToWorker>>;

struct LinkEntry {
    link: Link,
    edge: EdgeId,
    slots: LinkSlots,
    calls: u32,
    path: PathState,
    /// Frames for clients that go by datagrams, of one turn.
    down: BatchWriter,
}

struct CallEntry {
    opened: Instant,
    session: SessionId,
    epoch: Epoch,
    link: u64,
    edge: EdgeId,
    slot: Slot,
    worker: usize,
    queues: CallQueues,
    /// Whose call it is.
    tenant: u32,
    attached: Vec<Attached>,
    /// Its audio goes by datagrams.
    direct: Option<Direct>,
}

/// The numbers of a session's frames that go by datagrams.
#[derive(Default)]
struct Direct {
    seq: u16,
    sample: u32,
    previous: Previous,
}

struct Lease {
    edge: EdgeId,
    grants: mpsc::Sender<LeaseGrant>,
}

/// Counts of the link thread.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) refused: BTreeMap<&'static str, u64>,
    /// Calls by why they ended.
    pub(super) ended: BTreeMap<&'static str, u64>,
    /// Session streams that name no call.
    pub(super) stray_streams: u64,
    /// Datagrams, or the rest of one, that could not be read.
    pub(super) bad_datagrams: u64,
    /// Frames for slots that name nobody.
    pub(super) stray_frames: u64,
    /// Downlink frames dropped because the edge does not read the session's audio.
    pub(super) audio_dropped: u64,
    /// Calls ended because the edge does not read their messages.
    pub(super) blocked: u64,
}

pub(super) struct Hub {
    links: BTreeMap<u64, LinkEntry>,
    calls: BTreeMap<CallKey, CallEntry>,
    sessions: BTreeMap<SessionId, CallKey>,
    admission: Admission,
    tickets: Tickets,
    leases: Vec<Lease>,
    /// Links with a lease on them.
    leasing: BTreeSet<u64>,
    models: Models,
    workers: Vec<SharedWorker>,
    next_key: u64,
    next_attached: u64,
    pub(super) counts: Counts,
    pub(super) sending: Rc<Sending>,
}

impl Hub {
    pub(super) fn new(seats: u32, models: Models, workers: Vec<SharedWorker>) -> Self {
        Self {
            links: BTreeMap::new(),
            calls: BTreeMap::new(),
            sessions: BTreeMap::new(),
            admission: Admission::new(seats),
            tickets: Tickets::default(),
            leases: Vec::new(),
            leasing: BTreeSet::new(),
            models,
            workers,
            next_key: 0,
            next_attached: 0,
            counts: Counts::default(),
            sending: Rc::default(),
        }
    }

    pub(super) fn add_link(&mut self, link: Link) -> Option<LinkSlots> {
        let Peer::Edge(edge) = link.peer() else { return None };
        let slots = LinkSlots::new(RefCell::new(Slots::new()));
        let (path, down) = (PathState::default(), BatchWriter::media_down());
        self.links.insert(link.id(), LinkEntry { link, edge, slots: Rc::clone(&slots), calls: 0, path, down });
        Some(slots)
    }

    /// The path of a link is to be used otherwise. While it is congested nobody comes in over it, and its calls encode lower.
    pub(super) fn set_path(&mut self, link: u64, path: PathState) {
        let Some(entry) = self.links.get_mut(&link) else { return };
        let former = std::mem::replace(&mut entry.path, path);
        let congested = path.is_congested();
        if former.is_congested() == congested {
            return;
        }
        tracing::warn!(edge = entry.edge.0, congested, closing = path.closing, "the path of a link");
        for (&key, call) in self.calls.iter().filter(|(_, call)| call.link == link) {
            self.control_or_later(call.worker, Control::Congested { key, congested });
        }
        self.grant_leases();
    }

    /// The link is gone: nobody hears its calls any more.
    pub(super) fn remove_link(&mut self, now: Instant, link: u64) {
        let lost: Vec<CallKey> = self.calls.iter().filter(|(_, call)| call.link == link).map(|(key, _)| *key).collect();
        for key in lost {
            self.end_call(now, key, "link lost");
        }
        self.links.remove(&link);
        self.leasing.remove(&link);
    }

    /// Seats a call. The same request again gets the same slot.
    pub(super) fn open(&mut self, now: Instant, link: u64, seed: u64, request: OpenRequest) -> Result<Slot, Refusal> {
        let opened = self.try_open(now, link, seed, request);
        if let Err(refusal) = opened {
            *self.counts.refused.entry(refusal.label()).or_default() += 1;
        }
        opened
    }

    fn try_open(&mut self, now: Instant, link: u64, seed: u64, request: OpenRequest) -> Result<Slot, Refusal> {
        let (session, epoch, tenant) = (SessionId(request.session), Epoch(request.epoch), request.tenant);
        if epoch.0 == 0 {
            return Err(Refusal::Malformed);
        }
        let model = self.models.named(&request.model, seed).ok_or(Refusal::Model)?;
        if let Some((key, call)) = self.sessions.get(&session).and_then(|key| Some((*key, self.calls.get(key)?))) {
            if call.epoch == epoch && call.link == link {
                return Ok(call.slot);
            }
            if call.epoch >= epoch {
                return Err(Refusal::StaleEpoch);
            }
            self.end_call(now, key, "opened again");
        }
        if request.ticket_expires != 0 {
            self.tickets.take(session, epoch, request.created_at, request.ticket_expires.into())?;
        }
        let Some(entry) = self.links.get_mut(&link) else { return Err(Refusal::Overloaded) };
        if entry.path.is_congested() {
            return Err(Refusal::Congested);
        }
        if entry.calls >= SESSIONS_PER_LINK {
            return Err(Refusal::Overloaded);
        }
        let direct = (model.is_real_time() && request.downlink() == Downlink::Datagram).then(Direct::default);
        let edge = entry.edge;
        self.admission.take(edge)?;
        let key = CallKey(self.next_key);
        self.next_key += 1;
        let worker = worker_of(session, self.workers.len());
        let slot = entry.slots.borrow_mut().allocate(now, Target { key, worker });
        let open = Control::Open { key, request: Box::new(request), slot, seed };
        if self.workers[worker].borrow_mut().control(open).is_err() {
            entry.slots.borrow_mut().release(now, slot);
            self.admission.give_back(edge);
            return Err(Refusal::Overloaded);
        }
        entry.calls += 1;
        let queues = CallQueues::start(entry.link.clone(), &self.sending);
        let attached = Vec::new();
        let call =
            CallEntry { opened: now, session, epoch, link, edge, slot, worker, queues, tenant, attached, direct };
        self.calls.insert(key, call);
        self.sessions.insert(session, key);
        tracing::info!(%session, epoch = epoch.0, edge = edge.0, slot = slot.0, "call opened");
        Ok(slot)
    }

    /// The edge gives a call up. Unknown ones were given up before.
    pub(super) fn release(&mut self, now: Instant, request: &ReleaseRequest) {
        let Some(&key) = self.sessions.get(&SessionId(request.session)) else { return };
        if self.calls.get(&key).is_some_and(|call| call.epoch.0 == request.epoch) {
            self.end_call(now, key, "released");
        }
    }

    /// The call that a session stream names, its worker, and the queues it is to empty.
    pub(super) fn session_stream(&mut self, link: u64, header: &SessionHeader) -> Option<(Target, &mut CallQueues)> {
        let key = *self.sessions.get(&SessionId(header.session))?;
        let call = self.calls.get_mut(&key)?;
        let names_it = call.link == link && call.epoch.0 == header.epoch && call.slot.0 == header.slot;
        names_it.then_some((Target { key, worker: call.worker }, &mut call.queues))
    }

    /// The call that a further stream names, and a number for the stream.
    ///
    /// # Errors
    /// Why it cannot be attached: what the stream is told.
    pub(super) fn attachable(&mut self, header: &SessionHeader) -> Result<(Target, u64), &'static str> {
        let key = self.sessions.get(&SessionId(header.session)).copied().ok_or(NO_CALL)?;
        let call = self.calls.get(&key).filter(|call| call.tenant == header.tenant).ok_or(NO_CALL)?;
        if call.attached.len() >= ATTACHED_MAX {
            return Err("too_many_attached");
        }
        self.next_attached += 1;
        Ok((Target { key, worker: call.worker }, self.next_attached))
    }

    /// Attaches a further stream to a call.
    pub(super) fn attach(&mut self, key: CallKey, attached: Attached) {
        let Some(call) = self.calls.get_mut(&key) else { return };
        call.attached.push(attached);
        put(&self.workers[call.worker], Control::Attended { key, attended: true });
        tracing::info!(session = %call.session, attached = call.attached.len(), "stream attached");
    }

    /// A further stream is over; its call goes on.
    pub(super) fn detach(&mut self, key: CallKey, id: u64) {
        let Some(call) = self.calls.get_mut(&key) else { return };
        let before = call.attached.len();
        call.attached.retain(|attached| attached.id != id);
        if before > 0 && call.attached.is_empty() {
            put(&self.workers[call.worker], Control::Attended { key, attended: false });
        }
    }

    /// An event to whoever listens beside the client. Who does not read is let go.
    fn tell_attached(&mut self, key: CallKey, event: &str) {
        let Some(call) = self.calls.get_mut(&key) else { return };
        let message = |event: &str| {
            let message = ChannelMessage { channel: 0, binary: false, data: event.as_bytes().to_vec() };
            TransceiverMessage { kind: Some(transceiver_message::Kind::ChannelMessage(message)) }
        };
        let deaf: Vec<u64> =
            call.attached.iter().filter(|one| !one.message(message(event))).map(|one| one.id).collect();
        for id in deaf {
            self.detach(key, id);
        }
    }

    /// Ends calls whose session stream never came: their edge gave up without a word.
    pub(super) fn expire(&mut self, now: Instant) {
        let silent = |call: &CallEntry| !call.queues.is_attached() && now >= call.opened + STREAM_TIMEOUT;
        let expired: Vec<CallKey> = self.calls.iter().filter(|(_, call)| silent(call)).map(|(key, _)| *key).collect();
        for key in expired {
            self.end_call(now, key, "no session stream");
        }
    }

    /// Passes a worker's output on.
    pub(super) fn output(&mut self, now: Instant, output: FromWorker) {
        let FromWorker { key, output } = output;
        if let CallOutput::Event(event) = output {
            return self.tell_attached(key, &event);
        }
        // Outputs of a call that ended here meanwhile.
        let Some(call) = self.calls.get_mut(&key) else { return };
        let sent = match output {
            CallOutput::UtteranceFrame { samples, payload, .. } if call.direct.is_some() => {
                if let (Some(direct), Some(link)) = (&mut call.direct, self.links.get_mut(&call.link)) {
                    let (slot, epoch) = (call.slot, call.epoch.low8());
                    link.push_down(now, direct, slot, epoch, samples, &payload);
                }
                true
            }
            CallOutput::UtteranceStart(_) | CallOutput::UtteranceEnd { .. } if call.direct.is_some() => true,
            CallOutput::Message(message) => call.queues.message(message),
            CallOutput::UtteranceFrame { utterance, samples, payload } => {
                if !call.queues.frame(utterance, samples, payload) {
                    self.counts.audio_dropped += 1;
                }
                true
            }
            CallOutput::UtteranceStart(header) => call.queues.utterance_start(header),
            CallOutput::UtteranceEnd { utterance } => call.queues.utterance_end(utterance),
            CallOutput::UtteranceReset { utterance } => {
                call.queues.utterance_reset(utterance);
                true
            }
            CallOutput::Event(_) => true,
            CallOutput::Ended => return self.end_call(now, key, "ended"),
        };
        if !sent {
            self.counts.blocked += 1;
            self.end_call(now, key, "the edge does not read");
        }
    }

    /// Lets frames that go by datagrams leave: after the last output of a turn.
    pub(super) fn end_of_batch(&mut self, now: Instant) {
        for entry in self.links.values_mut().filter(|entry| !entry.down.is_empty()) {
            entry.link.send_datagram(entry.down.take(clock32_at(now)));
        }
    }

    /// Everything a call holds is given back. What is queued for the edge is still sent.
    pub(super) fn end_call(&mut self, now: Instant, key: CallKey, reason: &'static str) {
        let Some(call) = self.calls.remove(&key) else { return };
        self.sessions.remove(&call.session);
        self.admission.give_back(call.edge);
        if let Some(link) = self.links.get(&call.link) {
            link.slots.borrow_mut().release(now, call.slot);
        }
        if let Some(link) = self.links.get_mut(&call.link) {
            link.calls = link.calls.saturating_sub(1);
        }
        for attached in call.attached {
            attached.close(1000, "call over");
        }
        call.queues.finish();
        self.control_or_later(call.worker, Control::Forget { key });
        *self.counts.ended.entry(reason).or_default() += 1;
        tracing::info!(session = %call.session, epoch = call.epoch.0, reason, "call ended");
    }

    /// No more calls; edges are told at once.
    pub(super) fn drain(&mut self) {
        self.admission.drain();
        self.grant_leases();
    }

    /// Ends every call in order: the client is told.
    pub(super) fn close_calls(&mut self, reason: &'static str) {
        let calls: Vec<(CallKey, usize)> = self.calls.iter().map(|(key, call)| (*key, call.worker)).collect();
        for (key, worker) in calls {
            self.control_or_later(worker, Control::Close { key, reason });
        }
    }

    pub(super) fn stop_workers(&self) {
        for worker in 0..self.workers.len() {
            self.control_or_later(worker, Control::Stop);
        }
    }

    pub(super) fn add_lease(&mut self, edge: EdgeId, link: u64, grants: mpsc::Sender<LeaseGrant>) {
        self.leasing.insert(link);
        self.leases.push(Lease { edge, grants });
        self.grant_leases();
    }

    /// Tells every edge what it may hold. A stream that nobody reads any more is forgotten.
    pub(super) fn grant_leases(&mut self) {
        let mut leases = std::mem::take(&mut self.leases);
        leases.retain(|lease| {
            let grant = LeaseGrant { seats: self.lease(lease.edge), draining: self.admission.is_draining() };
            // A full queue holds older grants; the next tick brings a fresh one.
            !matches!(lease.grants.try_send(grant), Err(mpsc::error::TrySendError::Closed(_)))
        });
        self.leases = leases;
    }

    /// What an edge may hold here in total, over its links as they are.
    fn lease(&self, edge: EdgeId) -> u32 {
        let links = self.links.iter().filter(|(_, link)| link.edge == edge).map(|(id, link)| Carrier {
            calls: link.calls,
            congested: link.path.is_congested(),
            leases: self.leasing.contains(id),
        });
        self.admission.lease_over(edge, room(links, SESSIONS_PER_LINK))
    }

    /// Links that are congested, closing, repeating.
    pub(super) fn paths(&self) -> [usize; 3] {
        let count = |which: fn(&PathState) -> bool| self.links.values().filter(|link| which(&link.path)).count();
        [count(PathState::is_congested), count(|path| path.closing), count(|path| path.repeat)]
    }

    pub(super) fn worker(&self, index: usize) -> SharedWorker {
        Rc::clone(&self.workers[index])
    }

    pub(super) fn workers(&self) -> &[SharedWorker] {
        &self.workers
    }

    pub(super) fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Slots in use and resting, over all links.
    pub(super) fn slots(&self, now: Instant) -> (usize, usize) {
        self.links.values().fold((0, 0), |(in_use, resting), link| {
            let mut slots = link.slots.borrow_mut();
            (in_use + slots.in_use(), resting + slots.quarantined(now))
        })
    }

    /// Seats granted to the edges that hold a lease, each edge counted once.
    pub(super) fn seats_leased(&self) -> u32 {
        let edges: BTreeSet<EdgeId> = self.leases.iter().map(|lease| lease.edge).collect();
        edges.into_iter().map(|edge| self.lease(edge)).sum()
    }

    pub(super) fn links(&self) -> usize {
        self.links.len()
    }

    /// Puts a control message into a worker's ring, or into its waiting line when the ring is full.
    fn control_or_later(&self, worker: usize, control: Control) {
        put(&self.workers[worker], control);
    }
}

impl LinkEntry {
    /// Puts a frame into the pending batch, behind the one before it where the link loses.
    fn push_down(&mut self, now: Instant, direct: &mut Direct, slot: Slot, epoch: u8, samples: u32, payload: &[u8]) {
        let frame = MediaUp {
            slot,
            epoch,
            codec: Codec::Opus,
            marker: false,
            seq: direct.seq,
            rtp_timestamp: direct.sample,
            audio_level: None,
            age_us: 0,
            payload,
        };
        direct.seq = direct.seq.wrapping_add(1);
        direct.sample = direct.sample.wrapping_add(samples);
        if self.path.repeat {
            let now_us = u64::try_from(now.saturating_duration_since(clock_base()).as_micros()).unwrap_or(u64::MAX);
            if let Some(again) = direct.previous.before(now_us, &frame) {
                self.push(now, &again);
            }
            direct.previous.keep(now_us, &frame);
        } else {
            direct.previous.forget();
        }
        self.push(now, &frame);
    }

    fn push(&mut self, now: Instant, frame: &MediaUp<'_>) {
        if !self.down.push_frame(frame) {
            if !self.down.is_empty() {
                self.link.send_datagram(self.down.take(clock32_at(now)));
            }
            // What a client sent in one datagram fits one, except for a few bytes: such a frame is lost.
            let _ = self.down.push_frame(frame);
        }
    }
}

fn put(worker: &SharedWorker, control: Control) {
    let refused = worker.borrow_mut().control(control);
    if let Err(control) = refused {
        daemon::spawn_local(push_control(Rc::clone(worker), control));
    }
}

/// Waits for room in a worker's control ring: its producers' backpressure.
pub(super) async fn push_control(worker: SharedWorker, mut control: Control) {
    /// A worker's turn of its loop takes about this long.
    const RETRY: Duration = Duration::from_millis(1);
    loop {
        let pushed = worker.borrow_mut().control(control);
        match pushed {
            Ok(()) => return,
            Err(refused) => control = refused,
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Spreads sessions over workers. Ids are random, but a test's are not: SplitMix64's finalizer evens both out.
fn worker_of(session: SessionId, workers: usize) -> usize {
    let mut z = session.0;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    let workers_wide = u64::try_from(workers.max(1)).unwrap_or(1);
    usize::try_from(z % workers_wide).unwrap_or(0)
}

#[cfg(test)]
mod tests;
