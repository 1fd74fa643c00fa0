//! Questions, answers and what becomes of those that are not wanted any more. The model is stood in for.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use voice::Judge as _;

use super::*;

/// The probability is the first sample in thousandths.
#[derive(Default)]
struct Fake {
    seen: Vec<Audio>,
}

impl Model for Fake {
    fn judge(&mut self, audio: &Audio) -> Result<f32, String> {
        self.seen.push(audio.clone());
        let first = audio.pcm.first().copied().ok_or("nothing to look at")?;
        Ok(f32::from(first) / 1000.0)
    }
}

fn shared() -> Arc<Shared> {
    Arc::new(Shared::new(4, Duration::from_millis(12)))
}

fn seat(shared: &Arc<Shared>) -> Seat {
    Seat::new(Arc::clone(shared))
}

/// A seat whose turn sounds like this, and that asks.
fn asking(shared: &Arc<Shared>, first: i16) -> Seat {
    let mut seat = seat(shared);
    seat.resume(true);
    seat.hear(&[first, 0], 16_000);
    seat.ask();
    seat
}

/// Deals with all that waits: whether the model looked, desk by desk.
fn answer_all(shared: &Shared, model: &mut dyn Model) -> Vec<bool> {
    std::iter::from_fn(|| shared.answer_one(model)).map(|took| took != Took::Nothing).collect()
}

#[test]
fn a_question_about_the_turns_audio_is_answered_once() {
    let (shared, mut model) = (shared(), Fake::default());
    let mut seat = asking(&shared, 700);
    assert_eq!(seat.poll(), None);
    assert_eq!(answer_all(&shared, &mut model), [true]);
    assert_eq!(model.seen, [Audio { pcm: vec![700, 0], rate: 16_000 }]);
    assert_eq!([seat.poll(), seat.poll()], [Some(0.7), None]);
    assert_eq!(shared.totals(), Totals { asked: 1, answered: 1, ..Totals::default() });
}

#[test]
fn each_call_has_its_own_answer() {
    let (shared, mut model) = (shared(), Fake::default());
    let mut seats: Vec<Seat> = [100, 200, 300].map(|first| asking(&shared, first)).into();
    answer_all(&shared, &mut model);
    assert_eq!(seats.iter_mut().map(|seat| seat.poll()).collect::<Vec<_>>(), [Some(0.1), Some(0.2), Some(0.3)]);
}

#[test]
fn a_pause_in_the_turn_keeps_what_was_heard_and_another_turn_forgets_it() {
    let (shared, mut model) = (shared(), Fake::default());
    let mut seat = asking(&shared, 1);
    seat.resume(false);
    seat.hear(&[2], 16_000);
    seat.ask();
    answer_all(&shared, &mut model);
    seat.resume(true);
    seat.hear(&[3], 16_000);
    seat.ask();
    answer_all(&shared, &mut model);
    let pcm: Vec<&[i16]> = model.seen.iter().map(|audio| &audio.pcm[..]).collect();
    assert_eq!(pcm, [&[1, 0, 2][..], &[3]]);
}

#[test]
fn the_user_who_speaks_on_wants_no_answer() {
    let (shared, mut model) = (shared(), Fake::default());
    let mut seat = asking(&shared, 700);
    seat.resume(false);
    assert_eq!(answer_all(&shared, &mut model), [false]);
    assert_eq!(seat.poll(), None);
    assert_eq!(shared.totals(), Totals { asked: 1, late: 1, ..Totals::default() });
}

/// The user speaks on while it looks.
struct Slow(Arc<Mutex<Seat>>);

impl Model for Slow {
    fn judge(&mut self, _: &Audio) -> Result<f32, String> {
        self.0.lock().unwrap().resume(false);
        Ok(1.0)
    }
}

#[test]
fn an_answer_to_who_spoke_on_meanwhile_is_dropped_and_does_not_answer_the_next_question() {
    let shared = shared();
    let seat = Arc::new(Mutex::new(asking(&shared, 700)));
    assert_eq!(answer_all(&shared, &mut Slow(Arc::clone(&seat))), [true]);
    let mut seat = seat.lock().unwrap();
    assert_eq!(seat.poll(), None);
    seat.ask();
    assert_eq!(seat.poll(), None);
    assert_eq!(shared.totals(), Totals { asked: 2, late: 1, ..Totals::default() });
}

