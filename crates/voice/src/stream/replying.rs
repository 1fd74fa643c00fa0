//! What the agent does: responses that are asked for, made, sent ahead of their time, cut, and what the client played of them.

use std::time::{Duration, Instant};

use super::outlet::{self, Outlet};
use super::{CUT_TIMEOUT, MAX_PLAYED, PIECES, SLACK, Stream, StreamOutput};
use crate::backend::{
    AgentAudio, BackendInput, BackendOutput, Failure, IncompleteReason, Request, ResponseId, TurnVerdict,
};
use crate::decision::{DecisionKind, InterruptSource};
use crate::timing::PendingTiming;
use crate::types::{Balance, Event, FlushReason, Utterance};

/// The response that a backend is making, or that is not sent to its end.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) response: ResponseId,
    asked: Instant,
    /// Nothing of it left yet.
    unheard: bool,
    /// Times that the client had played all of it there was.
    underruns: u32,
    /// Without audio until then it is given up.
    due: Instant,
    /// Its first audio came.
    began: bool,
    text_only: bool,
    /// The backend gave all of it.
    complete: bool,
    /// ...though there would be more.
    incomplete: Option<IncompleteReason>,
    pub(super) outlet: Outlet,
    /// The client played it up to there and no further.
    truncated: Option<u64>,
}

/// A response of which nothing more is sent. Positions are 48 kHz item samples.
#[derive(Debug)]
pub(super) struct Played {
    response: ResponseId,
    generated: u64,
    sent: u64,
    underruns: u32,
    /// When the client has played all of it.
    until: Instant,
    cut: Option<Cut>,
}

/// Where a reply ended for the user.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// When the client has had time enough to say it.
    due: Instant,
    played_end: u64,
    heard_at: Option<u64>,
}

impl Played {
    fn due(&self) -> Instant {
        self.cut.map_or_else(|| self.until + SLACK, |cut| cut.due)
    }

    /// Where the client is at a time.
    fn position(&self, at: Instant) -> u64 {
        self.sent.saturating_sub(outlet::samples(self.until.saturating_duration_since(at)))
    }
}

impl Stream {
    /// Backend output.
    pub fn handle_backend(&mut self, now: Instant, output: BackendOutput) {
        self.now = self.now.max(now);
        match output {
            BackendOutput::Ready => {}
            BackendOutput::Initiate => drop(self.respond(now, self.as_set())),
            BackendOutput::UserTranscript { turn, text, is_final } => self.user_words(now, turn, text, is_final),
            BackendOutput::TurnVerdict(TurnVerdict::Complete { probability }) => {
                self.turns.complete_verdict(probability);
            }
            BackendOutput::TurnVerdict(TurnVerdict::Interruption { probability }) => {
                let action = self.turns.interruption_verdict(probability);
                self.act_if(now, action);
            }
            BackendOutput::ResponseStarted { response } => {
                self.making(now, response);
            }
            BackendOutput::Audio { response, audio } => self.reply_audio(now, response, audio),
            BackendOutput::ToolCall { response, call } => {
                if self.making(now, response).is_some() {
                    self.event(Event::ToolCall { response, call });
                }
            }
            BackendOutput::Backchannel { .. } => self.stats.clips_dropped += 1,
            BackendOutput::Text { response, delta, .. } => {
                if let Some(generation) = self.making(now, response) {
                    let first = generation.text_only;
                    self.event(Event::ResponseText { response, delta });
                    if first {
                        self.first_delta(now);
                    }
                }
            }
            BackendOutput::Usage { response, usage } => {
                if self.making(now, response).is_some() {
                    self.event(Event::ResponseUsage { response, usage });
                }
            }
            BackendOutput::ResponseDone { response } => {
                if let Some(generation) = self.making(now, response) {
                    generation.finish(None);
                }
            }
            BackendOutput::ResponseIncomplete { response, reason } => {
                if let Some(generation) = self.making(now, response) {
                    generation.finish(Some(reason));
                }
            }
            BackendOutput::Closed => match self.generation.as_mut().filter(|generation| !generation.complete) {
                Some(generation) if generation.began || generation.text_only => generation.finish(None),
                Some(_) => {
                    let failure = Failure::new("backend_closed", "the backend closed before it gave any audio");
                    self.fail(now, failure);
                }
                None => {}
            },
            BackendOutput::Fault { response, failure, .. } => self.fault(now, response, failure),
        }
        self.settle(now);
    }

