//! Names of things on the link.

use std::fmt;
use std::str::FromStr;

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

impl FromStr for SessionId {
    type Err = ParseSessionIdError;

    /// Reads the public form.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("rtc_").ok_or(ParseSessionIdError)?;
        if digits.len() != 16 || !digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(ParseSessionIdError);
        }
        u64::from_str_radix(digits, 16).map(Self).map_err(|_| ParseSessionIdError)
    }
}

/// A text that is no session id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a session id is `rtc_` and 16 lower-case hex digits")]
pub struct ParseSessionIdError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_has_one_public_form() {
        let id = SessionId(0xab);
        assert_eq!(id.to_string(), "rtc_00000000000000ab");
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "rtc_", "rtc_ab", "00000000000000ab", "rtc_00000000000000AB", "rtc_+0000000000000ab"] {
            assert_eq!(text.parse::<SessionId>(), Err(ParseSessionIdError), "{text}");
        }
    }

    #[test]
    fn frames_carry_the_low_byte_of_the_epoch() {
        assert_eq!(Epoch(0x1ff).low8(), 0xff);
        assert_eq!(Epoch(0x1ff).next().low8(), 0);
    }
}
