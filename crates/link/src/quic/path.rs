//! What the controller of a link finds out about its path, for whoever sends over it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::watch;

/// How a path is to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathState {
    /// Loss is above 0.2 % and the path is not congested: each frame goes twice.
    pub repeat: bool,
    /// More loss or queueing than voice bears, or the window is closing: admit nobody, encode lower.
    pub congested: bool,
    /// The window is closing: media goes only where there is room for it at once.
    pub closing: bool,
    /// The other end finds its direction congested.
    pub peer_congested: bool,
}

impl PathState {
    /// One of the two directions is.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.congested || self.peer_congested
    }
}

/// Shared between the controller, which is quinn's, and the link.
#[derive(Debug)]
pub(super) struct Path {
    state: watch::Sender<PathState>,
    /// Twin of [`PathState::closing`] that costs no lock.
    closing: AtomicBool,
    /// The next media datagram would leave at once and leave room for control.
    room: AtomicBool,
    /// Lost share, in millionths.
    loss_ppm: AtomicU64,
}

impl Path {
    pub(super) fn new() -> Self {
        Self {
            state: watch::Sender::new(PathState::default()),
            closing: AtomicBool::new(false),
            room: AtomicBool::new(true),
            loss_ppm: AtomicU64::new(0),
        }
    }

    pub(super) fn watch(&self) -> watch::Receiver<PathState> {
        self.state.subscribe()
    }

    pub(super) fn state(&self) -> PathState {
        *self.state.borrow()
    }

    /// Changes the state; watchers hear of real changes alone.
    pub(super) fn change(&self, change: impl FnOnce(&mut PathState)) {
        self.state.send_if_modified(|state| {
            let former = *state;
            change(state);
            self.closing.store(state.closing, Ordering::Relaxed);
            *state != former
        });
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    pub(super) fn has_room(&self) -> bool {
        self.room.load(Ordering::Relaxed)
    }

    pub(super) fn set_room(&self, room: bool) {
        self.room.store(room, Ordering::Relaxed);
    }

    pub(super) fn loss_ppm(&self) -> u64 {
        self.loss_ppm.load(Ordering::Relaxed)
    }

    pub(super) fn set_loss_ppm(&self, loss_ppm: u64) {
        self.loss_ppm.store(loss_ppm, Ordering::Relaxed);
    }
}
