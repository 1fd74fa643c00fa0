use std::task::Waker;
use std::time::Instant;

use super::{BackendInput, BackendOutput};

/// What a dialogue talks to: a machine without I/O, or the near end of one elsewhere. Poll until empty after every input.
///
/// Two lanes come from a backend: speech in its order, and everything else. Backpressure is on speech alone: while enough of the
/// reply waits, a backend is asked for [`Wanted::Control`], and what it has to say beside speech passes.
pub trait Backend: Send {
    /// The dialogue's word.
    fn handle(&mut self, input: BackendInput);
    /// The next answer of those that are wanted.
    fn poll(&mut self, now: Instant, wanted: Wanted) -> Option<BackendOutput>;
    /// Whether [`BackendInput::Correction`] is of use to it.
    fn takes_corrections(&self) -> bool {
        false
    }
    /// When it has more to say by itself of what is wanted.
    fn poll_timeout(&self, _: Wanted) -> Option<Instant> {
        None
    }
    /// Who is woken when something came from elsewhere, from the next poll on.
    fn set_waker(&mut self, _: Waker) {}
}

/// What a backend is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Anything.
    All,
    /// Not what waits in the lane of speech: [`BackendOutput::Audio`] and the ends that follow it, `ResponseDone` and `Closed`.
    /// Words, transcripts, verdicts and faults do not wait for it; words run ahead of their sound by at most
    /// what is kept of one reply's, 128 KiB. A backend that cannot hold its speech back gives it all the same: `max_turn_ms` and 1 s
    /// of one reply are kept (60 s at 16 kHz are 1.9 MB), what is beyond is dropped and counted.
    Control,
}
