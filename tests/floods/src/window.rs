//! Stretches of talk, and what was measured in them.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::caller::{Caller, Heard};
use crate::edge::Edge;
use crate::say;

/// Calls of one edge that talk at the same time.
pub(crate) struct Callers {
    callers: Vec<Caller>,
    pub(crate) heard: Rc<RefCell<Heard>>,
}

impl Callers {
    pub(crate) async fn connect(edge: &Edge, count: usize) -> anyhow::Result<Self> {
        let heard = Rc::new(RefCell::new(Heard::default()));
        let mut callers = Vec::new();
        for _ in 0..count {
            callers.push(Caller::connect(&edge.http, Rc::clone(&heard)).await?);
        }
        Ok(Self { callers, heard })
    }

    /// The first check that one of them sent.
    pub(crate) fn first_check(&self) -> Option<&[u8]> {
        self.callers.first().map(|caller| &*caller.first_check)
    }

    /// Everybody talks for `time`.
    pub(crate) async fn talk(&mut self, time: Duration) -> anyhow::Result<Window> {
        {
            let mut heard = self.heard.borrow_mut();
            heard.round_trips.clear();
            heard.sent = 0;
        }
        let until = Instant::now() + time;
        let mut talking = JoinSet::new();
        for mut caller in self.callers.drain(..) {
            talking.spawn_local(async move {
                caller.talk(until).await?;
                caller.hear_out().await?;
                anyhow::Ok(caller)
            });
        }
        while let Some(done) = talking.join_next().await {
            self.callers.push(done??);
        }
        let mut heard = self.heard.borrow_mut();
        heard.round_trips.sort_unstable();
        Ok(Window { sent: heard.sent, round_trips: std::mem::take(&mut heard.round_trips) })
    }
}

/// What was measured in one stretch of time.
#[derive(Default)]
pub(crate) struct Window {
    sent: u64,
    /// Microseconds, sorted.
    round_trips: Vec<u32>,
}

impl Window {
    /// All of `windows` as one.
    pub(crate) fn joined<'a>(windows: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = Self::default();
        for window in windows {
            all.sent += window.sent;
            all.round_trips.extend(&window.round_trips);
        }
        all.round_trips.sort_unstable();
        all
    }

    /// Microseconds.
    pub(crate) fn percentile(&self, hundredths: usize) -> f64 {
        let at = self.round_trips.len() * hundredths / 10_000;
        self.round_trips.get(at.min(self.round_trips.len().saturating_sub(1))).copied().map_or(f64::INFINITY, f64::from)
    }

    pub(crate) fn lost(&self) -> u64 {
        self.sent.saturating_sub(u64::try_from(self.round_trips.len()).unwrap_or(u64::MAX))
    }

    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    pub(crate) fn lost_percent(&self) -> f64 {
        self.lost() as f64 / self.sent.max(1) as f64 * 100.0
    }

    pub(crate) fn say(&self, name: &str) {
        say(format_args!(
            "{name:<20} {:>8} frames, lost {:.3} %, round trip p50 {:.0} us, p95 {:.0}, p99 {:.0}, p99.9 {:.0}",
            self.sent,
            self.lost_percent(),
            self.percentile(5000),
            self.percentile(9500),
            self.percentile(9900),
            self.percentile(9990),
        ));
    }
}

/// By how much p99 of the second of each pair is above that of the first, in ms: the median pair.
pub(crate) fn moved<'a>(pairs: impl IntoIterator<Item = (&'a Window, &'a Window)>) -> f64 {
    let mut moves: Vec<f64> =
        pairs.into_iter().map(|(from, to)| (to.percentile(9900) - from.percentile(9900)) / 1000.0).collect();
    moves.sort_by(f64::total_cmp);
    say(format_args!("p99 moved by {} ms", moves.iter().map(|ms| format!("{ms:.2}")).collect::<Vec<_>>().join(", ")));
    moves.get(moves.len() / 2).copied().unwrap_or(f64::INFINITY)
}

/// The edge is pinned to the first core by itself; this moves over.
pub(crate) fn leave_the_edges_core() {
    if let Some(core) = net::pin::cores().get(1) {
        let _ = net::pin::current_thread_to(*core);
    }
}
