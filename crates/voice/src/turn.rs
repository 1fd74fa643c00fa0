//! Whose turn it is.
//!
//! In: one verdict for each 16 ms of the user's audio, what others say of it, and what the agent is about to do. Out: at most one
//! [`Action`], and each decision with its inputs ([`Turns::poll_decision`]).
//! Times of speech are 48 kHz media time, so a network that stalls does not end a sentence; timers of the wall clock stand
//! behind each of them, so a user who vanishes does not hold a turn open.
//!
//! | state | what it is | exit | timer |
//! |---|---|---|---|
//! | `Listening` | nobody speaks | 3 voiced frames: `UserSpeaking` | the idle timeout, if there is one |
//! | `UserSpeaking` | the user's turn | hangover over: `Deciding` | no audio: as silence, see below; `max_turn_ms` |
//! | `Deciding` | silence within the turn | 3 voiced frames: back; enough silence: the turn ends | the same; at most 8 s of silence |
//! | `Thinking` | a response is asked for, nothing of it is heard | its first audio, its end, its failure; speech | `response_timeout_ms` |
//! | `AgentSpeaking` | a reply is queued or playing | its last frame is out, it is cut; speech | the edge silent about it for 5 s |
//! | `Interrupting` | perhaps the user speaks over the reply | the gate's ruling | 300 ms without audio; 3 s in all, or twice the speech the rules ask for |
//!
//! `Thinking` and `AgentSpeaking` are kept by the conversation, which owns what the agent does; this machine is told.
//!
//! **The end of a turn** is silence counted from the last voiced frame (how much: `verdict.rs`); the detector's hangover of 200 ms
//! lies inside it. Within
//! the hangover one voiced frame continues the speech. After it, it takes an onset of 3: a click in the pause does not
//! put off the answer, a word does. If an onset has begun when the silence is over, the decision waits for it. The last 20 ms
//! are not waited for in packets and frames, whose grid would add up to 36 ms: the clock decides.
//! Without audio nothing is known. After a DTX packet no audio is silence, so the end is decided 60 ms of grace after
//! the silence would be over. Otherwise it may be a stall of the network, and the grace is 300 ms.
//!
//! An interruption is tentative first: `turn/doubt.rs`.
//!
//! **A user who never stops** (music, a crowd) is cut off after `max_turn_ms` and answered. What goes on then has no onset, so
//! it does not interrupt: only after 200 ms of silence, or when the reply is over, are onsets heard again. The same holds for
//! a sound that was denied, or in doubt for too long.

mod doubt;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::config::{Config, InterruptionConfig, ServerVad, TurnConfig};
use crate::decision::{Decision, DecisionInputs, DecisionKind, InterruptSource, Profile};
use crate::echo::Own;
use crate::gate::{Evidence, Rules};
use crate::verdict::Patience;
use crate::voicing::{ONSET, Voicing};
use doubt::{Doubt, GAP, TENTATIVE, TENTATIVE_STALL};

/// Within this after a voiced frame one more continues the speech: 200 ms.
const HANGOVER: u64 = 200 * 48;
/// Speech this soon after the end of a turn shows that it was no end: 1 s.
const WENT_ON: u64 = 1000 * 48;
/// When no more than this is left of the silence it is not waited for a packet that could only confirm it: 20 ms.
const LAST_PACKET: u64 = 960;
/// No audio after a DTX packet is silence.
const DTX_GRACE: Duration = Duration::from_millis(60);
/// No audio otherwise may be a stall.
const STALL_GRACE: Duration = Duration::from_millis(300);
/// Decisions that wait to be read: three of one frame, and a timer's; the conversation reads them after each.
const MAX_DECISIONS: usize = 16;

/// Whose turn it is, for people and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Nobody speaks.
    Listening,
    /// The user speaks.
    UserSpeaking,
    /// The user is silent; the turn may be over.
    Deciding,
    /// A response is asked for and not heard yet.
    Thinking,
    /// A reply is queued or playing.
    AgentSpeaking,
    /// The user may be speaking over the reply.
    Interrupting,
}

