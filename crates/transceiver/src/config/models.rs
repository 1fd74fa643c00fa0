//! The `[models]` table: models beside those that are built in.

use std::collections::BTreeMap;
use std::path::PathBuf;

use daemon::{Problem, Problems};
use serde::{Deserialize, Serialize};

use crate::backend::{Model, Models, Script};

/// More than anybody scripts: at 1 MiB of file each takes some MiB.
const MAX_MODELS: usize = 64;

/// As long as clients may name models.
const MAX_NAME: usize = 64;

/// One model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// What it is.
    pub kind: ModelKind,
    /// The script, a YAML file.
    pub path: PathBuf,
}

/// What a model of the config is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// It plays a script.
    Script,
}

pub(super) fn check(models: &BTreeMap<String, ModelConfig>, problems: &mut Problems) {
    load(models).err().into_iter().flatten().for_each(|problem| problems.push(problem));
}

/// Reads what the models are made of.
///
/// # Errors
/// One problem of each model that cannot be had.
pub(crate) fn load(models: &BTreeMap<String, ModelConfig>) -> Result<Models, Vec<Problem>> {
    let (mut scripts, mut problems) = (Vec::new(), Problems::new());
    problems.require(
        models.len() <= MAX_MODELS,
        "models",
        models.len(),
        format_args!("a process serves at most {MAX_MODELS} models of its config"),
        "start another transceiver for more",
    );
    for (name, ModelConfig { kind: ModelKind::Script, path }) in models {
        let (key, shown) = (format!("models.{name}"), format!("\"{}\"", path.display()));
        let sound = (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
        problems.require(
            sound && name != "echo" && !Model::BUILT_IN.contains(&name.as_str()),
            &key,
            "",
            format_args!("a name is 1 to {MAX_NAME} visible characters, and not that of a model that is built in"),
            "name it otherwise",
        );
        match Script::read(path) {
            Ok(script) => scripts.push((name.clone(), script)),
            Err(error) => {
                let fix = "mend the script, or name another; docs/SCRIPTS.md has the format";
                problems.push(Problem::new(format!("{key}.path"), shown, error, fix));
            }
        }
    }
    if problems.is_empty() { Ok(Models::with_scripts(scripts)) } else { Err(problems.into_vec()) }
}
