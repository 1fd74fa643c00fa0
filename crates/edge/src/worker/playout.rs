//! One session's downlink: a queue of Opus frames and the pacer that puts them on the wire.
//!
//! A transceiver sends utterances ahead of real time; the pacer lets one frame go whenever its slot on the media clock
//! begins, so the jitter of the backbone ends here. The media clock counts 48 kHz samples since the session began and is
//! the RTP timestamp as well: it runs on across silence (a receiver that saw timestamps stand still would grow its delay).
//!
//! # Run loop
//!
//! Feed [`Playout::start`], [`Playout::push`], [`Playout::end`] and the commands; at [`Playout::poll_timeout`] and after
//! each input drain [`Playout::poll_frame`], [`Playout::poll_report`] and [`Playout::poll_effect`] until they are empty.
//!
//! # Invariants
//!
//! * Slots never overlap: a frame's slot begins at or after the end of the frame before it.
//! * A late driver never causes a burst: slots that passed whole are skipped, their frames move to the slots that follow.
//! * Nothing of an utterance at or below the flushed one is ever sent.
//! * Sound is followed by sound or by silent frames, never by nothing.
//! * `sent` of an utterance only grows, by each of its samples once: what a step back plays again does not count.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

mod kept;
#[cfg(test)]
mod tests;

use kept::Kept;

/// Samples per second of the media clock (RFC 7587 §4.1: Opus in RTP always counts 48 kHz).
pub const SAMPLES_PER_SECOND: u64 = 48_000;

/// How far ahead of its playout an utterance may be sent to us: 1000 ms.
pub const AHEAD_SAMPLES: u64 = SAMPLES_PER_SECOND;

/// Time between two reports while an utterance is open.
pub const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Slack on the credit: a limit is as old as the last report, so one interval of samples.
const SLACK_SAMPLES: u64 = SAMPLES_PER_SECOND / 10;

/// Utterances that may be open at once. The next one opens when the last frame of the one before has left the
/// transceiver, so short ones pile up while the first still plays. Four with 1.1 s each at 50 frames/s of ~120 bytes
/// are 26 kB, and 280 kB if every frame had the largest size of an Opus packet.
const MAX_UTTERANCES: usize = 4;

/// No utterance begins later in its item than this: a week. Leaves room for every sum made with a position.
const MAX_FIRST_SAMPLE: u64 = 7 * 24 * 3600 * SAMPLES_PER_SECOND;

/// The largest Opus frame (RFC 6716 §3.1, one frame).
const MAX_PAYLOAD_BYTES: usize = 1275;

/// The longest Opus packet: 120 ms.
const MAX_FRAME_SAMPLES: u32 = 5760;

/// 20 ms of Opus silence: CELT, full band, mono, nothing coded (RFC 6716 §3.1).
pub(super) const SILENCE: [u8; 3] = [0xf8, 0xff, 0xfe];

/// Samples of [`SILENCE`].
const SILENCE_SAMPLES: u64 = 960;

/// Samples of a frame of a clip.
const CLIP_FRAME_SAMPLES: u64 = 960;

/// Silent frames after the last one with sound: a receiver left without packets stretches what it heard last into the
/// pause. Three outlive a lost packet.
const SILENT_FRAMES: u8 = 3;

/// Payload buffers kept for reuse: one second of 20 ms frames and some.
const MAX_SPARE: usize = 64;

/// Frames of a clip: 2 s of 20 ms. At most 128 kB, ~12 kB as a rule, until it is over.
pub const MAX_CLIP_FRAMES: usize = 100;

/// Positions of utterances that are over, kept so that a repeated Flush gets the same answer.
const MAX_OVER: usize = 4;

/// What became of playout, to be told to the transceiver at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effect {
    /// What happened.
    pub kind: EffectKind,
    /// To which utterance; 0 when there was none yet.
    pub utterance: u32,
    /// Its samples on the wire so far.
    pub sent: u64,
}

