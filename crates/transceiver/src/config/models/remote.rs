//! Models in other processes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backends::grpc::{self, BadEndpoint};
use backends::{Kind, Local, Route, Target, Timeouts};
use daemon::{Problem, Problems};

use super::{ModelConfig, ModelKind};
use crate::backend::{Model, Parrot, Player, Remote};

/// Where Debian and most others keep the certificates that all trust.
const ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Silence that ends a reply of a backend that owns the turns.
const DUPLEX_SILENCE_MS: u32 = 800;

/// The models of the config that answer elsewhere. `scripts`: those that may stand in; `rate`: at which `parrot` and scripts do, in Hz.
pub(super) fn load(
    models: &BTreeMap<String, ModelConfig>,
    scripts: &BTreeMap<String, Model>,
    rate: u32,
    problems: &mut Problems,
) -> BTreeMap<String, Model> {
    let targets: BTreeMap<&String, Target> = models
        .iter()
        .filter(|(_, config)| config.kind == ModelKind::Grpc)
        .filter_map(|(name, config)| Some((name, target(name, config, problems)?)))
        .collect();
    let remotes = targets.iter().map(|(name, first)| {
        let config = &models[*name];
        let rate = config.rate_hz.unwrap_or(rate);
        let mut route = vec![first.clone()];
        for fallback in &config.fallback {
            let stands_in = match scripts.get(fallback) {
                _ if fallback == "parrot" => Some(local("parrot", move || Box::new(Parrot::new(rate)))),
                Some(Model::Script(script)) => {
                    let script = script.clone();
                    Some(local(fallback, move || Box::new(Player::new(&script))))
                }
                _ => targets.get(fallback).filter(|_| fallback != *name).cloned(),
            };
            match stands_in {
                Some(target) => route.push(target),
                None => problems.push(Problem::new(
                    format!("models.{name}.fallback"),
                    format!("{fallback:?}"),
                    "it is neither parrot nor another model of this config that answers by itself",
                    "name one of those, or leave it out",
                )),
            }
        }
        let remote = Remote {
            route: Route { targets: route.into() },
            rate,
            corrections: config.corrections.unwrap_or(false),
            duplex_silence_ms: if config.full_duplex == Some(true) { DUPLEX_SILENCE_MS } else { 0 },
            response_timeout_ms: config.response_timeout_ms,
        };
        ((*name).clone(), Model::Remote(remote))
    });
    remotes.collect()
}

fn local(name: &str, make: impl Fn() -> Box<dyn voice::Backend> + Send + Sync + 'static) -> Target {
    Target { name: name.into(), kind: Kind::Local(Local(Arc::new(make))), timeouts: Timeouts::default() }
}

fn target(name: &str, config: &ModelConfig, problems: &mut Problems) -> Option<Target> {
    let url = config.url.as_deref().unwrap_or_default();
    let mut problem = |key: &str, value: String, reason: String, fix: &str| {
        problems.push(Problem::new(format!("models.{name}.{key}"), value, reason, fix));
    };
    let key = match config.key.as_ref().map(daemon::config::Secret::reveal).transpose() {
        Ok(key) => key,
        Err(variable) => {
            let reason = format!("the environment has no variable {variable}");
            problem("key", "\"...\"".to_owned(), reason, "set it, or write the text itself");
            return None;
        }
    };
    let roots = config.ca_file.clone().unwrap_or_else(|| ROOTS.into());
    let roots = match std::fs::read(&roots) {
        Ok(roots) => roots,
        Err(error) if url.starts_with("https:") => {
            let shown = format!("\"{}\"", roots.display());
            problem(
                "ca_file",
                shown,
                error.to_string(),
                "name a file of certificates (PEM) that the backend's is checked by",
            );
            return None;
        }
        Err(_) => Vec::new(),
    };
    let endpoint = match grpc::Endpoint::new(url, key.as_deref(), &roots) {
        Ok(endpoint) => endpoint,
        Err(bad) => {
            let (key, value, reason) = match bad {
                BadEndpoint::Url => ("url", format!("{url:?}"), "it is no http://host:port or https://host:port"),
                BadEndpoint::Key => ("key", "\"...\"".to_owned(), "it has characters that no header has"),
                BadEndpoint::Certificates => ("ca_file", String::new(), "there are no certificates (PEM) in it"),
            };
            problem(key, value, reason.to_owned(), "write it as docs/BACKENDS.md says");
            return None;
        }
    };
    let default = Timeouts::default();
    let ready = config.ready_timeout_ms.map_or(default.ready, |ms| Duration::from_millis(ms.into()));
    Some(Target { name: name.into(), kind: Kind::Grpc(endpoint), timeouts: Timeouts { ready, ..default } })
}