/// What the agent is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Nothing.
    None,
    /// A response is asked for; nothing of it is at the edge.
    Pending,
    /// At the edge.
    Audible,
}

/// What follows from what was heard. Media times are 48 kHz samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Hold the reply.
    Pause,
    /// It was nothing: go on.
    Resume,
    /// The user took the turn from the agent, at `onset`.
    Interrupt { onset: u64 },
    /// The user began, at `onset`.
    Start { onset: u64 },
    /// The user's turn is over. `to` is behind the last voiced sample.
    Stop { from: u64, to: u64 },
    /// Nobody has spoken for the idle timeout.
    Idle,
}

/// One frame of 16 ms as the detectors see it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Frame {
    /// Of speech.
    pub(crate) probability: f32,
    pub(crate) rms: f32,
    /// It could be part of a word.
    pub(crate) wordlike: bool,
    /// It is our own reply, heard back.
    pub(crate) echo: Own,
}

#[derive(Debug, Clone, Copy)]
enum User {
    Quiet,
    Tentative(Doubt),
    Speaking {
        onset: u64,
        last: u64,
    },
    /// Cut off or denied; `last` as ever.
    Unheard {
        last: u64,
    },
}

/// The machine. The invariant: every [`Action::Pause`] is followed by one [`Action::Resume`], or taken back by the caller
/// ([`Turns::take_paused`]) when it cuts the reply or starts a turn.
#[derive(Debug)]
pub(crate) struct Turns {
    vad: Option<ServerVad>,
    config: InterruptionConfig,
    max_turn: u64,
    user: User,
    paused: bool,
    reply: Reply,
    profile: Profile,
    patience: Patience,
    /// The last utterance over the reply that lacked only the words, which may come late; until this media time.
    aftermath: Option<(Doubt, u64)>,
    /// Until this media time a pause takes more.
    wary_until: u64,
    /// When an idle user is spoken to.
    idle_at: Option<Instant>,
    /// Behind the last voiced sample of the turn that ended last.
    turn_to: Option<u64>,
    voicing: Voicing,
    /// Of the last frame.
    probability: f32,
    /// Frames of digital zero in a row that are told.
    zeros_told: u64,
    /// End of the last frame and when it came.
    media_end: u64,
    heard_at: Instant,
    heard_dtx: bool,
    /// End of what came, a frame that is not full yet included.
    heard_end: u64,
    decisions: VecDeque<Decision>,
}

impl Turns {
    pub(crate) fn new(now: Instant, config: &Config) -> Self {
        Self {
            vad: config.turn.server_vad.clone(),
            config: config.interruption,
            max_turn: u64::from(config.max_turn_ms) * 48,
            user: User::Quiet,
            paused: false,
            reply: Reply::None,
            profile: Profile::Speaking,
            patience: Patience::default(),
            aftermath: None,
            wary_until: 0,
            idle_at: None,
            turn_to: None,
            voicing: Voicing::new(),
            probability: 0.0,
            zeros_told: u64::from(config.input_silent_ms).div_ceil(16),
            media_end: 0,
            heard_at: now,
            heard_dtx: false,
            heard_end: 0,
            decisions: VecDeque::new(),
        }
    }

    /// The user's side of the state.
    pub(crate) fn state(&self) -> State {
        match self.user {
            User::Tentative(_) => State::Interrupting,
            User::Speaking { last, .. } if self.media_end.saturating_sub(last) > HANGOVER => State::Deciding,
            User::Speaking { .. } => State::UserSpeaking,
            User::Quiet | User::Unheard { .. } => match self.reply {
                Reply::None => State::Listening,
                Reply::Pending => State::Thinking,
                Reply::Audible => State::AgentSpeaking,
            },
        }
    }

