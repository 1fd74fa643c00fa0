//! The contract between a dialogue and the backend that answers in it.
//!
//! **Order.** [`Settings`] come first, and again whenever they change. A turn is told as it is heard, its item behind its
//! [`Commit`](BackendInput::Commit), and the wish for an answer behind both. A response is asked for with
//! [`CreateResponse`](BackendInput::CreateResponse); a backend may ask to be asked ([`Initiate`](BackendOutput::Initiate)), and what it
//! gives carries the response's id. At most one response is being made: it ends with
//! [`ResponseDone`](BackendOutput::ResponseDone), [`ResponseIncomplete`](BackendOutput::ResponseIncomplete), a
//! [`Fault`](BackendOutput::Fault) or the dialogue's [`Cancel`](BackendInput::Cancel).
//!
//! **Invariant:** whatever a backend says, in whatever order, changes nothing but the response that is being made: what carries another id
//! is dropped and counted.

mod context;
mod machine;

use std::sync::Arc;

pub use context::{Item, ItemKind, Overrides, Request, Role, Settings};
pub use machine::{Backend, Wanted};

/// A response, ours; rising. Everything of a cancelled one is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResponseId(pub u64);

impl ResponseId {
    /// What a backend gives that speaks without being asked, and does not say where a reply begins and ends. Taken when
    /// [`Config::duplex_silence_ms`](crate::Config::duplex_silence_ms) is set.
    pub const UNASKED: Self = Self(0);
}

/// A stretch of user speech, ours; rising.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnId(pub u64);

/// To the backend.
#[derive(Debug, Clone, PartialEq)]
pub enum BackendInput {
    /// What holds from here on.
    Settings(Arc<Settings>),
    /// The user is there: the first of their audio came, told once. What is said from here on is heard.
    Connected,
    /// User audio of the running turn, prefix padding first, at `Config::backend_rate`. Without a gap, unless the user's
    /// device sent nothing for more than a second: of that silence 1 s comes as samples.
    Audio {
        /// Mono.
        pcm: Vec<i16>,
        /// 48 kHz media time of the first sample.
        media_time: u64,
    },
    /// The user began. Audio before it that was not committed is dropped (cleared by the client).
    SpeechStarted {
        /// Which stretch.
        turn: TurnId,
    },
    /// What was said at a time for which the backend was given something made up: a packet came late. For recognizers that
    /// can go back; only for those that said so ([`crate::RepairConfig::corrections`]). It may lie in a turn that ended.
    Correction {
        /// Mono, at `Config::backend_rate`.
        pcm: Vec<i16>,
        /// 48 kHz media time of the first sample.
        media_time: u64,
    },
    /// The user pressed a key of the telephone (RFC 4733), told once, when it goes down: `0` to `9`, `*`, `#`, `A` to `D`. It is
    /// no speech: it begins no turn and interrupts nothing; what it means is the backend's to say.
    Key {
        /// Which.
        key: char,
        /// 48 kHz media time.
        media_time: u64,
    },
    /// The user stopped; `voiced` is first to last voiced sample in 48 kHz media time.
    SpeechStopped {
        /// Which stretch.
        turn: TurnId,
        /// First voiced sample.
        from: u64,
        /// One past the last voiced sample.
        to: u64,
    },
    /// The turn is complete; its audio is an input item.
    Commit {
        /// Which stretch.
        turn: TurnId,
    },
    /// The conversation has another item, to be known when it goes on. No answer is asked for by it.
    Item(Box<Item>),
    /// An item is not part of the conversation any more.
    ItemDeleted {
        /// Which.
        id: String,
    },
    /// What the user got of an item of speech of the backend's: it ends there.
    ItemTruncated {
        /// Which.
        id: String,
        /// Its end, in ms of its sound.
        audio_end_ms: u64,
        /// Its words up to there. `None`: the backend gave none.
        text: Option<String>,
    },
    /// Answer.
    CreateResponse {
        /// The id everything of it carries.
        response: ResponseId,
        /// What it is to be.
        request: Request,
    },
    /// Stop it; what still comes of it is dropped.
    Cancel {
        /// Which.
        response: ResponseId,
    },
    /// How much of a reply the user got: once when it is over, played to its end or cut. The context ends there.
    Played {
        /// Which.
        response: ResponseId,
        /// 48 kHz item samples played; 0: nothing was heard of it.
        samples: u64,
        /// Where the user was, in item samples, when they began the speech that cut it. `None`: it was not cut by speech.
        heard_at: Option<u64>,
    },
    /// The session is over.
    Close,
}

/// A call of a tool, whole or in pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Names it, for its result.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// More of its arguments (JSON text), or all of them when `is_final`.
    pub arguments: String,
    /// The call is complete.
    pub is_final: bool,
}

