//! A dialogue whose audio comes as samples at whatever pace, and goes into events ahead of its time: what a client of a WebSocket has.
//!
//! [`Stream`] is to such a client what [`Conversation`](crate::Conversation) is to one of WebRTC, with the same detector, turns and gate. **Run loop:**
//! give it an input, then alternate [`Stream::poll_output`] until there is none, what the backend says to that, and [`Stream::listen`] until it is
//! `false`; call [`Stream::handle_timeout`] when [`Stream::poll_timeout`] is due.
//!
//! What is different:
//!
//! * **Two clocks.** Turns run on the samples' own clock (48 kHz media time from the first sample): 10 s appended at once are the same turns as 10 s in 10 s.
//!   The wall clock has what is about waiting: [`IDLE`](crate::ServerVad::idle_timeout_ms), a backend that gives nothing, and a client that stopped appending within
//!   its user's turn ([`STALL`]).
//! * **The client plays.** It has up to 10 s more than it played (`stream/outlet.rs`), nothing can be held there, and so there is no pause: what the gate lets
//!   pass cuts at once. Where the client is is an estimate, until it says where it cut ([`Stream::truncated`]). While it plays, the gate stands
//!   between a sound and `speech_started`, as clients stop playing at that event.
//! * **In order.** What is asked behind appended audio is done when that audio was heard (`stream/waiting.rs`).
//!
//! **Invariant:** whatever comes in, in whatever order, within bounded time it answers or listens; what it holds is bounded: 4 MiB of appended audio, 5.5 s or what
//! the rules for interruptions need of heard audio, `max_turn_ms` and 1 s of one reply.
//!
//! Not here: packets and their repair, playout reports, the edge's reflex, sounds of attention, echo (the time from an event to its sound is not known), backends that
//! speak without being asked.

mod listening;
mod outlet;
mod replying;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::VecDeque;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use crate::backend::{BackendInput, Request, ResponseId, TurnId};
use crate::config::{Config, ServerVad, TurnConfig};
use crate::decision::{DecisionKind, InterruptSource, Profile};
use crate::ear::Ear;
use crate::g711::Law;
use crate::rate::Resampler;
use crate::timbre::Timbre;
use crate::timing::{Heard, PendingTiming};
use crate::turn::{Reply, State, Turns};
use crate::types::{Event, FlushReason, TurnTiming};
use crate::verdict::{Judge, Judging};
use outlet::{AHEAD, Playing};
use replying::{Generation, Played};
use waiting::{Step, Waiting};

/// A client that appends nothing for this long within its user's turn has ended it. Longer than any silence that is waited for.
const STALL: Duration = Duration::from_secs(10);

/// The same while it is in doubt whether a turn began: a reply may wait for it.
const DOUBT_STALL: Duration = Duration::from_secs(1);

/// How much is done at once, and when there is more of it.
const GO: Duration = Duration::from_millis(5);

/// Steps of 16 ms heard in one go: 0.5 ms of work, 40 times the speed of speech.
const STEPS: u32 = 13;

/// Pieces of 100 ms sent in one go.
const PIECES: u32 = 5;

/// A reply is over for its backend this long after the client would have played it; later truncations change only what the API shows.
const SLACK: Duration = Duration::from_secs(1);

/// A cut that the client does not confirm lies where the client should have been.
const CUT_TIMEOUT: Duration = Duration::from_secs(2);

/// Replies that clients may still play: of more than these the oldest is taken for played.
const MAX_PLAYED: usize = 8;

/// How samples are coded; mono.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleFormat {
    /// 16 bits, little endian, 24 kHz.
    Pcm16,
    /// One byte per sample, 8 kHz.
    G711(Law),
}

/// What a stream wants done. Poll until empty after every input.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamOutput {
    /// For the backend.
    Backend(BackendInput),
    /// For the API layer.
    Event(Event),
    /// For the client: more of a response, at most 100 ms, in the format set last.
    Audio {
        /// Which.
        response: ResponseId,
        /// Whole samples.
        data: Vec<u8>,
    },
    /// What waited longest ([`Asked::Waits`]) had its turn.
    Waited(Waited),
    /// A turn's timing is complete.
    Timing(TurnTiming),
    /// The first of a response left for the client: sound, or words where it is wanted as text.
    FirstDelta {
        /// Since the response was asked for.
        after: Duration,
    },
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// It is done.
    Done,
    /// It waits behind the audio appended before it; [`StreamOutput::Waited`] tells of it, in order.
    Waits,
    /// It cannot be done.
    Refused,
}

/// What became of a request that waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// It was done.
    Done,
    /// A commit found no audio.
    CommitRefused,
    /// A response cannot be made: one is.
    CreateRefused,
}

