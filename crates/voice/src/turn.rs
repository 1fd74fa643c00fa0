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
//! **An interruption is tentative first.** A pause is cheap and is taken back without loss, so 2 voiced frames suffice for it, or
//! 2 that rise over the quiet and that the detector nearly takes for speech (soft first sounds take it 60 ms and more), or
//! the edge's reflex. A cut is not: it takes what the gate asks for (`gate.rs`), counted across gaps of less than 144 ms (the
//! closures inside words are shorter). A gap of 144 ms before that is the end of a cough, and the reply resumes; it
//! resumes at once when the sound has lasted long enough for a word and is none. The same gate holds before
//! the reply is heard: a cough between question and reply only delays the reply's start.
//! For a minute after a pause that was for nothing the reply is held only for what would cut it but for the words: a
//! listener who coughs or hums along does not chop it.
//!
//! **A user who never stops** (music, a crowd) is cut off after `max_turn_ms` and answered. What goes on then has no onset, so
//! it does not interrupt: only after 200 ms of silence, or when the reply is over, are onsets heard again. The same holds for
//! a sound that was denied, or in doubt for too long.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::config::{Config, InterruptionConfig, ServerVad, TurnConfig};
use crate::decision::{Decision, DecisionInputs, DecisionKind, InterruptSource, Profile};
use crate::echo::Own;
use crate::gate::{Evidence, HOLD_MAX, Rules, Ruling, WordCount};
use crate::verdict::Patience;
use crate::voicing::{ONSET, Voicing};

/// Frames of speech, or of what may become it, that pause a reply.
const TENTATIVE: u32 = 2;
/// Of the detector's threshold: what may become speech. Without speech it is between 0.1 and 0.2.
const PERHAPS: f32 = 0.6;
/// How long a pause for nothing is remembered: a minute.
const WARY: u64 = 60_000 * 48;
/// Within this after a voiced frame one more continues the speech: 200 ms.
const HANGOVER: u64 = 200 * 48;
/// A gap that ends what might have been an interruption: 9 frames.
const GAP: u64 = 144 * 48;
/// Words of an utterance come this much later than its sound.
const LATE_WORDS: u64 = 2000 * 48;
/// Speech this soon after the end of a turn shows that it was no end: 1 s.
const WENT_ON: u64 = 1000 * 48;
/// Without audio for this long, what might have been an interruption was none.
const TENTATIVE_STALL: Duration = Duration::from_millis(300);
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

/// What may be an interruption.
#[derive(Debug, Clone, Copy)]
struct Doubt {
    onset: u64,
    /// Behind the last voiced sample.
    last: u64,
    since: Instant,
    evidence: Evidence,
    words: WordCount,
    source: InterruptSource,
    /// Since when the reply is held for it, in media time.
    held: Option<u64>,
    /// It was held for long enough.
    let_go: bool,
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

    /// What may become speech reaches this.
    pub(crate) fn perhaps(&self) -> f32 {
        self.threshold() * PERHAPS
    }

    /// A reply that is not heard yet waits while it is held in doubt.
    pub(crate) fn holds_reply(&self) -> bool {
        matches!(self.user, User::Tentative(Doubt { held: Some(_), .. }))
    }

    /// Whether sounds are to be looked at more closely: something may be an interruption.
    pub(crate) fn wants_timbre(&self) -> bool {
        self.reply != Reply::None && self.vad.as_ref().is_some_and(|vad| vad.interrupt_response)
    }

