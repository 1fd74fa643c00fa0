//! Names of things on the link.

use std::fmt;

/// A call, for its whole life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// An edge process, from config; never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EdgeId(pub u16);

/// A transceiver process, from config; 0 = none (the edge answers itself).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransceiverId(pub u32);

/// Which transceiver is heard: rises by one with every move of a session, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of a session that was never moved.
    pub const FIRST: Self = Self(1);

    /// The byte that media frames carry.
    #[must_use]
    pub fn low8(self) -> u8 {
        self.0.to_le_bytes()[0]
    }

    /// The epoch after a move.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A session's number on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// One response item's audio, rising per session from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UtteranceId(pub u32);

impl fmt::Display for SessionId {
    /// The public form, `rtc_` and 16 hex digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rtc_{:016x}", self.0)
    }
}
