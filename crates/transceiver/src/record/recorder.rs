//! Makes records of a conversation's events.
//!
//! Run loop: [`Recorder::event`] and [`Recorder::timing`] for each output of the conversation, [`Recorder::settle`] when it
//! has no more, then [`Recorder::poll`] until it is empty.
//!
//! Invariant: each event lands in one record. A record ends when nothing more comes of its reply; a cut reply is still
//! open while the speech that cut it has a record already.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use voice::{Balance, Decision, DecisionKind, Event, FlushReason, ResponseId, TurnId, TurnTiming};

use super::{Counts, Decided, Outcome, PAST_DECISIONS, PAST_TURNS, Positions, TURN_DECISIONS, TurnRecord};

/// Turns that are open at once: the one that is spoken, one that is answered, and cut replies the edge has not confirmed.
const MAX_OPEN: usize = 4;

/// Characters kept of a backend's message.
const MAX_REASON: usize = 200;

/// The records of one call.
#[derive(Debug)]
pub(crate) struct Recorder {
    began: Instant,
    /// The latest instant given.
    now: Instant,
    /// Oldest first.
    open: VecDeque<Open>,
    /// Decisions that belong to no open turn: they begin the next record.
    loose: Vec<Decided>,
    loose_dropped: u64,
    past: VecDeque<Arc<TurnRecord>>,
    past_decisions: usize,
    /// Of the past, the newest that were not polled yet.
    fresh: usize,
    /// Turns that had no room.
    given_up: u64,
    /// Up to the end of the last record.
    counted: Counts,
}

#[derive(Debug)]
struct Open {
    record: TurnRecord,
    over: bool,
}