/// Counts of one stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// 48 kHz samples appended that had no room.
    pub input_overflow: u64,
    /// 48 kHz samples of replies that had no room.
    pub reply_overflow: u64,
    /// Pieces of a backend's that made no sense, or were the whole reply once more.
    pub refused: u64,
    /// 48 kHz samples that a manual turn had no room for.
    pub manual_overflow: u64,
    /// Backend output of a response that is cancelled or unknown.
    pub orphans: u64,
    /// Sounds of attention, which such a client cannot play beside a reply.
    pub clips_dropped: u64,
    /// Times that a client had nothing left to play of a reply that went on.
    pub interruptions: u64,
    /// How long that was, in all.
    pub interrupted_us: u64,
}

impl StreamStats {
    /// The fields in their order.
    #[must_use]
    pub fn values(&self) -> [u64; 8] {
        let Self {
            input_overflow,
            reply_overflow,
            refused,
            manual_overflow,
            orphans,
            clips_dropped,
            interruptions,
            interrupted_us,
        } = *self;
        [
            input_overflow,
            reply_overflow,
            refused,
            manual_overflow,
            orphans,
            clips_dropped,
            interruptions,
            interrupted_us,
        ]
    }
}

impl AddAssign for StreamStats {
    fn add_assign(&mut self, more: Self) {
        self.input_overflow += more.input_overflow;
        self.reply_overflow += more.reply_overflow;
        self.refused += more.refused;
        self.manual_overflow += more.manual_overflow;
        self.orphans += more.orphans;
        self.clips_dropped += more.clips_dropped;
        self.interruptions += more.interruptions;
        self.interrupted_us += more.interrupted_us;
    }
}

/// One dialogue. See the module's documentation for how to drive it.
#[derive(Debug)]
pub struct Stream {
    config: Config,
    /// Latest instant given; settings come without one.
    now: Instant,
    /// Media time 0, for the turn machine.
    start: Instant,
    waiting: Waiting,
    /// To the ear's rate, of the last format.
    resampler: Option<(SampleFormat, Resampler)>,
    pcm: Vec<i16>,
    resampled: Vec<i16>,
    ear: Ear,
    timbre: Timbre,
    turns: Turns,
    judging: Judging,
    turn: Option<Turn>,
    last_turn: u64,
    /// Media time up to which audio went to the backend.
    given: u64,
    /// Of the last voiced frame.
    voiced: Heard,
    /// When the client last appended something.
    appended: Instant,
    hearing: Go,
    sending: Go,
    format: SampleFormat,
    text_only: bool,
    generation: Option<Generation>,
    last_response: u64,
    /// The first reply, if nothing of the user's came before it.
    greeting: Option<ResponseId>,
    /// A turn ended while a response was active: it is answered after it.
    owed: Option<Heard>,
    timing: Option<PendingTiming>,
    playing: Playing,
    /// Replies that the client may still play, oldest first.
    played: VecDeque<Played>,
    /// When an idle user is spoken to.
    idle_at: Option<Instant>,
    out: VecDeque<StreamOutput>,
    stats: StreamStats,
}

/// The running turn of the user's.
#[derive(Debug, Clone, Copy)]
struct Turn {
    id: TurnId,
    /// Media time of its first sample.
    start: u64,
}

/// Counts what is done in one go.
#[derive(Debug, Clone, Copy, Default)]
struct Go {
    end: Option<Instant>,
    used: u32,
}

impl Go {
    /// One more of `most`; `false`: later.
    fn take(&mut self, now: Instant, most: u32) -> bool {
        if self.end.is_none_or(|end| end <= now) {
            *self = Self { end: Some(now + GO), used: 0 };
        }
        self.used += 1;
        self.used <= most
    }

    /// When there is room again.
    fn again(&self, most: u32) -> Option<Instant> {
        self.end.filter(|_| self.used >= most)
    }
}

impl Stream {
    /// Starts listening; replies are in [`SampleFormat::Pcm16`].
    #[must_use]
    pub fn new(now: Instant, config: Config) -> Self {
        let config = config.bounded();
        let mut ear = Ear::of_samples(config.backend_rate, config.enhance);
        ear.set_padding(config.turn.padding_ms());
        ear.set_longest_doubt(config.interruption.longest_ms());
        let turns = Turns::new(now, &Config { turn: without_idle(&config.turn), ..config.clone() });
        Self {
            now,
            start: now,
            waiting: Waiting::default(),
            resampler: None,
            pcm: Vec::new(),
            resampled: Vec::new(),
            ear,
            timbre: Timbre::new(),
            turns,
            judging: Judging::default(),
            turn: None,
            last_turn: 0,
            given: 0,
            voiced: Heard { arrived: now, released: now, age_us: 0, decided: now },
            appended: now,
            hearing: Go::default(),
            sending: Go::default(),
            format: SampleFormat::Pcm16,
            text_only: false,
            generation: None,
            last_response: 0,
            greeting: None,
            owed: None,
            timing: None,
            playing: Playing::default(),
            played: VecDeque::new(),
            idle_at: None,
            out: VecDeque::new(),
            stats: StreamStats::default(),
            config,
        }
    }

