//! Who answers: machines that take [`voice::BackendInput`] and give [`voice::BackendOutput`], without I/O; time is an argument. Those that
//! stand for another process are seats of the crate `backends`.
//!
//! `loopback` is none of these machines: it returns the user's own packets and has no dialogue.

mod loopback;
mod models;
mod monologue;
mod parrot;
mod script;

pub(crate) use voice::{Backend, Wanted};

pub(crate) use loopback::Loopback;
pub use models::{Choice, Model, Models, Remote};
pub(crate) use monologue::Monologue;
pub(crate) use parrot::Parrot;
pub(crate) use script::Player;
pub use script::{Script, ScriptError};
