//! Facts about pacing, in virtual time.

use std::time::{Duration, Instant};

use super::{AHEAD_SAMPLES, Effect, EffectKind, Playout, SILENCE};

mod clips;
mod greeting;
mod pacing;
mod step_back;

const FRAME: u32 = 960;

struct Rig {
    begin: Instant,
    now: Instant,
    playout: Playout,
    /// (milliseconds since the begin, RTP timestamp, marker, first payload byte)
    sent: Vec<(u64, u32, bool, u8)>,
    /// (milliseconds since the begin, RTP timestamp) of silent frames
    silent: Vec<(u64, u32)>,
    effects: Vec<(EffectKind, u32, u64)>,
    reports: Vec<super::Report>,
}

impl Rig {
    fn new() -> Self {
        let begin = Instant::now();
        Self {
            begin,
            now: begin,
            playout: Playout::new(begin),
            sent: vec![],
            silent: vec![],
            effects: vec![],
            reports: vec![],
        }
    }

    fn queue(&mut self, utterance: u32, tags: std::ops::Range<u8>) {
        for tag in tags {
            self.playout.push(self.now, utterance, FRAME, &[tag]);
        }
        self.drain();
    }

    fn drain(&mut self) {
        let mut payload = Vec::new();
        while let Some(due) = self.playout.poll_frame(self.now, &mut payload) {
            let at = u64::try_from((self.now - self.begin).as_millis()).unwrap();
            if payload == SILENCE {
                assert!(!due.marker, "silence starts no talkspurt");
                self.silent.push((at, due.rtp_timestamp));
            } else {
                self.sent.push((at, due.rtp_timestamp, due.marker, payload[0]));
            }
        }
        while let Some(Effect { kind, utterance, sent }) = self.playout.poll_effect() {
            self.effects.push((kind, utterance, sent));
        }
        while let Some(report) = self.playout.poll_report(self.now) {
            self.reports.push(report);
        }
    }

    /// Serves every deadline up to `ms` after the begin, exactly on time.
    fn run_to(&mut self, ms: u64) {
        let until = self.begin + Duration::from_millis(ms);
        let mut rounds = 0;
        while let Some(at) = self.playout.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.drain();
            rounds += 1;
            assert!(rounds < 10_000, "the deadline does not move: a busy loop");
        }
        self.now = until;
    }

    /// Lets time pass without serving deadlines.
    fn stall_to(&mut self, ms: u64) {
        self.now = self.begin + Duration::from_millis(ms);
        self.drain();
    }

    fn times(&self) -> Vec<u64> {
        self.sent.iter().map(|s| s.0).collect()
    }
}

#[test]
fn frames_leave_one_per_slot_from_the_first_arrival() {
    let mut rig = Rig::new();
    rig.run_to(7);
    rig.playout.start(rig.now, 1, 0);
    rig.queue(1, 0..5);
    rig.run_to(200);
    assert_eq!(rig.times(), [7, 27, 47, 67, 87]);
    let first = rig.sent[0].1;
    assert_eq!(first, 7 * 48, "RTP timestamps are the media clock");
    assert!(rig.sent.iter().enumerate().all(|(i, s)| s.1 == first + u32::try_from(i).unwrap() * FRAME));
    assert_eq!(rig.sent.iter().map(|s| s.2).collect::<Vec<_>>(), [true, false, false, false, false]);
}

#[test]
fn an_hour_of_frames_does_not_drift() {
    let mut rig = Rig::new();
    rig.playout.start(rig.now, 1, 0);
    let mut payload = Vec::new();
    let frames: u64 = 3600 * 50;
    for n in 0..frames {
        rig.playout.push(rig.now, 1, FRAME, &[1]);
        let at = rig.playout.poll_timeout().unwrap();
        // Reports are due between frames; frames are due each 20 ms.
        rig.now = rig.now.max(at.min(rig.begin + Duration::from_millis(n * 20)));
        rig.now = rig.begin + Duration::from_millis(n * 20);
        assert!(rig.playout.poll_frame(rig.now, &mut payload).is_some(), "frame {n}");
        assert!(rig.playout.poll_frame(rig.now, &mut payload).is_none());
    }
    assert_eq!(rig.playout.stats().skipped_slots, 0);
    assert_eq!(rig.playout.stats().underruns, 0);
}

