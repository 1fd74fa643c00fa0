//! What goes into a conversation and what comes out; what backends are told and say is in `backend.rs`. Sample positions and
//! media times are 48 kHz.

use crate::backend::{BackendInput, Failure, IncompleteReason, ResponseId, ToolCall, TurnId, Usage};
use crate::decision::Decision;

/// What codes a packet of the user's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Codec {
    /// RFC 7587.
    #[default]
    Opus,
    /// Opus with copies of what came before (RFC 2198).
    Red,
    /// G.711 µ-law.
    Pcmu,
    /// G.711 A-law.
    Pcma,
    /// Keys and tones (RFC 4733).
    TelephoneEvent,
}

impl Codec {
    pub(crate) fn is_opus(self) -> bool {
        matches!(self, Self::Opus | Self::Red)
    }
}

/// One packet of the user's, in the order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaFrame<'a> {
    /// What codes the payload.
    pub codec: Codec,
    /// RTP sequence number.
    pub seq: u16,
    /// RTP timestamp on a 48 kHz clock, whatever the codec's own is.
    pub rtp_timestamp: u32,
    /// First packet of a talkspurt.
    pub marker: bool,
    /// RFC 6464 level in -dBov (0 loud, 127 silent), when sent.
    pub audio_level: Option<u8>,
    /// One packet.
    pub payload: &'a [u8],
}

impl<'a> MediaFrame<'a> {
    /// An Opus packet about which nothing else is known.
    #[must_use]
    pub fn opus(seq: u16, rtp_timestamp: u32, payload: &'a [u8]) -> Self {
        Self { codec: Codec::Opus, seq, rtp_timestamp, marker: false, audio_level: None, payload }
    }
}

/// Same number as `link::ids::UtteranceId`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Utterance(pub u32);

/// What the edge reports of playout; positions are 48 kHz item samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Playout {
    /// First frame on the wire.
    Started {
        /// Which.
        utterance: Utterance,
    },
    /// A Pause took effect.
    Paused {
        /// Which.
        utterance: Utterance,
        /// On the wire so far.
        sent: u64,
    },
    /// It plays again.
    Resumed {
        /// Which.
        utterance: Utterance,
        /// On the wire so far.
        sent: u64,
    },
    /// Dropped for good.
    Flushed {
        /// All up to this.
        utterance: Utterance,
        /// On the wire of it.
        sent: u64,
        /// What the client is known to have got of it.
        received: Received,
    },
    /// Last frame on the wire.
    Finished {
        /// Which.
        utterance: Utterance,
        /// On the wire of it.
        sent: u64,
    },
    /// The queue ran empty.
    Underrun {
        /// Which.
        utterance: Utterance,
        /// On the wire of it.
        sent: u64,
    },
    /// The periodic report.
    Report {
        /// Which.
        utterance: Utterance,
        /// On the wire so far.
        sent: u64,
        /// Credit: send up to here.
        limit: u64,
        /// The client's end of it, once the client said something.
        client: Option<ClientView>,
    },
    /// The edge paused by itself: the user's level rose. It goes on by itself unless it is told otherwise within a second.
    Reflex {
        /// Which.
        utterance: Utterance,
        /// On the wire so far.
        sent: u64,
    },
}

/// What the edge knows of the way to the client and of what the client plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientView {
    /// Round trip between edge and client in microseconds; 0 until known.
    pub rtt_us: u32,
    /// From the arrival of a packet at the client to its sound, in microseconds.
    pub delay_us: Option<u32>,
    /// What it is known to have got of the utterance.
    pub received: Received,
    /// Of what goes to the client, the part that is lost now, in 1/256.
    pub loss: u8,
    /// How often the client has told of loss, low 8 bits: a loss under the same number is the same loss.
    pub told: u8,
    /// Told packet by packet (transport-wide feedback), not by receiver reports alone.
    pub transport_wide: bool,
}