    /// What was decided since the last time, oldest first.
    pub(crate) fn poll_decision(&mut self) -> Option<Decision> {
        self.decisions.pop_front()
    }

    /// The detector's threshold.
    pub(crate) fn threshold(&self) -> f32 {
        self.vad.as_ref().map_or(0.5, |vad| vad.threshold)
    }

    /// Whether sounds are to be looked at more closely: something may be an interruption.
    pub(crate) fn wants_timbre(&self) -> bool {
        self.reply != Reply::None && self.vad.as_ref().is_some_and(|vad| vad.interrupt_response)
    }

    /// Media time from which audio must be kept, for a turn that may begin in the past.
    pub(crate) fn keep_from(&self) -> Option<u64> {
        match (self.user, self.aftermath) {
            (User::Tentative(doubt), Some((before, _))) => Some(doubt.onset.min(before.onset)),
            (User::Tentative(doubt), None) | (User::Quiet, Some((doubt, _))) => Some(doubt.onset),
            (User::Quiet, None) if self.voicing.run > 0 => Some(self.voicing.run_from),
            _ => None,
        }
    }

    /// First and last voiced sample since [`Turns::forget_span`].
    pub(crate) fn span(&self) -> Option<(u64, u64)> {
        self.voicing.span
    }

    pub(crate) fn forget_span(&mut self) {
        self.voicing.span = None;
    }

    /// Other rules, from here on. A turn of the user's goes on under them; a doubt is dropped.
    pub(crate) fn set(&mut self, turn: TurnConfig) -> Option<Action> {
        let manual = turn.server_vad.is_none();
        self.vad = turn.server_vad;
        self.aftermath = None;
        self.idle_at = None;
        match self.user {
            User::Tentative(_) => self.doubt_over(InterruptSource::Client),
            User::Speaking { .. } | User::Unheard { .. } if manual => {
                self.user = User::Quiet;
                None
            }
            _ => None,
        }
    }

    /// The user's turn ends without a decision of this machine's: committed or cleared by the client.
    pub(crate) fn end(&mut self) -> Option<(u64, u64)> {
        let User::Speaking { onset, last, .. } = self.user else { return None };
        self.user = User::Quiet;
        self.voicing.forget_run();
        self.turn_to = None;
        self.patience.turn_over();
        Some((onset, last))
    }

    /// What the agent is about to do, and under whose rules it is interrupted.
    pub(crate) fn set_reply(&mut self, now: Instant, reply: Reply, profile: Profile) -> Option<Action> {
        let over = reply == Reply::None && self.reply != Reply::None;
        self.reply = reply;
        self.profile = profile;
        if reply != Reply::None {
            self.idle_at = None;
        } else if over {
            self.aftermath = None;
            let idle = self.vad.as_ref().and_then(|vad| vad.idle_timeout_ms);
            self.idle_at = idle.map(|ms| now + Duration::from_millis(u64::from(ms)));
        }
        match self.user {
            User::Tentative(Doubt { onset, last, evidence, .. }) if reply == Reply::None => {
                // Nothing is left to interrupt: what was heard is a turn like any other, if it is enough for one.
                if evidence.voiced >= ONSET && self.media_end.saturating_sub(last) < GAP {
                    self.note(DecisionKind::TurnStart, InterruptSource::Vad);
                    self.begin(onset, last);
                    return Some(Action::Start { onset });
                }
                self.doubt_over(InterruptSource::Vad)
            }
            User::Unheard { .. } if reply == Reply::None => {
                // What goes on is a turn from here.
                self.user = User::Quiet;
                self.voicing.forget_run();
                None
            }
            _ => None,
        }
    }

    /// Whether a pause is out; the caller takes it back.
    pub(crate) fn take_paused(&mut self) -> bool {
        std::mem::take(&mut self.paused)
    }

