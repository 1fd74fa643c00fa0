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
    /// What it takes to interrupt a reply.
    pub interruption: InterruptionConfig,
    /// Digital silence of a microphone whose packets arrive is told after this long, in ms; 0: never. Defaults to 10000.
    pub input_silent_ms: u32,
    /// Opus downlink bitrate in bit/s. Defaults to 24000.
    pub bitrate: i32,
    /// Opus encoder complexity 0..=10. Defaults to 5.
    pub complexity: i32,
    /// Audio sent ahead of the edge's first playout report, in ms; at most 1000, which is what the edge has room for.
    /// Defaults to 1000.
    pub ahead_ms: u32,
    /// Without a backend's next audio for this long the response is given up, in ms. Defaults to 10000.
    pub response_timeout_ms: u32,
    /// What is done about packets that are missing.
    pub repair: RepairConfig,
    /// A turn longer than this is ended, in ms. It bounds what a backend must keep of a turn and what is kept of a reply
    /// here. Defaults to 60000.
    pub max_turn_ms: u32,
    /// The backend hears everything, speaks when it likes and does not say where a reply begins or ends: silence of this length,
    /// in ms, ends one. 0: it answers what it is asked. Turns are told to the client all the same; whether they ask for answers
    /// and interrupt is the turn's configuration. Defaults to 0.
    pub duplex_silence_ms: u32,
    /// What is done to the user's audio before the backend gets it. Defaults to nothing.
    pub enhance: EnhanceConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            backend_rate: 16_000,
            turn: TurnConfig::default(),
            interruption: InterruptionConfig::default(),
            input_silent_ms: 10_000,
            bitrate: 24_000,
            complexity: 5,
            ahead_ms: 1000,
            response_timeout_ms: 10_000,
            repair: RepairConfig::default(),
            max_turn_ms: 60_000,
            duplex_silence_ms: 0,
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
        self.interruption = self.interruption.bounded();
        self.repair = self.repair.bounded();
        self.bitrate = self.bitrate.clamp(6000, 128_000);
        self.complexity = self.complexity.clamp(0, 10);
        self.ahead_ms = self.ahead_ms.clamp(20, 1000);
        self.response_timeout_ms = self.response_timeout_ms.clamp(100, 600_000);
        self.max_turn_ms = self.max_turn_ms.clamp(1000, 600_000);
        if self.duplex_silence_ms > 0 {
            self.duplex_silence_ms = self.duplex_silence_ms.clamp(100, 10_000);
        }
        self
    }
}

/// What is done about packets that are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepairConfig {
    /// The client sends again what it is asked for (NACK was agreed): holes may wait for it. A fact of the session. Defaults to
    /// false.
    pub nack: bool,
    /// The backend's recognizer can use what comes late ([`crate::BackendInput::Correction`]). A fact of the backend. Defaults
    /// to false.
    pub corrections: bool,
    /// Longest wait for a packet that is sent again, in ms. All of it is delay, at holes alone. Defaults to 60.
    pub nack_wait_ms: u32,
    /// A packet this late after its time was filled is still worth a correction, in ms. Defaults to 400.
    pub late_ms: u32,
}

impl Default for RepairConfig {
    fn default() -> Self {
        Self { nack: false, corrections: false, nack_wait_ms: 60, late_ms: 400 }
    }
}

