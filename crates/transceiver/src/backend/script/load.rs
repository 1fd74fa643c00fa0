//! Reading a script from its file.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{Format, Turn};

/// Largest file read: a thousand pages.
const MAX_FILE: u64 = 1 << 20;

/// A script that was read, shared by all calls that play it.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    pub(crate) turns: Arc<[Turn]>,
}

/// What is wrong with a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptError {
    file: PathBuf,
    /// Line and column, from 1.
    at: Option<(u64, u64)>,
    /// What it is, with the field and what to do.
    reason: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some((line, column)) = self.at {
            write!(f, ", line {line}, column {column}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for ScriptError {}

impl Script {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read or is larger than 1 MiB, and whatever [`Script::parse`] says.
    pub fn read(file: &Path) -> Result<Self, ScriptError> {
        let wrong = |reason: String| ScriptError { file: file.to_owned(), at: None, reason };
        let mut text = String::new();
        File::open(file)
            .and_then(|open| open.take(MAX_FILE + 1).read_to_string(&mut text))
            .map_err(|error| wrong(format!("it cannot be read: {error}")))?;
        if text.len() as u64 > MAX_FILE {
            return Err(wrong(format!("it is larger than {MAX_FILE} bytes: split it")));
        }
        Self::parse(file, &text)
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// What is no YAML, or no script, with its place; the first alone.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ScriptError> {
        // `yes` and `on` are words that people say; the lines around an error are the reader's to look up.
        let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
        let format: Format = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let at = error.location().map(|at| (at.line(), at.column()));
            let said = at.map_or_else(String::new, |(line, column)| format!(" at line {line}, column {column}"));
            let reason = error.to_string();
            let reason = reason.strip_suffix(&said).unwrap_or(&reason).to_owned();
            ScriptError { file: file.to_owned(), at, reason }
        })?;
        Ok(Self { turns: format.turns.into() })
    }
}
