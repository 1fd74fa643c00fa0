//! Who answers: machines that take [`BackendInput`] and give [`BackendOutput`], without I/O; time is an argument.
//!
//! All backends live inside the call. `loopback` is none of these machines: it returns the user's own
//! packets and has no dialogue.

mod loopback;
mod monologue;
mod parrot;

use std::time::Instant;

use voice::{BackendInput, BackendOutput};

pub(crate) use loopback::Loopback;
pub(crate) use monologue::Monologue;
pub(crate) use parrot::Parrot;

/// What a dialogue talks to. Poll until empty after every input.
pub(crate) trait Backend: Send {
    /// The dialogue's word.
    fn handle(&mut self, input: BackendInput);
    /// The next answer.
    fn poll(&mut self, now: Instant) -> Option<BackendOutput>;
    /// Whether [`BackendInput::Correction`] is of use to it.
    fn takes_corrections(&self) -> bool {
        false
    }
    /// When it has more to say by itself.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// The models served here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// Says back what it heard, turn by turn.
    Parrot,
    /// Returns each packet at once.
    Loopback,
    /// Speaks all the time.
    Monologue,
}

impl Model {
    /// All of them, by name.
    pub const NAMES: [&'static str; 3] = ["parrot", "loopback", "monologue"];

    /// The model of that name. `None`: not served here.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "parrot" => Some(Self::Parrot),
            "loopback" => Some(Self::Loopback),
            "monologue" => Some(Self::Monologue),
            _ => None,
        }
    }

    /// It gives its audio as it happens, not ahead of its time.
    #[must_use]
    pub fn is_real_time(self) -> bool {
        self == Self::Loopback
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Parrot => "parrot",
            Self::Loopback => "loopback",
            Self::Monologue => "monologue",
        }
    }
}