    /// Answers a turn that is owed an answer, if it can be.
    pub(super) fn pay(&mut self, now: Instant) {
        let Some(heard) = self.owed else { return };
        let Some(response) = self.respond(now, self.as_set()) else { return };
        self.owed = None;
        self.timing = Some(PendingTiming { response, heard, first_audio: None, first_frame: None });
    }

    /// A request that says nothing of its own.
    pub(super) fn as_set(&self) -> Request {
        Request { text_only: self.text_only, overrides: None }
    }

    /// Asks for a response. `None`: one is active.
    pub(super) fn respond(&mut self, now: Instant, request: Request) -> Option<ResponseId> {
        if self.generation.is_some() {
            return None;
        }
        self.last_response += 1;
        let response = ResponseId(self.last_response);
        if self.last_turn == 0 {
            self.greeting = Some(response);
        }
        self.idle_at = None;
        self.generation = Some(Generation {
            response,
            asked: now,
            unheard: true,
            underruns: 0,
            due: self.patience(now),
            began: false,
            text_only: request.text_only,
            complete: false,
            incomplete: None,
            outlet: Outlet::new(),
            truncated: None,
        });
        self.backend(BackendInput::CreateResponse { response, request });
        self.event(Event::ResponseCreated { response });
        Some(response)
    }

    /// Sends what may be sent, and ends what is sent to its end.
    pub(super) fn send(&mut self, now: Instant) {
        while self.is_sending(now) && self.sending.take(now, PIECES) {
            let Some(generation) = &mut self.generation else { break };
            let before = generation.outlet.sent;
            let Some(data) = generation.outlet.next(self.format, self.playing.left(now)) else { break };
            let (response, samples) = (generation.response, generation.outlet.sent - before);
            // Of what left before nothing was to be played any more.
            let dry = self.playing.until().filter(|until| before > 0 && *until < now);
            if let Some(dry) = dry {
                generation.underruns += 1;
                let us = now.saturating_duration_since(dry).as_micros();
                self.stats.interruptions += 1;
                self.stats.interrupted_us += u64::try_from(us).unwrap_or(u64::MAX);
            }
            self.playing.sent(now, self.ear.end(), samples);
            if before == 0 {
                self.event(Event::PlayoutStarted { response });
                if let Some(mut timing) = self.timing.take_if(|timing| timing.response == response) {
                    timing.first_frame = Some(now);
                    self.out.push_back(StreamOutput::Timing(timing.complete(now)));
                }
            }
            self.out.push_back(StreamOutput::Audio { response, data });
            self.first_delta(now);
        }
        if let Some(generation) = self.generation.take_if(|generation| generation.outlet.is_over()) {
            let (response, generated) = (generation.response, generation.outlet.generated);
            self.event(match generation.incomplete {
                None => Event::ResponseDone { response, generated },
                Some(reason) => Event::ResponseIncomplete { response, generated, reason },
            });
            self.leave(now, generation);
        }
        self.expire_played(now);
    }

    /// Something of the response left for the client.
    fn first_delta(&mut self, now: Instant) {
        if let Some(generation) = &mut self.generation
            && std::mem::take(&mut generation.unheard)
        {
            let after = now.saturating_duration_since(generation.asked);
            self.out.push_back(StreamOutput::FirstDelta { after });
        }
    }

    /// Something could leave now, but for the pace of one go.
    pub(super) fn is_sending(&self, now: Instant) -> bool {
        self.send_due(now).is_some_and(|due| due <= now)
    }

    /// When [`Stream::handle_timeout`] has something to do for a reply.
    pub(super) fn reply_due(&self) -> Option<Instant> {
        let making =
            self.generation.as_ref().filter(|generation| !generation.complete).map(|generation| generation.due);
        let send = self.send_due(self.now).map(|due| due.max(self.sending.again(PIECES).unwrap_or(due)));
        let played = self.played.iter().map(Played::due).min();
        [making, send, played].into_iter().flatten().min()
    }

