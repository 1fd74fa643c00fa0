//! The format of scripts: what is read from YAML, with its bounds.
//!
//! Bounds are there so that a file with a slip in it is refused, not played: 256 turns of 256 steps with texts of 16 KiB are more than a
//! file of 1 MiB holds. Whatever a step says, a call that plays it holds one second of sound at a time.

use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;
use voice::IncompleteReason;

/// Turns of a script, and steps of a turn.
const MAX_ENTRIES: usize = 256;

/// Bytes of one text.
const MAX_TEXT: usize = 16 * 1024;

/// Bytes of a name: those that the API takes.
const MAX_NAME: usize = 128;

/// Longest wait, and longest sound of one step: 10 minutes.
const MAX_MS: u32 = 600_000;

/// Sound of a text whose length is not said: 15 characters a second, as people speak.
const MS_PER_CHARACTER: u32 = 65;

/// Shortest sound of a text whose length is not said.
const LEAST_MS: u32 = 200;

/// A script.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Format {
    #[serde(deserialize_with = "turns")]
    pub(crate) turns: Vec<Turn>,
}

/// What is played once it fits.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Turn {
    pub(crate) when: When,
    /// What the user's spoken turn is transcribed as.
    #[serde(deserialize_with = "hear")]
    pub(crate) hear: Option<String>,
    /// Any number of times.
    pub(crate) repeat: bool,
    #[serde(deserialize_with = "reply")]
    pub(crate) reply: Vec<Step>,
}

/// What came in since the last response began; all that is said must hold.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(try_from = "Conditions")]
pub(crate) struct When {
    /// A spoken turn came, or did not.
    pub(crate) speech: Option<bool>,
    /// A message of the user's has this in it, in small letters.
    pub(crate) text: Option<String>,
    /// The result of a call of that tool came.
    pub(crate) tool_result: Option<String>,
    /// That result has this in it, in small letters.
    pub(crate) output: Option<String>,
    /// The instructions have this in them, in small letters.
    pub(crate) instructions: Option<String>,
    /// Nothing came, and the model speaks first.
    pub(crate) start: bool,
}

/// [`When`] as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Conditions {
    speech: Option<bool>,
    text: Option<String>,
    tool_result: Option<String>,
    output: Option<String>,
    instructions: Option<String>,
    start: bool,
}

impl TryFrom<Conditions> for When {
    type Error = &'static str;

    fn try_from(written: Conditions) -> Result<Self, Self::Error> {
        let Conditions { speech, text, tool_result, output, instructions, start } = written;
        if output.is_some() && tool_result.is_none() {
            return Err("`output` is that of a tool, which is not named: add `tool_result`, the tool's name");
        }
        if start && (speech.is_some() || text.is_some() || tool_result.is_some()) {
            return Err("nothing has come in at the `start`: leave `speech`, `text` and `tool_result` out, or `start`");
        }
        let [text, output, instructions] =
            [text, output, instructions].map(|text| text.map(|text| text.to_lowercase()));
        Ok(Self { speech, text, tool_result, output, instructions, start })
    }
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    WaitMs(#[serde(deserialize_with = "wait_ms")] u32),
    Say(Say),
    Call(Call),
    Usage(Usage),
    Fail(Fail),
    Incomplete(Incomplete),
    Hang,
}

impl Step {
    /// The step that nothing follows, by name.
    fn end(&self) -> Option<&'static str> {
        match self {
            Self::Fail(_) => Some("fail"),
            Self::Incomplete(_) => Some("incomplete"),
            Self::Hang => Some("hang"),
            Self::WaitMs(_) | Self::Say(_) | Self::Call(_) | Self::Usage(_) => None,
        }
    }
}

/// Words and their sound.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Say {
    pub(crate) text: String,
    pub(crate) audio_ms: u32,
    /// Times as fast as speech. `None`: as fast as it is taken.
    pub(crate) speed: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SayFields {
    #[serde(deserialize_with = "text")]
    text: String,
    #[serde(default, deserialize_with = "audio_ms")]
    audio_ms: Option<u32>,
    #[serde(default, deserialize_with = "speed")]
    speed: Option<f64>,
}

impl Say {
    fn new(text: String, audio_ms: Option<u32>, speed: Option<f64>) -> Self {
        let characters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        let natural = characters.saturating_mul(MS_PER_CHARACTER).clamp(LEAST_MS, MAX_MS);
        Self { text, audio_ms: audio_ms.unwrap_or(natural), speed }
    }
}

impl<'de> Deserialize<'de> for Say {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Say;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or a mapping with `text`, `audio_ms` and `speed`")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Say, E> {
                bounded("say", MAX_TEXT, text.to_owned()).map(|text| Say::new(text, None, None))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Say, A::Error> {
                let SayFields { text, audio_ms, speed } = SayFields::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Say::new(text, audio_ms, speed))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Call {
    #[serde(deserialize_with = "tool")]
    pub(crate) tool: String,
    #[serde(default = "no_arguments", deserialize_with = "arguments")]
    pub(crate) arguments: String,
    #[serde(default, deserialize_with = "call_id")]
    pub(crate) call_id: Option<String>,
    #[serde(default = "one", deserialize_with = "pieces")]
    pub(crate) pieces: u32,
    /// Between pieces.
    #[serde(default, deserialize_with = "piece_ms")]
    pub(crate) piece_ms: u32,
}

impl Call {
    /// One of the pieces of its arguments, about as long as each other.
    pub(crate) fn piece(&self, index: u32) -> &str {
        let border = |index: u32| {
            let at = self.arguments.len() * index as usize / self.pieces.max(1) as usize;
            self.arguments.floor_char_boundary(at)
        };
        &self.arguments[border(index)..border(index + 1)]
    }
}

/// Tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Usage {
    input_text: u64,
    input_audio: u64,
    input_image: u64,
    cached: u64,
    output_text: u64,
    output_audio: u64,
}

