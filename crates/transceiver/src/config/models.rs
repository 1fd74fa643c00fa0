//! The `[models]` table: models beside those that are built in.

mod check;
mod remote;

use std::collections::BTreeMap;
use std::path::PathBuf;

use daemon::config::Secret;
use daemon::{Problem, Problems};
use serde::{Deserialize, Serialize};

use crate::backend::{Choice, Model, Models, Script};

/// More than anybody scripts: at 1 MiB of file each takes some MiB.
const MAX_MODELS: usize = 64;

/// As long as clients may name models.
const MAX_NAME: usize = 64;

/// One model. Which keys it has is its kind's: docs/BACKENDS.md and docs/SCRIPTS.md.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// What it is.
    pub kind: ModelKind,
    /// `script`: a YAML file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// `grpc`: `http://host:port` or `https://host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Sent as `authorization: Bearer`: the text, or `env:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Secret>,
    /// Certificates (PEM) that `https` and `wss` are checked by, instead of the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// PCM of the user's that the backend gets: 16000, 24000 or 48000. Defaults to 16000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_hz: Option<u32>,
    /// It takes corrections of audio that was made up. Defaults to false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrections: Option<bool>,
    /// It owns the turns: it hears all and speaks when it likes. Defaults to false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_duplex: Option<bool>,
    /// A stream that is not ready after this long is given up. Defaults to 5000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_timeout_ms: Option<u32>,
    /// Instead of `voice.response_timeout_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_timeout_ms: Option<u32>,
    /// Who answers when this one cannot be had, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<String>,
    /// `choice`: models and their weights.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub of: BTreeMap<String, u32>,
}

/// What a model of the config is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// It plays a script.
    #[default]
    Script,
    /// It is a server of `proto/fronthaul/backend/v1`.
    Grpc,
    /// It is one of others, drawn for each call.
    Choice,
}

pub(super) fn check(models: &BTreeMap<String, ModelConfig>, problems: &mut Problems) {
    load(models, 16_000).err().into_iter().flatten().for_each(|problem| problems.push(problem));
}

/// Reads what the models are made of. `rate`: of those that are built in, in Hz.
///
/// # Errors
/// The problems of models that cannot be had.
pub(crate) fn load(models: &BTreeMap<String, ModelConfig>, rate: u32) -> Result<Models, Vec<Problem>> {
    let mut problems = Problems::new();
    problems.require(
        models.len() <= MAX_MODELS,
        "models",
        models.len(),
        format_args!("a process serves at most {MAX_MODELS} models of its config"),
        "start another transceiver for more",
    );
    for (name, config) in models {
        check::name(name, &mut problems);
        check::keys(name, config, &mut problems);
    }
    let mut served = BTreeMap::new();
    for (name, config) in models.iter().filter(|(_, config)| config.kind == ModelKind::Script) {
        let path = config.path.clone().unwrap_or_default();
        match Script::read(&path) {
            Ok(script) => drop(served.insert(name.clone(), Model::Script(script))),
            Err(error) => {
                let fix = "mend the script, or name another; docs/SCRIPTS.md has the format";
                let shown = format!("\"{}\"", path.display());
                problems.push(Problem::new(format!("models.{name}.path"), shown, error, fix));
            }
        }
    }
    let choices = choices(models, &mut problems);
    let remotes = remote::load(models, &served, rate, &mut problems);
    served.extend(remotes);
    if problems.is_empty() { Ok(Models::new(served, choices)) } else { Err(problems.into_vec()) }
}

fn choices(models: &BTreeMap<String, ModelConfig>, problems: &mut Problems) -> BTreeMap<String, Choice> {
    let chosen = models.iter().filter(|(_, config)| config.kind == ModelKind::Choice);
    let choices = chosen.map(|(name, config)| {
        for (of, weight) in &config.of {
            let known = Model::BUILT_IN.contains(&of.as_str())
                || models.get(of).is_some_and(|model| model.kind != ModelKind::Choice);
            problems.require(
                known,
                &format!("models.{name}.of"),
                format_args!("{of:?}"),
                "it is no model of this config, or a choice itself",
                "name models that answer by themselves",
            );
            problems.require(
                *weight <= 1_000_000,
                &format!("models.{name}.of.{of}"),
                weight,
                "a weight is at most 1000000",
                "give smaller weights in the same proportion",
            );
        }
        problems.require(
            config.of.values().any(|weight| *weight > 0),
            &format!("models.{name}.of"),
            "{}",
            "nobody would answer",
            "give at least one model a weight above 0, as in of = { parrot = 1 }",
        );
        (name.clone(), Choice(config.of.clone().into_iter().collect()))
    });
    choices.collect()
}