#[test]
fn timestamps_run_on_across_silence_and_the_marker_is_on_the_first_frame_after_it() {
    let mut rig = Rig::new();
    rig.playout.start(rig.now, 1, 0);
    rig.queue(1, 0..2);
    rig.playout.end(rig.now, 1);
    rig.run_to(1000);
    rig.playout.start(rig.now, 2, 0);
    rig.queue(2, 10..12);
    rig.playout.end(rig.now, 2);
    rig.run_to(1100);
    assert_eq!(rig.sent, [(0, 0, true, 0), (20, 960, false, 1), (1000, 48_000, true, 10), (1020, 48_960, false, 11)]);
    assert_eq!(rig.playout.stats().underruns, 0, "an ended utterance does not starve");
}

#[test]
fn a_client_that_can_hear_gets_three_silent_frames_first() {
    let mut rig = Rig::new();
    rig.run_to(5);
    rig.playout.open(rig.now);
    rig.drain();
    rig.run_to(500);
    assert_eq!(rig.silent, [(5, 240), (25, 1200), (45, 2160)]);
    assert_eq!(rig.playout.poll_timeout(), None);
    assert_eq!(rig.playout.stats(), &super::Stats::default());
}

#[test]
fn sound_is_followed_by_three_silent_frames_whatever_ended_it() {
    type End = fn(&mut Rig);
    let ends: [(&str, End); 4] = [
        ("its end", |rig| rig.playout.end(rig.now, 1)),
        ("a pause", |rig| rig.playout.pause(rig.now)),
        ("a flush", |rig| rig.playout.flush(rig.now, 1)),
        ("an underrun", |_| {}),
    ];
    for (what, end) in ends {
        let mut rig = Rig::new();
        rig.playout.start(rig.now, 1, 0);
        rig.queue(1, 0..2);
        rig.run_to(20);
        end(&mut rig);
        rig.run_to(90);
        assert_eq!(rig.silent, [(40, 1920), (60, 2880), (80, 3840)], "{what}");
    }
}

#[test]
fn the_next_utterance_follows_without_a_gap() {
    let mut rig = Rig::new();
    rig.playout.start(rig.now, 1, 0);
    rig.queue(1, 0..2);
    rig.playout.end(rig.now, 1);
    rig.playout.start(rig.now, 2, 0);
    rig.queue(2, 10..12);
    rig.playout.end(rig.now, 2);
    rig.run_to(200);
    assert_eq!(rig.times(), [0, 20, 40, 60]);
    assert!(!rig.sent[2].2);
    let kinds: Vec<_> = rig.effects.iter().map(|e| (e.0, e.1)).collect();
    assert_eq!(
        kinds,
        [(EffectKind::Started, 1), (EffectKind::Finished, 1), (EffectKind::Started, 2), (EffectKind::Finished, 2)]
    );
}

#[test]
fn an_utterance_that_overtakes_another_waits_for_it() {
    let mut rig = Rig::new();
    rig.playout.start(rig.now, 1, 0);
    rig.playout.push(rig.now, 1, FRAME, &[0]);
    rig.playout.start(rig.now, 2, 0);
    rig.playout.push(rig.now, 2, FRAME, &[10]);
    rig.playout.push(rig.now, 1, FRAME, &[1]);
    rig.playout.end(rig.now, 1);
    rig.run_to(100);
    assert_eq!(rig.sent.iter().map(|s| s.3).collect::<Vec<_>>(), [0, 1, 10]);
}

#[test]
fn a_stall_skips_whole_slots_and_never_bursts() {
    let mut rig = Rig::new();
    rig.playout.start(rig.now, 1, 0);
    rig.queue(1, 0..10);
    rig.run_to(30);
    rig.stall_to(110);
    rig.run_to(400);
    assert_eq!(rig.times(), [0, 20, 110, 120, 140, 160, 180, 200, 220, 240], "the grid of 20 ms is kept");
    assert_eq!(rig.playout.stats().skipped_slots, 3);
    assert_eq!(rig.sent[2].1, 100 * 48, "the slot that is running, not the ones that passed");
    assert!(rig.sent[2].2, "a gap in the timestamps starts a talkspurt");
    assert!(!rig.sent[3].2);
}

