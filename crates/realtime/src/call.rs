//! The words between a dialect and the call that it serves.
//!
//! Turns and responses are the call's own rising numbers; items are named by the dialect; times are milliseconds of the
//! session's audio.

use crate::audio::AudioFormat;
use crate::turn::TurnDetection;

/// What happens in the call.
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
    /// Words of the user's were recognized.
    UserTranscript {
        /// In which stretch of speech.
        turn: u64,
        /// More of them.
        delta: String,
    },
    /// All words of a stretch were recognized.
    UserTranscriptDone {
        /// Which stretch of speech.
        turn: u64,
        /// All of them.
        transcript: String,
    },
    /// The words of a stretch are not known.
    UserTranscriptFailed {
        /// Which stretch of speech.
        turn: u64,
        /// For people.
        message: String,
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
    /// More of its audio. Needed only where audio travels in events.
    ResponseAudio {
        /// Which.
        response: u64,
        /// Whole samples in the format that [`Dialect::output_format`](crate::Dialect::output_format) names.
        data: Vec<u8>,
    },
    /// More of its words: the transcript of its audio, or the text itself if it is one of text.
    ResponseText {
        /// Which.
        response: u64,
        /// The words.
        delta: String,
    },
    /// It calls a tool: more of the arguments, or none yet.
    ToolCallDelta {
        /// Which.
        response: u64,
        /// Names the call, for its result.
        call_id: String,
        /// The tool's name.
        name: String,
        /// Arguments, a piece of JSON text.
        delta: String,
    },
    /// It calls a tool: all of the call.
    ToolCallDone {
        /// Which.
        response: u64,
        /// Names the call, for its result.
        call_id: String,
        /// The tool's name.
        name: String,
        /// Arguments, JSON text.
        arguments: String,
    },
    /// What it cost; ahead of its end.
    ResponseUsage {
        /// Which.
        response: u64,
        /// Tokens.
        usage: Usage,
    },
    /// All of it was generated.
    ResponseDone {
        /// Which.
        response: u64,
    },
    /// It ended before it was complete, and that is all of it.
    ResponseIncomplete {
        /// Which.
        response: u64,
        /// Why.
        reason: IncompleteReason,
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
        /// What the client is told of it.
        failure: Failure,
    },
    /// The model failed while it made no response.
    ModelFailed(Failure),
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
    /// How much the client may still ask of the model. Told behind the response that is being made, or at once.
    RateLimits(Vec<RateLimit>),
    /// [`Command::CreateResponse`] was refused.
    CreateRefused(CreateRefusal),
    /// [`Command::Cancel`] found nothing to cancel.
    CancelRefused,
    /// [`Command::CommitInput`] found no audio.
    CommitRefused,
    /// What the last client message asked for waits behind the audio before it. One [`Waited`](Self::Waited) follows for each, in order.
    RequestWaits,
    /// What waited longest had its turn.
    Waited(Waited),
    /// [`Command::AppendInput`] came where audio is taken from elsewhere.
    AppendRefused,
}

/// Why something failed, as the client is told; of each part the first 512 characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// `server_error`, unless it is the client's fault.
    pub kind: String,
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
}

impl Failure {
    pub(crate) fn bounded(self) -> Self {
        let [kind, code, message] = [self.kind, self.code, self.message].map(|text| text.chars().take(512).collect());
        Self { kind, code, message }
    }
}

/// Why a response ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelReason {
    /// The user spoke over it.
    TurnDetected,
    /// The client asked.
    ClientCancelled,
}

/// Why a response is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncompleteReason {
    /// It has as many tokens as were allowed.
    MaxOutputTokens,
    /// The model's filter stopped it.
    ContentFilter,
}

/// Why a response was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateRefusal {
    /// One is being made.
    Active,
    /// The model makes none.
    Unsupported,
}

/// What became of a request that waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// It was done.
    Done,
    /// A commit found no audio.
    CommitRefused,
    /// A response was not begun.
    CreateRefused(CreateRefusal),
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

/// One limit, and what is left of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    /// `requests` or `tokens`.
    pub name: String,
    /// At most.
    pub limit: u64,
    /// Left.
    pub remaining: u64,
    /// Until all of it is there again.
    pub reset_ms: u64,
}