    /// One frame of 16 ms that ends at `end`. Whether it is voiced, and what follows.
    pub(crate) fn frame(&mut self, now: Instant, end: u64, frame: Frame) -> (bool, Option<Action>) {
        let speech = frame.probability >= self.threshold() && frame.echo != Own::Ours;
        let perhaps = frame.probability >= self.perhaps() && frame.echo == Own::No;
        let voiced = self.voicing.frame(end, speech, perhaps, frame.rms);
        self.probability = frame.probability;
        self.media_end = end;
        self.heard_at = now;
        if self.voicing.zeros > 0 && self.voicing.zeros == self.zeros_told {
            self.note(DecisionKind::InputSilent, InterruptSource::Vad);
        }
        (voiced, self.judge(now, end, voiced, frame))
    }

    /// Audio came up to media time `end`; `dtx`: it says that silence follows.
    pub(crate) fn heard(&mut self, now: Instant, end: u64, dtx: bool) {
        self.heard_at = now;
        self.heard_end = end;
        self.heard_dtx = dtx;
    }

    /// How long the input has been digital zero, in ms.
    pub(crate) fn zero_ms(&self) -> u64 {
        self.voicing.zeros * 16
    }

    /// Somebody says how likely the user's turn is over.
    pub(crate) fn complete_verdict(&mut self, probability: f32) {
        let (User::Speaking { .. }, Some(vad)) = (self.user, &self.vad) else { return };
        if self.patience.verdict(vad, probability) {
            self.note_with(DecisionKind::Verdict, InterruptSource::Verdict, |inputs| inputs.probability = probability);
        }
    }

    /// Records a decision.
    pub(crate) fn note(&mut self, kind: DecisionKind, source: InterruptSource) {
        self.note_with(kind, source, |_| {});
    }

