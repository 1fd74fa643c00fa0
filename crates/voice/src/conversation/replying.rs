//! What the agent does: responses that are asked for, made, queued, played, cut.

use std::time::{Duration, Instant};

use super::{Conversation, Generation};
use crate::backend::{AgentAudio, BackendInput, Failure, IncompleteReason, Request, ResponseId, WordTime};
use crate::decision::{DecisionKind, InterruptSource};
use crate::opus;
use crate::outgoing::News;
use crate::timing::PendingTiming;
use crate::turn::State;
use crate::types::{Balance, Event, FlushReason, Output};

/// Packets of one clip: 2 s.
const MAX_CLIP: usize = 100;

impl Conversation {
    /// Answers a turn that is owed an answer, if it can be.
    pub(super) fn pay(&mut self, now: Instant) {
        let Some(heard) = self.owed else { return };
        let Some(response) = self.respond(now, self.as_set()) else { return };
        self.owed = None;
        if self.timings.len() == crate::outgoing::MAX_ITEMS {
            // Of a response that failed: it will never play.
            self.timings.pop_front();
        }
        self.timings.push_back(PendingTiming { response, heard, first_audio: None, first_frame: None });
    }

    /// A request that says nothing of its own.
    pub(crate) fn as_set(&self) -> Request {
        Request { text_only: self.text_only, overrides: None }
    }

    pub(super) fn respond(&mut self, now: Instant, request: Request) -> Option<ResponseId> {
        let response = self.new_response(now, request.text_only)?;
        self.backend(BackendInput::CreateResponse { response, request });
        self.event(Event::ResponseCreated { response });
        Some(response)
    }

    /// `None`: one is being made, or too many wait.
    pub(crate) fn new_response(&mut self, now: Instant, text_only: bool) -> Option<ResponseId> {
        if self.generation.is_some() || self.outgoing.is_full() {
            return None;
        }
        self.last_response += 1;
        let response = ResponseId(self.last_response);
        if self.last_turn == 0 {
            self.greeting = Some(response);
        }
        self.generation = Some(Generation { response, due: self.patience(now), began: false, muted: text_only });
        Some(response)
    }

    pub(super) fn patience(&self, now: Instant) -> Instant {
        now + Duration::from_millis(u64::from(self.config.response_timeout_ms))
    }

    pub(super) fn refresh(&mut self, now: Instant, response: ResponseId) {
        let due = self.patience(now);
        match &mut self.generation {
            Some(generation) if generation.response == response => generation.due = due,
            _ => self.orphans += 1,
        }
    }

    pub(crate) fn reply_text(&mut self, now: Instant, response: ResponseId, delta: String, words: &[WordTime]) {
        self.refresh(now, response);
        if self.is_current(response) {
            self.outgoing.text(response, &delta, words);
            self.event(Event::ResponseText { response, delta });
        }
    }

    pub(crate) fn reply_audio(&mut self, now: Instant, response: ResponseId, audio: AgentAudio) {
        self.refresh(now, response);
        let Some(generation) = self.generation.as_mut().filter(|generation| generation.response == response) else {
            return;
        };
        if audio.is_empty() || generation.muted {
            return;
        }
        if !std::mem::replace(&mut generation.began, true) {
            let utterance = self.outgoing.begin(now, response);
            self.event(Event::ResponseAudioStarted { response, utterance });
            if let Some(timing) = self.timing(response) {
                timing.first_audio = Some(now);
            }
        }
        self.outgoing.push(now, response, audio);
    }

    /// A sound of attention is for a user who speaks; between turns and over a reply it would be a word of its own.
    pub(super) fn backchannel(&mut self, mut frames: Vec<Vec<u8>>) {
        let listens = matches!(self.turns.state(), State::UserSpeaking | State::Deciding);
        // The edge gives each its 20 ms, whatever it says of itself.
        let fits = frames.iter().all(|frame| opus::packet_samples(frame) == Some(960));
        if listens && fits && !self.outgoing.is_audible() && !frames.is_empty() {
            frames.truncate(MAX_CLIP);
            self.out.push_back(Output::Clip { frames });
        } else {
            self.clips_dropped += 1;
        }
    }

