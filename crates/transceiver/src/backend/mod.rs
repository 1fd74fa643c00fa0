//! Who answers: machines that take [`BackendInput`] and give [`BackendOutput`], without I/O; time is an argument.
//!
//! All backends live inside the call. `loopback` is none of these machines: it returns the user's own
//! packets and has no dialogue.

mod loopback;
mod models;
mod monologue;
mod parrot;
mod script;

pub(crate) use voice::{Backend, Wanted};

pub(crate) use loopback::Loopback;
pub use models::{Model, Models};
pub(crate) use monologue::Monologue;
pub(crate) use parrot::Parrot;
pub(crate) use script::Player;
pub use script::{Script, ScriptError};
