//! Holds one conversation's audio: repair, Opus, voice activity, turns, playout ledger.
//! CONTRACT skeleton: public types and signatures are fixed, more may be added.
//!
//! Media time is a 48 kHz sample clock (u64, extended from RTP timestamps); PCM is mono i16.

use std::time::Instant;

/// Where turn logic gets its numbers. Units are in the names.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Rate of PCM given to and taken from the backend: 16000, 24000 or 48000. Defaults to 16000.
    pub backend_rate: u32,
    /// What ends a turn, and what its end does.
    pub turn: TurnConfig,
    /// Speech over the reply for this long commits the interruption, in ms. Defaults to 250.
    pub interrupt_commit_ms: u32,
    /// Opus downlink bitrate in bit/s. Defaults to 24000.
    pub bitrate: i32,
    /// Opus encoder complexity 0..=10. Defaults to 5.
    pub complexity: i32,
    /// Audio sent ahead of the edge's first playout report, in ms. Defaults to 1000.
    pub ahead_ms: u32,
    /// Without a backend's first audio for this long after CreateResponse the turn is given up, in ms. Defaults to 10000.
    pub response_timeout_ms: u32,
    /// A turn longer than this is ended, in ms. Defaults to 60000.
    pub max_turn_ms: u32,
}

/// `turn_detection` of the API.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnConfig {
    /// `None`: manual commits.
    pub server_vad: Option<ServerVad>,
}

/// `server_vad` of the API.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerVad {
    /// Speech probability from which a frame counts as voiced. Defaults to 0.5.
    pub threshold: f32,
    /// Audio before the onset that belongs to the turn, in ms. Defaults to 300.
    pub prefix_padding_ms: u32,
    /// Silence after the last voiced frame that ends the turn, in ms. Defaults to 500.
    pub silence_duration_ms: u32,
    /// The end of a turn asks the backend for a response. Defaults to true.
    pub create_response: bool,
    /// Speech interrupts a reply. Defaults to true.
    pub interrupt_response: bool,
}

/// One Opus packet of the user's, in the order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaFrame<'a> {
    /// RTP sequence number.
    pub seq: u16,
    /// RTP timestamp, 48 kHz.
    pub rtp_timestamp: u32,
    /// First packet of a talkspurt.
    pub marker: bool,
    /// One Opus packet.
    pub payload: &'a [u8],
}

/// A response, ours; rising. Everything of a cancelled one is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResponseId(pub u64);

/// A stretch of user speech, ours; rising.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnId(pub u64);

/// Same number as `link::ids::UtteranceId`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Utterance(pub u32);

/// To the backend.
#[derive(Debug, Clone, PartialEq)]
pub enum BackendInput {
    /// User audio of the running turn (prefix padding first, gap-free), at `Config::backend_rate`.
    Audio { /// Mono.
        pcm: Vec<i16>, /// 48 kHz media time of the first sample.
        media_time: u64 },
    /// The user began.
    SpeechStarted { /// Which stretch.
        turn: TurnId },
    /// The user stopped; `voiced` is first to last voiced sample in 48 kHz media time.
    SpeechStopped { /// Which stretch.
        turn: TurnId, /// First voiced sample.
        from: u64, /// One past the last voiced sample.
        to: u64 },
    /// The turn is complete; its audio is an input item.
    Commit { /// Which stretch.
        turn: TurnId },
    /// Answer.
    CreateResponse { /// The id everything of it carries.
        response: ResponseId },
    /// Stop it; what still comes of it is dropped.
    Cancel { /// Which.
        response: ResponseId },
    /// The session is over.
    Close,
}

/// From the backend.
#[derive(Debug, Clone, PartialEq)]
pub enum BackendOutput {
    /// It takes audio.
    Ready,
    /// It accepted CreateResponse.
    ResponseStarted { /// Which.
        response: ResponseId },
    /// Speech, at `Config::backend_rate`.
    Audio { /// Which.
        response: ResponseId, /// Mono.
        pcm: Vec<i16> },
    /// Words of the speech.
    Text { /// Which.
        response: ResponseId, /// More of the transcript.
        delta: String },
    /// Nothing more of it.
    ResponseDone { /// Which.
        response: ResponseId },
    /// It failed.
    Fault { /// For people.
        message: String, /// Trying again may help.
        retryable: bool },
}

/// What the edge reports of playout; positions are 48 kHz item samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Playout {
    /// First frame on the wire.
    Started { /// Which.
        utterance: Utterance },
    /// A Pause took effect.
    Paused { /// Which.
        utterance: Utterance, /// On the wire so far.
        sent: u64 },
    /// It plays again.
    Resumed { /// Which.
        utterance: Utterance, /// On the wire so far.
        sent: u64 },
    /// Dropped for good.
    Flushed { /// All up to this.
        utterance: Utterance, /// On the wire of it.
        sent: u64 },
    /// Last frame on the wire.
    Finished { /// Which.
        utterance: Utterance, /// On the wire of it.
        sent: u64 },
    /// The queue ran empty.
    Underrun { /// Which.
        utterance: Utterance },
    /// The periodic report.
    Report { /// Which.
        utterance: Utterance, /// On the wire so far.
        sent: u64, /// Credit: send up to here.
        limit: u64 },
}

