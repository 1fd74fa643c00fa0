//! The `[voice.turn_end]` table: a model that judges whether a turn is over.

use daemon::Problems;
use serde::{Deserialize, Serialize};

/// A model of the operator's that judges from the sound whether a turn is over, for sessions with `semantic_vad`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TurnEndConfig {
    /// An .onnx file. Empty: none; silence and the backend end turns. Defaults to empty.
    pub model: String,
    /// ONNX Runtime's shared library, 1.17 or later. Empty: `libonnxruntime.so` where the system looks for libraries. Defaults to empty.
    pub library: String,
    /// What the model's number is. Defaults to `probability`.
    pub output: TurnEndOutput,
    /// The last audio of a turn that the model gets, where it takes any length. Defaults to 8000.
    pub window_ms: u32,
    /// Threads that one look takes; answers of the calls come one after the other in any case. Defaults to 1.
    pub threads: usize,
}

/// What a model's number is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnEndOutput {
    /// The probability that the turn is over, 0 to 1.
    #[default]
    Probability,
    /// The logarithm of its odds.
    Logit,
}

impl Default for TurnEndConfig {
    fn default() -> Self {
        Self {
            model: String::new(),
            library: String::new(),
            output: TurnEndOutput::default(),
            window_ms: 8000,
            threads: 1,
        }
    }
}

impl TurnEndConfig {
    /// Least and most of `window_ms`.
    pub(crate) const WINDOW_MS: (u32, u32) = (1000, 30_000);
    /// Most of `threads`.
    const THREADS: usize = 64;

    pub(super) fn check(&self, problems: &mut Problems) {
        let (least, most) = Self::WINDOW_MS;
        problems.require(
            (least..=most).contains(&self.window_ms),
            "voice.turn_end.window_ms",
            self.window_ms,
            format_args!("it lies between {least} and {most}"),
            "choose a value within that range, or leave the key out",
        );
        problems.require(
            (1..=Self::THREADS).contains(&self.threads),
            "voice.turn_end.threads",
            self.threads,
            format_args!("it lies between 1 and {}", Self::THREADS),
            "use 1, or as many as there are cores that no calls are on",
        );
    }
}