    /// What is due by the wall clock.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Action> {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return None;
        }
        match self.user {
            User::Tentative(_) => self.doubt_over(InterruptSource::Timer),
            User::Speaking { onset, last, .. } => {
                self.note(DecisionKind::TurnEnd, InterruptSource::Timer);
                Some(self.stop(onset, last))
            }
            User::Quiet => {
                self.note(DecisionKind::IdleTimeout, InterruptSource::Timer);
                self.idle_at = None;
                Some(Action::Idle)
            }
            User::Unheard { .. } => None,
        }
    }

    /// When [`Turns::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self.user {
            User::Tentative(Doubt { since, .. }) => {
                let longest = Duration::from_millis(u64::from(self.rules().doubt_ms()));
                Some((self.heard_at + TENTATIVE_STALL).min(since + longest))
            }
            User::Speaking { last, .. } => {
                let over = last + self.silence()?;
                let left = over.saturating_sub(self.heard_end);
                let grace = match left {
                    0..=LAST_PACKET if self.voicing.run == 0 => Duration::ZERO,
                    _ if self.heard_dtx => DTX_GRACE,
                    _ => STALL_GRACE,
                };
                Some(self.heard_at + Duration::from_micros(left * 1_000_000 / 48_000) + grace)
            }
            User::Quiet => self.idle_at,
            User::Unheard { .. } => None,
        }
    }

    /// The user is silent within their turn, and a verdict decides how long that is waited for.
    pub(crate) fn in_pause(&self) -> bool {
        self.state() == State::Deciding && self.is_semantic()
    }

    /// `semantic_vad`: verdicts decide.
    pub(crate) fn is_semantic(&self) -> bool {
        self.vad.as_ref().is_some_and(|vad| vad.eagerness.is_some())
    }

    /// The silence that ends the turn, in 48 kHz samples.
    fn silence(&self) -> Option<u64> {
        self.vad.as_ref().map(|vad| u64::from(self.patience.silence_ms(vad)) * 48)
    }

    fn rules(&self) -> Rules {
        Rules::new(&self.config, self.profile)
    }

    fn judge(&mut self, now: Instant, end: u64, voiced: bool, frame: Frame) -> Option<Action> {
        let vad = self.vad.as_ref()?;
        let silence = self.silence()?;
        self.aftermath.take_if(|(_, until)| *until < end);
        match self.user {
            User::Quiet => {
                if self.reply != Reply::None && vad.interrupt_response && !self.rules().closed {
                    if self.voicing.run < TENTATIVE && !self.stirs() {
                        return None;
                    }
                    return self.doubt_begins(now, end, frame);
                }
                if self.voicing.run < ONSET {
                    return None;
                }
                let onset = self.voicing.run_from;
                self.note(DecisionKind::TurnStart, InterruptSource::Vad);
                self.begin(onset, end);
                Some(Action::Start { onset })
            }
            User::Tentative(doubt) => self.doubt_goes_on(doubt, end, voiced, frame),
            User::Speaking { onset, last } => {
                if voiced && (end.saturating_sub(last) <= HANGOVER || self.voicing.run >= ONSET) {
                    let pause = end.saturating_sub(last);
                    if pause > crate::vad::FRAME_MEDIA {
                        self.patience.speaks();
                    }
                    if pause > HANGOVER {
                        self.patience.went_on(u32::try_from(pause / 48).unwrap_or(u32::MAX));
                    }
                    self.user = User::Speaking { onset, last: end };
                }
                let User::Speaking { onset: from, last: to } = self.user else { return None };
                if end.saturating_sub(from) >= self.max_turn {
                    self.note(DecisionKind::MaxTurn, InterruptSource::Timer);
                    self.stop(from, to);
                    self.user = User::Unheard { last: to };
                    return Some(Action::Stop { from, to });
                }
                if self.voicing.run > 0 || end.saturating_sub(to) < silence {
                    return None;
                }
                self.note(DecisionKind::TurnEnd, InterruptSource::Vad);
                Some(self.stop(from, to))
            }
            User::Unheard { last } => {
                if voiced {
                    self.user = User::Unheard { last: end };
                } else if end.saturating_sub(last) >= HANGOVER {
                    self.user = User::Quiet;
                }
                None
            }
        }
    }

    /// The user's turn begins.
    fn begin(&mut self, onset: u64, last: u64) {
        if let Some(to) = self.turn_to.take()
            && onset.saturating_sub(to) < WENT_ON
        {
            self.patience.went_on(u32::try_from(onset.saturating_sub(to) / 48).unwrap_or(u32::MAX));
        }
        self.user = User::Speaking { onset, last };
        self.aftermath = None;
        self.idle_at = None;
    }

    /// The user's turn is over.
    fn stop(&mut self, from: u64, to: u64) -> Action {
        self.user = User::Quiet;
        self.voicing.forget_run();
        self.turn_to = Some(to);
        self.patience.turn_over();
        Action::Stop { from, to }
    }

    fn note_with(&mut self, kind: DecisionKind, source: InterruptSource, change: impl FnOnce(&mut DecisionInputs)) {
        let ms = |samples: u64| u32::try_from(samples / 48).unwrap_or(u32::MAX);
        let (evidence, voiced_ms, last) = match (self.user, self.doubt()) {
            (User::Speaking { onset, last }, _) => (Evidence::default(), ms(last.saturating_sub(onset)), last),
            (_, Some(doubt)) => (doubt.evidence, doubt.evidence.voiced_ms(), doubt.last),
            _ => (Evidence::default(), 0, self.turn_to.unwrap_or(0)),
        };
        let mut inputs = DecisionInputs {
            run_frames: self.voicing.run,
            probability: self.probability,
            voiced_ms,
            silence_ms: ms(self.media_end.saturating_sub(last)),
            words: evidence.words,
            profile: (self.reply != Reply::None).then_some(self.profile),
            source,
        };
        change(&mut inputs);
        if self.decisions.len() == MAX_DECISIONS {
            self.decisions.pop_front();
        }
        let state_before = self.state();
        self.decisions.push_back(Decision { at_media: self.media_end, kind, state_before, inputs });
    }
}