    /// A reply was paused for nothing not long ago.
    pub(crate) fn is_wary(&self) -> bool {
        self.media_end < self.wary_until
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

    /// Words of the user's.
    pub(crate) fn words(&mut self, text: &str, is_final: bool) -> Option<Action> {
        let rules = self.rules();
        let (doubt, last) = match (&mut self.user, &mut self.aftermath) {
            // What has hardly begun has no words yet: they are late ones of what was said before.
            (User::Tentative(doubt), Some((before, _))) if !rules.is_spoken(&doubt.evidence) => (before, doubt.last),
            (User::Tentative(doubt), _) | (User::Quiet, Some((doubt, _))) => {
                let last = doubt.last;
                (doubt, last)
            }
            _ => return None,
        };
        doubt.evidence.words = doubt.words.push(text, is_final);
        let doubt = Doubt { last, ..*doubt };
        self.rule(doubt, InterruptSource::Words)
    }

    /// A backend's verdict on what is said over the reply.
    pub(crate) fn interruption_verdict(&mut self, probability: f32) -> Option<Action> {
        let Some(mut doubt) = self.doubt().filter(|_| probability.is_finite()) else {
            if self.reply != Reply::None {
                self.note(DecisionKind::Refuse, InterruptSource::Verdict);
            }
            return None;
        };
        doubt.evidence.verdict = Some(probability);
        self.set_doubt(doubt);
        self.rule(doubt, InterruptSource::Verdict)
    }

    /// Somebody says how likely the user's turn is over.
    pub(crate) fn complete_verdict(&mut self, probability: f32) {
        let (User::Speaking { .. }, Some(vad)) = (self.user, &self.vad) else { return };
        if self.patience.verdict(vad, probability) {
            self.note_with(DecisionKind::Verdict, InterruptSource::Verdict, |inputs| inputs.probability = probability);
        }
    }

    /// The edge holds the reply because it is loud at the user's; it goes on by itself unless it is told to pause.
    pub(crate) fn reflex(&mut self, now: Instant) -> Option<Action> {
        if self.paused {
            return None;
        }
        self.paused = true;
        let (rules, wary) = (self.rules(), self.is_wary());
        let (held, holds) = (Some(self.media_end), self.wants_timbre() && rules.holds());
        match &mut self.user {
            User::Tentative(doubt) if holds && !doubt.let_go && (!wary || rules.is_spoken(&doubt.evidence)) => {
                doubt.held = doubt.held.or(held);
            }
            User::Quiet if holds && !wary => {
                self.note(DecisionKind::Onset, InterruptSource::Reflex);
                self.user = User::Tentative(Doubt {
                    onset: self.media_end,
                    last: self.media_end,
                    since: now,
                    evidence: Evidence::default(),
                    words: WordCount::default(),
                    source: InterruptSource::Reflex,
                    held,
                    let_go: false,
                });
            }
            _ => {
                self.note(DecisionKind::Refuse, InterruptSource::Reflex);
                return self.resume(InterruptSource::Reflex);
            }
        }
        self.note(DecisionKind::Pause, InterruptSource::Reflex);
        Some(Action::Pause)
    }

    /// What was heard over the reply is the reply itself.
    pub(crate) fn echo_veto(&mut self) -> Option<Action> {
        self.note(DecisionKind::EchoVeto, InterruptSource::Vad);
        let User::Tentative(_) = self.user else { return None };
        self.user = User::Quiet;
        self.voicing.forget_run();
        self.resume(InterruptSource::Vad)
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

    /// The user is silent within their turn, and no verdict is in.
    pub(crate) fn in_pause(&self) -> bool {
        self.state() == State::Deciding
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
            User::Tentative(mut doubt) => {
                if voiced {
                    if doubt.evidence.voiced == 0 {
                        doubt.onset = self.voicing.run_from;
                    }
                    doubt.evidence.voiced += 1;
                    doubt.evidence.wordlike += u32::from(frame.wordlike);
                    doubt.last = end;
                }
                self.user = User::Tentative(doubt);
                // What may be our own is counted, and waits for the answer.
                if frame.echo != Own::Perhaps
                    && let Some(action) = self.rule(doubt, doubt.source)
                {
                    return Some(action);
                }
                if end.saturating_sub(doubt.last) >= GAP {
                    return self.doubt_over(InterruptSource::Vad);
                }
                self.hold_or_let_go(end, frame.echo)
            }
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

    /// A reply that plays is worth a pause for what may become speech.
    fn stirs(&self) -> bool {
        self.voicing.stirring >= TENTATIVE && self.reply == Reply::Audible && !self.is_wary() && self.rules().holds()
    }

    /// Sound over a reply, or on its way to one.
    fn doubt_begins(&mut self, now: Instant, end: u64, frame: Frame) -> Option<Action> {
        let voiced = self.voicing.run;
        let wordlike = u32::from(voiced > 0 && frame.wordlike);
        self.user = User::Tentative(Doubt {
            onset: if voiced > 0 { self.voicing.run_from } else { end },
            last: end,
            since: now,
            evidence: Evidence { voiced, wordlike, ..Evidence::default() },
            words: WordCount::default(),
            source: InterruptSource::Vad,
            held: None,
            let_go: false,
        });
        self.note(DecisionKind::Onset, InterruptSource::Vad);
        self.hold_or_let_go(end, frame.echo)
    }

    /// Holds the reply for a doubt that is worth it, and lets it go when it is not any more.
    fn hold_or_let_go(&mut self, end: u64, echo: Own) -> Option<Action> {
        let rules = self.rules();
        let wary = self.is_wary() && self.reply == Reply::Audible;
        let User::Tentative(doubt) = &mut self.user else { return None };
        match doubt.held {
            None => {
                if doubt.let_go || echo == Own::Perhaps || !rules.holds() || (wary && !rules.is_spoken(&doubt.evidence))
                {
                    return None;
                }
                doubt.held = Some(end);
                if self.reply != Reply::Audible || self.paused {
                    return None;
                }
                self.paused = true;
                self.note(DecisionKind::Pause, InterruptSource::Vad);
                Some(Action::Pause)
            }
            Some(from) => {
                let over = end.saturating_sub(from) >= u64::from(HOLD_MAX) * 48;
                if !over && !rules.is_no_word(&doubt.evidence) {
                    return None;
                }
                doubt.held = None;
                doubt.let_go = true;
                self.resume(InterruptSource::Vad)
            }
        }
    }

    /// What the gate says to a doubt, or to one that only lacked words.
    fn rule(&mut self, doubt: Doubt, source: InterruptSource) -> Option<Action> {
        match self.rules().judge(&doubt.evidence) {
            Ruling::Pass => {
                self.note(DecisionKind::Interrupt, source);
                self.begin(doubt.onset, doubt.last);
                self.wary_until = 0;
                Some(Action::Interrupt { onset: doubt.onset })
            }
            Ruling::Deny => {
                self.note(DecisionKind::Dismiss, source);
                self.aftermath = None;
                if let User::Tentative(Doubt { last, .. }) = self.user {
                    self.user = User::Unheard { last };
                }
                self.voicing.forget_run();
                self.resume(source)
            }
            Ruling::Wait => {
                if source != doubt.source && source != InterruptSource::Vad {
                    self.note(DecisionKind::Refuse, source);
                }
                None
            }
        }
    }

    /// It was no interruption.
    fn doubt_over(&mut self, source: InterruptSource) -> Option<Action> {
        let User::Tentative(doubt) = self.user else { return None };
        self.note(DecisionKind::Dismiss, source);
        if self.rules().waits_for_words(&doubt.evidence) {
            self.aftermath = Some((doubt, self.media_end + LATE_WORDS));
        }
        // What goes on is the same sound: it has no onset.
        let goes_on = self.voicing.run > 0 && source == InterruptSource::Timer && self.reply != Reply::None;
        self.user = if goes_on { User::Unheard { last: doubt.last } } else { User::Quiet };
        self.voicing.forget_run();
        self.resume(source)
    }

    /// Takes the pause back, if one is out: it was for nothing.
    fn resume(&mut self, source: InterruptSource) -> Option<Action> {
        if !std::mem::take(&mut self.paused) {
            return None;
        }
        self.wary_until = self.media_end + WARY;
        self.note(DecisionKind::Resume, source);
        Some(Action::Resume)
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

    /// The doubt there is, or the one that may yet get words.
    fn doubt(&self) -> Option<Doubt> {
        match self.user {
            User::Tentative(doubt) => Some(doubt),
            User::Quiet => self.aftermath.map(|(doubt, _)| doubt),
            _ => None,
        }
    }

    fn set_doubt(&mut self, changed: Doubt) {
        match (&mut self.user, &mut self.aftermath) {
            (User::Tentative(doubt), _) | (User::Quiet, Some((doubt, _))) => *doubt = changed,
            _ => {}
        }
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
