//! The transceiver's config file. deploy/transceiver.toml shows every key with its default.

mod models;
mod otlp;
mod turn_end;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use daemon::Problems;
use daemon::config::Checked;
use serde::{Deserialize, Serialize};

pub(crate) use models::load as load_models;
pub use models::{ModelConfig, ModelKind};
pub use otlp::OtlpConfig;
pub use turn_end::{TurnEndConfig, TurnEndOutput};

use crate::backend::Models;
use crate::call::CallConfig;

/// Most calls one process is laid out for: the link's own bound on sessions.
pub(crate) const MAX_SEATS: u32 = link::quic::SESSIONS_PER_LINK;

/// One transceiver process.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// This transceiver among all of the deployment; never 0, which means none. Defaults to 1.
    pub id: u32,
    /// Where edges dial. One UDP port per process. Defaults to 127.0.0.1:7443.
    pub link_bind: SocketAddr,
    /// `/healthz`, `/readyz`, `/metrics`, `/sessions`. Defaults to 127.0.0.1:9081.
    pub admin_bind: SocketAddr,
    /// CPU worker threads; 0 is one per core. Defaults to 0.
    pub workers: usize,
    /// Calls at once; each costs about 0.4 ms of CPU per 20 ms while both sides speak. Defaults to 100.
    pub seats: u32,
    /// Keys and certificates; empty is `$XDG_STATE_HOME/fronthaul`. Defaults to empty.
    pub state_dir: String,
    /// Time that running calls are given after SIGTERM, before they are closed. Defaults to 10000.
    pub drain_timeout_ms: u64,
    /// Log lines.
    pub log: daemon::log::Config,
    /// Spans of the turns, for a collector.
    pub otlp: OtlpConfig,
    /// Models beside those that are built in, by name. Defaults to none.
    pub models: BTreeMap<String, ModelConfig>,
    /// The dialogue.
    pub voice: VoiceConfig,
}

/// The `[voice]` table: what a dialogue begins with, before the client's own settings.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct VoiceConfig {
    /// Speech probability from which audio counts as speech. Less hears softer voices and more noise. Defaults to 0.5.
    pub threshold: f32,
    /// Audio before the onset that belongs to a turn. Defaults to 300.
    pub prefix_padding_ms: u32,
    /// Silence that ends a turn: the largest part of the delay to the reply. Defaults to 500.
    pub silence_duration_ms: u32,
    /// Digital silence from a microphone whose packets arrive is told after this long; 0 never. Defaults to 10000.
    pub input_silent_ms: u32,
    /// What it takes to interrupt a reply.
    pub interruption: InterruptionConfig,
    /// PCM rate between dialogue and backend: 16000, 24000 or 48000. 16000 costs no resampling. Defaults to 16000.
    pub backend_rate_hz: u32,
    /// Opus bitrate to the user. Defaults to 24000.
    pub bitrate_bps: i32,
    /// Opus encoder complexity, 0 to 10: most of a call's CPU. Defaults to 5.
    pub complexity: i32,
    /// Audio sent ahead of the edge's first playout report; the edge has room for 1000. Defaults to 1000.
    pub ahead_ms: u32,
    /// A response whose audio does not come for this long is given up. Defaults to 10000.
    pub response_timeout_ms: u32,
    /// A turn longer than this is ended. Defaults to 60000.
    pub max_turn_ms: u32,
    /// Suppresses noise in what detector and backends hear. Takes more CPU than the rest of the user's audio, and 10 ms. Defaults to false.
    pub noise_suppression: bool,
    /// Brings the user's speech to one level in what backends hear. Defaults to false.
    pub auto_gain: bool,
    /// What is done about packets that are missing.
    pub repair: RepairConfig,
    /// What judges whether a turn is over.
    pub turn_end: TurnEndConfig,
}

/// The `[voice.repair]` table: what is done about packets that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RepairConfig {
    /// Longest wait at a hole for a packet that the client sends again, where NACK was agreed. Defaults to 60.
    pub nack_wait_ms: u32,
    /// A packet this late after its time was filled still corrects what a recognizer heard, if it can use that. Defaults to 400.
    pub late_ms: u32,
}

