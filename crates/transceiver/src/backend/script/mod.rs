//! `script`: plays timed outputs from a file: the model of tests and demos. docs/SCRIPTS.md has the format.
//!
//! Run loop: that of every [`Backend`]. What comes in is noted; a request to respond takes the first turn of the file that fits what came
//! since the last one and was not played yet.
//!
//! Invariant: the same file and the same inputs at the same times give the same outputs, and what a call holds of a script is bounded: notes of
//! what came, one second of sound.

mod came;
mod format;
mod load;
mod reply;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use voice::{BackendInput, BackendOutput, Failure, Request, ResponseId, Settings, TurnId};

use super::{Backend, Wanted};
use came::Came;
use format::{Call, Turn};
pub use load::{Script, ScriptError};
use reply::{Played, Reply};

/// Pieces in which the words of one spoken turn are told.
const MAX_DELTAS: usize = 64;

/// What waits to be said when a client commits faster than it is told: more than that is not transcribed.
const MAX_OUTPUTS: usize = 1024;

/// The backend.
#[derive(Debug)]
pub(crate) struct Player {
    turns: Arc<[Turn]>,
    played: Vec<bool>,
    /// What the user said in a turn was told.
    heard: Vec<bool>,
    settings: Arc<Settings>,
    came: Came,
    calls: u32,
    outputs: VecDeque<BackendOutput>,
    /// It asked to speak first, with this turn, and has no answer yet.
    asked: Option<usize>,
    reply: Option<Reply>,
}

impl Player {
    pub(crate) fn new(script: &Script) -> Self {
        let turns = Arc::clone(&script.turns);
        let count = turns.len();
        Self {
            turns,
            played: vec![false; count],
            heard: vec![false; count],
            settings: Arc::default(),
            came: Came::new(count),
            calls: 0,
            outputs: VecDeque::from([BackendOutput::Ready]),
            asked: None,
            reply: None,
        }
    }

    /// The user is there: the model may speak first.
    fn connected(&mut self) {
        let start = self.turns.iter().position(|turn| turn.when.start);
        if let Some(start) = start.filter(|start| !self.played[*start] && !self.settings.transcribes_only) {
            self.asked = Some(start);
            self.outputs.push_back(BackendOutput::Initiate);
        }
    }

    /// The user's turn is complete: what they said in it is that of the turn that would answer it.
    fn committed(&mut self, turn: TurnId) {
        self.came.speech();
        let Some(index) = self.came.choose(&self.turns, &self.played, &self.settings, None) else { return };
        let room = self.outputs.len() < MAX_OUTPUTS;
        if let Some(words) = self.turns[index].hear.as_deref().filter(|_| room && !self.heard[index]) {
            let turn = Some(turn);
            let told = |text: String, is_final| BackendOutput::UserTranscript { turn, text, is_final };
            self.outputs.extend(deltas(words).map(|text| told(text.to_owned(), false)));
            self.outputs.push_back(told(words.to_owned(), true));
            self.heard[index] = true;
        }
        // Nothing else answers in a session of words alone.
        if self.settings.transcribes_only {
            self.take(index);
        }
    }

    fn respond(&mut self, response: ResponseId, request: &Request) {
        self.outputs.push_back(BackendOutput::ResponseStarted { response });
        let chosen =
            self.asked.take().or_else(|| self.came.choose(&self.turns, &self.played, &self.settings, Some(request)));
        match chosen {
            Some(index) => {
                self.take(index);
                self.reply = Some(Reply::new(response, Arc::clone(&self.turns), index, request.text_only));
            }
            None => {
                let message = format!("no turn of the script fits, or all that do were played: {}", self.came);
                let failure = Failure::new("script_no_turn", message);
                let fault = BackendOutput::Fault { response: Some(response), failure, retryable: false };
                self.outputs.push_back(fault);
                self.came.answered();
            }
        }
    }

    fn take(&mut self, index: usize) {
        self.played[index] = true;
        self.heard[index] = false;
        self.came.answered();
    }

    fn name(came: &mut Came, calls: &mut u32, call: &Call) -> String {
        *calls += 1;
        let id = call.call_id.clone().unwrap_or_else(|| format!("call_{calls}"));
        came.call(&id, &call.tool);
        id
    }
}

/// A text word by word, several at once where it has more than [`MAX_DELTAS`].
fn deltas(text: &str) -> impl Iterator<Item = &str> {
    let words: Vec<_> = text.split_inclusive(char::is_whitespace).collect();
    let size = words.len().div_ceil(MAX_DELTAS).max(1);
    let mut rest = text;
    let lengths: Vec<usize> = words.chunks(size).map(|words| words.iter().map(|word| word.len()).sum()).collect();
    lengths.into_iter().map(move |length| {
        let (delta, behind) = rest.split_at(length);
        rest = behind;
        delta
    })
}

impl Backend for Player {
    fn handle(&mut self, input: BackendInput) {
        match input {
            BackendInput::Settings(settings) => self.settings = settings,
            BackendInput::Connected => self.connected(),
            BackendInput::Commit { turn } => self.committed(turn),
            BackendInput::Item(item) => self.came.item(&item, &self.turns),
            BackendInput::CreateResponse { response, request } => self.respond(response, &request),
            BackendInput::Cancel { response } => {
                self.reply.take_if(|reply| reply.response == response);
            }
            BackendInput::Close => {
                self.reply = None;
                self.outputs.clear();
            }
            // It hears nothing and knows beforehand what it will say.
            BackendInput::Audio { .. }
            | BackendInput::SpeechStarted { .. }
            | BackendInput::SpeechStopped { .. }
            | BackendInput::Correction { .. }
            | BackendInput::Key { .. }
            | BackendInput::ItemDeleted { .. }
            | BackendInput::ItemTruncated { .. }
            | BackendInput::Played { .. } => {}
        }
    }

    fn poll(&mut self, now: Instant, wanted: Wanted) -> Option<BackendOutput> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        // Whoever is asked again was refused.
        self.asked = None;
        let Self { reply, came, calls, .. } = self;
        match reply.as_mut()?.play(now, wanted, &mut |call: &Call| Self::name(came, calls, call)) {
            Played::Output(output) => Some(output),
            Played::Last(output) => {
                *reply = None;
                Some(output)
            }
            Played::Nothing => None,
        }
    }

    fn poll_timeout(&self, wanted: Wanted) -> Option<Instant> {
        self.reply.as_ref()?.due(wanted)
    }
}
