//! What may be an interruption: whether a reply is held for it, cut, or let go on.
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
//! The invariant: a doubt ends, by the gate's ruling or by its timer (the table in `turn.rs`).

use std::time::{Duration, Instant};

use super::{Action, Frame, Reply, Turns, User};
use crate::decision::{DecisionKind, InterruptSource};
use crate::echo::Own;
use crate::gate::{Evidence, HOLD_MAX, Ruling, WordCount};

/// Frames of speech, or of what may become it, that pause a reply.
pub(super) const TENTATIVE: u32 = 2;
/// Of the detector's threshold: what may become speech. Without speech it is between 0.1 and 0.2.
const PERHAPS: f32 = 0.6;
/// How long a pause for nothing is remembered: a minute.
const WARY: u64 = 60_000 * 48;
/// A gap that ends what might have been an interruption: 9 frames.
pub(super) const GAP: u64 = 144 * 48;
/// Words of an utterance come this much later than its sound.
const LATE_WORDS: u64 = 2000 * 48;
/// Without audio for this long, what might have been an interruption was none.
pub(super) const TENTATIVE_STALL: Duration = Duration::from_millis(300);

/// What may be an interruption.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubt {
    pub(super) onset: u64,
    /// Behind the last voiced sample.
    pub(super) last: u64,
    pub(super) since: Instant,
    pub(super) evidence: Evidence,
    pub(super) words: WordCount,
    pub(super) source: InterruptSource,
    /// Since when the reply is held for it, in media time.
    pub(super) held: Option<u64>,
    /// It was held for long enough.
    pub(super) let_go: bool,
}

impl Turns {
    /// What may become speech reaches this.
    pub(crate) fn perhaps(&self) -> f32 {
        self.threshold() * PERHAPS
    }

    /// A reply that is not heard yet waits while it is held in doubt.
    pub(crate) fn holds_reply(&self) -> bool {
        matches!(self.user, User::Tentative(Doubt { held: Some(_), .. }))
    }

    /// A reply was paused for nothing not long ago.
    pub(crate) fn is_wary(&self) -> bool {
        self.media_end < self.wary_until
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

    /// A reply that plays is worth a pause for what may become speech.
    pub(super) fn stirs(&self) -> bool {
        self.voicing.stirring >= TENTATIVE && self.reply == Reply::Audible && !self.is_wary() && self.rules().holds()
    }

    /// Sound over a reply, or on its way to one.
    pub(super) fn doubt_begins(&mut self, now: Instant, end: u64, frame: Frame) -> Option<Action> {
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

    /// One more frame of it.
    pub(super) fn doubt_goes_on(&mut self, mut doubt: Doubt, end: u64, voiced: bool, frame: Frame) -> Option<Action> {
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

    /// Holds the reply for a doubt that is worth it, and lets it go when it is not any more.
    pub(super) fn hold_or_let_go(&mut self, end: u64, echo: Own) -> Option<Action> {
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
    pub(super) fn rule(&mut self, doubt: Doubt, source: InterruptSource) -> Option<Action> {
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
    pub(super) fn doubt_over(&mut self, source: InterruptSource) -> Option<Action> {
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
    pub(super) fn resume(&mut self, source: InterruptSource) -> Option<Action> {
        if !std::mem::take(&mut self.paused) {
            return None;
        }
        self.wary_until = self.media_end + WARY;
        self.note(DecisionKind::Resume, source);
        Some(Action::Resume)
    }

    /// The doubt there is, or the one that may yet get words.
    pub(super) fn doubt(&self) -> Option<Doubt> {
        match self.user {
            User::Tentative(doubt) => Some(doubt),
            User::Quiet => self.aftermath.map(|(doubt, _)| doubt),
            _ => None,
        }
    }

    pub(super) fn set_doubt(&mut self, changed: Doubt) {
        match (&mut self.user, &mut self.aftermath) {
            (User::Tentative(doubt), _) | (User::Quiet, Some((doubt, _))) => *doubt = changed,
            _ => {}
        }
    }
}