/// The kinds of [`Effect`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectKind {
    /// The first frame of the utterance is on the wire.
    Started,
    /// Nothing leaves after `sent` until Resume or Flush.
    Paused,
    /// Playing again from `sent`.
    Resumed,
    /// The utterance is dropped; `sent` of it was on the wire.
    Flushed,
    /// The last frame of the utterance is on the wire.
    Finished,
    /// The queue ran empty in the middle of the utterance.
    Underrun,
}

/// Where playout stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// The utterance that plays.
    pub utterance: u32,
    /// Its samples on the wire.
    pub sent: u64,
    /// Its sample up to which the transceiver may send.
    pub limit: u64,
    /// Its audio in the queue.
    pub queue_ms: u16,
    /// Times the queue ran empty in it.
    pub underruns: u16,
}

/// A frame whose slot has begun; its payload was put into the buffer given to [`Playout::poll_frame`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct DueFrame {
    /// Media clock at the begin of the slot, low 32 bits.
    pub rtp_timestamp: u32,
    /// First frame after a gap in the timestamps.
    pub marker: bool,
    /// Of which utterance; 0 for silence and clips.
    pub utterance: u32,
    /// Samples of the utterance that are on the wire with this frame for the first time.
    pub samples: u16,
}

/// Plain counters of one playout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames with sound handed out.
    pub sent: u64,
    /// Of these, frames that a step back played again.
    pub replayed: u64,
    /// Frames of clips, not among the others.
    pub clip_frames: u64,
    /// Clips that were not played, or not to their end, as an utterance was.
    pub clips_dropped: u64,
    /// Frames of flushed, unknown or overtaken utterances.
    pub stale: u64,
    /// Frames beyond the credit or not shaped like an Opus packet.
    pub refused: u64,
    /// Times a queue ran empty in the middle of an utterance.
    pub underruns: u64,
    /// Slots that passed while the driver was late.
    pub skipped_slots: u64,
}

struct Queued {
    samples: u32,
    payload: Vec<u8>,
}

struct Utterance {
    id: u32,
    frames: VecDeque<Queued>,
    kept: Kept,
    /// Item sample after the last frame on the wire.
    sent: u64,
    /// Item sample after the last frame in the queue.
    received: u64,
    underruns: u16,
    started: bool,
    ended: bool,
}

impl Utterance {
    /// There is a frame to play.
    fn is_ready(&self) -> bool {
        !self.frames.is_empty() || self.kept.is_waiting()
    }
}

/// The queue and its pacer.
pub struct Playout {
    base: Instant,
    /// In playing order; only the first one plays.
    utterances: VecDeque<Utterance>,
    over: VecDeque<(u32, u64)>,
    /// What is left of the clip that plays.
    clip: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    effects: VecDeque<Effect>,
    /// Media time at which the slot of the last frame sent ends.
    slot_end: u64,
    /// In a talkspurt: the next frame belongs at `slot_end`.
    running: bool,
    /// Silent frames still owed to the receiver when there is no sound.
    silent_left: u8,
    paused: bool,
    /// Utterances up to this one are never heard again.
    flushed: u32,
    /// The newest utterance of which something was sent: older ones are overtaken.
    playing: u32,
    next_report: Option<Instant>,
    stats: Stats,
}

