//! How long a busy worker leaves its socket alone, so that datagrams come in batches.
//!
//! At one datagram per wake-up the wake-up is what costs: leaving epoll, one recvmmsg and one sendmmsg for a datagram each are
//! three times the work on the datagram itself. Network cards answer the same problem with interrupt moderation, and so does
//! this: when datagrams come closer together than [`BUSY`], the worker sleeps for a few of them at a time. A quiet worker
//! never waits, and a worker that is behind finds full batches anyway.
//!
//! The sleep blocks the thread, with everything else on it; that bounds it to some 100 us.

use std::time::{Duration, Instant};

/// Datagrams that come further apart than this are handled one by one: 25,000 per second.
const BUSY: Duration = Duration::from_micros(40);

/// Datagrams to wait for.
const WANTED: u32 = 8;

/// Batches over which the rate is averaged.
const MEMORY: u32 = 16;

/// Shorter than this is not worth a system call.
const LEAST: Duration = Duration::from_micros(20);

/// The policy of one worker; the clock is an argument.
#[derive(Debug, Clone)]
pub struct Moderation {
    most: Duration,
    last: Instant,
    /// Mean time between two datagrams.
    spacing: Duration,
}

impl Moderation {
    /// One that waits for `most` at most; zero never waits.
    #[must_use]
    pub fn new(now: Instant, most: Duration) -> Self {
        Self { most, last: now, spacing: 2 * BUSY }
    }

    /// A batch of `count` datagrams was received `now`: until when to leave the socket alone.
    pub fn received(&mut self, now: Instant, count: usize) -> Option<Instant> {
        let count = u32::try_from(count).ok().filter(|count| *count > 0)?;
        // A pause says that it was a pause, not how the datagrams after it will come.
        let spacing = (now.saturating_duration_since(self.last) / count).min(4 * BUSY);
        self.last = now;
        // Weighed by datagrams, or one large batch would count for less than the gap behind it.
        let weight = count.min(MEMORY);
        self.spacing = (self.spacing * (MEMORY - weight) + spacing * weight) / MEMORY;
        if self.spacing > BUSY {
            return None;
        }
        let hold = (self.spacing * WANTED).min(self.most);
        (hold >= LEAST).then(|| now + hold)
    }
}

/// Has the kernel wake the calling thread when a sleep ends, not up to 50 us later to save a wake-up.
pub fn precise_sleep() {
    const SLACK_NANOS: libc::c_ulong = 1_000;
    // SAFETY: `PR_SET_TIMERSLACK` takes a number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NANOS) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_micros(100);

    fn steady(moderation: &mut Moderation, from: Instant, spacing: Duration, batch: u32) -> Option<Duration> {
        let mut now = from;
        let mut until = None;
        for _ in 0..100 {
            now += spacing * batch;
            until = moderation.received(now, batch as usize);
        }
        until.map(|until| until - now)
    }

    #[test]
    fn two_hundred_calls_never_wait() {
        let now = Instant::now();
        let spacing = Duration::from_micros(100);
        assert_eq!(steady(&mut Moderation::new(now, MOST), now, spacing, 1), None);
    }

    #[test]
    fn a_thousand_calls_wait_for_the_bound_and_four_thousand_for_eight_datagrams() {
        let now = Instant::now();
        let thousand = Duration::from_micros(20);
        assert_eq!(steady(&mut Moderation::new(now, MOST), now, thousand, 1), Some(MOST));
        assert_eq!(
            steady(&mut Moderation::new(now, MOST), now, thousand, 5),
            Some(MOST),
            "also once they come in batches"
        );
        let four_thousand = Duration::from_micros(5);
        assert_eq!(steady(&mut Moderation::new(now, MOST), now, four_thousand, 8), Some(Duration::from_micros(40)));
    }

    #[test]
    fn a_worker_at_its_limit_does_not_wait() {
        let now = Instant::now();
        assert_eq!(steady(&mut Moderation::new(now, MOST), now, Duration::from_micros(2), 64), None);
    }

    #[test]
    fn zero_turns_it_off() {
        let now = Instant::now();
        assert_eq!(steady(&mut Moderation::new(now, Duration::ZERO), now, Duration::from_micros(20), 1), None);
    }

    #[test]
    fn after_a_pause_the_first_datagrams_are_handled_at_once() {
        let now = Instant::now();
        let mut moderation = Moderation::new(now, MOST);
        steady(&mut moderation, now, Duration::from_micros(20), 5);
        let mut later = now + Duration::from_secs(5);
        let waits = (0..20).filter(|_| {
            later += Duration::from_millis(1);
            moderation.received(later, 1).is_some()
        });
        assert!(waits.count() <= 3);
    }
}
