//! Sound beside the conversation.

use super::super::MAX_CLIP_FRAMES;
use super::*;

fn clip(tags: std::ops::Range<u8>) -> Vec<Vec<u8>> {
    tags.map(|tag| vec![tag]).collect()
}

#[test]
fn a_clip_plays_once_at_once_and_is_reported_nowhere() {
    let mut rig = Rig::new();
    rig.run_to(7);
    assert!(rig.playout.play_clip(rig.now, clip(1..4)));
    rig.drain();
    rig.run_to(1000);
    assert_eq!(rig.sent, [(7, 336, true, 1), (27, 1296, false, 2), (47, 2256, false, 3)]);
    assert_eq!(rig.silent.len(), 3, "and silence follows it");
    assert_eq!((rig.effects.len(), rig.reports.len()), (0, 0));
    assert_eq!((rig.playout.stats().clip_frames, rig.playout.stats().sent), (3, 0));
    assert_eq!(rig.playout.poll_timeout(), None);
}

#[test]
fn a_reply_ends_a_clip_with_its_first_frame() {
    let mut rig = Rig::new();
    assert!(rig.playout.play_clip(rig.now, clip(1..50)));
    rig.drain();
    rig.run_to(50);
    rig.playout.start(rig.now, 1, 0);
    rig.run_to(90);
    rig.queue(1, 100..102);
    rig.playout.end(rig.now, 1);
    rig.run_to(1000);
    assert_eq!(rig.times(), [0, 20, 40, 60, 80, 100, 120], "no gap and no overlap");
    assert_eq!(rig.sent.iter().map(|sent| sent.3).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 100, 101]);
    assert_eq!((rig.playout.stats().clips_dropped, rig.playout.stats().underruns), (1, 0));
}

#[test]
fn a_clip_beside_a_reply_is_dropped() {
    let mut rig = Rig::new();
    rig.playout.start(rig.now, 1, 0);
    rig.queue(1, 0..5);
    assert!(!rig.playout.play_clip(rig.now, clip(50..60)));
    rig.playout.pause(rig.now);
    assert!(!rig.playout.play_clip(rig.now, clip(50..60)), "a reply that is paused is still one");
    rig.playout.resume(rig.now, None);
    rig.playout.end(rig.now, 1);
    rig.run_to(1000);
    assert_eq!(rig.sent.iter().map(|sent| sent.3).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(rig.playout.stats().clips_dropped, 2);
}

#[test]
fn a_later_clip_takes_the_place_of_the_one_that_plays() {
    let mut rig = Rig::new();
    rig.playout.play_clip(rig.now, clip(1..50));
    rig.run_to(25);
    rig.playout.play_clip(rig.now, clip(60..62));
    rig.run_to(1000);
    assert_eq!(rig.sent.iter().map(|sent| sent.3).collect::<Vec<_>>(), [1, 2, 60, 61]);
}

#[test]
fn what_is_no_clip_is_not_played() {
    let mut rig = Rig::new();
    for frames in [vec![vec![1]; MAX_CLIP_FRAMES + 1], vec![vec![1], vec![]], vec![vec![1; 1276]]] {
        assert!(!rig.playout.play_clip(rig.now, frames));
    }
    rig.run_to(1000);
    assert_eq!((rig.sent.len(), rig.playout.stats().clips_dropped), (0, 3));
}