    /// A response that nothing came of in time, and replies that were played.
    pub(super) fn expire(&mut self, now: Instant) {
        // A backend that waits because enough of the reply waits here is not late.
        let patience = (!self.wants_audio()).then(|| self.patience(now));
        let Some(generation) = self.generation.as_mut().filter(|generation| !generation.complete) else { return };
        generation.due = patience.unwrap_or(generation.due);
        if generation.due <= now {
            let response = generation.response;
            self.turns.note(DecisionKind::ResponseTimeout, InterruptSource::Timer);
            self.tell_decisions();
            self.backend(BackendInput::Cancel { response });
            let message = format!("the backend gave no audio for {} ms", self.config.response_timeout_ms);
            self.fail(now, Failure::new("backend_timeout", message));
        }
    }

    /// Ends the active response, of which nothing more leaves.
    pub(super) fn stop(&mut self, now: Instant, reason: FlushReason) {
        if let Some(response) = self.stop_generation(now) {
            self.event(Event::ResponseCancelled { response, reason });
        }
    }

    /// The backend stops; the response it was making.
    pub(super) fn stop_generation(&mut self, now: Instant) -> Option<ResponseId> {
        let generation = self.generation.take()?;
        let response = generation.response;
        if !generation.complete {
            self.backend(BackendInput::Cancel { response });
        }
        self.leave(now, generation);
        Some(response)
    }

    /// The user took the turn, at `onset` by the wall clock: the client drops what it has not played, and says where that was.
    pub(super) fn cut_playing(&mut self, now: Instant, onset: Instant) {
        for played in self.played.iter_mut().filter(|played| played.cut.is_none() && played.until > now) {
            let (due, played_end) = (now + CUT_TIMEOUT, played.position(now));
            played.cut = Some(Cut { due, played_end, heard_at: Some(played.position(onset)) });
        }
        self.playing.cut();
    }

    /// The client says where a reply ended.
    pub(super) fn truncate(&mut self, now: Instant, response: ResponseId, samples: u64) {
        if let Some(generation) = self.generation.as_mut().filter(|generation| generation.response == response) {
            generation.truncated = Some(samples.min(generation.outlet.sent));
            return self.playing.cut();
        }
        let latest = self.played.back().is_some_and(|played| played.response == response);
        let Some(played) = self.played.iter_mut().find(|played| played.response == response) else { return };
        let heard_at = played.cut.and_then(|cut| cut.heard_at);
        played.cut = Some(Cut { due: now, played_end: samples.min(played.sent), heard_at });
        if latest && self.generation.as_ref().is_none_or(|generation| generation.outlet.sent == 0) {
            self.playing.cut();
            // Unless they spoke meanwhile, or were spoken to.
            if self.idle_at.is_some() {
                self.idle_from(now);
            }
        }
    }

    /// When the reply has something to send. `None`: it has not.
    fn send_due(&self, now: Instant) -> Option<Instant> {
        let generation = self.generation.as_ref()?;
        // A sound between question and answer may be a turn: the answer waits for that.
        if generation.outlet.sent == 0 && self.turns.holds_reply() {
            return None;
        }
        let wanted = generation.outlet.wanted()?;
        let left = self.playing.left(now);
        Some(if left <= wanted { now } else { now + (left - wanted) + Duration::from_millis(1) })
    }

    /// The response that is being made, if it is that one; it is not given up for now.
    fn making(&mut self, now: Instant, response: ResponseId) -> Option<&mut Generation> {
        let due = self.patience(now);
        let current = |generation: &&mut Generation| generation.response == response && !generation.complete;
        let generation = self.generation.as_mut().filter(current);
        match generation {
            Some(generation) => {
                generation.due = due;
                Some(generation)
            }
            None => {
                self.stats.orphans += 1;
                None
            }
        }
    }