/// Why playout was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushReason { /// The user spoke.
    TurnDetected, /// The client asked.
    ClientCancelled }

/// What a conversation tells the API layer. Milliseconds count media time from the session's first audio.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Speech began (over a reply: at the commit of the interruption, with the onset's time).
    SpeechStarted { /// Which stretch.
        turn: TurnId, /// Onset less padding.
        audio_start_ms: u64 },
    /// Speech ended.
    SpeechStopped { /// Which stretch.
        turn: TurnId, /// Last voiced sample.
        audio_end_ms: u64 },
    /// The stretch is an input item.
    Committed { /// Which.
        turn: TurnId },
    /// A response was asked for.
    ResponseCreated { /// Which.
        response: ResponseId },
    /// Its first audio came from the backend: the item is named.
    ResponseAudioStarted { /// Which.
        response: ResponseId, /// Carries it.
        utterance: Utterance },
    /// More transcript.
    ResponseText { /// Which.
        response: ResponseId, /// The words.
        delta: String },
    /// The backend gave all of it.
    ResponseDone { /// Which.
        response: ResponseId, /// 48 kHz samples of audio generated.
        generated: u64 },
    /// It was cut.
    ResponseCancelled { /// Which.
        response: ResponseId, /// By whom.
        reason: FlushReason },
    /// First frame left the edge.
    PlayoutStarted { /// Which.
        response: ResponseId },
    /// Last frame left the edge.
    PlayoutStopped { /// Which.
        response: ResponseId },
    /// The edge confirmed the cut: the item is truncated here.
    PlayoutCleared { /// Which.
        response: ResponseId, /// 48 kHz item samples on the wire.
        played_end: u64 },
    /// The backend failed, or gave nothing in time.
    ResponseFailed { /// Which.
        response: ResponseId, /// For people.
        message: String },
}

/// Parts of the delay from the end of speech to the first reply packet, for one turn, in microseconds. They sum to `total_us`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TurnTiming { /// From last voiced sample's arrival to the end-of-turn decision.
    pub silence_us: u64, /// Age of the frame at arrival here (edge and link).
    pub uplink_us: u64, /// Waiting in repair.
    pub repair_us: u64, /// Decision to the backend's first audio.
    pub backend_us: u64, /// First audio to first frame out.
    pub encode_us: u64, /// First frame out to the edge's `Started` report.
    pub playout_us: u64, /// All of it.
    pub total_us: u64 }

/// What a conversation wants done. Poll until empty after every input.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// For the backend.
    Backend(BackendInput),
    /// An utterance begins: open its stream.
    UtteranceStart { /// Rising from 1.
        utterance: Utterance, /// Whose audio.
        response: ResponseId },
    /// One Opus packet of it, within the credit.
    Frame { /// Of which.
        utterance: Utterance, /// 48 kHz samples it lasts.
        samples: u32, /// Opus.
        payload: Vec<u8> },
    /// All of it was sent: finish the stream.
    UtteranceEnd { /// Which.
        utterance: Utterance },
    /// Reset the stream: flushed.
    UtteranceReset { /// Which.
        utterance: Utterance },
    /// To the edge's playout.
    Pause,
    /// To the edge's playout.
    Resume,
    /// To the edge's playout.
    Flush { /// And all before.
        up_to: Utterance, /// By whom.
        reason: FlushReason },
    /// For the API layer.
    Event(Event),
    /// A turn's timing is complete.
    Timing(TurnTiming),
}

/// One conversation. See the crate's documentation for how to drive it.
pub struct Conversation { }

impl Conversation {
    /// Starts listening.
    #[must_use]
    pub fn new(now: Instant, config: Config) -> Self { todo!() }
    /// User audio, in the order it arrived; `age_us` is its time at the edge and on the link, for the timing alone.
    pub fn handle_media(&mut self, now: Instant, frame: MediaFrame<'_>, age_us: u32) { todo!() }
    /// Backend output.
    pub fn handle_backend(&mut self, now: Instant, output: BackendOutput) { todo!() }
    /// Playout reports of the edge.
    pub fn handle_playout(&mut self, now: Instant, playout: Playout) { todo!() }
    /// What is due.
    pub fn handle_timeout(&mut self, now: Instant) { todo!() }
    /// New turn settings (session.update).
    pub fn set_turn(&mut self, turn: TurnConfig) { todo!() }
    /// Manual commit (input_audio_buffer.commit). `false`: the buffer is empty.
    pub fn commit(&mut self, now: Instant) -> bool { todo!() }
    /// Drops uncommitted audio (input_audio_buffer.clear).
    pub fn clear_input(&mut self, now: Instant) { todo!() }
    /// Asks for a response. `None`: one is active.
    pub fn create_response(&mut self, now: Instant) -> Option<ResponseId> { todo!() }
    /// Cancels the active response and its playout (response.cancel). `false`: none is active.
    pub fn cancel(&mut self, now: Instant) -> bool { todo!() }
    /// Drops what is playing (output_audio_buffer.clear).
    pub fn clear_output(&mut self, now: Instant) { todo!() }
    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> { todo!() }
    /// When [`Conversation::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> { todo!() }
}

/// Opus, the only module with `unsafe` in this crate: a safe wrapper around `unsafe-libopus`.
pub mod opus { }