#[test]
fn a_calls_newer_question_takes_the_place_of_its_older() {
    let (shared, mut model) = (shared(), Fake::default());
    let mut seat = asking(&shared, 100);
    let mut other = asking(&shared, 300);
    seat.resume(true);
    seat.hear(&[200], 16_000);
    seat.ask();
    assert_eq!(answer_all(&shared, &mut model), [true, true]);
    assert_eq!([seat.poll(), other.poll()], [Some(0.2), Some(0.3)]);
    assert_eq!(shared.totals(), Totals { asked: 3, answered: 2, late: 1, ..Totals::default() });
}

#[test]
fn beyond_the_bound_questions_are_dropped_and_asked_again_in_the_next_pause() {
    let (shared, mut model) = (shared(), Fake::default());
    let mut seats: Vec<Seat> = (0..40).map(|first| asking(&shared, first)).collect();
    assert_eq!(shared.totals(), Totals { asked: 40, dropped: 8, ..Totals::default() });
    assert_eq!(answer_all(&shared, &mut model).len(), 32);
    assert_eq!(seats.iter_mut().filter_map(|seat| seat.poll()).count(), 32);
    let last = seats.last_mut().unwrap();
    last.resume(false);
    last.ask();
    answer_all(&shared, &mut model);
    assert_eq!(last.poll(), Some(0.039));
    assert_eq!(shared.totals(), Totals { asked: 41, answered: 33, dropped: 8, ..Totals::default() });
}

#[test]
fn a_call_that_is_over_is_not_looked_at() {
    let (shared, mut model) = (shared(), Fake::default());
    drop(asking(&shared, 700));
    assert_eq!(answer_all(&shared, &mut model), [false]);
    assert_eq!(model.seen, []);
}

#[test]
fn a_model_that_fails_gives_no_answer() {
    let (shared, mut model) = (shared(), Fake::default());
    let mut seat = seat(&shared);
    seat.ask();
    let Some(Took::Looked { failed: Some(reason), .. }) = shared.answer_one(&mut model) else { panic!("it answered") };
    assert_eq!(reason, "nothing to look at");
    assert_eq!(seat.poll(), None);
    assert_eq!(shared.totals(), Totals { asked: 1, failed: 1, ..Totals::default() });
}

/// Counts those that are dropped: the thread owns it.
struct Owned(Arc<AtomicUsize>);

impl Model for Owned {
    fn judge(&mut self, _: &Audio) -> Result<f32, String> {
        Ok(1.0)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

#[test]
fn the_thread_sleeps_until_it_is_asked_and_ends_with_its_owner() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let judge = JudgeThread::of(shared(), Box::new(Owned(Arc::clone(&dropped)))).unwrap();
    let judges = judge.judges();
    let mut seat = judges.seat();
    for asked in 1..=3 {
        seat.ask();
        let begun = Instant::now();
        while judges.totals().answered < asked {
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", judges.totals());
            std::thread::yield_now();
        }
        assert_eq!(seat.poll(), Some(1.0));
    }
    drop(judge);
    assert_eq!(dropped.load(Ordering::Acquire), 1);
    // Calls that are still there ask nobody.
    seat.ask();
    assert_eq!((seat.poll(), judges.totals().open()), (None, 1));
}

/// Says what the last sample says, in thousandths.
struct Last;

impl Model for Last {
    fn judge(&mut self, audio: &Audio) -> Result<f32, String> {
        audio.pcm.last().map(|last| f32::from(*last)).ok_or_else(|| "nothing".to_owned())
    }
}

#[test]
fn media_threads_that_ask_at_once_get_answers_to_their_last_question_alone_and_none_is_lost_count_of() {
    let judge = JudgeThread::of(shared(), Box::new(Last)).unwrap();
    let judges = judge.judges();
    std::thread::scope(|scope| {
        for call in 0..4_i16 {
            let mut seat = judges.seat();
            scope.spawn(move || {
                for question in 0..5000_i16 {
                    let said = call * 5000 + question;
                    seat.resume(false);
                    seat.hear(&[said], 16_000);
                    seat.ask();
                    // Some wait for the answer a while, some speak on at once.
                    for _ in 0..(question % 7) * 100 {
                        if let Some(answer) = seat.poll() {
                            assert_eq!(answer, f32::from(said));
                        }
                        std::hint::spin_loop();
                    }
                }
            });
        }
    });
    let begun = Instant::now();
    while judges.totals().open() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", judges.totals());
        std::thread::yield_now();
    }
    let totals = judges.totals();
    assert_eq!(totals.asked, 20_000);
    assert_eq!(totals.answered + totals.late, 20_000, "{totals:?}");
}
