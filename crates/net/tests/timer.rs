//! The deadline timer on the real clock.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step is a failed test")]

use std::rc::Rc;
use std::time::{Duration, Instant};

use net::DeadlineTimer;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn waiting_never_ends_early_and_mostly_ends_within_a_millisecond() {
    let timer = DeadlineTimer::new().unwrap();
    let mut late = Vec::new();
    for _ in 0..100 {
        let deadline = Instant::now() + Duration::from_micros(1300);
        timer.set(deadline);
        assert_eq!(timer.wait().await, deadline);
        late.push(Instant::now().checked_duration_since(deadline).expect("woke before the deadline"));
    }
    late.sort();
    // The best half: other processes of the machine may delay any single wake-up, while a timer with a grain
    // of 1 ms would be late by 0.7 ms each time.
    assert!(late[50] < Duration::from_micros(600), "median {:?}", late[50]);
}

#[tokio::test]
async fn a_deadline_that_has_passed_ends_the_wait_at_once() {
    let timer = DeadlineTimer::new().unwrap();
    let past = Instant::now() - Duration::from_secs(1);
    timer.set(past);
    assert_eq!(timeout(LONG, timer.wait()).await.unwrap(), past);
    assert_eq!(timer.deadline(), None);
}

#[tokio::test]
async fn another_task_may_bring_the_deadline_forward() {
    let timer = Rc::new(DeadlineTimer::new().unwrap());
    let earlier = Instant::now() + Duration::from_millis(5);
    timer.set(Instant::now() + LONG);
    let set = async {
        tokio::task::yield_now().await;
        timer.set(earlier);
    };
    let (woke, ()) = timeout(LONG, async { tokio::join!(timer.wait(), set) }).await.unwrap();
    assert_eq!(woke, earlier);
}

#[tokio::test]
async fn a_deadline_moved_back_or_cleared_does_not_wake() {
    let timer = DeadlineTimer::new().unwrap();
    timer.set(Instant::now() + Duration::from_millis(1));
    timer.set(Instant::now() + LONG);
    assert!(timeout(Duration::from_millis(20), timer.wait()).await.is_err());
    timer.set(Instant::now() + Duration::from_millis(1));
    timer.clear();
    assert!(timeout(Duration::from_millis(20), timer.wait()).await.is_err());

    let again = Instant::now() + Duration::from_millis(1);
    timer.set(again);
    assert_eq!(timeout(LONG, timer.wait()).await.unwrap(), again);
}
