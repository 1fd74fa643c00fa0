//! A turn's reply being played, step by step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use voice::{AgentAudio, BackendOutput, Failure, ResponseId, ToolCall, WordTime};

use super::format::{Call, Fail, Say, Step, Turn};
use crate::backend::Wanted;

/// Of the sound, in Hz.
const RATE: u32 = 24_000;

/// Sound given at once, as models do, in ms.
const CHUNK_MS: u32 = 100;

/// Sound made at once, in ms; kept until it is said: 48 KB.
const BLOCK_MS: u32 = 1000;

/// What is played for one response.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) response: ResponseId,
    turns: Arc<[Turn]>,
    turn: usize,
    text_only: bool,
    /// The step that is played.
    step: usize,
    /// How far it is: chunks of a `say`, pieces of a `call`.
    at: u32,
    /// When it goes on. `None`: it was not looked at yet.
    due: Option<Instant>,
    /// It ended, or hangs.
    still: bool,
    /// Words were said in it.
    began: bool,
    /// 48 kHz samples of the sound of the steps before.
    sound: u64,
    /// Bytes of the running text that were told.
    told: usize,
    /// Of the running call.
    call_id: String,
    block: Block,
}

/// A second of sound.
#[derive(Debug, Default)]
struct Block {
    /// Of which step, and its place there.
    of: Option<(usize, u32)>,
    pcm: Vec<i16>,
}

/// What became of one go.
#[derive(Debug)]
pub(super) enum Played {
    /// The backend says this.
    Output(BackendOutput),
    /// The same, and that was the end.
    Last(BackendOutput),
    /// Nothing, for now.
    Nothing,
}

impl Reply {
    pub(super) fn new(response: ResponseId, turns: Arc<[Turn]>, turn: usize, text_only: bool) -> Self {
        Self {
            response,
            turns,
            turn,
            text_only,
            step: 0,
            at: 0,
            due: None,
            still: false,
            began: false,
            sound: 0,
            told: 0,
            call_id: String::new(),
            block: Block::default(),
        }
    }

    /// The next thing that is due and wanted. `name`: gives a call its id, and takes note of it.
    pub(super) fn play(&mut self, now: Instant, wanted: Wanted, name: &mut impl FnMut(&Call) -> String) -> Played {
        loop {
            let due = *self.due.get_or_insert(now);
            if self.still || due > now || !self.is_wanted(wanted) {
                return Played::Nothing;
            }
            let turns = Arc::clone(&self.turns);
            let response = self.response;
            let Some(step) = turns[self.turn].reply.get(self.step) else {
                self.still = true;
                return Played::Last(BackendOutput::ResponseDone { response });
            };
            let output = match step {
                Step::WaitMs(ms) => {
                    self.next_step(due + millis(*ms));
                    None
                }
                Step::Say(say) => self.say(say, due),
                Step::Call(call) => Some(self.call(call, due, name)),
                Step::Usage(usage) => {
                    self.next_step(due);
                    Some(BackendOutput::Usage { response, usage: (*usage).into() })
                }
                Step::Fail(Fail { code, message, kind }) => {
                    self.still = true;
                    let failure = Failure { kind: kind.clone(), code: code.clone(), message: message.clone() };
                    let fault = BackendOutput::Fault { response: Some(response), failure, retryable: false };
                    return Played::Last(fault);
                }
                Step::Incomplete(reason) => {
                    self.still = true;
                    return Played::Last(BackendOutput::ResponseIncomplete { response, reason: (*reason).into() });
                }
                Step::Hang => {
                    self.still = true;
                    None
                }
            };
            if let Some(output) = output {
                return Played::Output(output);
            }
        }
    }

    /// When it goes on, of what is wanted.
    pub(super) fn due(&self, wanted: Wanted) -> Option<Instant> {
        self.due.filter(|_| !self.still && self.is_wanted(wanted))
    }

    /// Sound waits while enough of it waits elsewhere; all else goes on.
    fn is_wanted(&self, wanted: Wanted) -> bool {
        let says = matches!(self.turns[self.turn].reply.get(self.step), Some(Step::Say(_)));
        wanted == Wanted::All || self.text_only || !says
    }

