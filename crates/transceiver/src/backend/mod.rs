//! Who answers: machines that take [`BackendInput`] and give [`BackendOutput`], without I/O and without a clock.
//!
//! Both backends of this issue live inside the call. `loopback` is none of these machines: it returns the user's own
//! packets and has no dialogue.

mod loopback;
mod parrot;

use voice::{BackendInput, BackendOutput};

pub(crate) use loopback::Loopback;
pub(crate) use parrot::Parrot;

/// What a dialogue talks to. Poll until empty after every input.
pub(crate) trait Backend: Send {
    /// The dialogue's word.
    fn handle(&mut self, input: BackendInput);
    /// The next answer.
    fn poll(&mut self) -> Option<BackendOutput>;
}

/// The models served here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// Says back what it heard, turn by turn.
    Parrot,
    /// Returns each packet at once.
    Loopback,
}

impl Model {
    /// All of them, by name.
    pub const NAMES: [&'static str; 2] = ["parrot", "loopback"];

    /// The model of that name. `None`: not served here.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "parrot" => Some(Self::Parrot),
            "loopback" => Some(Self::Loopback),
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
        }
    }
}