    fn reply_audio(&mut self, now: Instant, response: ResponseId, audio: AgentAudio) {
        let (native, room) = (self.config.backend_rate, (u64::from(self.config.max_turn_ms) + 1000) * 48);
        let Some(generation) = self.making(now, response) else { return };
        if audio.is_empty() || generation.text_only {
            return;
        }
        let first = !std::mem::replace(&mut generation.began, true);
        let taken = generation.outlet.push(audio, native, room);
        self.stats.reply_overflow += taken.overflow;
        self.stats.refused += u64::from(taken.refused) + u64::from(taken.repeated);
        if first {
            let utterance = Utterance(u32::try_from(response.0).unwrap_or(u32::MAX));
            self.event(Event::ResponseAudioStarted { response, utterance });
            if let Some(timing) = self.timing.as_mut().filter(|timing| timing.response == response) {
                timing.first_audio = Some(now);
            }
        }
    }

    /// What is failed of is the response that is being made; of one that is complete nothing can fail any more.
    fn fault(&mut self, now: Instant, response: Option<ResponseId>, failure: Failure) {
        let made = self.generation.as_ref().filter(|generation| !generation.complete);
        match (response, made.map(|generation| generation.response)) {
            (asked, Some(made)) if asked.is_none_or(|asked| asked == made) => self.fail(now, failure),
            (Some(_), _) => self.stats.orphans += 1,
            (None, _) => self.event(Event::BackendFailed(failure)),
        }
    }

    fn fail(&mut self, now: Instant, failure: Failure) {
        if let Some(generation) = self.generation.take() {
            let response = generation.response;
            self.event(Event::ResponseFailed { response, failure });
            self.leave(now, generation);
        }
    }

    /// Nothing more of a response is sent; the client plays what it has.
    fn leave(&mut self, now: Instant, generation: Generation) {
        let Generation { response, outlet: Outlet { generated, sent, .. }, truncated, underruns, .. } = generation;
        self.timing.take_if(|timing| timing.response == response);
        let until = self.playing.until().filter(|_| sent > 0).unwrap_or(now).max(now);
        let cut = truncated.map(|played_end| Cut { due: now, played_end, heard_at: None });
        // Nothing is to be played of what never left.
        let cut = cut.or_else(|| (sent == 0).then_some(Cut { due: now, played_end: 0, heard_at: None }));
        self.played.push_back(Played { response, generated, sent, underruns, until, cut });
        // Whatever plays still, of this response or of one before.
        self.idle_from(self.playing.until().unwrap_or(now).max(now));
    }

    /// From then on the user is waited for.
    fn idle_from(&mut self, at: Instant) {
        let idle = self.config.turn.server_vad.as_ref().and_then(|vad| vad.idle_timeout_ms);
        self.idle_at = idle.map(|ms| at + Duration::from_millis(u64::from(ms)));
    }

    /// Closes the books of replies that were played, or cut.
    fn expire_played(&mut self, now: Instant) {
        while let Some(at) = self.played.iter().position(|played| played.due() <= now).or_else(|| {
            // Of too many the oldest is taken for played.
            (self.played.len() > MAX_PLAYED).then_some(0)
        }) {
            let Some(played) = self.played.remove(at) else { break };
            self.over(&played);
        }
    }

    /// The backend's context ends where the user's does.
    fn over(&mut self, played: &Played) {
        let Played { response, generated, sent, underruns, .. } = *played;
        let (samples, heard_at) = played.cut.map_or((sent, None), |cut| (cut.played_end, cut.heard_at));
        match played.cut {
            Some(_) if sent > 0 => self.event(Event::PlayoutCleared { response, played_end: samples }),
            None => self.event(Event::PlayoutStopped { response }),
            Some(_) => {}
        }
        self.backend(BackendInput::Played { response, samples, heard_at });
        let played_end = samples;
        let balance = Balance { response, generated, sent, played_end, heard_at, underruns, preroll_us: 0 };
        self.event(Event::ReplyOver(balance));
    }

    fn patience(&self, now: Instant) -> Instant {
        now + Duration::from_millis(u64::from(self.config.response_timeout_ms))
    }
}

impl Generation {
    /// The backend gave all of it.
    fn finish(&mut self, incomplete: Option<IncompleteReason>) {
        self.complete = true;
        self.incomplete = incomplete;
        self.outlet.complete();
    }
}
