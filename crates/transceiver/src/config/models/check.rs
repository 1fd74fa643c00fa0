//! Names of models, and which keys each kind has.

use daemon::{Problem, Problems};

use super::{MAX_NAME, ModelConfig, ModelKind};
use crate::backend::Model;

pub(super) fn name(name: &str, problems: &mut Problems) {
    let sound = (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    problems.require(
        sound && name != "echo" && !Model::BUILT_IN.contains(&name),
        &format!("models.{name}"),
        "",
        format_args!("a name is 1 to {MAX_NAME} visible characters, and not that of a model that is built in"),
        "name it otherwise",
    );
}

/// Which keys are there, and which belong to the kind.
pub(super) fn keys(name: &str, config: &ModelConfig, problems: &mut Problems) {
    let kind = config.kind;
    let remote = kind == ModelKind::Grpc;
    let keys = [
        ("path", config.path.is_some(), kind == ModelKind::Script, kind == ModelKind::Script),
        ("url", config.url.is_some(), remote, remote),
        ("key", config.key.is_some(), remote, false),
        ("ca_file", config.ca_file.is_some(), remote, false),
        ("rate_hz", config.rate_hz.is_some(), kind == ModelKind::Grpc, false),
        ("corrections", config.corrections.is_some(), kind == ModelKind::Grpc, false),
        ("full_duplex", config.full_duplex.is_some(), kind == ModelKind::Grpc, false),
        ("ready_timeout_ms", config.ready_timeout_ms.is_some(), remote, false),
        ("response_timeout_ms", config.response_timeout_ms.is_some(), remote, false),
        ("fallback", !config.fallback.is_empty(), remote, false),
        ("of", !config.of.is_empty(), kind == ModelKind::Choice, kind == ModelKind::Choice),
    ];
    let shown = kind.name();
    for (key, is_there, belongs, needed) in keys {
        let full = format!("models.{name}.{key}");
        if is_there && !belongs {
            let reason = format!("a model of kind {shown} has no such key");
            problems.push(Problem::new(full, "", reason, "leave it out, or name another kind"));
        } else if needed && !is_there {
            let reason = format!("a model of kind {shown} needs it");
            problems.push(Problem::new(
                full,
                "",
                reason,
                "write it; docs/BACKENDS.md and docs/SCRIPTS.md have the keys",
            ));
        }
    }
    let mut range = |key: &str, value: Option<u32>, least: u32, most: u32| {
        problems.require(
            value.is_none_or(|value| (least..=most).contains(&value)),
            &format!("models.{name}.{key}"),
            value.unwrap_or_default(),
            format_args!("it lies between {least} and {most}"),
            "choose a value within that range, or leave the key out",
        );
    };
    range("ready_timeout_ms", config.ready_timeout_ms, 100, 60_000);
    range("response_timeout_ms", config.response_timeout_ms, 100, 600_000);
    problems.require(
        config.rate_hz.is_none_or(|rate| [16_000, 24_000, 48_000].contains(&rate)),
        &format!("models.{name}.rate_hz"),
        config.rate_hz.unwrap_or_default(),
        "rates are 16000, 24000 and 48000",
        "use 16000, or what the backend recognizes speech at",
    );
}

impl ModelKind {
    fn name(self) -> &'static str {
        match self {
            Self::Script => "\"script\"",
            Self::Grpc => "\"grpc\"",
            Self::Choice => "\"choice\"",
        }
    }
}
