//! Holds one conversation's audio: repair, Opus, voice activity, turns, playout ledger.
//!
//! [`Conversation`] is a state machine without I/O. **Run loop:** give it an input ([`Conversation::handle_media`],
//! [`Conversation::handle_backend`], [`Conversation::handle_playout`], one of the client's commands, or
//! [`Conversation::handle_timeout`] when [`Conversation::poll_timeout`] is due), then take outputs with
//! [`Conversation::poll_output`] until there are none.
//!
//! **Invariant:** whatever comes in, in whatever order, within bounded time the conversation answers or listens: every state has
//! an exit and a timer (table in `turn.rs`).
//!
//! [`Stream`] is the same for a client whose audio comes as samples at any pace and goes into events (a WebSocket).
//!
//! Media time is a 48 kHz sample clock that starts at 0 with the first packet; PCM is mono i16 at [`Config::backend_rate`].
//! An instant earlier than one given before counts as that one would: nothing here needs time to pass.

mod adapt;
pub mod babble;
mod backend;
mod client;
mod config;
mod contour;
mod conversation;
mod decision;
mod duplex;
mod ear;
mod echo;
pub mod enhance;
pub mod g711;
mod gate;
mod intake;
mod keys;
mod label;
mod ledger;
pub mod opus;
mod outgoing;
mod preroll;
mod rate;
pub mod red;
pub mod repair;
mod resample;
mod script;
mod stream;
pub mod telephone;
#[cfg(test)]
mod tests;
mod timbre;
mod timing;
mod turn;
mod types;
pub mod vad;
mod verdict;
mod voicing;
mod way;

pub use backend::{
    AgentAudio, Backend, BackendInput, BackendOutput, Failure, IncompleteReason, Item, ItemKind, Overrides, Request,
    ResponseId, Role, Settings, ToolCall, TurnId, TurnVerdict, Usage, Wanted, WordTime,
};
pub use config::{Config, Eagerness, InterruptionConfig, InterruptionProfile, RepairConfig, ServerVad, TurnConfig};
pub use conversation::{Conversation, Stats};
pub use decision::{Decision, DecisionInputs, DecisionKind, InterruptSource, Profile};
pub use enhance::EnhanceConfig;
pub use outgoing::OutgoingStats;
pub use rate::Resampler;
pub use stream::{Asked, SampleFormat, Stream, StreamOutput, StreamStats, Waited};
pub use turn::State;
pub use types::{
    Balance, ClientView, Codec, Event, FlushReason, MediaFrame, Output, Playout, Received, TurnTiming, Utterance,
};
pub use verdict::Judge;
