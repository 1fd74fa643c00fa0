//! What codes a frame's payload: the low nibble of its flags.

/// Frames without a word about it are Opus.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Codec {
    /// RFC 7587.
    #[default]
    Opus,
    /// Opus with copies of what came before (RFC 2198).
    Red,
    /// G.711 µ-law.
    Pcmu,
    /// G.711 A-law.
    Pcma,
    /// Keys and tones (RFC 4733).
    TelephoneEvent,
}

impl Codec {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Opus => 0,
            Self::Red => 1,
            Self::Pcmu => 2,
            Self::Pcma => 3,
            Self::TelephoneEvent => 4,
        }
    }

    /// By its number on the wire; `None`: of a version to come.
    #[must_use]
    pub const fn numbered(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Opus,
            1 => Self::Red,
            2 => Self::Pcmu,
            3 => Self::Pcma,
            4 => Self::TelephoneEvent,
            _ => return None,
        })
    }
}
