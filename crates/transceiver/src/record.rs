//! What happened in a call, turn by turn: what was decided from what, where the time went, what was played.
//!
//! A [`Recorder`] makes one [`TurnRecord`] of the events of a turn and its reply and keeps the last of them; those of calls
//! that ended go to an [`Archive`]; [`ExportedSession`] is what operators and `fronthaul explain` see.
//!
//! Invariant: whatever comes in whatever order, a call holds at most [`PAST_TURNS`] turns with [`PAST_DECISIONS`] decisions,
//! and what did not fit is counted.

mod archive;
mod calls;
pub(crate) mod desk;
mod export;
pub(crate) mod otlp;
mod recorder;
mod spans;
#[cfg(test)]
mod tests;
pub mod wrong;

use voice::{Decision, ResponseId, TurnId, TurnTiming};

pub(crate) use archive::{Archive, SessionRecords};
pub(crate) use calls::WorkerCalls;
pub use calls::{ExportedCall, ExportedCalls, ExportedWrong};
pub use desk::{Lookup, Records};
pub use export::{
    ExportedCounts, ExportedDecision, ExportedMoments, ExportedPositions, ExportedSession, ExportedTiming, ExportedTurn,
};
pub(crate) use recorder::Recorder;
pub(crate) use spans::{CallName, Over, Told};

/// Decisions kept of one turn; later ones are counted. A turn has about six, a restless one twenty.
pub const TURN_DECISIONS: usize = 64;

/// Turns kept of a call.
pub const PAST_TURNS: usize = 32;

/// Decisions kept of all these turns: at 56 bytes each 28 KiB, beside 32 turns of 300 bytes. Most calls hold a quarter.
pub const PAST_DECISIONS: usize = 512;

/// One turn: the user's speech, the reply to it, or both.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnRecord {
    /// The user's speech. `None`: the client or a timer asked for the reply.
    pub turn: Option<TurnId>,
    /// The reply. `None`: none was asked for.
    pub response: Option<ResponseId>,
    /// When it began, in ms since the call began. All `_ms` without another word are such times.
    pub began_ms: u64,
    /// The user's speech in ms of media time: its onset less padding, and its last voiced sample.
    pub audio_start_ms: Option<u64>,
    /// See `audio_start_ms`.
    pub audio_end_ms: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it failed, or what was odd about it, for people; at most 200 characters.
    pub reason: Option<String>,
    /// When its steps were taken.
    pub moments: Moments,
    /// In the order they were made, at most [`TURN_DECISIONS`].
    pub decisions: Vec<Decided>,
    /// Decisions that found no room.
    pub decisions_dropped: u64,
    /// Where the time went from the user's last sound to the agent's first.
    pub timing: Option<TurnTiming>,
    /// Where the reply ended, in 48 kHz item samples.
    pub positions: Positions,
    /// What was counted since the turn before it ended, and of the reply.
    pub counts: Counts,
}

impl TurnRecord {
    fn new(began_ms: u64) -> Self {
        Self {
            turn: None,
            response: None,
            began_ms,
            audio_start_ms: None,
            audio_end_ms: None,
            outcome: Outcome::Open,
            reason: None,
            moments: Moments::default(),
            decisions: Vec::new(),
            decisions_dropped: 0,
            timing: None,
            positions: Positions::default(),
            counts: Counts::default(),
        }
    }
}

/// A decision and when it was made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decided {
    /// In ms since the call began. Behind the decision's own media time by what the audio was late.
    pub at_ms: u64,
    /// What, and from what.
    pub decision: Decision,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It goes on.
    Open,
    /// The reply was played to its end.
    Answered,
    /// The user spoke over the reply.
    Interrupted,
    /// The client cut the reply.
    Cancelled,
    /// The backend or the edge failed.
    Failed,
    /// No reply was asked for, or the call ended before it was over.
    Unanswered,
    /// Nobody's turn: what was decided between turns, before the call ended.
    Idle,
}

impl Outcome {
    /// Its name in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Answered => "answered",
            Self::Interrupted => "interrupted",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Unanswered => "unanswered",
            Self::Idle => "idle",
        }
    }
}

/// When the steps of a turn were taken, in ms since the call began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moments {
    /// The user's speech became an input item.
    pub committed_ms: Option<u64>,
    /// The reply was asked for.
    pub asked_ms: Option<u64>,
    /// The backend gave its first audio.
    pub audio_ms: Option<u64>,
    /// Its first packet left the edge.
    pub playing_ms: Option<u64>,
    /// The turn was over.
    pub over_ms: Option<u64>,
}

/// Positions in the reply, in 48 kHz item samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Positions {
    /// What the backend gave, once it gave all of it.
    pub generated: Option<u64>,
    /// What the edge put on the wire, once the reply is over.
    pub sent: Option<u64>,
    /// Where it ended for the user.
    pub played_end: Option<u64>,
    /// Where the user was when they began to speak over it.
    pub heard_at: Option<u64>,
}

/// What went wrong on the way, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// 48 kHz samples of the user's that were made up.
    pub concealed: u64,
    /// 48 kHz samples of the user's that came by RED.
    pub red: u64,
    /// 48 kHz samples of the user's that came by in-band copies.
    pub fec: u64,
    /// Packets of the user's that came after their time had been filled.
    pub late: u64,
    /// Times the edge ran out of frames.
    pub underruns: u64,
}

impl Counts {
    /// What of a conversation's counts a record has. Underruns come with the reply's own books.
    pub(crate) fn of(stats: &voice::Stats) -> Self {
        let repair = &stats.repair;
        Self { concealed: repair.concealed, red: repair.red, fec: repair.fec, late: repair.late, underruns: 0 }
    }

    /// Of the user's audio; what was counted of the reply stays.
    fn heard_between(self, before: Self, after: Self) -> Self {
        Self {
            concealed: after.concealed.saturating_sub(before.concealed),
            red: after.red.saturating_sub(before.red),
            fec: after.fec.saturating_sub(before.fec),
            late: after.late.saturating_sub(before.late),
            underruns: self.underruns,
        }
    }
}
