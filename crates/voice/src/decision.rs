//! What was decided about turns, and from what: one record per decision, for `explain`, records and tests.
//!
//! Plain data without heap parts. A frame of 16 ms makes two at most, so a second makes 125.

use crate::turn::State;

/// One decision with what it rests on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// 48 kHz media time of the user's audio up to which the decision knew.
    pub at_media: u64,
    /// What was decided.
    pub kind: DecisionKind,
    /// Whose turn it was.
    pub state_before: State,
    /// What it rests on.
    pub inputs: DecisionInputs,
}

/// The evidence of a decision. What does not apply is 0 or `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DecisionInputs {
    /// Voiced frames of 16 ms in a row, up to this one.
    pub run_frames: u32,
    /// Of speech, in the latest frame; of a verdict, what it says.
    pub probability: f32,
    /// Speech counted for this decision: of the doubt, or of the turn from its onset to its last voiced sample.
    pub voiced_ms: u32,
    /// Silence since the last voiced sample.
    pub silence_ms: u32,
    /// Words recognized in the utterance so far.
    pub words: u32,
    /// Under whose rules an interruption was judged.
    pub profile: Option<Profile>,
    /// Who brought it about.
    pub source: InterruptSource,
}

/// What can be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DecisionKind {
    /// Sound that may be speech over a reply, or on its way to one: the doubt begins.
    Onset,
    /// The reply is held.
    Pause,
    /// The reply goes on.
    Resume,
    /// The doubt is over: it was no interruption.
    Dismiss,
    /// The doubt is over: the user takes the turn, the reply is cut.
    Interrupt,
    /// A source asked for an interruption that the rules do not allow.
    Refuse,
    /// The user's turn begins without a reply to interrupt.
    TurnStart,
    /// The user's turn is over.
    TurnEnd,
    /// The user's turn is ended because it is too long.
    MaxTurn,
    /// A verdict on the end of the turn changed how long its silence has to be.
    Verdict,
    /// The onset is our own reply, heard back.
    EchoVeto,
    /// Our own reply is not heard back any more.
    EchoGone,
    /// Nobody spoke for the idle timeout after a reply.
    IdleTimeout,
    /// The microphone gives nothing but zeros.
    InputSilent,
    /// The reply's audio seems to have another rate than its label says; it is played as labeled.
    Mislabeled,
    /// The client cut the reply.
    ClientCut,
    /// The response was given up: the backend gave nothing in time.
    ResponseTimeout,
    /// The reply was given up: the edge said nothing of it.
    PlayoutTimeout,
}

impl DecisionKind {
    /// Its name in records and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Onset => "onset",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Dismiss => "dismiss",
            Self::Interrupt => "interrupt",
            Self::Refuse => "refuse",
            Self::TurnStart => "turn_start",
            Self::TurnEnd => "turn_end",
            Self::MaxTurn => "max_turn",
            Self::Verdict => "verdict",
            Self::EchoVeto => "echo_veto",
            Self::EchoGone => "echo_gone",
            Self::IdleTimeout => "idle_timeout",
            Self::InputSilent => "input_silent",
            Self::Mislabeled => "mislabeled",
            Self::ClientCut => "client_cut",
            Self::ResponseTimeout => "response_timeout",
            Self::PlayoutTimeout => "playout_timeout",
        }
    }
}

/// Who brings a decision about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum InterruptSource {
    /// The voice activity detector.
    #[default]
    Vad,
    /// Recognized words.
    Words,
    /// The client's command.
    Client,
    /// The edge, from audio levels.
    Reflex,
    /// The backend, or the judge of turn ends.
    Verdict,
    /// A timer.
    Timer,
}

impl InterruptSource {
    /// Its name in records and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Vad => "vad",
            Self::Words => "words",
            Self::Client => "client",
            Self::Reflex => "reflex",
            Self::Verdict => "verdict",
            Self::Timer => "timer",
        }
    }
}

/// Which rules an interruption is judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Profile {
    /// The first reply, made before the user said anything.
    Greeting,
    /// A reply is asked for and not heard yet.
    Thinking,
    /// A reply plays.
    Speaking,
}

impl Profile {
    /// Its name in records and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Greeting => "greeting",
            Self::Thinking => "thinking",
            Self::Speaking => "speaking",
        }
    }
}
