//! One deadline with the grain of the kernel's high-resolution clock.
//!
//! tokio's own timers round up to whole milliseconds; a pacer that sends every 20 ms and promises less
//! than 2 ms of error cannot afford that.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Instant;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A timer that holds one deadline, on the current tokio runtime.
///
/// All methods take `&self`, so that one task may wait while another one brings the deadline forward; the
/// type is for one thread (`!Sync`).
#[derive(Debug)]
pub struct DeadlineTimer {
    fd: AsyncFd<OwnedFd>,
    deadline: Cell<Option<Instant>>,
}

impl DeadlineTimer {
    /// A timer without a deadline, registered with the current runtime.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn new() -> io::Result<Self> {
        // SAFETY: `timerfd_create` takes two integers and touches no memory.
        let raw = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` was opened just above and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        // SAFETY: an `OwnedFd` yields one and the same open descriptor for as long as it lives.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
        Ok(Self { fd, deadline: Cell::new(None) })
    }

    /// Replaces the deadline. One that has passed makes [`wait`](Self::wait) return at once.
    pub fn set(&self, deadline: Instant) {
        if self.deadline.get() == Some(deadline) {
            return;
        }
        self.deadline.set(Some(deadline));
        self.arm(deadline);
    }

    /// Removes the deadline: [`wait`](Self::wait) then waits for the next [`set`](Self::set).
    pub fn clear(&self) {
        // The kernel's timer may stay armed: a wake-up without a deadline is ignored by `wait`.
        self.deadline.set(None);
    }

    /// The deadline that is set.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline.get()
    }

    /// Waits until the deadline has passed, removes it and returns it.
    ///
    /// Cancel safe: dropping the future keeps the deadline.
    pub async fn wait(&self) -> Instant {
        loop {
            if let Some(deadline) = self.deadline.get()
                && deadline <= Instant::now()
            {
                self.deadline.set(None);
                return deadline;
            }
            match self.fd.readable().await {
                // The expiration count is never read: registration is edge-triggered, and the kernel
                // reports each expiry, so clearing tokio's flag is enough and saves a system call.
                Ok(mut ready) => ready.clear_ready(),
                // The runtime is shutting down; there is nothing left to wake for.
                Err(_) => std::future::pending().await,
            }
        }
    }

    fn arm(&self, deadline: Instant) {
        let delay = deadline.saturating_duration_since(Instant::now());
        // A zero delay would disarm the timer; `wait` looks at the clock first, so 1 ns is not late.
        let nanos = if delay.is_zero() { 1 } else { i64::from(delay.subsec_nanos()) };
        let spec = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec { tv_sec: i64::try_from(delay.as_secs()).unwrap_or(i64::MAX), tv_nsec: nanos },
        };
        // SAFETY: `spec` outlives the call, the descriptor is ours, and a null old value is allowed.
        let result =
            unsafe { libc::timerfd_settime(self.fd.get_ref().as_raw_fd(), 0, &raw const spec, ptr::null_mut()) };
        debug_assert_eq!(result, 0, "timerfd_settime refuses only malformed arguments");
    }
}
