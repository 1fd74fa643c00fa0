//! What appended audio does: frame by frame through the detector, and what follows for turns.

use std::time::Instant;

use super::{SampleFormat, Stream, StreamOutput, Turn, without_idle};
use crate::backend::{BackendInput, TurnId};
use crate::config::TurnConfig;
use crate::decision::DecisionKind;
use crate::echo::Own;
use crate::rate::Resampler;
use crate::timing::Heard;
use crate::turn::{Action, Frame};
use crate::types::{Event, FlushReason};

impl Stream {
    /// Samples of this format, which came with the last step.
    pub(super) fn hear(&mut self, now: Instant, format: SampleFormat, arrived: Instant) {
        let mut resampler = match self.resampler.take() {
            Some((last, resampler)) if last == format => resampler,
            _ => Resampler::new(format.rate(), self.ear.rate()),
        };
        self.resampled.clear();
        resampler.process(&self.pcm, &mut self.resampled);
        self.resampler = Some((format, resampler));
        if self.is_manual() && self.turn.is_none() && !self.resampled.is_empty() {
            self.open_turn(self.given.max(self.ear.end()));
        }
        self.ear.hear_samples(&self.resampled);
        let heard = Heard { arrived, released: arrived, age_us: 0, decided: now };
        let detect = std::mem::take(&mut self.ear.detect);
        let mut rest = &detect[..];
        while !rest.is_empty() {
            let (taken, probability) = self.ear.vad.push(rest);
            rest = &rest[taken..];
            let Some(probability) = probability else { continue };
            let end = self.ear.end() - rest.len() as u64 * 3;
            let rms = self.ear.vad.rms();
            let look = probability >= self.turns.threshold() && self.turns.wants_timbre();
            let wordlike = self.timbre.frame(self.ear.vad.frame(), look);
            self.judge(now, end, heard, Frame { probability, rms, wordlike, echo: Own::No });
        }
        self.ear.detect = detect;
        self.give(self.ear.end());
        self.ear.trim(self.turns.keep_from());
    }

    /// One frame of the user's, as the detectors see it. Nothing here depends on how the client cut its audio into pieces.
    pub(super) fn judge(&mut self, now: Instant, end: u64, heard: Heard, frame: Frame) {
        let at = self.start + super::outlet::duration(end);
        let (voiced, action) = self.turns.frame(at, end, frame);
        if voiced {
            self.voiced = heard;
        }
        self.act_at(now, end, action);
        self.turns.heard(at, end, false);
        let action = self.turns.handle_timeout(at);
        self.act_at(now, end, action);
    }

    /// A frame of a detector that is stood in for.
    #[cfg(test)]
    pub(super) fn feed(&mut self, now: Instant, frame: Frame) {
        (self.now, self.appended) = (now, now);
        self.ear.skip(crate::vad::FRAME_MEDIA);
        let heard = Heard { arrived: now, released: now, age_us: 0, decided: now };
        self.judge(now, self.ear.end(), heard, frame);
        self.settle(now);
    }

    pub(super) fn tell_decisions(&mut self) {
        while let Some(decision) = self.turns.poll_decision() {
            if decision.kind == DecisionKind::InputSilent {
                self.event(Event::InputSilent { ms: self.turns.zero_ms() });
            }
            self.event(Event::Decision(decision));
        }
    }

    pub(super) fn act_if(&mut self, now: Instant, action: Option<Action>) {
        self.act_at(now, self.ear.end(), action);
    }

    fn act_at(&mut self, now: Instant, end: u64, action: Option<Action>) {
        self.tell_decisions();
        if let Some(action) = action {
            self.act(now, end, action);
        }
    }

    /// What the turn machine decided, at media time `end`.
    fn act(&mut self, now: Instant, end: u64, action: Action) {
        match action {
            // Nothing is held at the client.
            Action::Pause | Action::Resume => {}
            Action::Start { onset } => {
                self.turns.take_paused();
                self.start_turn(end, onset);
            }
            Action::Interrupt { onset } => {
                self.turns.take_paused();
                let since = super::outlet::duration(end.saturating_sub(onset));
                let cancelled = self.stop_generation(now);
                self.cut_playing(now, now.checked_sub(since).unwrap_or(now));
                self.owed = None;
                self.start_turn(end, onset);
                if let Some(response) = cancelled {
                    self.event(Event::ResponseCancelled { response, reason: FlushReason::TurnDetected });
                }
            }
            Action::Stop { from, to } => {
                let Some(turn) = self.turn else { return };
                self.give(end);
                self.event(Event::SpeechStopped { turn: turn.id, audio_end_ms: to / 48 });
                self.close_turn(turn, from, to);
                if self.config.turn.server_vad.as_ref().is_some_and(|vad| vad.create_response) {
                    self.owed = Some(Heard { decided: now, ..self.voiced });
                    self.pay(now);
                }
            }
            // Told by the wall clock.
            Action::Idle => {}
        }
    }