impl Default for RepairConfig {
    fn default() -> Self {
        let repair = voice::RepairConfig::default();
        Self { nack_wait_ms: repair.nack_wait_ms, late_ms: repair.late_ms }
    }
}

/// The `[voice.interruption]` table.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct InterruptionConfig {
    /// Speech over a reply interrupts it at all. Defaults to true.
    pub enabled: bool,
    /// Speech over the reply for this long interrupts it. Less cuts sooner and lets coughs cut too. Defaults to 250.
    pub min_duration_ms: u32,
    /// Words it takes, recognized by the backend in one utterance. Defaults to 0.
    pub min_words: u32,
    /// The edge may hold a reply by itself when the user's level rises. Defaults to false.
    pub reflex: bool,
    /// While the first reply is made or plays, if the user said nothing before it.
    pub greeting: InterruptionProfile,
    /// While a reply is asked for and not heard.
    pub thinking: InterruptionProfile,
    /// While a reply plays.
    pub speaking: InterruptionProfile,
}

/// One profile's table; what is left out is as in `[voice.interruption]`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct InterruptionProfile {
    /// Defaults to true.
    pub interruptible: bool,
    /// Instead of `interruption.min_duration_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_duration_ms: Option<u32>,
    /// Instead of `interruption.min_words`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_words: Option<u32>,
}

impl Default for InterruptionProfile {
    fn default() -> Self {
        Self { interruptible: true, min_duration_ms: None, min_words: None }
    }
}

impl Default for InterruptionConfig {
    fn default() -> Self {
        let voice = voice::InterruptionConfig::default();
        let profile = InterruptionProfile::default;
        Self {
            enabled: voice.enabled,
            min_duration_ms: voice.min_duration_ms,
            min_words: voice.min_words,
            reflex: voice.reflex,
            greeting: profile(),
            thinking: profile(),
            speaking: profile(),
        }
    }
}

