//! A model of the operator's that judges from the sound whether a turn is over, for calls with `semantic_vad`.
//!
//! Run loop: each call has a seat ([`Judges::seat`]), which keeps the last of the turn's audio. When the user pauses, the media thread
//! leaves a question at the call's desk and goes on; a thread of the judge's takes desk by desk ([`desk`]), lets the model look
//! ([`model`]) and leaves the answer there, where the media thread finds it.
//!
//! Invariant: the media thread waits for nothing here. A model that is slow, wrong or gone costs answers, which are counted; turns
//! then end by silence alone, as without a model.

mod desk;
mod mel;
mod model;
mod recent;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use daemon::StartError;
use metrics::{counter, describe_counter, describe_histogram};

use crate::config::TurnEndConfig;
use desk::{Seat, Shared, Took};
use model::OnnxModel;

pub use desk::Totals;

/// What looks at the audio of a turn.
trait Model: Send {
    /// The probability that the turn is over whose last audio this is.
    ///
    /// # Errors
    /// Why there is none.
    fn judge(&mut self, audio: &Audio) -> Result<f32, String>;
}

/// The last audio of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Audio {
    /// Mono.
    pcm: Vec<i16>,
    /// Samples per second.
    rate: u32,
}

/// Where calls get their seats; clones are the same.
#[derive(Debug, Clone)]
pub struct Judges(Arc<Shared>);

impl PartialEq for Judges {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Judges {
    /// A judge for one call.
    #[must_use]
    pub fn seat(&self) -> Box<dyn voice::Judge> {
        Box::new(Seat::new(Arc::clone(&self.0)))
    }

    /// What was asked so far, and what became of it.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.0.totals()
    }
}

/// The thread of a model. Dropped, it ends with the question that it is at.
#[derive(Debug)]
pub struct JudgeThread {
    judges: Judges,
    thread: Option<JoinHandle<()>>,
}

impl JudgeThread {
    /// Loads the model, looks whether it takes and gives what it should, and starts the thread. `None`: no model is configured.
    ///
    /// # Errors
    /// A library or a model that cannot be used: which key, why, and what to do.
    pub fn start(config: &TurnEndConfig) -> Result<Option<Self>, StartError> {
        if config.model.is_empty() {
            return Ok(None);
        }
        let model = OnnxModel::load(config)?;
        let shared = Arc::new(Shared::new(model.window(), model.look()));
        Self::of(shared, Box::new(model)).map(Some)
    }

    fn of(shared: Arc<Shared>, mut model: Box<dyn Model>) -> Result<Self, StartError> {
        describe();
        let judges = Judges(shared);
        let shared = Arc::clone(&judges.0);
        let thread = std::thread::Builder::new()
            .name("judge".to_owned())
            .spawn(move || run(&shared, &mut *model))
            .map_err(|error| StartError::failed("starting the thread of the turn-end model", error))?;
        judges.0.attend(thread.thread().clone());
        Ok(Self { judges, thread: Some(thread) })
    }

    /// Where calls get their seats.
    #[must_use]
    pub fn judges(&self) -> Judges {
        self.judges.clone()
    }
}

impl Drop for JudgeThread {
    fn drop(&mut self) {
        self.judges.0.stop();
        if let Some(thread) = self.thread.take() {
            // A panic was reported by the thread itself; turns end by silence since.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, model: &mut dyn Model) {
    let mut failing = false;
    while !shared.stopping.load(Ordering::Acquire) {
        let Some(took) = shared.answer_one(model) else {
            publish(&shared.totals());
            // Also when a question came after the look into the queue: its unpark is remembered.
            std::thread::park();
            continue;
        };
        if let Took::Looked { queue, model, failed } = took {
            for (part, duration) in [("queue", queue), ("model", model)] {
                metrics::histogram!("fronthaul_transceiver_turn_end_seconds", "part" => part).record(duration);
            }
            // One line when it begins to fail, one when it works again.
            match (&failed, std::mem::replace(&mut failing, failed.is_some())) {
                (Some(reason), false) => tracing::warn!(%reason, "the turn-end model fails: turns end by silence"),
                (None, true) => tracing::info!("the turn-end model answers again"),
                _ => {}
            }
        }
        publish(&shared.totals());
    }
}

fn publish(totals: &Totals) {
    for (result, count) in [
        ("asked", totals.asked),
        ("answered", totals.answered),
        ("late", totals.late),
        ("dropped", totals.dropped),
        ("failed", totals.failed),
    ] {
        counter!("fronthaul_transceiver_turn_end_questions_total", "result" => result).absolute(count);
    }
}

fn describe() {
    describe_counter!(
        "fronthaul_transceiver_turn_end_questions_total",
        "Pauses the turn-end model was asked about, by result"
    );
    describe_histogram!(
        "fronthaul_transceiver_turn_end_seconds",
        metrics::Unit::Seconds,
        "What an answer of the turn-end model took, by part"
    );
}

#[cfg(test)]
mod tests;