    /// More of the user's audio, whole samples, at most about what one message of the API holds.
    pub fn append(&mut self, now: Instant, format: SampleFormat, data: &[u8]) {
        self.now = self.now.max(now);
        self.appended = self.now;
        self.waiting.append(now, format, data);
    }

    /// Hears the next 16 ms of what was appended, or does what was asked behind it. `false`: nothing is to be done now.
    pub fn listen(&mut self, now: Instant) -> bool {
        // What can be said to what was heard comes first.
        if self.waiting.is_empty() || self.is_sending(now) || !self.hearing.take(now, STEPS) {
            return false;
        }
        let mut waited = None;
        match self.waiting.next(&mut self.pcm) {
            Some(Step::Audio { format, arrived }) => self.hear(now, format, arrived),
            Some(Step::Skip(samples)) => {
                self.ear.skip(samples);
                self.given = self.given.max(self.ear.end());
            }
            Some(Step::Commit) => {
                waited = Some(if self.commit_heard(now) { Waited::Done } else { Waited::CommitRefused });
            }
            Some(Step::Clear) => self.clear_heard(),
            Some(Step::Turn(turn)) => self.use_turn(now, turn),
            Some(Step::Respond(_)) if self.generation.is_some() => waited = Some(Waited::CreateRefused),
            Some(Step::Respond(request)) => {
                // Told before the response is, which is thereby known to be the one that was asked for.
                self.out.push_back(StreamOutput::Waited(Waited::Done));
                self.respond(now, request);
            }
            None => {}
        }
        self.out.extend(waited.map(StreamOutput::Waited));
        self.settle(now);
        true
    }

    /// Makes an item of the audio appended so far (input_audio_buffer.commit). Refused: there is none.
    pub fn commit(&mut self, now: Instant) -> Asked {
        if self.waiting.is_empty() {
            let done = self.commit_heard(now);
            self.settle(now);
            return if done { Asked::Done } else { Asked::Refused };
        }
        if self.waiting.ends_empty() || self.waiting.is_full() {
            return Asked::Refused;
        }
        self.waiting.commit();
        Asked::Waits
    }

    /// Forgets the audio that is not committed (input_audio_buffer.clear).
    pub fn clear_input(&mut self, now: Instant) {
        if self.waiting.is_empty() {
            self.clear_heard();
            self.settle(now);
        } else {
            self.waiting.clear();
        }
    }

    /// New turn settings (session.update).
    pub fn set_turn(&mut self, now: Instant, turn: TurnConfig) {
        let turn = turn.bounded();
        if self.waiting.is_empty() {
            self.use_turn(now, turn);
            self.settle(now);
        } else {
            self.waiting.turn(turn);
        }
    }

    /// How replies are coded from here on.
    pub fn set_format(&mut self, format: SampleFormat) {
        self.format = format;
    }

    /// Responses that nobody says otherwise of are wanted as text: their sound is not sent.
    pub fn set_text_only(&mut self, text_only: bool) {
        self.text_only = text_only;
    }

    /// Plugs in a judge of turn ends, for `semantic_vad`.
    pub fn set_judge(&mut self, judge: Box<dyn Judge>) {
        self.judging.set(judge);
    }

    /// Asks for a response as the settings say. Refused: one is active, or asked for.
    pub fn create_response(&mut self, now: Instant) -> Asked {
        self.create_response_as(now, self.as_set())
    }

    /// Asks for a response. Refused: one is active, or asked for.
    pub fn create_response_as(&mut self, now: Instant, request: Request) -> Asked {
        if self.generation.is_some() || self.waiting.asks() || self.waiting.is_full() {
            return Asked::Refused;
        }
        if self.waiting.is_empty() {
            self.respond(now, request);
            self.settle(now);
            Asked::Done
        } else {
            self.waiting.respond(request);
            Asked::Waits
        }
    }

    /// Cancels the active response (response.cancel). `false`: none is active.
    pub fn cancel(&mut self, now: Instant) -> bool {
        if self.generation.is_none() {
            return false;
        }
        self.turns.note(DecisionKind::ClientCut, InterruptSource::Client);
        self.tell_decisions();
        self.stop(now, FlushReason::ClientCancelled);
        self.settle(now);
        true
    }

