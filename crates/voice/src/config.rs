//! What a conversation can be told, with the bounds it holds its numbers to.

use crate::enhance::EnhanceConfig;

/// Where turn logic gets its numbers. Units are in the names.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Rate of PCM given to and taken from the backend: 16000, 24000 or 48000. 16000 costs no resampling, as the detector
    /// needs that rate too; any other value counts as 16000. Defaults to 16000.
    pub backend_rate: u32,
    /// What ends a turn, and what its end does.
    pub turn: TurnConfig,
    /// Speech over the reply for this long commits the interruption, in ms. Less cuts sooner and lets coughs cut too.
    /// Defaults to 250.
    pub interrupt_commit_ms: u32,
    /// Opus downlink bitrate in bit/s. Defaults to 24000.
    pub bitrate: i32,
    /// Opus encoder complexity 0..=10. Defaults to 5.
    pub complexity: i32,
    /// Audio sent ahead of the edge's first playout report, in ms; at most 1000, which is what the edge has room for.
    /// Defaults to 1000.
    pub ahead_ms: u32,
    /// Without a backend's next audio for this long the response is given up, in ms. Defaults to 10000.
    pub response_timeout_ms: u32,
    /// A turn longer than this is ended, in ms. It bounds what a backend must keep of a turn and what is kept of a reply
    /// here. Defaults to 60000.
    pub max_turn_ms: u32,
    /// What is done to the user's audio before the backend gets it. Defaults to nothing.
    pub enhance: EnhanceConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            backend_rate: 16_000,
            turn: TurnConfig::default(),
            interrupt_commit_ms: 250,
            bitrate: 24_000,
            complexity: 5,
            ahead_ms: 1000,
            response_timeout_ms: 10_000,
            max_turn_ms: 60_000,
            enhance: EnhanceConfig::default(),
        }
    }
}

impl Config {
    /// The same with every number inside what the machine is built for, so that no configuration can stop a conversation.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        if ![16_000, 24_000, 48_000].contains(&self.backend_rate) {
            self.backend_rate = 16_000;
        }
        self.turn = self.turn.bounded();
        self.interrupt_commit_ms = self.interrupt_commit_ms.clamp(32, 2000);
        self.bitrate = self.bitrate.clamp(6000, 128_000);
        self.complexity = self.complexity.clamp(0, 10);
        self.ahead_ms = self.ahead_ms.clamp(20, 1000);
        self.response_timeout_ms = self.response_timeout_ms.clamp(100, 600_000);
        self.max_turn_ms = self.max_turn_ms.clamp(1000, 600_000);
        self
    }
}

/// `turn_detection` of the API.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnConfig {
    /// `None`: manual commits.
    pub server_vad: Option<ServerVad>,
}

impl Default for TurnConfig {
    fn default() -> Self {
        Self { server_vad: Some(ServerVad::default()) }
    }
}

impl TurnConfig {
    pub(crate) fn bounded(self) -> Self {
        Self { server_vad: self.server_vad.map(ServerVad::bounded) }
    }
}

/// `server_vad` of the API.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerVad {
    /// Speech probability from which a frame counts as voiced. At 0.3 a quarter of noise counts. Defaults to 0.5.
    pub threshold: f32,
    /// Audio before the onset that belongs to the turn, in ms. Defaults to 300.
    pub prefix_padding_ms: u32,
    /// Silence after the last voiced frame that ends the turn, in ms. All of it is latency. Defaults to 500.
    pub silence_duration_ms: u32,
    /// The end of a turn asks the backend for a response. Defaults to true.
    pub create_response: bool,
    /// Speech interrupts a reply. Defaults to true.
    pub interrupt_response: bool,
}

impl Default for ServerVad {
    fn default() -> Self {
        Self {
            threshold: 0.5,
            prefix_padding_ms: 300,
            silence_duration_ms: 500,
            create_response: true,
            interrupt_response: true,
        }
    }
}

impl ServerVad {
    fn bounded(mut self) -> Self {
        self.threshold = if self.threshold.is_finite() { self.threshold.clamp(0.0, 1.0) } else { 0.5 };
        self.prefix_padding_ms = self.prefix_padding_ms.min(2000);
        self.silence_duration_ms = self.silence_duration_ms.clamp(48, 10_000);
        self
    }
}
