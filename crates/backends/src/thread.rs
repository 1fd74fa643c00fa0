//! The thread of backends: a runtime of its own, so that what a backend does delays neither media nor the link.

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::driver;
use crate::seat::{self, Seat};
use crate::target::{Route, Session};

/// Where calls get their backends; clones are the same.
#[derive(Debug, Clone)]
pub struct Backends(Handle);

impl PartialEq for Backends {
    fn eq(&self, other: &Self) -> bool {
        self.0.id() == other.0.id()
    }
}

impl Backends {
    /// A backend for one call. Its streams are opened from here on, and closed when the seat is dropped.
    #[must_use]
    pub fn open(&self, route: &Route, session: Session) -> Seat {
        let (seat, far) = seat::pair();
        self.0.spawn(driver::run(Arc::clone(&route.targets), session, far));
        seat
    }
}

/// The thread. Dropped, it ends all streams at once.
#[derive(Debug)]
pub struct BackendThread {
    handle: Backends,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl BackendThread {
    /// Starts it.
    ///
    /// # Errors
    /// The system has no thread, or no reactor.
    pub fn start() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = Backends(runtime.handle().clone());
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("backends".to_owned()).spawn(move || {
            // Either way it is over.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Where calls get their backends.
    #[must_use]
    pub fn backends(&self) -> Backends {
        self.handle.clone()
    }
}

impl Drop for BackendThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic was reported by the thread itself.
            let _ = thread.join();
        }
    }
}