    /// Nobody spoke for the idle timeout: the silence is an item and is answered.
    pub(super) fn idle(&mut self, now: Instant) {
        let (start, end) = (self.given.max(self.ear.start()), self.ear.end());
        let turn = self.open_turn(start);
        self.give(end);
        self.event(Event::IdleTimeout { turn, audio_start_ms: start / 48, audio_end_ms: end / 48 });
        self.close_turn(Turn { id: turn, start }, end, end);
        self.respond(now, self.as_set());
    }

    /// Makes an item of what was heard. `false`: nothing was.
    pub(super) fn commit_heard(&mut self, now: Instant) -> bool {
        let Some(turn) = self.turn else { return false };
        let end = self.ear.end();
        self.give(end);
        let automatic = self.turns.end();
        // Speech that goes on over a commit began before the turn that has the rest of it.
        let span = automatic.or_else(|| self.turns.span()).filter(|(_, to)| *to > turn.start);
        let (from, to) = span.map_or((turn.start, end), |(from, to)| (from.max(turn.start), to));
        if automatic.is_some() {
            self.event(Event::SpeechStopped { turn: turn.id, audio_end_ms: to / 48 });
        }
        self.close_turn(turn, from, to);
        self.now = self.now.max(now);
        true
    }

    /// Forgets what was heard and is not committed. The backend drops it when the next turn begins.
    pub(super) fn clear_heard(&mut self) {
        self.turn = None;
        self.turns.end();
        self.turns.forget_span();
        self.given = self.ear.end();
    }

    pub(super) fn use_turn(&mut self, now: Instant, turn: TurnConfig) {
        self.ear.set_padding(turn.padding_ms());
        let was_manual = self.is_manual();
        self.config.turn = turn;
        let action = self.turns.set(without_idle(&self.config.turn));
        self.act_if(now, action);
        if was_manual && !self.is_manual() {
            self.turn = None;
        }
        self.idle_at = None;
    }

    /// Words of the user's. Those of a turn that is over are no evidence of an interruption.
    pub(super) fn user_words(&mut self, now: Instant, turn: Option<TurnId>, text: String, is_final: bool) {
        if turn.is_none_or(|turn| self.turn.is_some_and(|running| running.id == turn)) {
            let action = self.turns.words(&text, is_final);
            self.act_if(now, action);
        }
        let last = TurnId(self.last_turn);
        let turn = turn.map_or(last, |turn| turn.min(last));
        if turn.0 > 0 {
            self.event(Event::UserTranscript { turn, text, is_final });
        }
    }

    /// The user's turn begins in the past: padding first.
    fn start_turn(&mut self, end: u64, onset: u64) {
        let padding = u64::from(self.config.turn.padding_ms()) * 48;
        let start = onset.saturating_sub(padding).max(self.given).max(self.ear.start());
        let turn = self.open_turn(start);
        self.event(Event::SpeechStarted { turn, audio_start_ms: start / 48 });
        self.give(end);
    }

    fn open_turn(&mut self, start: u64) -> TurnId {
        self.last_turn += 1;
        let id = TurnId(self.last_turn);
        self.turn = Some(Turn { id, start });
        self.given = self.given.max(start);
        self.idle_at = None;
        self.turns.forget_span();
        self.judging.turn_begins();
        self.backend(BackendInput::SpeechStarted { turn: id });
        id
    }

    fn close_turn(&mut self, turn: Turn, from: u64, to: u64) {
        self.turn = None;
        self.turns.forget_span();
        self.backend(BackendInput::SpeechStopped { turn: turn.id, from, to });
        self.backend(BackendInput::Commit { turn: turn.id });
        self.event(Event::Committed { turn: turn.id });
    }

    /// Audio of the running turn up to media time `end`.
    fn give(&mut self, end: u64) {
        let Some(turn) = self.turn else { return };
        if end <= self.given {
            return;
        }
        let media_time = self.given.max(self.ear.start());
        let pcm = self.ear.read(media_time, end);
        self.given = end;
        let room = u64::from(self.config.max_turn_ms) * 48;
        if self.is_manual() && end - turn.start > room {
            if self.turns.span().is_none() {
                // A minute of nothing: the turn begins again.
                self.open_turn(end);
            }
            self.stats.manual_overflow += pcm.len() as u64 * 48_000 / u64::from(self.config.backend_rate);
            return;
        }
        if self.turns.is_semantic() {
            self.judging.hear(&pcm, self.config.backend_rate);
        }
        if !pcm.is_empty() {
            self.out.push_back(StreamOutput::Backend(BackendInput::Audio { pcm, media_time }));
        }
    }
}
