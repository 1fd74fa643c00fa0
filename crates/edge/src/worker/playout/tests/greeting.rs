//! Case T11: a reply that is ready before the path to the client is proven. Until then the session's owner takes no frame.

use super::*;

#[test]
fn t11_a_greeting_begins_with_its_first_frame_when_the_path_is_proven_and_never_bursts() {
    let mut rig = Rig::new();
    rig.playout.start(rig.begin, 1, 0);
    // A second of it, all the credit there is.
    for tag in 0..50 {
        rig.playout.push(rig.begin, 1, FRAME, &[tag]);
    }
    rig.now = rig.begin + Duration::from_millis(900);
    rig.playout.open(rig.now);
    rig.drain();
    rig.run_to(2000);
    let tags: Vec<u8> = rig.sent.iter().map(|sent| sent.3).collect();
    assert_eq!(tags, (0..50).collect::<Vec<u8>>());
    assert_eq!(rig.times(), (0..50).map(|frame| 900 + frame * 20).collect::<Vec<u64>>());
    assert_eq!((rig.playout.stats().refused, rig.playout.stats().skipped_slots), (0, 0));
}