/// What a client is known to have got of an item, by the place at which it was sent. The default says nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    /// The item sample behind the last packet that arrived.
    pub to: u64,
    /// Item samples sent behind that one and known not to have arrived. What was sent behind these is on its way, as far as is
    /// known.
    pub lost: u64,
}

/// Why playout was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushReason {
    /// The user spoke.
    TurnDetected,
    /// The client asked.
    ClientCancelled,
}

/// What a conversation tells the API layer. Milliseconds count media time from the session's first audio.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Speech began (over a reply: at the commit of the interruption, with the onset's time).
    SpeechStarted {
        /// Which stretch.
        turn: TurnId,
        /// Onset less padding.
        audio_start_ms: u64,
    },
    /// Speech ended.
    SpeechStopped {
        /// Which stretch.
        turn: TurnId,
        /// Last voiced sample.
        audio_end_ms: u64,
    },
    /// The stretch is an input item.
    Committed {
        /// Which.
        turn: TurnId,
    },
    /// Nobody spoke for the idle timeout after a reply: the silence becomes an input item and is answered.
    IdleTimeout {
        /// The stretch of silence.
        turn: TurnId,
        /// Its first sample that is kept.
        audio_start_ms: u64,
        /// Its end.
        audio_end_ms: u64,
    },
    /// A response was asked for.
    ResponseCreated {
        /// Which.
        response: ResponseId,
    },
    /// Its first audio came from the backend: the item is named.
    ResponseAudioStarted {
        /// Which.
        response: ResponseId,
        /// Carries it.
        utterance: Utterance,
    },
    /// More transcript.
    ResponseText {
        /// Which.
        response: ResponseId,
        /// The words.
        delta: String,
    },
    /// A call of a tool, or more of it.
    ToolCall {
        /// Of which response.
        response: ResponseId,
        /// The call.
        call: ToolCall,
    },
    /// Words of the user's.
    UserTranscript {
        /// The running stretch of speech, or the last one.
        turn: TurnId,
        /// More of its words, or all of them when `is_final`.
        text: String,
        /// No more come.
        is_final: bool,
    },
    /// The backend gave all of it.
    ResponseDone {
        /// Which.
        response: ResponseId,
        /// 48 kHz samples of audio generated.
        generated: u64,
    },
    /// It was cut.
    ResponseCancelled {
        /// Which.
        response: ResponseId,
        /// By whom.
        reason: FlushReason,
    },
    /// First frame left the edge.
    PlayoutStarted {
        /// Which.
        response: ResponseId,
    },
    /// Last frame left the edge.
    PlayoutStopped {
        /// Which.
        response: ResponseId,
    },
    /// The edge confirmed the cut: the item is truncated here.
    PlayoutCleared {
        /// Which.
        response: ResponseId,
        /// 48 kHz item samples on the wire.
        played_end: u64,
    },
    /// An item of which sound was sent ends early. It comes once, behind [`Event::PlayoutCleared`].
    Truncated {
        /// Which.
        response: ResponseId,
        /// The item's end, in 48 kHz item samples: what was played of it.
        played_end: u64,
        /// Where the user was when they began to speak, in 48 kHz item samples. `None`: not cut by speech.
        heard_at: Option<u64>,
        /// Its transcript up to there, in whole words. `None`: the backend gave no text.
        text: Option<String>,
    },
    /// A reply is over: its books. Behind every other event of it but those of its making.
    ReplyOver(Balance),
    /// A reply's audio seems to have another rate than the backend says. It is played as labeled all the same.
    AudioMislabeled {
        /// Which.
        response: ResponseId,
        /// What the backend says, in Hz.
        declared: u32,
        /// What it seems to be, in Hz.
        likely: u32,
    },
    /// What a response cost; ahead of its end.
    ResponseUsage {
        /// Which.
        response: ResponseId,
        /// Tokens.
        usage: Usage,
    },
    /// The backend ended it before it was complete, and gave all there is of it.
    ResponseIncomplete {
        /// Which.
        response: ResponseId,
        /// 48 kHz samples of audio generated.
        generated: u64,
        /// Why.
        reason: IncompleteReason,
    },
    /// The backend failed, or gave nothing in time.
    ResponseFailed {
        /// Which.
        response: ResponseId,
        /// What is told of it.
        failure: Failure,
    },
    /// The backend failed while it made no response.
    BackendFailed(Failure),
    /// The user pressed a key of the telephone (RFC 4733): `0` to `9`, `*`, `#`, `A` to `D`.
    KeyPressed {
        /// Which.
        key: char,
        /// When, in the session's audio.
        audio_ms: u64,
    },
    /// Something was decided about turns.
    Decision(Decision),
    /// Audio arrives, and all of it has been digital zero for this long: a device that is open and gives nothing.
    InputSilent {
        /// How long.
        ms: u64,
    },
}