impl From<&InterruptionConfig> for voice::InterruptionConfig {
    fn from(config: &InterruptionConfig) -> Self {
        let profile = |profile: &InterruptionProfile| voice::InterruptionProfile {
            interruptible: profile.interruptible,
            min_duration_ms: profile.min_duration_ms,
            min_words: profile.min_words,
        };
        Self {
            enabled: config.enabled,
            min_duration_ms: config.min_duration_ms,
            min_words: config.min_words,
            reflex: config.reflex,
            greeting: profile(&config.greeting),
            thinking: profile(&config.thinking),
            speaking: profile(&config.speaking),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        let local = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        Self {
            id: 1,
            link_bind: local(7443),
            admin_bind: local(9081),
            workers: 0,
            seats: 100,
            state_dir: String::new(),
            drain_timeout_ms: 10_000,
            log: daemon::log::Config::default(),
            otlp: OtlpConfig::default(),
            models: BTreeMap::new(),
            voice: VoiceConfig::default(),
        }
    }
}

impl Default for VoiceConfig {
    fn default() -> Self {
        let (voice, vad) = (voice::Config::default(), voice::ServerVad::default());
        Self {
            threshold: vad.threshold,
            prefix_padding_ms: vad.prefix_padding_ms,
            silence_duration_ms: vad.silence_duration_ms,
            input_silent_ms: voice.input_silent_ms,
            interruption: InterruptionConfig::default(),
            backend_rate_hz: voice.backend_rate,
            bitrate_bps: voice.bitrate,
            complexity: voice.complexity,
            ahead_ms: voice.ahead_ms,
            response_timeout_ms: voice.response_timeout_ms,
            max_turn_ms: voice.max_turn_ms,
            noise_suppression: voice.enhance.noise_suppression,
            auto_gain: voice.enhance.auto_gain,
            repair: RepairConfig::default(),
            turn_end: TurnEndConfig::default(),
        }
    }
}

impl Checked for Config {
    fn check(&self, problems: &mut Problems) {
        problems.require(self.id != 0, "id", self.id, "0 means no transceiver", "number transceivers from 1");
        problems.require(
            self.workers <= 1024,
            "workers",
            self.workers,
            "more threads than any machine has cores",
            "use 0 for one per core",
        );
        problems.require(
            (1..=MAX_SEATS).contains(&self.seats),
            "seats",
            self.seats,
            format_args!("a transceiver process is laid out for 1 to {MAX_SEATS} calls"),
            "start another transceiver for more",
        );
        self.log.check(problems);
        self.otlp.check(problems);
        models::check(&self.models, problems);
        self.voice.check(problems);
    }
}

impl VoiceConfig {
    fn check(&self, problems: &mut Problems) {
        problems.require(
            (0.0..=1.0).contains(&self.threshold),
            "voice.threshold",
            self.threshold,
            "a probability lies between 0 and 1",
            "use 0.5",
        );
        problems.require(
            [16_000, 24_000, 48_000].contains(&self.backend_rate_hz),
            "voice.backend_rate_hz",
            self.backend_rate_hz,
            "rates are 16000, 24000 and 48000",
            "use 16000",
        );
        let mut range = |key: &str, value: i64, least: i64, most: i64| {
            problems.require(
                (least..=most).contains(&value),
                &format!("voice.{key}"),
                value,
                format_args!("it lies between {least} and {most}"),
                "choose a value within that range, or leave the key out",
            );
        };
        range("prefix_padding_ms", self.prefix_padding_ms.into(), 0, 2000);
        range("silence_duration_ms", self.silence_duration_ms.into(), 0, 10_000);
        range("input_silent_ms", self.input_silent_ms.into(), 0, 3_600_000);
        let (least, most) = voice::InterruptionConfig::DURATION_MS;
        let words = voice::InterruptionConfig::WORDS;
        let interruption = &self.interruption;
        range("interruption.min_duration_ms", interruption.min_duration_ms.into(), least.into(), most.into());
        range("interruption.min_words", interruption.min_words.into(), 0, words.into());
        for (name, profile) in [
            ("greeting", &interruption.greeting),
            ("thinking", &interruption.thinking),
            ("speaking", &interruption.speaking),
        ] {
            if let Some(ms) = profile.min_duration_ms {
                range(&format!("interruption.{name}.min_duration_ms"), ms.into(), least.into(), most.into());
            }
            if let Some(count) = profile.min_words {
                range(&format!("interruption.{name}.min_words"), count.into(), 0, words.into());
            }
        }
        range("bitrate_bps", self.bitrate_bps.into(), 6000, 128_000);
        range("complexity", self.complexity.into(), 0, 10);
        range("ahead_ms", self.ahead_ms.into(), 20, 1000);
        range("response_timeout_ms", self.response_timeout_ms.into(), 100, 600_000);
        range("max_turn_ms", self.max_turn_ms.into(), 1000, 600_000);
        range("repair.nack_wait_ms", self.repair.nack_wait_ms.into(), 0, 200);
        range("repair.late_ms", self.repair.late_ms.into(), 0, 2000);
        self.turn_end.check(problems);
    }
}

impl From<&VoiceConfig> for CallConfig {
    fn from(config: &VoiceConfig) -> Self {
        let vad = voice::ServerVad {
            threshold: config.threshold,
            prefix_padding_ms: config.prefix_padding_ms,
            silence_duration_ms: config.silence_duration_ms,
            ..voice::ServerVad::default()
        };
        let voice = voice::Config {
            backend_rate: config.backend_rate_hz,
            turn: voice::TurnConfig { server_vad: Some(vad) },
            interruption: (&config.interruption).into(),
            input_silent_ms: config.input_silent_ms,
            bitrate: config.bitrate_bps,
            complexity: config.complexity,
            ahead_ms: config.ahead_ms,
            response_timeout_ms: config.response_timeout_ms,
            max_turn_ms: config.max_turn_ms,
            // The backend's kind, not the operator's choice.
            duplex_silence_ms: 0,
            enhance: voice::EnhanceConfig { noise_suppression: config.noise_suppression, auto_gain: config.auto_gain },
            repair: voice::RepairConfig {
                nack_wait_ms: config.repair.nack_wait_ms,
                late_ms: config.repair.late_ms,
                ..voice::RepairConfig::default()
            },
        };
        Self { voice, models: Models::default(), judge: None, backends: None }
    }
}
