//! Records as JSON, for the admin port, the log and whoever reads them.
//!
//! Names are borrowed where they are written and owned where they are read. What does not apply is left out.

use std::borrow::Cow;

use link::ids::SessionId;
use serde::{Deserialize, Serialize};
use voice::{State, TurnTiming};

use super::{Counts, Decided, Moments, Positions, SessionRecords, TurnRecord};

type Name = Cow<'static, str>;

/// The records of one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExportedSession {
    /// Its public id.
    pub session: String,
    /// Who answers.
    pub model: Name,
    /// It is not over.
    pub live: bool,
    /// Earlier turns that had no room.
    #[serde(default)]
    pub given_up: u64,
    /// The last turns, oldest first.
    pub turns: Vec<ExportedTurn>,
}

impl ExportedSession {
    pub(crate) fn of(records: &SessionRecords) -> Self {
        Self {
            session: records.session.to_string(),
            model: records.model.to_string().into(),
            live: records.live,
            given_up: records.given_up,
            turns: records.turns.iter().map(|turn| ExportedTurn::of(records.session, &records.model, turn)).collect(),
        }
    }
}

/// [`TurnRecord`], with the names of its call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExportedTurn {
    /// The call's public id.
    pub session: String,
    /// Who answers.
    pub model: Name,
    /// The user's speech, by number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u64>,
    /// The reply, by number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<u64>,
    /// In ms since the call began, as all times but those named otherwise.
    pub began_ms: u64,
    /// Media time of the speech's onset less padding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio_start_ms: Option<u64>,
    /// Media time of the last voiced sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio_end_ms: Option<u64>,
    /// [`super::Outcome::name`].
    pub outcome: Name,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When its steps were taken.
    pub moments: ExportedMoments,
    /// In their order.
    pub decisions: Vec<ExportedDecision>,
    /// Decisions that found no room.
    #[serde(skip_serializing_if = "is_zero")]
    pub decisions_dropped: u64,
    /// Parts that sum to the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timing: Option<ExportedTiming>,
    /// In 48 kHz samples of the reply.
    pub positions: ExportedPositions,
    /// What went wrong on the way.
    pub counts: ExportedCounts,
}

impl ExportedTurn {
    /// A record for others to read.
    #[must_use]
    pub fn of(session: SessionId, model: &str, record: &TurnRecord) -> Self {
        Self {
            session: session.to_string(),
            model: model.to_owned().into(),
            turn: record.turn.map(|turn| turn.0),
            response: record.response.map(|response| response.0),
            began_ms: record.began_ms,
            audio_start_ms: record.audio_start_ms,
            audio_end_ms: record.audio_end_ms,
            outcome: record.outcome.name().into(),
            reason: record.reason.clone(),
            moments: record.moments.into(),
            decisions: record.decisions.iter().map(ExportedDecision::of).collect(),
            decisions_dropped: record.decisions_dropped,
            timing: record.timing.map(ExportedTiming::from),
            positions: record.positions.into(),
            counts: record.counts.into(),
        }
    }
}

/// [`Decided`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExportedDecision {
    /// In ms since the call began.
    pub at_ms: u64,
    /// Media time of the user's audio that it knew, in ms.
    pub media_ms: u64,
    /// `voice::DecisionKind::name`.
    pub kind: Name,
    /// Whose turn it was.
    pub state: Name,
    /// Who brought it about.
    pub source: Name,
    /// Under whose rules an interruption was judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Name>,
    /// Voiced frames of 16 ms in a row.
    #[serde(skip_serializing_if = "is_zero")]
    pub run_frames: u64,
    /// Of speech, or what a verdict says.
    pub probability: f32,
    /// Speech counted.
    #[serde(skip_serializing_if = "is_zero")]
    pub voiced_ms: u64,
    /// Silence counted.
    #[serde(skip_serializing_if = "is_zero")]
    pub silence_ms: u64,
    /// Words recognized.
    #[serde(skip_serializing_if = "is_zero")]
    pub words: u64,
}

