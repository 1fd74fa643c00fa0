//! Questions and answers between media threads and the judge's, without a lock.
//!
//! Each call has a desk with room for one question and one answer. A question that lies there is replaced by a newer one; a desk
//! with a question waits in the queue, once.
//!
//! Invariant: a desk is in the queue (or just taken from it) exactly while a question lies on it. The media thread leaves the question
//! before it sends the desk, and the judge takes the desk before the question.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;

use super::recent::Recent;
use super::{Audio, Model};

/// What a question is good for: it is asked after 200 ms of silence, and `semantic_vad` of medium eagerness waits for 600 ms. Were more
/// let in, all would be answered a little too late.
pub(super) const PATIENCE: Duration = Duration::from_millis(400);

/// Most desks that wait. Each question holds what the model looks at, 250 KiB usually: 8 MiB in all.
const QUEUE: usize = 32;

/// No question is of this number.
const NONE: u32 = 0;

/// What all calls of a process share.
#[derive(Debug)]
pub(super) struct Shared {
    /// What the model looks at, in samples at 16 kHz.
    window: usize,
    waiting: ArrayQueue<Arc<Desk>>,
    judge: OnceLock<Thread>,
    pub(super) stopping: AtomicBool,
    counts: Counts,
}

/// One call's.
#[derive(Debug)]
struct Desk {
    question: ArrayQueue<Question>,
    /// The question whose answer is wanted; [`NONE`]: the user speaks on, or the turn is over.
    wanted: AtomicU32,
    /// The question's number, and the bits of the probability.
    answer: AtomicU64,
}

#[derive(Debug)]
struct Question {
    number: u32,
    asked: Instant,
    audio: Audio,
}

#[derive(Debug, Default)]
struct Counts {
    asked: AtomicU64,
    answered: AtomicU64,
    late: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

/// Questions so far, and what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// All of them.
    pub asked: u64,
    /// In time.
    pub answered: u64,
    /// The user spoke on, or the turn was over, before the model had looked.
    pub late: u64,
    /// Too many calls waited.
    pub dropped: u64,
    /// The model failed, or its number is no probability.
    pub failed: u64,
}

impl Totals {
    /// Questions that are not done with.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.asked.saturating_sub(self.answered + self.late + self.dropped + self.failed)
    }
}

/// What became of a desk that was taken from the queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Took {
    /// Nobody wanted to know any more.
    Nothing,
    /// The model looked.
    Looked {
        /// From the question to that.
        queue: Duration,
        /// What it took.
        model: Duration,
        /// Why there is no answer.
        failed: Option<String>,
    },
}

impl Shared {
    /// `window`: what the model looks at, in samples at 16 kHz; `look`: how long it takes.
    pub(super) fn new(window: usize, look: Duration) -> Self {
        Self {
            window,
            waiting: ArrayQueue::new(places(look)),
            judge: OnceLock::new(),
            stopping: AtomicBool::new(false),
            counts: Counts::default(),
        }
    }

    /// Who is told of questions from here on. What lies there already is looked at, too.
    pub(super) fn attend(&self, judge: Thread) {
        self.judge.get_or_init(|| judge).unpark();
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake();
    }

    /// Deals with the desk that has waited longest. `None`: none waits.
    pub(super) fn answer_one(&self, model: &mut dyn Model) -> Option<Took> {
        let desk = self.waiting.pop()?;
        let question = desk.question.pop()?;
        let wanted = || desk.wanted.load(Ordering::Acquire) == question.number;
        if !wanted() {
            count(&self.counts.late);
            return Some(Took::Nothing);
        }
        let begun = Instant::now();
        let answer = model.judge(&question.audio);
        let took = begun.elapsed();
        let failed = match answer {
            Ok(probability) if wanted() => {
                desk.answer.store(packed(question.number, probability), Ordering::Release);
                count(&self.counts.answered);
                None
            }
            Ok(_) => {
                count(&self.counts.late);
                None
            }
            Err(reason) => {
                count(&self.counts.failed);
                Some(reason)
            }
        };
        Some(Took::Looked { queue: begun.saturating_duration_since(question.asked), model: took, failed })
    }

    pub(super) fn totals(&self) -> Totals {
        // What became of questions before how many there were: none is missing in between.
        let of = |count: &AtomicU64| count.load(Ordering::Acquire);
        let (answered, late) = (of(&self.counts.answered), of(&self.counts.late));
        let (dropped, failed) = (of(&self.counts.dropped), of(&self.counts.failed));
        Totals { asked: of(&self.counts.asked), answered, late, dropped, failed }
    }

    fn wake(&self) {
        if let Some(judge) = self.judge.get() {
            judge.unpark();
        }
    }
}

/// One call's judge.
#[derive(Debug)]
pub(super) struct Seat {
    shared: Arc<Shared>,
    desk: Arc<Desk>,
    recent: Recent,
    /// Of the last question.
    number: u32,
}

impl Seat {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let desk = Desk {
            question: ArrayQueue::new(1),
            wanted: AtomicU32::new(NONE),
            answer: AtomicU64::new(packed(NONE, 0.0)),
        };
        let recent = Recent::new(shared.window);
        Self { shared, desk: Arc::new(desk), recent, number: NONE }
    }

    fn forget(&self) {
        self.desk.wanted.store(NONE, Ordering::Release);
    }
}

impl voice::Judge for Seat {
    fn hear(&mut self, pcm: &[i16], rate: u32) {
        self.recent.hear(pcm, rate);
    }

    /// Copies the audio, 250 KiB at most usually: some 50 us, once in a pause.
    fn ask(&mut self) {
        self.number = self.number.wrapping_add(1).max(NONE + 1);
        self.desk.wanted.store(self.number, Ordering::Release);
        count(&self.shared.counts.asked);
        let question = Question { number: self.number, asked: Instant::now(), audio: self.recent.audio() };
        if self.desk.question.force_push(question).is_some() {
            // The desk waits already.
            count(&self.shared.counts.late);
        } else if self.shared.waiting.push(Arc::clone(&self.desk)).is_ok() {
            self.shared.wake();
        } else {
            self.desk.question.pop();
            self.forget();
            count(&self.shared.counts.dropped);
        }
    }

    fn resume(&mut self, fresh: bool) {
        self.forget();
        if fresh {
            self.recent.clear();
        }
    }

    fn poll(&mut self) -> Option<f32> {
        let wanted = self.desk.wanted.load(Ordering::Relaxed);
        let (number, probability) = unpacked(self.desk.answer.load(Ordering::Acquire));
        if wanted == NONE || number != wanted {
            return None;
        }
        self.forget();
        Some(probability)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.forget();
    }
}

/// Desks that may wait for a model that takes so long for each: those that it is through with in time.
fn places(look: Duration) -> usize {
    let places = PATIENCE.as_micros() / look.as_micros().max(1);
    usize::try_from(places).unwrap_or(QUEUE).clamp(1, QUEUE)
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::AcqRel);
}

fn packed(number: u32, probability: f32) -> u64 {
    u64::from(number) << 32 | u64::from(probability.to_bits())
}

fn unpacked(answer: u64) -> (u32, f32) {
    #[expect(clippy::cast_possible_truncation, reason = "the halves of 64 bits")]
    let (number, bits) = ((answer >> 32) as u32, answer as u32);
    (number, f32::from_bits(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_desks_wait_as_the_model_is_through_with_in_time() {
        let places = |ms| places(Duration::from_millis(ms));
        assert_eq!([0, 12, 44, 200, 399, 2000].map(places), [32, 32, 9, 2, 1, 1]);
    }
}
