//! What the reader of a broken config file is told.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use daemon::config::{Checked, load};
use daemon::{ConfigError, Problem, Problems, Source, log};
use serde::Deserialize;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    id: u16,
    http_bind: SocketAddr,
    default_model: String,
    log: log::Config,
    transceivers: Vec<Transceiver>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Transceiver {
    id: u16,
    address: SocketAddr,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            id: 1,
            http_bind: SocketAddr::from(([127, 0, 0, 1], 8080)),
            default_model: "parrot".to_owned(),
            log: log::Config::default(),
            transceivers: Vec::new(),
        }
    }
}

impl Checked for Config {
    fn check(&self, problems: &mut Problems) {
        problems.require(self.id != 0, "id", self.id, "0 means no edge", "give each edge a number from 1 on");
        self.log.check(problems);
        for (index, transceiver) in self.transceivers.iter().enumerate() {
            let key = format!("transceivers[{index}].id");
            problems.require(transceiver.id != 0, &key, transceiver.id, "0 means no transceiver", "number from 1 on");
        }
    }
}

/// A file that is gone when the test is over.
struct File(PathBuf);

impl File {
    fn new(text: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("daemon-config-{}-{}.toml", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn load_text(text: &str, set: &[&str]) -> Result<Config, ConfigError> {
    let file = File::new(text);
    load(&Source { file: Some(file.0.clone()), set: set.iter().map(ToString::to_string).collect() })
}

fn problems(text: &str, set: &[&str]) -> Vec<Problem> {
    load_text(text, set).unwrap_err().problems
}

#[test]
fn nothing_given_is_the_default() {
    assert_eq!(load::<Config>(&Source::default()), Ok(Config::default()));
}

#[test]
fn assignments_win_over_the_file_and_need_no_quotes() {
    let text = "default_model = \"echo\"\nid = 7\n[log]\nformat = \"json\"\n";
    let config =
        load_text(text, &["http_bind=0.0.0.0:80", "log.level=debug", "default_model=loopback", "id=8"]).unwrap();
    assert_eq!((config.id, config.default_model.as_str()), (8, "loopback"));
    assert_eq!(config.http_bind, SocketAddr::from(([0, 0, 0, 0], 80)));
    assert_eq!((config.log.format, config.log.level.as_str()), (log::Format::Json, "debug"));
}

#[test]
fn assignments_may_hold_lists_and_tables() {
    let config = load_text("", &["transceivers=[{id=3,address='127.0.0.1:7443'}]"]).unwrap();
    assert_eq!(config.transceivers, [Transceiver { id: 3, address: SocketAddr::from(([127, 0, 0, 1], 7443)) }]);
}

#[test]
fn all_problems_of_types_names_and_meaning_are_reported_at_once() {
    let text = "\
http_bnd = \"127.0.0.1:80\"
id = 0
http_bind = \"127.0.0.1\"

[log]
format = \"xml\"
level = \"info,edge=loud\"

[[transceivers]]
id = 70000
address = \"127.0.0.1:7443\"

[[transceivers]]
id = 2
";
    let mut found = problems(text, &[]);
    found.sort_by(|left, right| left.place.cmp(&right.place));
    let found: Vec<_> =
        found.iter().map(|problem| (problem.place.as_str(), problem.key.as_str(), problem.value.as_str())).collect();
    assert_eq!(
        found,
        [
            ("line 1", "http_bnd", "\"127.0.0.1:80\""),
            ("line 10", "transceivers[0].id", "70000"),
            ("line 13", "transceivers[1]", "[[transceivers]]"),
            ("line 2", "id", "0"),
            ("line 3", "http_bind", "\"127.0.0.1\""),
            ("line 6", "log.format", "\"xml\""),
            ("line 7", "log.level", "\"info,edge=loud\""),
        ]
    );
}

#[test]
fn an_unknown_key_is_refused_with_the_likely_one() {
    let found = problems("http_bnd = 1\n", &[]);
    assert_eq!(found.len(), 1);
    assert!(found[0].reason.starts_with("unknown field `http_bnd`"), "{}", found[0].reason);
    assert_eq!(found[0].fix, "did you mean `http_bind`?");
}

#[test]
fn a_number_out_of_range_is_told_its_range() {
    let found = problems("id = 70000\n", &[]);
    assert_eq!(found[0].fix, "write a whole number from 0 to 65535");
}

#[test]
fn a_problem_on_the_command_line_says_so() {
    let found = problems("id = 1\n", &["id=0", "http_bind=nowhere"]);
    let found: Vec<_> = found.iter().map(|problem| (problem.key.as_str(), problem.place.as_str())).collect();
    assert_eq!(found, [("http_bind", "given with --set"), ("id", "given with --set")]);
    assert_eq!(problems("", &["loud"])[0].reason, "not an assignment");
}

#[test]
fn every_syntax_error_names_its_line() {
    let found = problems("id = 1\nhttp_bind = 127.0.0.1:80\nlog = [\n", &[]);
    assert!(found.len() >= 2, "{found:?}");
    assert_eq!(found[0].place, "line 2");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = load::<Config>(&Source::file("/nowhere/edge.toml")).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("one problem in /nowhere/edge.toml:"), "{text}");
    assert!(text.contains("--config = \"/nowhere/edge.toml\"") && text.contains("No such file"), "{text}");
}

#[test]
fn the_message_names_file_key_value_reason_and_fix() {
    let file = File::new("# edge\nhttp_bind = \"127.0.0.1\"\n");
    let error = load::<Config>(&Source::file(&file.0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "one problem in {}:\n\n  http_bind = \"127.0.0.1\"  (line 2)\n    reason: invalid socket address syntax\n    \
             fix:    write \"IP:port\", such as \"127.0.0.1:8080\" or \"[::1]:8080\"\n",
            file.0.display()
        )
    );
}
