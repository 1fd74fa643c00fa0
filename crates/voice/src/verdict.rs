//! How long the user has to be silent for their turn to be over.
//!
//! `server_vad` says a number. `semantic_vad` has a range: from [`Range::quick`], when somebody who knows says that all is
//! said, over [`Range::usual`], when nobody says anything, to [`Range::most`], when the sentence is plainly not over.
//! The usual wait follows the user: who makes long pauses within their turns is waited for longer.
//!
//! Somebody who knows is the backend ([`crate::TurnVerdict::Complete`]) or a [`Judge`] that is plugged in.

use std::time::Duration;

use crate::config::{Eagerness, ServerVad};

/// Something that judges from the sound of a turn whether it is over: a model of the operator's.
///
/// It is called on the thread of the media and must return at once: a model that takes longer than a frame works
/// elsewhere, behind a bounded queue, and gives its answer when it has one.
pub trait Judge: Send + std::fmt::Debug {
    /// Audio of the running turn under `semantic_vad`, mono at `rate` samples per second, its padding first, without a gap.
    fn hear(&mut self, pcm: &[i16], rate: u32);
    /// The user has been silent for 200 ms: is the turn over?
    fn ask(&mut self);
    /// The user speaks on, or another turn begins (`fresh`): an answer that is not given yet is not wanted any more.
    fn resume(&mut self, fresh: bool);
    /// The probability that the turn is over, once for each question at most.
    fn poll(&mut self) -> Option<f32>;
}

/// A judge, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Judging {
    judge: Option<Box<dyn Judge>>,
    /// About the pause that is on.
    asked: bool,
    answered: bool,
}

/// An answer is looked for so often at least: without packets, as in DTX, nothing else would.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

impl Judging {
    pub(crate) fn set(&mut self, judge: Box<dyn Judge>) {
        *self = Self { judge: Some(judge), ..Self::default() };
    }

    pub(crate) fn turn_begins(&mut self) {
        self.asked = false;
        if let Some(judge) = &mut self.judge {
            judge.resume(true);
        }
    }

    pub(crate) fn hear(&mut self, pcm: &[i16], rate: u32) {
        if let Some(judge) = &mut self.judge {
            judge.hear(pcm, rate);
        }
    }

    /// Whether the user pauses within their turn; the answer, if one has come.
    pub(crate) fn follow(&mut self, in_pause: bool) -> Option<f32> {
        let judge = self.judge.as_mut()?;
        if std::mem::replace(&mut self.asked, in_pause) != in_pause {
            self.answered = false;
            if in_pause { judge.ask() } else { judge.resume(false) }
        }
        let answer = judge.poll().filter(|_| in_pause);
        self.answered |= answer.is_some();
        answer
    }

    /// An answer is still to come.
    pub(crate) fn waits(&self) -> bool {
        self.asked && !self.answered
    }
}

/// Silences in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    quick: u32,
    usual: u32,
    most: u32,
}

/// The longest waits are the API's.
fn range(eagerness: Eagerness) -> Range {
    match eagerness {
        Eagerness::Low => Range { quick: 400, usual: 1000, most: 8000 },
        Eagerness::Medium | Eagerness::Auto => Range { quick: 250, usual: 600, most: 4000 },
        Eagerness::High => Range { quick: 200, usual: 350, most: 2000 },
    }
}

/// The wait of one conversation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Patience {
    /// The longest pause the user lately made within a turn, in ms; it fades from turn to turn.
    own_pause: u32,
    /// Of the pause that is on now.
    verdict: Option<f32>,
}

impl Patience {
    /// The silence that ends a turn now, in ms.
    pub(crate) fn silence_ms(&self, vad: &ServerVad) -> u32 {
        let Some(eagerness) = vad.eagerness else { return vad.silence_duration_ms };
        let Range { quick, usual, most } = range(eagerness);
        let usual = usual.max(self.own_pause + self.own_pause / 4).min(most / 2);
        match self.verdict {
            None => usual,
            Some(complete) if complete >= 0.5 => between(usual, quick, (complete - 0.5) * 2.0),
            Some(complete) => between(usual, most, (0.5 - complete) * 2.0),
        }
    }

    /// Somebody who knows says how likely the turn is over. `true`: that changes how long is waited.
    pub(crate) fn verdict(&mut self, vad: &ServerVad, complete: f32) -> bool {
        let complete = if complete.is_finite() { complete.clamp(0.0, 1.0) } else { return false };
        self.verdict = Some(complete);
        vad.eagerness.is_some()
    }

    /// The user speaks again: what was said of the pause is said of it alone.
    pub(crate) fn speaks(&mut self) {
        self.verdict = None;
    }

    /// The user went on after this pause: what was said of it holds no more.
    pub(crate) fn went_on(&mut self, pause_ms: u32) {
        self.own_pause = self.own_pause.max(pause_ms);
        self.verdict = None;
    }

    /// A turn is over.
    pub(crate) fn turn_over(&mut self) {
        self.own_pause -= self.own_pause / 8;
        self.verdict = None;
    }
}

/// `part` of the way from one to the other.
fn between(from: u32, to: u32, part: f32) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1000")]
    let per_mille = u64::from((part.clamp(0.0, 1.0) * 1000.0) as u32);
    let way = u64::from(from.abs_diff(to)) * per_mille / 1000;
    let way = u32::try_from(way).unwrap_or(0);
    if to >= from { from + way } else { from - way }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn semantic(eagerness: Eagerness) -> ServerVad {
        ServerVad { eagerness: Some(eagerness), ..ServerVad::default() }
    }

    #[test]
    fn server_vad_waits_its_number_whatever_is_said() {
        let (vad, mut patience) = (ServerVad::default(), Patience::default());
        assert!(!patience.verdict(&vad, 1.0));
        assert_eq!(patience.silence_ms(&vad), 500);
    }

    #[test]
    fn a_verdict_moves_the_wait_between_quick_and_most() {
        for (eagerness, waits) in [
            (Eagerness::Low, [400, 1000, 8000]),
            (Eagerness::Medium, [250, 600, 4000]),
            (Eagerness::Auto, [250, 600, 4000]),
            (Eagerness::High, [200, 350, 2000]),
        ] {
            let vad = semantic(eagerness);
            let wait = |verdict: Option<f32>| {
                let mut patience = Patience::default();
                verdict.map(|verdict| patience.verdict(&vad, verdict));
                patience.silence_ms(&vad)
            };
            assert_eq!([wait(Some(1.0)), wait(None), wait(Some(0.0))], waits);
            assert_eq!(wait(Some(0.5)), waits[1]);
            assert!(wait(Some(0.9)) < wait(Some(0.6)) && wait(Some(0.4)) < wait(Some(0.1)));
            assert_eq!(wait(Some(f32::NAN)), waits[1]);
        }
    }

    #[test]
    fn who_makes_long_pauses_is_waited_for_longer_for_a_while() {
        let (vad, mut patience) = (semantic(Eagerness::High), Patience::default());
        patience.went_on(700);
        assert_eq!(patience.silence_ms(&vad), 875);
        patience.went_on(9000);
        assert_eq!(patience.silence_ms(&vad), 1000, "half of the most");
        for _ in 0..40 {
            patience.turn_over();
        }
        assert_eq!(patience.silence_ms(&vad), 350);
    }

    #[test]
    fn a_verdict_ends_with_its_pause() {
        let (vad, mut patience) = (semantic(Eagerness::Medium), Patience::default());
        patience.verdict(&vad, 1.0);
        patience.went_on(300);
        assert_eq!(patience.silence_ms(&vad), 600);
    }
}
