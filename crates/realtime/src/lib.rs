//! What a client of the API says and is told, as machines: events, session patching, items and responses.
//!
//! Run loop: feed a [`Dialect`] with client texts ([`Dialect::handle_client`]), with what happens in the call
//! ([`Dialect::handle`]) and with time; after every input poll [`Dialect::poll_command`] and [`Dialect::poll_event`] until both are
//! empty, then see whether it is [`Dialect::closing`].
//!
//! Invariant: a dialect answers whatever comes, holds a bounded amount, and never panics; it opens no socket and reads no
//! clock. What a call and a dialect say to each other ([`Input`], [`Command`]) is no dialect's own.
//!
//! [`Session`] is the Realtime API. Another dialect is another implementation of [`Dialect`] beside it.

mod audio;
mod call;
mod dialect;
mod ga;
mod ids;
mod limits;
mod turn;

use std::time::Duration;

pub use audio::AudioFormat;
pub use call::{
    CancelReason, Close, Command, CreateRefusal, Failure, IncompleteReason, Input, Item, ItemKind, Modality,
    ModelSettings, RateLimit, ResponseRequest, Role, Usage, Waited,
};
pub use dialect::{Counters, Dialect};
pub use ga::{Session, Unfit, effective_session};
pub use limits::{MAX_CLIENT_BYTES, MAX_EVENT_BYTES, MAX_SESSION_VALUES, values_at_most};
pub use turn::{Eagerness, TurnDetection, Vad};

/// What a session is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Seeds the ids; two sessions of one process must differ.
    pub seed: u64,
    /// The model that really answers, whatever the client named: `session.created` shows it.
    pub model: String,
    /// Turn detection before the client's first word on it.
    pub vad: Vad,
    /// Unix seconds at which the call began; `expires_at` is [`lifetime`](Self::lifetime) later.
    pub created_at: u64,
    /// The `session` part of the signaling request, JSON, the first patch onto the defaults. Empty: none.
    pub requested: String,
    /// How audio travels. Defaults to WebRTC.
    pub transport: Transport,
    /// What the session is for, unless `requested` says so. Defaults to a conversation.
    pub intent: Intent,
    /// How long the session may last; then the client is told and it ends. Defaults to [`LIFETIME`].
    pub lifetime: Duration,
    /// A truncation beyond an item's end is an error, as it was with the API at first. Defaults to no: it is taken as the item's end.
    pub strict_truncation: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            model: String::new(),
            vad: Vad::default(),
            created_at: 0,
            requested: String::new(),
            transport: Transport::WebRtc,
            intent: Intent::Conversation,
            lifetime: LIFETIME,
            strict_truncation: false,
        }
    }
}

/// The API's sixty minutes.
pub const LIFETIME: Duration = Duration::from_secs(60 * 60);

/// How audio travels, and so who owns playout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// As RTP: the server owns playout, tells of it (`output_audio_buffer.*`) and says where a cut item ends.
    WebRtc,
    /// In events: the client owns playout, and says where it cut.
    WebSocket,
}

/// What a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Talking with a model.
    Conversation,
    /// The user's words alone (`intent=transcription`, `"type": "transcription"`): no responses.
    Transcription,
}