/// What a response is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Modality {
    /// Speech, and its words.
    Audio,
    /// Text.
    Text,
}

/// What the client wants of the call.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Turn settings as of now.
    UpdateTurn(TurnDetection),
    /// What the model is told, as of now.
    UpdateModel(Box<ModelSettings>),
    /// Begin a response.
    CreateResponse(Box<ResponseRequest>),
    /// Cancel the response that is being made.
    Cancel,
    /// Drop what is playing.
    ClearOutput,
    /// More of the user's audio, whole samples.
    AppendInput {
        /// What codes it.
        format: AudioFormat,
        /// At most 768 KiB: three quarters of the largest client text.
        data: Vec<u8>,
    },
    /// Make an item of the audio heard so far.
    CommitInput,
    /// Forget the audio heard so far.
    ClearInput,
    /// The conversation has another item.
    AddItem(Box<Item>),
    /// The conversation has an item less.
    DeleteItem {
        /// Which.
        item: String,
    },
    /// An item of the model's ends early: the client, or where the server owns playout the call, said that no more of it was heard.
    TruncateItem {
        /// Which.
        item: String,
        /// Its end.
        audio_end_ms: u64,
        /// Its words up to there. `None`: it has none.
        transcript: Option<String>,
    },
    /// The client plays out this much later than it receives.
    ClientDelay {
        /// 0 to 2 s.
        delay_us: u32,
    },
}

/// What the client asks of one response. What it does not say is the session's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseRequest {
    /// Speech or text.
    pub modality: Modality,
    /// It does not become part of the conversation.
    pub out_of_band: bool,
    /// For this response alone.
    pub instructions: Option<String>,
    /// The request as the client wrote it, for models that speak the same API: input, tools and what else there is. Empty: it said nothing.
    pub json: String,
}

/// An item of the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its name.
    pub id: String,
    /// The item that it stands behind. `None`: it is the first.
    pub previous: Option<String>,
    /// What of it can be said without the API's JSON.
    pub kind: ItemKind,
    /// All of it as the client wrote it, with what the API fills in. Empty: the client did not write it.
    pub json: String,
}

/// What an item is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemKind {
    /// The user's speech.
    Speech {
        /// Which stretch.
        turn: u64,
    },
    /// What the model makes in a response.
    Output {
        /// Which.
        response: u64,
        /// The call of a tool. `None`: the response's message.
        call_id: Option<String>,
    },
    /// Something said or written, put here by the client.
    Message {
        /// By whom.
        role: Role,
        /// Its texts and transcripts, one per line; images and audio are in the JSON.
        text: String,
    },
    /// A call of a tool from earlier, replayed.
    ToolCall {
        /// Names the call.
        call_id: String,
        /// The tool's name.
        name: String,
        /// JSON text.
        arguments: String,
    },
    /// What a tool returned.
    ToolResult {
        /// Of which call.
        call_id: String,
        /// What it returned.
        output: String,
    },
    /// Of another type, which the JSON tells.
    Other,
}

/// Who said a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The application.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
}

/// What the model is told before anybody speaks.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSettings {
    /// Speech or text.
    pub modality: Modality,
    /// For people and models.
    pub instructions: String,
    /// A JSON array of the tools it may call.
    pub tools: String,
    /// Which of them, as JSON.
    pub tool_choice: String,
    /// Its voice, by name; JSON if the client named it otherwise.
    pub voice: String,
    /// How fast it speaks, 0.25 to 1.5.
    pub speed: f64,
    /// At most so many. `None`: any number.
    pub max_output_tokens: Option<u32>,
    /// The client wants the user's words: the settings for that, as JSON.
    pub transcription: Option<String>,
    /// The client wants nothing else: no response is made.
    pub transcribes_only: bool,
    /// All of the session but its turn detection and formats, which are the call's own: a JSON object.
    pub json: String,
}

/// The session is over: the connection is to be closed behind the last event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Close {
    /// A WebSocket close code (RFC 6455 §7.4.1): 1001 when time is up, 1008 when the client broke a rule.
    pub code: u16,
    /// For people, at most 123 bytes.
    pub reason: String,
}