/// What became of one reply's sound, in 48 kHz item samples. `played_end <= sent <= generated`, `heard_at <= sent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Balance {
    /// Which.
    pub response: ResponseId,
    /// What the backend gave.
    pub generated: u64,
    /// What the edge put on the wire.
    pub sent: u64,
    /// Where it ended for the user; 0: nothing was heard of it.
    pub played_end: u64,
    /// Where the user was when they began the speech that cut it. `None`: no speech cut it.
    pub heard_at: Option<u64>,
    /// Times the edge ran out of it.
    pub underruns: u32,
    /// How long it was held back because the backend's replies come late, in microseconds.
    pub preroll_us: u64,
}

/// Parts of the delay from the end of speech to the first reply packet, for one turn, in microseconds. They sum to `total_us`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TurnTiming {
    /// From last voiced sample's arrival to the end-of-turn decision.
    pub silence_us: u64,
    /// Age of the frame at arrival here (edge and link).
    pub uplink_us: u64,
    /// Waiting in repair.
    pub repair_us: u64,
    /// Decision to the backend's first audio.
    pub backend_us: u64,
    /// First audio to first frame out.
    pub encode_us: u64,
    /// First frame out to the edge's `Started` report.
    pub playout_us: u64,
    /// All of it.
    pub total_us: u64,
}

/// What a conversation wants done. Poll until empty after every input.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// For the backend.
    Backend(BackendInput),
    /// An utterance begins: open its stream.
    UtteranceStart {
        /// Rising from 1.
        utterance: Utterance,
        /// Whose audio.
        response: ResponseId,
    },
    /// One Opus packet of it, within the credit.
    Frame {
        /// Of which.
        utterance: Utterance,
        /// 48 kHz samples it lasts.
        samples: u32,
        /// Opus.
        payload: Vec<u8>,
    },
    /// All of it was sent: finish the stream.
    UtteranceEnd {
        /// Which.
        utterance: Utterance,
    },
    /// Reset the stream: flushed.
    UtteranceReset {
        /// Which.
        utterance: Utterance,
    },
    /// To the edge's playout.
    Pause,
    /// To the edge's playout.
    Resume {
        /// None: with the first sample not sent. Else with the kept frame at or before this 48 kHz item sample; what is played
        /// again counts nowhere.
        from: Option<u64>,
    },
    /// To the edge: whether it may pause by itself when the user's level rises. The first output; until then it may not.
    Reflex {
        /// At all.
        enabled: bool,
        /// Not now: echo is suspected, or a pause was for nothing within the last minute.
        muted: bool,
    },
    /// To the edge: sound beside the conversation, played once and only while no utterance plays.
    Clip {
        /// One Opus packet of 20 ms each, at most 100.
        frames: Vec<Vec<u8>>,
    },
    /// To the edge's playout.
    Flush {
        /// And all before.
        up_to: Utterance,
        /// By whom.
        reason: FlushReason,
    },
    /// For the API layer.
    Event(Event),
    /// A turn's timing is complete.
    Timing(TurnTiming),
}
