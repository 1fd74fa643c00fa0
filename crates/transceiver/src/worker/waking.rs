//! Calls that something came for from elsewhere: a backend's thread wakes a call, and its worker looks.
//!
//! Invariant: a call is in the queue at most once: whoever takes it out clears its flag before it looks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use crossbeam_queue::ArrayQueue;

use crate::config::MAX_SEATS;
use crate::ring::CallKey;

/// As many as there may be calls, and as many again that ended with their place in the queue.
const QUEUE: usize = 2 * MAX_SEATS as usize;

/// The calls of a worker that were woken.
#[derive(Debug, Clone)]
pub(super) struct Woken {
    keys: Arc<ArrayQueue<CallKey>>,
    worker: Waker,
}

/// One call's alarm.
#[derive(Debug)]
pub(super) struct Alarm {
    key: CallKey,
    rung: AtomicBool,
    woken: Woken,
}

impl Woken {
    /// `worker`: who looks into the queue.
    pub(super) fn new(worker: Waker) -> Self {
        Self { keys: Arc::new(ArrayQueue::new(QUEUE)), worker }
    }

    pub(super) fn alarm(&self, key: CallKey) -> Arc<Alarm> {
        Arc::new(Alarm { key, rung: AtomicBool::new(false), woken: self.clone() })
    }

    pub(super) fn pop(&self) -> Option<CallKey> {
        self.keys.pop()
    }
}

impl Alarm {
    /// What comes from here on rings again.
    pub(super) fn clear(&self) {
        self.rung.store(false, Ordering::Release);
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.rung.swap(true, Ordering::AcqRel) && self.woken.keys.push(self.key).is_err() {
            // Its next deadline, 20 ms ahead while the user is there, looks as well.
            self.clear();
        }
        self.woken.worker.wake_by_ref();
    }
}