/// Speech as a backend gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentAudio {
    /// Mono samples at `Config::backend_rate`.
    Pcm(Vec<i16>),
    /// Mono PCM as it came over a wire: 16 bits, little endian. Pieces may end inside a sample.
    Bytes {
        /// What the backend says its rate is, in Hz.
        rate: u32,
        /// Any number of bytes.
        data: Vec<u8>,
    },
    /// Opus packets, in order, passed on as they are.
    Opus(Vec<Vec<u8>>),
}

impl AgentAudio {
    /// Nothing at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Pcm(pcm) => pcm.is_empty(),
            Self::Bytes { data, .. } => data.is_empty(),
            Self::Opus(packets) => packets.is_empty(),
        }
    }
}

/// When a word was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WordTime {
    /// Bytes of the delta up to the word's end.
    pub to: usize,
    /// 48 kHz item samples up to the word's end.
    pub end: u64,
}

/// From the backend.
#[derive(Debug, Clone, PartialEq)]
pub enum BackendOutput {
    /// It takes audio.
    Ready,
    /// It wants to speak by itself: a response is asked for, unless one is being made or too many wait.
    Initiate,
    /// It accepted CreateResponse.
    ResponseStarted {
        /// Which.
        response: ResponseId,
    },
    /// Speech.
    Audio {
        /// Which.
        response: ResponseId,
        /// More of it.
        audio: AgentAudio,
    },
    /// Words of the speech.
    Text {
        /// Which.
        response: ResponseId,
        /// More of the transcript.
        delta: String,
        /// When its words are said, rising. Empty: not known.
        words: Vec<WordTime>,
    },
    /// It calls a tool. The response goes on, or ends, without waiting for the result.
    ToolCall {
        /// Which.
        response: ResponseId,
        /// The call, or more of it.
        call: ToolCall,
    },
    /// A sound of attention of the agent's own, to be played while the user speaks. It is no part of a response.
    Backchannel {
        /// Opus packets of 20 ms.
        frames: Vec<Vec<u8>>,
    },
    /// What the response cost; ahead of its end.
    Usage {
        /// Which.
        response: ResponseId,
        /// Tokens.
        usage: Usage,
    },
    /// Nothing more of it.
    ResponseDone {
        /// Which.
        response: ResponseId,
    },
    /// Nothing more of it, though it is not complete.
    ResponseIncomplete {
        /// Which.
        response: ResponseId,
        /// Why.
        reason: IncompleteReason,
    },
    /// Words of the user's. They count as evidence of an interruption that sound began; words alone interrupt nothing,
    /// since those of the question often come while the answer plays.
    UserTranscript {
        /// In which stretch of speech. `None`: the running one, or the last.
        turn: Option<TurnId>,
        /// More of the utterance, or all of it when `is_final`.
        text: String,
        /// The utterance is over; the next text belongs to another.
        is_final: bool,
    },
    /// What it makes of the user's speech.
    TurnVerdict(TurnVerdict),
    /// It is gone without a fault: what it gave of a reply is all of it.
    Closed,
    /// It failed.
    Fault {
        /// In this response alone. `None`: whatever it was doing; if that is no response, the client is told all the same.
        response: Option<ResponseId>,
        /// What is told of it.
        failure: Failure,
        /// Trying again may help.
        retryable: bool,
    },
}

/// A backend's word on whose turn it is; probabilities from 0 to 1. It is evidence like any other: the rules for
/// interruptions and the bounds on silence hold for it too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TurnVerdict {
    /// The user, silent now, has said all they want to say.
    Complete {
        /// That it is so.
        probability: f32,
    },
    /// The user, speaking over the reply, wants the turn: below 0.5 it is a listener's sound.
    Interruption {
        /// That it is so.
        probability: f32,
    },
}

/// Why something failed, as clients are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// `server_error`, unless it is the client's fault.
    pub kind: String,
    /// For programs: `rate_limit_exceeded`, `backend_timeout`...
    pub code: String,
    /// For people.
    pub message: String,
}

impl Failure {
    /// A fault of ours or of the backend's.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { kind: "server_error".to_owned(), code: code.to_owned(), message: message.into() }
    }
}

/// Why a response is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncompleteReason {
    /// It has as many tokens as were allowed.
    MaxOutputTokens,
    /// A filter stopped it.
    ContentFilter,
}

/// Tokens of one response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Text read.
    pub input_text: u64,
    /// Audio heard.
    pub input_audio: u64,
    /// Images seen.
    pub input_image: u64,
    /// Of all these, what was known from before.
    pub cached: u64,
    /// Text written, transcripts among it.
    pub output_text: u64,
    /// Audio spoken.
    pub output_audio: u64,
}
