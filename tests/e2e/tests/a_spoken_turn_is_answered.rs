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
    assert!(caller.heard.len() > 95, "{context}");
    assert!(caller.heard.windows(2).all(|pair| pair[1].at == pair[0].at + FRAME), "{context}");
    assert!(caller.heard.windows(2).all(|pair| pair[1].seq == pair[0].seq + 1), "{context}");
    assert!(caller.heard.windows(2).all(|pair| pair[1].timestamp == pair[0].timestamp + 960), "{context}");
}