#[test]
fn a_late_driver_within_a_slot_keeps_the_timestamps() {
    let mut rig = Rig::new();
    rig.playout.start(rig.now, 1, 0);
    rig.queue(1, 0..3);
    rig.stall_to(33);
    rig.run_to(100);
    assert_eq!(rig.sent, [(0, 0, true, 0), (33, 960, false, 1), (40, 1920, false, 2)]);
    assert_eq!(rig.playout.stats().skipped_slots, 0);
}

#[test]
fn a_queue_that_runs_empty_is_one_underrun_and_playout_goes_on_when_a_frame_comes() {
    let mut rig = Rig::new();
    rig.playout.start(rig.now, 1, 0);
    rig.queue(1, 0..2);
    rig.run_to(73);
    assert_eq!(rig.playout.stats().underruns, 1);
    rig.queue(1, 2..4);
    rig.run_to(80);
    rig.playout.end(rig.now, 1);
    rig.run_to(200);
    assert_eq!(rig.times(), [0, 20, 80, 100], "the silent frame at 60 lasts until 80");
    assert_eq!(rig.sent[2].1, 80 * 48);
    assert!(rig.sent[2].2);
    assert_eq!(
        rig.effects,
        [(EffectKind::Started, 1, 960), (EffectKind::Underrun, 1, 1920), (EffectKind::Finished, 1, 3840)]
    );
}

#[test]
fn pause_holds_at_a_frame_border_and_resume_goes_on_at_the_first_sample_not_sent() {
    let mut rig = Rig::new();
    rig.playout.start(rig.now, 1, 0);
    rig.queue(1, 0..6);
    rig.playout.end(rig.now, 1);
    rig.run_to(50);
    rig.playout.pause(rig.now);
    rig.run_to(300);
    rig.playout.resume(rig.now, None);
    rig.drain();
    rig.run_to(500);
    assert_eq!(rig.times(), [0, 20, 40, 300, 320, 340]);
    assert_eq!(rig.sent.iter().map(|s| s.3).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5], "nothing is lost");
    assert_eq!((rig.sent[3].1, rig.sent[3].2), (300 * 48, true));
    assert!(rig.effects.contains(&(EffectKind::Paused, 1, 2880)));
    assert!(rig.effects.contains(&(EffectKind::Resumed, 1, 2880)));
    assert_eq!(rig.playout.stats().underruns, 0, "a pause is no underrun");
}

#[test]
fn a_resume_within_the_slot_of_the_last_frame_leaves_no_gap() {
    let mut rig = Rig::new();
    rig.playout.start(rig.now, 1, 0);
    rig.queue(1, 0..3);
    rig.run_to(25);
    rig.playout.pause(rig.now);
    rig.run_to(31);
    rig.playout.resume(rig.now, None);
    rig.drain();
    rig.run_to(100);
    assert_eq!(rig.sent, [(0, 0, true, 0), (20, 960, false, 1), (40, 1920, false, 2)]);
}

#[test]
fn flush_answers_the_exact_position_and_is_final() {
    let mut rig = Rig::new();
    rig.playout.start(rig.now, 7, 0);
    rig.queue(7, 0..20);
    rig.run_to(50);
    rig.effects.clear();
    rig.playout.flush(rig.now, 7);
    rig.drain();
    rig.queue(7, 20..30);
    rig.playout.start(rig.now, 7, 0);
    rig.queue(7, 30..31);
    rig.playout.flush(rig.now, 7);
    rig.drain();
    rig.run_to(500);
    assert_eq!(rig.times(), [0, 20, 40]);
    assert_eq!(rig.effects, [(EffectKind::Flushed, 7, 2880), (EffectKind::Flushed, 7, 2880)]);
    assert_eq!(rig.playout.stats().stale, 11);
    assert_eq!(rig.playout.open_utterances(), 0);
    assert_eq!(rig.playout.poll_timeout(), None);
}