    fn next_step(&mut self, due: Instant) {
        (self.step, self.at, self.told) = (self.step + 1, 0, 0);
        self.due = Some(due);
    }

    /// A word whose time has come, or the sound of the time behind it. `None`: neither.
    fn say(&mut self, say: &Say, due: Instant) -> Option<BackendOutput> {
        let begin = self.at * CHUNK_MS;
        let over = begin >= say.audio_ms;
        if let Some(word) = Word::next(say, self.told).filter(|word| over || word.begin_ms <= begin) {
            return Some(self.word(say, &word));
        }
        if over {
            self.sound += samples(say.audio_ms);
            self.next_step(due);
            return None;
        }
        let ms = CHUNK_MS.min(say.audio_ms - begin);
        self.at += 1;
        self.due = Some(due + say.speed.map_or(Duration::ZERO, |speed| millis(ms).div_f64(speed)));
        (!self.text_only).then(|| {
            let audio = AgentAudio::Bytes { rate: RATE, data: self.sound_of(begin, ms) };
            BackendOutput::Audio { response: self.response, audio }
        })
    }

    fn word(&mut self, say: &Say, word: &Word) -> BackendOutput {
        let apart = self.told == 0 && self.began && !say.text.starts_with(char::is_whitespace);
        let delta = format!("{}{}", if apart { " " } else { "" }, &say.text[self.told..word.to]);
        (self.told, self.began) = (word.to, true);
        let end = self.sound + samples(word.end_ms);
        let words = if self.text_only { Vec::new() } else { vec![WordTime { to: delta.len(), end }] };
        BackendOutput::Text { response: self.response, delta, words }
    }

    /// The next piece of a call, and behind the last all of it.
    fn call(&mut self, call: &Call, due: Instant, name: &mut impl FnMut(&Call) -> String) -> BackendOutput {
        if self.at == 0 {
            self.call_id = name(call);
        }
        let is_final = self.at == call.pieces;
        let arguments = if is_final { call.arguments.clone() } else { call.piece(self.at).to_owned() };
        if is_final {
            self.next_step(due);
        } else {
            self.at += 1;
            let pause = if self.at < call.pieces { millis(call.piece_ms) } else { Duration::ZERO };
            self.due = Some(due + pause);
        }
        let (call_id, name) = (self.call_id.clone(), call.tool.clone());
        BackendOutput::ToolCall { response: self.response, call: ToolCall { call_id, name, arguments, is_final } }
    }

    /// Sound of the step, always the same: 16 bits, little endian.
    fn sound_of(&mut self, begin: u32, ms: u32) -> Vec<u8> {
        let of = (self.step, begin / BLOCK_MS);
        if self.block.of != Some(of) {
            let place = u32::try_from(self.turn * 256 + self.step).unwrap_or(0);
            let seed = place.wrapping_mul(1000).wrapping_add(of.1 + 1);
            self.block = Block { of: Some(of), pcm: voice::babble::speech(RATE, BLOCK_MS as usize, seed) };
        }
        let index = |ms: u32| (RATE / 1000 * ms) as usize;
        let begin = index(begin % BLOCK_MS);
        self.block.pcm[begin..begin + index(ms)].iter().flat_map(|sample| sample.to_le_bytes()).collect()
    }
}

/// A word of a text, and when it is said at an even rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word {
    /// Bytes of the text up to its end.
    to: usize,
    begin_ms: u32,
    end_ms: u32,
}

impl Word {
    /// The word behind the first `told` bytes, with the space ahead of it.
    fn next(say: &Say, told: usize) -> Option<Self> {
        let rest = &say.text[told..];
        let word = rest.trim_start();
        if rest.is_empty() {
            return None;
        }
        let length = word.find(char::is_whitespace).unwrap_or(word.len());
        let to = told + (rest.len() - word.len()) + length;
        let at = |bytes: usize| {
            let ms = u64::from(say.audio_ms) * bytes as u64 / say.text.len() as u64;
            u32::try_from(ms).unwrap_or(say.audio_ms)
        };
        Some(Self { to, begin_ms: at(told), end_ms: at(to) })
    }
}

/// 48 kHz samples.
fn samples(ms: u32) -> u64 {
    u64::from(ms) * 48
}

fn millis(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}
