//! The pacer over an hour, its driver late and once frozen.

use super::*;

/// Plays for an hour with a driver that wakes up `late` after each deadline and freezes for 5 s in the middle. The largest
/// distance of a packet from its place on the media clock, the shortest time between two packets, and frames sent.
fn hour(late: Duration) -> (Duration, Duration, u64) {
    let begin = Instant::now();
    let mut playout = Playout::new(begin);
    playout.start(begin, 1, 0);
    let freeze = begin + Duration::from_secs(1800);
    let end = begin + Duration::from_secs(3600);
    let (mut now, mut frozen, mut payload) = (begin, false, Vec::new());
    let (mut drift, mut shortest, mut before) = (Duration::ZERO, Duration::MAX, None);
    // What the transceiver has sent: up to the credit, as the reports give it.
    let (mut pushed, mut limit) = (0, AHEAD_SAMPLES);
    while now < end {
        while pushed + u64::from(FRAME) <= limit {
            playout.push(now, 1, FRAME, &[1]);
            pushed += u64::from(FRAME);
        }
        while let Some(due) = playout.poll_frame(now, &mut payload) {
            // An hour fits into the 32 bits of the media clock.
            let place = begin + Duration::from_nanos(u64::from(due.rtp_timestamp) * 125_000 / 6);
            drift = drift.max(now - place);
            if let Some(before) = before.replace(now) {
                shortest = shortest.min(now - before);
            }
        }
        while let Some(report) = playout.poll_report(now) {
            limit = report.limit;
        }
        while playout.poll_effect().is_some() {}
        let at = playout.poll_timeout().unwrap().max(now);
        now = at + late;
        if now >= freeze && !frozen {
            frozen = true;
            now += Duration::from_secs(5);
        }
    }
    assert_eq!(playout.stats().refused, 0);
    (drift, shortest, playout.stats().sent)
}

#[test]
fn an_hour_of_late_wake_ups_and_a_freeze_of_5_s_drift_less_than_20_ms_and_burst_never() {
    let late = Duration::from_millis(1);
    let (drift, shortest, sent) = hour(late);
    assert!(drift < Duration::from_millis(20), "{drift:?}");
    // After the freeze the first packet leaves within its slot, the next at the next slot's begin.
    assert!(shortest >= Duration::from_millis(19), "{shortest:?}");
    // One slot in a second is that of the freeze; none is lost otherwise.
    assert_eq!(sent, 3600 * 50 - 5 * 50);
}
