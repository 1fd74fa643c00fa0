//! Reads a daemon's config from a TOML file and from `--set key=value`, and reports all problems at once.
//!
//! Serde stops at the first error. To go on, the offending entry is taken out of the parsed document and the
//! rest is read again, until it is accepted; then the config's own checks run. So the reader mends the file
//! in one go.

mod document;
mod explain;
mod secret;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::de::Deserializer;

use crate::problem::{Problem, Problems};
use document::{Document, Text};

pub use secret::Secret;

/// A daemon's config type: serde with `deny_unknown_fields` and a default for each key, and checks of its
/// own for what types cannot say.
pub trait Checked: DeserializeOwned {
    /// Adds what is wrong with the values, with keys and values as written in the file.
    fn check(&self, problems: &mut Problems);
}

/// Where a config comes from. The default is the defaults of all keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The file, if any.
    pub file: Option<PathBuf>,
    /// `key=value` assignments that win over the file, such as `log.level=debug`. The value is TOML; what is
    /// not TOML is taken as a string, so that addresses and names need no quotes.
    pub set: Vec<String>,
}

impl Source {
    /// A file without assignments.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self { file: Some(path.into()), set: Vec::new() }
    }
}

/// All that is wrong with a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, if any.
    pub file: Option<PathBuf>,
    /// At least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.len() {
            1 => write!(f, "one problem in ")?,
            count => write!(f, "{count} problems in ")?,
        }
        match &self.file {
            Some(file) => writeln!(f, "{}:", file.display())?,
            None => writeln!(f, "the configuration:")?,
        }
        self.problems.iter().try_for_each(|problem| write!(f, "\n{problem}\n"))
    }
}

impl std::error::Error for ConfigError {}

/// Reads and checks a config.
///
/// # Errors
///
/// Every problem that could be found. Syntax errors hide the others; a wrong value hides none.
pub fn load<C: Checked>(source: &Source) -> Result<C, ConfigError> {
    let failed = |problems| ConfigError { file: source.file.clone(), problems };
    let text =
        source.file.as_deref().map_or_else(|| Ok(String::new()), read).map_err(|problem| failed(vec![problem]))?;
    let text = Text::new(text, &source.set).map_err(failed)?;
    let document = Document::parse(&text).map_err(failed)?;
    match read_document::<C>(&document) {
        (Some(config), problems) if problems.is_empty() => Ok(config),
        (_, problems) => Err(failed(problems)),
    }
}

fn read(file: &Path) -> Result<String, Problem> {
    std::fs::read_to_string(file).map_err(|error| {
        let fix = "name a readable TOML file, or leave the option out to run with the defaults";
        Problem::new("--config", format_args!("\"{}\"", file.display()), error, fix)
    })
}

fn read_document<C: Checked>(document: &Document<'_>) -> (Option<C>, Vec<Problem>) {
    /// More than anybody mends in one go; it bounds the re-reading.
    const MOST: usize = 64;
    let mut rest = document.clone();
    let mut problems = Vec::new();
    while problems.len() < MOST {
        let error = match C::deserialize(Deserializer::from(rest.root().clone())) {
            Ok(config) => {
                let mut found = Problems::new();
                config.check(&mut found);
                let news = found.into_vec().into_iter().filter(|problem| !is_known(&problems, &problem.key));
                let news: Vec<_> = news.map(|problem| document.place_of(problem)).collect();
                problems.extend(news);
                return (Some(config), problems);
            }
            Err(error) => error,
        };
        let at = error.span().and_then(|span| document.locate(&span));
        // A value that was wrong and was taken out is missed afterwards.
        let missing = at.as_ref().zip(explain::missing(error.message())).map(|(at, name)| format!("{}.{name}", at.key));
        if !missing.is_some_and(|missing| problems.iter().any(|problem| problem.key == missing)) {
            problems.push(explain::problem(at.as_ref(), error.message()));
        }
        let removed = error.span().is_some_and(|span| rest.remove(&span));
        if !removed {
            break;
        }
    }
    (None, problems)
}

/// Whether a problem of this key, of a table around it or of another element of its list is known: what a default
/// in its place violates is no news, and an element that was taken out renumbers those behind it.
fn is_known(problems: &[Problem], key: &str) -> bool {
    let list = key.split_once('[').map(|(list, _)| list);
    problems.iter().any(|problem| {
        let within = |key: &str| {
            key.strip_prefix(problem.key.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        within(key) || list.is_some_and(|list| problem.key.split_once('[').is_some_and(|(known, _)| known == list))
    })
}
