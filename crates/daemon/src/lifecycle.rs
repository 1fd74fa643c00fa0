//! The phases of a daemon's life, and what it waits for before it is ready.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Where a daemon is in its life. Phases only go forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Ports are being bound and links dialed.
    Starting,
    /// Everything that was started runs. Whether traffic is welcome is [`Lifecycle::readiness`].
    Ready,
    /// Told to stop: new sessions are refused, those that run are ended in order.
    Draining,
    /// Nothing runs any more.
    Stopped,
}

/// The phase of this process and the conditions of its readiness; clones are the same.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    phase: watch::Sender<Phase>,
    conditions: Mutex<Vec<State>>,
}

#[derive(Debug)]
struct State {
    name: String,
    /// Why it is not met.
    unmet: Option<String>,
}

/// Something that must hold for the daemon to be ready, such as a link; not met when it is made.
#[derive(Debug)]
pub struct Condition {
    shared: Arc<Shared>,
    index: usize,
}

impl Lifecycle {
    /// A daemon that is starting.
    pub fn new() -> Self {
        let shared = Shared { phase: watch::Sender::new(Phase::Starting), conditions: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// The phase.
    pub fn phase(&self) -> Phase {
        *self.shared.phase.borrow()
    }

    /// A view on the phase that can be waited on.
    pub fn watch(&self) -> watch::Receiver<Phase> {
        self.shared.phase.subscribe()
    }

    /// Waits until the phase is `phase` or a later one.
    pub async fn reached(&self, phase: Phase) {
        // It fails only when the sender is gone, and `self` holds it.
        let _ = self.watch().wait_for(|now| *now >= phase).await;
    }

    /// Moves on to `phase`; false when the daemon was there or beyond.
    pub fn advance(&self, phase: Phase) -> bool {
        self.shared.phase.send_if_modified(|now| {
            let forward = phase > *now;
            if forward {
                *now = phase;
            }
            forward
        })
    }

    /// Adds a condition of readiness; `/readyz` shows its name while it is not met.
    pub fn condition(&self, name: impl Into<String>) -> Condition {
        let mut conditions = self.shared.conditions();
        conditions.push(State { name: name.into(), unmet: Some("not yet".to_owned()) });
        Condition { shared: Arc::clone(&self.shared), index: conditions.len() - 1 }
    }

    /// Whether traffic is welcome, else why not.
    ///
    /// # Errors
    ///
    /// The phase, or the conditions that are not met.
    pub fn readiness(&self) -> Result<(), String> {
        match self.phase() {
            Phase::Starting => return Err("starting".to_owned()),
            Phase::Ready => {}
            Phase::Draining => return Err("draining".to_owned()),
            Phase::Stopped => return Err("stopped".to_owned()),
        }
        let unmet: Vec<String> = self
            .shared
            .conditions()
            .iter()
            .filter_map(|state| state.unmet.as_ref().map(|reason| format!("{}: {reason}", state.name)))
            .collect();
        if unmet.is_empty() { Ok(()) } else { Err(unmet.join("\n")) }
    }

    /// Drains on the first SIGTERM or SIGINT, ignores the second, ends the process with the third.
    ///
    /// An impatient second Ctrl-C, or a supervisor that repeats itself, must not cost the calls that are
    /// being ended in order; the third is meant.
    ///
    /// Runs until the process ends: spawn it.
    ///
    /// # Errors
    ///
    /// When the kernel refuses a signal handler.
    pub async fn drain_on_signals(self) -> std::io::Result<()> {
        const IMPATIENT: u32 = 3;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        for count in 1.. {
            let name = either(&mut terminate, &mut interrupt).await;
            if count >= IMPATIENT {
                tracing::warn!(signal = name, "third signal: ending at once");
                std::process::exit(i32::from(crate::StartError::EXIT_FAILURE));
            }
            if self.advance(Phase::Draining) {
                tracing::info!(signal = name, "draining");
            } else {
                tracing::info!(signal = name, "already draining; a third signal ends the process at once");
            }
        }
        Ok(())
    }
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self::new()
    }
}

impl Condition {
    /// It holds.
    pub fn met(&self) {
        self.set(None);
    }

    /// It does not hold, and why.
    pub fn unmet(&self, reason: impl Into<String>) {
        self.set(Some(reason.into()));
    }

    fn set(&self, unmet: Option<String>) {
        if let Some(state) = self.shared.conditions().get_mut(self.index) {
            state.unmet = unmet;
        }
    }
}

impl Shared {
    fn conditions(&self) -> MutexGuard<'_, Vec<State>> {
        // A panic elsewhere leaves no half-written state behind: each change is one assignment.
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_only_go_forward() {
        let life = Lifecycle::new();
        assert!(life.advance(Phase::Draining));
        assert!(!life.advance(Phase::Ready));
        assert!(!life.advance(Phase::Draining));
        assert_eq!(life.phase(), Phase::Draining);
    }

    #[test]
    fn readiness_waits_for_the_phase_and_for_every_condition() {
        let life = Lifecycle::new();
        let (link, seats) = (life.condition("link to transceiver 1"), life.condition("seats"));
        assert_eq!(life.readiness(), Err("starting".to_owned()));
        life.advance(Phase::Ready);
        assert_eq!(life.readiness(), Err("link to transceiver 1: not yet\nseats: not yet".to_owned()));
        seats.met();
        link.unmet("connection refused");
        assert_eq!(life.readiness(), Err("link to transceiver 1: connection refused".to_owned()));
        link.met();
        assert_eq!(life.readiness(), Ok(()));
        life.advance(Phase::Draining);
        assert_eq!(life.readiness(), Err("draining".to_owned()));
    }

    #[tokio::test]
    async fn a_later_phase_counts_as_reached() {
        let life = Lifecycle::new();
        life.advance(Phase::Stopped);
        life.reached(Phase::Ready).await;
    }
}
