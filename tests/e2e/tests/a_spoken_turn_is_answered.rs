//! One turn with the parrot.

mod scenes;

use std::time::Duration;

use e2e::World;
use scenes::{FRAME, a_turn_is_answered, bad, good, replying};

#[test]
fn a_spoken_turn_is_answered() {
    a_turn_is_answered(&good(), 1);
}

#[test]
fn a_spoken_turn_is_answered_over_a_bad_network() {
    for seed in 1..=4 {
        a_turn_is_answered(&bad(), seed);
    }
}

#[test]
fn a_reply_leaves_in_equal_steps_however_the_link_stutters() {
    let mut road = good();
    road.link = bad().link;
    let mut world = World::new(road.plan(5));
    let client = replying(&mut world);
    world.run(Duration::from_millis(2500));
    let (caller, context) = (world.client(client), world.context());
    let sound: Vec<_> = caller.sound().collect();
    assert!(sound.len() > 95, "{context}");
    // The first leaves when it comes, the second on the worker's next tick of a millisecond, all others 20 ms apart.
    let steps: Vec<Duration> = sound.windows(2).map(|pair| pair[1].at.saturating_sub(pair[0].at)).collect();
    assert!(steps[0] >= FRAME && steps[0] < FRAME + Duration::from_millis(1), "{:?}; {context}", steps[0]);
    let uneven: Vec<_> = steps[1..].iter().filter(|step| step.abs_diff(FRAME) > Duration::from_micros(21)).collect();
    assert!(uneven.is_empty(), "{uneven:?}; {context}");
    assert!(sound.windows(2).all(|pair| pair[1].seq == pair[0].seq + 1), "{context}");
    assert!(sound.windows(2).all(|pair| pair[1].timestamp == pair[0].timestamp + 960), "{context}");
    let tail: Vec<bool> = caller.heard.iter().rev().take(4).map(e2e::Heard::is_silent).collect();
    assert_eq!(tail, [true, true, true, false], "silence follows; {context}");
}
