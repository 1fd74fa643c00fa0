//! A CPU worker: the calls of one thread, their deadlines and their outputs. Pure; [`thread`] drives it.
//!
//! Invariant: a call that has a deadline is in `due` exactly once, under that deadline.

pub(crate) mod thread;
mod waking;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use link::datagram::{MediaUp, Seen};
use link::ids::SessionId;
use voice::{StreamStats, TurnTiming};

use crate::call::{Call, CallConfig, CallOutput, CallStats};
use crate::record::{Archive, CallName, Over, SessionRecords, WorkerCalls};
use crate::ring::{CallKey, Control, Frame, FromWorker, Media};
use waking::{Alarm, Woken};

/// The calls of one thread.
pub(crate) struct Worker {
    config: CallConfig,
    calls: BTreeMap<CallKey, Seat>,
    due: BTreeSet<(Instant, CallKey)>,
    woken: Woken,
    outputs: VecDeque<FromWorker>,
    timings: VecDeque<TurnTiming>,
    first_deltas: VecDeque<Duration>,
    /// Turns and calls that are over; the owner reads them after every input.
    records: VecDeque<Left>,
    archive: Archive,
    /// Of calls that are over.
    past: CallStats,
    /// Frames and messages of calls that are not here (any more).
    unknown: u64,
    /// Frames that had come before.
    repeated: u64,
}

struct Seat {
    call: Call,
    /// Frames that came: a link that loses brings each twice.
    seen: Seen,
    due: Option<Instant>,
    alarm: Arc<Alarm>,
}

/// What a call leaves behind.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) call: CallName,
    pub(crate) began: Instant,
    pub(crate) over: Over,
}

/// What a worker counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) calls: u64,
    pub(crate) media: u64,
    pub(crate) stale: u64,
    pub(crate) ignored: u64,
    pub(crate) repeated: u64,
    pub(crate) stream: StreamStats,
}

impl Worker {
    /// `waker`: wakes whoever drives this, when a call was woken.
    pub(crate) fn new(config: CallConfig, waker: Waker) -> Self {
        Self {
            config,
            calls: BTreeMap::new(),
            due: BTreeSet::new(),
            woken: Woken::new(waker),
            outputs: VecDeque::new(),
            timings: VecDeque::new(),
            first_deltas: VecDeque::new(),
            records: VecDeque::new(),
            archive: Archive::default(),
            past: CallStats::default(),
            unknown: 0,
            repeated: 0,
        }
    }

    /// A control message; `false`: it was [`Control::Stop`].
    pub(crate) fn handle_control(&mut self, now: Instant, control: Control) -> bool {
        match control {
            Control::Open { key, request, slot, seed } => {
                let alarm = self.woken.alarm(key);
                let mut call = Call::new(now, self.config.clone(), &request, slot, seed);
                call.set_waker(now, Arc::clone(&alarm).into());
                self.calls.insert(key, Seat { call, seen: Seen::default(), due: None, alarm });
                self.settle(now, key);
            }
            Control::Message { key, message } => self.with(now, key, |call| call.handle_message(now, message)),
            Control::Attended { key, attended } => self.with(now, key, |call| call.attend(attended)),
            Control::Attached { key, message } => self.with(now, key, |call| call.handle_attached(now, message)),
            Control::Congested { key, congested } => self.with(now, key, |call| call.set_congested(congested)),
            Control::Close { key, reason } => self.with(now, key, |call| call.close(reason)),
            Control::Forget { key } => self.forget(now, key),
            Control::Stop => {
                while let Some((&key, _)) = self.calls.first_key_value() {
                    self.forget(now, key);
                }
                return false;
            }
        }
        true
    }

    /// A frame or a report. A frame without its call is `Err`: its `Open` may be in the other ring.
    pub(crate) fn handle_media(&mut self, now: Instant, media: Media) -> Result<(), Media> {
        let key = match &media {
            Media::Frame(frame) => frame.key,
            Media::Report { key, .. } => *key,
        };
        let Some(seat) = self.calls.get_mut(&key) else { return Err(media) };
        if let Media::Frame(frame) = &media
            && !seat.seen.fresh(frame.seq)
        {
            self.repeated += 1;
            return Ok(());
        }
        match media {
            Media::Frame(frame) => self.with(now, key, |call| call.handle_media(now, &media_up(&frame))),
            Media::Report { report, .. } => self.with(now, key, |call| call.handle_report(now, &report)),
        }
        Ok(())
    }

    /// Counts a frame whose call is nowhere.
    pub(crate) fn drop_media(&mut self) {
        self.unknown += 1;
    }

    /// Runs one call that is due; `false`: none is.
    pub(crate) fn handle_due(&mut self, now: Instant) -> bool {
        match self.due.first() {
            Some(&(due, key)) if due <= now => {
                self.with(now, key, |call| call.handle_timeout(now));
                true
            }
            _ => false,
        }
    }

