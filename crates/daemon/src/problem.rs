//! What keeps a daemon from starting, said so that the reader can act on it.

use std::fmt;

/// One reason not to start: which key has which value, why it cannot be, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The config key, such as `log.level`, or the option on the command line.
    pub key: String,
    /// Its value as it was written; empty when there is none.
    pub value: String,
    /// Why this cannot be.
    pub reason: String,
    /// What to do about it.
    pub fix: String,
    /// Where it was written, such as `line 7`; empty when the value is a default.
    pub place: String,
}

impl Problem {
    /// A problem whose place is not known, or is added later by the loader.
    pub fn new(
        key: impl Into<String>,
        value: impl fmt::Display,
        reason: impl fmt::Display,
        fix: impl fmt::Display,
    ) -> Self {
        Self {
            key: key.into(),
            value: value.to_string(),
            reason: reason.to_string(),
            fix: fix.to_string(),
            place: String::new(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}", self.key)?;
        if !self.value.is_empty() {
            write!(f, " = {}", self.value)?;
        }
        if !self.place.is_empty() {
            write!(f, "  ({})", self.place)?;
        }
        write!(f, "\n    reason: {}\n    fix:    {}", self.reason, self.fix)
    }
}

/// Collects what a config's own checks find, so that all of it is reported at once.
#[derive(Debug, Default)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// An empty collection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a problem.
    pub fn push(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    /// Adds a problem with `key` unless the condition holds. Key and value as written in the file.
    pub fn require(
        &mut self,
        holds: bool,
        key: &str,
        value: impl fmt::Display,
        reason: impl fmt::Display,
        fix: impl fmt::Display,
    ) {
        if !holds {
            self.push(Problem::new(key, value, reason, fix));
        }
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What was found, in the order in which it was found.
    pub fn into_vec(self) -> Vec<Problem> {
        self.0
    }
}
