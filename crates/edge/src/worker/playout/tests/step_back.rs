//! Resume from an earlier sample.

use super::*;

fn tags(rig: &Rig) -> Vec<u8> {
    rig.sent.iter().map(|sent| sent.3).collect()
}

/// Twenty frames, of which those up to `pause_at` ms are sent.
fn paused(pause_at: u64) -> Rig {
    let mut rig = Rig::new();
    rig.playout.start(rig.now, 1, 0);
    rig.queue(1, 0..40);
    rig.playout.end(rig.now, 1);
    rig.run_to(pause_at);
    rig.playout.pause(rig.now);
    rig.run_to(pause_at + 500);
    rig.sent.clear();
    rig
}

#[test]
fn playout_goes_on_with_the_frame_at_or_before_the_sample() {
    for (from, first) in [(4 * 960, 4), (4 * 960 + 1, 4), (5 * 960 - 1, 4), (9 * 960 - 1, 8), (9 * 960, 9)] {
        // Nine frames, 0 to 8, are sent.
        let mut rig = paused(170);
        rig.playout.resume(rig.now, Some(from));
        rig.drain();
        rig.run_to(5000);
        assert_eq!(tags(&rig), (first..40).collect::<Vec<_>>(), "from {from}");
        let times = rig.times();
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 20), "from {from}: {times:?}");
        assert_eq!(rig.playout.stats().replayed, 9 - u64::from(first));
    }
}

#[test]
fn what_is_played_again_does_not_count_as_sent() {
    let mut rig = paused(170);
    let sent = |rig: &mut Rig| rig.reports.last().map(|report| report.sent);
    assert_eq!(sent(&mut rig), Some(9 * 960));
    rig.playout.resume(rig.now, Some(0));
    rig.drain();
    assert!(rig.effects.contains(&(EffectKind::Resumed, 1, 9 * 960)));
    let again = rig.now;
    rig.run_to(670 + 170);
    assert!(again < rig.now);
    assert_eq!(sent(&mut rig), Some(9 * 960), "all nine again, and no more");
    rig.run_to(670 + 310);
    assert!(sent(&mut rig) > Some(9 * 960));
    rig.run_to(5000);
    assert_eq!(rig.effects.last(), Some(&(EffectKind::Finished, 1, 40 * 960)));
    assert_eq!(rig.playout.stats().underruns, 0);
    let counted = (rig.playout.stats().sent, rig.playout.stats().replayed);
    assert_eq!(counted, (49, 9));
}

#[test]
fn no_more_than_320_ms_are_kept() {
    let mut rig = paused(590);
    rig.playout.resume(rig.now, Some(0));
    rig.drain();
    rig.run_to(5000);
    assert_eq!(tags(&rig)[0], 14, "30 frames were sent, the last 16 are kept");
}

#[test]
fn a_step_back_may_be_interrupted_and_stepped_back_again() {
    let mut rig = paused(170);
    rig.playout.resume(rig.now, Some(2 * 960));
    rig.drain();
    rig.run_to(670 + 45);
    rig.playout.pause(rig.now);
    rig.run_to(1000);
    assert_eq!(tags(&rig), [2, 3, 4]);
    rig.playout.resume(rig.now, None);
    rig.drain();
    rig.run_to(1100);
    assert_eq!(tags(&rig)[3..7], [5, 6, 7, 8], "what the step back has not played yet comes first");
    rig.playout.pause(rig.now);
    rig.playout.flush(rig.now, 1);
    rig.drain();
    assert_eq!(rig.effects.last().map(|effect| effect.0), Some(EffectKind::Flushed));
    rig.run_to(3000);
    assert_eq!(rig.playout.open_utterances(), 0);
}

#[test]
fn a_step_back_beyond_what_is_sent_is_none() {
    let mut rig = paused(170);
    rig.playout.resume(rig.now, Some(u64::MAX));
    rig.drain();
    rig.run_to(5000);
    assert_eq!(tags(&rig), (9..40).collect::<Vec<_>>());
    let mut idle = Rig::new();
    idle.playout.resume(idle.now, Some(5));
    idle.run_to(1000);
    assert_eq!(idle.sent, []);
}

#[test]
fn a_hold_is_a_pause_without_an_answer() {
    let mut rig = Rig::new();
    assert_eq!(rig.playout.hold(rig.now), None, "nothing plays");
    rig.playout.start(rig.now, 3, 0);
    rig.queue(3, 0..10);
    rig.run_to(50);
    assert!(rig.playout.is_playing());
    rig.effects.clear();
    assert_eq!(rig.playout.hold(rig.now), Some((3, 3 * 960)));
    assert_eq!(rig.playout.hold(rig.now), None, "it holds already");
    assert!(!rig.playout.is_playing());
    rig.run_to(500);
    assert_eq!((tags(&rig).len(), rig.effects.len()), (3, 0));
    rig.playout.resume(rig.now, None);
    rig.playout.end(rig.now, 3);
    rig.run_to(1000);
    assert_eq!(tags(&rig), (0..10).collect::<Vec<_>>(), "nothing is lost and nothing repeated");
}