impl Recorder {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            began: now,
            now,
            open: VecDeque::new(),
            loose: Vec::new(),
            loose_dropped: 0,
            past: VecDeque::new(),
            past_decisions: 0,
            fresh: 0,
            given_up: 0,
            counted: Counts::default(),
        }
    }

    /// Something happened.
    pub(crate) fn event(&mut self, now: Instant, event: &Event) {
        self.now = now.max(self.now);
        let at = self.at();
        match event {
            Event::Decision(decision) => self.decision(at, *decision),
            Event::SpeechStarted { turn, audio_start_ms } => {
                let start = *audio_start_ms;
                self.speech(*turn).audio_start_ms = Some(start);
            }
            Event::SpeechStopped { turn, audio_end_ms } => {
                let end = *audio_end_ms;
                self.speech(*turn).audio_end_ms = Some(end);
            }
            Event::Committed { turn } => self.speech(*turn).moments.committed_ms = Some(at),
            Event::ResponseCreated { response } => {
                let waits = self.open.back().is_some_and(|open| !open.over && open.record.response.is_none());
                let record = if waits { self.newest() } else { self.begin() };
                record.response = Some(*response);
                record.moments.asked_ms = Some(at);
            }
            Event::ResponseAudioStarted { response, .. } => {
                self.with(*response, |open| open.record.moments.audio_ms = Some(at));
            }
            Event::PlayoutStarted { response } => {
                self.with(*response, |open| open.record.moments.playing_ms = Some(at));
            }
            Event::ResponseDone { response, generated } | Event::ResponseIncomplete { response, generated, .. } => self
                .with(*response, |open| {
                    open.record.positions.generated = Some(*generated);
                    // A reply without a sound is never played.
                    if open.record.moments.audio_ms.is_none() {
                        open.end(Outcome::Answered);
                    }
                }),
            Event::ResponseCancelled { response, reason } => self.with(*response, |open| {
                open.say(outcome_of(*reason));
                open.over |= open.record.moments.audio_ms.is_none();
            }),
            Event::ResponseFailed { response, failure } => self.with(*response, |open| {
                if open.record.outcome != Outcome::Failed {
                    open.record.reason = Some(failure.message.chars().take(MAX_REASON).collect());
                }
                open.say(Outcome::Failed);
                open.over |= open.record.moments.audio_ms.is_none();
            }),
            Event::AudioMislabeled { response, declared, likely } => self.with(*response, |open| {
                let odd = || format!("its audio is labeled {declared} Hz and seems to have {likely}");
                open.record.reason.get_or_insert_with(odd);
            }),
            Event::PlayoutStopped { response } => self.with(*response, |open| open.end(Outcome::Answered)),
            Event::PlayoutCleared { response, .. } => self.with(*response, |open| open.end(open.outcome())),
            Event::ReplyOver(balance) => self.with(balance.response, |open| {
                let Balance { generated, sent, played_end, heard_at, underruns, .. } = *balance;
                open.record.positions =
                    Positions { generated: Some(generated), sent: Some(sent), played_end: Some(played_end), heard_at };
                open.record.counts.underruns = underruns.into();
                open.over = true;
            }),
            // What else there is says nothing about turns that a decision does not say.
            _ => {}
        }
    }

    /// Where the time of the reply went that has just begun to play.
    pub(crate) fn timing(&mut self, timing: TurnTiming) {
        let waits = |open: &&mut Open| open.record.moments.playing_ms.is_some() && open.record.timing.is_none();
        if let Some(open) = self.open.iter_mut().rev().find(waits) {
            open.record.timing = Some(timing);
        }
    }

    /// The conversation has no more to say: records of what is over are complete.
    pub(crate) fn settle(&mut self, counts: impl FnOnce() -> Counts) {
        if self.open.len() <= MAX_OPEN && !self.open.iter().any(|open| open.over) {
            return;
        }
        let counts = counts();
        while let Some(at) = self.open.iter().position(|open| open.over) {
            self.close(at, counts);
        }
        while self.open.len() > MAX_OPEN {
            self.close(0, counts);
        }
    }

    /// The call is over, and so is every turn of it.
    pub(crate) fn end(&mut self, counts: Counts) {
        while !self.open.is_empty() {
            self.close(0, counts);
        }
        if let Some(record) = self.idle() {
            self.keep(record);
        }
    }

    /// The next record that is complete.
    pub(crate) fn poll(&mut self) -> Option<Arc<TurnRecord>> {
        let record = self.past.get(self.past.len() - self.fresh)?;
        self.fresh -= 1;
        Some(Arc::clone(record))
    }

    /// All that is known, oldest first; turns that go on are [`Outcome::Open`].
    pub(crate) fn all(&self, counts: Counts) -> Vec<Arc<TurnRecord>> {
        let mut records: Vec<_> = self.past.iter().cloned().collect();
        let open = self.open.iter().map(|open| {
            let mut record = open.record.clone();
            record.counts = record.counts.heard_between(self.counted, counts);
            Arc::new(record)
        });
        records.extend(open);
        if !self.loose.is_empty() {
            let mut record = TurnRecord::new(self.loose[0].at_ms);
            record.decisions = self.loose.clone();
            records.push(Arc::new(record));
        }
        records
    }

    /// Turns that had no room.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Ms since the call began.
    fn at(&self) -> u64 {
        u64::try_from(self.now.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX)
    }

    fn decision(&mut self, at_ms: u64, decision: Decision) {
        let made = Decided { at_ms, decision };
        // The record of the turn that it starts follows.
        let starts = decision.kind == DecisionKind::TurnStart;
        let (decisions, dropped) = match self.open.back_mut().filter(|open| !open.over && !starts) {
            Some(open) => (&mut open.record.decisions, &mut open.record.decisions_dropped),
            None => (&mut self.loose, &mut self.loose_dropped),
        };
        if decisions.len() < TURN_DECISIONS { decisions.push(made) } else { *dropped += 1 }
    }

    /// The record of the user's turn; the first word of it begins one.
    fn speech(&mut self, turn: TurnId) -> &mut TurnRecord {
        if let Some(at) = self.open.iter().position(|open| open.record.turn == Some(turn)) {
            return &mut self.open[at].record;
        }
        // Speech that nobody was asked to answer is over when the next begins.
        for open in self.open.iter_mut().filter(|open| open.record.response.is_none()) {
            open.end(Outcome::Unanswered);
        }
        let record = self.begin();
        record.turn = Some(turn);
        record
    }

    fn begin(&mut self) -> &mut TurnRecord {
        let mut record = TurnRecord::new(self.loose.first().map_or_else(|| self.at(), |first| first.at_ms));
        record.decisions = std::mem::take(&mut self.loose);
        record.decisions_dropped = std::mem::take(&mut self.loose_dropped);
        self.open.push_back(Open { record, over: false });
        self.newest()
    }

    /// Of which there is one: each caller has looked, or has just begun it.
    fn newest(&mut self) -> &mut TurnRecord {
        let last = self.open.len() - 1;
        &mut self.open[last].record
    }

    fn with(&mut self, response: ResponseId, note: impl FnOnce(&mut Open)) {
        if let Some(open) = self.open.iter_mut().find(|open| open.record.response == Some(response)) {
            note(open);
        }
    }

    fn close(&mut self, at: usize, counts: Counts) {
        let Some(mut open) = self.open.remove(at) else { return };
        open.say(open.outcome());
        open.record.moments.over_ms = Some(self.at());
        open.record.counts = open.record.counts.heard_between(self.counted, counts);
        self.counted = counts;
        self.keep(open.record);
    }

    /// What was decided in nobody's turn.
    fn idle(&mut self) -> Option<TurnRecord> {
        let mut record = TurnRecord::new(self.loose.first()?.at_ms);
        record.decisions = std::mem::take(&mut self.loose);
        record.decisions_dropped = std::mem::take(&mut self.loose_dropped);
        record.outcome = Outcome::Idle;
        record.moments.over_ms = Some(self.at());
        Some(record)
    }

    fn keep(&mut self, mut record: TurnRecord) {
        record.decisions.shrink_to_fit();
        self.past_decisions += record.decisions.len();
        self.past.push_back(Arc::new(record));
        self.fresh += 1;
        while self.past.len() > PAST_TURNS || self.past_decisions > PAST_DECISIONS {
            let Some(oldest) = self.past.pop_front() else { break };
            self.past_decisions -= oldest.decisions.len();
            self.given_up += 1;
        }
        self.fresh = self.fresh.min(self.past.len());
    }
}

impl Open {
    /// The first word on how it ends counts.
    fn say(&mut self, outcome: Outcome) {
        if self.record.outcome == Outcome::Open {
            self.record.outcome = outcome;
        }
    }

    /// As its decisions say, when no event did.
    fn outcome(&self) -> Outcome {
        let made = |kind| self.record.decisions.iter().any(|made| made.decision.kind == kind);
        match () {
            () if self.record.response.is_none() => Outcome::Unanswered,
            () if made(DecisionKind::ClientCut) => Outcome::Cancelled,
            () if made(DecisionKind::Interrupt) => Outcome::Interrupted,
            () => Outcome::Unanswered,
        }
    }

    fn end(&mut self, outcome: Outcome) {
        self.say(outcome);
        self.over = true;
    }
}

fn outcome_of(reason: FlushReason) -> Outcome {
    match reason {
        FlushReason::TurnDetected => Outcome::Interrupted,
        FlushReason::ClientCancelled => Outcome::Cancelled,
    }
}