#[test]
fn flush_tells_the_position_of_each_utterance_it_drops_and_spares_later_ones() {
    let mut rig = Rig::new();
    for utterance in 1..=3 {
        rig.playout.start(rig.now, utterance, 0);
        rig.playout.push(rig.now, utterance, FRAME, &[u8::try_from(utterance).unwrap()]);
    }
    rig.playout.push(rig.now, 1, FRAME, &[1]);
    rig.drain();
    rig.effects.clear();
    rig.playout.flush(rig.now, 2);
    rig.drain();
    rig.run_to(100);
    assert_eq!(rig.effects[..2], [(EffectKind::Flushed, 1, 960), (EffectKind::Flushed, 2, 0)]);
    assert_eq!(rig.sent.iter().map(|s| s.3).collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn flush_ends_a_pause() {
    let mut rig = Rig::new();
    rig.playout.start(rig.now, 1, 0);
    rig.queue(1, 0..5);
    rig.playout.pause(rig.now);
    rig.playout.flush(rig.now, 1);
    rig.playout.start(rig.now, 2, 0);
    rig.queue(2, 10..12);
    rig.run_to(100);
    assert_eq!(rig.sent.iter().map(|s| s.3).collect::<Vec<_>>(), [0, 10, 11]);
}

#[test]
fn credit_stands_one_second_ahead_and_frames_beyond_it_are_refused() {
    let mut rig = Rig::new();
    rig.playout.start(rig.now, 1, 0);
    rig.queue(1, 0..80);
    // One frame left at once, so 1.1 s of samples after it fit.
    assert_eq!(rig.playout.stats().refused, 80 - 55);
    rig.run_to(99);
    assert_eq!(rig.reports, []);
    rig.run_to(310);
    assert_eq!(rig.reports.len(), 3);
    let report = rig.reports[2];
    assert_eq!(report.limit, report.sent + AHEAD_SAMPLES);
    assert_eq!((report.utterance, report.sent), (1, 16 * 960), "frames at 0, 20, ... 300");
    assert_eq!(u64::from(report.queue_ms), (55 - 16) * 20);
}

#[test]
fn reports_end_with_the_utterance() {
    let mut rig = Rig::new();
    rig.playout.start(rig.now, 1, 0);
    rig.queue(1, 0..3);
    rig.playout.end(rig.now, 1);
    rig.run_to(1000);
    assert_eq!(rig.reports, []);
    assert_eq!(rig.playout.poll_timeout(), None, "an idle session sets no timer");
}

#[test]
fn an_utterance_without_frames_finishes() {
    let mut rig = Rig::new();
    rig.playout.start(rig.now, 1, 0);
    rig.playout.end(rig.now, 1);
    rig.drain();
    assert_eq!(rig.effects, [(EffectKind::Finished, 1, 0)]);
}

#[test]
fn shapeless_frames_are_refused_and_unknown_utterances_are_stale() {
    let mut rig = Rig::new();
    rig.playout.start(rig.now, 1, 0);
    rig.playout.push(rig.now, 1, 0, &[1]);
    rig.playout.push(rig.now, 1, FRAME, &[]);
    rig.playout.push(rig.now, 1, 6000, &[1]);
    rig.playout.push(rig.now, 9, FRAME, &[1]);
    assert_eq!((rig.playout.stats().refused, rig.playout.stats().stale), (3, 1));
}

#[test]
fn mixed_frame_durations_keep_their_own_slots() {
    let mut rig = Rig::new();
    rig.playout.start(rig.now, 1, 0);
    for (tag, samples) in [(0, 480), (1, 2880), (2, 960)] {
        rig.playout.push(rig.now, 1, samples, &[tag]);
    }
    rig.drain();
    rig.run_to(200);
    assert_eq!(rig.times(), [0, 10, 70]);
}

#[test]
fn an_utterance_at_an_absurd_position_is_none() {
    let mut rig = Rig::new();
    for first_sample in [u64::MAX, u64::MAX - AHEAD_SAMPLES, 1 << 40] {
        rig.playout.start(rig.now, 1, first_sample);
        rig.queue(1, 0..1);
    }
    assert_eq!((rig.playout.open_utterances(), rig.playout.stats().stale), (0, 3));
}
