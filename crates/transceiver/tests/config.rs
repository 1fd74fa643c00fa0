//! The config file that is shipped, and what is said of a wrong one.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

use std::path::Path;

use daemon::config::{Source, load};
use transceiver::Config;

fn shipped() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/transceiver.toml"))
}

#[test]
fn the_shipped_file_is_the_defaults() {
    assert_eq!(load::<Config>(&Source::file(shipped())).unwrap(), Config::default());
}

#[test]
fn the_shipped_file_names_every_key() {
    let text = std::fs::read_to_string(shipped()).unwrap();
    let shipped: toml::Table = text.parse().unwrap();
    let defaults = toml::Table::try_from(Config::default()).unwrap();
    let keys = |table: &toml::Table| {
        let mut keys: Vec<String> = Vec::new();
        for (key, value) in table {
            match value {
                toml::Value::Table(inner) => keys.extend(inner.keys().map(|name| format!("{key}.{name}"))),
                _ => keys.push(key.clone()),
            }
        }
        keys.sort();
        keys
    };
    assert_eq!(keys(&shipped), keys(&defaults));
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let set = ["id=0", "seats=5000", "voice.threshold=2.5", "voice.complexity=11", "nonsense=1"];
    let source = Source { file: None, set: set.map(str::to_owned).to_vec() };
    let error = load::<Config>(&source).unwrap_err();
    let mut keys: Vec<&str> = error.problems.iter().map(|problem| problem.key.as_str()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["id", "nonsense", "seats", "voice.complexity", "voice.threshold"]);
}

#[test]
fn models_of_the_config_are_read_with_it_and_one_that_cannot_be_had_is_named() {
    let problems = |name: &str, path: &str| {
        let set = vec![format!("models.{name}.kind=script"), format!("models.{name}.path={path}")];
        let loaded = load::<Config>(&Source { file: None, set });
        loaded.err().map_or_else(Vec::new, |error| error.problems)
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/scripts/weather.yaml");
    assert_eq!(problems("weather", script), []);
    assert_eq!(problems("parrot", script)[0].key, "models.parrot");
    let missing = problems("weather", "/nonexistent.yaml");
    assert_eq!(missing[0].key, "models.weather.path");
    assert!(missing[0].reason.starts_with("/nonexistent.yaml: it cannot be read"), "{}", missing[0].reason);
}