    /// The client played a response up to there and no further (conversation.item.truncate).
    pub fn truncated(&mut self, now: Instant, response: ResponseId, audio_end_ms: u64) {
        self.truncate(now, response, audio_end_ms.saturating_mul(48));
        self.settle(now);
    }

    /// What is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.stall_due().is_some_and(|due| due <= now) {
            // The turn machine's clock stands still, and knows by itself what is to be done when it does not.
            let later = self.clock() + Duration::from_secs(3600);
            let action = self.turns.handle_timeout(later);
            self.act_if(now, action);
        }
        self.expire(now);
        if self.idle_at.is_some_and(|due| due <= now) {
            self.idle_at = None;
            if self.turns.state() == State::Listening && self.turn.is_none() {
                self.turns.note(DecisionKind::IdleTimeout, InterruptSource::Timer);
                self.tell_decisions();
                self.idle(now);
            }
        }
        self.settle(now);
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<StreamOutput> {
        self.out.pop_front()
    }

    /// When [`Stream::handle_timeout`] wants to be called, and [`Stream::listen`] behind it.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        // While something is to be said first, that is what is due.
        let hears = !self.waiting.is_empty() && !self.is_sending(self.now);
        let listen = hears.then(|| self.hearing.again(STEPS).unwrap_or(self.now));
        let plays = self.playing.until().filter(|_| self.is_playing());
        [listen, plays, self.stall_due(), self.idle_at, self.reply_due()].into_iter().flatten().min()
    }

    /// Less than 10 s of the reply wait here: a backend that can wait gives more only then. One that cannot may give up to
    /// [`Config::max_turn_ms`] at once; what is beyond is dropped and counted.
    #[must_use]
    pub fn wants_audio(&self) -> bool {
        let waiting = self.generation.as_ref().map_or(0, |generation| generation.outlet.waiting());
        waiting < outlet::samples(AHEAD)
    }

    /// Whose turn it is; the agent speaks while its client should be playing.
    #[must_use]
    pub fn state(&self) -> State {
        match self.turns.state() {
            State::Thinking if self.is_playing() => State::AgentSpeaking,
            state => state,
        }
    }

    /// Counts so far.
    #[must_use]
    pub fn stats(&self) -> StreamStats {
        StreamStats { input_overflow: self.waiting.overflow, ..self.stats }
    }

    fn is_manual(&self) -> bool {
        self.config.turn.server_vad.is_none()
    }

    fn is_playing(&self) -> bool {
        self.playing.is_on(self.now, self.ear.end())
    }

    /// Now, on the samples' clock.
    fn clock(&self) -> Instant {
        self.start + outlet::duration(self.ear.end())
    }

    fn event(&mut self, event: Event) {
        self.out.push_back(StreamOutput::Event(event));
    }

    fn backend(&mut self, input: BackendInput) {
        self.out.push_back(StreamOutput::Backend(input));
    }

    /// When the client has been silent for too long in the middle of something.
    fn stall_due(&self) -> Option<Instant> {
        let patience = match self.turns.state() {
            State::UserSpeaking | State::Deciding => STALL,
            State::Interrupting => DOUBT_STALL,
            _ => return None,
        };
        self.waiting.is_empty().then(|| self.appended + patience)
    }

    /// What the turn machine last knew of the agent.
    fn turns_reply(&self) -> Reply {
        // Never audible: nothing can be held at the client.
        if self.generation.is_some() || self.is_playing() { Reply::Pending } else { Reply::None }
    }

    /// After every input: sends what may be sent and tells the turn machine what the agent is about to do.
    fn settle(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.pay(now);
        if let Some(complete) = self.judging.follow(self.turns.in_pause()) {
            self.turns.complete_verdict(complete);
        }
        self.send(now);
        self.pay(now);
        let reply = self.turns_reply();
        let made = self.generation.as_ref().map(|generation| generation.response);
        let profile = match made {
            Some(response) if self.greeting == Some(response) => Profile::Greeting,
            None if self.greeting.is_some() && self.last_response == 1 => Profile::Greeting,
            _ if self.is_playing() => Profile::Speaking,
            _ => Profile::Thinking,
        };
        let action = self.turns.set_reply(self.clock(), reply, profile);
        self.act_if(now, action);
        self.tell_decisions();
    }
}

/// The idle timeout is the wall clock's, which the turn machine has none of here.
fn without_idle(turn: &TurnConfig) -> TurnConfig {
    let server_vad = turn.server_vad.clone().map(|vad| ServerVad { idle_timeout_ms: None, ..vad });
    TurnConfig { server_vad }
}