impl From<Usage> for voice::Usage {
    fn from(usage: Usage) -> Self {
        let Usage { input_text, input_audio, input_image, cached, output_text, output_audio } = usage;
        Self { input_text, input_audio, input_image, cached, output_text, output_audio }
    }
}

/// How a response fails.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fail {
    #[serde(deserialize_with = "code")]
    pub(crate) code: String,
    #[serde(default, deserialize_with = "message")]
    pub(crate) message: String,
    #[serde(rename = "type", default = "server_error", deserialize_with = "kind")]
    pub(crate) kind: String,
}

/// Why a response is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Incomplete {
    MaxOutputTokens,
    ContentFilter,
}

impl From<Incomplete> for IncompleteReason {
    fn from(reason: Incomplete) -> Self {
        match reason {
            Incomplete::MaxOutputTokens => Self::MaxOutputTokens,
            Incomplete::ContentFilter => Self::ContentFilter,
        }
    }
}

fn no_arguments() -> String {
    "{}".to_owned()
}

fn one() -> u32 {
    1
}

fn server_error() -> String {
    "server_error".to_owned()
}

fn turns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Turn>, D::Error> {
    let turns = Vec::<Turn>::deserialize(deserializer)?;
    match turns.len() {
        0 => Err(D::Error::custom("`turns` is empty: write at least one turn")),
        1..=MAX_ENTRIES => Ok(turns),
        count => Err(too_many("turns", count)),
    }
}

fn reply<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Step>, D::Error> {
    let steps = Vec::<Step>::deserialize(deserializer)?;
    if steps.len() > MAX_ENTRIES {
        return Err(too_many("reply", steps.len()));
    }
    let last = steps.len().saturating_sub(1);
    match steps[..last].iter().find_map(Step::end) {
        Some(end) => Err(D::Error::custom(format!(
            "`reply` goes on behind `{end}`, which ends it: put `{end}` last, or take out what follows"
        ))),
        None => Ok(steps),
    }
}

fn too_many<E: Error>(field: &str, count: usize) -> E {
    E::custom(format!("`{field}` has {count} entries: at most {MAX_ENTRIES} are played, split the script"))
}

/// A text that is not longer than `most` bytes.
fn bounded<E: Error>(field: &str, most: usize, text: String) -> Result<String, E> {
    if text.len() <= most {
        return Ok(text);
    }
    Err(E::custom(format!("`{field}` has {} bytes: shorten it to {most}", text.len())))
}

fn named<'de, D: Deserializer<'de>>(field: &str, deserializer: D) -> Result<String, D::Error> {
    let name = bounded(field, MAX_NAME, String::deserialize(deserializer)?)?;
    if name.is_empty() { Err(D::Error::custom(format!("`{field}` is empty: give it a name"))) } else { Ok(name) }
}

fn ranged<'de, D: Deserializer<'de>>(field: &str, least: u32, most: u32, deserializer: D) -> Result<u32, D::Error> {
    let value = u64::deserialize(deserializer)?;
    match u32::try_from(value).ok().filter(|value| (least..=most).contains(value)) {
        Some(value) => Ok(value),
        None => Err(D::Error::custom(format!("`{field}` is {value}: choose a number from {least} to {most}"))),
    }
}

fn wait_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    ranged("wait_ms", 0, MAX_MS, deserializer)
}

fn audio_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    ranged("audio_ms", 0, MAX_MS, deserializer).map(Some)
}

fn piece_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    ranged("piece_ms", 0, 60_000, deserializer)
}

fn pieces<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    ranged("pieces", 1, 64, deserializer)
}

fn speed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let speed = f64::deserialize(deserializer)?;
    if (0.1..=100.0).contains(&speed) {
        return Ok(Some(speed));
    }
    Err(D::Error::custom(format!("`speed` is {speed}: choose a number from 0.1 to 100, or leave it out for no pace")))
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    bounded("text", MAX_TEXT, String::deserialize(deserializer)?)
}

fn hear<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    bounded("hear", MAX_TEXT, String::deserialize(deserializer)?).map(Some)
}

fn message<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    bounded("message", 512, String::deserialize(deserializer)?)
}

fn tool<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    named("tool", deserializer)
}

fn call_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    named("call_id", deserializer).map(Some)
}

fn code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    named("code", deserializer)
}

fn kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    named("type", deserializer)
}

/// A mapping as JSON, or a text as it is.
fn arguments<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let written = match Value::deserialize(deserializer)? {
        Value::String(text) => text,
        mapping @ Value::Object(_) => mapping.to_string(),
        _ => return Err(D::Error::custom("`arguments` is neither a mapping nor a text: write {name: value, ...}")),
    };
    bounded("arguments", MAX_TEXT, written)
}
