//! Model `echo`: the edge returns audio and messages itself, and no transceiver hears of the call.

use std::time::Duration;

use e2e::{Plan, World, decode, likeness, speech};

/// To the edge and back.
const ROUND_TRIP: Duration = Duration::from_millis(20);
const FRAME: Duration = Duration::from_millis(20);

#[test]
fn the_edge_alone_echoes_audio_and_messages() {
    let mut world = World::new(Plan::default());
    let client = world.connect("echo");
    let said = speech(600, 1);
    let began = world.elapsed();
    world.say(client, &said);
    world.write(client, "not JSON, which is as good");
    world.run(Duration::from_millis(1490));

    let context = world.context();
    let caller = world.client(client);
    assert_eq!(caller.event_names(), ["session.created"], "{context}");
    assert_eq!(caller.events[0].1["session"]["model"], "echo", "{context}");
    assert_eq!(caller.texts, ["not JSON, which is as good"], "{context}");
    let heard = decode(caller.sound_between(began, world.elapsed()));
    let likeness = likeness(&said, &heard);
    assert!(likeness > 0.9, "{likeness}; {context}");
    // Each frame comes back after one round trip.
    let spoken_for = world.elapsed() - caller.connected.expect("connected") - ROUND_TRIP;
    assert_eq!(caller.heard.len() as u128, spoken_for.as_millis() / FRAME.as_millis() + 1, "{context}");
    assert!(caller.heard.windows(2).all(|pair| pair[1].at == pair[0].at + FRAME), "{context}");
    assert_eq!(world.node(0).calls(), 0, "{context}");
}
