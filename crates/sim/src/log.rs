//! What happened, in order, as text that two runs can be compared by.

use std::fmt::{self, Display};
use std::time::Duration;

/// The events of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log(Vec<Entry>);

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Virtual time since the start.
    pub at: Duration,
    /// Who: `client`, `edge`, `transceiver`.
    pub actor: String,
    /// What.
    pub event: String,
    /// Of which session, item, packet.
    pub ids: String,
}

impl Log {
    pub(crate) fn push(&mut self, at: Duration, actor: &str, event: &str, ids: impl Display) {
        self.0.push(Entry { at, actor: actor.into(), event: event.into(), ids: ids.to_string() });
    }

    /// All events, in order.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// When `actor` first told of `event`.
    #[must_use]
    pub fn first(&self, actor: &str, event: &str) -> Option<Duration> {
        self.0.iter().find(|entry| entry.actor == actor && entry.event == event).map(|entry| entry.at)
    }
}

/// One line per event:
///
/// ```text
///      0.060000 client connected session=1
/// ```
impl Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

impl Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.at.as_secs(), self.at.subsec_micros());
        write!(f, "{seconds:6}.{micros:06} {} {}", self.actor, self.event)?;
        if self.ids.is_empty() { Ok(()) } else { write!(f, " {}", self.ids) }
    }
}