    /// Lets one call look that was woken; `false`: none was.
    pub(crate) fn handle_woken(&mut self, now: Instant) -> bool {
        let Some(key) = self.woken.pop() else { return false };
        // A call that is gone needs nothing.
        if let Some(seat) = self.calls.get_mut(&key) {
            seat.alarm.clear();
            seat.call.handle_woken(now);
            self.settle(now, key);
        }
        true
    }

    pub(crate) fn poll_output(&mut self) -> Option<FromWorker> {
        self.outputs.pop_front()
    }

    pub(crate) fn poll_timing(&mut self) -> Option<TurnTiming> {
        self.timings.pop_front()
    }

    pub(crate) fn poll_first_delta(&mut self) -> Option<Duration> {
        self.first_deltas.pop_front()
    }

    pub(crate) fn poll_record(&mut self) -> Option<Left> {
        self.records.pop_front()
    }

    /// What happened in a call that goes on or ended lately.
    pub(crate) fn find(&self, session: SessionId) -> Option<SessionRecords> {
        let live = self.calls.values().find(|seat| seat.call.session() == session);
        live.map(|seat| seat.call.records()).or_else(|| self.archive.find(session).cloned())
    }

    /// The calls that go on and those that ended lately, the newest of them.
    pub(crate) fn calls(&self) -> WorkerCalls {
        // Keys rise.
        WorkerCalls::of(self.calls.values().rev().map(|seat| seat.call.records()), self.archive.newest())
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals {
            calls: u64::try_from(self.calls.len()).unwrap_or(u64::MAX),
            stale: self.unknown,
            repeated: self.repeated,
            ..Totals::default()
        };
        for stats in self.calls.values().map(|seat| seat.call.stats()).chain([self.past]) {
            totals.media += stats.media;
            totals.stale += stats.stale;
            totals.ignored += stats.bad_media + stats.ignored_messages + stats.dropped_events;
            totals.stream += stats.stream;
        }
        totals
    }

    fn with(&mut self, now: Instant, key: CallKey, action: impl FnOnce(&mut Call)) {
        match self.calls.get_mut(&key) {
            Some(seat) => {
                action(&mut seat.call);
                self.settle(now, key);
            }
            None => self.unknown += 1,
        }
    }

    /// Takes what a call has to say, and notes when it wants to be called.
    fn settle(&mut self, now: Instant, key: CallKey) {
        let Some(seat) = self.calls.get_mut(&key) else { return };
        let mut ended = false;
        while let Some(output) = seat.call.poll_output() {
            ended |= output == CallOutput::Ended;
            self.outputs.push_back(FromWorker { key, output });
        }
        while let Some(timing) = seat.call.poll_timing() {
            self.timings.push_back(timing);
        }
        self.first_deltas.extend(std::iter::from_fn(|| seat.call.poll_first_delta()));
        leave(&mut seat.call, &mut self.records);
        let due = seat.call.poll_timeout();
        if due != seat.due {
            if let Some(former) = std::mem::replace(&mut seat.due, due) {
                self.due.remove(&(former, key));
            }
            self.due.extend(due.map(|due| (due, key)));
        }
        if ended {
            self.forget(now, key);
        }
    }

    fn forget(&mut self, now: Instant, key: CallKey) {
        let Some(mut seat) = self.calls.remove(&key) else { return };
        seat.call.abandon();
        leave(&mut seat.call, &mut self.records);
        let records = SessionRecords { ended: Some(now), ..seat.call.records() };
        let (call, began) = (seat.call.name(), seat.call.began());
        let turns = records.given_up + u64::try_from(records.turns.len()).unwrap_or(u64::MAX);
        let over = Over::Call { lasted: now.saturating_duration_since(began), turns };
        self.records.push_back(Left { call, began, over });
        self.archive.keep(records);
        if let Some(due) = seat.due {
            self.due.remove(&(due, key));
        }
        let stats = seat.call.stats();
        self.past.media += stats.media;
        self.past.stale += stats.stale;
        self.past.bad_media += stats.bad_media;
        self.past.ignored_messages += stats.ignored_messages;
        self.past.dropped_events += stats.dropped_events;
        self.past.stream += stats.stream;
    }
}

/// Moves the records of turns that are over.
fn leave(call: &mut Call, records: &mut VecDeque<Left>) {
    let (name, began) = (call.name(), call.began());
    while let Some(record) = call.poll_record() {
        records.push_back(Left { call: name.clone(), began, over: Over::Turn(record) });
    }
}

fn media_up(frame: &Frame) -> MediaUp<'_> {
    MediaUp {
        slot: frame.slot,
        epoch: frame.epoch,
        codec: frame.codec,
        marker: frame.marker,
        seq: frame.seq,
        rtp_timestamp: frame.rtp_timestamp,
        audio_level: frame.audio_level,
        age_us: frame.age_us,
        payload: &frame.payload,
    }
}

#[cfg(test)]
mod tests;
