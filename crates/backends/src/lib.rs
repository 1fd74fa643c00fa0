//! Backends in other processes: whoever speaks `proto/fronthaul/backend/v1`.
//!
//! Run loop: a call's worker holds a [`Seat`], which is a [`voice::Backend`]; it is polled, and woken when something came. Behind it a task
//! of the [`thread`](BackendThread) of backends drives one stream at a time ([`driver`]): it opens it, tells it what was said so far
//! ([`memory`]), carries both directions through a pure [`Machine`], and opens another one when it breaks.
//!
//! Invariant: a worker waits for nothing here, and what a backend does changes nothing but its own call: each lane is bounded, and where one
//! is full the oldest of the user's audio goes, or the backend is not read any more.

pub mod driver;
pub mod grpc;
mod memory;
mod responses;
mod seat;
mod target;
mod thread;

use voice::{BackendInput, BackendOutput};

pub use memory::Memory;
pub use seat::Seat;
pub use target::{Kind, Local, Route, Session, Target, Timeouts};
pub use thread::{BackendThread, Backends};

/// What of a stream is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// For metrics, one of few: `refused`, `closed`, `protocol`, `silent`...
    pub reason: &'static str,
    /// For logs.
    pub detail: String,
    /// It makes no sense to try the same again: the key is wrong, the model is not known.
    pub is_final: bool,
}

impl Lost {
    /// One that may go better next time.
    #[must_use]
    pub fn new(reason: &'static str, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into(), is_final: false }
    }
}

/// One stream to a backend, without I/O: inputs and messages in, outputs and messages out. After each of the `handle_*` poll both until
/// they are empty. Responses are those of the stream: rising, and never asked for twice.
pub trait Machine: Send {
    /// To the backend.
    type Up: Send + 'static;
    /// From the backend.
    type Down: Send;

    /// The dialogue's word.
    fn handle_input(&mut self, input: BackendInput);
    /// The backend's word.
    ///
    /// # Errors
    /// The stream is of no use any more.
    fn handle_down(&mut self, down: Self::Down) -> Result<(), Lost>;
    /// The next message to send.
    fn poll_up(&mut self) -> Option<Self::Up>;
    /// The next thing to tell the dialogue.
    fn poll_output(&mut self) -> Option<Told>;
}

/// What comes from a machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// For the dialogue.
    Output(BackendOutput),
    /// For the next stream's beginning.
    Snapshot(Vec<u8>),
    /// Something came that makes no sense; what, in one of few words.
    Odd(&'static str),
}