impl RepairConfig {
    fn bounded(mut self) -> Self {
        self.nack_wait_ms = self.nack_wait_ms.min(200);
        self.late_ms = self.late_ms.min(2000);
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

    /// Audio before an onset that belongs to the turn.
    pub(crate) fn padding_ms(&self) -> u32 {
        self.server_vad.as_ref().map_or(0, |vad| vad.prefix_padding_ms)
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
    /// `semantic_vad`: how soon the user's silence is taken for the end of their turn. `None`: `server_vad`, whose
    /// `silence_duration_ms` it is. Defaults to `None`.
    pub eagerness: Option<Eagerness>,
    /// Nobody speaks for this long after a reply: the silence is committed and answered, in ms. `None`: never.
    /// Defaults to `None`.
    pub idle_timeout_ms: Option<u32>,
}

/// `eagerness` of `semantic_vad`: the longest wait for more is 8, 4 or 2 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Eagerness {
    /// Lets the user take their time.
    Low,
    /// In between.
    Medium,
    /// Answers as soon as it can.
    High,
    /// The same as medium.
    Auto,
}

/// What it takes to interrupt a reply, whoever asks for it; a client's own cancel needs nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterruptionConfig {
    /// The user interrupts at all; otherwise speech over a reply is answered after it. Defaults to true.
    pub enabled: bool,
    /// Speech of one utterance, in ms of voiced frames: 32 to 10000. Less cuts sooner and lets coughs cut too. Above 1000 the
    /// reply is not held meanwhile. Defaults to 250.
    pub min_duration_ms: u32,
    /// Words recognized in one utterance; more than 0 needs a backend that tells what the user says. Defaults to 0.
    pub min_words: u32,
    /// The edge may hold a reply by itself when the user's level rises, one round trip of the link sooner. It hears no words:
    /// slammed doors hold the reply too. Defaults to false.
    pub reflex: bool,
    /// While the first reply is made or plays, if the user said nothing before it.
    pub greeting: InterruptionProfile,
    /// While a reply is asked for and not heard.
    pub thinking: InterruptionProfile,
    /// While a reply plays.
    pub speaking: InterruptionProfile,
}

/// Rules of one situation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterruptionProfile {
    /// The user interrupts here. Defaults to true.
    pub interruptible: bool,
    /// Instead of [`InterruptionConfig::min_duration_ms`]. Defaults to `None`.
    pub min_duration_ms: Option<u32>,
    /// Instead of [`InterruptionConfig::min_words`]. Defaults to `None`.
    pub min_words: Option<u32>,
}

impl Default for InterruptionProfile {
    fn default() -> Self {
        Self { interruptible: true, min_duration_ms: None, min_words: None }
    }
}

impl Default for InterruptionConfig {
    fn default() -> Self {
        let profile = InterruptionProfile::default();
        Self {
            enabled: true,
            min_duration_ms: 250,
            min_words: 0,
            reflex: false,
            greeting: profile,
            thinking: profile,
            speaking: profile,
        }
    }
}

impl InterruptionConfig {
    /// Least and most of [`InterruptionConfig::min_duration_ms`].
    pub const DURATION_MS: (u32, u32) = (32, 10_000);
    /// Most of [`InterruptionConfig::min_words`].
    pub const WORDS: u32 = 100;

    fn bounded(mut self) -> Self {
        let (least, most) = Self::DURATION_MS;
        self.min_duration_ms = self.min_duration_ms.clamp(least, most);
        self.min_words = self.min_words.min(Self::WORDS);
        for profile in [&mut self.greeting, &mut self.thinking, &mut self.speaking] {
            profile.min_duration_ms = profile.min_duration_ms.map(|ms| ms.clamp(least, most));
            profile.min_words = profile.min_words.map(|words| words.min(Self::WORDS));
        }
        self
    }

    /// The longest duration of any profile, in ms.
    pub(crate) fn longest_ms(&self) -> u32 {
        [self.greeting, self.thinking, self.speaking]
            .iter()
            .map(|profile| profile.min_duration_ms.unwrap_or(self.min_duration_ms))
            .fold(0, u32::max)
    }
}

impl Default for ServerVad {
    fn default() -> Self {
        Self {
            threshold: 0.5,
            prefix_padding_ms: 300,
            silence_duration_ms: 500,
            create_response: true,
            interrupt_response: true,
            eagerness: None,
            idle_timeout_ms: None,
        }
    }
}

impl ServerVad {
    fn bounded(mut self) -> Self {
        self.threshold = if self.threshold.is_finite() { self.threshold.clamp(0.0, 1.0) } else { 0.5 };
        self.prefix_padding_ms = self.prefix_padding_ms.min(2000);
        self.silence_duration_ms = self.silence_duration_ms.clamp(48, 10_000);
        self.idle_timeout_ms = self.idle_timeout_ms.map(|ms| ms.clamp(1000, 600_000));
        self
    }
}