impl ExportedDecision {
    fn of(made: &Decided) -> Self {
        let (decision, inputs) = (&made.decision, &made.decision.inputs);
        Self {
            at_ms: made.at_ms,
            media_ms: decision.at_media / 48,
            kind: decision.kind.name().into(),
            state: state_name(decision.state_before).into(),
            source: inputs.source.name().into(),
            profile: inputs.profile.map(|profile| profile.name().into()),
            run_frames: inputs.run_frames.into(),
            // Three digits are more than a detector knows.
            probability: (inputs.probability * 1000.0).round() / 1000.0,
            voiced_ms: inputs.voiced_ms.into(),
            silence_ms: inputs.silence_ms.into(),
            words: inputs.words.into(),
        }
    }
}

/// [`Moments`], in ms since the call began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExportedMoments {
    /// The user's speech became an input item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub committed_ms: Option<u64>,
    /// The reply was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_ms: Option<u64>,
    /// The backend's first audio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio_ms: Option<u64>,
    /// Its first packet left the edge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub playing_ms: Option<u64>,
    /// The turn was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_ms: Option<u64>,
}

impl From<Moments> for ExportedMoments {
    fn from(moments: Moments) -> Self {
        let Moments { committed_ms, asked_ms, audio_ms, playing_ms, over_ms } = moments;
        Self { committed_ms, asked_ms, audio_ms, playing_ms, over_ms }
    }
}

/// `voice::TurnTiming`, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedTiming {
    /// At the edge and on the link.
    pub uplink_us: u64,
    /// In repair.
    pub repair_us: u64,
    /// Until the turn's end was decided.
    pub silence_us: u64,
    /// Until the backend's first audio.
    pub backend_us: u64,
    /// Until the first frame was made.
    pub encode_us: u64,
    /// Until it left the edge.
    pub playout_us: u64,
    /// All of it.
    pub total_us: u64,
}

impl ExportedTiming {
    /// The parts in their order, with their names, in microseconds. They sum to `total_us`.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, u64); 6] {
        [
            ("uplink", self.uplink_us),
            ("repair", self.repair_us),
            ("silence", self.silence_us),
            ("backend", self.backend_us),
            ("encode", self.encode_us),
            ("playout", self.playout_us),
        ]
    }
}

impl From<TurnTiming> for ExportedTiming {
    fn from(timing: TurnTiming) -> Self {
        let TurnTiming { silence_us, uplink_us, repair_us, backend_us, encode_us, playout_us, total_us } = timing;
        Self { uplink_us, repair_us, silence_us, backend_us, encode_us, playout_us, total_us }
    }
}

/// [`Positions`], in 48 kHz samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExportedPositions {
    /// What the backend gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generated: Option<u64>,
    /// What the edge put on the wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// Where it ended for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub played_end: Option<u64>,
    /// Where the user was when they began to speak over it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard_at: Option<u64>,
}

impl From<Positions> for ExportedPositions {
    fn from(positions: Positions) -> Self {
        let Positions { generated, sent, played_end, heard_at } = positions;
        Self { generated, sent, played_end, heard_at }
    }
}

/// [`Counts`], audio in ms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExportedCounts {
    /// Made up.
    pub concealed_ms: u64,
    /// By RED.
    pub red_ms: u64,
    /// From in-band copies.
    pub fec_ms: u64,
    /// Packets that came too late.
    pub late_packets: u64,
    /// Times the edge ran out of frames.
    pub underruns: u64,
}

impl From<Counts> for ExportedCounts {
    fn from(counts: Counts) -> Self {
        let Counts { concealed, red, fec, late, underruns } = counts;
        Self { concealed_ms: concealed / 48, red_ms: red / 48, fec_ms: fec / 48, late_packets: late, underruns }
    }
}

pub(super) fn state_name(state: State) -> &'static str {
    match state {
        State::Listening => "listening",
        State::UserSpeaking => "user_speaking",
        State::Deciding => "deciding",
        State::Thinking => "thinking",
        State::AgentSpeaking => "agent_speaking",
        State::Interrupting => "interrupting",
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