    /// The backend gave all of it.
    pub(crate) fn finish(&mut self, response: ResponseId) {
        let generated = self.end_generation(response);
        self.event(Event::ResponseDone { response, generated });
    }

    /// The backend gives no more of it, though there would be.
    pub(super) fn finish_early(&mut self, response: ResponseId, reason: IncompleteReason) {
        let generated = self.end_generation(response);
        self.event(Event::ResponseIncomplete { response, generated, reason });
    }

    /// The backend failed. What it gave of a reply plays.
    pub(super) fn fault(&mut self, response: Option<ResponseId>, failure: Failure) {
        let made = self.generation.as_ref().map(|generation| generation.response);
        match (response, made) {
            (asked, Some(made)) if asked.is_none_or(|asked| asked == made) => {
                self.end_generation(made);
                self.event(Event::ResponseFailed { response: made, failure });
            }
            (Some(_), _) => self.orphans += 1,
            (None, _) => self.event(Event::BackendFailed(failure)),
        }
    }

    /// Samples generated.
    fn end_generation(&mut self, response: ResponseId) -> u64 {
        self.generation = None;
        let generated = self.outgoing.generated(response);
        self.outgoing.complete(response);
        generated
    }

    /// The backend stops; the response it was making.
    pub(super) fn stop_generation(&mut self) -> Option<ResponseId> {
        let Generation { response, began, .. } = self.generation.take()?;
        self.duplex.cut(response);
        self.timings.retain(|timing| timing.response != response);
        self.backend(BackendInput::Cancel { response });
        if !began {
            self.outgoing.unheard(response);
        }
        Some(response)
    }

    /// Ends the active response and all playout.
    pub(super) fn cut(&mut self, now: Instant, reason: FlushReason) {
        self.flush(now, reason);
        if let Some(response) = self.stop_generation() {
            self.event(Event::ResponseCancelled { response, reason });
        }
    }

    /// Ends all playout. A flush ends a pause of the edge's too; a pause that came behind the last frame has nothing to
    /// flush and would hold the next reply.
    pub(super) fn flush(&mut self, now: Instant, reason: FlushReason) {
        let paused = self.turns.take_paused();
        let flushed = self.outgoing.flush(now, reason, &mut self.out);
        if paused && !flushed {
            self.out.push_back(Output::Resume { from: None });
        }
    }

    pub(super) fn news(&mut self, now: Instant, news: News) {
        match news {
            News::Started(response) => {
                self.event(Event::PlayoutStarted { response });
                if let Some(at) = self.timings.iter().position(|timing| timing.response == response)
                    && let Some(timing) = self.timings.remove(at)
                {
                    self.out.push_back(Output::Timing(timing.complete(now)));
                }
            }
            News::Finished(balance) => {
                self.event(Event::PlayoutStopped { response: balance.response });
                self.over(balance);
            }
            News::Cleared(balance, text) => {
                let Balance { response, played_end, heard_at, .. } = balance;
                self.event(Event::PlayoutCleared { response, played_end });
                self.event(Event::Truncated { response, played_end, heard_at, text });
                self.over(balance);
            }
            News::Unheard(balance) => self.over(balance),
            News::Mislabeled { response, declared, likely } => {
                self.turns.note(DecisionKind::Mislabeled, InterruptSource::Verdict);
                self.event(Event::AudioMislabeled { response, declared, likely });
            }
        }
    }

    /// The books of a reply are closed: the backend's context ends where the user's does.
    pub(super) fn over(&mut self, balance: Balance) {
        let Balance { response, played_end: samples, heard_at, .. } = balance;
        self.backend(BackendInput::Played { response, samples, heard_at });
        self.event(Event::ReplyOver(balance));
    }

    pub(super) fn timing(&mut self, response: ResponseId) -> Option<&mut PendingTiming> {
        self.timings.iter_mut().find(|timing| timing.response == response)
    }
}