impl Playout {
    /// An empty queue whose media clock starts at `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            base: now,
            utterances: VecDeque::with_capacity(MAX_UTTERANCES),
            over: VecDeque::with_capacity(MAX_OVER),
            clip: VecDeque::new(),
            spare: Vec::new(),
            effects: VecDeque::new(),
            slot_end: 0,
            running: false,
            silent_left: 0,
            paused: false,
            flushed: 0,
            playing: 0,
            next_report: None,
            stats: Stats::default(),
        }
    }

    /// The client can hear: a few silent frames set its receiver going before the first word.
    pub fn open(&mut self, now: Instant) {
        self.slot_end = self.slot_end.max(self.clock(now));
        self.silent_left = SILENT_FRAMES;
    }

    /// Opens an utterance whose first frame is item sample `first_sample`. Stale ones, absurd ones and one too many are ignored:
    /// their frames are then counted as they come.
    pub fn start(&mut self, now: Instant, id: u32, first_sample: u64) {
        let known = self.utterances.iter().any(|u| u.id == id);
        let stale = known || id <= self.flushed || id <= self.playing;
        if stale || first_sample > MAX_FIRST_SAMPLE || self.utterances.len() >= MAX_UTTERANCES {
            return;
        }
        // Streams overtake one another, utterances do not.
        let place = self.utterances.iter().position(|u| u.id > id).unwrap_or(self.utterances.len());
        self.utterances.insert(
            place,
            Utterance {
                id,
                frames: VecDeque::new(),
                kept: Kept::default(),
                sent: first_sample,
                received: first_sample,
                underruns: 0,
                started: false,
                ended: false,
            },
        );
        if self.next_report.is_none() {
            self.next_report = Some(now + REPORT_INTERVAL);
        }
    }

    /// Queues a frame of an open utterance.
    pub fn push(&mut self, now: Instant, id: u32, samples: u32, payload: &[u8]) {
        self.settle(now);
        let Some(utterance) = self.utterances.iter_mut().find(|u| u.id == id && !u.ended) else {
            self.stats.stale += 1;
            return;
        };
        let shaped = (1..=MAX_FRAME_SAMPLES).contains(&samples) && (1..=MAX_PAYLOAD_BYTES).contains(&payload.len());
        let end = utterance.received + u64::from(samples);
        if !shaped || end > utterance.sent + AHEAD_SAMPLES + SLACK_SAMPLES {
            self.stats.refused += 1;
            return;
        }
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(payload);
        utterance.received = end;
        utterance.frames.push_back(Queued { samples, payload: buffer });
    }

    /// No further frame of this utterance will come.
    pub fn end(&mut self, now: Instant, id: u32) {
        self.settle(now);
        if let Some(utterance) = self.utterances.iter_mut().find(|u| u.id == id) {
            utterance.ended = true;
        }
        self.retire();
    }

    /// Holds playout at the next frame border.
    pub fn pause(&mut self, now: Instant) {
        self.settle(now);
        self.paused = true;
        self.running = false;
        self.answer(EffectKind::Paused);
    }

    /// Goes on at the first sample not sent, or with the kept frame that begins at `from` or before it.
    pub fn resume(&mut self, now: Instant, from: Option<u64>) {
        self.settle(now);
        self.paused = false;
        if let Some((head, from)) = self.utterances.front_mut().zip(from)
            && from < head.sent
        {
            head.kept.step_back(from);
        }
        self.answer(EffectKind::Resumed);
    }

    /// Holds playout like [`Playout::pause`] by the edge's own will: the utterance that plays and what is sent of it, if
    /// one plays.
    pub fn hold(&mut self, now: Instant) -> Option<(u32, u64)> {
        self.settle(now);
        let head = self.utterances.front().filter(|head| !self.paused && head.started)?;
        let held = (head.id, head.sent);
        self.paused = true;
        self.running = false;
        Some(held)
    }

    /// Whether sound of an utterance leaves.
    #[must_use]
    pub fn is_playing(&self) -> bool {
        self.running && self.utterances.front().is_some_and(|head| head.started)
    }

    /// Plays frames of 20 ms at once, in place of a clip that plays, unless an utterance is open. `false`: it is not played,
    /// or not shaped like a clip.
    pub fn play_clip(&mut self, now: Instant, frames: Vec<Vec<u8>>) -> bool {
        self.settle(now);
        let shaped = frames.len() <= MAX_CLIP_FRAMES
            && frames.iter().all(|frame| (1..=MAX_PAYLOAD_BYTES).contains(&frame.len()));
        if !shaped || !self.utterances.is_empty() {
            self.stats.clips_dropped += 1;
            return false;
        }
        self.clip = frames.into();
        true
    }

    /// Drops every utterance up to and including `up_to`, frames still to come included, and ends a pause: what was
    /// paused is gone. Answers with the exact position of each one dropped, `up_to` last, also when repeated.
    pub fn flush(&mut self, now: Instant, up_to: u32) {
        self.settle(now);
        self.flushed = self.flushed.max(up_to);
        self.paused = false;
        while self.utterances.front().is_some_and(|u| u.id <= up_to) {
            let Some(dropped) = self.utterances.pop_front() else { break };
            if dropped.id != up_to {
                self.effects.push_back(Effect { kind: EffectKind::Flushed, utterance: dropped.id, sent: dropped.sent });
            }
            self.forget(dropped);
        }
        let sent = self.over.iter().find(|(id, _)| *id == up_to).map_or(0, |(_, sent)| *sent);
        self.effects.push_back(Effect { kind: EffectKind::Flushed, utterance: up_to, sent });
    }

    /// The next frame whose slot has begun. Its payload is swapped into `payload`, whose old buffer is kept for reuse.
    pub fn poll_frame(&mut self, now: Instant, payload: &mut Vec<u8>) -> Option<DueFrame> {
        self.settle(now);
        let clock = self.clock(now);
        if clock < self.slot_end {
            return None;
        }
        let sounding = self.utterances.front().is_some_and(|head| !self.paused && head.is_ready());
        if !sounding {
            return if self.clip.is_empty() { self.silence(clock, payload) } else { self.clip_frame(clock, payload) };
        }
        if !self.clip.is_empty() {
            self.clip.clear();
            self.stats.clips_dropped += 1;
        }
        let Self { utterances, spare, stats, .. } = self;
        let head = utterances.front_mut()?;
        let (samples, fresh) = match head.kept.next(payload) {
            Some(samples) => {
                stats.replayed += 1;
                (samples, 0)
            }
            None => {
                let mut frame = head.frames.pop_front()?;
                head.kept.keep(head.sent, frame.samples, &frame.payload, spare);
                std::mem::swap(payload, &mut frame.payload);
                if spare.len() < MAX_SPARE {
                    spare.push(frame.payload);
                }
                (frame.samples, frame.samples)
            }
        };
        stats.sent += 1;
        head.sent += u64::from(fresh);
        let utterance = head.id;
        self.playing = utterance;
        if !std::mem::replace(&mut head.started, true) {
            self.effects.push_back(Effect { kind: EffectKind::Started, utterance, sent: head.sent });
        }
        let (slot, marker) = self.sound(clock, samples.into());
        self.retire();
        let fresh = u16::try_from(fresh).unwrap_or(u16::MAX);
        Some(DueFrame { rtp_timestamp: low32(slot), marker, utterance, samples: fresh })
    }

    /// Takes the slot for a frame with sound: its begin, and whether a talkspurt begins with it.
    fn sound(&mut self, clock: u64, samples: u64) -> (u64, bool) {
        let slot = if self.running {
            let skipped = (clock - self.slot_end) / samples;
            self.stats.skipped_slots += skipped;
            self.slot_end + skipped * samples
        } else {
            clock
        };
        let marker = slot != self.slot_end || self.silent_left != SILENT_FRAMES;
        self.running = true;
        self.silent_left = SILENT_FRAMES;
        self.slot_end = slot + samples;
        (slot, marker)
    }

    /// The next frame of the clip.
    fn clip_frame(&mut self, clock: u64, payload: &mut Vec<u8>) -> Option<DueFrame> {
        let mut frame = self.clip.pop_front()?;
        std::mem::swap(payload, &mut frame);
        if self.spare.len() < MAX_SPARE {
            self.spare.push(frame);
        }
        self.stats.clip_frames += 1;
        let (slot, marker) = self.sound(clock, CLIP_FRAME_SAMPLES);
        Some(DueFrame { rtp_timestamp: low32(slot), marker, utterance: 0, samples: 0 })
    }

    /// A silent frame, if the receiver is still owed one.
    fn silence(&mut self, clock: u64, payload: &mut Vec<u8>) -> Option<DueFrame> {
        self.silent_left = self.silent_left.checked_sub(1)?;
        // A late driver leaves a gap rather than a burst.
        let slot = if clock - self.slot_end < SILENCE_SAMPLES { self.slot_end } else { clock };
        self.slot_end = slot + SILENCE_SAMPLES;
        payload.clear();
        payload.extend_from_slice(&SILENCE);
        Some(DueFrame { rtp_timestamp: low32(slot), marker: false, utterance: 0, samples: 0 })
    }

    /// When the slot after the last frame begins: the next one leaves then at the earliest.
    #[must_use]
    pub fn next_slot(&self) -> Instant {
        self.instant(self.slot_end)
    }

    /// The report that is due.
    pub fn poll_report(&mut self, now: Instant) -> Option<Report> {
        let due = self.next_report?;
        let Some(head) = self.utterances.front() else {
            self.next_report = None;
            return None;
        };
        if now < due {
            return None;
        }
        self.next_report = Some((due + REPORT_INTERVAL).max(now));
        Some(Report {
            utterance: head.id,
            sent: head.sent,
            limit: head.sent + AHEAD_SAMPLES,
            queue_ms: u16::try_from((head.received - head.sent) * 1000 / SAMPLES_PER_SECOND).unwrap_or(u16::MAX),
            underruns: head.underruns,
        })
    }

    /// The next effect to tell.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to poll next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let wanted = self.utterances.front().is_some_and(|head| {
            let starving = self.running && head.started && !head.ended;
            !self.paused && (head.is_ready() || starving)
        });
        let frame = (wanted || self.silent_left > 0 || !self.clip.is_empty()).then(|| self.next_slot());
        let report = self.next_report.filter(|_| !self.utterances.is_empty());
        [frame, report].into_iter().flatten().min()
    }

    /// Utterances that are open or still play.
    #[must_use]
    pub fn open_utterances(&self) -> usize {
        self.utterances.len()
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Media time now, low 32 bits: the RTP timestamp of something that leaves at once.
    #[must_use]
    pub fn rtp_now(&self, now: Instant) -> u32 {
        low32(self.clock(now))
    }

    /// Ends the talkspurt if a slot has begun for which there is no frame.
    fn settle(&mut self, now: Instant) {
        if !self.running || self.clock(now) < self.slot_end || !self.clip.is_empty() {
            return;
        }
        let Some(head) = self.utterances.front_mut() else {
            self.running = false;
            return;
        };
        if !head.is_ready() {
            self.running = false;
            if head.started {
                head.underruns = head.underruns.saturating_add(1);
                self.stats.underruns += 1;
                self.effects.push_back(Effect { kind: EffectKind::Underrun, utterance: head.id, sent: head.sent });
            }
        }
    }

    /// Closes utterances that ended and of which everything is sent, so that the next one plays.
    fn retire(&mut self) {
        while self.utterances.front().is_some_and(|u| u.ended && !u.is_ready()) {
            let Some(done) = self.utterances.pop_front() else { break };
            self.effects.push_back(Effect { kind: EffectKind::Finished, utterance: done.id, sent: done.sent });
            self.forget(done);
        }
    }

    fn forget(&mut self, over: Utterance) {
        self.over.truncate(MAX_OVER - 1);
        self.over.push_front((over.id, over.sent));
        let room = MAX_SPARE.saturating_sub(self.spare.len());
        let buffers = over.frames.into_iter().map(|f| f.payload).chain(over.kept.into_buffers());
        self.spare.extend(buffers.take(room));
    }

    fn answer(&mut self, kind: EffectKind) {
        let (utterance, sent) =
            self.utterances.front().map(|u| (u.id, u.sent)).or_else(|| self.over.front().copied()).unwrap_or_default();
        self.effects.push_back(Effect { kind, utterance, sent });
    }

    /// Whole samples since the begin. 48 kHz = 6 samples per 125 us; the product overflows after 97 years.
    fn clock(&self, now: Instant) -> u64 {
        let nanos = u64::try_from(now.saturating_duration_since(self.base).as_nanos()).unwrap_or(u64::MAX / 6);
        nanos * 6 / 125_000
    }

    /// The first instant at which [`Self::clock`] reads `sample`.
    fn instant(&self, sample: u64) -> Instant {
        self.base + Duration::from_nanos((sample * 125_000).div_ceil(6))
    }
}

/// RTP timestamps are the media clock modulo 2^32 (RFC 3550 §5.1).
#[expect(clippy::cast_possible_truncation, reason = "the modulus is the point")]
fn low32(sample: u64) -> u32 {
    sample as u32
}
