//! What the user's audio does: frame by frame through the detectors, and what follows for turns.

use std::time::{Duration, Instant};

use super::{Conversation, Turn, padding_ms};
use crate::backend::{BackendInput, TurnId};
use crate::decision::{DecisionKind, InterruptSource};
use crate::echo::Suspicion;
use crate::opus;
use crate::repair::{Piece, Source};
use crate::timing::Heard;
use crate::turn::{Action, Frame};
use crate::types::{Event, FlushReason, Output};

impl Conversation {
    /// One piece of the user's audio, frame by frame through the detector.
    pub(super) fn hear(&mut self, now: Instant, piece: &Piece<'_>) {
        if !self.ear.hear(piece) {
            self.given = self.given.max(self.ear.end());
            return;
        }
        if matches!(piece.source, Source::Packet(_)) {
            let age = Duration::from_micros(u64::from(piece.age_us));
            self.ways.media(piece.arrived, age, piece.media_time + u64::from(piece.samples));
        }
        if self.is_manual() && self.turn.is_none() {
            let reach = self.reach.take().filter(|_| !self.is_duplex());
            self.given = reach.map_or_else(|| self.given.max(piece.media_time), |reach| reach.max(self.ear.start()));
            self.open_turn(self.given);
        }
        let heard = Heard { arrived: piece.arrived, released: now, age_us: piece.age_us, decided: now };
        let detect = std::mem::take(&mut self.ear.detect);
        let mut rest = &detect[..];
        while !rest.is_empty() {
            let (taken, probability) = self.ear.vad.push(rest);
            rest = &rest[taken..];
            let Some(probability) = probability else { continue };
            let end = self.ear.end() - rest.len() as u64 * 3;
            let rms = self.ear.vad.rms();
            let loud = probability >= self.turns.threshold();
            let wanted = self.turns.wants_timbre();
            let wordlike = self.timbre.frame(self.ear.vad.frame(), loud && wanted);
            // The end of a reply comes back when it is over.
            let echo = (wanted && probability >= self.turns.perhaps()) || (loud && self.echo_suspected());
            let echo = self.outgoing.echo.frame(now, self.ear.vad.frame(), echo);
            self.suspect(now);
            self.judge(now, end, heard, Frame { probability, rms, wordlike, echo });
        }
        self.ear.detect = detect;
        self.turns.heard(now, self.ear.end(), matches!(piece.source, Source::Packet(packet) if opus::is_dtx(packet)));
        self.give(self.ear.end());
        self.ear.trim(self.turns.keep_from());
    }

    /// A frame of a detector that is stood in for.
    #[cfg(test)]
    pub(crate) fn feed(&mut self, now: Instant, end: u64, frame: Frame) {
        let heard = Heard { arrived: now, released: now, age_us: 0, decided: now };
        self.judge(now, end, heard, frame);
        self.turns.heard(now, end, false);
        self.settle(now);
    }

    /// One frame of the user's, as the detectors see it.
    pub(crate) fn judge(&mut self, now: Instant, end: u64, heard: Heard, frame: Frame) {
        let (voiced, action) = self.turns.frame(now, end, frame);
        if voiced {
            self.voiced = heard;
        }
        self.tell_decisions();
        if let Some(action) = action {
            self.act(now, end, action);
        }
    }

    /// Our own reply is heard back, or not any more.
    pub(super) fn suspect(&mut self, now: Instant) {
        let Some(suspicion) = self.outgoing.echo.poll() else { return };
        let action = match suspicion {
            Suspicion::Begins => self.turns.echo_veto(),
            Suspicion::Ends => {
                self.turns.note(DecisionKind::EchoGone, InterruptSource::Vad);
                None
            }
        };
        self.act_if(now, action);
    }

    /// What the turn machine decided, at media time `end`.
    pub(super) fn act(&mut self, now: Instant, end: u64, action: Action) {
        match action {
            Action::Pause => {
                self.outgoing.pause(now);
                self.out.push_back(Output::Pause);
            }
            Action::Resume => {
                let from = self.outgoing.resume(now);
                self.out.push_back(Output::Resume { from });
            }
            Action::Start { onset } => {
                // The reply ended in the middle of the doubt: the edge must not stay paused.
                if self.turns.take_paused() {
                    self.outgoing.resume(now);
                    self.out.push_back(Output::Resume { from: None });
                }
                self.start_turn(end, onset);
            }
            Action::Interrupt { onset } => {
                let told = self.client.get().map(|us| Duration::from_micros(u64::from(us)));
                self.outgoing.speech(self.ways.said(onset), self.ways.way(told));
                self.flush(now, FlushReason::TurnDetected);
                let cancelled = self.stop_generation();
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
            Action::Idle => {
                let start = self.given.max(self.ear.start());
                let turn = self.open_turn(start);
                self.give(end);
                self.event(Event::IdleTimeout { turn, audio_start_ms: start / 48, audio_end_ms: end / 48 });
                self.close_turn(Turn { id: turn, start }, end, end);
                self.respond(now, self.as_set());
            }
        }
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
    pub(super) fn start_turn(&mut self, end: u64, onset: u64) {
        let padding = u64::from(padding_ms(&self.config.turn)) * 48;
        // A backend that hears everything has had it already.
        let given = if self.is_duplex() { 0 } else { self.given };
        let start = onset.saturating_sub(padding).max(given).max(self.ear.start());
        let turn = self.open_turn(start);
        self.event(Event::SpeechStarted { turn, audio_start_ms: start / 48 });
        self.give(end);
    }

    pub(super) fn open_turn(&mut self, start: u64) -> TurnId {
        self.last_turn += 1;
        let id = TurnId(self.last_turn);
        self.turn = Some(Turn { id, start });
        self.given = self.given.max(start);
        self.turns.forget_span();
        self.judging.turn_begins();
        self.backend(BackendInput::SpeechStarted { turn: id });
        id
    }

    pub(super) fn close_turn(&mut self, turn: Turn, from: u64, to: u64) {
        self.turn = None;
        self.committed = self.given;
        self.turns.forget_span();
        self.backend(BackendInput::SpeechStopped { turn: turn.id, from, to });
        self.backend(BackendInput::Commit { turn: turn.id });
        self.event(Event::Committed { turn: turn.id });
    }

    /// Audio of the running turn up to media time `end`.
    pub(super) fn give(&mut self, end: u64) {
        let Some(turn) = self.turn else { return self.stream(end) };
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
            self.manual_overflow += pcm.len() as u64;
            return;
        }
        if self.turns.is_semantic() {
            self.judging.hear(&pcm, self.config.backend_rate);
        }
        if !pcm.is_empty() {
            self.backend(BackendInput::Audio { pcm, media_time });
        }
    }

    /// What no turn has: a backend that hears everything gets it all the same.
    pub(super) fn stream(&mut self, end: u64) {
        if self.is_duplex() && end > self.given {
            let media_time = self.given.max(self.ear.start());
            let pcm = self.ear.read(media_time, end);
            self.given = end;
            self.backend(BackendInput::Audio { pcm, media_time });
        }
    }
}
