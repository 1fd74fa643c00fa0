//! The client-facing API dialect: one client's events, session settings, items and responses.
//!
//! Run loop: feed [`Session`] with client texts ([`Session::handle_client`]) and with what happens in the call
//! ([`Session::handle`]); after every input poll [`Session::poll_command`] and [`Session::poll_event`] until both are
//! empty. A command that could not be done is answered with [`Input::CreateRefused`], [`Input::CancelRefused`] or
//! [`Input::CommitRefused`] before the next client text, so that the error names the event that caused it.
//!
//! Invariant: whatever the order of inputs, each response yields exactly one `response.created` and at most one
//! `response.done`, and the events of one response keep the order
//! created, item added, part added, deltas, dones, item done, `response.done`, playout stopped or cleared. Playout starts
//! anywhere between part added and its end: a model that is faster than speech is done before the first packet leaves.
//!
//! The dialect is the WebRTC side of the Realtime API: audio travels as RTP, so there are no audio deltas. Not implemented:
//! `conversation.item.create`, `.truncate`, `.delete` and `input_audio_buffer.append` (answered with an
//! `error`), text output, tools, transcription of the input, the end of a session at `expires_at`.

mod client;
mod error;
mod ids;
mod response;
mod session;
mod settings;

pub use client::MAX_CLIENT_BYTES;
pub use session::{Counters, Session};
pub use settings::{Eagerness, TurnDetection, Vad};

/// What a session is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Seeds the ids; two sessions of one process must differ.
    pub seed: u64,
    /// The model that really answers, whatever the client named: `session.created` shows it.
    pub model: String,
    /// Turn detection before the client's first word on it.
    pub vad: Vad,
    /// Unix seconds at which the call began; `expires_at` is [`LIFETIME_SECONDS`] later.
    pub created_at: u64,
    /// The `session` part of the signaling request, JSON, the first patch onto the defaults. Empty: none.
    pub requested: String,
}

/// What `session.expires_at` says: the API's sixty minutes. Nothing here ends a session that is older.
pub const LIFETIME_SECONDS: u64 = 60 * 60;

/// What happens in the call. Turns and responses are the call's own rising numbers; times are milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The user pressed a key of a telephone.
    KeyPressed {
        /// `0` to `9`, `*`, `#`, `A` to `D`.
        key: char,
        /// When, in the session's audio.
        audio_ms: u64,
    },
    /// The user began to speak.
    SpeechStarted {
        /// Which stretch of speech.
        turn: u64,
        /// Its onset in the session's audio.
        audio_start_ms: u64,
    },
    /// The user stopped.
    SpeechStopped {
        /// Which stretch of speech.
        turn: u64,
        /// Its end in the session's audio.
        audio_end_ms: u64,
    },
    /// The stretch became an input item.
    Committed {
        /// Which stretch of speech.
        turn: u64,
    },
    /// Nobody spoke for the idle timeout: a stretch of silence is committed next.
    IdleTimeout {
        /// Which stretch.
        turn: u64,
        /// Its begin in the session's audio.
        audio_start_ms: u64,
        /// Its end in the session's audio.
        audio_end_ms: u64,
    },
    /// A response is being made.
    ResponseCreated {
        /// Which.
        response: u64,
    },
    /// Its first audio exists.
    ResponseAudioStarted {
        /// Which.
        response: u64,
    },
    /// More of its transcript.
    ResponseText {
        /// Which.
        response: u64,
        /// The words.
        delta: String,
    },
    /// All of it was generated.
    ResponseDone {
        /// Which.
        response: u64,
    },
    /// It was cut.
    ResponseCancelled {
        /// Which.
        response: u64,
        /// By whom.
        reason: CancelReason,
    },
    /// It could not be made.
    ResponseFailed {
        /// Which.
        response: u64,
        /// For people.
        message: String,
    },
    /// Its first audio packet left for the client.
    PlayoutStarted {
        /// Which.
        response: u64,
    },
    /// Its last audio packet left for the client.
    PlayoutStopped {
        /// Which.
        response: u64,
    },
    /// Its playout was cut.
    PlayoutCleared {
        /// Which.
        response: u64,
    },
    /// Its item ends early.
    Truncated {
        /// Which.
        response: u64,
        /// The item's end.
        audio_end_ms: u64,
        /// What was said up to there. `None`: the model gives no words.
        transcript: Option<String>,
    },
    /// Nothing more comes of it: played to its end, cut, or never heard.
    ReplyOver {
        /// Which.
        response: u64,
    },
    /// [`Command::CreateResponse`] was refused.
    CreateRefused(CreateRefusal),
    /// [`Command::Cancel`] found nothing to cancel.
    CancelRefused,
    /// [`Command::CommitInput`] found no audio.
    CommitRefused,
}

/// Why a response ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelReason {
    /// The user spoke over it.
    TurnDetected,
    /// The client asked.
    ClientCancelled,
}

/// Why a response was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateRefusal {
    /// One is being made.
    Active,
    /// The model makes none.
    Unsupported,
}

/// What the client wants of the call.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Turn settings as of now.
    UpdateTurn(TurnDetection),
    /// Begin a response.
    CreateResponse,
    /// Cancel the response that is being made.
    Cancel,
    /// Drop what is playing.
    ClearOutput,
    /// Make an item of the audio heard so far.
    CommitInput,
    /// Forget the audio heard so far.
    ClearInput,
    /// The client plays out this much later than it receives.
    ClientDelay {
        /// 0 to 2 s.
        delay_us: u32,
    },
}
